/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/drafting.h"

#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/sample_configs.h"

struct drafting drafting;

const struct next_config_base *drafting_base(void)
{
    static const uint32_t shards[DRAFTING_F] = {DRAFTING_SHARDS, DRAFTING_SHARDS};
    static struct next_config_base b;
    static struct next_config_word words[DRAFTING_ISLANDS];
    static const struct order *orders[DRAFTING_ISLANDS];
    for (uint32_t i = 0; i < drafting.words_count; i++) {
        member_word_sign(configs_ident(drafting.words_of[i]), drafting.last.nonce, drafting.words_of[i],
                         &drafting.words[i]);
        words[i] = (struct next_config_word){.id = drafting.words_of[i], .word = &drafting.words[i]};
    }
    for (uint32_t i = 0; i < drafting.orders_count; i++) {
        order_sign(configs_ident(0), drafting.last.nonce, &drafting.orders[i]);
        orders[i] = &drafting.orders[i];
    }
    drafting.last_digest = configs_digest(&drafting.last);
    b = (struct next_config_base){.config = &drafting.last,
                                  .digest = &drafting.last_digest,
                                  .shards = shards,
                                  .fragments_count = DRAFTING_F,
                                  .overdue = drafting.overdue,
                                  .orders = orders,
                                  .orders_count = drafting.orders_count,
                                  .words = words,
                                  .words_count = drafting.words_count};
    return &b;
}

void drafting_start(uint32_t owners, bool witness)
{
    config_deinit(&drafting.last);
    drafting.last = configs_first(owners, witness);
    drafting.last.epoch = 4;
    drafting.answers_count = drafting.change_requests_count = 0;
    drafting.words_count = drafting.orders_count = 0;
    drafting.overdue = false;
    memset(drafting.results, 0, sizeof drafting.results);
    memset(drafting.rows, 0, sizeof drafting.rows);
}

struct next_config_answer *drafting_holds(uint32_t id, bool sealed, uint64_t version)
{
    struct next_config_answer *h = &drafting.answers[drafting.answers_count];
    for (uint32_t f = 0; f < DRAFTING_F; f++)
        drafting.rows[drafting.answers_count][f] =
            (struct holding){.fragment = f, .version = version, .held = drafting.results[drafting.answers_count][f]};
    const struct config_member *member = config_member(&drafting.last, id);
    *h = (struct next_config_answer){.id = id,
                                     .incarnation = member != NULL ? member->incarnation : 0,
                                     .sealed = sealed,
                                     .rows = drafting.rows[drafting.answers_count],
                                     .rows_count = DRAFTING_F};
    drafting.answers_count++;
    return h;
}

uint64_t drafting_mask_of(uint32_t owner)
{
    uint64_t mask = 0;
    for (uint32_t s = 0; s < DRAFTING_SHARDS; s++)
        mask |= (uint64_t)(drafting.last.map.owner[shardmap_slot(0, DRAFTING_SHARDS, s)] == owner) << s;
    return mask;
}

struct part_result *drafting_with(uint32_t owner, uint64_t epoch, const char *text)
{
    struct holding *row = &drafting.rows[drafting.answers_count - 1][0];
    struct part_result *result = &drafting.results[drafting.answers_count - 1][0][row->held_count++];
    *result = (struct part_result){
        .id = {.owner = owner, .version = row->version + 1, .epoch = epoch, .digest = digest_of(text, strlen(text))},
        .shards = drafting_mask_of(owner)};
    return result;
}

struct change_request *drafting_request(uint32_t id)
{
    struct change_request *w = &drafting.requests[drafting.change_requests_count++];
    const struct config_member *member = config_member(&drafting.last, id);
    *w = (struct change_request){.id = id, .incarnation = member->incarnation, .losses = member->losses};
    return w;
}

struct member_word *drafting_word(uint32_t id)
{
    const struct config_member *member = config_member(&drafting.last, id);
    for (uint32_t i = 0; i < drafting.words_count; i++)
        if (drafting.words_of[i] == id)
            return &drafting.words[i];
    drafting.words_of[drafting.words_count] = id;
    struct member_word *word = &drafting.words[drafting.words_count++];
    *word = (struct member_word){.number = member->word + 1,
                                 .uplink = member->uplink,
                                 .owner_choice = member->owner_choice,
                                 .draining = member->draining,
                                 .units = member->units};
    memcpy(word->address, member->address, sizeof word->address);
    return word;
}

struct order *drafting_order(uint32_t kind, uint32_t subject)
{
    struct order *order = &drafting.orders[drafting.orders_count++];
    *order =
        (struct order){.kind = kind, .subject = subject, .number = drafting.orders_count, .epoch = drafting.last.epoch};
    return order;
}

struct order *drafting_admit(const char *name, uint32_t key)
{
    struct order *order = drafting_order(ORDER_ADMIT, 0);
    order->join.word = (struct member_word){.number = 1, .uplink = 1000000000};
    snprintf(order->join.name, sizeof order->join.name, "%s", name);
    wire_join_sign(configs_ident(key), drafting.last.nonce, &order->join);
    return order;
}

void drafting_make(void)
{
    config_deinit(&drafting.out.draft);
    assert_ok(next_config(drafting_base(), drafting.answers, drafting.answers_count, drafting.requests,
                          drafting.change_requests_count, &drafting.out));
    if (drafting.out.ask)
        return;
    assert_ok(config_check(&drafting.out.draft));
    assert_ok(next_config_follows(drafting_base(), &drafting.out.draft));
}

bool drafting_safe(void)
{
    uint32_t lacking[CONFIG_OWNERS_MAX + 1], count;
    return next_config_safe(&drafting.out.draft, drafting_base(), drafting.answers, drafting.answers_count, lacking,
                            &count);
}

bool drafting_carries(const char *text)
{
    struct digest digest = digest_of(text, strlen(text));
    for (uint32_t i = 0; i < drafting.out.draft.carried_count; i++)
        if (digest_equal(&drafting.out.draft.carried[i].id.digest, &digest))
            return true;
    return false;
}

bool drafting_votes(uint32_t id)
{
    const struct config_member *member = config_member(&drafting.out.draft, id);
    return member != NULL && member->voter;
}

uint32_t drafting_slots_of(uint32_t id)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < SHARDMAP_SLOTS; s++)
        count += drafting.out.draft.map.owner[s] == id;
    return count;
}

void drafting_seals(uint32_t owners, bool witness)
{
    drafting_start(owners, witness);
    for (uint32_t i = 0; i < owners + witness; i++)
        drafting_holds(i, true, 6);
}

int drafting_end(void **state)
{
    (void)state;
    config_deinit(&drafting.out.draft);
    config_deinit(&drafting.last);
    return 0;
}
