/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/holdings.h"

#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

enum { ANSWERS_MAX = EPOCH_VOTERS_MAX + EPOCH_ASKED_MAX };

struct answer {
    uint32_t id;
    struct epoch_message said; /* owns its memory */
};

struct holdings {
    uint32_t fragments_count;
    struct holding *rows;        /* our own */
    struct part_result *results; /* of all of them */
    struct answer answers[ANSWERS_MAX];
    uint32_t answers_count;
    struct compose_answer answered[ANSWERS_MAX];
};

enum err holdings_new(struct holdings **out)
{
    return mem_new(1, sizeof **out, "what members hold", out);
}

static void drop(struct answer *answer)
{
    wire_epoch_deinit(&answer->said);
    *answer = (struct answer){0};
}

void holdings_clear(struct holdings *holdings)
{
    for (uint32_t i = 0; i < holdings->answers_count; i++)
        drop(&holdings->answers[i]);
    holdings->answers_count = 0;
}

void holdings_free(struct holdings *holdings)
{
    if (holdings == NULL)
        return;
    holdings_clear(holdings);
    mem_free(holdings->rows);
    mem_free(holdings->results);
    mem_free(holdings);
}

enum err holdings_reserve(struct holdings *holdings, uint32_t fragments_count)
{
    TRY(mem_new(fragments_count, sizeof *holdings->rows, "what we hold", &holdings->rows));
    /* Of the next version, and of one that a draft rests on. */
    TRY(mem_new((size_t)fragments_count * 2 * CHAIN_PARTS_MAX, sizeof *holdings->results, "what we hold",
                &holdings->results));
    holdings->fragments_count = fragments_count;
    return ERR_OK;
}

/* ---- our own ---- */

static int by_owner(const void *left, const void *right)
{
    return result_id_order(&((const struct part_result *)left)->id, &((const struct part_result *)right)->id);
}

static bool held(const struct sync *sync, uint32_t f, uint32_t p, bool beyond, struct digest *digest)
{
    bool acknowledged;
    return beyond ? sync_reach_held(sync, f, p, digest) : sync_held(sync, f, p, digest, &acknowledged);
}

/* Of the version after ours, or, `beyond`, after how far the bytes lead. */
static uint32_t held_of(const struct sync *sync, uint32_t f, bool beyond, struct part_result *results)
{
    const struct chain_part *parts;
    uint32_t parts_count = beyond ? sync_reach_parts(sync, f, &parts) : sync_parts(sync, f, &parts), count = 0;
    for (uint32_t p = 0; p < parts_count; p++) {
        struct part_result result = {.id = parts[p].id, .shards = parts[p].shards};
        if (held(sync, f, p, beyond, &result.id.digest))
            results[count++] = result;
    }
    qsort(results, count, sizeof *results, by_owner);
    return count;
}

/* What is kept for a draft beside what counts: as far as there is room, for what counts has to be said. */
static void add_reach(const struct holdings *holdings, const struct sync *sync, uint32_t rows_count,
                      struct part_result *results)
{
    for (uint32_t f = 0; f < rows_count; f++) {
        struct holding *row = &holdings->rows[f];
        if (sync_reach(sync, f) == row->version)
            continue;
        uint32_t count = held_of(sync, f, true, results);
        if ((size_t)(results - holdings->results) + count > WIRE_RESULTS_MAX)
            return;
        row->reach = sync_reach(sync, f);
        row->beyond = results;
        row->beyond_count = count;
        results += count;
    }
}

void holdings_own(struct holdings *holdings, const struct sync *sync, const struct holding **rows, uint32_t *rows_count)
{
    struct part_result *results = holdings->results;
    *rows = holdings->rows;
    *rows_count = sync != NULL && !sync_is_witness(sync) ? holdings->fragments_count : 0;
    for (uint32_t f = 0; f < *rows_count; f++) {
        struct wire_standing own = sync_own(sync, f);
        struct holding *row = &holdings->rows[f];
        *row = (struct holding){
            .fragment = f, .version = own.version, .hash = own.hash, .hash_known = own.hash_known, .held = results};
        row->held_count = held_of(sync, f, false, results);
        results += row->held_count;
    }
    add_reach(holdings, sync, *rows_count, results);
}

/* ---- what others answered ---- */

static bool has_it(const struct sync *sync, const struct holding *row)
{
    return row->hash_known && (sync == NULL || sync_base_agrees(sync, row->fragment, row->version + 1, &row->hash));
}

/* One who does not vote joins only with all of it; a voter's seal is one whatever it holds. */
static bool of_use(const struct holdings *holdings, const struct sync *sync, const struct epoch_message *said)
{
    for (uint32_t i = 0; i < said->rows_count; i++)
        if (said->rows[i].fragment >= holdings->fragments_count || (!said->sealed && !has_it(sync, &said->rows[i])))
            return false;
    return said->sealed || said->rows_count == holdings->fragments_count;
}

void holdings_answer(struct holdings *holdings, const struct sync *sync, uint32_t id, struct epoch_message *answer)
{
    uint32_t i = 0;
    while (i < holdings->answers_count && holdings->answers[i].id != id)
        i++;
    if (i == ANSWERS_MAX || !of_use(holdings, sync, answer))
        return;
    drop(&holdings->answers[i]);
    holdings->answers[i] = (struct answer){.id = id, .said = *answer};
    memset(answer->memory, 0, sizeof answer->memory);
    if (i == holdings->answers_count)
        holdings->answers_count++;
}

void holdings_drop(struct holdings *holdings, uint32_t id)
{
    for (uint32_t i = 0; i < holdings->answers_count; i++) {
        if (holdings->answers[i].id != id)
            continue;
        drop(&holdings->answers[i]);
        holdings->answers[i] = holdings->answers[--holdings->answers_count];
        holdings->answers[holdings->answers_count] = (struct answer){0};
        return;
    }
}

const struct compose_answer *holdings_answered(struct holdings *holdings, const struct epoch *epoch, uint32_t *count)
{
    *count = 0;
    for (uint32_t i = 0; i < holdings->answers_count; i++) {
        const struct answer *answer = &holdings->answers[i];
        if (answer->said.ballot == epoch_ballot(epoch))
            holdings->answered[(*count)++] =
                (struct compose_answer){.id = answer->id,
                                        .incarnation = answer->said.incarnation,
                                        .sealed = answer->said.sealed && epoch_promised(epoch, answer->id),
                                        .rows = answer->said.rows,
                                        .rows_count = answer->said.rows_count};
    }
    return holdings->answered;
}

/* Of one fragment of one answer. */
static bool row_here(struct sync *sync, const struct holding *row)
{
    bool here = true;
    uint64_t version = sync_own(sync, row->fragment).version;
    if (row->version > version)
        sync_take_over(sync, row->fragment, row->version);
    if (row->version != version)
        return row->version < version;
    for (uint32_t k = 0; k < row->held_count; k++) {
        const struct part_result *held = &row->held[k];
        if (sync_has(sync, row->fragment, held->id.epoch, held->id.owner, &held->id.digest))
            continue;
        sync_want(sync, row->fragment, version + 1, held->id.epoch, held->id.owner);
        here = false;
    }
    return here;
}

static bool has_answered(const struct holdings *holdings, const struct epoch *epoch, uint32_t id)
{
    for (uint32_t i = 0; i < holdings->answers_count; i++)
        if (holdings->answers[i].id == id && holdings->answers[i].said.ballot == epoch_ballot(epoch))
            return true;
    return false;
}

/* Who promised and went away may hold what nobody else does: it is waited for. */
static bool all_answered(const struct holdings *holdings, const struct epoch *epoch, const struct record *record,
                         uint32_t self)
{
    for (uint32_t i = 0; i < record->members_count; i++) {
        const struct record_member *member = &record->members[i];
        if (member->voter && member->role != RECORD_WITNESS && member->id != self &&
            !has_answered(holdings, epoch, member->id))
            return false;
    }
    return true;
}

bool holdings_here(const struct holdings *holdings, const struct epoch *epoch, const struct record *record,
                   uint32_t self, struct sync *sync)
{
    bool here = sync != NULL;
    if (here && sync_is_witness(sync)) /* it has nothing to take over but what was voted */
        return true;
    here = here && all_answered(holdings, epoch, record, self);
    for (uint32_t i = 0; sync != NULL && i < holdings->answers_count; i++) {
        const struct epoch_message *said = &holdings->answers[i].said;
        for (uint32_t k = 0; said->ballot == epoch_ballot(epoch) && k < said->rows_count; k++)
            here &= row_here(sync, &said->rows[k]);
    }
    return here;
}
