/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_client: asking a daemon over its control socket: one request, one JSON answer. Blocking; any thread.
 *
 * Owns: the commands of dilococtl; it reaches a daemon by its control socket alone.
 * Called by: daemon.
 * Never includes: daemon/control/, daemon/peers/, daemon/transfer/, daemon/membership/, daemon/trainer/,
 * daemon/rounds/, daemon/engine.h, <zmq.h>.
 */
#ifndef DAEMON_CTL_CTL_CLIENT_H
#define DAEMON_CTL_CTL_CLIENT_H

#include <jansson.h>

#include "common/err.h"

/* Sends `request` ("status", ...) to the socket and gives the answer; the caller decrefs it. An answer that is an error
 * becomes one. ERR_CLOSED: no daemon there, or it does not answer; ERR_PROTO: what it says is no answer. */
ERR_MUST_CHECK enum err ctl_ask(const char *socket_path, const char *request, json_t **answer);
/* The same; `*pid`: of the process that answers, or would if it were not busy; 0: none, or one that has no number here.
 */
ERR_MUST_CHECK enum err ctl_ask_whom(const char *socket_path, const char *request, json_t **answer, int *pid);
/* As ctl_ask(), for whoever cannot wait: ERR_CLOSED, too, where no answer has come in so many seconds. */
ERR_MUST_CHECK enum err ctl_ask_within(const char *socket_path, const char *request, int seconds, json_t **answer);

/* A member of an object as text, number or integer; "" or 0 if it is not there. */
const char *ctl_text(const json_t *object, const char *key);
double ctl_number(const json_t *object, const char *key);
json_int_t ctl_integer(const json_t *object, const char *key);

#endif
