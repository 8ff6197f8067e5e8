/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/next_config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "net/config/config_deal.h"
#include "net/config/config_orders.h"

/* At most so many bytes packed: of a member with its mark, a carried result, an order, a word; FITS for all else; ROLES
 * for what assign_roles() may add, ROLE of it for each member, and the endorsements of CHANGES changes of roles, by a
 * majority of the voters each. More changes wait where there is no room for their endorsements
 * (net/membership/endorse.c). */
enum {
    MEMBER_BYTES = WIRE_NAME_BYTES + CONFIG_ADDRESS_BYTES + 2 * IDENT_KEY_BYTES + 128,
    CARRIED_BYTES = 100,
    ORDER_BYTES = ORDER_APPROVALS_MAX * 80 + 1024,
    WORD_BYTES = 150,
    FITS_BYTES = 64 << 10,
    ROLES_BYTES = 48 << 10,
    ROLE_BYTES = 16,
    MAP_BYTES = 8 + 5 * SHARDMAP_SLOTS,
    CHANGES = 8,
};
_Static_assert(CONFIG_MEMBERS_MAX *ROLE_BYTES + MAP_BYTES +
                       CHANGES * (CONFIG_VOTERS_MAX / 2 + 1) * CONFIG_ENDORSEMENT_BYTES <=
                   ROLES_BYTES,
               "some changes of roles fit in, whatever is ordered");

/* A valid result of the version after the start, and at how many full voters it was sealed. */
struct candidate {
    struct part_result result;
    uint32_t copies;
    bool bytes; /* somebody who answered has them */
};

struct work {
    const struct next_config_base *base;
    const struct next_config_answer *answers;
    uint32_t answers_count;
    struct part_result *carried; /* room for CONFIG_CARRIED_MAX */
    uint32_t carried_count;
    struct next_config_out *out;
};

static bool is_full(const struct config *config, uint32_t id)
{
    const struct config_member *member = config_member(config, id);
    return member != NULL && member->role != CONFIG_WITNESS;
}

static int by_fragment(const void *fragment, const void *row)
{
    uint32_t wanted = *(const uint32_t *)fragment, there = ((const struct holding *)row)->fragment;
    return wanted < there ? -1 : wanted > there;
}

/* What it holds of a fragment. Mostly it speaks of all of them. */
static const struct holding *row_of(const struct next_config_answer *answer, uint32_t fragment)
{
    static const struct holding nothing;
    const struct holding *row = NULL;
    if (fragment < answer->rows_count && answer->rows[fragment].fragment == fragment)
        row = &answer->rows[fragment];
    else if (answer->rows_count > 0)
        row = bsearch(&fragment, answer->rows, answer->rows_count, sizeof *answer->rows, by_fragment);
    return row != NULL ? row : &nothing;
}

/* A seal counts if its voter's disk is the one that the configuration names. */
static bool is_seal(const struct config *config, const struct next_config_answer *answer)
{
    const struct config_member *member = config_member(config, answer->id);
    return answer->sealed && member != NULL && member->voter && member->incarnation == answer->incarnation;
}

static const struct part_result *same_place(const struct config *config, const struct part_result *result)
{
    uint32_t count;
    const struct part_result *carried = config_carried(config, result->id.fragment, &count);
    for (uint32_t i = 0; i < count; i++)
        if (carried[i].id.version == result->id.version && (carried[i].shards & result->shards) != 0)
            return &carried[i];
    return NULL;
}

/* The shards of a fragment that `owner` makes in this epoch, for this version. */
static uint64_t part_of(const struct next_config_base *base, uint32_t fragment, uint64_t version, uint32_t owner)
{
    uint64_t shards = 0;
    uint32_t count = base->shards[fragment];
    for (uint32_t s = 0; s < count; s++)
        if (base->config->map.owner[shardmap_slot(fragment, count, s)] == owner)
            shards |= (uint64_t)1 << s;
    uint32_t carried_count;
    const struct part_result *carried = config_carried(base->config, fragment, &carried_count);
    for (uint32_t i = 0; i < carried_count; i++)
        if (carried[i].id.version == version)
            shards &= ~carried[i].shards;
    return shards;
}

/* Whether a result counts in the epoch: carried into it, or made in it by the owner of exactly these shards. */
static bool valid(const struct next_config_base *base, const struct part_result *result)
{
    const struct part_result *old = same_place(base->config, result);
    if (old != NULL)
        return part_result_equal(old, result);
    return result->id.epoch == base->config->epoch && result->shards != 0 && result->id.owner != SHARDMAP_NOBODY &&
           result->shards == part_of(base, result->id.fragment, result->id.version, result->id.owner);
}

/* ---- where a fragment starts ---- */

struct tally {
    uint32_t seals, keeping; /* keeping: of those, by full voters */
};

static void count_seal(const struct config *config, const struct next_config_answer *answer, struct tally *tally)
{
    if (!is_seal(config, answer))
        return;
    tally->seals++;
    tally->keeping += is_full(config, answer->id);
}

/* Enough seals: a majority for Paxos, and one in every certifying set. */
static bool enough(const struct config *config, struct tally tally)
{
    uint32_t keepers = 0;
    for (uint32_t i = 0; i < config->members_count; i++)
        keepers += config->members[i].voter && config->members[i].role != CONFIG_WITNESS;
    return tally.seals >= config_majority(config) && tally.keeping + config_commit_quorum(config) > keepers;
}

static bool enough_seals(const struct work *work)
{
    struct tally tally = {0};
    for (uint32_t i = 0; i < work->answers_count; i++)
        count_seal(work->base->config, &work->answers[i], &tally);
    return enough(work->base->config, tally);
}

/* Whether those who say that they are below `version` are enough without the others. */
static bool enough_below(const struct work *work, uint32_t fragment, uint64_t version)
{
    struct tally tally = {0};
    for (uint32_t i = 0; i < work->answers_count; i++)
        if (row_of(&work->answers[i], fragment)->version < version)
            count_seal(work->base->config, &work->answers[i], &tally);
    return enough(work->base->config, tally);
}

/* The highest version below `limit` that anybody says it holds, bytes and all. */
static uint64_t highest_below(const struct work *work, uint32_t fragment, uint64_t limit)
{
    uint64_t version = 0;
    for (uint32_t i = 0; i < work->answers_count; i++) {
        const struct next_config_answer *answer = &work->answers[i];
        uint64_t held = row_of(answer, fragment)->version;
        if (is_full(work->base->config, answer->id) && held > version && held < limit)
            version = held;
    }
    return version;
}

/* What was applied anywhere, as many had durably as commit: so those below it, if they are enough, are one version
 * below it at most, and show its results. A claim beyond that is none; and one that nobody can fetch need not be
 * waited for, since to start from the version below, and to carry its results, is to start from it. */
static uint64_t highest(const struct work *work, uint32_t fragment)
{
    uint64_t version = highest_below(work, fragment, UINT64_MAX);
    while (version > 0 && enough_below(work, fragment, version)) {
        uint64_t next = highest_below(work, fragment, version);
        if (version <= next + 1 && !work->base->overdue)
            break;
        version = next;
    }
    return version;
}

/* ---- what it carries ---- */

static bool is_among(const struct part_result *results, uint32_t count, const struct part_result *carried)
{
    for (uint32_t i = 0; i < count; i++)
        if (part_result_equal(&results[i], carried))
            return true;
    return false;
}

/* Of what is only kept between its version and its reach, a holder names no digests: that is as good as not there. */
static bool has_carried(const struct holding *holds, const struct part_result *carried)
{
    if (holds->version >= carried->id.version)
        return true; /* it has applied it */
    if (holds->version + 1 == carried->id.version)
        return is_among(holds->held, holds->held_count, carried);
    return holds->reach > holds->version && holds->reach + 1 == carried->id.version &&
           is_among(holds->beyond, holds->beyond_count, carried);
}

/* Whether all that makes the version is there, applied or not. */
static bool reaches(const struct holding *holds, uint64_t version)
{
    return holds->version >= version || holds->reach >= version;
}

static void count_copies(const struct work *work, struct candidate *candidate)
{
    const struct config *config = work->base->config;
    for (uint32_t i = 0; i < work->answers_count; i++) {
        const struct next_config_answer *answer = &work->answers[i];
        const struct holding *holds = row_of(answer, candidate->result.id.fragment);
        if (!is_full(config, answer->id) || holds->version + 1 != candidate->result.id.version)
            continue;
        if (!is_among(holds->held, holds->held_count, &candidate->result))
            continue;
        candidate->bytes = true;
        candidate->copies += is_seal(config, answer);
    }
}

/* Whether it has had its time to be fetched, and the seals that do not show it are enough without those that do. */
static bool dispensable(const struct work *work, const struct part_result *result)
{
    const struct config *config = work->base->config;
    struct tally tally = {0};
    for (uint32_t i = 0; work->base->overdue && i < work->answers_count; i++)
        if (!has_carried(row_of(&work->answers[i], result->id.fragment), result))
            count_seal(config, &work->answers[i], &tally);
    return work->base->overdue && enough(config, tally);
}

static void suspect(struct next_config_out *out, uint32_t owner)
{
    for (uint32_t i = 0; i < out->suspects_count; i++)
        if (out->suspects[i] == owner)
            return;
    if (out->suspects_count < NEXT_CONFIG_SUSPECTS_MAX)
        out->suspects[out->suspects_count++] = owner;
}

/* Of two results of one part, the one at more voters stands, of equal ones the one of the smaller digest: no rule can
 * do better with two results that ought not to be. */
static bool stands_before(const struct candidate *a, const struct candidate *b)
{
    if (a->copies != b->copies)
        return a->copies > b->copies;
    return memcmp(a->result.id.digest.byte, b->result.id.digest.byte, DIGEST_BYTES) < 0;
}

static enum err add(struct work *work, const struct part_result *result)
{
    if (work->carried_count == CONFIG_CARRIED_MAX)
        return err_set(ERR_STATE, "more than %d results to carry into epoch %" PRIu64, CONFIG_CARRIED_MAX,
                       work->base->config->epoch + 1);
    uint32_t at = work->carried_count++;
    for (; at > 0 && work->carried[at - 1].id.fragment == result->id.fragment &&
           work->carried[at - 1].id.owner > result->id.owner;
         at--)
        work->carried[at] = work->carried[at - 1];
    work->carried[at] = *result;
    return ERR_OK;
}

/* Puts a sealed result into the draft, unless another of the same part is there that stands before it. */
static enum err take(struct work *work, uint32_t first, const struct candidate *candidate)
{
    if (!candidate->bytes)
        return ERR_OK; /* then it was committed nowhere */
    for (uint32_t i = first; i < work->carried_count; i++) {
        struct candidate there = {.result = work->carried[i]};
        if ((there.result.shards & candidate->result.shards) == 0)
            continue;
        if (digest_equal(&there.result.id.digest, &candidate->result.id.digest))
            return ERR_OK;
        suspect(work->out, candidate->result.id.owner);
        count_copies(work, &there);
        if (stands_before(candidate, &there))
            work->carried[i] = candidate->result; /* of the same owner: the order stays */
        return ERR_OK;
    }
    return add(work, &candidate->result);
}

/* What the last configuration carried into a version that is not complete stands, whatever else there is. */
static enum err carry_on(struct work *work, uint32_t fragment, uint64_t start)
{
    uint32_t count;
    const struct part_result *old = config_carried(work->base->config, fragment, &count);
    for (uint32_t i = 0; i < count; i++) {
        struct candidate candidate = {.result = old[i]};
        if (old[i].id.version != start + 1)
            continue;
        count_copies(work, &candidate);
        if (!candidate.bytes)
            work->out->ask = true;
        TRY(add(work, &old[i]));
    }
    return ERR_OK;
}

static enum err carry(struct work *work, uint32_t fragment, uint64_t start)
{
    uint32_t first = work->carried_count;
    TRY(carry_on(work, fragment, start));
    for (uint32_t i = 0; i < work->answers_count; i++) {
        const struct holding *holds = row_of(&work->answers[i], fragment);
        if (!is_seal(work->base->config, &work->answers[i]) || holds->version != start)
            continue;
        for (uint32_t k = 0; k < holds->held_count; k++) {
            struct candidate candidate = {.result = holds->held[k]};
            if (!valid(work->base, &candidate.result) || dispensable(work, &candidate.result))
                continue;
            count_copies(work, &candidate);
            TRY(take(work, first, &candidate));
        }
    }
    return ERR_OK;
}

/* ---- all of it ---- */

static const struct next_config_answer *answer_of(const struct next_config_answer *answers, uint32_t count, uint32_t id,
                                                  uint64_t incarnation)
{
    for (uint32_t i = 0; i < count; i++)
        if (answers[i].id == id && answers[i].incarnation == incarnation)
            return &answers[i];
    return NULL;
}

static void mark_caught_up(const struct work *work, const uint64_t *starts, struct change_request *requests,
                           uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct next_config_answer *answer =
            answer_of(work->answers, work->answers_count, requests[i].id, requests[i].incarnation);
        requests[i].caught_up = answer != NULL;
        for (uint32_t f = 0; requests[i].caught_up && f < work->base->fragments_count; f++)
            requests[i].caught_up = reaches(row_of(answer, f), starts[f]);
    }
}

/* Whom an order puts out goes, whatever else is known of it. */
static void put_out(const struct config *draft, struct change_request *requests, uint32_t count)
{
    for (uint32_t i = 0; i < draft->orders_count; i++)
        for (uint32_t k = 0; draft->orders[i].kind == ORDER_EVICT && k < count; k++)
            requests[k].evicted |= requests[k].id == draft->orders[i].subject;
}

static enum err obey(const struct next_config_base *base, struct config *next)
{
    next->orders_count = next->words_count = 0;
    next->endorsements_count = 0; /* what was agreed to before is no part of it, and takes no room */
    next->ballot = 0;
    for (uint32_t i = 0; i < base->orders_count; i++) {
        enum err err = config_order_try(base->config, next, base->orders[i]);
        if (err == ERR_NOMEM)
            return err;
        if (err != ERR_OK)
            log_debug("order %" PRIu64 " of %s waits: %s", base->orders[i]->number,
                      config_name_of(base->config, base->orders[i]->signer), err_text());
    }
    for (uint32_t i = 0; i < base->words_count; i++)
        TRY(config_word_apply(base->config, next, base->words[i].id, base->words[i].word));
    return ERR_OK;
}

/* Whether it can be packed, whatever assign_roles() makes of it. */
static enum err fits(const struct config *config, bool *out)
{
    uint8_t *bytes;
    size_t count, most = FITS_BYTES + ROLES_BYTES;
    most += (size_t)config->members_count * MEMBER_BYTES + (size_t)config->carried_count * CARRIED_BYTES;
    most += (size_t)config->orders_count * ORDER_BYTES + (size_t)config->words_count * WORD_BYTES;
    *out = most <= CONFIG_BYTES_MAX;
    if (*out)
        return ERR_OK;
    enum err err = config_pack(config, &bytes, &count);
    *out = err == ERR_OK && count + ROLES_BYTES <= CONFIG_BYTES_MAX;
    if (err == ERR_OK)
        mem_free(bytes);
    return err == ERR_NOMEM ? err : ERR_OK;
}

enum err next_config_obey(const struct next_config_base *base, struct config *next, struct change_request *requests,
                          uint32_t change_requests_count)
{
    struct next_config_base some = *base;
    struct config draft;
    bool good;
    for (;;) {
        TRY(config_copy(next, &draft));
        enum err err = obey(&some, &draft);
        if (err == ERR_OK)
            err = fits(&draft, &good);
        if (err != ERR_OK) {
            config_deinit(&draft);
            return err;
        }
        if (good || (some.orders_count == 0 && some.words_count == 0))
            break;
        config_deinit(&draft);
        log_debug("a configuration with %" PRIu32 " orders and %" PRIu32 " words is too large: half of them wait",
                  some.orders_count, some.words_count);
        some.orders_count /= 2;
        some.words_count /= 2;
    }
    config_deinit(next);
    *next = draft;
    put_out(next, requests, change_requests_count);
    return ERR_OK;
}

static bool enough_claims(void *user, const struct deal_claim *claims, uint32_t count)
{
    const struct config *config = user;
    struct tally tally = {.seals = count};
    for (uint32_t i = 0; i < count; i++)
        tally.keeping += is_full(config, claims[i].id);
    return enough(config, tally);
}

/* What is committed one of any seals that are enough shows: a larger claim than that is of nothing committed. Nor does
 * any result name a step beyond the run's length: a configuration that says so is refused. */
static uint64_t counted_step(const struct work *work)
{
    struct deal_claim claims[CONFIG_VOTERS_MAX];
    struct config config = *work->base->config;
    uint64_t most = config_steps_most(&config);
    uint32_t count = 0;
    for (uint32_t i = 0; i < work->answers_count && count < CONFIG_VOTERS_MAX; i++) {
        uint64_t step = work->answers[i].step < most ? work->answers[i].step : most;
        if (is_seal(&config, &work->answers[i]))
            claims[count++] = (struct deal_claim){step, work->answers[i].id};
    }
    deal_sort(claims, count);
    return deal_counted_step(config.deal.counted_step, claims, count, enough_claims, &config);
}

static enum err fill(struct work *work, struct change_request *requests, uint32_t change_requests_count)
{
    struct config *draft = &work->out->draft;
    uint32_t fragments = work->base->fragments_count;
    TRY(config_copy(work->base->config, draft));
    draft->epoch++;
    draft->previous = *work->base->digest;
    mem_free(draft->starts);
    draft->starts = NULL;
    draft->starts_count = 0;
    TRY(mem_new(fragments, sizeof *draft->starts, "starts", &draft->starts));
    draft->starts_count = fragments;
    for (uint32_t f = 0; f < fragments; f++) {
        draft->starts[f] = highest(work, f);
        if (draft->starts[f] < config_start(work->base->config, f)) /* never below the one before */
            work->out->ask = true;
        TRY(carry(work, f, draft->starts[f]));
    }
    mem_free(draft->carried);
    draft->carried = NULL;
    draft->carried_count = 0;
    if (work->carried_count > 0)
        TRY(mem_new(work->carried_count, sizeof *draft->carried, "carried results", &draft->carried));
    for (uint32_t i = 0; i < work->carried_count; i++)
        draft->carried[i] = work->carried[i];
    draft->carried_count = work->carried_count;
    draft->deal.counted_step = counted_step(work);
    TRY(next_config_obey(work->base, draft, requests, change_requests_count));
    mark_caught_up(work, draft->starts, requests, change_requests_count);
    if (work->base->by_order)
        assign_roles_by_order(draft);
    else
        TRY(assign_roles(draft, requests, change_requests_count));
    config_deal_next(work->base->config, draft->deal.counted_step, draft);
    return ERR_OK;
}

enum err next_config(const struct next_config_base *base, const struct next_config_answer *answers,
                     uint32_t answers_count, struct change_request *requests, uint32_t change_requests_count,
                     struct next_config_out *out)
{
    memset(out, 0, sizeof *out);
    struct work work = {.base = base, .answers = answers, .answers_count = answers_count, .out = out};
    if (base->config->starts_count > base->fragments_count)
        return err_set(ERR_STATE, "the last configuration knows %" PRIu32 " fragments, the plan %" PRIu32,
                       base->config->starts_count, base->fragments_count);
    if (!enough_seals(&work)) {
        out->ask = true;
        return ERR_OK;
    }
    TRY(mem_new(CONFIG_CARRIED_MAX, sizeof *work.carried, "carried results", &work.carried));
    enum err err = fill(&work, requests, change_requests_count);
    if (err != ERR_OK || out->ask)
        config_deinit(&out->draft);
    mem_free(work.carried);
    return err;
}

/* ---- is it safe? ---- */

bool next_config_lacks(const struct config *draft, uint32_t fragment, const struct holding *holds,
                       struct next_config_lack *lack)
{
    *lack = (struct next_config_lack){.start = !reaches(holds, config_start(draft, fragment))};
    for (uint32_t i = 0; !lack->start && i < draft->carried_count; i++) {
        lack->carried = i;
        if (draft->carried[i].id.fragment == fragment && !has_carried(holds, &draft->carried[i]))
            return true;
    }
    return lack->start;
}

static bool lacks_some(const struct config *draft, const struct next_config_base *base,
                       const struct next_config_answer *answer)
{
    struct next_config_lack lack;
    for (uint32_t f = 0; f < base->fragments_count; f++)
        if (next_config_lacks(draft, f, row_of(answer, f), &lack))
            return true;
    return false;
}

static void add_lacking(uint32_t id, uint32_t *lacking, uint32_t *lacking_count)
{
    if (*lacking_count < CONFIG_OWNERS_MAX + 1)
        lacking[(*lacking_count)++] = id;
}

/* Where one full voter alone is left, what it says that it holds is not enough: another one that has sealed, and votes
 * no more, holds it, too. It is not waited for for ever where the other seals are enough. */
static bool is_confirmed(const struct config *draft, const struct next_config_base *base,
                         const struct next_config_answer *answers, uint32_t answers_count, uint32_t *lacking,
                         uint32_t *lacking_count)
{
    struct tally rest = {0};
    bool leaves = false;
    for (uint32_t i = 0; i < answers_count; i++) {
        const struct config_member *member = config_member(draft, answers[i].id);
        if (!is_seal(base->config, &answers[i]) || !is_full(base->config, answers[i].id) ||
            (member != NULL && member->voter)) {
            count_seal(base->config, &answers[i], &rest);
            continue;
        }
        if (!lacks_some(draft, base, &answers[i]))
            return true;
        leaves = true;
        add_lacking(answers[i].id, lacking, lacking_count);
    }
    return !leaves || (base->overdue && enough(base->config, rest));
}

bool next_config_safe(const struct config *draft, const struct next_config_base *base,
                      const struct next_config_answer *answers, uint32_t answers_count, uint32_t *lacking,
                      uint32_t *lacking_count)
{
    uint32_t have = 0, full = 0;
    *lacking_count = 0;
    for (uint32_t i = 0; i < draft->members_count; i++) {
        const struct config_member *member = &draft->members[i];
        if (!member->voter || member->role == CONFIG_WITNESS)
            continue;
        const struct next_config_answer *answer = answer_of(answers, answers_count, member->id, member->incarnation);
        full++;
        if (answer != NULL && !lacks_some(draft, base, answer))
            have++;
        else
            add_lacking(member->id, lacking, lacking_count);
    }
    return have >= config_commit_quorum(draft) &&
           (full > 1 || is_confirmed(draft, base, answers, answers_count, lacking, lacking_count));
}

enum err next_config_follows(const struct next_config_base *base, const struct config *next)
{
    TRY(config_follows(base->config, base->digest, next));
    TRY(config_orders_follow(base->config, next));
    TRY(config_deal_follows(base->config, next));
    /* Its maker goes by what others answered it, and one of them may have lied. */
    if (next->deal.counted_step < base->applied_step)
        return err_set(ERR_STATE,
                       "configuration %" PRIu64 " deals data as if nothing were applied beyond step %" PRIu64
                       ", and a result of step %" PRIu64 " is",
                       next->epoch, next->deal.counted_step, base->applied_step);
    if (next->carried_count > 0 && base->fragments_count == 0)
        return err_set(ERR_STATE, "configuration %" PRIu64 " carries results of a plan that is not known here",
                       next->epoch);
    for (uint32_t i = 0; i < next->carried_count; i++) {
        const struct part_result *carried = &next->carried[i];
        if (carried->id.fragment >= base->fragments_count || !valid(base, carried))
            return err_set(ERR_PROTO,
                           "configuration %" PRIu64 " carries a result of %" PRIu32 " for fragment %" PRIu32
                           " that does not count in the epoch before",
                           next->epoch, carried->id.owner, carried->id.fragment);
    }
    return config_keys_check(next, base->config);
}
