/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/standing.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/mem.h"
#include "outer_opt/fbits.h"
#include "outer_opt/outlier.h"
#include "outer_opt/weights.h"

enum { OUTLIER_SAID_MS = 10000, CLAIMS_SAID_MS = 60000 };
/* Versions of a fragment, of which the newest ones say what a member sends. */
enum { LATELY = 2 * DIRECTION_ROUNDS };

enum err standing_init(struct standing *standing, const struct plan *plan)
{
    *standing = (struct standing){.plan = plan};
    TRY(mem_new(plan->fragments_count, sizeof *standing->counted, "rounds", &standing->counted));
    return mem_new(plan->fragments_count, sizeof *standing->turned, "rounds", &standing->turned);
}

void standing_deinit(struct standing *standing)
{
    mem_free(standing->members);
    mem_free(standing->counted);
    mem_free(standing->turned);
    *standing = (struct standing){0};
}

enum err standing_members(struct standing *standing, uint32_t count)
{
    if (count <= standing->count)
        return ERR_OK;
    TRY(mem_grow(&standing->members, standing->count, count, sizeof *standing->members, "rounds"));
    standing->count = count;
    return ERR_OK;
}

void standing_forget(struct standing *standing, uint32_t member)
{
    if (member < standing->count)
        standing->members[member] = (struct standing_member){0};
    for (uint32_t f = 0; standing->plan != NULL && f < standing->plan->fragments_count; f++) {
        bitset_remove(&standing->counted[f], member);
        bitset_remove(&standing->turned[f], member);
    }
    bitset_remove(&standing->away, member);
}

static void tell_outlier(struct standing_member *member, const char *name, const struct wire_contributor *contributor,
                         uint32_t f, uint64_t version, uint64_t now_ms)
{
    if (!log_limit_pass(&member->said, now_ms, OUTLIER_SAID_MS))
        return;
    log_warn("fragment %" PRIu32 ", version %" PRIu64
             ": the contribution of island %s, of norm %.3g, is far larger than the others'; %s (the %" PRIu64
             ". time). Look at its loss and learning rate",
             f, version, name, (double)bits_float(contributor->norm),
             contributor->factor > 0 ? "scaled down" : "left out", member->outliers);
}

static int by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The upper median of what all say. */
static uint64_t usual_tokens(const struct wire_meta *meta)
{
    uint64_t tokens[WIRE_CONTRIBUTORS_MAX];
    for (uint32_t i = 0; i < meta->contributors_count; i++)
        tokens[i] = wire_meta_contributor(meta, i).tokens;
    qsort(tokens, meta->contributors_count, sizeof *tokens, by_size);
    return tokens[meta->contributors_count / 2];
}

static void tell_claims(struct standing *standing, uint32_t slot, const char *name,
                        const struct wire_contributor *contributor, uint64_t usual, uint64_t now_ms)
{
    if (!standing_claims_much(standing, slot) ||
        !log_limit_pass(&standing->members[slot].said_claims, now_ms, CLAIMS_SAID_MS))
        return;
    log_warn(
        "island %s says that it trained %" PRIu64 " tokens for a round, most others %" PRIu64
        "; they count within bounds (weight_max). If it has, begin the next run with a larger one; if not, look at "
        "its trainer",
        name, contributor->tokens, usual);
}

void standing_note(struct standing *standing, const struct view *view, const struct wire_meta *meta, uint32_t f,
                   uint64_t version, uint64_t now_ms, bool tell)
{
    if (meta->contributors_count < OUTLIER_INPUTS_MIN)
        return;
    uint64_t usual = usual_tokens(meta);
    for (uint32_t i = 0; i < meta->contributors_count; i++) {
        struct wire_contributor contributor = wire_meta_contributor(meta, i);
        uint32_t slot = view_slot(view, contributor.id);
        if (slot == VIEW_NOBODY || slot >= standing->count)
            continue;
        struct standing_member *member = &standing->members[slot];
        bool outlier = contributor.factor != WIRE_FACTOR_ONE;
        member->lately = (uint8_t)(member->lately << 1 | outlier);
        member->claims = (uint8_t)(member->claims << 1 |
                                   weights_far_beyond(contributor.tokens, bits_float(contributor.weight), usual));
        member->outliers += outlier;
        member->judged++;
        if (tell && (member->claims & 1) != 0)
            tell_claims(standing, slot, view->members[slot].as.name, &contributor, usual, now_ms);
        if (outlier && tell)
            tell_outlier(member, view->members[slot].as.name, &contributor, f, version, now_ms);
    }
}

void standing_add(struct standing *to, const struct standing *from)
{
    enum { KEPT = 8 * sizeof to->members->lately };
    for (uint32_t i = 0; i < to->count && i < from->count; i++) {
        struct standing_member *member = &to->members[i];
        const struct standing_member *more = &from->members[i];
        member->lately = more->judged < KEPT ? (uint8_t)(member->lately << more->judged | more->lately) : more->lately;
        member->claims = more->judged < KEPT ? (uint8_t)(member->claims << more->judged | more->claims) : more->claims;
        member->outliers += more->outliers;
        member->judged += more->judged;
    }
}

/* ---- whose contributions point elsewhere ---- */

static void tell_turned(struct standing_member *member, const char *name, bool away, uint64_t now_ms)
{
    if (!log_limit_pass(&member->said_turned, now_ms, OUTLIER_SAID_MS))
        return;
    if (away)
        log_warn("the contributions of island %s have pointed away from the others' in %d rounds running; they weigh "
                 "nothing until they have not in as many. Look at its loss, its data and its learning rate; "
                 "`dilococtl revoke %s` ends its part in the run",
                 name, DIRECTION_ROUNDS, name);
    else
        log_info("the contributions of island %s do not point away from the others' any more; they weigh again", name);
}

static uint64_t values_of(const struct standing *standing, uint32_t f, uint64_t shards)
{
    uint64_t values = 0;
    for (; shards != 0; shards &= shards - 1) {
        struct plan_shard shard = plan_shard(standing->plan, f, (uint32_t)__builtin_ctzll(shards));
        values += shard.end - shard.begin;
    }
    return values;
}

/* Who is counted in a fragment lately, or turned away there, and who is so in most of these values. What somebody sent
 * before it began to send less is no excuse for what it sends now; nor does it weigh again by sending nothing. */
static void look_at(struct standing *standing, const struct view *view, uint32_t f, const struct dedup *counted)
{
    uint64_t newest = 0;
    standing->counted[f] = standing->turned[f] = (struct bitset){{0}};
    for (size_t i = 0; i < counted->count; i++)
        newest = counted->rows[i].version > newest ? counted->rows[i].version : newest;
    for (size_t i = 0, end; i < counted->count; i = end) {
        uint32_t slot = view_slot(view, counted->rows[i].id);
        uint64_t turned = 0, lately = 0;
        for (end = i; end < counted->count && counted->rows[end].id == counted->rows[i].id; end++) {
            bool old = counted->rows[end].version + LATELY <= newest;
            turned |= dedup_turned(counted, end);
            lately |= old ? dedup_turned(counted, end) : counted->rows[end].shards;
        }
        if (slot == VIEW_NOBODY || slot >= standing->count || lately == 0)
            continue;
        uint64_t values = values_of(standing, f, turned), all = values_of(standing, f, lately);
        bitset_add(&standing->counted[f], slot);
        if (values > all - values)
            bitset_add(&standing->turned[f], slot);
    }
}

bool standing_turned_away(const struct standing *standing, uint32_t member)
{
    uint64_t turned = 0, all = 0;
    for (uint32_t f = 0; standing->plan != NULL && member < standing->count && f < standing->plan->fragments_count;
         f++) {
        uint64_t values = standing->plan->fragments[f].values_count;
        all += bitset_has(&standing->counted[f], member) ? values : 0;
        turned += bitset_has(&standing->turned[f], member) ? values : 0;
    }
    return turned > all - turned;
}

/* Who weighs nothing when all contribute that have ever been counted. */
static struct bitset who_weighs_nothing(const struct standing *standing, const struct view *view,
                                        const struct dedup *counted)
{
    struct direction_input makers[BITSET_MAX] = {{0}};
    uint32_t slots[BITSET_MAX], count = 0;
    bool weightless[BITSET_MAX];
    struct bitset away = {{0}};
    for (size_t i = 0; i < counted->count && count < BITSET_MAX; i++) {
        uint32_t slot = view_slot(view, counted->rows[i].id);
        bool again = i > 0 && counted->rows[i - 1].id == counted->rows[i].id;
        if (again || slot == VIEW_NOBODY || slot >= standing->count)
            continue;
        slots[count] = slot;
        makers[count++] = (struct direction_input){.owner = view->members[slot].as.role == CONFIG_OWNER,
                                                   .turned = standing_turned_away(standing, slot)};
    }
    direction_weightless(makers, count, weightless);
    for (uint32_t k = 0; k < count; k++)
        if (weightless[k])
            bitset_add(&away, slots[k]);
    return away;
}

void standing_turned(struct standing *standing, const struct view *view, uint32_t f, const struct dedup *counted,
                     uint64_t now_ms, bool tell)
{
    look_at(standing, view, f, counted);
    struct bitset now = who_weighs_nothing(standing, view, counted);
    for (uint32_t slot = 0; tell && slot < standing->count; slot++)
        if (bitset_has(&now, slot) != bitset_has(&standing->away, slot))
            tell_turned(&standing->members[slot], view->members[slot].as.name, bitset_has(&now, slot), now_ms);
    standing->away = now;
}

bool standing_claims_much(const struct standing *standing, uint32_t member)
{
    return member < standing->count && __builtin_popcount(standing->members[member].claims) >= STANDING_CLAIMS;
}

uint64_t standing_outliers(const struct standing *standing, uint32_t member, unsigned *lately)
{
    *lately = 0;
    if (member >= standing->count)
        return 0;
    for (unsigned bits = standing->members[member].lately; bits != 0; bits >>= 1)
        *lately += bits & 1;
    return standing->members[member].outliers;
}
