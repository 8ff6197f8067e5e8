/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/impostors.h"

#include <stdio.h>

enum { STRANGER_SAID_MS = 5000, TWINS_SAID_MS = 60000 };
/* A greeting of the session before may have been on its way for long, and be answered by one of the new; more than that
 * does not happen to one machine. */
enum { TURNS_TOLD = 4, TURNS_WITHIN_MS = 60000 };

void strangers_note(struct strangers *strangers, const char *who, uint64_t now_ms)
{
    strangers->count++;
    strangers->last_ms = now_ms;
    snprintf(strangers->last, sizeof strangers->last, "%s", who);
    if (log_limit_pass(&strangers->said, now_ms, STRANGER_SAID_MS))
        log_warn(
            "refused a connection with unknown key %s; if it is an island of the run, it was revoked, and comes in "
            "again by dilococtl reset there and a new invitation, or it has another key than dilococtl peers shows",
            who);
}

void newcomers_note(struct newcomers *newcomers, const char *why, uint64_t now_ms)
{
    newcomers->last_ms = now_ms;
    snprintf(newcomers->last, sizeof newcomers->last, "%s", why);
    if (log_limit_pass(&newcomers->said, now_ms, STRANGER_SAID_MS))
        log_warn("a newcomer with a token was refused: %s; install the same release on both, the token stays good",
                 why);
}

void twins_note(struct twins *twins, const char *name, uint64_t session, uint64_t now_ms)
{
    if (session == twins->session)
        return;
    bool back = session == twins->before;
    twins->before = twins->session;
    twins->session = session;
    if (!back || now_ms >= twins->turned_ms + TURNS_WITHIN_MS)
        twins->turns = 0;
    if (!back)
        return;
    twins->turned_ms = now_ms;
    if (++twins->turns < TURNS_TOLD)
        return;
    twins->seen_ms = now_ms;
    if (log_limit_pass(&twins->said, now_ms, TWINS_SAID_MS))
        log_error("two machines speak with the key of island %s, in turn; stop one, and give it a key of its own",
                  name);
}
