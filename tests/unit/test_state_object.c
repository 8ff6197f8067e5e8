/* SPDX-License-Identifier: Apache-2.0 */
/* state_object: a state goes over whole and verified, or nothing of the replica changes. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/bytes.h"
#include "common/digest.h"
#include "common/mem.h"
#include "daemon/state/state_object.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/sample_configs.h"
#include "tests/lib/smallrun.h"

enum { F = 1, VERSION = 40, STEP = 321, HEADER_BYTES = 128, CERTIFICATE_BYTES = 2 * CERTIFICATE_ROW_BYTES };
/* Where the header has what (docs/FORMATS.md, 5). */
enum { AT_STEP = 16, AT_HASH = 32, AT_COUNTS = 64 };

static struct smallrun run;
/* Three voters; two of them certify what is sent, and that is enough. */
static struct config config;
static struct certificate_rule rule;
static struct state_expected any;

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

static void certificate_row(struct certificate *certificate, uint32_t id, const struct certificate_subject *subject)
{
    certificate->rows[certificate->count].id = id;
    certificate_row_sign(configs_ident(id), subject, certificate->rows[certificate->count++].signature);
}

/* Puts another certificate behind an object that has one of two rows. */
static void certify(struct object *object, const struct certificate *certificate)
{
    uint64_t bytes = object->bytes - CERTIFICATE_BYTES;
    uint64_t with = bytes + certificate_bytes(certificate->count);
    assert_ok(mem_grow(&object->data, object->bytes, (with > object->bytes ? with : object->bytes) + 1, 1, "a state"));
    state_object_certify(object->data, bytes, certificate);
    object->bytes = with;
}

static struct certificate_subject subject_of(const struct object *object)
{
    return (struct certificate_subject){
        .nonce = config.nonce, .fragment = F, .version = VERSION, .hash = object->state.hash};
}

static struct object make(const struct smallrun *of, struct replica *replica)
{
    struct object object = {.state = {.version = VERSION, .step = STEP}};
    uint64_t bytes = state_object_bytes(replica, F);
    object.bytes = bytes + CERTIFICATE_BYTES;
    assert_ok(mem_new((size_t)object.bytes, 1, "a state", &object.data));
    assert_ok(replica_hash(replica, F, VERSION, STEP, &object.state.hash));
    state_object_make(replica, of->plan->plan, F, &object.state, object.data);
    const struct certificate_subject subject = subject_of(&object);
    struct certificate certificate = {.count = 0};
    certificate_row(&certificate, 2, &subject);
    certificate_row(&certificate, 0, &subject);
    state_object_certify(object.data, bytes, &certificate);
    return object;
}

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
    struct state_expected expected = any;
    expected.steps = STEP;
    struct store_fragment got;
    struct digest hash;
    size_t bytes = (size_t)run.plan->plan->fragments[F].values_count * sizeof(float);
    assert_int_equal(object.bytes, HEADER_BYTES + 2 * bytes + CERTIFICATE_BYTES);
    assert_ok(state_object_install(to, run.plan->plan, F, &expected, object.data, object.bytes, &got));
    assert_int_equal(got.version, VERSION);
    assert_int_equal(got.step, STEP);
    assert_true(digest_equal(&got.hash, &object.state.hash));
    assert_ok(replica_hash(to, F, VERSION, STEP, &hash));
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
    assert_int_equal(object.bytes, HEADER_BYTES + bytes + CERTIFICATE_BYTES);
    assert_ok(state_object_install(to, averages.plan->plan, F, &any, object.data, object.bytes, &got));
    assert_memory_equal(replica_anchor(to, F), replica_anchor(from, F), bytes);
    assert_refused("not this state", F, &any, object.data, object.bytes); /* a run that has one */
    mem_free(object.data);
    replica_free(from);
    replica_free(to);
    smallrun_free(&averages);
}

/* All is under the hash or compared with what was asked for. */
static void a_changed_byte_is_seen(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1);
    struct object object = make(&run, from);
    for (uint64_t at = 0; at < object.bytes; at += at < HEADER_BYTES ? 1 : object.bytes / 13) {
        bool header = at < AT_STEP || (at >= AT_STEP + 8 && at < AT_HASH) || (at >= AT_COUNTS && at < HEADER_BYTES);
        bool certificate = at >= object.bytes - CERTIFICATE_BYTES, step = at >= AT_STEP && at < AT_STEP + 8;
        object.data[at] ^= 0x08;
        assert_refused(header        ? "not this state"
                       : step        ? " of " /* a run of fewer, or its hash */
                       : certificate ? "certified by 1 voters"
                                     : "not those of its hash",
                       F, &any, object.data, object.bytes);
        object.data[at] ^= 0x08;
    }
    object.data[object.bytes - 1] ^= 0x08;
    assert_refused("certified by 1 voters", F, &any, object.data, object.bytes);
    object.data[object.bytes - CERTIFICATE_BYTES - 1] ^= 0x80; /* the last value's sign */
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

/* A version that no majority of the voters certifies is not taken over, however well it agrees with itself. */
static void a_state_without_a_majority_behind_it_is_refused(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1);
    struct object object = make(&run, from);
    const struct certificate_subject subject = subject_of(&object);
    struct certificate_subject other = subject, different = subject;
    struct certificate none = {.count = 0}, one = none, twice = none, stranger = none, forged = none, another = none,
                       lie = none;
    other.version--;
    different.hash.byte[0] ^= 1;
    certificate_row(&one, 1, &subject);
    certificate_row(&twice, 1, &subject);
    certificate_row(&twice, 1, &subject);
    certificate_row(&stranger, 1, &subject);
    certificate_row(&stranger, 3, &subject);
    certificate_row(&forged, 1, &subject);
    certificate_row(&forged, 1, &subject);
    forged.rows[1].id = 2;
    certificate_row(&another, 1, &subject);
    certificate_row(&another, 2, &other);
    certificate_row(&lie, 1, &subject);
    certificate_row(&lie, 2, &different);
    const struct certificate *bad[] = {&none, &one, &twice, &stranger, &forged, &another, &lie};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        mem_free(object.data);
        object = make(&run, from);
        certify(&object, bad[i]);
        assert_refused("are needed", F, &any, object.data, object.bytes);
    }
    certificate_row(&one, 2, &subject);
    mem_free(object.data);
    object = make(&run, from);
    certify(&object, &one);
    struct replica *to = filled(&run, 2);
    assert_ok(install(to, F, &any, object.data, object.bytes));
    replica_free(to);
    mem_free(object.data);
    replica_free(from);
}

/* What was announced does not matter: the sender may announce what it likes. */
static void a_liars_state_with_its_own_hash_is_refused(void **state)
{
    (void)state;
    struct replica *truth = filled(&run, 1), *lies = filled(&run, 3);
    struct object honest = make(&run, truth), object = make(&run, lies);
    const struct certificate_subject subject = subject_of(&object), right = subject_of(&honest);
    struct certificate certificate = {.count = 0};
    certificate_row(&certificate, 2, &subject);
    certificate_row(&certificate, 0, &right);
    certificate_row(&certificate, 1, &right);
    certify(&object, &certificate);
    struct state_expected expected = any;
    expected.hash = &object.state.hash;
    assert_refused("certified by 1 voters", F, &expected, object.data, object.bytes);
    mem_free(object.data);
    mem_free(honest.data);
    replica_free(truth);
    replica_free(lies);
}

static void a_voter_that_lost_its_own_takes_one_of_the_other(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1), *to = filled(&run, 2);
    struct object object = make(&run, from);
    const struct certificate_subject subject = subject_of(&object);
    struct certificate certificate = {.count = 0};
    struct state_expected expected = any;
    certificate_row(&certificate, 0, &subject);
    certify(&object, &certificate);
    assert_refused("certified by 1 voters", F, &any, object.data, object.bytes);
    expected.excused = 1;
    assert_ok(install(to, F, &expected, object.data, object.bytes));
    mem_free(object.data);
    replica_free(from);
    replica_free(to);
}

/* Nobody votes on initial tensors: there the hash is compared with the one that its sender announced. */
static void initial_tensors_are_those_announced(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1), *to = filled(&run, 2);
    struct store_fragment initial = {.version = 0};
    uint64_t bytes = state_object_bytes(from, F);
    uint8_t *data;
    assert_ok(mem_new((size_t)bytes, 1, "a state", &data));
    assert_ok(replica_hash(from, F, 0, initial.step, &initial.hash));
    state_object_make(from, run.plan->plan, F, &initial, data);
    struct digest announced = initial.hash;
    struct state_expected expected = any;
    expected.version = 0;
    expected.hash = &announced;
    for (size_t i = 0; i < DIGEST_BYTES; i += DIGEST_BYTES - 1) {
        announced.byte[i] ^= 1;
        assert_refused("not the one that island announced", F, &expected, data, bytes);
        announced.byte[i] ^= 1;
    }
    assert_ok(install(to, F, &expected, data, bytes));
    mem_free(data);
    replica_free(from);
    replica_free(to);
}

/* Schedules count on it. */
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
    bytes_put_u64(&writer, STEP + 1); /* the run would go on from there */
    assert_refused("not those of its hash", F, &any, object.data, object.bytes);
    mem_free(object.data);
    replica_free(from);
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

/* ---- heads ---- */

struct head {
    uint8_t *data;
    uint64_t bytes;
};

static struct head head_of(struct replica *replica, const struct object *object, const struct certificate *certificate)
{
    uint64_t bytes = object->bytes - CERTIFICATE_BYTES;
    size_t count = state_object_leaves(bytes);
    struct digest *leaves;
    struct head head = {.bytes = state_head_bytes(bytes, certificate)};
    assert_ok(mem_new(count, sizeof *leaves, "leaves", &leaves));
    assert_ok(mem_new((size_t)head.bytes, 1, "a head", &head.data));
    state_object_digest(object->data, bytes, 0, count, leaves);
    assert_ok(state_object_check(replica, run.plan->plan, F, &object->state, bytes, leaves));
    state_head_make(object->data, bytes, leaves, certificate, head.data);
    object->data[HEADER_BYTES + 5] ^= 1; /* what was damaged here does not go out */
    state_object_digest(object->data, bytes, 0, 1, leaves);
    assert_int_equal(state_object_check(replica, run.plan->plan, F, &object->state, bytes, leaves), ERR_PROTO);
    object->data[HEADER_BYTES + 5] ^= 1;
    mem_free(leaves);
    return head;
}

static struct certificate two_voices(const struct object *object)
{
    const struct certificate_subject subject = subject_of(object);
    struct certificate certificate = {.count = 0};
    certificate_row(&certificate, 2, &subject);
    certificate_row(&certificate, 0, &subject);
    return certificate;
}

static enum err open_head(struct replica *replica, const uint8_t *bytes, uint64_t count, struct state_head *out)
{
    return state_head_open(replica, run.plan->plan, F, &any, SMALLRUN_FRAGMENTS, bytes, count, out);
}

/* A whole one, of a head and a body that came by itself. */
static void a_head_and_its_body_make_a_state(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1), *to = filled(&run, 2);
    struct object object = make(&run, from);
    const struct certificate certificate = two_voices(&object);
    struct head head = head_of(from, &object, &certificate);
    struct state_head opened;
    uint8_t *whole;
    assert_true(head.bytes <= state_head_bytes_max(to, F, 1));
    assert_ok(open_head(to, head.data, head.bytes, &opened));
    assert_true(digest_equal(&opened.hash, &object.state.hash));
    assert_int_equal(opened.object_bytes, object.bytes);
    assert_int_equal(opened.leaves_count, digest_tree_leaves(opened.body_bytes));
    for (size_t i = 0; i < opened.leaves_count; i++) {
        struct digest leaf = digest_tree_leaf(object.data + HEADER_BYTES, (size_t)opened.body_bytes, i);
        assert_memory_equal(leaf.byte, opened.leaves + i * DIGEST_BYTES, DIGEST_BYTES);
    }
    assert_ok(mem_new((size_t)opened.object_bytes, 1, "a state", &whole));
    state_head_begin(head.data, &opened, whole);
    memcpy(whole + HEADER_BYTES, object.data + HEADER_BYTES, (size_t)opened.body_bytes);
    assert_memory_equal(whole, object.data, (size_t)object.bytes);
    assert_ok(install(to, F, &any, whole, opened.object_bytes));
    mem_free(whole);
    mem_free(head.data);
    mem_free(object.data);
    replica_free(from);
    replica_free(to);
}

/* In memory of just its size. */
static void assert_no_head(const char *part, const uint8_t *bytes, uint64_t count)
{
    struct replica *to = filled(&run, 2);
    struct state_head opened;
    uint8_t *copy;
    assert_ok(mem_new((size_t)count, 1, "a head", &copy));
    memcpy(copy, bytes, (size_t)count);
    assert_fails(ERR_PROTO, part, open_head(to, copy, count, &opened));
    mem_free(copy);
    replica_free(to);
}

static void a_head_that_proves_nothing_is_refused(void **state)
{
    (void)state;
    struct replica *from = filled(&run, 1), *to = filled(&run, 2);
    struct object object = make(&run, from);
    const struct certificate certificate = two_voices(&object);
    struct head head = head_of(from, &object, &certificate);
    for (uint64_t at = 0; at < head.bytes; at++) {
        struct state_head opened;
        head.data[at] ^= 0x08;
        enum err err = open_head(to, head.data, head.bytes, &opened);
        assert_true(err == ERR_PROTO || err == ERR_AGAIN); /* AGAIN: one voter's row is now nobody's */
        head.data[at] ^= 0x08;
    }
    head.data[head.bytes - 1] ^= 1;
    assert_no_head("not those of its hash", head.data, head.bytes);
    head.data[head.bytes - 1] ^= 1;
    for (uint64_t bytes = 0; bytes < head.bytes; bytes++)
        assert_no_head("not ", head.data, bytes);
    /* Rows without end, which would be memory without end. */
    static const uint64_t rows[] = {1, 65, 1025, (uint64_t)1 << 40, UINT64_MAX};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bytes_writer writer = bytes_writer_init(head.data + AT_COUNTS, sizeof(uint64_t));
        bytes_put_u64(&writer, rows[i]);
        assert_no_head("not ", head.data, head.bytes);
    }
    mem_free(head.data);
    const struct certificate_subject subject = subject_of(&object);
    struct certificate one = {.count = 0};
    certificate_row(&one, 2, &subject);
    head = head_of(from, &object, &one);
    struct state_head opened;
    assert_fails(ERR_AGAIN, "certified by 1 voters", open_head(to, head.data, head.bytes, &opened));
    mem_free(head.data);
    certificate_row(&one, 1, &subject);
    one.rows[1].signature[3] ^= 1;
    head = head_of(from, &object, &one);
    assert_no_head("certified by 1 voters", head.data, head.bytes); /* and never will be: it is forged */
    mem_free(head.data);
    mem_free(object.data);
    replica_free(to);
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
        cmocka_unit_test(a_state_without_a_majority_behind_it_is_refused),
        cmocka_unit_test(a_liars_state_with_its_own_hash_is_refused),
        cmocka_unit_test(a_voter_that_lost_its_own_takes_one_of_the_other),
        cmocka_unit_test(initial_tensors_are_those_announced),
        cmocka_unit_test(a_head_and_its_body_make_a_state),
        cmocka_unit_test(a_head_that_proves_nothing_is_refused),
        cmocka_unit_test(a_step_beyond_the_run_is_refused),
        cmocka_unit_test(without_memory_nothing_is_installed),
    };
    config = configs_first(3, false);
    struct digest digest = configs_digest(&config);
    struct config copy;
    struct config_log *config_log;
    assert_ok(config_copy(&config, &copy));
    assert_ok(config_log_new(&config_log));
    assert_ok(config_log_add(config_log, &copy, &digest));
    certificate_rule_of(config_log, F, VERSION, &rule);
    any = (struct state_expected){.version = VERSION,
                                  .steps = SMALLRUN_STEPS,
                                  .nonce = config.nonce,
                                  .rule = &rule,
                                  .excused = CERTIFICATE_NOBODY};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    config_log_free(config_log);
    config_deinit(&config);
    smallrun_free(&run);
    return failed;
}
