/*
 * exchange_parts: what exchange.c (greetings, heartbeats, moving bytes) and exchange_objects.c (which bytes) share.
 * Private to them.
 */
#ifndef DAEMON_EXCHANGE_PARTS_H
#define DAEMON_EXCHANGE_PARTS_H

#include "daemon/engine.h"

/* ---- exchange.c ---- */
void exchange_control(struct engine *engine, uint32_t peer, const struct wire_message *message);
void exchange_peer_up(struct engine *engine, uint32_t i);

/* ---- exchange_objects.c ---- */
/* xfer's question: is this object wanted, and where does it go? */
enum xfer_verdict exchange_offer(void *user, uint32_t peer, const struct wire_key *key, uint64_t total,
                                 struct xfer_offer *offer);
/* A peer asks for an object. */
void exchange_serve(struct engine *engine, uint32_t peer, const struct wire_key *key);
/* Ends what is served outside the slots: to one peer (UINT32_MAX: all), one object (NULL: all). */
void exchange_end_served(struct engine *engine, uint32_t peer, const struct wire_key *key);
/* A plan came in. */
void exchange_plan_in(struct engine *engine, uint32_t peer, const struct wire_key *key, uint64_t bytes);
/* Asks a peer for the plan while we have none. */
void exchange_want_plan(struct engine *engine);

#endif
