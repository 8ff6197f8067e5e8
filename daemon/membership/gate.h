/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate: the doorway as peers has it: guests and orders are told to membership, and what this island says of itself the
 * others. Only the loop's thread.
 */
#ifndef DAEMON_MEMBERSHIP_GATE_H
#define DAEMON_MEMBERSHIP_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/membership/membership_host.h"
#include "daemon/membership/doorway.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/trainer/trainer.h"
#include "net/transport/link.h"

/* All borrowed. */
struct gate_conf {
    const struct dconf *conf;
    const struct runspec *spec;
    const struct view *view;
    const struct chain *chain;
    const struct ident *ident;
    const struct trainer *trainer;
    struct link *link;
    struct membership *membership;
};

/* All zero at first. */
struct gate {
    struct gate_conf conf;
    struct doorway *doorway;
    bool shut_out;  /* most of the others that vote do not know our key */
    bool draining;  /* we are leaving the run, or have left it */
    bool undialled; /* the owners dial us in vain */
    bool planned;   /* the run's plan is known here */
    bool news;      /* all others are to be greeted again */
};

/* What it points to is borrowed. Fails as doorway_new(). */
ERR_MUST_CHECK enum err gate_open(const struct gate_conf *conf, uint64_t now_ms, struct gate *gate);
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
