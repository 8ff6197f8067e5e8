/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate: the doorway as peers has it: guests and orders are told the council, and what this island says of itself the
 * others. Only the loop's thread.
 */
#ifndef DAEMON_PEERS_GATE_H
#define DAEMON_PEERS_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/peers/council.h"
#include "daemon/peers/doorway.h"
#include "daemon/peers/peers_types.h"
#include "net/transport/link.h"

/* All zero at first. */
struct gate {
    const struct peers_conf *conf;
    struct link *link;
    struct council *council;
    struct doorway *doorway;
    bool shut_out;  /* most of the others that vote do not know our key */
    bool draining;  /* we are leaving the run, or have left it */
    bool undialled; /* the owners dial us in vain */
    bool planned;   /* the run's plan is known here */
    bool news;      /* all others are to be greeted again */
};

/* What it points to is borrowed. Fails as doorway_new(). */
ERR_MUST_CHECK enum err gate_open(const struct peers_conf *conf, struct link *link, struct council *council,
                                  uint64_t now_ms, struct gate *gate);
void gate_close(struct gate *gate);

/* Says to all that this island leaves the run, or that it is back. */
void gate_drain(struct gate *gate, bool draining);
/* The owners dial us in vain, or do so no more. */
void gate_undialled(struct gate *gate, bool undialled);
/* What we wish of owning shards (enum record_wish). */
uint8_t gate_owner_wish(const struct gate *gate);
/* A member's greeting: what it says of itself. */
void gate_said(struct gate *gate, uint32_t member, const struct wire_hello *hello);
/* Once a turn. */
void gate_look(struct gate *gate, uint64_t now_ms);
/* Whether others are to be greeted again, once. */
bool gate_tick(struct gate *gate, uint64_t now_ms);

#endif
