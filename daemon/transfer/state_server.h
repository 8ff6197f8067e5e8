/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state_server: copies of our fragments' states for islands that fetch them: makes, keeps and sends them. Private to
 * daemon/transfer.
 *
 * A copy stays at its version while our own fragment goes on, so that whoever began with it can end with it, and
 * several of us can serve the same one. There are MEMORY_STATES_SERVED at a time, each for STATE_SERVER_READERS_MAX
 * readers; of these one reader has STATE_SERVER_OF_ONE, so that one that is slow leaves room for the next. A reader
 * that has gone silent, or has all, is let go, and the copy goes with the last of them. Only the loop's thread calls;
 * copies are made by jobs, which are asked for by EVENT_SERVE_STATE.
 */
#ifndef DAEMON_TRANSFER_STATE_SERVER_H
#define DAEMON_TRANSFER_STATE_SERVER_H

#include "daemon/event.h"
#include "daemon/rounds/rounds.h"
#include "daemon/state/memory.h"
#include "daemon/state/replica.h"
#include "daemon/state/state_object.h"
#include "net/config/view.h"
#include "net/config/certificate.h"
#include "net/sync/sync.h"
#include "net/transfer/xfer.h"

enum {
    STATE_SERVER_READERS_MAX = 4,
    STATE_SERVER_OF_ONE = MEMORY_STATES_FETCHED,
    STATE_SERVER_RANGES_MAX = 8,
    STATE_SERVER_IDLE_MS = 30000
};

struct state_server;

/* All borrowed. Of a witness, which nobody asks, replica, rounds and certificates are NULL. */
struct state_server_conf {
    uint32_t fragments_count;
    struct replica *replica;
    const struct sync *sync;
    const struct rounds *rounds;
    const struct view *view;
    struct certificates *certificates; /* heads are certified with these */
    struct events *events;
    struct xfer *xfer;
    /* Tells the peer that we do not have this object, or no longer. */
    void (*not_available)(void *user, uint32_t peer, const struct wire_key *key);
    void *user;
};
ERR_MUST_CHECK enum err state_server_new(const struct state_server_conf *conf, struct state_server **out);
/* No job may be at a copy. NULL is fine. */
void state_server_free(struct state_server *server);

/* A peer asks for a head, or for leaves: they go out now, or when the copy is there, or it is told that there are none.
 */
void state_server_fetch(struct state_server *server, uint32_t peer, const struct wire_key *key, uint64_t now_ms);
/* EVENT_STATE_SERVED. */
void state_server_made(struct state_server *server, const struct served_state *served, enum err err, uint64_t now_ms);
/* A peer's answer about a head or leaves; `ended`: it needs no more of that state. */
void state_server_heard(struct state_server *server, uint32_t peer, const struct wire_key *key, bool ended,
                        uint64_t now_ms);
/* It restarted, or its slot is another's. */
void state_server_forget(struct state_server *server, uint32_t peer);
void state_server_tick(struct state_server *server, uint64_t now_ms);

#endif
