/* SPDX-License-Identifier: Apache-2.0 */
/* libdiloco with tensors of 16 bits, of a device's own naming, and registered in any order: nothing of the run's values
 * is lost by rounding, and who holds copies hears of every change. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/env.h"
#include "common/ipc.h"
#include "tests/lib/counterpart.h"
#include "tests/lib/late.h"
#include "worker/libdiloco/attach_types.h"

static float wide_of(enum diloco_type type, uint16_t half)
{
    float wide;
    attach_widen(type, &half, &wide, 1);
    return wide;
}

static uint16_t half_of(enum diloco_type type, float value)
{
    uint16_t half;
    attach_narrow(type, &value, &half, 1);
    return half;
}

/* ---- single values ---- */

/* By powers of two, from the definitions: bits of exponent and fraction. */
static double meaning(enum diloco_type type, uint16_t half)
{
    int fraction_bits = type == DILOCO_BF16 ? 7 : 10, bias = type == DILOCO_BF16 ? 127 : 15;
    int exponent = (half & 0x7fff) >> fraction_bits, fraction = half & ((1 << fraction_bits) - 1);
    double sign = half >> 15 ? -1 : 1;
    if (exponent == 2 * bias + 1)
        return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

static void every_value_means_what_it_should(void **state)
{
    (void)state;
    for (enum diloco_type type = DILOCO_BF16; type <= DILOCO_F16; type++)
        for (uint32_t half = 0; half < 65536; half++) {
            float wide = wide_of(type, (uint16_t)half);
            double want = meaning(type, (uint16_t)half);
            if (isnan(want) ? !isnan(wide) : (double)wide != want)
                fail_msg("type %d, %04x is %g, not %g", (int)type, half, (double)wide, want);
            if (isnan(want))
                assert_true(isnan(wide_of(type, half_of(type, wide))));
            else
                assert_int_equal(half_of(type, wide), half);
        }
}

/* Of two neighbours the nearer one, of two as near the even one. */
static void rounding_is_to_the_nearest(void **state)
{
    (void)state;
    for (enum diloco_type type = DILOCO_BF16; type <= DILOCO_F16; type++) {
        uint32_t largest = type == DILOCO_BF16 ? 0x7f7f : 0x7bff;
        for (uint32_t half = 0; half < largest; half++) {
            float low = wide_of(type, (uint16_t)half), high = wide_of(type, (uint16_t)(half + 1));
            float middle = low + (high - low) / 2;
            assert_int_equal(half_of(type, middle), half % 2 == 0 ? half : half + 1);
            assert_int_equal(half_of(type, nextafterf(middle, 0)), half);
            assert_int_equal(half_of(type, -nextafterf(middle, INFINITY)), 0x8000 | (half + 1));
        }
    }
    assert_int_equal(half_of(DILOCO_F16, 65519.0f), 0x7bff);
    assert_int_equal(half_of(DILOCO_F16, 65520.0f), 0x7c00);
    assert_int_equal(half_of(DILOCO_F16, -1e30f), 0xfc00);
    assert_int_equal(half_of(DILOCO_BF16, 3.4e38f), 0x7f80);
    assert_int_equal(attach_type_bytes((enum diloco_type)7), 0);
}

static void what_is_carried_makes_it_whole(void **state)
{
    (void)state;
    struct env_rng rng = env_rng_init(1, 1);
    for (enum diloco_type type = DILOCO_BF16; type <= DILOCO_F16; type++)
        for (int i = 0; i < 20000; i++) {
            float value = (float)env_rng_normal(&rng), rounded = value, carry = 9;
            attach_carry_out(type, &rounded, &carry, 1);
            assert_true(rounded == wide_of(type, half_of(type, value)));
            attach_carry_in(&rounded, &carry, 1);
            assert_true(rounded == value);
        }
    float bad[] = {INFINITY, NAN, 1e6f}, carry[3] = {1, 1, 1};
    attach_carry_out(DILOCO_F16, bad, carry, 3);
    assert_true(isinf(bad[0]) && isnan(bad[1]) && isinf(bad[2]));
    assert_true(carry[0] == 0 && carry[1] == 0 && carry[2] == 0);
}

/* ---- a tensor of 16 bits, on the host and on a device that knows it by a number ---- */

enum { AHEAD = 3, HANDLE = 77 };
static uint16_t half[AHEAD + COUNT];
static int handle = HANDLE;
static enum diloco_type type;
static struct late late;

enum place { ON_THE_HOST, ON_A_DEVICE, ON_ONE_THAT_COMPUTES, PLACES };

static int device_move(void *user, const struct diloco_move *move)
{
    (void)user;
    assert_ptr_equal(move->tensor, &handle);
    assert_int_equal(move->type, type);
    assert_true(move->kind == DILOCO_READ || move->kind == DILOCO_WRITE);
    assert_true(move->first >= AHEAD && move->first + move->rows * move->columns <= AHEAD + COUNT);
    uint16_t *live = half + move->first;
    for (size_t r = 0; r < move->rows; r++)
        for (size_t c = 0; c < move->columns; c++, live++) {
            float *host = &move->host[r * move->stride + c];
            if (move->kind == DILOCO_READ) {
                *host = (float)meaning(type, *live);
                continue;
            }
            *live = half_of(type, *host);
            assert_true((float)meaning(type, *live) == *host); /* nothing is left to round */
        }
    return 0;
}

static void begin_narrow(enum diloco_type of_type, enum place place)
{
    type = of_type;
    device = (struct diloco_device){0};
    if (place == ON_A_DEVICE)
        device = (struct diloco_device){.size = sizeof device, .move = device_move};
    if (place == ON_ONE_THAT_COMPUTES)
        device = late_device(&late, true);
    announced.data = place == ON_A_DEVICE ? (void *)&handle : half;
    announced.first = AHEAD;
    announced.type = type;
    memset(half, 0xff, sizeof half);
    begin();
}

static void restore_announced(void)
{
    for (int i = 0; i < AHEAD; i++)
        assert_int_equal(half[i], 0xffff);
    if (device.alloc != NULL) {
        assert_true(late.memory == 0 && late.pins == 0 && !late.broken && late.moves > 0);
        late_end(&late);
    }
    device = (struct diloco_device){0};
    announced.data = tensor;
    announced.first = 0;
    announced.type = DILOCO_F32;
}

static void end_narrow(void)
{
    end();
    restore_announced();
}

static int step_narrow(float by)
{
    for (int i = 0; i < COUNT; i++)
        half[AHEAD + i] = half_of(type, wide_of(type, half[AHEAD + i]) + by);
    return diloco_step(d, &(struct diloco_report){.size = sizeof(struct diloco_report), .tokens = 10});
}

static void for_each_kind(void (*story)(void))
{
    for (int kind = 0; kind < 2 * PLACES; kind++) {
        begin_narrow(kind % 2 == 0 ? DILOCO_BF16 : DILOCO_F16, (enum place)(kind / 2));
        story();
        end_narrow();
    }
}

static void assert_near(const float *values, float want)
{
    for (int i = 0; i < COUNT; i++)
        if (fabsf(values[i] - want) > 1e-4f)
            fail_msg("value %d is %g, not %g", i, (double)values[i], (double)want);
}

static const struct ipc_range reset[] = {{0, VALUES, IPC_RESET, 0}}, mixed[] = {{0, VALUES, IPC_MIX, 0}},
                              shifted[] = {{0, VALUES, IPC_SHIFT, 0}};

/* 1000.3 is no value of either type, nor is what mixes make of it. */
static void anchor_to_snapshot(void)
{
    bring_anchor(1, 1000.3f, reset, 1);
    assert_int_equal(step_narrow(0), DILOCO_OK);
    assert_true(half[AHEAD] == half_of(type, 1000.3f) && half[AHEAD + COUNT - 1] == half[AHEAD]);
    fragment->due_step = 2;
    assert_int_equal(step_narrow(8), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    assert_near(ipc_area(shm, fragment), 1008.3f);
    fragment->due_step = UINT64_MAX;
    bring_anchor(2, 900.7f, mixed, 1);
    assert_int_equal(step_narrow(0), DILOCO_OK);
    float want = 0.25f * 1008.3f + 0.75f * 900.7f;
    bring_anchor(3, 800.1f, shifted, 1);
    assert_int_equal(step_narrow(0), DILOCO_OK);
    want += 800.1f - 900.7f;
    fragment->due_step = 5;
    assert_int_equal(step_narrow(0), DILOCO_OK);
    assert_near(ipc_area(shm, fragment), want);
}

static void sixteen_bits_lose_nothing_of_the_run(void **state)
{
    (void)state;
    for_each_kind(anchor_to_snapshot);
}

static void set_aside_and_back(void)
{
    bring_anchor(1, 1000, reset, 1);
    assert_int_equal(step_narrow(0), DILOCO_OK);
    fragment->due_step = 2;
    assert_int_equal(step_narrow(8), DILOCO_OK);
    fragment->due_step = UINT64_MAX;
    assert_int_equal(step_narrow(8), DILOCO_OK);
    size_t bytes = diloco_keep_bytes(d);
    char *room = calloc(1, bytes);
    assert_true(diloco_keep(d, room, bytes) > 0);
    free(room);
    bring_anchor(2, 900.3f, mixed, 1);
    assert_int_equal(step_narrow(0), DILOCO_OK);
    fragment->due_step = 5;
    assert_int_equal(step_narrow(0), DILOCO_OK);
    assert_near(ipc_area(shm, fragment), 908.3f); /* what was learned since is still there */
}

/* A device that has no memory of its own to compute in gets no pointer to ours; one that has does all of it there. */
static void what_is_set_aside_is_kept_where_it_is_computed(void **state)
{
    (void)state;
    make_conf = (struct ipc_shm){.overlap = 2, .set_aside = 1};
    for_each_kind(set_aside_and_back);
    make_conf = (struct ipc_shm){.overlap = 1, .mix = 0.25};
}

static void every_change_is_told(void **state)
{
    (void)state;
    begin_narrow(DILOCO_BF16, ON_THE_HOST);
    assert_int_equal(diloco_changed(d, 0), 1); /* the run's parameters have come */
    assert_int_equal(step_narrow(1), DILOCO_OK);
    assert_int_equal(diloco_changed(d, 0), 0);
    assert_int_equal(diloco_changed(d, DILOCO_ANY), 0);
    fragment->due_step = 2;
    assert_int_equal(step_narrow(1), DILOCO_OK);
    assert_int_equal(diloco_changed(d, DILOCO_ANY), 0); /* it was only read */
    fragment->due_step = UINT64_MAX;
    bring_anchor(1, 5, mixed, 1);
    assert_int_equal(step_narrow(1), DILOCO_OK);
    assert_int_equal(diloco_changed(d, 0), 1);
    assert_int_equal(diloco_changed(d, DILOCO_ANY), 1);
    assert_int_equal(diloco_changed(d, 1), 0);
    assert_int_equal(diloco_changed(NULL, 0), 0);
    end_narrow();
}

/* ---- a checkpoint ---- */

static char *kept;
static size_t kept_bytes;

static void *serve_kept(void *unused)
{
    struct ipc_message go = {.type = IPC_GO, .go = {.step = 2}};
    struct ipc_message welcome = {
        .type = IPC_WELCOME, .welcome = {.session = SESSION, .bytes = SHM_BYTES, .islands_count = 1, .need_kept = 1}};
    hear_introduction(0);
    assert_ok(ipc_send(connection, &welcome, memfd));
    assert_hears(IPC_INITIAL);
    assert_int_equal(fragment->kept, IPC_KEPT_ALL);
    assert_ok(ipc_send(connection, &go, -1));
    return unused;
}

/* The tensors are what they were; the daemon's memory is new. */
static int come_again(const struct diloco_options *more)
{
    const char *path = listen_here();
    pthread_t thread;
    make_shm();
    struct diloco_options options = *more;
    options.size = sizeof options;
    options.socket_path = path;
    options.wait_ms = 2000;
    options.device = device.size != 0 ? &device : NULL;
    struct diloco_start start = {.size = sizeof start};
    assert_int_equal(pthread_create(&thread, NULL, serve_kept, NULL), 0);
    assert_int_equal(diloco_attach(&options, &d), DILOCO_OK);
    assert_int_equal(diloco_register(d, &announced), DILOCO_OK);
    int result = diloco_begin(d, &start);
    pthread_join(thread, NULL);
    return result;
}

static void what_is_carried_is_kept(void **state)
{
    (void)state;
    begin_narrow(DILOCO_BF16, ON_THE_HOST);
    bring_anchor(1, 1000.3f, reset, 1);
    assert_int_equal(step_narrow(0), DILOCO_OK);
    assert_int_equal(step_narrow(4), DILOCO_OK);
    kept_bytes = diloco_keep_bytes(d);
    kept = calloc(1, kept_bytes);
    kept_bytes = diloco_keep(d, kept, kept_bytes);
    assert_true(kept_bytes > 0);
    end();
    assert_int_equal(come_again(&(struct diloco_options){.kept = kept, .kept_bytes = kept_bytes}), DILOCO_OK);
    fragment->due_step = 3;
    assert_int_equal(step_narrow(0), DILOCO_OK);
    assert_near(ipc_area(shm, fragment), 1004.3f);
    free(kept);
    end_narrow();
}

static float apart[DILOCO_KEPT_KINDS][COUNT];
static bool there[DILOCO_KEPT_KINDS], given[DILOCO_KEPT_KINDS];

static int give_apart(void *user, int number, enum diloco_kept kind, float *values, uint64_t count)
{
    assert_ptr_equal(user, &apart);
    assert_int_equal(number, 0);
    assert_int_equal(count, COUNT);
    assert_true(there[kind] && !given[kind]);
    given[kind] = true;
    memcpy(values, apart[kind], count * sizeof *values);
    return 0;
}

/* All that is kept, in one piece. */
static char *keep_whole(size_t *bytes)
{
    *bytes = diloco_keep_bytes(d);
    char *whole = calloc(1, *bytes);
    *bytes = diloco_keep(d, whole, *bytes);
    assert_true(*bytes > 0);
    return whole;
}

static void keep_apart(void)
{
    assert_int_equal(diloco_keep_begin(d), DILOCO_OK);
    memset(given, 0, sizeof given);
    for (enum diloco_kept kind = 0; kind < DILOCO_KEPT_KINDS; kind++) {
        there[kind] = diloco_keep_values(d, 0, kind, NULL, 0) == 1;
        assert_int_equal(diloco_keep_values(d, 0, kind, apart[kind], COUNT), there[kind] ? DILOCO_OK : DILOCO_ERROR);
    }
    kept_bytes = diloco_keep_rest_bytes(d);
    kept = calloc(1, kept_bytes);
    assert_int_equal(diloco_keep_rest(d, kept, kept_bytes - 1), 0);
    assert_int_equal(diloco_keep_rest(d, kept, kept_bytes), kept_bytes);
}

/* Kept a tensor at a time and taken in again, what is kept in one piece is what it was before, to the bit. */
static void kept_apart_and_back(void)
{
    size_t bytes, after_bytes;
    bring_anchor(1, 1000.3f, reset, 1);
    assert_int_equal(step_narrow(0), DILOCO_OK);
    fragment->due_step = 2;
    assert_int_equal(step_narrow(8), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    char *whole = keep_whole(&bytes);
    keep_apart();
    assert_near(apart[DILOCO_KEPT_ANCHOR], 1000.3f);
    assert_near(apart[DILOCO_KEPT_SENT], 1008.3f);
    end();
    assert_int_equal(
        come_again(&(struct diloco_options){
            .kept = kept, .kept_bytes = kept_bytes, .kept_values = give_apart, .kept_values_user = &apart}),
        DILOCO_OK);
    assert_memory_equal(given, there, sizeof given);
    char *after = keep_whole(&after_bytes);
    assert_int_equal(bytes, after_bytes);
    assert_memory_equal(whole, after, bytes);
    free(whole);
    free(after);
    free(kept);
}

static void what_is_kept_a_tensor_at_a_time_is_all_of_it(void **state)
{
    (void)state;
    for_each_kind(kept_apart_and_back);
    make_conf = (struct ipc_shm){.overlap = 2, .set_aside = 1};
    for_each_kind(kept_apart_and_back);
    make_conf =
        (struct ipc_shm){.overlap = 2, .set_aside = 1, .eager_fresh = 0.5, .eager_past = 0.25, .eager_decay = 0.5};
    for_each_kind(kept_apart_and_back);
    make_conf = (struct ipc_shm){.overlap = 1, .mix = 0.25};
}

static int give_nothing(void *user, int number, enum diloco_kept kind, float *values, uint64_t count)
{
    (void)user, (void)number, (void)kind, (void)values, (void)count;
    return -1;
}

static void *serve_in_vain(void *unused)
{
    struct ipc_message welcome = {
        .type = IPC_WELCOME, .welcome = {.session = SESSION, .bytes = SHM_BYTES, .islands_count = 1, .need_kept = 1}};
    hear_introduction(0);
    assert_ok(ipc_send(connection, &welcome, memfd));
    return unused;
}

static void assert_in_vain(int (*values)(void *, int, enum diloco_kept, float *, uint64_t), const char *why)
{
    const char *path = listen_here();
    pthread_t thread;
    make_shm();
    struct diloco_options options = {.size = sizeof options,
                                     .socket_path = path,
                                     .wait_ms = 2000,
                                     .kept = kept,
                                     .kept_bytes = kept_bytes,
                                     .kept_values = values};
    struct diloco_start start = {.size = sizeof start};
    assert_int_equal(pthread_create(&thread, NULL, serve_in_vain, NULL), 0);
    assert_int_equal(diloco_attach(&options, &d), DILOCO_OK);
    assert_int_equal(diloco_register(d, &announced), DILOCO_OK);
    assert_int_equal(diloco_begin(d, &start), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d), why));
    pthread_join(thread, NULL);
    end();
}

static void values_that_are_not_to_be_had_are_named(void **state)
{
    (void)state;
    begin_narrow(DILOCO_BF16, ON_THE_HOST);
    assert_int_equal(diloco_keep_values(d, 0, DILOCO_KEPT_ANCHOR, apart[0], COUNT - 1), DILOCO_ERROR);
    assert_int_equal(diloco_keep_values(d, 1, DILOCO_KEPT_ANCHOR, apart[0], COUNT), DILOCO_ERROR);
    assert_int_equal(diloco_keep_values(d, 0, DILOCO_KEPT_KINDS, apart[0], COUNT), DILOCO_ERROR);
    assert_int_equal(diloco_keep_values(NULL, 0, DILOCO_KEPT_ANCHOR, apart[0], COUNT), DILOCO_ERROR);
    keep_apart();
    end();
    assert_in_vain(give_nothing, "options.kept_values has not what the checkpoint kept of tensor w");
    assert_in_vain(NULL, "options.kept is of diloco_keep_rest(), and options.kept_values is NULL");
    free(kept);
    restore_announced();
}

/* ---- registration ---- */

static void *serve_names(void *said)
{
    char *to = said;
    struct ipc_message message;
    connection = accept(listener, NULL, NULL);
    do {
        int fd;
        message = hear(&fd);
        if (message.type == IPC_TENSOR) {
            strcat(to, message.tensor.name);
            strcat(to, " ");
        }
    } while (message.type != IPC_REGISTERED);
    close(connection);
    return NULL;
}

static void any_order_is_the_same_order(void **state)
{
    static const char *const orders[2][5] = {{"norm", "layers.1.b", "layers.0.z", "embed", "layers.0.a"},
                                             {"layers.0.a", "layers.0.z", "layers.1.b", "embed", "norm"}};
    (void)state;
    for (int o = 0; o < 2; o++) {
        const char *path = listen_here();
        char said[200] = "";
        float values[5][4];
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, serve_names, said), 0);
        struct diloco_options options = {.size = sizeof options, .socket_path = path, .wait_ms = 2000};
        struct diloco_start start = {.size = sizeof start};
        assert_int_equal(diloco_attach(&options, &d), DILOCO_OK);
        for (int t = 0; t < 5; t++) {
            struct diloco_tensor one = {.size = sizeof one,
                                        .name = orders[o][t],
                                        .data = values[t],
                                        .dims = 1,
                                        .shape = {4},
                                        .layer = DILOCO_LAYER_FROM_NAME};
            assert_int_equal(diloco_register(d, &one), DILOCO_OK);
            one.data = &values[t][4];
            assert_int_equal(diloco_register(d, &one), DILOCO_ERROR);
            assert_non_null(strstr(diloco_error(d), "is registered twice"));
        }
        while_waiting = NULL;
        assert_true(diloco_begin(d, &start) != DILOCO_OK); /* it hung up */
        pthread_join(thread, NULL);
        assert_string_equal(said, "embed norm layers.0.a layers.0.z layers.1.b ");
        diloco_detach(d);
        close(listener);
    }
}

static void a_type_or_place_that_is_none_is_refused(void **state)
{
    (void)state;
    begin();
    end();
    const char *path = listen_here();
    struct diloco_options options = {.size = sizeof options, .socket_path = path, .wait_ms = 2000};
    assert_int_equal(diloco_attach(&options, &d), DILOCO_OK);
    struct diloco_tensor one = announced;
    one.type = (enum diloco_type)3;
    assert_int_equal(diloco_register(d, &one), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d), "has type 3"));
    one.type = DILOCO_BF16;
    one.first = UINT64_MAX - 2;
    assert_int_equal(diloco_register(d, &one), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d), "where no memory can be"));
    one.first = 0;
    assert_int_equal(diloco_register(d, &one), DILOCO_OK);
    one.name = "half of it";
    one.first = COUNT - 1; /* of 16 bits: its last value is the first one's last */
    assert_int_equal(diloco_register(d, &one), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d), "shares memory"));
    one.first = COUNT;
    assert_int_equal(diloco_register(d, &one), DILOCO_OK);
    diloco_detach(d);
    close(listener);
}

/* What a device calls an array says nothing about where it lies. */
static void a_devices_names_are_its_own(void **state)
{
    (void)state;
    static int names[2];
    struct diloco_device own = {.size = sizeof own, .move = device_move};
    const char *path = listen_here();
    struct diloco_options options = {.size = sizeof options, .socket_path = path, .wait_ms = 2000, .device = &own};
    assert_int_equal(diloco_attach(&options, &d), DILOCO_OK);
    struct diloco_tensor one = announced;
    one.data = &names[0];
    assert_int_equal(diloco_register(d, &one), DILOCO_OK);
    one.name = "beside it";
    one.data = &names[1];
    assert_int_equal(diloco_register(d, &one), DILOCO_OK);
    one.name = "behind it";
    one.first = COUNT;
    assert_int_equal(diloco_register(d, &one), DILOCO_OK);
    one.name = "in it";
    one.first = 1;
    assert_int_equal(diloco_register(d, &one), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d), "shares memory with tensor \"beside it\""));
    diloco_detach(d);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_means_what_it_should),
        cmocka_unit_test(rounding_is_to_the_nearest),
        cmocka_unit_test(what_is_carried_makes_it_whole),
        cmocka_unit_test(sixteen_bits_lose_nothing_of_the_run),
        cmocka_unit_test(what_is_set_aside_is_kept_where_it_is_computed),
        cmocka_unit_test(every_change_is_told),
        cmocka_unit_test(what_is_carried_is_kept),
        cmocka_unit_test(what_is_kept_a_tensor_at_a_time_is_all_of_it),
        cmocka_unit_test(values_that_are_not_to_be_had_are_named),
        cmocka_unit_test(any_order_is_the_same_order),
        cmocka_unit_test(a_type_or_place_that_is_none_is_refused),
        cmocka_unit_test(a_devices_names_are_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
