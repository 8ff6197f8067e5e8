/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drafting: a last configuration, what members say that they hold, and the changes wanted of them, of which
 * net/membership/next_config makes the draft of the next configuration. One at a time; two fragments of six shards. No
 * cmocka state but drafting_end().
 */
#ifndef TESTS_LIB_DRAFTING_H
#define TESTS_LIB_DRAFTING_H

#include <stdbool.h>
#include <stdint.h>

#include "net/membership/next_config.h"

enum { DRAFTING_F = 2, DRAFTING_SHARDS = 6, DRAFTING_RESULTS = 4, DRAFTING_ISLANDS = 8 };

struct drafting {
    struct config last;
    struct digest last_digest;
    /* In the order in which they answered. */
    struct part_result results[DRAFTING_ISLANDS][DRAFTING_F][DRAFTING_RESULTS];
    struct holding rows[DRAFTING_ISLANDS][DRAFTING_F];
    struct next_config_answer answers[DRAFTING_ISLANDS];
    uint32_t answers_count;
    struct change_request requests[DRAFTING_ISLANDS];
    uint32_t change_requests_count;
    bool overdue;
    uint32_t words_of[DRAFTING_ISLANDS], words_count;
    struct member_word words[DRAFTING_ISLANDS];
    struct order orders[DRAFTING_ISLANDS];
    uint32_t orders_count;
    struct next_config_out out;
};
extern struct drafting drafting;

/* Owners 0 to owners - 1, and the witness after them where there is one, in epoch 4; nobody has answered. */
void drafting_start(uint32_t owners, bool witness);
/* Likewise, and all have sealed at version 6. */
void drafting_seals(uint32_t owners, bool witness);
/* Member `id` answers. */
struct next_config_answer *drafting_holds(uint32_t id, bool sealed, uint64_t version);
/* Whoever answered last holds a result of its next version of fragment 0, too. */
struct part_result *drafting_with(uint32_t owner, uint64_t epoch, const char *text);
/* The shards of fragment 0 that the last configuration's map gives the owner. */
uint64_t drafting_mask_of(uint32_t owner);
/* A change request of a member, as the last configuration has it. */
struct change_request *drafting_request(uint32_t id);
/* What a member says of itself from now on: as the last configuration has it, until the test says otherwise. */
struct member_word *drafting_word(uint32_t id);
/* An order of member 0, which is an operator. */
struct order *drafting_order(uint32_t kind, uint32_t subject);
/* Likewise one that admits a newcomer of this name, with the key of configs_ident(). */
struct order *drafting_admit(const char *name, uint32_t key);
/* Signs words and orders. */
const struct next_config_base *drafting_base(void);
/* Makes the draft anew; it follows, or nothing came of it (`out.ask`). */
void drafting_make(void);
/* A teardown. */
int drafting_end(void **state);

/* ---- the draft ---- */

bool drafting_safe(void);
bool drafting_carries(const char *text);
bool drafting_votes(uint32_t id);
uint32_t drafting_slots_of(uint32_t id);

#endif
