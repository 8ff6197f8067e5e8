/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_key: what a rank has of a site's keys, in a file of one line: whom it expects, and what it proves itself by.
 * Keys are CurveZMQ's, of 40 letters each (Z85, https://rfc.zeromq.org/spec/32).
 */
#ifndef WORKER_GATE_GATE_KEY_H
#define WORKER_GATE_GATE_KEY_H

#include "common/err.h"
#include "worker/gate/gate_zmq.h"

enum { GATE_KEY_TEXT = 41 }; /* with its zero */
#define GATE_SITE_WORD "diloco-site-key-1"

/* Wiped by whoever has it, when it is no longer needed. */
struct gate_key {
    char own_secret[GATE_KEY_TEXT], own_public[GATE_KEY_TEXT], other_public[GATE_KEY_TEXT];
};

/* ERR_CONF: others may read it, or it is no such file; ERR_NOTFOUND: it is not there; ERR_IO. */
ERR_MUST_CHECK enum err gate_key_of_rank(const struct gate_zmq *zmq, const char *path, struct gate_key *out);

/* The two keys behind `word` in a file. The same failures. */
ERR_MUST_CHECK enum err gate_key_read(const char *path, const char *word, char one[GATE_KEY_TEXT],
                                      char two[GATE_KEY_TEXT]);
/* What is public of a secret one. ERR_CONF: it is no key. */
ERR_MUST_CHECK enum err gate_key_public(const struct gate_zmq *zmq, const char *path, const char *secret,
                                        char public[GATE_KEY_TEXT]);

#endif
