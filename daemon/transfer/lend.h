/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lend: copies of our fragments' states for islands that fetch them: whom they are made for, how long they are kept,
 * and what of them goes out. Private to daemon/transfer.
 *
 * A copy stays at its version while our own fragment goes on, so that whoever began with it can end with it, and
 * several of us can serve the same one. There are MEMORY_STATES_SERVED at a time, each for LEND_READERS_MAX readers; a
 * reader that has gone silent, or has all, is let go, and the copy goes with the last of them. Only the loop's thread
 * calls; copies are made by jobs, which are asked for by EVENT_LEND.
 */
#ifndef DAEMON_TRANSFER_LEND_H
#define DAEMON_TRANSFER_LEND_H

#include "daemon/event.h"
#include "daemon/rounds/rounds.h"
#include "daemon/state/replica.h"
#include "daemon/state/state_object.h"
#include "net/config/view.h"
#include "net/config/vouch.h"
#include "net/sync/sync.h"
#include "net/transfer/xfer.h"

enum { LEND_READERS_MAX = 4, LEND_RANGES_MAX = 8, LEND_IDLE_MS = 30000 };

struct lend;

/* All borrowed. Of a witness, which nobody asks, replica, rounds and vouches are NULL. */
struct lend_conf {
    uint32_t fragments_count;
    struct replica *replica;
    const struct sync *sync;
    const struct rounds *rounds;
    const struct view *view;
    struct vouches *vouches; /* what heads are certified with */
    struct events *events;
    struct xfer *xfer;
    /* This is not to be had here, or not any more. */
    void (*not_available)(void *user, uint32_t peer, const struct wire_key *key);
    void *user;
};
ERR_MUST_CHECK enum err lend_new(const struct lend_conf *conf, struct lend **out);
/* No job may be at a copy. NULL is fine. */
void lend_free(struct lend *lend);

/* A peer asks for a head, or for leaves: they go out now, or when the copy is there, or it is told that there are none.
 */
void lend_fetch(struct lend *lend, uint32_t peer, const struct wire_key *key, uint64_t now_ms);
/* EVENT_LENT. */
void lend_made(struct lend *lend, const struct state_loan *loan, enum err err, uint64_t now_ms);
/* A word of a peer on a head or on leaves; `ended`: it needs no more of that state. */
void lend_heard(struct lend *lend, uint32_t peer, const struct wire_key *key, bool ended, uint64_t now_ms);
/* It restarted, or its slot is another's. */
void lend_forget(struct lend *lend, uint32_t peer);
void lend_tick(struct lend *lend, uint64_t now_ms);

#endif
