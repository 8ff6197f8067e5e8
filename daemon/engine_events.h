/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_events: what the parts of the daemon have to say is dealt with: the run's plan becomes known, trainers are
 * judged, the protocol's core is stepped and its orders are handed out, epochs begin. Private to daemon/engine*.c; only
 * the loop's thread calls.
 */
#ifndef DAEMON_ENGINE_EVENTS_H
#define DAEMON_ENGINE_EVENTS_H

#include "daemon/engine_core.h"

/* As runplan_make(). It is made known when what the disk has is read (EVENT_RECOVERED); until then engine->told is
 * false. */
ERR_MUST_CHECK enum err engine_set_plan(struct engine *engine, struct model_plan *plan, bool saved);
/* A trainer that waits for the plan: it has come, and what the disk has of it; or neither does. */
void engine_judge_late(struct engine *engine);
/* The core hears how far a trainer is on its way. Only when the plan is told. */
void engine_tell_expectation(struct engine *engine);
/* Steps the core and carries its orders out; nothing before the plan is told. */
void engine_step_sync(struct engine *engine, const struct sync_event *event);
/* Deals with all events that are posted. */
void engine_drain(struct engine *engine);

#endif
