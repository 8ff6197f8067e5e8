/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/charges.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/mem.h"
#include "net/transport/wire.h"

/* The same complaint about one member is logged once in so long; that it sends what is dropped is said for so long. */
enum { DROPPED_SAID_MS = 5000, DROPPED_MS = 60000, DROPPED_BYTES = 120 };
/* Who takes nothing in for so long was stopped, or its machine was: what others said has gathered. */
enum { SLEPT_MS = 500 };

void charges_init(struct charges *charges, const struct view *view, struct link *link)
{
    charges->view = view;
    charges->link = link;
}

static const char *name_of(const struct charges *charges, uint32_t slot)
{
    return charges->view->members[slot].as.name;
}

static void log_highest(const struct charges *charges, uint32_t slot)
{
    for (unsigned kind = 0; kind < BUDGET_KINDS; kind++) {
        uint64_t percent = budget_percent(&charges->of[slot].budget, (enum budget_kind)kind);
        if (percent > 0)
            log_debug("island %s: %s at most %" PRIu64 " %% of what may come at once", name_of(charges, slot),
                      budget_name((enum budget_kind)kind), percent);
    }
}

void charges_deinit(struct charges *charges)
{
    for (uint32_t i = 0; i < charges->room; i++)
        if (i != charges->view->self && charges->view->members[i].used)
            log_highest(charges, i);
    mem_free(charges->of);
    *charges = (struct charges){0};
}

enum err charges_reserve(struct charges *charges, uint32_t room)
{
    if (room > charges->room) {
        TRY(mem_grow(&charges->of, charges->room, room, sizeof *charges->of, "peers"));
        charges->room = room;
    }
    return ERR_OK;
}

void charges_forget(struct charges *charges, uint32_t slot)
{
    charges->of[slot] = (struct member_charges){0};
}

void charges_look(struct charges *charges, uint64_t now_ms)
{
    if (charges->looked_ms != 0 && now_ms >= charges->looked_ms + SLEPT_MS)
        budget_credit(&charges->credit, now_ms - charges->looked_ms, now_ms);
    charges->looked_ms = now_ms;
}

/* ---- what comes ---- */

void charges_dropped(struct charges *charges, uint32_t slot, const char *text, uint64_t now_ms)
{
    charges->of[slot].dropped_ms = now_ms;
    if (log_limit_pass(&charges->of[slot].dropped_said, now_ms, DROPPED_SAID_MS))
        log_error("island %s sent something we drop: %s", name_of(charges, slot), text);
}

enum charge charges_add(struct charges *charges, uint32_t slot, enum budget_kind kind, uint32_t count, uint64_t now_ms)
{
    struct budget *budget = &charges->of[slot].budget;
    char text[DROPPED_BYTES];
    if (budget_take(budget, &charges->credit, kind, count, now_ms))
        return CHARGE_GOOD;
    snprintf(text, sizeof text, "more %s than anybody needs", budget_name(kind));
    charges_dropped(charges, slot, text, now_ms);
    if (!budget_is_exceeded(budget, &charges->credit, now_ms))
        return CHARGE_BEYOND;
    /* It goes on and on: nothing of it is heard for a while. */
    link_shut(charges->link, slot, budget_close(budget, now_ms));
    log_warn("island %s: %s", name_of(charges, slot), budget_text(budget, now_ms));
    return CHARGE_SHUT;
}

/* What a message costs: at most so many of its kinds. */
enum { COSTS_MAX = 5 };
struct costs {
    struct {
        enum budget_kind kind;
        uint32_t count;
    } of[COSTS_MAX];
    unsigned count;
};

static void add_cost(struct costs *costs, enum budget_kind kind, uint32_t count)
{
    costs->of[costs->count].kind = kind;
    costs->of[costs->count++].count = count;
}

static void add_epoch_costs(struct costs *costs, uint32_t type, size_t bytes)
{
    add_cost(costs, BUDGET_EPOCH, 1);
    add_cost(costs, BUDGET_EPOCH_KIB, (uint32_t)(bytes / 1024));
    add_cost(costs, BUDGET_FALSE, 0);
    if (type == WIRE_ORDER || type == WIRE_EVIDENCE)
        add_cost(costs, BUDGET_ORDERS, 1);
    else if (type == WIRE_CONFIG_LOG)
        add_cost(costs, BUDGET_QUESTIONS, 1);
}

static struct costs costs_of(const struct link_message *in)
{
    struct costs costs = {.count = 0};
    switch (in->header.type) {
    case WIRE_HEARTBEAT: add_cost(&costs, BUDGET_HEARTBEATS, 1); break;
    case WIRE_ACK:
    case WIRE_DONE: add_cost(&costs, BUDGET_ANSWERS, 1); break;
    case WIRE_FETCH: add_cost(&costs, BUDGET_FETCHES, 1); break;
    case WIRE_DIAL_REQUEST:
    case WIRE_DIAL_RESPONSE: add_cost(&costs, BUDGET_DIALS, 1); break;
    default:
        if (wire_is_epoch(in->header.type))
            add_epoch_costs(&costs, in->header.type, in->bytes);
        else
            add_cost(&costs, BUDGET_GREETINGS, 1);
        break;
    }
    return costs;
}

/* Each message that we have sent it may be answered twice. */
static void earn_answers(struct charges *charges, uint32_t slot)
{
    struct member_charges *of = &charges->of[slot];
    uint64_t out = link_messages_out(charges->link, slot);
    if (out > of->messages_out)
        budget_earn(&of->budget, BUDGET_ANSWERS, 2 * (out - of->messages_out));
    of->messages_out = out;
}

enum charge charges_control(struct charges *charges, const struct link_message *in, uint64_t now_ms)
{
    struct costs costs = costs_of(in);
    enum charge charge = CHARGE_GOOD;
    if (in->header.type == WIRE_ACK || in->header.type == WIRE_DONE)
        earn_answers(charges, in->peer);
    for (unsigned k = 0; k < costs.count && charge == CHARGE_GOOD; k++)
        charge = charges_add(charges, in->peer, costs.of[k].kind, costs.of[k].count, now_ms);
    return charge;
}

enum charge charges_unusable(struct charges *charges, uint32_t slot, uint64_t now_ms)
{
    uint64_t left = link_take_unusable(charges->link, slot);
    enum charge charge = CHARGE_GOOD;
    for (; left > 0 && !charges_is_shut(charges, slot, now_ms); left--)
        charge = charges_add(charges, slot, BUDGET_UNUSABLE, 1, now_ms);
    return charge;
}

void charges_false(struct charges *charges, uint32_t slot, uint64_t count, uint64_t now_ms)
{
    budget_spend(&charges->of[slot].budget, BUDGET_FALSE, (uint32_t)count, now_ms);
}

void charges_earn_chunk(struct charges *charges, uint32_t slot, uint32_t cost)
{
    budget_earn(&charges->of[slot].budget, BUDGET_CHUNKS, 2 * cost); /* this one, and one that comes in vain */
}

/* ---- looking in ---- */

bool charges_is_shut(const struct charges *charges, uint32_t slot, uint64_t now_ms)
{
    return now_ms < charges->of[slot].budget.open_ms;
}

const char *charges_text(const struct charges *charges, uint32_t slot, uint64_t now_ms)
{
    return budget_text(&charges->of[slot].budget, now_ms);
}

bool charges_dropped_lately(const struct charges *charges, uint32_t slot, uint64_t now_ms)
{
    uint64_t dropped_ms = charges->of[slot].dropped_ms;
    return dropped_ms != 0 && now_ms < dropped_ms + DROPPED_MS;
}
