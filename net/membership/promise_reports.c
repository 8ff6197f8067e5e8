/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/promise_reports.h"

#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

enum { ANSWERS_MAX = PAXOS_VOTERS_MAX + PAXOS_ASKED_MAX };

struct answer {
    uint32_t id;
    struct paxos_message said; /* owns its memory */
};

struct promise_reports {
    uint32_t fragments_count;
    struct holding *rows;        /* our own */
    struct part_result *results; /* of all of them */
    struct answer answers[ANSWERS_MAX];
    uint32_t answers_count;
    struct next_config_answer answered[ANSWERS_MAX];
};

enum err promise_reports_new(struct promise_reports **out)
{
    return mem_new(1, sizeof **out, "what members hold", out);
}

static void drop(struct answer *answer)
{
    wire_paxos_deinit(&answer->said);
    *answer = (struct answer){0};
}

void promise_reports_clear(struct promise_reports *reports)
{
    for (uint32_t i = 0; i < reports->answers_count; i++)
        drop(&reports->answers[i]);
    reports->answers_count = 0;
}

void promise_reports_free(struct promise_reports *reports)
{
    if (reports == NULL)
        return;
    promise_reports_clear(reports);
    mem_free(reports->rows);
    mem_free(reports->results);
    mem_free(reports);
}

enum err promise_reports_reserve(struct promise_reports *reports, uint32_t fragments_count)
{
    TRY(mem_new(fragments_count, sizeof *reports->rows, "what we hold", &reports->rows));
    /* Of the next version, and of one that a draft rests on. */
    TRY(mem_new((size_t)fragments_count * 2 * VERSION_PARTS_MAX, sizeof *reports->results, "what we hold",
                &reports->results));
    reports->fragments_count = fragments_count;
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
    const struct version_part *parts;
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
static void add_reach(const struct promise_reports *reports, const struct sync *sync, uint32_t rows_count,
                      struct part_result *results)
{
    for (uint32_t f = 0; f < rows_count; f++) {
        struct holding *row = &reports->rows[f];
        if (sync_reach(sync, f) == row->version)
            continue;
        uint32_t count = held_of(sync, f, true, results);
        if ((size_t)(results - reports->results) + count > WIRE_RESULTS_MAX)
            return;
        row->reach = sync_reach(sync, f);
        row->beyond = results;
        row->beyond_count = count;
        results += count;
    }
}

void promise_reports_own(struct promise_reports *reports, const struct sync *sync, const struct holding **rows,
                         uint32_t *rows_count)
{
    struct part_result *results = reports->results;
    *rows = reports->rows;
    *rows_count = sync != NULL && !sync_is_witness(sync) ? reports->fragments_count : 0;
    for (uint32_t f = 0; f < *rows_count; f++) {
        struct wire_standing own = sync_own(sync, f);
        struct holding *row = &reports->rows[f];
        *row = (struct holding){
            .fragment = f, .version = own.version, .hash = own.hash, .hash_known = own.hash_known, .held = results};
        row->held_count = held_of(sync, f, false, results);
        results += row->held_count;
    }
    add_reach(reports, sync, *rows_count, results);
}

/* ---- what others answered ---- */

static bool has_it(const struct sync *sync, const struct holding *row)
{
    return row->hash_known && (sync == NULL || sync_base_agrees(sync, row->fragment, row->version + 1, &row->hash));
}

/* One who does not vote joins only with all of it; a voter's seal is one whatever it holds. */
static bool of_use(const struct promise_reports *reports, const struct sync *sync, const struct paxos_message *said)
{
    for (uint32_t i = 0; i < said->rows_count; i++)
        if (said->rows[i].fragment >= reports->fragments_count || (!said->sealed && !has_it(sync, &said->rows[i])))
            return false;
    return said->sealed || said->rows_count == reports->fragments_count;
}

void promise_reports_answer(struct promise_reports *reports, const struct sync *sync, uint32_t id,
                            struct paxos_message *answer)
{
    uint32_t i = 0;
    while (i < reports->answers_count && reports->answers[i].id != id)
        i++;
    if (i == ANSWERS_MAX || !of_use(reports, sync, answer))
        return;
    drop(&reports->answers[i]);
    reports->answers[i] = (struct answer){.id = id, .said = *answer};
    memset(answer->memory, 0, sizeof answer->memory);
    if (i == reports->answers_count)
        reports->answers_count++;
}

const struct paxos_message *promise_reports_of(const struct promise_reports *reports, uint32_t id)
{
    for (uint32_t i = 0; i < reports->answers_count; i++)
        if (reports->answers[i].id == id)
            return &reports->answers[i].said;
    return NULL;
}

void promise_reports_drop(struct promise_reports *reports, uint32_t id)
{
    for (uint32_t i = 0; i < reports->answers_count; i++) {
        if (reports->answers[i].id != id)
            continue;
        drop(&reports->answers[i]);
        reports->answers[i] = reports->answers[--reports->answers_count];
        reports->answers[reports->answers_count] = (struct answer){0};
        return;
    }
}

const struct next_config_answer *promise_reports_answered(struct promise_reports *reports, const struct paxos *paxos,
                                                          uint32_t *count)
{
    *count = 0;
    for (uint32_t i = 0; i < reports->answers_count; i++) {
        const struct answer *answer = &reports->answers[i];
        if (answer->said.ballot == paxos_ballot(paxos))
            reports->answered[(*count)++] =
                (struct next_config_answer){.id = answer->id,
                                            .incarnation = answer->said.incarnation,
                                            .step = answer->said.step,
                                            .sealed = answer->said.sealed && paxos_promised(paxos, answer->id),
                                            .rows = answer->said.rows,
                                            .rows_count = answer->said.rows_count,
                                            .endorsements = answer->said.endorsements,
                                            .endorsements_count = answer->said.endorsements_count};
    }
    return reports->answered;
}

/* Of one fragment of one answer. */
static bool row_here(struct sync *sync, const struct holding *row)
{
    bool here = true;
    uint64_t version = sync_own(sync, row->fragment).version;
    if (row->version > version)
        sync_take_over(sync, row->fragment, row->version);
    /* Without a state it is as if at version 0, and takes nothing in. */
    if (!sync_known(sync, row->fragment))
        return row->version == 0 && !row->hash_known && row->held_count == 0;
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

static bool has_answered(const struct promise_reports *reports, const struct paxos *paxos, uint32_t id)
{
    for (uint32_t i = 0; i < reports->answers_count; i++)
        if (reports->answers[i].id == id && reports->answers[i].said.ballot == paxos_ballot(paxos))
            return true;
    return false;
}

/* Who promised and went away may hold what nobody else does: it is waited for. */
static bool all_answered(const struct promise_reports *reports, const struct paxos *paxos, const struct config *config,
                         uint32_t self)
{
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i];
        if (member->voter && member->role != CONFIG_WITNESS && member->id != self &&
            !has_answered(reports, paxos, member->id))
            return false;
    }
    return true;
}

bool promise_reports_here(const struct promise_reports *reports, const struct paxos *paxos, const struct config *config,
                          uint32_t self, struct sync *sync)
{
    bool here = sync != NULL;
    if (here && sync_is_witness(sync)) /* it has nothing to take over but what was voted */
        return true;
    here = here && all_answered(reports, paxos, config, self);
    for (uint32_t i = 0; sync != NULL && i < reports->answers_count; i++) {
        const struct paxos_message *said = &reports->answers[i].said;
        for (uint32_t k = 0; said->ballot == paxos_ballot(paxos) && k < said->rows_count; k++)
            here &= row_here(sync, &said->rows[k]);
    }
    return here;
}
