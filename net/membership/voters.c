/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/voters.h"

#include <stddef.h>

static bool was_up(const struct voters *before, uint32_t id)
{
    for (uint32_t i = 0; i < before->count; i++)
        if (before->all[i].id == id)
            return before->all[i].up;
    return false;
}

void voters_set(struct voters *voters, const uint32_t *ids, uint32_t count)
{
    const struct voters before = *voters;
    *voters = (struct voters){.count = count};
    for (uint32_t i = 0; i < count; i++)
        voters->all[i] = (struct voter){.id = ids[i], .up = was_up(&before, ids[i])};
}

struct voter *voters_find(struct voters *voters, uint32_t id)
{
    for (uint32_t i = 0; i < voters->count; i++)
        if (voters->all[i].id == id)
            return &voters->all[i];
    return NULL;
}

uint32_t voters_majority(const struct voters *voters)
{
    return voters->count / 2 + 1;
}

uint32_t voters_up_before(const struct voters *voters, uint32_t id)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < voters->count && voters->all[i].id != id; i++)
        before += voters->all[i].up;
    return before;
}

void voters_begin_ballot(struct voters *voters)
{
    for (uint32_t i = 0; i < voters->count; i++)
        voters->all[i].promised = voters->all[i].accepted = voters->all[i].rejected = false;
}

uint32_t voters_promised(const struct voters *voters)
{
    uint32_t promised = 0;
    for (uint32_t i = 0; i < voters->count; i++)
        promised += voters->all[i].promised;
    return promised;
}

bool voters_has_promised(const struct voters *voters, uint32_t id)
{
    bool promised = false;
    for (uint32_t i = 0; i < voters->count; i++)
        promised = promised || (voters->all[i].id == id && voters->all[i].promised);
    return promised;
}

uint32_t voters_left(const struct voters *voters)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < voters->count; i++)
        left += !voters->all[i].rejected;
    return left;
}

uint32_t voters_accepted(const struct voters *voters, struct record_vote votes[VOTERS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < voters->count; i++)
        if (voters->all[i].accepted)
            votes[count++] = voters->all[i].vote;
    return count;
}
