/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member_progress: facts about each member for the next configuration: whether we and a majority hear it, whether its
 * disk is in doubt, how far it has come, and its own word. By slot. Private to net/membership/.
 *
 * It states facts, and asks for nothing. Time is that of the last member_progress_tick().
 */
#ifndef NET_MEMBERSHIP_MEMBER_PROGRESS_H
#define NET_MEMBERSHIP_MEMBER_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "common/log.h"
#include "common/quota.h"
#include "net/config/config_log.h"
#include "net/membership/key_turns.h"
#include "net/membership/hearing.h"
#include "net/membership/membership_io.h"
#include "net/membership/refused_orders.h"
#include "net/sync/sync.h"
#include "net/config/view.h"
#include "net/transport/wire.h"

struct seat {
    uint32_t id;
    bool used, up;
    bool heard;            /* a heartbeat has come since it is up */
    bool broke_word;       /* it signed two results of one part, */
    bool evidence;         /* which can be shown the others */
    uint64_t doubt_ms;     /* since when it says that its disk is in doubt; 0: it does not */
    uint64_t caught_up_ms; /* when one that comes was last seen as far as most; 0: never */
    uint64_t incarnation;  /* as it says; 0: it has not */
    struct quota disks;    /* how often that was another one */
    struct quota mended;   /* how often it kept something again */
    struct quota endorsement_checks;
    uint64_t epoch;               /* of its last heartbeat */
    bool trains;                  /* as it said last, as is */
    uint64_t step;                /* this */
    uint64_t out_ms, out_step;    /* when somebody put it out of the run, and at what step of its trainer; 0: not so */
    bool said;                    /* this: */
    struct member_word word;      /* its own, signed by it, */
    uint8_t key[IDENT_KEY_BYTES]; /* with this */
    uint64_t word_due;            /* number of its word that was to come into the next configuration; 0: none */
    uint32_t word_left_out;       /* configurations in a row that came without what was to */
    struct quota drains;     /* how often configurations said that it begins or ends to drain, or another new key; */
    struct quota repeats;    /* that it says the same by a higher number; */
    struct quota orders;     /* and that they carry an order of it */
    struct bitset silent;    /* whom it does not hear */
    uint8_t losses;          /* as the configuration says, */
    uint64_t losses_ms;      /* since then */
    uint64_t partitioned_ms; /* since when it has to stand back, cut off from an owner; 0: it has not */
    bool partitioned_told;   /* people */
    bool disk_fails;         /* as it said last */
    bool disk_told;          /* people */
    struct refused_orders refused;     /* that it sent */
    struct log_limit misproposed_said; /* configurations of its that may not follow ours, */
    uint64_t misproposed_ms;           /* and when it last brought one; 0: never */
    struct quota logs;                 /* how often it was sent configurations that it asked for, */
    uint64_t log_epoch; /* the newest when it was last sent some unasked; 0: it was not, since it is up */
    uint64_t log_ms;    /* and when */
};

struct member_progress {
    /* borrowed; the view follows the config log's newest configuration */
    const struct view *view;
    const struct config_log *config_log;
    const struct voting_disk *disk;
    struct sync *sync; /* NULL: the run's plan is not known yet */
    uint32_t fragments_count;
    uint64_t *reached;       /* [fragments_count]: the version that most have reached, as of the last tick */
    uint32_t next_comer;     /* slot that is looked at next */
    struct seat *seat;       /* [VIEW_SLOTS_MAX] */
    struct hearing *hearing; /* [VIEW_SLOTS_MAX]: for judging who is lost and who stands back */
    struct bitset lost;      /* as of the last tick: a majority of the voters does not hear them */
    bool hears_owners;       /* likewise: we hear all owners that are not lost */
    uint64_t yields_ms;      /* since when that is so of us, and others can go on; 0: it is not */
    uint64_t looked_ms;      /* when it was judged last who stands back */
    struct bitset silent;    /* to us */
    uint64_t now_ms;         /* of the last tick */
    uint64_t begun_ms;       /* when the epoch began here */
    uint64_t awake_ms;       /* for so long since then, without what the machine slept */
};

/* Of nobody yet: member_progress_begin() follows. ERR_NOMEM. */
ERR_MUST_CHECK enum err member_progress_init(const struct view *view, const struct config_log *config_log,
                                             const struct voting_disk *disk, struct member_progress *progress);
/* An empty one is fine. */
void member_progress_deinit(struct member_progress *progress);

/* The run's plan: the core, borrowed, and how many fragments there are. ERR_NOMEM. */
ERR_MUST_CHECK enum err member_progress_plan_known(struct member_progress *progress, struct sync *sync,
                                                   uint32_t fragments_count);

/* A new epoch: the view says whose each slot is; a slot that has changed hands begins anew. */
void member_progress_begin(struct member_progress *progress, uint64_t now_ms);
/* The member can be heard from now on, or not any more. */
void member_progress_up(struct member_progress *progress, uint32_t member, bool up);
/* Takes in a member's heartbeat: its epoch, the members it does not hear, and its disk. */
void member_progress_heard(struct member_progress *progress, uint32_t member, const struct wire_heartbeat *beat,
                           uint64_t now_ms);
/* Likewise our own, of our trainer: the proposer is held to the same rules as others. */
void member_progress_said(struct member_progress *progress, const struct wire_heartbeat *beat, uint64_t now_ms);
/* What another member says of itself, which is kept if it is newer than what it said before. ERR_PROTO: it did not sign
 * that, or it is over a limit. */
ERR_MUST_CHECK enum err member_progress_word(struct member_progress *progress, uint32_t member,
                                             const struct member_word *word);
/* `silent`: members that we have not heard for as long as the run allows. */
void member_progress_tick(struct member_progress *progress, const struct bitset *silent, uint64_t now_ms);

/* The member has brought a configuration that may not follow ours. True: people are to be told so now. */
bool member_progress_misproposes(struct member_progress *progress, uint32_t member);
/* Whether it has within the last minute. */
bool member_progress_misproposed(const struct member_progress *progress, uint32_t member);
/* Whether a majority of the voters does not hear the member. A silent voter has no say in it. */
bool member_progress_silent(const struct member_progress *progress, uint32_t member);
/* Whether the member, which may be us, has to stand back, since it and an owner do not hear each other
 * (net/membership/hearing.h); an owner only when that has lasted. */
bool member_progress_partitioned(const struct member_progress *progress, uint32_t member);
/* Whether we are to take ourselves for lost: a majority has said so for a while, and others can go on without us. */
bool member_progress_yields(const struct member_progress *progress);
/* Whether we hear all owners that are not lost: only then may a member be let in, for it may be one that stands back.
 */
bool member_progress_hear_owners(const struct member_progress *progress);
/* An owner, or a voter that would own, which is cut off from it, when that has lasted; VIEW_NOBODY: it does not stand
 * back. */
uint32_t member_progress_partitioned_from(const struct member_progress *progress, uint32_t member);
/* Writes the cause into `text` why the member stands back for that owner, as far as it is known here: a cut line, or
 * one of the two makes no result. False: it is surely no line. */
bool member_progress_partitioned_text(const struct member_progress *progress, uint32_t member, uint32_t owner,
                                      char *text, size_t text_bytes);
/* Which other members are heard. */
struct key_turns_heard member_progress_hears(const struct member_progress *progress);
/* Whether the member, which may be us, says that its disk keeps nothing. */
bool member_progress_disk_fails(const struct member_progress *progress, uint32_t member);
/* Whether a configuration takes from somebody who is up, which may be us, the key of its connections: as soon as it is
 * taken nothing goes there any more, and whoever is not told waits, or for good, since nobody lets it in to ask. */
bool member_progress_cuts_off(const struct member_progress *progress, const struct config *config);
/* How many voters are here, us among them. */
uint32_t member_progress_voters_heard(const struct member_progress *progress);
/* How many of them can keep a vote. */
uint32_t member_progress_voters_able(const struct member_progress *progress);
/* Whether the member has come as far as most have: a guess, which what it answers to a draft confirms. */
bool member_progress_caught_up(const struct member_progress *progress, uint32_t member);
/* Somebody has put the member out of the run by an order. */
void member_progress_put_out(struct member_progress *progress, uint32_t member);
/* Whether the member, which may be us, is to stay out: its trainer has not moved since it was put out, not long ago. */
bool member_progress_kept_out(const struct member_progress *progress, uint32_t member);
/* Whether its disk, which may be ours, is in doubt so that a configuration has to name it. */
bool member_progress_in_doubt(const struct member_progress *progress, uint32_t member);
/* Our own doubt has ended by itself: the doubts of others may do so, too, before a configuration has to name their
 * disks. */
void member_progress_doubt_anew(struct member_progress *progress);
/* How many of a member's losses are to be remembered: one less for every 20 minutes that the configuration has said so.
 */
uint8_t member_progress_losses(const struct member_progress *progress, uint32_t member);
/* As that member says, which may be us; 0: it has not. */
uint64_t member_progress_incarnation(const struct member_progress *progress, uint32_t member);

/* Whether our disk, which is in doubt, may vote: a configuration names it, or it is the founder's first one, on which
 * nothing has been made yet. */
bool member_progress_doubt_is_over(const struct member_progress *progress);
/* Power was lost everywhere: every voter is here, in this epoch, has said what it holds, and so many of their disks are
 * in doubt that no majority is left. What they know together is all there is, as far as those who are here know of no
 * later configuration, and nobody is awaited. */
bool member_progress_majority_in_doubt(const struct member_progress *progress);
/* Whom a voter whose disk is in doubt waits for, before it takes our configuration for the newest: one that votes alone
 * waits for all others, for half a minute: nobody else can know that it had the vote once, and another has it now. */
struct bitset member_progress_awaited(const struct member_progress *progress);

/* Whether a member may cost us another look at the disk: it asked for configurations, or speaks of an older epoch. */
bool member_progress_may_be_sent(struct member_progress *progress, uint32_t member, bool asked, uint64_t now_ms);

#endif
