/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status_types: the structs of a status: its sources and its findings. Types only.
 */
#ifndef DAEMON_CONTROL_STATUS_TYPES_H
#define DAEMON_CONTROL_STATUS_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "common/runspec.h"
#include "daemon/control/alike.h"
#include "daemon/control/progress.h"
#include "daemon/dconf.h"
#include "daemon/lag.h"
#include "daemon/membership/config_store.h"
#include "daemon/membership/membership_host.h"
#include "daemon/membership/vote.h"
#include "daemon/peers/peers.h"
#include "daemon/rounds/recover.h"
#include "daemon/rounds/rounds.h"
#include "daemon/state/ledger.h"
#include "daemon/state/model_plan.h"
#include "daemon/trainer/trainer.h"
#include "net/config/view.h"
#include "net/sync/sync.h"

/* Intervals without a round that closes, until that is told. */
enum { STATUS_INTERVALS_BLOCKED = 3 };
/* For how long it is told that the daemon was started again. */
enum { STATUS_RESTARTED_MS = 60 * 60 * 1000 };

/* Where it is taken from; borrowed. `plan` and what stands below it are NULL until the run's plan is known. */
struct status_conf {
    const struct dconf *conf;
    const struct runspec *spec;
    const struct view *view;
    const struct config_store *configs; /* whose view it is */
    const struct vote *vote;
    struct ledger *ledger;
    struct link *link; /* whose counters are read anew */
    const struct objects *objects;
    const struct membership_host *host;
    const struct membership *membership; /* of the host */
    struct peers *peers;
    const struct trainer *trainer;
    uint64_t start_ms; /* of the daemon */
    const struct model_plan *plan;
    const struct sync *sync;
    const struct rounds *rounds;
    const struct replica *replica;
    const struct parts *parts;
    const struct rounds *recovers;   /* which read what the disk has, before anything of them is known; NULL: none do */
    uint64_t memory_bytes;           /* all that the plan takes at most */
    const struct progress *progress; /* NULL: nobody keeps account of time */
    const struct load *load;         /* NULL: nor of processors */
    const struct lag *lag;           /* NULL: nor of the loop's turns */
    const struct alike *alike;       /* NULL: nor of losses */
};

/* A fault. The code is for programs, the text for people; both stand in docs/FORMATS.md. */
enum complaint_code {
    COMPLAINT_AWAY,       /* member: an island is not heard */
    COMPLAINT_REFUSED,    /* member: it, or we, would not talk */
    COMPLAINT_ALONE,      /* no other island is heard */
    COMPLAINT_STRANGER,   /* an unknown key knocked */
    COMPLAINT_SLOW_PEER,  /* member: it is far behind this island */
    COMPLAINT_MISSED,     /* member: rounds close without it */
    COMPLAINT_WAITING,    /* the trainer stands still until its last contributions are counted */
    COMPLAINT_BEHIND,     /* fragments are more than one version behind */
    COMPLAINT_REPAIR,     /* fragments are being repaired */
    COMPLAINT_DIFFERS,    /* member: its state and ours stand against each other, and no majority says which is right */
    COMPLAINT_DISK,       /* the disk cannot be written */
    COMPLAINT_PEER_DISK,  /* another island's disk cannot */
    COMPLAINT_RESTARTING, /* the trainer failed */
    COMPLAINT_ENDED,      /* the trainer ended by itself before the run's steps were done */
    COMPLAINT_ENDED_BADLY,   /* the trainer failed when it had nothing more to contribute */
    COMPLAINT_STOPPED,       /* no trainer is running, and nobody asked for that */
    COMPLAINT_NOT_ATTACHED,  /* none is attached, and none is configured or the one that runs does not come */
    COMPLAINT_NO_PLAN,       /* its trainer may have another base, and nobody has said yet which is the run's */
    COMPLAINT_STALLED,       /* the trainer does not finish its steps */
    COMPLAINT_OUTLIER,       /* member: its contributions are left out or scaled down */
    COMPLAINT_TURNED_AWAY,   /* member: its contributions point away from the others', and weigh nothing */
    COMPLAINT_CLAIMS_MUCH,   /* member: it says that it trains far more tokens than most others, and than count */
    COMPLAINT_RUNAWAY,       /* an anchor grows without bound */
    COMPLAINT_LOSS_NAN,      /* the trainer's loss is no number */
    COMPLAINT_NAN,           /* what the trainer wants to contribute holds NaN or Inf */
    COMPLAINT_BLOCKED,       /* rounds do not close, whatever the cause */
    COMPLAINT_DUPLICATE_KEY, /* member: two machines speak with its key */
    COMPLAINT_STATE_LOST,    /* the state folder was removed or replaced below the daemon */
    COMPLAINT_LOST,          /* member: the configuration says that it is away: the run goes on without it */
    COMPLAINT_PARTITIONED,   /* member, or this island: it and an owner do not hear each other, so it owns nothing */
    COMPLAINT_NO_MAJORITY,   /* so few that vote are heard that nothing can be decided, and mostly no round closes */
    COMPLAINT_SEALED,        /* the next epoch is being decided for longer than that takes */
    COMPLAINT_DOUBT,         /* this island has no vote, since its disk may have forgotten something */
    COMPLAINT_MARK,          /* a copy of this island's folder that is put back would not be noticed */
    COMPLAINT_SAME_BATCHES,  /* member: it trains what our trainer trains */
    COMPLAINT_FAULT,         /* an island does what it should not, or not what it should */
    COMPLAINT_NOT_ADMITTED,  /* a majority of the others does not know our key: this island was revoked */
    COMPLAINT_NO_PART,       /* this island has left, or the others have put it out */
    COMPLAINT_DAEMON_DIES,   /* the daemon was started again several times within an hour */
    COMPLAINT_UNSUPERVISED,  /* nobody starts the daemon again any more if it dies */
    COMPLAINT_RECOVERING,    /* the daemon reads what it has saved, and takes part in nothing until it has */
    COMPLAINT_LOOP_LAG,      /* the daemon did not look at what came in for more than a second, lately */
    COMPLAINT_TOO_FAST,      /* member: it trains so much faster than most owners that it is followed at the bound */
    COMPLAINT_NOT_LISTENING, /* its port could not be bound again after a change of its key */
    COMPLAINT_CODES
};
enum { COMPLAINT_BYTES = 600 };
struct complaint {
    enum complaint_code code;
    uint32_t of; /* the one, by its number in the list, that this follows from; its own: it is an event of its own */
    struct bitset about; /* members, which may be this island */
    char what[COMPLAINT_BYTES];
    char remedy[600]; /* with the command as it is typed here */
};

/* Of a slot of the view; where that is nobody's, `member->used` is false, and nothing of it is shown. */
struct status_peer {
    const struct view_member *member;
    bool self, up;
    bool refused;    /* it, or we, would not talk: not a matter of time */
    bool drained;    /* it left the run as its people asked */
    bool catches_up; /* it is away by the configuration, and back: it takes part again by itself */
    bool unadmitted; /* refused, since it does not know our key, or has another than we think */
    bool may_vote;   /* it votes, is heard, and its disk is not in doubt */
    const char *note;
    const char *fault; /* what it does that it should not; "": nothing */
    enum peer_fault fault_kind;
    const char *trainer; /* what its trainer does */
    bool training;       /* it trains */
    uint64_t step, tokens;
    uint64_t own_step; /* of our trainer when the island said that step */
    double loss;       /* 0: not said; NaN: no number */
    double tokens_per_s;
    uint32_t rtt_ms;
    bool heard;
    double heard_s; /* ago */
    uint64_t sent_bytes, received_bytes, unacknowledged_bytes;
    uint64_t outliers, missed;
    unsigned outliers_lately;                   /* of its last eight contributions */
    bool claims_much;                           /* it says that it trains far more tokens than most others */
    bool turned_away;                           /* its contributions weigh nothing, for they pointed elsewhere */
    const struct view_member *partitioned_from; /* an owner that it is cut off from, so that it stands back; or NULL */
    char partitioned[300];                      /* how they are cut off from each other; "": they are not */
    bool partitioned_by_line;                   /* as far as is known */
    bool too_fast;                              /* it trains faster than it is followed */
    bool disk_fails;                            /* it says that its disk keeps nothing */
    bool duplicate_key;                         /* two machines speak with its key */
    uint32_t alike;                             /* so many of its losses in a row are ours */
    bool too_late;                              /* later than the grace time, so that rounds do not wait for it */
};

struct status_fragment {
    uint64_t params, tensors;
    struct wire_standing own;
    uint64_t newest; /* version that most of the others say they hold */
    enum sync_state state;
    struct owner owner;
    struct bitset waiting; /* members it waits for */
    uint32_t against;      /* a member whose state of this version stands against ours (sync_stands_against()) */
    bool blocked;          /* rounds of it are due, or under way, and have not closed for intervals */
    uint64_t feedback_cuts;
    double grown; /* how many times as large its anchor is that has run away; 0: it has not */
};

enum { STATUS_ORDERS_MAX = 16 };

/* Who decides with whom, and how that goes. */
struct status_epoch {
    uint32_t voters, voters_heard; /* us among them, if we are one */
    uint32_t voters_sure;          /* of those heard: whose disk is not in doubt, so that they may vote */
    bool majority;                 /* they are a majority: it can declare members lost, so the rest go on */
    bool enough;                   /* enough full voters are heard for a round to close */
    bool shut_out;                 /* most of the others that vote do not know our key */
    bool founding;                 /* of a new run: nobody can vote before its model is known */
    bool votes;                    /* this island does */
    bool exposed;                  /* the mark of our votes lies in our own folder */
    const char *doubt;             /* why its disk is in doubt; "" */
    struct bitset awaited;         /* members whom it then has to hear, besides others that vote */
    uint64_t sealed_ms;            /* for so long the next epoch is being decided; 0: it is not */
    bool closing;                  /* and rounds close all the same: the others do without us */
    uint64_t requested_ms; /* for so long a change has been asked for, and nobody is about to decide it; 0: nothing is
                              asked for */
    char waits[200];       /* what either waits for */
    struct membership_pending orders[STATUS_ORDERS_MAX]; /* that wait, the first of them */
    uint32_t orders_count;
    const char *unkept;      /* why a decided configuration, or our vote, cannot be kept on disk; "" */
    char advice[600];        /* nothing is wrong, but of who votes something could be better; "" */
    char orders_advice[400]; /* or of who gives orders */
};

/* How much of the run's state is here, as on an island that joins. */
struct status_arriving {
    uint32_t fragments;        /* of which there is none yet */
    uint64_t bytes, bytes_due; /* of all: here, or arriving; and in all */
    bool offered;              /* others that are heard have some of the missing results */
    uint64_t still_ms;         /* for so long nothing has come */
};

/* What the daemon takes of the machine's processors. */
struct status_load {
    double cores;           /* lately */
    double seconds;         /* since it started; of these: */
    double loop_s, links_s; /* the loop; the threads of the links: ciphers and sockets */
    double jobs_s[JOBS_WORKS];
    uint64_t lag_ms, lag_ms_max; /* the longest turn of the loop: within the last minute, and since it started */
};

/* Of the run, by order. */
struct status_pause {
    bool is;
    char by[WIRE_NAME_BYTES]; /* whose order it was; "", and `order` 0: the configuration that has it is forgotten */
    uint64_t order;
};

struct status {
    const struct status_conf *from;
    uint64_t now_ms;
    enum trainer_phase phase;
    struct trainer_info trainer;
    struct status_load load;
    struct rounds_info rounds; /* zero before the plan is known */
    struct ledger_stats ledger;
    struct peers_refused refused;
    uint64_t objects_sent_bytes, objects_wasted_bytes;
    struct status_epoch epoch;
    struct status_pause pause;
    struct status_arriving arriving;
    struct rounds_recovery recovery; /* while from->recovers */
    bool witness;   /* this is one: it has no state, and `versions` are those of the voters that are heard */
    bool undialled; /* the owners that are heard dial this island in vain */
    uint64_t uplink_bits;
    const char *deaf;             /* why nobody can dial this island since its key changed; ""; borrowed of the link */
    char capped[CAPS_TEXT_BYTES]; /* what keeps our lines from carrying more, and what to change; "" */
    uint32_t quorum;              /* contributions with which a round closes now (sync_quorum()); 0: it waits for all */
    uint32_t contributors;        /* members that take part */
    uint32_t islands, islands_up;
    struct bitset awaited;    /* whom the rounds wait for that the trainer stands still for (trainer.waits_ms) */
    uint32_t islands_drained; /* and are away, as is to be expected */
    uint64_t step;            /* of the newest result applied */
    double left_s;            /* until its last step, at the pace of the island that is furthest; < 0: not known */
    uint64_t furthest;        /* step of the island that is furthest, as they say */
    uint64_t sent_bytes, received_bytes;
    uint64_t versions, version_min, version_max;
    bool anchors_known;
    struct digest anchors;     /* one hash over all: equal on two islands exactly when all anchors and momenta are */
    struct status_peer *peers; /* [members] */
    struct status_fragment *fragments;
    uint32_t fragments_count;
    struct complaint *complaints;
    uint32_t complaints_count;
};

#endif
