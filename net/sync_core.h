/*
 * sync_core: what the floors of the protocol core stand on: its memory, the ring of actions, the hashes remembered, and
 * who owns what. Private to net/sync*.c.
 *
 * It is called by all of them and calls none; it takes no event, decides nothing, and after sync_core_new() allocates
 * nothing. Each floor writes only what is its own: sync_owner a fragment's `owner` and a member's `grace`,
 * sync_doubt its proof, sync_fragment the rest of struct sync_fragment, sync_peers the rest of struct sync_member (and,
 * of a fragment, since when it is behind, when it may ask again, and who was asked).
 */
#ifndef NET_SYNC_CORE_H
#define NET_SYNC_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/digest.h"
#include "common/err.h"
#include "net/grace.h"
#include "net/owner.h"
#include "net/sync_types.h"
#include "net/wire.h"

/* Own hashes kept, to compare with peers that are a version or two behind or ahead. */
enum { SYNC_HASHES = 4 };
/* After our disk has answered, others get so long to ask theirs and mend themselves, before we give way to as many; and
 * before we go on without those whose state is another. The latter is longer, so that who gives way has done so. */
enum { SYNC_YIELD_MS = 30000, SYNC_DISPUTE_MS = 45000 };

struct sync_known_hash {
    uint64_t version;
    struct digest hash;
    bool known;
};

/* What our own disk says of our state: whether the hash of `version` is where checkpoint and ledger lead. */
enum sync_proof { SYNC_PROOF_NONE, SYNC_PROOF_ASKED, SYNC_PROOF_CONFIRMED, SYNC_PROOF_FAILED };

struct sync_fragment {
    enum sync_state state;
    bool trainer;              /* attached to this fragment */
    bool lost;                 /* go to REPAIR as soon as the state allows */
    uint32_t lost_to;          /* from this member */
    bool complete;             /* all results of version + 1 are stored */
    uint64_t behind_ms;        /* since when a peer is known to be ahead; 0: not */
    uint64_t fetch_ms;         /* no new request before */
    uint32_t fetch_tries;      /* requests for results of version + 1 so far */
    struct bitset asked;       /* members that were asked for them */
    struct bitset without;     /* and said that they do not have one */
    struct bitset astray;      /* shards that somebody else than the owner was asked for */
    struct wire_key state_key; /* REPAIR: what was asked for */
    uint32_t state_from;
    enum sync_proof proof; /* of proof_version; answered at proof_ms, and not asked for again before proof_next_ms */
    uint64_t proof_version, proof_ms, proof_next_ms;
    struct bitset turned_down;        /* owners that refuse our contribution in flight */
    uint64_t offer_ms, offer_wait_ms; /* when it is offered again; how long is waited the next time */
    struct sync_known_hash hashes[SYNC_HASHES];
    struct sync_peer_fragment own;
    struct owner owner;
    uint32_t missing_last; /* the member that our shard's round was last seen to wait for */
};

struct sync_member {
    bool up;
    bool heard;              /* it has said how every fragment stands since it came up */
    uint32_t fragments_said; /* distinct ones so far */
    bool taking_part;
    struct grace grace; /* with a quorum: how late its contributions to our shards are */
    struct sync_peer_fragment *fragments;
};

struct sync {
    struct sync_conf conf;
    struct bitset *shards; /* per fragment: who owns a part of it */
    struct sync_fragment *fragments;
    struct sync_member *peers;
    struct sync_action *actions; /* ring */
    size_t actions_room, actions_head, actions_count;
    uint64_t now_ms;     /* of the event being taken in */
    bool expecting;      /* a trainer of ours is on its way */
    bool brings_initial; /* and it brings its initial tensors */
};

/* As sync_new() and sync_free(). */
ERR_MUST_CHECK enum err sync_core_new(const struct sync_conf *conf, struct sync **out);
void sync_core_free(struct sync *sync);

/* Puts an action at the end of the ring. There is room for all that one event can cause (sync_core_new() says why), so
 * a full ring is a bug of ours, and an action that was dropped in silence would be a round that never ends: it asserts.
 */
void sync_core_put(struct sync *sync, struct sync_action action);
/* One that consists of a fragment and a version. */
void sync_core_put_version(struct sync *sync, enum sync_action_type type, uint32_t f, uint64_t version);
void sync_core_report(struct sync *sync, enum sync_report what, uint32_t f, uint32_t member);
void sync_core_announce(struct sync *sync);
/* Takes the oldest action out; false: none. */
bool sync_core_take(struct sync *sync, struct sync_action *action);

/* The fragment's hash at `version`, which is its own from now on. */
void sync_core_remember_hash(struct sync_fragment *fragment, uint64_t version, const struct digest *hash);
/* Our hash of a version, or NULL if it is not known (any more). Borrowed until the next event. */
const struct digest *sync_core_hash_at(const struct sync_fragment *fragment, uint64_t version);

/* Whether who says this of a fragment holds the result of a shard: it says so, or has applied it. */
bool sync_core_holds(const struct sync_peer_fragment *row, uint64_t version, uint32_t shard);

/* The highest version of a fragment that more than half of the others announce: no single word leads further. With
 * `to_have` only those count that are up and have a state. 0: none. */
uint64_t sync_core_announced(const struct sync *sync, uint32_t f, bool to_have);

/* What is known of our present version. */
enum sync_proof sync_core_proof(const struct sync_fragment *fragment);
/* Whether it is open which state of our version is right: our disk has been asked, or it was a short while ago and
 * somebody who is up still holds another one. */
bool sync_core_disputed(const struct sync *sync, uint32_t f);

/* Whether the member owns a part of the fragment; whether we do. */
bool sync_core_owns(const struct sync *sync, uint32_t f, uint32_t member);
bool sync_core_we_own(const struct sync *sync, uint32_t f);

#endif
