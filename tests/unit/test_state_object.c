/* state_object: a state goes over whole and verified, or nothing of the replica changes. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/bytes.h"
#include "common/digest.h"
#include "common/mem.h"
#include "daemon/state/state_object.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/smallrun.h"

enum { F = 1, VERSION = 40, STEP = 321, HEADER_BYTES = 64 };
/* Where the header has what (docs/FORMATS.md, 5). */
enum { AT_STEP = 16, AT_HASH = 32 };

static struct smallrun run;

struct object {
    uint8_t *data;
    uint64_t bytes;
    struct store_fragment state; /* that it is of */
};

static struct replica *filled(const struct smallrun *of, uint64_t seed)
{
    struct replica *replica = smallrun_replica(of, 0);
    for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++)
        smallrun_fill(replica, of, f, seed);
    return replica;
}

static struct object make(const struct smallrun *of, struct replica *replica)
{
    struct object object = {.state = {.version = VERSION, .step = STEP}};
    object.bytes = state_object_bytes(replica, of->plan->plan, F);
    assert_ok(mem_new((size_t)object.bytes, 1, "a state", &object.data));
    assert_ok(replica_hash(replica, F, VERSION, &object.state.hash));
    state_object_make(replica, of->plan->plan, F, &object.state, object.data);
    return object;
}

static const struct state_expected any = {.version = VERSION, .steps = SMALLRUN_STEPS};

static enum err install(struct replica *replica, uint32_t f, const struct state_expected *expected,
                        const uint8_t *object, uint64_t bytes)
{
    struct store_fragment state;
    return state_object_install(replica, run.plan->plan, f, expected, object, bytes, &state);
}

/* Asserts that it is refused and nothing was changed. The bytes are given in memory of just their size. */
static void assert_refused(const char *part, uint32_t f, const struct state_expected *expected, const uint8_t *object,
                           uint64_t bytes)
{
    struct replica *replica = filled(&run, 2);
    struct digest before = smallrun_digest(replica, &run), after;
    uint8_t *copy;
    assert_ok(mem_new((size_t)bytes, 1, "a state", &copy));
    memcpy(copy, object, (size_t)bytes);
    assert_fails(ERR_PROTO, part, install(replica, f, expected, copy, bytes));
    after = smallrun_digest(replica, &run);
    assert_true(digest_equal(&before, &after));
    mem_free(copy);
    replica_free(replica);
}

static void a_state_goes_over_whole(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1), *to = filled(&run, 2);
    struct object object = make(&run, from);
    struct state_expected expected = {.version = VERSION, .steps = STEP, .hash = &object.state.hash};
    struct store_fragment got;
    struct digest hash;
    size_t bytes = (size_t)run.plan->plan->fragments[F].values_count * sizeof(float);
    assert_int_equal(object.bytes, HEADER_BYTES + 2 * bytes);
    assert_ok(state_object_install(to, run.plan->plan, F, &expected, object.data, object.bytes, &got));
    assert_int_equal(got.version, VERSION);
    assert_int_equal(got.step, STEP);
    assert_true(digest_equal(&got.hash, &object.state.hash));
    assert_ok(replica_hash(to, F, VERSION, &hash));
    assert_true(digest_equal(&hash, &object.state.hash));
    /* And nothing else: residuals are this island's own, and so are other fragments. */
    memcpy(replica_residual(from, F), replica_residual(to, F), bytes);
    memcpy(replica_owner_residual(from, F), replica_owner_residual(to, F),
           replica_values(to, F, replica_owner_shards(to, F)) * sizeof(float));
    smallrun_fill(from, &run, 0, 2);
    smallrun_fill(from, &run, 2, 2);
    struct digest left = smallrun_digest(from, &run), right = smallrun_digest(to, &run);
    assert_true(digest_equal(&left, &right));
    mem_free(object.data);
    replica_free(from);
    replica_free(to);
}

static void a_run_without_momentum_sends_none(void **state)
{
    (void)state;
    struct smallrun averages = smallrun_new("[outer]\noptimizer = average\n");
    struct replica *from = filled(&averages, 1), *to = filled(&averages, 2);
    struct object object = make(&averages, from);
    struct store_fragment got;
    size_t bytes = (size_t)run.plan->plan->fragments[F].values_count * sizeof(float);
    assert_int_equal(object.bytes, HEADER_BYTES + bytes);
    assert_ok(state_object_install(to, averages.plan->plan, F, &any, object.data, object.bytes, &got));
    assert_memory_equal(replica_anchor(to, F), replica_anchor(from, F), bytes);
    assert_refused("not this state", F, &any, object.data, object.bytes); /* a run that has one */
    mem_free(object.data);
    replica_free(from);
    replica_free(to);
    smallrun_free(&averages);
}

/* All but the step is under the hash or compared with what was asked for. */
static void a_changed_byte_is_seen(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1);
    struct object object = make(&run, from);
    for (uint64_t at = 0; at < object.bytes; at += at < HEADER_BYTES ? 1 : object.bytes / 13) {
        if (at >= AT_STEP && at < AT_STEP + sizeof(uint64_t))
            continue;
        object.data[at] ^= 0x08;
        assert_refused(at < AT_HASH ? "not this state" : "not those of its hash", F, &any, object.data, object.bytes);
        object.data[at] ^= 0x08;
    }
    object.data[object.bytes - 1] ^= 0x80; /* the last value's sign */
    assert_refused("not those of its hash", F, &any, object.data, object.bytes);
    mem_free(object.data);
    replica_free(from);
}

static void a_state_that_is_cut_off_or_too_long_is_refused(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1);
    struct object object = make(&run, from);
    for (uint64_t bytes = 0; bytes <= HEADER_BYTES; bytes++)
        assert_refused("not this state", F, &any, object.data, bytes);
    assert_refused("not this state", F, &any, object.data, HEADER_BYTES + (object.bytes - HEADER_BYTES) / 2);
    assert_refused("not this state", F, &any, object.data, object.bytes - sizeof(float));
    assert_refused("not this state", F, &any, object.data, object.bytes - 1);
    uint64_t bytes = object.bytes;
    assert_ok(mem_grow(&object.data, bytes, bytes + sizeof(float), 1, "a longer one"));
    assert_refused("not this state", F, &any, object.data, bytes + 1);
    assert_refused("not this state", F, &any, object.data, bytes + sizeof(float));
    mem_free(object.data);
    replica_free(from);
}

static void another_version_or_fragment_than_asked_for_is_refused(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1);
    struct object object = make(&run, from);
    struct state_expected other = any;
    other.version = VERSION + 1;
    assert_refused("not this state", F, &other, object.data, object.bytes);
    other.version = VERSION - 1;
    assert_refused("not this state", F, &other, object.data, object.bytes);
    /* Fragment 2 is of the same size. */
    assert_refused("not this state", 2, &any, object.data, object.bytes);
    object.data[4] = 2; /* and says it is that one */
    assert_refused("not those of its hash", 2, &any, object.data, object.bytes);
    mem_free(object.data);
    replica_free(from);
}

static void a_state_that_is_not_the_one_announced_is_refused(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1);
    struct object object = make(&run, from);
    struct digest announced = object.state.hash;
    struct state_expected expected = {.version = VERSION, .steps = SMALLRUN_STEPS, .hash = &announced};
    for (size_t i = 0; i < DIGEST_BYTES; i += DIGEST_BYTES - 1) {
        announced.byte[i] ^= 1;
        assert_refused("not the one that island announced", F, &expected, object.data, object.bytes);
        announced.byte[i] ^= 1;
    }
    mem_free(object.data);
    replica_free(from);
}

/* Schedules count on it, and no hash covers it. */
static void a_step_beyond_the_run_is_refused(void **state)
{
    (void)state;
    static const uint64_t steps[] = {SMALLRUN_STEPS + 1, (uint64_t)1 << 40, UINT64_MAX};
    struct replica *from = filled(&run, 1);
    struct object object = make(&run, from);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct bytes_writer writer = bytes_writer_init(object.data + AT_STEP, sizeof(uint64_t));
        bytes_put_u64(&writer, steps[i]);
        assert_refused("step", F, &any, object.data, object.bytes);
    }
    struct bytes_writer writer = bytes_writer_init(object.data + AT_STEP, sizeof(uint64_t));
    bytes_put_u64(&writer, SMALLRUN_STEPS);
    struct replica *to = filled(&run, 2);
    assert_ok(install(to, F, &any, object.data, object.bytes));
    mem_free(object.data);
    replica_free(from);
    replica_free(to);
}

struct attempt {
    struct object object;
    struct replica *to;
    struct digest before;
};

static enum err install_once(void *user)
{
    struct attempt *attempt = user;
    enum err err = install(attempt->to, F, &any, attempt->object.data, attempt->object.bytes);
    struct digest after = smallrun_digest(attempt->to, &run);
    assert_int_equal(digest_equal(&attempt->before, &after), err != ERR_OK);
    return err;
}

static void without_memory_nothing_is_installed(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1);
    struct attempt attempt = {.object = make(&run, from), .to = filled(&run, 2)};
    attempt.before = smallrun_digest(attempt.to, &run);
    assert_true(outofmem_walk(install_once, &attempt) > 0);
    mem_free(attempt.object.data);
    replica_free(attempt.to);
    replica_free(from);
}

int main(void)
{
    assert_ok(digest_init());
    run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_goes_over_whole),
        cmocka_unit_test(a_run_without_momentum_sends_none),
        cmocka_unit_test(a_changed_byte_is_seen),
        cmocka_unit_test(a_state_that_is_cut_off_or_too_long_is_refused),
        cmocka_unit_test(another_version_or_fragment_than_asked_for_is_refused),
        cmocka_unit_test(a_state_that_is_not_the_one_announced_is_refused),
        cmocka_unit_test(a_step_beyond_the_run_is_refused),
        cmocka_unit_test(without_memory_nothing_is_installed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    smallrun_free(&run);
    return failed;
}
