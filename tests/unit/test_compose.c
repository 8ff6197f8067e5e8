/* compose and muster: what the next record says and when it is safe, by the shortest runs that break the rules. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "net/compose.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/sample_records.h"

enum { F = 2, SHARDS = 6, RESULTS = 4, ISLANDS = 8 };

/* What island `id` holds; island 3 of {0, 1, 2, 3} is the witness where there is one. */
static struct compose_result results[ISLANDS][F][RESULTS];
static struct compose_fragment fragments[ISLANDS][F];
static struct compose_holding holdings[ISLANDS];
static uint32_t holdings_count;
static struct record last;
static struct digest last_digest;
static struct muster_wish wishes[ISLANDS];
static uint32_t wishes_count;
static struct compose_out out;
static bool overdue;

static const struct compose_base *base(void)
{
    static const uint32_t shards[F] = {SHARDS, SHARDS};
    static struct compose_base b;
    last_digest = records_digest(&last);
    b = (struct compose_base){
        .record = &last, .digest = &last_digest, .shards = shards, .fragments_count = F, .overdue = overdue};
    return &b;
}

static void start(uint32_t owners, bool witness)
{
    record_deinit(&last);
    last = records_first(owners, witness);
    last.epoch = 4;
    holdings_count = wishes_count = 0;
    overdue = false;
    memset(results, 0, sizeof results);
    memset(fragments, 0, sizeof fragments);
}

static struct compose_holding *holds(uint32_t id, bool sealed, uint64_t version)
{
    struct compose_holding *h = &holdings[holdings_count];
    for (uint32_t f = 0; f < F; f++)
        fragments[holdings_count][f] =
            (struct compose_fragment){.version = version, .results = results[holdings_count][f]};
    const struct record_member *member = record_member(&last, id);
    *h = (struct compose_holding){.id = id,
                                  .incarnation = member != NULL ? member->incarnation : 0,
                                  .sealed = sealed,
                                  .fragments = fragments[holdings_count]};
    holdings_count++;
    return h;
}

static uint64_t mask_of(uint32_t owner)
{
    uint64_t mask = 0;
    for (uint32_t s = 0; s < SHARDS; s++)
        mask |= (uint64_t)(last.map.owner[shardmap_slot(0, SHARDS, s)] == owner) << s;
    return mask;
}

/* Whoever answered last holds a result of its next version of fragment 0, too. */
static struct compose_result *with(uint32_t owner, uint64_t epoch, const char *text)
{
    struct compose_fragment *fragment = &fragments[holdings_count - 1][0];
    struct compose_result *result = &results[holdings_count - 1][0][fragment->results_count++];
    *result = (struct compose_result){
        .owner = owner, .epoch = epoch, .shards = mask_of(owner), .digest = digest_of(text, strlen(text))};
    return result;
}

static struct muster_wish *wish(uint32_t id)
{
    struct muster_wish *w = &wishes[wishes_count++];
    memset(w, 0, sizeof *w);
    w->as = *record_member(&last, id);
    return w;
}

static void make(void)
{
    record_deinit(&out.draft);
    assert_ok(compose(base(), holdings, holdings_count, wishes, wishes_count, &out));
    if (out.ask)
        return;
    assert_ok(record_check(&out.draft));
    assert_ok(compose_follows(base(), &out.draft));
}

static bool safe(void)
{
    uint32_t lacking[RECORD_OWNERS_MAX + 1], count;
    return compose_safe(&out.draft, base(), holdings, holdings_count, lacking, &count);
}

static bool carries(const char *text)
{
    struct digest digest = digest_of(text, strlen(text));
    for (uint32_t i = 0; i < out.draft.carried_count; i++)
        if (digest_equal(&out.draft.carried[i].digest, &digest))
            return true;
    return false;
}

static bool votes(uint32_t id)
{
    const struct record_member *member = record_member(&out.draft, id);
    return member != NULL && member->voter;
}

static uint32_t slots_of(uint32_t id)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < SHARDMAP_SLOTS; s++)
        count += out.draft.map.owner[s] == id;
    return count;
}

/* ---- start and carried results ---- */

static void the_highest_version_with_its_bytes_is_the_start(void **state)
{
    (void)state;
    start(2, true);
    holds(0, true, 6);
    holds(2, true, 9); /* the witness: digests are no copies */
    make();
    assert_false(out.ask);
    assert_int_equal(record_start(&out.draft, 0), 6);
    holds(1, false, 7);
    make();
    assert_int_equal(record_start(&out.draft, 1), 7);
}

/* What one of three alone says is taken for a while; what it cannot have, if the others are enough, never. */
static void no_claim_of_one_alone_holds_a_record_up(void **state)
{
    (void)state;
    start(3, false);
    holds(0, true, 6);
    holds(1, true, 6);
    holds(2, true, 7);
    make();
    assert_int_equal(record_start(&out.draft, 0), 7);
    overdue = true;
    make();
    assert_int_equal(record_start(&out.draft, 0), 6);
    start(3, false);
    holds(0, true, 6);
    holds(1, true, 6);
    holds(2, true, 1000000);
    make();
    assert_int_equal(record_start(&out.draft, 0), 6);
    start(3, false);
    holds(0, true, 6);
    holds(2, true, 9); /* without it there are too few seals: the two are all there is to go by */
    overdue = true;
    make();
    assert_int_equal(record_start(&out.draft, 0), 9);
}

/* A result that one of three alone shows was certified nowhere, if the others are enough: it is left out in time. */
static void no_result_of_one_alone_holds_a_record_up(void **state)
{
    (void)state;
    start(3, false);
    holds(0, true, 6);
    with(0, 4, "shown by two");
    holds(1, true, 6);
    with(0, 4, "shown by two");
    holds(2, true, 6);
    with(1, 4, "shown by one");
    make();
    assert_int_equal(out.draft.carried_count, 2);
    overdue = true;
    make();
    assert_int_equal(out.draft.carried_count, 1);
    assert_true(carries("shown by two"));
}

static void too_few_seals_say_nothing(void **state)
{
    (void)state;
    start(3, false);
    holds(0, true, 6);
    holds(1, false, 6);
    make();
    assert_true(out.ask);
    holds(2, true, 6)->incarnation = 99; /* a seal of a disk that the record does not name */
    make();
    assert_true(out.ask);
}

static void a_record_never_starts_below_the_one_before(void **state)
{
    (void)state;
    start(3, false);
    records_start(&last, 0, 5);
    holds(0, true, 4);
    holds(1, true, 4);
    make();
    assert_true(out.ask);
    holds(2, false, 5);
    make();
    assert_false(out.ask);
    assert_int_equal(record_start(&out.draft, 0), 5);
}

static void a_sealed_result_of_the_next_version_is_carried(void **state)
{
    (void)state;
    start(3, false);
    holds(0, true, 6);
    with(1, 4, "sealed");
    with(2, 3, "of an older epoch");
    holds(1, true, 5);
    with(2, 4, "of version 6");
    holds(2, false, 6);
    with(2, 4, "not sealed");
    make();
    assert_int_equal(out.draft.carried_count, 1);
    assert_true(carries("sealed"));
    assert_int_equal(out.draft.carried[0].version, 7);
    assert_int_equal(out.draft.carried[0].epoch, 4);
    assert_int_equal(out.suspects_count, 0);
}

static void a_result_of_a_wrong_owner_is_not_carried(void **state)
{
    (void)state;
    start(3, false);
    holds(0, true, 6);
    with(1, 4, "of other shards")->shards = mask_of(2);
    with(2, 4, "of some of its shards")->shards &= mask_of(2) - 1;
    with(70000, 4, "of nobody")->shards = 1;
    holds(1, true, 6);
    make();
    assert_int_equal(out.draft.carried_count, 0);
    records_carry(&out.draft, 0, 1, 4, mask_of(2)); /* an acceptor looks as well */
    assert_fails(ERR_PROTO, "does not count", compose_follows(base(), &out.draft));
}

static void a_result_that_only_a_witness_holds_was_certified_nowhere(void **state)
{
    (void)state;
    start(2, true);
    holds(1, true, 6);
    holds(2, true, 6);
    with(0, 4, "digest");
    make();
    assert_false(out.ask);
    assert_int_equal(out.draft.carried_count, 0);
}

/* A alone holds r, e2 carries it; B and C never fetched it and seal e3. */
static void what_was_carried_into_an_unfinished_version_stands(void **state)
{
    (void)state;
    start(3, false);
    records_start(&last, 0, 6);
    records_carry(&last, 0, 0, 3, 3);
    struct record_carried old = last.carried[0];
    holds(1, true, 6);
    holds(2, true, 6);
    make();
    assert_true(out.ask); /* its bytes are at somebody else */
    holds(0, false, 6);
    struct compose_result *has = with(0, 3, "");
    has->shards = old.shards;
    has->digest = old.digest;
    make();
    assert_false(out.ask);
    assert_int_equal(out.draft.carried_count, 1);
    assert_memory_equal(&out.draft.carried[0], &old, sizeof old);
    fragments[1][0].version = 7; /* the version is complete */
    make();
    assert_int_equal(out.draft.carried_count, 0);
}

static void of_two_results_the_one_at_more_voters_stands_and_its_owner_is_named(void **state)
{
    (void)state;
    start(4, false);
    holds(0, true, 6);
    with(3, 4, "one");
    holds(1, true, 6);
    with(3, 4, "other");
    holds(2, true, 6);
    with(3, 4, "other");
    make();
    assert_int_equal(out.draft.carried_count, 1);
    assert_true(carries("other"));
    assert_int_equal(out.suspects_count, 1);
    assert_int_equal(out.suspects[0], 3);
    holds(3, true, 6);
    with(3, 4, "one"); /* now they are equal: everyone has to choose the same one */
    make();
    struct digest chosen = out.draft.carried[0].digest;
    fragments[0][0].results = results[1][0];
    fragments[1][0].results = results[0][0];
    make();
    assert_memory_equal(&chosen, &out.draft.carried[0].digest, sizeof chosen);
}

/* ---- rule 2 ---- */

static void a_draft_is_safe_when_its_own_voters_hold_it(void **state)
{
    (void)state;
    uint32_t lacking[RECORD_OWNERS_MAX + 1], count;
    start(3, false);
    holds(0, true, 6);
    with(0, 4, "r");
    holds(1, true, 5);
    make();
    assert_true(carries("r"));
    assert_false(compose_safe(&out.draft, base(), holdings, holdings_count, lacking, &count));
    assert_int_equal(count, 2);
    assert_int_equal(lacking[0], 1);
    assert_int_equal(lacking[1], 2); /* has not answered */
    struct compose_lack lack;
    assert_true(compose_lacks(&out.draft, 0, &fragments[1][0], &lack));
    assert_true(lack.start);
    fragments[1][0].version = 6;
    assert_true(compose_lacks(&out.draft, 0, &fragments[1][0], &lack));
    assert_false(lack.start);
    assert_int_equal(lack.carried, 0);
    fragments[1][1].version = 6;
    assert_false(safe());
    with(0, 4, "r"); /* fetched, sealed as it is */
    assert_true(safe());
    holdings[1].incarnation++; /* a receipt of another disk */
    assert_false(safe());
}

static void a_witness_is_no_copy(void **state)
{
    (void)state;
    start(2, true);
    holds(0, true, 6);
    holds(2, true, 6);
    make();
    assert_false(safe());
    wish(1)->silent = true; /* {A, W}: A certifies alone */
    make();
    assert_true(safe());
}

/* ---- rule 5, and who takes part ---- */

static void seals(uint32_t owners, bool witness)
{
    start(owners, witness);
    for (uint32_t i = 0; i < owners + witness; i++)
        holds(i, true, 6);
}

static void three_do_not_become_two(void **state)
{
    (void)state;
    seals(3, false);
    wish(2)->silent = true;
    make();
    assert_int_equal(record_voters(&out.draft), 3);
    assert_true(votes(2));
    assert_int_equal(record_member(&out.draft, 2)->role, RECORD_AWAY);
    assert_int_equal(slots_of(2), 0); /* its shards are lost at once */
    assert_int_equal(slots_of(0) + slots_of(1), SHARDMAP_SLOTS);
}

static void four_become_three_and_five_do_not_become_four(void **state)
{
    (void)state;
    seals(4, false);
    wish(1)->silent = true;
    make();
    assert_int_equal(record_voters(&out.draft), 3);
    assert_false(votes(1));
    seals(5, false);
    wish(1)->silent = true;
    make();
    assert_int_equal(record_voters(&out.draft), 5);
    wish(2)->silent = true;
    make();
    assert_int_equal(record_voters(&out.draft), 3);
}

static void beside_a_witness_two_become_one(void **state)
{
    (void)state;
    seals(2, true);
    wish(1)->silent = true;
    make();
    assert_int_equal(record_voters(&out.draft), 2);
    assert_int_equal(record_certifying(&out.draft), 1);
    assert_true(votes(0) && votes(2) && !votes(1));
}

static void a_witness_votes_where_it_helps(void **state)
{
    (void)state;
    seals(3, true); /* of four it needs three, as without it of three two */
    make();
    assert_false(votes(3));
    assert_int_equal(record_member(&out.draft, 3)->role, RECORD_WITNESS);
    seals(3, true);
    last.members[3].voter = false;
    holdings[3].sealed = false;
    wish(2)->silent = true;
    wish(3);
    make();
    assert_true(votes(3) && !votes(2)); /* it takes its place */
}

static void another_takes_its_place_when_it_has_caught_up(void **state)
{
    (void)state;
    seals(3, false);
    records_add(&last, RECORD_OBSERVER);
    wish(2)->silent = true;
    wish(3);
    make();
    assert_int_equal(record_member(&out.draft, 3)->role, RECORD_OBSERVER); /* nobody knows what it holds */
    assert_true(votes(2));
    holds(3, false, 5);
    make();
    assert_false(votes(3)); /* it lacks a version */
    fragments[3][0].version = 6;
    make();
    assert_false(votes(3)); /* of the other fragment */
    fragments[3][1].version = 6;
    make();
    assert_true(votes(3) && !votes(2));
    assert_int_equal(slots_of(3), 21);
    fragments[3][1].version = 6;
    wishes[1].as.owner_wish = RECORD_OWNER_NO;
    make();
    assert_int_equal(record_member(&out.draft, 3)->role, RECORD_CONTRIBUTOR);
}

static void a_disk_in_doubt_votes_again_when_it_has_caught_up(void **state)
{
    (void)state;
    seals(3, false);
    holdings[2].sealed = false;
    holdings[2].incarnation = 77;
    fragments[2][0].version = 3;
    wish(2)->as.incarnation = 77;
    make();
    assert_int_not_equal(record_member(&out.draft, 2)->incarnation, 77);
    assert_int_equal(slots_of(2), 0);
    assert_true(votes(2)); /* of three; it is one of those that cannot be asked now */
    fragments[2][0].version = 6;
    make();
    assert_int_equal(record_member(&out.draft, 2)->incarnation, 77);
    assert_true(slots_of(2) > 0);
}

static void who_is_new_gets_an_id_of_its_own(void **state)
{
    (void)state;
    seals(3, false);
    uint32_t next = last.next_id;
    for (uint32_t i = 0; i < 3; i++) {
        struct muster_wish *w = wish(0);
        w->enrol = true;
        memcpy(w->as.key, records_ident(50 + i)->key, IDENT_KEY_BYTES);
        snprintf(w->as.name, sizeof w->as.name, "new%u", i);
    }
    wishes[1].as.role = RECORD_WITNESS;
    snprintf(wishes[2].as.name, sizeof wishes[2].as.name, "m1"); /* taken */
    wish(2)->revoked = true;
    make();
    assert_int_equal(out.draft.next_id, next + 2);
    assert_int_equal(record_member(&out.draft, next)->role, RECORD_OBSERVER);
    assert_int_equal(record_member(&out.draft, next + 1)->role, RECORD_WITNESS);
    assert_true(votes(next + 1)); /* of {0, 1} and it, two decide, whoever is lost */
    assert_null(record_member(&out.draft, 2));
}

static void who_drains_or_wishes_not_to_own_owns_nothing(void **state)
{
    (void)state;
    seals(4, false);
    wish(1)->draining = true;
    make();
    assert_int_equal(record_member(&out.draft, 1)->role, RECORD_DRAINING);
    assert_false(votes(1));
    seals(4, false);
    wish(1)->as.owner_wish = RECORD_OWNER_NO;
    make();
    assert_int_equal(record_member(&out.draft, 1)->role, RECORD_CONTRIBUTOR);
    assert_int_equal(slots_of(1), 0);
    seals(3, false); /* of three it goes on voting, or nobody could be lost any more */
    wish(1)->as.owner_wish = RECORD_OWNER_NO;
    make();
    assert_true(votes(1));
    assert_int_equal(slots_of(1), 0);
    wish(0)->as.owner_wish = wish(2)->as.owner_wish = RECORD_OWNER_NO;
    make();
    assert_true(slots_of(1) > 0); /* somebody has to */
}

static void uplinks_move_few_slots(void **state)
{
    (void)state;
    seals(3, false);
    for (uint32_t i = 0; i < 3; i++)
        wish(i)->as.uplink = i == 0 ? 200 : 100;
    make();
    assert_int_equal(slots_of(0), 32);
    assert_int_equal(slots_of(1), 16);
    record_deinit(&out.draft);
    wishes[0].revoked = wishes[1].revoked = wishes[2].revoked = true;
    assert_fails(ERR_STATE, "fewer at a time", compose(base(), holdings, holdings_count, wishes, wishes_count, &out));
}

static enum err compose_once(void *context)
{
    struct compose_out once;
    enum err err = compose(context, holdings, holdings_count, wishes, wishes_count, &once);
    record_deinit(&once.draft);
    return err;
}

static void every_path_without_memory_is_clean(void **state)
{
    (void)state;
    seals(3, false);
    with(1, 4, "r");
    assert_true(outofmem_walk(compose_once, (void *)base()) > 3);
}

static int end(void **state)
{
    (void)state;
    record_deinit(&out.draft);
    record_deinit(&last);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_version_with_its_bytes_is_the_start),
        cmocka_unit_test(no_claim_of_one_alone_holds_a_record_up),
        cmocka_unit_test(no_result_of_one_alone_holds_a_record_up),
        cmocka_unit_test(too_few_seals_say_nothing),
        cmocka_unit_test(a_record_never_starts_below_the_one_before),
        cmocka_unit_test(a_sealed_result_of_the_next_version_is_carried),
        cmocka_unit_test(a_result_of_a_wrong_owner_is_not_carried),
        cmocka_unit_test(a_result_that_only_a_witness_holds_was_certified_nowhere),
        cmocka_unit_test(what_was_carried_into_an_unfinished_version_stands),
        cmocka_unit_test(of_two_results_the_one_at_more_voters_stands_and_its_owner_is_named),
        cmocka_unit_test(a_draft_is_safe_when_its_own_voters_hold_it),
        cmocka_unit_test(a_witness_is_no_copy),
        cmocka_unit_test(three_do_not_become_two),
        cmocka_unit_test(four_become_three_and_five_do_not_become_four),
        cmocka_unit_test(beside_a_witness_two_become_one),
        cmocka_unit_test(a_witness_votes_where_it_helps),
        cmocka_unit_test(another_takes_its_place_when_it_has_caught_up),
        cmocka_unit_test(a_disk_in_doubt_votes_again_when_it_has_caught_up),
        cmocka_unit_test(who_is_new_gets_an_id_of_its_own),
        cmocka_unit_test(who_drains_or_wishes_not_to_own_owns_nothing),
        cmocka_unit_test(uplinks_move_few_slots),
        cmocka_unit_test(every_path_without_memory_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
