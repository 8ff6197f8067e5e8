/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/human.h"

struct rule {
    const char *name;
    uint32_t every_us, at_once;
    uint32_t drops; /* what one that is dropped counts as */
};

/* docs/PROTOCOL.md, "What a member may cost", says what honest members were seen to need. */
static const struct rule rules[BUDGET_KINDS] = {
    [BUDGET_GREETINGS] = {"greetings", 100000, 100, 5},
    [BUDGET_SESSIONS] = {"greetings of new sessions", 5000000, 30, 50},
    [BUDGET_HEARTBEATS] = {"heartbeats", 1000, 4000, 1},
    [BUDGET_ANSWERS] = {"answers that nobody asked for", 2000, 4000, 1},
    [BUDGET_FETCHES] = {"questions for objects", 2000, 4000, 1},
    [BUDGET_EPOCH] = {"messages about the next epoch", 5000, 1000, 1},
    [BUDGET_EPOCH_KIB] = {"bytes about the next epoch", 250, 128 << 10, 5},
    [BUDGET_QUESTIONS] = {"questions for configurations", 25000, 400, 1},
    [BUDGET_ORDERS] = {"orders and evidence", 30000, 100, 1},
    [BUDGET_DIALS] = {"questions about newcomers' addresses", 2000000, 20, 5},
    [BUDGET_CHUNKS] = {"bytes of objects that nobody wants", 122, 512 << 10, 1},
    [BUDGET_FALSE] = {"signatures that are none", 1000000, 200, 25},
    [BUDGET_UNUSABLE] = {"messages that nobody can use", 100000, 200, 5},
};

/* DROPS: a link is closed when so much was dropped at once, and then more than one in so long. */
enum { DROPS_EVERY_US = 10000, DROPS_AT_ONCE = 1000 };
/* CLOSED: at first, and twice as long each time; AGAIN: from when it ended, so long it is remembered. */
enum { CLOSED_MS = 30000, CLOSED_DOUBLINGS = 7, AGAIN_MS = 3600000, TOLD_MS = 60000 };

static uint64_t credit_us(const struct budget_credit *credit, uint64_t now_us)
{
    return credit->until_us > now_us ? credit->until_us - now_us : 0;
}

void budget_credit(struct budget_credit *credit, uint64_t slept_ms, uint64_t now_ms)
{
    credit->until_us = 1000 * now_ms + credit_us(credit, 1000 * now_ms) + 1000 * slept_ms;
}

static uint64_t from_of(uint64_t used_up_us, uint64_t now_us)
{
    return used_up_us > now_us ? used_up_us : now_us;
}

void budget_spend(struct budget *budget, enum budget_kind kind, uint32_t count, uint64_t now_ms)
{
    uint64_t *used_up_us = &budget->used_up_us[kind], now_us = 1000 * now_ms;
    *used_up_us = from_of(*used_up_us, now_us) + (uint64_t)count * rules[kind].every_us;
    uint64_t used = (*used_up_us - now_us) / rules[kind].every_us;
    budget->most[kind] = used > budget->most[kind] ? used : budget->most[kind];
}

static void drop(struct budget *budget, enum budget_kind kind, uint64_t now_us)
{
    budget->dropped[kind]++;
    budget->drops_us = from_of(budget->drops_us, now_us) + (uint64_t)rules[kind].drops * DROPS_EVERY_US;
}

bool budget_take(struct budget *budget, const struct budget_credit *credit, enum budget_kind kind, uint32_t count,
                 uint64_t now_ms)
{
    uint64_t now_us = 1000 * now_ms, owed = budget->earned[kind] < count ? budget->earned[kind] : count;
    uint64_t most_us = now_us + credit_us(credit, now_us) + (uint64_t)rules[kind].at_once * rules[kind].every_us;
    uint64_t charged_us = (count - owed) * rules[kind].every_us;
    if (from_of(budget->used_up_us[kind], now_us) + charged_us > most_us) {
        drop(budget, kind, now_us);
        return false;
    }
    budget->earned[kind] -= owed;
    budget_spend(budget, kind, (uint32_t)(count - owed), now_ms);
    return true;
}

void budget_earn(struct budget *budget, enum budget_kind kind, uint64_t count)
{
    budget->earned[kind] += count;
    if (budget->earned[kind] > rules[kind].at_once)
        budget->earned[kind] = rules[kind].at_once;
}

bool budget_is_exceeded(const struct budget *budget, const struct budget_credit *credit, uint64_t now_ms)
{
    uint64_t now_us = 1000 * now_ms;
    return budget->drops_us > now_us + credit_us(credit, now_us) + (uint64_t)DROPS_AT_ONCE * DROPS_EVERY_US;
}

static enum budget_kind worst(const struct budget *budget)
{
    enum budget_kind kind = BUDGET_GREETINGS;
    for (unsigned k = 0; k < BUDGET_KINDS; k++)
        if (budget->dropped[k] * rules[k].drops > budget->dropped[kind] * rules[kind].drops)
            kind = (enum budget_kind)k;
    return kind;
}

uint64_t budget_close(struct budget *budget, uint64_t now_ms)
{
    char time[HUMAN_BYTES];
    enum budget_kind kind = worst(budget);
    if (budget->closed_ms != 0 && now_ms >= budget->open_ms + AGAIN_MS)
        budget->closings = 0;
    uint64_t for_ms = (uint64_t)CLOSED_MS
                      << (budget->closings < CLOSED_DOUBLINGS ? budget->closings : CLOSED_DOUBLINGS);
    human_duration((double)for_ms / 1000, time);
    snprintf(budget->text, sizeof budget->text,
             "it sends more %s than anybody needs, %" PRIu64 " too many of late: its link is closed for %s",
             rules[kind].name, budget->dropped[kind], time);
    budget->closings++;
    budget->closed_ms = now_ms;
    budget->open_ms = now_ms + for_ms;
    memset(budget->used_up_us, 0, sizeof budget->used_up_us);
    memset(budget->earned, 0, sizeof budget->earned);
    memset(budget->dropped, 0, sizeof budget->dropped);
    budget->drops_us = 0;
    return for_ms;
}

const char *budget_text(const struct budget *budget, uint64_t now_ms)
{
    return budget->closed_ms != 0 && now_ms < budget->open_ms + TOLD_MS ? budget->text : "";
}

const char *budget_name(enum budget_kind kind)
{
    return rules[kind].name;
}

uint64_t budget_percent(const struct budget *budget, enum budget_kind kind)
{
    return 100 * budget->most[kind] / rules[kind].at_once;
}
