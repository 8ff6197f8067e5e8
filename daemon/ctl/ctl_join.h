/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_join: an island joins a run by a token: it is made as by init, but with the run's own spec, and the configuration
 * that has it on the roster.
 *
 * Blocks until the run has decided it. It makes the files that ctl_init lists; only the key stays after a failure that
 * the run may have heard of, and by it the next try goes on where this one stopped. Starts no daemon.
 */
#ifndef DAEMON_CTL_CTL_JOIN_H
#define DAEMON_CTL_CTL_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/ctl/ctl_init.h"

struct ctl_join {
    const char *token;
    const char *owner;    /* auto, yes, no; NULL: auto */
    bool witness;         /* it has no data, and is called "witness" where no name is given */
    uint32_t patience_s;  /* for the inviter to be there */
    uint32_t decide_s;    /* and for the run to decide, in all */
    struct ctl_init init; /* its admit and owner are set here */
    bool already;         /* out: the island was in that run before */
};

/* The token itself: `word`, as it was typed, which is then made unreadable where it stood, since others see a command
 * line; or the first line of standard input where `word` is "-", or of `file`, where `word` is NULL. ERR_ARG: both, or
 * nothing is read. mem_free() it. */
ERR_MUST_CHECK enum err ctl_join_token(char *word, const char *file, char **token);

/* As ctl_init(), but an island of that name that joined the token's run here before is left as it is, which is said.
 * ERR_CONF: no token, or one that was typed wrong; ERR_STATE: the run refuses, with its reason;
 * ERR_CLOSED: nobody answers at the token's addresses. */
ERR_MUST_CHECK enum err ctl_join(const struct home *home, struct ctl_join *join);

#endif
