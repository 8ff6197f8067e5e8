/*
 * sync: the protocol of one island: per fragment its own state machine and, for the shards it owns, an owner's, and
 * what it knows of its peers.
 *
 * Pure: events and time in, actions out. It opens no socket, reads no clock, starts no thread and sees no float, so
 * tests/sim runs hundreds of them in virtual time. The daemon carries out the actions and reports back as events.
 * Everything is allocated by sync_new(). One thread calls.
 *
 * A fragment on its island (version v; the round makes v + 1):
 *
 *   IDLE ──snapshot──▶ ENCODING ──encoded──▶ CONTRIBUTED ──all shards' results stored──▶ APPLYING
 *    ▲ ▲                  │ refused (NaN)                                                   │ applied: v := v + 1
 *    │ └──────────────────┘                                                                 ▼
 *    └──────────────────────────────── trainer took the anchor in ◀───────────────────── MIXING
 *
 *   IDLE goes to APPLYING directly when the others closed the round without us; MIXING does so after taking the
 *   anchor back. LISTENING is IDLE without a trainer. REPAIR: our state is wrong or too old to be mended by results;
 *   a peer's is fetched, then MIXING (or LISTENING).
 */
#ifndef NET_SYNC_H
#define NET_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/owner.h"
#include "net/wire.h"

enum sync_state {
    SYNC_LISTENING,
    SYNC_IDLE,
    SYNC_ENCODING,
    SYNC_CONTRIBUTED,
    SYNC_APPLYING,
    SYNC_MIXING,
    SYNC_REPAIR,
    SYNC_STATES
};

enum sync_event_type {
    /* of one fragment, from the trainer */
    SYNC_EV_TRAINER_UP,   /* version: of the anchor its tensors hold */
    SYNC_EV_TRAINER_DOWN, /* it is gone */
    SYNC_EV_SNAPSHOT,     /* a snapshot was taken and waits to be encoded */
    SYNC_EV_MIXED,        /* the anchor was taken in */
    SYNC_EV_TAKEN_BACK,   /* answer to SYNC_DO_TAKE_BACK: it worked */
    SYNC_EV_SETTLED,      /* it will contribute nothing more */
    /* of one fragment, from jobs */
    SYNC_EV_ENCODED,   /* our contribution is ready to go */
    SYNC_EV_REFUSED,   /* the snapshot cannot be encoded (NaN) */
    SYNC_EV_APPLIED,   /* hash: version + 1 is in place */
    SYNC_EV_INSTALLED, /* version, hash: a peer's state is in place */
    SYNC_EV_COMPLETE,  /* internal: every shard's result is stored */
    SYNC_EV_LOST,      /* internal: member: our state must be replaced by the peer's */
    SYNC_FRAGMENT_EVENTS,
    /* of one shard */
    SYNC_EV_REDUCED = SYNC_FRAGMENT_EVENTS, /* fragment: the mean of our shard is encoded */
    SYNC_EV_STORED,                         /* fragment, version, shard: a result is in the ledger */
    SYNC_EV_CONTRIBUTION,                   /* fragment, version, member: whole and checked */
    SYNC_EV_CONTRIBUTION_REFUSED,           /* fragment, version, member: it came and is damaged or of another base */
    SYNC_EV_DROPPED,                        /* fragment, member: the reduction failed at its contribution */
    /* peers and time */
    SYNC_EV_PEER_UP,       /* member: connected and greeted; also after it restarted */
    SYNC_EV_PEER_DOWN,     /* member */
    SYNC_EV_HEARTBEAT,     /* member, beat */
    SYNC_EV_NOT_AVAILABLE, /* member, key: it does not have what we fetched */
    SYNC_EV_TICK,
};

struct sync_event {
    enum sync_event_type type;
    uint32_t fragment, shard, member;
    uint64_t version;
    struct digest hash;
    const struct wire_heartbeat *beat;
    struct wire_key key;
};

enum sync_action_type {
    SYNC_DO_ENCODE,    /* fragment: encode the snapshot as contribution to `version` */
    SYNC_DO_RELEASE,   /* fragment: give the snapshot area back to the trainer, no anchor comes */
    SYNC_DO_SEND,      /* key, member: send this object */
    SYNC_DO_REDUCE,    /* fragment, version: mean over the owner's contributions (sync_owner()->have) for our shard */
    SYNC_DO_STORE,     /* fragment, version: write our shard's result to the ledger, durably */
    SYNC_DO_APPLY,     /* fragment, version: outer step with the results of `version` */
    SYNC_DO_GIVE,      /* fragment: bring the current anchor to the trainer */
    SYNC_DO_TAKE_BACK, /* fragment: try to take the anchor back from the trainer */
    SYNC_DO_FETCH,     /* key, member: ask it for this object */
    SYNC_DO_RETIRE,    /* fragment, version: contributions and results up to `version` are not sent any more */
    SYNC_DO_ANNOUNCE,  /* send a heartbeat soon */
    SYNC_DO_REPORT,    /* report, fragment, version, member: for log and status */
};

enum sync_report {
    SYNC_REPORT_DIVERGED,      /* our hash differs and the others outweigh us: we repair from `member` */
    SYNC_REPORT_PEER_DIVERGED, /* `member`'s hash differs from ours and it has to repair */
    SYNC_REPORT_BEHIND,        /* results are not to be had any more: the state is fetched from `member` */
    SYNC_REPORT_REPAIRED,
    SYNC_REPORT_ILLEGAL, /* an event that has no place in this state: a bug of ours */
};

struct sync_action {
    enum sync_action_type type;
    uint32_t fragment, member;
    uint64_t version;
    struct wire_key key;
    enum sync_report report;
};

enum sync_want { SYNC_WANT, SYNC_HAVE, SYNC_NOT_NEEDED, SYNC_NOT_YET };

enum { SYNC_MEMBERS_MAX = BITSET_MAX };

struct sync_conf {
    uint32_t self, members_count, fragments_count;
    const struct bitset *shards; /* per fragment, copied: who owns a part of it */
    struct owner_rule rule;
};

/* What an island says of a fragment, its own or as last heard. */
struct sync_peer_fragment {
    uint64_t version, contributed, abstained;
    struct bitset results;
    struct digest hash;
    bool hash_known;
    bool said; /* a peer's: it has told us since it came up */
};

struct sync;

ERR_MUST_CHECK enum err sync_new(const struct sync_conf *conf, struct sync **out);
void sync_free(struct sync *sync);

/* Fragment `f` is at `version` with `hash`, and the ledger already holds the results of the shards in `results` of
 * the version after it. Called before the first event, or later for a fragment that had no state yet: without this a
 * fragment is blank; it fetches a peer's state as soon as one has it. */
void sync_restore(struct sync *sync, uint32_t f, uint64_t version, const struct digest *hash,
                  const struct bitset *results);

/* Whether a trainer of ours is on its way: our own shards' rounds then wait for it. `brings_initial`: and it will give
 * its initial tensors, so that blank fragments need not be fetched from peers that have no more than that. */
void sync_expect(struct sync *sync, bool expecting, bool brings_initial);

/* REPAIR: which state was asked for; false in other states. While it is on its way sync_state_moves() keeps it from
 * being asked for again. */
bool sync_fetching_state(const struct sync *sync, uint32_t f, struct wire_key *key);
void sync_state_moves(struct sync *sync, uint32_t f);

/* Takes one event in; then drain sync_action() until it returns false. */
void sync_step(struct sync *sync, const struct sync_event *event, uint64_t now_ms);
bool sync_action(struct sync *sync, struct sync_action *action);

/* Whether an object that `from` offers is wanted. */
enum sync_want sync_wants(const struct sync *sync, const struct wire_key *key, uint32_t from);

/* Whether the fragment has a state at all. */
bool sync_known(const struct sync *sync, uint32_t f);

/* False if a contribution to `version` starts from another version - 1 than ours. Unknown counts as fine. */
bool sync_base_agrees(const struct sync *sync, uint32_t f, uint64_t version, const struct digest *base_hash);

/* ---- looking in ---- */
enum sync_state sync_state(const struct sync *sync, uint32_t f);
/* Our own row: version, hash, what we contributed and abstained from, which results we hold. */
struct sync_peer_fragment sync_own(const struct sync *sync, uint32_t f);
/* What `member` last said of the fragment; zero if nothing. */
struct sync_peer_fragment sync_heard(const struct sync *sync, uint32_t member, uint32_t f);
/* Members whose contribution or result fragment `f` is waiting for; for status. */
struct bitset sync_waiting_for(const struct sync *sync, uint32_t f);
const struct owner *sync_owner(const struct sync *sync, uint32_t f);
/* With a quorum: rounds of our shards in a row that closed without the member, though it takes part; `*too_late`: it is
 * later than the run's grace, so that they no longer wait for it. */
uint64_t sync_missed(const struct sync *sync, uint32_t member, bool *too_late);
/* Highest version any member is known to hold. */
uint64_t sync_version_max(const struct sync *sync, uint32_t f);

const char *sync_state_name(enum sync_state state);

#endif
