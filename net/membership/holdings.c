/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/holdings.h"

#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

enum { ANSWERS_MAX = EPOCH_VOTERS_MAX + EPOCH_ASKED_MAX };

struct answer {
    uint32_t id;
    struct wire_epoch said;             /* owns its memory */
    struct compose_fragment *fragments; /* [fragments_count] */
    struct part_result *results;        /* of all of them */
};

struct holdings {
    uint32_t fragments_count;
    struct wire_row *rows;       /* our own */
    struct part_result *results; /* of all of them */
    struct answer answers[ANSWERS_MAX];
    uint32_t answers_count;
    struct compose_holding answered[ANSWERS_MAX];
};

enum err holdings_new(struct holdings **out)
{
    return mem_new(1, sizeof **out, "what members hold", out);
}

static void drop(struct answer *answer)
{
    wire_epoch_deinit(&answer->said);
    mem_free(answer->fragments);
    mem_free(answer->results);
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
    const struct part_result *a = left, *b = right;
    if (a->id.owner != b->id.owner)
        return a->id.owner < b->id.owner ? -1 : 1;
    return a->id.epoch < b->id.epoch ? -1 : a->id.epoch > b->id.epoch;
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
        struct part_result *result = &results[count];
        if (!held(sync, f, p, beyond, &result->id.digest))
            continue;
        result->id.owner = parts[p].id.owner;
        result->id.epoch = parts[p].id.epoch;
        result->shards = parts[p].shards;
        count++;
    }
    qsort(results, count, sizeof *results, by_owner);
    return count;
}

/* What is kept for a draft beside what counts: as far as there is room, for what counts has to be said. */
static void add_reach(const struct holdings *holdings, const struct sync *sync, uint32_t rows_count,
                      struct part_result *results)
{
    for (uint32_t f = 0; f < rows_count; f++) {
        struct wire_row *row = &holdings->rows[f];
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

void holdings_own(struct holdings *holdings, const struct sync *sync, const struct wire_row **rows,
                  uint32_t *rows_count)
{
    struct part_result *results = holdings->results;
    *rows = holdings->rows;
    *rows_count = sync != NULL && !sync_is_witness(sync) ? holdings->fragments_count : 0;
    for (uint32_t f = 0; f < *rows_count; f++) {
        struct sync_peer_fragment own = sync_own(sync, f);
        struct wire_row *row = &holdings->rows[f];
        *row = (struct wire_row){
            .fragment = f, .version = own.version, .hash = own.hash, .hash_known = own.hash_known, .held = results};
        row->held_count = held_of(sync, f, false, results);
        results += row->held_count;
    }
    add_reach(holdings, sync, *rows_count, results);
}

/* ---- what others answered ---- */

static bool has_it(const struct sync *sync, const struct wire_row *row)
{
    return row->hash_known && (sync == NULL || sync_base_agrees(sync, row->fragment, row->version + 1, &row->hash));
}

/* One who does not vote joins only with all of it; a voter's seal is one whatever it holds. */
static bool of_use(const struct holdings *holdings, const struct sync *sync, const struct wire_epoch *said)
{
    for (uint32_t i = 0; i < said->promise.rows_count; i++)
        if (said->promise.rows[i].fragment >= holdings->fragments_count ||
            (!said->promise.sealed && !has_it(sync, &said->promise.rows[i])))
            return false;
    return said->promise.sealed || said->promise.rows_count == holdings->fragments_count;
}

static void take_results(const struct part_result *from, uint32_t count, struct part_result *to)
{
    for (uint32_t k = 0; k < count; k++)
        to[k] = (struct part_result){.id.owner = from[k].id.owner,
                                     .id.epoch = from[k].id.epoch,
                                     .shards = from[k].shards,
                                     .id.digest = from[k].id.digest};
}

static enum err spread(const struct holdings *holdings, struct answer *answer)
{
    size_t results_count = 0, at = 0;
    const struct wire_epoch *said = &answer->said;
    for (uint32_t i = 0; i < said->promise.rows_count; i++)
        results_count += said->promise.rows[i].held_count + said->promise.rows[i].beyond_count;
    TRY(mem_new(holdings->fragments_count, sizeof *answer->fragments, "what a member holds", &answer->fragments));
    TRY(mem_new(results_count, sizeof *answer->results, "what a member holds", &answer->results));
    for (uint32_t i = 0; i < said->promise.rows_count; i++) {
        const struct wire_row *row = &said->promise.rows[i];
        struct part_result *results = answer->results + at, *beyond = results + row->held_count;
        answer->fragments[row->fragment] = (struct compose_fragment){.version = row->version,
                                                                     .results = results,
                                                                     .results_count = row->held_count,
                                                                     .reach = row->reach,
                                                                     .beyond = beyond,
                                                                     .beyond_count = row->beyond_count};
        take_results(row->held, row->held_count, results);
        take_results(row->beyond, row->beyond_count, beyond);
        at += row->held_count + row->beyond_count;
    }
    return ERR_OK;
}

void holdings_answer(struct holdings *holdings, const struct sync *sync, uint32_t id, struct wire_epoch *answer)
{
    uint32_t i = 0;
    while (i < holdings->answers_count && holdings->answers[i].id != id)
        i++;
    if (i == ANSWERS_MAX || !of_use(holdings, sync, answer))
        return;
    /* It is the caller's until it is kept, since what it goes on to read lies in the same memory. */
    struct answer kept = {.id = id, .said = *answer};
    if (spread(holdings, &kept) != ERR_OK) {
        mem_free(kept.fragments);
        mem_free(kept.results);
        return;
    }
    memset(answer->memory, 0, sizeof answer->memory);
    drop(&holdings->answers[i]);
    holdings->answers[i] = kept;
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

const struct compose_holding *holdings_answered(struct holdings *holdings, const struct epoch *epoch, uint32_t *count)
{
    *count = 0;
    for (uint32_t i = 0; i < holdings->answers_count; i++) {
        const struct answer *answer = &holdings->answers[i];
        if (answer->said.ballot == epoch_ballot(epoch))
            holdings->answered[(*count)++] =
                (struct compose_holding){.id = answer->id,
                                         .incarnation = answer->said.promise.incarnation,
                                         .sealed = answer->said.promise.sealed && epoch_promised(epoch, answer->id),
                                         .fragments = answer->fragments};
    }
    return holdings->answered;
}

/* Of one fragment of one answer. */
static bool row_here(struct sync *sync, const struct wire_row *row)
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
        const struct wire_epoch *said = &holdings->answers[i].said;
        for (uint32_t k = 0; said->ballot == epoch_ballot(epoch) && k < said->promise.rows_count; k++)
            here &= row_here(sync, &said->promise.rows[k]);
    }
    return here;
}
