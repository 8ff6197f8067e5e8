/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dial_server: whether a newcomer is reached at the address that it states: this island dials it, and asks one more
 * owner to (net/transport/dial_back.h).
 *
 * A guest asks before it joins, and does as it is told; who joins is not judged by it. Another operator asks for its
 * guest. Dialling is a job (JOBS_DIAL), one after the other, so that a slow name or line keeps nothing else waiting.
 * What a guest or member can make this island connect to is bounded: by invitation, by the minute, and at a time.
 * Beyond that, or where anything fails here, the answer is that it was not tested, and the guest goes on.
 *
 * Only the loop's thread; nothing blocks. Messages are input: the caller has checked the signatures of a guest's
 * question, those of a member's are checked here.
 */
#ifndef DAEMON_MEMBERSHIP_DIAL_SERVER_H
#define DAEMON_MEMBERSHIP_DIAL_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "daemon/jobs.h"
#include "net/config/view.h"
#include "net/transport/link.h"
#include "net/transport/wire_join.h"

/* docs/PROTOCOL.md, section 10. TOKEN: for one invitation, while this process lives; AT_ONCE: that wait or are under
 * way; in all, BURST at once and then one in EVERY; of these for members that ask, ASKED_MAX at once and then one in
 * ASKED. OTHER: for the other owner's answer. */
enum { DIALS_TOKEN_MAX = 8, DIALS_AT_ONCE = 4, DIALS_BURST = 10, DIALS_EVERY_MS = 6000, DIALS_OTHER_MS = 7000 };
enum { DIALS_ASKED_MAX = 8, DIALS_ASKED_MS = 300000 };

/* All borrowed. */
struct dial_server_conf {
    struct jobs *jobs;
    struct link *link;
    const struct view *view; /* follows the newest configuration */
};

struct dial_server;
ERR_MUST_CHECK enum err dial_server_new(const struct dial_server_conf *conf, struct dial_server **out);
/* After the jobs. NULL is fine. */
void dial_server_free(struct dial_server *server);
/* The daemon ends: nobody is dialled any more, nor those that wait already; one that is being dialled is, for as long
 * as that takes (net/transport/dial_back.h). */
void dial_server_stop(struct dial_server *server);

/* A guest asks, by a JOIN that is signed. It is answered when there is an answer; asked again, the same again. */
void dial_server_ask(struct dial_server *server, const struct wire_join *join, uint64_t connection, uint64_t now_ms);
/* An invitation that is over: what it had is forgotten. */
void dial_server_forget(struct dial_server *server, const struct digest *invitation);
/* A member's DIAL_REQUEST or DIAL_RESPONSE. ERR_PROTO: it cannot be read, or is not signed. */
ERR_MUST_CHECK enum err dial_server_message_in(struct dial_server *server, uint32_t slot, uint32_t type,
                                               const void *bytes, size_t bytes_count, uint64_t now_ms);
/* `silent`: slots that are not heard, of which none is asked. */
void dial_server_tick(struct dial_server *server, const struct bitset *silent, uint64_t now_ms);

#endif
