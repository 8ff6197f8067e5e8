/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, copies and queues; roundings; and what the exchange between islands does to parameters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "kernels/kern_host.h"
#include "tests/kern/arrays.h"
#include "tests/kern/cases.h"
#include "worker/libdiloco/aside.h"

static void memory_is_zeroed_and_counted(void **state)
{
    (void)state;
    size_t free_bytes, total;
    unsigned char host[1000];
    void *array;
    assert_ok(kern->memory(dev, &free_bytes, &total));
    assert_true(free_bytes > 0 && free_bytes <= total);
    assert_ok(kern->alloc(dev, sizeof host, "an array", &array));
    memset(host, 1, sizeof host);
    kern->copy(dev, KERN_MAIN, host, array, sizeof host);
    for (size_t i = 0; i < sizeof host; i++)
        assert_true(host[i] == 0);
    kern->free(dev, array);
    kern->free(dev, NULL);
    assert_fails(ERR_NOMEM, "the moon", kern->alloc(dev, (size_t)1 << 60, "the moon", &array));
}

static void it_says_what_it_is_in_one_line(void **state)
{
    (void)state;
    char text[160], brief[8];
    kern->describe(dev, text, sizeof text);
    assert_true(strlen(text) > 0 && strlen(text) < sizeof text - 1);
    assert_true(strcspn(text, ",") > 0); /* its name */
    assert_null(strchr(text, '\n'));
    memset(brief, 'x', sizeof brief);
    kern->describe(dev, brief, sizeof brief - 1);
    assert_true(brief[sizeof brief - 1] == 'x'); /* nobody's */
    assert_int_equal(strlen(brief), sizeof brief - 2);
    assert_int_equal(strncmp(text, brief, sizeof brief - 2), 0);
}

/* Between the smallest part of a GPU and what there will be one day. */
static void what_it_can_do_at_best_is_not_known_or_sensible(void **state)
{
    (void)state;
    double peak = kern->peak_flops(dev);
    assert_true(peak == 0 || (peak > 1e12 && peak < 1e17));
    assert_true(kern->peak_flops(dev) == peak);
}

/* What is in pinned memory after the queue has come so far is what was on the device when the copy was its turn. */
static void queues_keep_their_order(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct kern_host host;
    struct array a = array_new(ARRAY_FLOAT, N, 1), b = array_out(ARRAY_FLOAT, N), c = array_out(ARRAY_FLOAT, N);
    assert_ok(kern_host_new(kern, dev, N * sizeof(float), "memory for copies", &host));
    float *there = host.bytes;
    /* MAIN makes b, COPY takes it out when it is made; MAIN goes on meanwhile. */
    kern->copy(dev, KERN_MAIN, b.dev, a.dev, N * sizeof(float));
    kern->order(dev, KERN_COPY, KERN_MAIN);
    kern->copy(dev, KERN_COPY, there, b.dev, N * sizeof(float));
    uint64_t out = kern->mark(dev, KERN_COPY);
    for (long tries = 0; !kern->reached(dev, out); tries++)
        assert_true(tries < 100000000);
    assert_ok(kern->wait(dev, out));
    for (int i = 0; i < N; i++)
        assert_true((double)there[i] == a.d[i]);
    /* In again by COPY; MAIN uses it only when it is there. */
    for (int i = 0; i < N; i++)
        there[i] = (float)i;
    kern->copy(dev, KERN_COPY, c.dev, there, N * sizeof(float));
    kern->order(dev, KERN_MAIN, KERN_COPY);
    kern->copy(dev, KERN_MAIN, b.dev, c.dev, N * sizeof(float));
    uint64_t in = kern->mark(dev, KERN_MAIN);
    assert_true(out != 0 && in > out);
    const float *read = array_read(&b);
    for (int i = 0; i < N; i++)
        assert_true(read[i] == (float)i);
    assert_ok(kern->wait(dev, in));
    assert_true(kern->reached(dev, in));
    assert_ok(kern->fault(dev));
    kern_host_free(kern, dev, &host);
    assert_true(host.bytes == NULL);
    arrays_free(&a, &b, &c, NULL);
}

static void rows_are_copied_with_strides(void **state)
{
    (void)state;
    struct array from = array_new(ARRAY_FLOAT, 7 * 20, 1), to = array_out(ARRAY_FLOAT, 7 * 13);
    kern->copy_rows(dev, KERN_MAIN, (float *)to.dev + 2, 13 * sizeof(float), (float *)from.dev + 5, 20 * sizeof(float),
                    9 * sizeof(float), 7);
    const float *read = array_read(&to);
    for (int r = 0; r < 7; r++)
        for (int i = 0; i < 13; i++)
            if (i >= 2 && i < 11)
                assert_true((double)read[r * 13 + i] == from.d[r * 20 + 5 + i - 2]);
            else
                assert_true(isnan(read[r * 13 + i]));
    arrays_free(&from, &to, NULL);
}

static void rounding_is_to_nearest(void **state)
{
    (void)state;
    /* ties to even both ways, the largest, one that becomes infinite, the smallest, NaN */
    static const double special[] = {1 + 1.0 / 256, 1 + 3.0 / 256, -1 - 1.0 / 256, 3.38e38, 3.4e38, 1e-45, 0.0, -0.0};
    enum { SPECIAL = 8, N = 3003 };
    struct array x = array_new(ARRAY_FLOAT, N, 1), act = array_out(ARRAY_ACT, N), back = array_out(ARRAY_FLOAT, N);
    memcpy(x.d, special, sizeof special);
    x.d[SPECIAL] = NAN;
    x.d[SPECIAL + 1] = INFINITY;
    array_write(&x);
    struct array want = array_of(ARRAY_ACT, x.d, N);
    kern->to_act(dev, act.dev, x.dev, N);
    kern->from_act(dev, back.dev, act.dev, N);
    const float *got = array_read(&act), *again = array_read(&back);
    for (int i = 0; i < N; i++) {
        float rounded = (float)want.d[i];
        assert_true(isnan(got[i]) == isnan(rounded));
        assert_true(isnan(rounded) || memcmp(&got[i], &rounded, sizeof rounded) == 0);
        assert_true(isnan(rounded) || memcmp(&again[i], &rounded, sizeof rounded) == 0);
    }
    arrays_free(&x, &act, &back, &want, NULL);
}

/* ---- moves ---- */

enum { COUNT = 5003 };

struct moved {
    struct array live, act, base, anchor, aside, past;
    float *host_live, *host_base, *host_anchor, *host_aside, *host_past; /* for the functions of libdiloco */
};

static float *floats(const struct array *a)
{
    float *out = calloc((size_t)a->count, sizeof *out);
    for (int64_t i = 0; i < a->count; i++)
        out[i] = (float)a->d[i];
    return out;
}

static struct moved moved_new(void)
{
    struct moved m = {.live = array_new(ARRAY_FLOAT, COUNT, 1),
                      .act = array_out(ARRAY_ACT, COUNT),
                      .base = array_new(ARRAY_FLOAT, COUNT, 1),
                      .anchor = array_new(ARRAY_FLOAT, COUNT, 1),
                      .aside = array_new(ARRAY_FLOAT, COUNT, 1),
                      .past = array_new(ARRAY_FLOAT, COUNT, 1)};
    m.host_live = floats(&m.live);
    m.host_base = floats(&m.base);
    m.host_anchor = floats(&m.anchor);
    m.host_aside = floats(&m.aside);
    m.host_past = floats(&m.past);
    return m;
}

static void same(const char *what, struct array *a, const float *host)
{
    const float *read = array_read(a);
    for (int64_t i = 0; i < a->count; i++)
        if (isnan(host[i]) ? !isnan(read[i]) : !(fabs((double)read[i] - (double)host[i]) < 1e-5))
            fail_msg("%s: element %ld is %g, not %g", what, (long)i, (double)read[i], (double)host[i]);
}

/* The live values, their copy, and what else was changed, as on the host. */
static void moved_end(const char *what, struct moved *m)
{
    same(what, &m->live, m->host_live);
    same(what, &m->aside, m->host_aside);
    same(what, &m->past, m->host_past);
    same(what, &m->base, m->host_base);
    same(what, &m->anchor, m->host_anchor);
    const float *act = array_read(&m->act);
    for (int64_t i = 0; i < COUNT; i++)
        if (isfinite(m->host_live[i]) &&
            !(fabs((double)(act[i] - m->host_live[i])) <= fabs((double)m->host_live[i]) / 256 + 1e-5))
            fail_msg("%s: act %ld is %g, live %g", what, (long)i, (double)act[i], (double)m->host_live[i]);
    free(m->host_live);
    free(m->host_base);
    free(m->host_anchor);
    free(m->host_aside);
    free(m->host_past);
    arrays_free(&m->live, &m->act, &m->base, &m->anchor, &m->aside, &m->past, NULL);
}

static void anchors_are_mixed_in(void **state)
{
    (void)state;
    static const float keeps[] = {0, 0.5f, 0.9f};
    for (int k = 0; k < 3; k++) {
        struct moved m = moved_new();
        m.live.d[9] = INFINITY;
        m.host_live[9] = INFINITY;
        array_write(&m.live);
        kern->mix(dev, m.live.dev, m.act.dev, m.anchor.dev, COUNT, keeps[k]);
        for (int i = 0; i < COUNT; i++)
            m.host_live[i] =
                keeps[k] == 0 ? m.host_anchor[i] : keeps[k] * m.host_live[i] + (1 - keeps[k]) * m.host_anchor[i];
        if (k > 0)
            assert_true(isinf(array_read(&m.live)[9]));
        m.live.d[9] = m.host_anchor[9]; /* an Inf is not within 1e-5 of itself */
        m.host_live[9] = m.host_anchor[9];
        if (k > 0)
            kern->mix(dev, (float *)m.live.dev + 9, (char *)m.act.dev + 9 * kern->act_bytes, (float *)m.anchor.dev + 9,
                      1, 0);
        moved_end("mix", &m);
    }
    struct moved m = moved_new();
    kern->shift(dev, m.live.dev, m.act.dev, m.anchor.dev, m.base.dev, COUNT);
    for (int i = 0; i < COUNT; i++)
        m.host_live[i] += m.host_anchor[i] - m.host_base[i];
    moved_end("shift", &m);
}

static void work_is_set_aside(void **state)
{
    (void)state;
    static const struct kern_aside rules[] = {
        {.keep = 0}, {.keep = 0.3f}, {.fresh = 0.6f, .past = 0.2f, .decay = 0.9f}};
    for (int r = 0; r < 3; r++) {
        const struct kern_aside k = rules[r];
        const struct aside_rule rule = {k.keep, k.fresh, k.past, k.decay};
        bool eager = k.fresh != 0;
        for (int move = 0; move < 5; move++) {
            struct moved m = moved_new();
            float *past = eager ? m.host_past : NULL, *dev_past = eager ? m.past.dev : NULL;
            int32_t *bad = arrays_tokens((const int32_t[]){0}, 1);
            m.host_live[3] = move == 0 ? NAN : m.host_live[3]; /* in a snapshot */
            m.host_aside[4] = move > 2 ? NAN : m.host_aside[4];
            m.live.d[3] = (double)m.host_live[3];
            m.aside.d[4] = (double)m.host_aside[4];
            array_write(&m.live);
            array_write(&m.aside);
            if (move == 0) {
                kern->aside_out(dev, m.live.dev, m.act.dev, m.base.dev, m.aside.dev, dev_past, COUNT, k);
                aside_out(&rule, m.host_live, m.host_base, m.host_aside, past, COUNT);
            } else if (move <= 2) {
                kern->aside_in(dev, m.live.dev, m.act.dev, m.base.dev, m.anchor.dev, m.aside.dev, dev_past, move == 1,
                               COUNT, k);
                aside_in(&rule, m.host_live, m.host_base, m.host_anchor, m.host_aside, past, move == 1, COUNT);
            } else {
                if (move == 4)
                    kern->find_bad(dev, bad, m.aside.dev, COUNT);
                kern->aside_off(dev, m.live.dev, m.act.dev, m.aside.dev, dev_past, bad, COUNT, k);
                aside_off(&rule, m.host_live, m.host_aside, past, move == 3, COUNT);
            }
            kern->free(dev, bad);
            moved_end("aside", &m);
        }
    }
}

static void what_is_bad_is_found(void **state)
{
    (void)state;
    static const double bad_values[] = {NAN, INFINITY, -INFINITY};
    int32_t zero = 0, got;
    int32_t *bad = arrays_tokens(&zero, 1);
    struct array x = array_new(ARRAY_FLOAT, COUNT, 1e30);
    kern->find_bad(dev, bad, x.dev, COUNT);
    kern->copy(dev, KERN_MAIN, &got, bad, sizeof got);
    assert_true(got == 0);
    for (int i = 0; i < 3; i++) {
        double saved = x.d[COUNT - 1 - i];
        x.d[COUNT - 1 - i] = bad_values[i];
        array_write(&x);
        x.d[COUNT - 1 - i] = saved;
        kern->copy(dev, KERN_MAIN, bad, &zero, sizeof zero);
        kern->find_bad(dev, bad, x.dev, COUNT);
        kern->copy(dev, KERN_MAIN, &got, bad, sizeof got);
        assert_true(got == 1);
    }
    kern->free(dev, bad);
    array_free(&x);
}

const struct CMUnitTest cases_move[] = {
    cmocka_unit_test(memory_is_zeroed_and_counted),
    cmocka_unit_test(it_says_what_it_is_in_one_line),
    cmocka_unit_test(what_it_can_do_at_best_is_not_known_or_sensible),
    cmocka_unit_test(queues_keep_their_order),
    cmocka_unit_test(rows_are_copied_with_strides),
    cmocka_unit_test(rounding_is_to_nearest),
    cmocka_unit_test(anchors_are_mixed_in),
    cmocka_unit_test(work_is_set_aside),
    cmocka_unit_test(what_is_bad_is_found),
};
const size_t cases_move_count = sizeof cases_move / sizeof cases_move[0];
