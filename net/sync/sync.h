/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync: the protocol of one island: per fragment its own state machine and, for the shards it owns, an owner's, and
 * what it knows of its peers.
 *
 * Pure: events and time in, actions out. It opens no socket, reads no clock, starts no thread and sees no float, so
 * tests/sim runs hundreds of them in virtual time. The daemon carries out the actions and reports back as events.
 * Everything is allocated by sync_new(). One thread calls.
 *
 * Members are slots in events and actions, and ids in keys (net/config/view.h). This is the one header of the
 * protocol core for other rooms. The floors below it, each of which knows only those under it: sync_peers (what peers
 * say), sync_fragment (a fragment's state machine), sync_owner (our parts' rounds), sync_patience (with whom),
 * sync_commit (which results are held, and by whom; what a draft rests on), sync_core (memory and actions),
 * sync_types.
 *
 * Owns: the protocol of an island: fragments, the rounds of its parts, what it knows of its peers.
 * Called by: daemon, daemon/control, daemon/ctl, daemon/membership, daemon/peers, daemon/rounds, daemon/trainer,
 * daemon/transfer, net/membership.
 * Never includes: daemon/, outer_opt/, common/env.h, common/fsio.h, net/membership/, net/transfer/, <pthread.h>,
 * <sys/socket.h>, <time.h>, <unistd.h>, <zmq.h>.
 */
#ifndef NET_SYNC_SYNC_H
#define NET_SYNC_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/digest.h"
#include "common/err.h"
#include "net/sync/owner.h"
#include "net/sync/sync_types.h"
#include "net/transport/wire.h"

struct sync;
struct certificates; /* net/config/certificate.h */

/* `conf` and what it points to are copied. ERR_ARG: too many members, or none; ERR_NOMEM. Caller frees. */
ERR_MUST_CHECK enum err sync_new(const struct sync_conf *conf, struct sync **out);
/* NULL is fine. */
void sync_free(struct sync *sync);
/* Memory that sync_new() takes for so many slots, all in use, of which so many are full voters. */
uint64_t sync_bytes(uint32_t slots, uint32_t fragments, uint32_t keepers);

/* Fragment `f` is at `version` with `hash`; results of the version after it that the ledger holds follow as
 * SYNC_EV_STORED of SYNC_NOBODY. Called before the first event, or later for a fragment that had no state yet: without
 * this a fragment is blank; it fetches a peer's state as soon as one has it. */
void sync_restore(struct sync *sync, uint32_t f, uint64_t version, const struct digest *hash);

/* The disk has this fragment's state, of which the newest result names this run step; and of those that were applied
 * here one by one, the newest this one. */
void sync_restore_steps(struct sync *sync, uint64_t step, uint64_t applied);

/* A new epoch has begun: the config log has its configuration. Results that do not count in it are dropped,
 * contributions go to the new owners, and a seal ends. Between sync_step()s, with no action left; drain sync_action()
 * after it. ERR_NOMEM: the core is of no use any more. */
ERR_MUST_CHECK enum err sync_begin_epoch(struct sync *sync, const struct sync_view *view, uint64_t now_ms);
/* Whether we vote may change within an epoch: our disk is not in doubt any more. */
void sync_set_votes(struct sync *sync, bool votes);
/* From now on, until the next epoch begins, no result is made, and none is acknowledged that is not yet (EPOCHS: the
 * seal). What sync_held() tells after this is what the seal names. The seal outlasts a restart: it is set again before
 * results are told of that the ledger holds, since some may have come after it. */
void sync_seal(struct sync *sync);
/* A result of the version after ours, or after sync_reach(), that a proposed configuration wants to carry: the core
 * fetches it although we are sealed, from whoever is up. To be said again when the version is another one. */
void sync_want(struct sync *sync, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner);
/* Likewise; and where its owner made two results of the part, and the other one is here, this one takes its place when
 * it comes: those who split over them could never commit the next epoch's start otherwise. */
void sync_want_this(struct sync *sync, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                    const struct digest *digest);
/* The version that a proposed configuration starts from: the results on the way there are fetched, sealed or not,
 * though they need not count here; seen with the next tick. The last one said holds. */
void sync_want_start(struct sync *sync, uint32_t f, uint64_t version);

/* A version that a voter showed when all of them were asked, since the disks of most are in doubt (rule 9): its results
 * count, and those before it, for who votes again has to show all that was ever acknowledged. */
void sync_take_over(struct sync *sync, uint32_t f, uint64_t version);

/* Whether a trainer of ours is on its way: our own shards' rounds then wait for it. `brings_initial`: and it will give
 * its initial tensors, so that blank fragments need not be fetched from peers that have no more than that. */
void sync_expect(struct sync *sync, bool expecting, bool brings_initial);

/* REPAIR: which state was asked for; false in other states. While it is asked for, or on its way, sync_state_moves()
 * keeps it from being asked for anew. `comes`: bytes of it do, so that somebody could prove it; without them it may be
 * one that all who are asked refuse, again and again. */
bool sync_fetching_state(const struct sync *sync, uint32_t f, struct wire_key *key);
void sync_state_moves(struct sync *sync, uint32_t f, bool comes);

/* Takes one event in; then drain sync_action() until it returns false, before the next one. Only SYNC_DO_WITHDRAW and
 * SYNC_DO_ENCODE may be answered while draining. `now_ms` never goes back. */
void sync_step(struct sync *sync, const struct sync_event *event, uint64_t now_ms);
bool sync_action(struct sync *sync, struct sync_action *action);

/* Whether an object that `from` offers is wanted. */
enum sync_want sync_wants(const struct sync *sync, const struct wire_key *key, uint32_t from);

/* Whether we are the witness: no fragment has a state here, ever; nothing is wanted, asked for or sent. */
bool sync_is_witness(const struct sync *sync);

/* Whether the fragment has a state at all. */
bool sync_known(const struct sync *sync, uint32_t f);

/* Whether others hold another state of our version and our own disk has been asked which is right. */
bool sync_in_doubt(const struct sync *sync, uint32_t f);

/* Whether a voter's signature, ours or another's, that is missing among those for a version (net/config/certificate.h)
 * may be taken for given when that voter takes a state over: it cannot say what it held, and the others that can be
 * heard are too few without it. */
bool sync_excused(const struct sync *sync, uint32_t f, uint64_t version, uint32_t member);

/* The parts of the version after the fragment's, borrowed until the next event; 0: its epoch is not known. */
uint32_t sync_parts(const struct sync *sync, uint32_t f, const struct version_part **parts);
/* Whether the result of part `p` of these is here, and its digest; `*acknowledged`: and we say so in heartbeats, as a
 * voter whose disk is not in doubt does of what it had before its seal. */
bool sync_held(const struct sync *sync, uint32_t f, uint32_t p, struct digest *digest, bool *acknowledged);

/* How far the bytes lead that are here: our version; or, where a proposed configuration starts further on, the last one
 * of which, as of all before it, every result is here, counted or not. With the parts of the version after it, borrowed
 * until the next event, and whether the result of part `p` of these is here: what a draft can rest on, at us. */
uint64_t sync_reach(const struct sync *sync, uint32_t f);
uint32_t sync_reach_parts(const struct sync *sync, uint32_t f, const struct version_part **parts);
bool sync_reach_held(const struct sync *sync, uint32_t f, uint32_t p, struct digest *digest);

/* Whether this very result of the version after ours is here. One that is of no part of it needs not be. */
bool sync_has(const struct sync *sync, uint32_t f, uint64_t epoch, uint32_t owner, const struct digest *digest);

/* False if a contribution to `version` starts from another version - 1 than ours. Unknown counts as fine. */
bool sync_base_agrees(const struct sync *sync, uint32_t f, uint64_t version, const struct digest *base_hash);

/* ---- looking in ---- */
struct sync_steps sync_steps(const struct sync *sync);
enum sync_state sync_state(const struct sync *sync, uint32_t f);
/* Our own row: version, hash, what we contributed and abstained from. */
struct wire_standing sync_own(const struct sync *sync, uint32_t f);
/* Which version the anchor that is in place is of: while its hash is being made, the one after our own. */
uint64_t sync_anchor_version(const struct sync *sync, uint32_t f);
/* What `member` last said of the fragment; zero if nothing. */
struct wire_standing sync_heard(const struct sync *sync, uint32_t member, uint32_t f);
/* Whether `member` is connected and greeted, as SYNC_EV_PEER_UP and SYNC_EV_PEER_DOWN last said; of ourselves false. */
bool sync_up(const struct sync *sync, uint32_t member);
/* How many contributions let a round close in this epoch: the rule's quorum, or all members that take part where there
 * are fewer, at least one. 0: no quorum is set, and all are waited for. */
uint32_t sync_quorum(const struct sync *sync);
/* Whether no round closes without `member` even while it is away, until the next epoch says that it is lost: of those
 * that vote and take part. */
bool sync_awaits(const struct sync *sync, uint32_t member);
/* Members whose contribution or result fragment `f` is waiting for; for status. */
struct bitset sync_waiting_for(const struct sync *sync, uint32_t f);
/* A member that is up and holds another state of our version, while our disk has long said that ours is right, or could
 * not tell, neither has given way to the other, and most do not hold ours: people have to see to it. SYNC_NOBODY: there
 * is none. */
uint32_t sync_stands_against(const struct sync *sync, uint32_t f);
/* How many results of the next version are here and not committed. */
uint32_t sync_uncommitted(const struct sync *sync, uint32_t f);
/* The round of our part; borrowed until sync_free(). */
const struct owner *sync_owner(const struct sync *sync, uint32_t f);
/* With a quorum: rounds of our shards in a row that closed without the member, though it takes part; `*too_late`: it is
 * later than the run's grace, so that they no longer wait for it. */
uint64_t sync_missed(const struct sync *sync, uint32_t member, bool *too_late);
/* What there is to complain of in a member that can be heard. SYNC_FAULT_NO_RESULT is for a majority to judge: where it
 * complains of the same, the next configuration goes on without that member. */
enum sync_fault sync_fault(const struct sync *sync, uint32_t member);
/* Whether the others are told that: SYNC_FAULT_NO_RESULT, unless our own disk is in doubt. Then we are not sealed when
 * they are, who make no result then; and who complained of them would keep them from being owners in the very
 * configuration that is to name our disk. */
bool sync_complains(const struct sync *sync, uint32_t member, bool in_doubt);
/* The highest version that we, or more than half of the others, are known to hold; to a witness, the highest of the
 * voters that can be heard. */
uint64_t sync_version_max(const struct sync *sync, uint32_t f);

const char *sync_state_name(enum sync_state state);

/* ---- which fragments a heartbeat tells of, and what ---- */

/* The last report of a fragment; all ones: none. */
struct rows_said {
    struct wire_fragment row;
    uint64_t epoch, held; /* held: mask of the parts whose results were named */
};

/* Adds to `beat`, whose epoch is set, what changed since `said` was last told, then some of the other fragments in turn
 * from `*refresh` on; `said` (one for each fragment) and `*refresh` follow. `refresh` NULL: only what changed. `sync`
 * may be NULL without fragments. What we certify is signed, once; `certificates` NULL: nothing is. False if what
 * changed found no room for all of it: the next one has the rest. */
bool rows_fill(const struct sync *sync, struct certificates *certificates, uint32_t fragments, struct rows_said *said,
               uint32_t *refresh, struct wire_heartbeat *beat);

#endif
