/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_core: what the engine remembers. Private to daemon/engine*.c:
 *
 *     engine          start, the loop's turns, timers, stop
 *     engine_events   what parts have to say: the plan, the trainer, the other islands, epochs; the core's orders
 *
 * Each floor calls only those below it.
 */
#ifndef DAEMON_ENGINE_CORE_H
#define DAEMON_ENGINE_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/env.h"
#include "daemon/membership/charter.h"
#include "daemon/control/control.h"
#include "daemon/ground.h"
#include "daemon/lag.h"
#include "daemon/peers/peers.h"
#include "daemon/runplan.h"
#include "daemon/trainer/trainer.h"
#include "daemon/waits.h"

struct engine {
    const struct dconf *conf;
    struct runspec spec;
    struct ident ident;
    struct charter charter;
    uint64_t now_ms, start_ms, tick_ms, sample_ms;

    /* from the ground up */
    struct events *events;
    struct jobs *jobs;
    struct ledger *ledger;
    struct vote *vote;
    struct trainer *trainer;
    struct peers *peers;
    struct control *control;
    struct ground ground;
    struct runplan run;  /* once the plan is known */
    bool told;           /* the parts above know the plan, and what this island holds */
    uint64_t listens_ms; /* since when other islands are heard and told things; 0: not before that is known */
    bool epoch_waits;    /* one is decided, and begins when that is known */
    enum err failed;     /* why the daemon ends, if no other error says so */
    uint64_t judge_ms;   /* when a trainer that waits for the run's plan is judged without it; 0: none does */
    struct waits *waits;
    struct lag lag;
    uint64_t turn_cpu_ns; /* what the loop's thread had taken of a processor when the turn began */
};

/* What has been done of the loop's turn since the last of these calls. */
static inline void engine_stepped(struct engine *engine, const char *name)
{
    lag_step(&engine->lag, name, env_mono_ns());
}

#endif
