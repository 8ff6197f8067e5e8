/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync_core: the ground floor of the protocol core: its memory, the ring of actions, the hashes remembered, and the
 * owners. Private to net/sync/sync*.c.
 *
 * It is called by all of them and calls none; it takes no event, decides nothing, and allocates only in sync_core_new()
 * and sync_core_set_view(). Each floor writes only its own fields: sync_commit a fragment's parts, the members' copies
 * of them, and a draft's results beyond these, sync_patience its `wait` and a member's `conduct`, sync_owner its
 * `owner` and a member's `grace`, sync_doubt its proof, sync_fragment the rest of struct sync_fragment, sync_peers the
 * rest of struct sync_member (and, of a fragment, since when it is behind, when it may ask again, who was asked, and
 * since when nobody can be).
 */
#ifndef NET_SYNC_SYNC_CORE_H
#define NET_SYNC_SYNC_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/digest.h"
#include "common/err.h"
#include "net/sync/owner.h"
#include "net/sync/sync_types.h"
#include "net/transport/wire.h"

/* Own hashes kept, to compare with peers that are a version or two behind or ahead. */
enum { SYNC_HASHES = 4 };
/* After our disk has answered, others get so long to ask theirs and mend themselves, before we give way to as many; and
 * before we go on without those whose state is another, and people are told. The latter is longer, so that who gives
 * way has done so. */
enum { SYNC_YIELD_MS = 30000, SYNC_DISPUTE_MS = 45000 };

/* Of the version after a fragment's: its parts, and which of their results are here. Masks are by part. */
struct sync_parts {
    uint32_t count; /* 0: their epoch is not known */
    struct version_part part[VERSION_PARTS_MAX];
    struct digest digest[VERSION_PARTS_MAX]; /* of those held */
    uint64_t held, acknowledged;             /* acknowledged: and told in heartbeats, if we vote */
    uint64_t committed;                      /* those that were seen to count: they do for good */
    uint64_t wanted;                         /* by a proposed configuration */
    uint64_t rivals;                         /* held, and somebody was asked for another one of the same part, */
    uint64_t seconds;                        /* which has come */
    uint64_t rivals_ms;                      /* when one was asked for last */
    uint32_t rivals_next;                    /* the slot after the member that was */
    uint64_t other;                          /* of those held: wanted is another result of the part, of this digest */
    struct digest wanted_digest[VERSION_PARTS_MAX];
};

/* Results beyond the next version, of which all are here and may not count yet: of those of `version` it is kept which
 * are here, too, while a proposed configuration rests on them. */
struct sync_beyond {
    uint64_t version;        /* 0: nothing is kept beyond the next version */
    struct sync_parts parts; /* its own; nothing of it is acknowledged, committed or a rival */
    uint64_t fetch_ms;       /* no new request before */
    uint32_t tries;
    struct bitset asked; /* members that were */
};

/* What a voter says it holds of the version after its own, by the tags that heartbeats have (a PROMISE names all of it:
 * struct holding); found by owner, in the order it was said, as 1 + index. */
struct sync_tags {
    uint32_t count;
    struct wire_held held[VERSION_PARTS_MAX];
    uint8_t first[VERSION_PARTS_MAX]; /* by the owner's id modulo VERSION_PARTS_MAX; 0: none */
    uint8_t next[VERSION_PARTS_MAX];
};

struct sync_known_hash {
    uint64_t version;
    struct digest hash;
    bool known;
};

/* What our own disk says of our state: whether the hash of `version` is where checkpoint and ledger lead. */
enum sync_proof { SYNC_PROOF_NONE, SYNC_PROOF_ASKED, SYNC_PROOF_CONFIRMED, SYNC_PROOF_FAILED };

/* How long rounds take, and since when one waits for somebody. */
enum { SYNC_TOOK = 4 };
struct sync_wait {
    uint64_t arrived_ms; /* when the version was made here; 0: it was not */
    uint64_t took_ms[SYNC_TOOK];
    uint32_t took_count; /* of the last rounds; may be more than are kept */
    uint64_t kept_ms;    /* since when the round of our part waits for a minority alone; 0: it does not */
    uint64_t ripe_ms;    /* since when results are due: most have contributed, as they say; 0: they are not */
    uint64_t overdue_ms; /* how long they were in epochs before, since the version came */
};

/* What a member that can be heard has kept us waiting for. */
struct sync_conduct {
    bool late;          /* a round had to do without its contribution, and none has come in time since */
    uint32_t strikes;   /* how often that was so before */
    uint32_t kept;      /* contributions in time since */
    struct grace usual; /* how long rounds of ours usually wait for it, counted as patience is */
    uint64_t claim_ms, unproven_until_ms; /* since when it says what it does not show; until then nobody waits for it */
    uint32_t blames;
    uint64_t blamed_until_ms; /* it made no result: until then it is to take no part */
    uint64_t up_ms;           /* since when it can be heard */
};

/* How far our trainer is with an anchor that has no hash yet. */
enum sync_ahead {
    SYNC_AHEAD_NOT,       /* it has none */
    SYNC_AHEAD_PUBLISHED, /* one is being published to it */
    SYNC_AHEAD_MIXED,     /* it has merged it */
    SYNC_AHEAD_SNAPPED    /* and has taken the next snapshot */
};

/* For a result of the next version. */
struct sync_ask {
    uint64_t asked_ms; /* when somebody was asked who may still answer; 0: nobody was */
    uint32_t next;     /* the slot after the one that was asked last; 0: nobody was */
};

struct sync_fragment {
    enum sync_state state;
    bool made;             /* APPLYING: version + 1 is in place, and has no hash yet */
    enum sync_ahead ahead; /* of such a one */
    bool trainer;          /* attached to this fragment */
    bool lost;             /* go to REPAIR as soon as the state allows */
    uint32_t lost_to;      /* from this member */
    bool complete;         /* all results of version + 1 are stored and committed */
    bool anew;             /* ENCODING: a new epoch has begun, so once more when it ends */
    uint64_t behind_ms;    /* since when a peer is known to be ahead; 0: not */
    uint64_t fetch_ms;     /* no new request before */
    uint32_t fetch_tries;  /* requests for results of version + 1 so far */
    /* Until then these are asked for first, however far behind it is: nobody could prove a state. */
    uint64_t by_results_ms;
    /* They lead on from a state that came: until then another one is taken only where nobody has them any more. Put off
     * by so long with each version that they make. */
    uint64_t leads_until_ms, leads_ms;
    struct bitset asked; /* members that were asked for them */
    uint64_t astray;     /* parts that somebody else than the owner was asked for */
    struct sync_ask asks[VERSION_PARTS_MAX];
    uint64_t without;          /* parts that somebody who was asked does not have */
    uint64_t without_ms;       /* when one of them said so last */
    struct wire_key state_key; /* REPAIR: the state asked for */
    uint32_t state_from;
    uint64_t state_ms; /* when it was asked for last */
    uint64_t alone_ms; /* REPAIR: since when nobody can be asked; 0: somebody can */
    bool refused;      /* REPAIR: the member asked last has no state that it can prove */
    uint64_t vain_ms;  /* REPAIR: since when all who are asked refuse; 0: the last one did not */
    /* A state that too few can prove, as far as we hear: since when it is tried, when again, and how often it was. */
    uint64_t trial_ms, trial_next_ms;
    uint32_t trials;
    enum sync_proof proof; /* of proof_version; answered at proof_ms, and not asked for again before proof_next_ms */
    uint64_t proof_version, proof_ms, proof_next_ms;
    struct bitset turned_down;        /* owners that refuse our contribution in flight */
    uint64_t offer_ms, offer_wait_ms; /* when it is offered again; how long is waited the next time */
    struct sync_known_hash hashes[SYNC_HASHES];
    struct wire_standing own;
    struct sync_parts parts;
    struct sync_beyond beyond; /* of the parts */
    uint64_t start_wanted;     /* a proposed configuration starts from this version */
    uint64_t taken_over;       /* a voter showed it when all were asked, since most disks were in doubt */
    struct owner owner;
    uint32_t missing_last; /* the member that our shard's round was last seen to wait for */
    struct sync_wait wait;
};

struct sync_member {
    bool up;
    uint64_t epoch;          /* in which it spoke last */
    bool heard;              /* it has said how every fragment stands since it came up */
    uint32_t fragments_said; /* distinct ones so far */
    bool taking_part;
    bool in_doubt;                   /* its disk */
    bool deaf;                       /* it does not hear us */
    bool cut_off;                    /* it hears too few to know what counts: it stays behind */
    struct sync_conduct conduct;     /* as long as it is a member */
    struct grace grace;              /* with a quorum: how late its contributions to our shards are */
    struct wire_standing *fragments; /* NULL: nobody has this slot */
    uint64_t *without;         /* [fragments]: parts of the next version that it was asked for and does not have */
    struct sync_tags *reports; /* [fragments]; of full voters; NULL of others */
};

struct sync {
    struct sync_conf conf; /* `view` is the present one, its ids ours */
    uint32_t *shards_counts;
    uint64_t *filled;
    struct sync_fragment *fragments;
    struct sync_member *peers; /* [slots_room] */
    uint32_t *ids;             /* [slots_room] */
    uint32_t slots_room;
    bool sealed;
    struct sync_action *actions; /* ring */
    size_t actions_room, actions_head, actions_count;
    uint64_t now_ms;     /* of the event being taken in */
    bool expecting;      /* a trainer of ours is on its way */
    bool brings_initial; /* and it brings its initial tensors */
    struct sync_steps steps;
};

/* As sync_new() and sync_free(). */
ERR_MUST_CHECK enum err sync_core_new(const struct sync_conf *conf, struct sync **out);
void sync_core_free(struct sync *sync);
uint64_t sync_core_bytes(uint64_t slots, uint64_t fragments, uint64_t keepers);
/* Makes room for the members of `view` and takes it over; what a member said stays, as far as it holds in any epoch.
 * The ring is empty. ERR_NOMEM: the core is of no use any more. */
ERR_MUST_CHECK enum err sync_core_set_view(struct sync *sync, const struct sync_view *view);
/* The slot of a member, by its id; SYNC_NOBODY: it is none of this epoch. */
uint32_t sync_core_slot(const struct sync *sync, uint32_t id);
uint32_t sync_core_id(const struct sync *sync, uint32_t slot);
/* Forgets of a fragment who was asked for results, and who does not have them; or the latter alone. */
void sync_core_ask_anew(struct sync *sync, uint32_t f);
void sync_core_forget_without(struct sync *sync, uint32_t f);
/* Slots: all are below this; whether a slot is another member's. */
uint32_t sync_core_slots(const struct sync *sync);
uint32_t sync_core_self(const struct sync *sync);
bool sync_core_other(const struct sync *sync, uint32_t slot);
/* A slot in use, ours or another's, of a member with a copy of the state: all but the witness. */
bool sync_core_keeps(const struct sync *sync, uint32_t slot);

/* The parts of a version (config_log_parts()), less those without values: nobody makes them. */
uint32_t sync_core_parts(const struct sync *sync, uint32_t f, uint64_t version,
                         struct version_part parts[VERSION_PARTS_MAX]);

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

/* Whether what the member claims alone is believed no more, since it did not show it. */
bool sync_core_unproven(const struct sync *sync, uint32_t member);

/* Whether the member is another one that can be asked for its state. */
bool sync_core_may_publish(const struct sync *sync, uint32_t f, uint32_t member);
/* The highest version of a fragment that more than half of the others announce that vote and have a copy, or, where
 * none of these does, of all others: no single word leads further than a vote. With `to_have` only those count that are
 * up and have a state to give. 0: none. */
uint64_t sync_core_announced(const struct sync *sync, uint32_t f, bool to_have);

/* Facts about our present version. */
enum sync_proof sync_core_proof(const struct sync_fragment *fragment);
/* Whether more than half of the full voters, us among them, announce our state of our version: a member with another
 * one is wrong, or lies, and need not be waited for. */
bool sync_core_most_agree(const struct sync *sync, uint32_t f);
/* Whether it is open which state of our version is right: our disk has been asked, or it was a short while ago, a
 * member that is up still holds another one, and ours is not that of most. */
bool sync_core_disputed(const struct sync *sync, uint32_t f);
/* A member that is up and holds another state of our version; SYNC_NOBODY: there is none. */
uint32_t sync_core_differs(const struct sync *sync, uint32_t f);

#endif
