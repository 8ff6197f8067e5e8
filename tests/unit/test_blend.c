/* SPDX-License-Identifier: Apache-2.0 */
/* blend: every window is of one source, in proportion at every position, whatever the weights do; and any position can
 * be asked for by itself. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "worker/blend.h"

static struct blend *blend_of(const char *line, uint64_t windows_per_step)
{
    struct mixture mixture;
    struct blend *blend;
    assert_ok(mixture_parse(line, NULL, &mixture));
    assert_ok(mixture_check(&mixture));
    assert_ok(blend_new(&mixture, windows_per_step, &blend));
    mixture_free(&mixture);
    return blend;
}

/* Walks `positions` windows: each source's are 0, 1, 2, ... and counts agree. With `shares` each source is within
 * `slack` of its own. Returns how far one was off at most. */
static double walk(const struct blend *blend, size_t sources, uint64_t positions, const double *shares, double slack)
{
    uint64_t mine[MIXTURE_SOURCES_MAX] = {0}, counts[MIXTURE_SOURCES_MAX];
    double most = 0;
    for (uint64_t p = 0; p < positions; p++) {
        blend_counts(blend, p, counts);
        assert_memory_equal(counts, mine, sources * sizeof *mine);
        struct blend_place place = blend_at(blend, p);
        assert_true(place.source < sources);
        assert_int_equal(place.index, mine[place.source]);
        mine[place.source]++;
        for (size_t i = 0; shares != NULL && i < sources; i++)
            most = fmax(most, fabs((double)mine[i] - shares[i] * (double)(p + 1)));
    }
    if (most > slack)
        fail_msg("%f windows off", most);
    return most;
}

static void two_sources_are_within_a_window_of_their_shares(void **state)
{
    (void)state;
    struct blend *blend = blend_of("web=a:0.7 code=b:0.3", 8);
    walk(blend, 2, 20000, (const double[]){0.7, 0.3}, 0.52);
    blend_free(blend);
    blend = blend_of("web=a:2 code=b:1", 8); /* a third is no binary fraction */
    walk(blend, 2, 20000, (const double[]){2.0 / 3, 1.0 / 3}, 0.52);
    blend_free(blend);
}

static void three_are_within_a_window_and_many_within_half_their_number(void **state)
{
    (void)state;
    struct blend *blend = blend_of("a=a:0.5 b=b:0.3 c=c:0.2", 8);
    walk(blend, 3, 20000, (const double[]){0.5, 0.3, 0.2}, 1);
    blend_free(blend);
    blend = blend_of("a=a:1 b=b:1 c=c:1", 8); /* all fall due at once */
    walk(blend, 3, 9999, (const double[]){1.0 / 3, 1.0 / 3, 1.0 / 3}, 1);
    blend_free(blend);
    blend = blend_of("a=a:91 b=b:1 c=c:1 d=d:1 e=e:1 f=f:1 g=g:1 h=h:1 i=i:1 j=j:1", 8);
    walk(blend, 10, 20000, (const double[]){0.91, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01}, 5);
    blend_free(blend);
}

static void any_weights_are_kept(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < testlib_seeds(40); seed++) {
        struct env_rng rng = env_rng_init(seed, 0);
        double weights[12], shares[12], sum = 0;
        size_t sources = 1 + (size_t)(env_rng_uniform(&rng) * 11.99);
        for (size_t i = 0; i < sources; i++)
            sum += weights[i] = i == 0 ? 1 : pow(env_rng_uniform(&rng), 4);
        for (size_t i = 0; i < sources; i++)
            shares[i] = weights[i] / sum;
        struct blend *blend;
        assert_ok(blend_even(weights, sources, &blend));
        walk(blend, sources, 2000, shares, sources < 4 ? 1 : (double)sources / 2 + 0.02);
        blend_free(blend);
    }
}

/* Windows of source 0 among the first `position`. */
static double of_first(const struct blend *blend, uint64_t position)
{
    uint64_t counts[MIXTURE_SOURCES_MAX];
    blend_counts(blend, position, counts);
    return (double)counts[0];
}

static void weights_change_with_the_steps_of_the_run(void **state)
{
    (void)state;
    /* From 0.7 to 0.5 in 100 steps of 8 windows: 0.6 of 800 by then, and of any stretch what its middle has. */
    struct blend *blend = blend_of("web=a:0.7@0,0.5@100 code=b:0.3@0,0.5@100", 8);
    walk(blend, 2, 3000, NULL, 0);
    assert_true(fabs(of_first(blend, 400) - 0.65 * 400) <= 1);
    double shares[2];
    blend_shares(blend, 1600, shares);
    assert_true(fabs(shares[0] - 0.55) < 1e-6 && fabs(shares[1] - 0.45) < 1e-6);
    assert_true(fabs(of_first(blend, 800) - 0.6 * 800) <= 1);
    assert_true(fabs(of_first(blend, 2800) - (0.6 * 800 + 0.5 * 2000)) <= 1);
    blend_free(blend);
    /* Before the first point and after the last nothing changes; a jump is two steps that follow each other. */
    blend = blend_of("web=a:1@50,1@100,3@101 code=b:1", 4);
    assert_true(fabs(of_first(blend, 400) - 200) <= 1);
    assert_true(fabs(of_first(blend, 404 + 4000) - (200 + 2.5 + 3000)) <= 1.5);
    blend_free(blend);
}

static void a_source_of_weight_0_is_not_drawn_while_it_lasts(void **state)
{
    (void)state;
    struct blend *blend = blend_of("web=a:1 late=b:0@100,1@200 off=c:0 early=d:1@10,0@11", 10);
    uint64_t counts[4];
    walk(blend, 4, 5000, NULL, 0);
    blend_counts(blend, 1000, counts);
    assert_int_equal(counts[1], 0);
    assert_true(fabs((double)counts[3] - 52.5) <= 2);
    uint64_t early = counts[3];
    blend_counts(blend, 1000000, counts);
    assert_int_equal(counts[2], 0);
    assert_int_equal(counts[3], early);                               /* none after step 11 */
    assert_true(fabs((double)counts[1] - (998000 / 2.0 + 250)) <= 2); /* a ramp of 1000 windows, then half of all */
    blend_free(blend);
}

static void positions_far_out_are_exact(void **state)
{
    (void)state;
    struct blend *blend = blend_of("web=a:0.7@0,0.5@1000000000 code=b:0.3@0,0.5@1000000000 c=c:0.0001", 1000);
    uint64_t far = (uint64_t)1 << 47, counts[3], next[3];
    for (uint64_t p = far; p < far + 2000; p++) {
        blend_counts(blend, p, counts);
        blend_counts(blend, p + 1, next);
        struct blend_place place = blend_at(blend, p);
        assert_int_equal(counts[0] + counts[1] + counts[2], p);
        assert_int_equal(counts[place.source], place.index);
        counts[place.source]++;
        assert_memory_equal(counts, next, sizeof next);
    }
    blend_free(blend);
}

static void one_source_has_every_window(void **state)
{
    (void)state;
    struct blend *blend = blend_of("/srv/book.txt", 1);
    struct blend_place place = blend_at(blend, 123456789);
    assert_int_equal(place.source, 0);
    assert_int_equal(place.index, 123456789);
    walk(blend, 1, 100, (const double[]){1}, 0);
    blend_free(blend);
}

static void a_step_beyond_any_run_is_refused(void **state)
{
    (void)state;
    struct mixture mixture;
    struct blend *blend;
    assert_ok(mixture_parse("a=x:1@0,2@1000000000000", NULL, &mixture));
    assert_fails(ERR_CONF, "weights at step 1000000000000 of the run, of 1000 windows each: no run is so long",
                 blend_new(&mixture, 1000, &blend));
    assert_ok(blend_new(&mixture, 100, &blend));
    blend_free(blend);
    mixture_free(&mixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sources_are_within_a_window_of_their_shares),
        cmocka_unit_test(three_are_within_a_window_and_many_within_half_their_number),
        cmocka_unit_test(any_weights_are_kept),
        cmocka_unit_test(weights_change_with_the_steps_of_the_run),
        cmocka_unit_test(a_source_of_weight_0_is_not_drawn_while_it_lasts),
        cmocka_unit_test(positions_far_out_are_exact),
        cmocka_unit_test(one_source_has_every_window),
        cmocka_unit_test(a_step_beyond_any_run_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
