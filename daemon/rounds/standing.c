/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/standing.h"

#include <inttypes.h>

#include "common/mem.h"
#include "outer_opt/fbits.h"
#include "outer_opt/outlier.h"

enum { OUTLIER_SAID_MS = 10000 };

void standing_deinit(struct standing *standing)
{
    mem_free(standing->members);
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

void standing_note(struct standing *standing, const struct view *view, const struct wire_meta *meta, uint32_t f,
                   uint64_t version, uint64_t now_ms, bool tell)
{
    for (uint32_t i = 0; meta->contributors_count >= OUTLIER_INPUTS_MIN && i < meta->contributors_count; i++) {
        struct wire_contributor contributor = wire_meta_contributor(meta, i);
        uint32_t slot = view_slot(view, contributor.id);
        if (slot == VIEW_NOBODY || slot >= standing->count)
            continue;
        struct standing_member *member = &standing->members[slot];
        bool outlier = contributor.factor != WIRE_FACTOR_ONE;
        member->lately = (uint8_t)(member->lately << 1 | outlier);
        member->outliers += outlier;
        member->judged++;
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
        member->outliers += more->outliers;
        member->judged += more->judged;
    }
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
