/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/strangers.h"

#include <stdio.h>

enum { STRANGER_SAID_MS = 5000 };

/* True: it is to be logged now. */
static bool note(struct strangers *strangers, const char *text, uint64_t now_ms)
{
    strangers->count++;
    strangers->last_ms = now_ms;
    snprintf(strangers->last, sizeof strangers->last, "%s", text);
    return log_limit_pass(&strangers->said, now_ms, STRANGER_SAID_MS);
}

void strangers_unknown(struct strangers *strangers, const char *who, uint64_t now_ms)
{
    if (note(strangers, who, now_ms))
        log_warn(
            "refused a connection with unknown key %s; if it is an island of the run, it was revoked, and comes in "
            "again by dilococtl reset there and a new invitation, or it has another key than dilococtl peers shows",
            who);
}

void strangers_newcomer(struct strangers *newcomers, const char *why, uint64_t now_ms)
{
    if (note(newcomers, why, now_ms))
        log_warn("a newcomer with a token was refused: %s; install the same release on both, the token stays good",
                 why);
}
