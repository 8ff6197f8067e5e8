/* SPDX-License-Identifier: Apache-2.0 */
/* slots: memory for encoded objects: each has its own, and it holds the largest object that can be in it. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/mem.h"
#include "daemon/state/slots.h"
#include "net/transport/wire_object.h"
#include "outer_opt/codec.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/shares.h"
#include "tests/lib/smallrun.h"

enum { SELF = 1, SLOTS = SMALLRUN_FRAGMENTS * (3 * SMALLRUN_MEMBERS + 1) };

static struct smallrun run;
static struct replica *replica;

static struct slots_conf conf_of(void)
{
    return (struct slots_conf){
        .replica = replica, .fragments_count = SMALLRUN_FRAGMENTS, .members_count = SMALLRUN_MEMBERS};
}

static struct slots *all_slots(void)
{
    struct slots_conf conf = conf_of();
    struct slots *slots;
    assert_ok(slots_new(&conf, &slots));
    return slots;
}

/* A slot, and whose values an object in it is over. */
struct place {
    struct slot *slot;
    uint32_t f;
    uint64_t shards;
};

static uint64_t mask(uint32_t f, uint32_t member)
{
    return shares_mask(&run.parts, f, member);
}

static void list(const struct slots *slots, struct place *places)
{
    size_t n = 0;
    for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++) {
        for (uint32_t i = 0; i < SMALLRUN_MEMBERS; i++) {
            places[n++] = (struct place){slots_out(slots, f, i), f, mask(f, i)};
            places[n++] = (struct place){slots_in(slots, f, i), f, mask(f, SELF)};
            places[n++] = (struct place){slots_result(slots, f, i), f, mask(f, i)};
        }
        places[n++] = (struct place){slots_own(slots, f), f, mask(f, SELF)};
    }
    assert_int_equal(n, SLOTS);
}

static void every_object_has_a_slot_of_its_own(void **state)
{
    (void)state;
    struct slots *slots = all_slots();
    struct place places[SLOTS];
    list(slots, places);
    for (size_t i = 0; i < SLOTS; i++) {
        struct slot *slot = places[i].slot;
        assert_true(slot->data == NULL && slot->bytes == 0 && slot->version == 0 && !slot->busy);
        slot->version = i + 1;
        slot->busy = true;
        assert_ok(slots_room(slots, slot, places[i].f, places[i].shards));
        memset(slot->data, (int)i, slot->bytes_max);
    }
    list(slots, places); /* asked again, the same */
    for (size_t i = 0; i < SLOTS; i++) {
        const struct slot *slot = places[i].slot;
        assert_int_equal(slot->version, i + 1);
        assert_true(slot->busy);
        for (size_t k = 0; k < slot->bytes_max; k++)
            assert_int_equal(slot->data[k], (uint8_t)i);
    }
    slots_free(slots);
    slots_free(NULL);
}

static void a_slot_is_allocated_once_and_kept(void **state)
{
    (void)state;
    struct slots *slots = all_slots();
    struct slot *slot = slots_out(slots, 1, 2);
    assert_ok(slots_room(slots, slot, 1, mask(1, 2)));
    uint8_t *data = slot->data;
    memset(data, 7, slot->bytes_max);
    mem_fail_after(0);
    assert_ok(slots_room(slots, slot, 1, mask(1, 2))); /* takes no memory */
    mem_fail_after(-1);
    assert_ptr_equal(slot->data, data);
    assert_int_equal(data[slot->bytes_max - 1], 7);
    slots_free(slots);
}

/* The least compressible numbers there are, under as large a metadata as there is. */
static void a_slot_holds_the_largest_object_of_its_shard(void **state)
{
    (void)state;
    struct slots *slots = all_slots();
    struct codec *codec;
    struct wire_meta meta = {
        .tokens = (uint64_t)1 << 40, .step = SMALLRUN_STEPS, .outer = {UINT32_MAX, UINT32_MAX, UINT32_MAX}};
    size_t largest = 0;
    assert_ok(codec_new(0, &codec));
    static uint8_t contributors[SMALLRUN_MEMBERS * WIRE_CONTRIBUTOR_BYTES]; /* all there are */
    static uint8_t spans[WIRE_SPANS_MAX * WIRE_SPAN_BYTES];
    uint64_t each[WIRE_SHARDS_MAX]; /* no shard is like another */
    for (uint32_t s = 0; s < WIRE_SHARDS_MAX; s++)
        each[s] = s + 1;
    struct ident ident;
    assert_ok(ident_generate(&ident));
    meta.contributors = contributors;
    meta.spans = spans;
    for (uint32_t i = 0; i < SMALLRUN_MEMBERS; i++)
        wire_contributor_put(contributors, meta.contributors_count++, &(struct wire_contributor){.id = i, .tokens = 9});
    memset(meta.outer, 0xff, sizeof meta.outer);
    for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++) {
        size_t count = (size_t)run.plan->plan->fragments[f].values_count;
        float *theta;
        struct env_rng rng = env_rng_init(f, 1);
        assert_ok(mem_new(count, sizeof *theta, "numbers", &theta));
        testlib_fill_laplace(&rng, theta, count, 1);
        for (uint32_t shard = 0; shard < SMALLRUN_MEMBERS; shard++) {
            size_t frame_bytes, bytes;
            struct slot *slot = slots_out(slots, f, shard);
            assert_ok(slots_room(slots, slot, f, mask(f, shard)));
            assert_int_equal(slot->bytes_max, wire_object_bytes_max(replica_frame_bytes_max(replica, f, mask(f, shard)),
                                                                    mask(f, shard), SMALLRUN_MEMBERS));
            assert_ok(replica_encode(replica, f, mask(f, shard), replica_anchor(replica, f), theta, 1000, codec,
                                     wire_object_frame(slot->data), &frame_bytes));
            struct wire_object what = {.key = {.kind = WIRE_RESULT, .version = 1}, .shards = mask(f, shard)};
            meta.spans_count = 0;
            for (uint32_t i = 0; i < SMALLRUN_MEMBERS; i++)
                meta.spans_count = wire_spans_put(spans, meta.spans_count, WIRE_SPANS_MAX, i, what.shards, each, NULL);
            assert_ok(wire_object_seal(&what, &meta, &ident, slot->data, frame_bytes, &bytes, &what.digest));
            assert_in_range(bytes, 1, slot->bytes_max);
            largest = bytes > largest ? bytes : largest;
        }
        mem_free(theta);
    }
    assert_true(largest > 1000);
    codec_free(codec);
    slots_free(slots);
}

static void a_state_on_its_way_in_is_kept_until_it_is_freed(void **state)
{
    (void)state;
    struct slots *slots = all_slots();
    uint8_t *first, *again, *other;
    assert_null(slots_state(slots, 0));
    assert_ok(slots_take_state(slots, 0, 5000, &first));
    assert_ok(slots_take_state(slots, 2, 100, &other));
    memset(first, 1, 5000);
    memset(other, 2, 100);
    assert_ok(slots_take_state(slots, 0, 5000, &again)); /* an earlier attempt's goes on */
    assert_ptr_equal(first, again);
    assert_int_equal(again[4999], 1);
    assert_ptr_equal(slots_state(slots, 0), first);
    assert_null(slots_state(slots, 1));
    assert_ptr_equal(slots_state(slots, 2), other);
    slots_free_state(slots, 0);
    assert_null(slots_state(slots, 0));
    slots_free_state(slots, 0);
    assert_int_equal(slots_state(slots, 2)[99], 2);
    assert_ok(slots_take_state(slots, 0, 5000, &again));
    for (size_t i = 0; i < 5000; i++)
        assert_int_equal(again[i], 0);
    slots_free(slots); /* with states in it */
}

/* States that come one after the other use the same memory, and there is never more of it than they need at a time. */
static void states_one_after_the_other_share_memory(void **state)
{
    (void)state;
    enum { LARGE = 5 << 20 };
    struct slots *slots = all_slots();
    uint8_t *first, *second, *third, *again;
    size_t before = mem_pages_bytes();
    assert_ok(slots_take_state(slots, 0, LARGE + 100, &first));
    assert_ok(slots_take_state(slots, 1, LARGE, &second));
    size_t most = mem_pages_bytes() - before;
    first[LARGE - 1] = 77;
    slots_free_state(slots, 0);
    assert_ok(slots_take_state(slots, 2, LARGE + 3000, &third)); /* some rows more */
    assert_ptr_equal(third, first);
    assert_int_equal(third[LARGE - 1], 77); /* nothing had to be cleared */
    slots_free_state(slots, 1);
    slots_free_state(slots, 2);
    assert_int_equal(mem_pages_bytes() - before, most);
    assert_ok(slots_take_state(slots, 0, 2 * LARGE, &again)); /* what is too small goes first */
    assert_true(mem_pages_bytes() - before <= most);
    slots_free_state(slots, 0);
    slots_drop_spares(slots);
    assert_int_equal(mem_pages_bytes(), before);
    slots_free(slots);
}

static enum err make_slots(void *user)
{
    struct slots_conf conf = conf_of();
    struct slots *slots;
    (void)user;
    enum err err = slots_new(&conf, &slots);
    assert_true(err == ERR_OK || slots == NULL);
    slots_free(slots);
    return err;
}

static enum err make_room(void *user)
{
    struct slots *slots = user;
    struct slot *slot = slots_own(slots, 2);
    enum err err = slots_room(slots, slot, 2, mask(2, SELF));
    assert_true(err == ERR_OK || (slot->data == NULL && slot->bytes_max == 0));
    return err;
}

static enum err make_state(void *user)
{
    uint8_t *bytes;
    enum err err = slots_take_state(user, 1, 100, &bytes);
    assert_true(err == ERR_OK || slots_state(user, 1) == NULL);
    return err;
}

static void without_memory_a_slot_stays_empty(void **state)
{
    (void)state;
    print_message("%zu allocations failed in turn\n", outofmem_walk(make_slots, NULL));
    struct slots *slots = all_slots();
    assert_int_equal(outofmem_walk(make_room, slots), 1);
    assert_int_equal(outofmem_walk(make_state, slots), 1);
    slots_free(slots);
}

int main(void)
{
    assert_ok(digest_init());
    run = smallrun_new("codec = int8\n");
    replica = smallrun_replica(&run, SELF);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_object_has_a_slot_of_its_own),
        cmocka_unit_test(a_slot_is_allocated_once_and_kept),
        cmocka_unit_test(a_slot_holds_the_largest_object_of_its_shard),
        cmocka_unit_test(a_state_on_its_way_in_is_kept_until_it_is_freed),
        cmocka_unit_test(states_one_after_the_other_share_memory),
        cmocka_unit_test(without_memory_a_slot_stays_empty),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    replica_free(replica);
    smallrun_free(&run);
    return failed;
}
