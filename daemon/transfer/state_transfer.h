/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state_transfer: a fragment's state on its way in, from several islands at once: first its head, which the voters'
 * signatures prove, then the leaves of its body, each proved by the head (daemon/state/state_object.h,
 * net/transfer/piece_picker.h). Private to daemon/transfer.
 *
 * The core names the version (SYNC_DO_FETCH), and all who announce that version with the same hash are asked; leaves
 * that have come stay, whoever of them goes. A complete state is handed on by EVENT_OBJECT, under the name by which the
 * core asked for it. When nobody has the state any more the core is told, and asks for another version.
 * STATE_TRANSFER_AT_ONCE fragments come in at a time, so that those who serve them keep few copies. Only the loop's
 * thread calls.
 */
#ifndef DAEMON_TRANSFER_STATE_TRANSFER_H
#define DAEMON_TRANSFER_STATE_TRANSFER_H

#include "common/runspec.h"
#include "daemon/event.h"
#include "daemon/rounds/rounds.h"
#include "daemon/state/memory.h"
#include "daemon/state/replica.h"
#include "daemon/state/slots.h"
#include "daemon/trainer/trainer.h"
#include "net/config/config_log.h"
#include "net/config/view.h"
#include "net/sync/sync.h"
#include "net/transfer/xfer.h"

enum { STATE_TRANSFER_AT_ONCE = MEMORY_STATES_FETCHED };

struct state_transfer;

/* All borrowed. Of a witness replica, slots, rounds and certificates are NULL. */
struct state_transfer_conf {
    const struct plan *plan;
    struct replica *replica;
    struct slots *slots;
    const struct sync *sync;
    const struct rounds *rounds;
    const struct view *view;
    const struct config_log *config_log;
    const struct runspec *spec;
    const struct trainer *trainer;
    struct certificates *certificates; /* signatures of voters, beside those in heads */
    struct events *events;
    struct xfer *xfer;
    void (*fetch)(void *user, uint32_t peer, const struct wire_key *key); /* says that we want this */
    void *user;
};
ERR_MUST_CHECK enum err state_transfer_new(const struct state_transfer_conf *conf, struct state_transfer **out);
/* NULL is fine. */
void state_transfer_free(struct state_transfer *state_transfer);

/* The core wants this state, and heard of it from `member`. */
void state_transfer_want(struct state_transfer *state_transfer, const struct wire_key *key, uint32_t member);
/* Whether the state of that version is asked for, or on its way. */
bool state_transfer_has_begun(const struct state_transfer *state_transfer, const struct wire_key *key);
/* Whether somebody's head of it has proved it here, so that its bytes come. */
bool state_transfer_comes(const struct state_transfer *state_transfer, const struct wire_key *key);

/* xfer's question, of a head or of leaves; and: some of it has come, or all. */
enum xfer_verdict state_transfer_offered(struct state_transfer *state_transfer, uint32_t peer,
                                         const struct wire_key *key, uint64_t total, struct xfer_offer *offer);
void state_transfer_in(struct state_transfer *state_transfer, uint32_t peer, const struct wire_key *key, uint64_t have,
                       bool whole, uint64_t now_ms);
/* A peer does not have the object that we asked it for, or has stopped sending it. */
void state_transfer_not_available(struct state_transfer *state_transfer, uint32_t peer, const struct wire_key *key);
/* How the state that was handed on was judged. */
void state_transfer_judged(struct state_transfer *state_transfer, const struct wire_key *key);
/* It restarted; `gone`: its slot is another's. */
void state_transfer_forget(struct state_transfer *state_transfer, uint32_t peer, bool gone);
/* Sends the questions that are due now. */
void state_transfer_run(struct state_transfer *state_transfer, uint64_t now_ms);

/* Of a fragment's state on its way in: bytes that are here and checked, or being taken over. */
uint64_t state_transfer_bytes(const struct state_transfer *state_transfer, uint32_t f);
/* When anything of any state came last; 0: never. */
uint64_t state_transfer_moved_ms(const struct state_transfer *state_transfer);
/* Whether this member sent us leaves that are not of the hash that a majority signed. */
bool state_transfer_lied(const struct state_transfer *state_transfer, uint32_t peer);

#endif
