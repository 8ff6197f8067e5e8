/* SPDX-License-Identifier: Apache-2.0 */
/*
 * furthest_step: the run step of the island that is furthest, as far as what the others say of their trainers is
 * believed. Private to peers/.
 *
 * All islands follow that step, so nobody may bring it further than rounds can have brought anybody, nor faster than
 * pace.h allows. What is not believed is logged once, and is there for status. It reads the core, the rounds and the
 * trainer; only the loop's thread.
 */
#ifndef DAEMON_PEERS_FURTHEST_STEP_H
#define DAEMON_PEERS_FURTHEST_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/err.h"
#include "common/runspec.h"
#include "daemon/peers/pace.h"
#include "daemon/trainer/trainer.h"
#include "daemon/transfer/objects.h"
#include "net/config/view.h"
#include "net/transport/wire.h"

/* What an island last said of its trainer. All zero at first. */
struct report {
    uint64_t step, tokens;
    uint64_t own_step; /* our trainer's when it said so */
    double loss;       /* as in struct trainer_info */
    uint32_t tokens_per_s, trainer;
    bool unfinished; /* as before, of one that has started again and said nothing yet */
    struct report_doubt {
        uint64_t since_ms; /* 0: there is none */
        bool said;         /* in the log */
        bool lasts;        /* it is so, and has been for a minute: for status */
    } too_far, too_fast;   /* it says that it is further than it can be, or than anybody trains */
};
/* For status: what it says that is not believed; "": nothing. */
const char *report_doubted(const struct report *report);
/* For status: whether it is followed at the bound alone. That may be true, of an island that is as fast. */
bool report_too_fast(const struct report *report);

/* All borrowed. */
struct furthest_step_conf {
    const struct runspec *spec;
    const struct view *view;
    const struct trainer *trainer;
    const struct transfer_plan *plan; /* all zero until it is known */
};

/* All zero before furthest_step_init(). */
struct furthest_step {
    struct furthest_step_conf conf;
    struct island_step {
        struct report report;
        struct pace pace; /* of its trainer */
    } * of;               /* [room], by slot */
    uint32_t room;
    struct pace own; /* of our own trainer */
    struct step_line line;
    struct pace_said paces[VIEW_SLOTS_MAX];
    /* How far a single island is believed. */
    struct report_bounds {
        uint64_t most;    /* run step that rounds can have brought anybody to: who says more is not followed */
        uint64_t line;    /* up to which it is followed, at most `most`: pace.h */
        bool judges;      /* who is behind does not know the rounds yet that brought the others so far */
        double fast_most; /* of the usual pace, by which the line rises; for the log */
    } bounds;
};

void furthest_step_init(struct furthest_step *furthest, const struct furthest_step_conf *conf);
/* One that was never initialised is fine. */
void furthest_step_deinit(struct furthest_step *furthest);
/* Room for members in slots 0 to `room` - 1. ERR_NOMEM. */
ERR_MUST_CHECK enum err furthest_step_reserve(struct furthest_step *furthest, uint32_t room);

/* A heartbeat of the member in that slot. */
void furthest_step_heard(struct furthest_step *furthest, uint32_t slot, const struct wire_heartbeat *beat,
                         uint64_t now_ms);
/* It restarted: what it said is void. */
void furthest_step_restart(struct furthest_step *furthest, uint32_t slot);
/* It has left: the slot is another's. */
void furthest_step_forget(struct furthest_step *furthest, uint32_t slot);

/* Once a tick: the highest run step of the members `up`, by slot, as far as they are believed, and of `own_step`. */
uint64_t furthest_step_look(struct furthest_step *furthest, uint64_t own_step, const struct bitset *up,
                            uint64_t now_ms);
/* As they say, believed or not. */
uint64_t furthest_step_said(const struct furthest_step *furthest, uint64_t own_step, const struct bitset *up);
/* Up to which run step a single island is believed, as of the last furthest_step_look(). */
uint64_t furthest_step_line(const struct furthest_step *furthest);
/* What the member in that slot last said; borrowed. */
const struct report *furthest_step_report(const struct furthest_step *furthest, uint32_t slot);

#endif
