/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync_types: the words of the sync protocol: states, events, actions, reports, and an island's report about a
 * fragment.
 *
 * Types only: no function, no memory. Everyone who speaks with the protocol core uses them; other rooms get them with
 * net/sync/sync.h, the files of the core include them here. Nothing in it is ever sent: net/transport/wire.h has what
 * goes over a wire.
 */
#ifndef NET_SYNC_SYNC_TYPES_H
#define NET_SYNC_SYNC_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/digest.h"
#include "net/config/config_log.h"
#include "net/sync/owner.h"
#include "net/transport/wire.h"

enum { SYNC_MEMBERS_MAX = BITSET_MAX };
/* More versions behind than this, and the state costs fewer bytes than the results (8 bytes against about .45 each). */
enum { SYNC_BEHIND_MAX = 16 };
#define SYNC_NOBODY UINT32_MAX

/*
 * A fragment on its island (version v; the round makes v + 1):
 *
 *   IDLE ──snapshot──▶ ENCODING ──encoded──▶ CONTRIBUTED ──all parts' results committed──▶ APPLYING
 *    ▲ ▲                  │ ▲ refused (NaN)     │                        made: the anchor goes │ to the trainer
 *    │ └──────────────────┘ └── a new epoch ────┘                                              │ applied: v := v + 1
 *    │                                                                                         ▼
 *    └──────────────────────────────── trainer took the anchor in ◀───────────────────────── MIXING
 *
 *   A part's result is committed when it is durable at so many voters that every later epoch knows of it
 * (net/config/config.h): only then does it count. When a new epoch begins while a contribution is on its way, it is
 * encoded anew for the new owners. IDLE goes to APPLYING directly when the others closed the round without us; MIXING
 * does so after taking the anchor back. The trainer need not wait for the hash of its anchor; only announcements to
 * others do: what the trainer does with the anchor while APPLYING is kept for when the version has its hash. LISTENING
 * is IDLE without a trainer. REPAIR: our state is wrong or too old to be mended by results; a peer's is fetched, then
 * MIXING (or LISTENING).
 */
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
    SYNC_EV_WITHDRAWN,    /* answer to SYNC_DO_WITHDRAW: it worked */
    SYNC_EV_SETTLED,      /* it will contribute nothing more */
    /* of one fragment, from jobs */
    SYNC_EV_ENCODED, /* our contribution is ready to go */
    SYNC_EV_REFUSED, /* the snapshot cannot be encoded (NaN) */
    SYNC_EV_MADE,    /* version + 1 is in place, and what it is made of is durable; its hash follows. May be left out */
    SYNC_EV_APPLIED, /* hash: of version + 1, which is in place */
    SYNC_EV_INSTALLED, /* version, hash: a peer's state, or what our disk leads to, is in place */
    SYNC_EV_COMPLETE,  /* internal: every part's result is stored and committed */
    SYNC_EV_LOST,      /* internal: member: our state must be replaced by the peer's; ourselves: by our disk's */
    SYNC_EV_EPOCH,     /* internal: a new epoch has begun */
    SYNC_FRAGMENT_EVENTS,
    /* of one fragment, answers to SYNC_DO_REPLAY, and to SYNC_DO_REPAIR where it fails */
    SYNC_EV_REPLAYED = SYNC_FRAGMENT_EVENTS, /* version, hash: where checkpoint and ledger lead */
    SYNC_EV_UNPROVEN,                        /* version: they do not lead there */
    /* of one part */
    SYNC_EV_OVERTAKEN,            /* fragment: the mean of our part was not begun: an epoch came first */
    SYNC_EV_REDUCED,              /* fragment: the mean of our part is encoded */
    SYNC_EV_STORED,               /* fragment, version, epoch, owner, hash: a result with this digest is in the ledger,
                                     durably; member: who it came from, ourselves if we made it, SYNC_NOBODY if it
                                     was there */
    SYNC_EV_LISTED,               /* fragment: of the version after ours the ledger has no result that was not told;
                                     follows APPLIED and INSTALLED. What is missing now is asked of others */
    SYNC_EV_CONTRIBUTION,         /* fragment, version, epoch, member: whole and checked */
    SYNC_EV_CONTRIBUTION_REFUSED, /* fragment, version, epoch, member: it came and is damaged or of another base */
    SYNC_EV_DROPPED,              /* fragment, member: the reduction failed at its contribution */
    SYNC_EV_TURNED_DOWN,          /* member, key: it refuses our contribution */
    /* peers and time */
    SYNC_EV_PEER_UP,       /* member: connected and greeted; also after it restarted */
    SYNC_EV_PEER_DOWN,     /* member */
    SYNC_EV_HEARTBEAT,     /* member, beat: each fragment at most once in it, as wire_unpack() sees to */
    SYNC_EV_NOT_AVAILABLE, /* member, key: it does not have what we fetched */
    SYNC_EV_TICK,
};

struct sync_event {
    enum sync_event_type type;
    uint32_t fragment, member;
    uint32_t owner; /* by id; members are slots */
    uint64_t version, epoch;
    uint64_t step; /* STORED: run step that the result names. APPLIED, INSTALLED: the highest of all that are in it */
    struct digest hash;
    const struct wire_heartbeat *beat; /* borrowed for the call */
    struct wire_key key;
};

enum sync_action_type {
    SYNC_DO_ENCODE,   /* fragment: encode the snapshot as contribution to `version` */
    SYNC_DO_RELEASE,  /* fragment: give the snapshot area back to the trainer, no anchor comes */
    SYNC_DO_SEND,     /* key, member: send this object */
    SYNC_DO_REDUCE,   /* fragment, version: mean over the owner's contributions (sync_owner()->have) for our part */
    SYNC_DO_STORE,    /* fragment, version: write our part's result to the ledger, durably */
    SYNC_DO_APPLY,    /* fragment, version: outer step with the results of `version` */
    SYNC_DO_PUBLISH,  /* fragment, version: bring the anchor that is in place to the trainer */
    SYNC_DO_WITHDRAW, /* fragment: try to take the anchor back from the trainer */
    SYNC_DO_FETCH,    /* key, member: ask it for this object */
    SYNC_DO_REPLAY,   /* fragment, version: what hash do checkpoint and ledger lead to? The state stays as it is */
    SYNC_DO_REPAIR,   /* fragment, version: put in place what they lead to */
    SYNC_DO_RETIRE,   /* fragment, version: contributions and results up to `version` are not sent any more */
    SYNC_DO_ANNOUNCE, /* send a heartbeat soon */
    SYNC_DO_REPORT,   /* report, fragment, version, member: for log and status */
};

enum sync_report {
    SYNC_REPORT_DIVERGED,      /* our hash differs and we give way: we repair from `member` */
    SYNC_REPORT_DAMAGED,       /* our hash is not the one our own disk leads to: we repair from that */
    SYNC_REPORT_PEER_DIVERGED, /* `member`'s hash differs from ours, which our disk confirms */
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

/* What we have to complain of in a member that can be heard: it does not do what it says (net/sync/sync_patience.h). */
enum sync_fault {
    SYNC_FAULT_NONE,
    SYNC_FAULT_LATE,      /* rounds of our parts went on without its contributions */
    SYNC_FAULT_NO_RESULT, /* it owns a part and makes no result of it */
    SYNC_FAULT_UNPROVEN,  /* it says that there is a result, or a version, and does not show it */
    SYNC_FAULT_HASH,      /* its state is another than ours, and most others have ours */
};

/* Largest run steps that results name. */
struct sync_steps {
    /* Of those that were applied here one by one: each of an epoch whose configuration was known. Those of a state that
     * was taken over are not among them. */
    uint64_t applied;
    uint64_t durable; /* of all that were applied, taken over or stored here */
};

/* What to do with an object that is offered. */
enum sync_want { SYNC_WANT, SYNC_HAVE, SYNC_NOT_NEEDED, SYNC_NOT_YET };

/* Who takes part in the newest epoch, by slot (net/config/view.h). */
struct sync_view {
    uint64_t epoch;
    uint32_t self, slots;      /* own slot; slots in use are below `slots` */
    const uint32_t *ids;       /* [slots]; copied */
    struct bitset members;     /* slots in use, ours too */
    struct bitset taking_part; /* whose contributions rounds may wait for */
    struct bitset keepers;     /* full voters */
    uint32_t commit_quorum;    /* at how many of them a result has to be durable */
    struct bitset witness;     /* who keeps no bytes, and so has nothing to say of fragments; at most one */
    bool votes;                /* we are one of the keepers, and our disk is not in doubt */
    bool paused;               /* trainers stand still by order: nobody is late */
};

struct sync_conf {
    const struct config_log *config_log; /* borrowed: which parts a version has */
    uint32_t fragments_count;
    const uint32_t *shards_counts; /* per fragment, copied */
    const uint64_t *filled;        /* likewise: mask of the shards with values; NULL: all have */
    struct owner_rule rule;
    uint64_t
        patience_ms; /* with one that can be heard and does not do its part (net/sync/sync_patience.h); 0: no end */
    struct sync_view view; /* of the epoch at the start */
};

#endif
