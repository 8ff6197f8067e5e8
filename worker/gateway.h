/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateway: rank 0 of a trainer whose ranks are all on other machines: it runs beside the daemon, has no values of its
 * own, and makes the calls that the trainer's first rank asks for. What the ranks contribute, and the anchors, go
 * through it. One trainer; one thread.
 */
#ifndef WORKER_GATEWAY_H
#define WORKER_GATEWAY_H

#include <stdbool.h>

#include "common/err.h"

struct gateway_conf {
    const char *socket_path;          /* of the daemon */
    const char *listen;               /* "HOST:PORT" or "*:PORT" */
    const char *key_path, *site_path; /* as of gate_key_of_gateway() */
    bool (*stopped)(void);            /* it is to end; asked again and again */
};

enum gateway_end {
    GATEWAY_OVER, /* the trainer is done, or the gateway was to end */
    GATEWAY_NEXT  /* its trainer has gone before it was done: another one may come, in a process that begins anew, as
                     what  was under way to that one may not be freed */
};

/* Waits for a trainer, and serves it until it ends. ERR_CONF, ERR_NOTFOUND, ERR_IO: before any came. */
ERR_MUST_CHECK enum err gateway_run(const struct gateway_conf *conf, enum gateway_end *end);

#endif
