/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/owners.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Who was lost so often lately owns nothing, as long as so many others do. */
enum { UNSTEADY = 3, STEADY_MIN = 3 };

enum shyness owners_shyness(const struct config_member *member, uint32_t islands)
{
    uint8_t choice = member->owner_choice;
    if (member->contributor)
        return SHY_NEVER;
    if ((choice == CONFIG_OWNER_DIALS || choice == CONFIG_OWNER_NO_DIALS) && islands > 2)
        return SHY_UNREACHED;
    return choice == CONFIG_OWNER_NO || choice == CONFIG_OWNER_NO_DIALS ? SHY_RATHER_NOT : SHY_WILLING;
}

uint32_t owners_islands(const struct config *config)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->members_count; i++)
        count += config->members[i].role != CONFIG_WITNESS;
    return count;
}

bool owners_sooner(const struct config_member *a, const struct config_member *b)
{
    bool yes_a = a->owner_choice == CONFIG_OWNER_YES, yes_b = b->owner_choice == CONFIG_OWNER_YES;
    if (yes_a != yes_b)
        return yes_a;
    return a->uplink != b->uplink ? a->uplink > b->uplink : a->id < b->id;
}

bool owners_unsteady(const struct config_member *member)
{
    return member->losses >= UNSTEADY;
}

bool owners_enough(uint32_t steady)
{
    return steady >= STEADY_MIN;
}

/* ---- the map ---- */

static int compare_sooner(const void *a, const void *b)
{
    const struct config_member *const *one = a, *const *other = b;
    return owners_sooner(*one, *other) ? -1 : 1;
}

static int compare_ids(const void *a, const void *b)
{
    const struct config_member *const *one = a, *const *other = b;
    return (*one)->id < (*other)->id ? -1 : 1;
}

/* How shy those are that own: the least shy of all. SHY_NEVER: nobody is there but who owns against an order, since it
 * is needed for its vote. */
static enum shyness level_of(const struct config *config, uint32_t islands)
{
    enum shyness level = SHY_NEVER;
    for (uint32_t i = 0; i < config->members_count; i++) {
        enum shyness shy = owners_shyness(&config->members[i], islands);
        if (config->members[i].role == CONFIG_OWNER && shy < level)
            level = shy;
    }
    return level;
}

static bool may_be_spared(const struct config *config, uint32_t islands)
{
    uint32_t steady = 0;
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i];
        steady +=
            member->role == CONFIG_OWNER && owners_shyness(member, islands) == SHY_WILLING && !owners_unsteady(member);
    }
    return owners_enough(steady);
}

static int compare_weights(const void *a, const void *b)
{
    const uint64_t *one = a, *other = b;
    return *one < *other ? -1 : *one > *other;
}

static uint64_t times(uint64_t weight, uint32_t factor)
{
    return weight < UINT64_MAX / factor ? weight * factor : UINT64_MAX;
}

/* Nobody's uplink counts for more than it can be believed. */
static void bound_weights(struct shardmap_owner *owners, uint32_t count)
{
    uint64_t weights[CONFIG_OWNERS_MAX] = {0};
    for (uint32_t i = 0; i < count; i++)
        weights[i] = owners[i].weight;
    qsort(weights, count, sizeof *weights, compare_weights);
    if (count < 2)
        return;
    uint64_t next = times(weights[count - 2], OWNERS_NEXT); /* of the largest; the others are below it anyway */
    uint64_t median = times(weights[(count - 1) / 2], OWNERS_MEDIANS);
    uint64_t most = next < median ? next : median;
    for (uint32_t i = 0; i < count; i++)
        owners[i].weight = owners[i].weight < most ? owners[i].weight : most;
}

void owners_share_out(struct config *config)
{
    const struct config_member *order[CONFIG_MEMBERS_MAX];
    struct shardmap_owner owners[CONFIG_OWNERS_MAX];
    uint32_t islands = owners_islands(config), many = 0, count = 0;
    enum shyness level = level_of(config, islands);
    bool spare = may_be_spared(config, islands);
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i];
        if (member->role == CONFIG_OWNER && owners_shyness(member, islands) <= level &&
            !(spare && owners_unsteady(member)))
            order[many++] = member;
    }
    if (many > CONFIG_OWNERS_MAX) {
        qsort(order, many, sizeof(struct config_member *), compare_sooner);
        many = CONFIG_OWNERS_MAX;
        qsort(order, many, sizeof(struct config_member *), compare_ids);
    }
    for (; count < many; count++)
        owners[count] = (struct shardmap_owner){.id = order[count]->id, .weight = order[count]->uplink};
    bound_weights(owners, count);
    if (count > 0)
        shardmap_assign(&config->map, owners, count);
    else
        config->map = shardmap_empty();
}

enum err owners_follow(const struct config *previous, const struct config *next)
{
    struct config expected = *next; /* its arrays are only read */
    expected.map = previous->map;
    owners_share_out(&expected);
    if (memcmp(&expected.map, &next->map, sizeof next->map) == 0)
        return ERR_OK;
    return err_set(ERR_PROTO, "configuration %" PRIu64 " shares the slots out otherwise than by its owners' uplinks",
                   next->epoch);
}
