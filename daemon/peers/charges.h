/* SPDX-License-Identifier: Apache-2.0 */
/*
 * charges: what each member has cost this island, by its budget (budget.h): charges what comes of it, by type, before
 * anything else is done about it, and closes the link of whoever goes far beyond. Private to peers/.
 *
 * What is dropped of a member is logged now and then. Only the loop's thread.
 */
#ifndef DAEMON_PEERS_CHARGES_H
#define DAEMON_PEERS_CHARGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/log.h"
#include "daemon/peers/budget.h"
#include "net/config/view.h"
#include "net/transport/link.h"

/* Of one member. All zero at first. */
struct member_charges {
    struct budget budget;
    uint64_t messages_out; /* of the link, as far as answers to them were earned */
    uint64_t dropped_ms;   /* when something that it sent was dropped last; 0: never */
    struct log_limit dropped_said;
};

/* All zero before charges_init(). */
struct charges {
    const struct view *view; /* borrowed, as is the link */
    struct link *link;
    struct member_charges *of; /* [room], by slot */
    uint32_t room;
    struct budget_credit credit;
    uint64_t looked_ms; /* when we last took something in */
};

void charges_init(struct charges *charges, const struct view *view, struct link *link);
/* Logs how near to its limits each member ever came. One that was never initialised is fine. */
void charges_deinit(struct charges *charges);
/* Room for members in slots 0 to `room` - 1. ERR_NOMEM. */
ERR_MUST_CHECK enum err charges_reserve(struct charges *charges, uint32_t room);
/* The member has left: the slot is another's. */
void charges_forget(struct charges *charges, uint32_t slot);
/* Once a turn, before anything is taken in: what has gathered while this machine, or this daemon, was stopped is no
 * fault of whoever sent it. */
void charges_look(struct charges *charges, uint64_t now_ms);

enum charge {
    CHARGE_GOOD,
    CHARGE_BEYOND, /* its budget: what this is for is dropped */
    CHARGE_SHUT    /* likewise, and its link was closed for a while: charges_text() says why */
};
/* Charges the member `count` of a kind. */
enum charge charges_add(struct charges *charges, uint32_t slot, enum budget_kind kind, uint32_t count, uint64_t now_ms);
/* Charges a control message, by its type. */
enum charge charges_control(struct charges *charges, const struct link_message *in, uint64_t now_ms);
/* Charges what the link has dropped of it since, until its link is closed. */
enum charge charges_unusable(struct charges *charges, uint32_t slot, uint64_t now_ms);
/* Charges signatures that were none, which it has cost already. */
void charges_false(struct charges *charges, uint32_t slot, uint64_t count, uint64_t now_ms);
/* A chunk that cost so much has brought something. */
void charges_earn_chunk(struct charges *charges, uint32_t slot, uint32_t cost);
/* Something that it sent is passed over, because of `text`. */
void charges_dropped(struct charges *charges, uint32_t slot, const char *text, uint64_t now_ms);

/* Whether its link is closed. */
bool charges_is_shut(const struct charges *charges, uint32_t slot, uint64_t now_ms);
/* For people: what it sends too much of, while its link is closed and for a minute after; else "". Borrowed. */
const char *charges_text(const struct charges *charges, uint32_t slot, uint64_t now_ms);
/* Whether something that it sent was dropped within the last minute. */
bool charges_dropped_lately(const struct charges *charges, uint32_t slot, uint64_t now_ms);

#endif
