/* What a run spec means to outer_opt: the numbers of a round. */
#include "tests/lib/testlib.h"

#include <math.h>

#include "common/digest.h"
#include "daemon/rules.h"

static void load(struct runspec *spec)
{
    assert_ok(runspec_parse("[run]\nname = r\nsteps = 93600\n[train]\nlr = 0.008\nlr_final = 0.001\nwarmup = 10000\n"
                            "[sync]\ninterval = 4\noverlap = 1\ngrowth = 0.0175\n[outer]\nlr = 0.7\nmomentum = 0.9\n",
                            "text", spec));
}

static bool is_plain(struct outer_round round)
{
    return round.scale == 1 && round.momentum == 0.9f && round.lr == 0.7f;
}

static void an_interval_is_what_the_schedule_has(void **state)
{
    (void)state;
    struct runspec spec;
    load(&spec);
    /* During warm-up the interval is 4 steps, however far an island has skipped or says it is. */
    assert_true(is_plain(rules_round(&spec, 1, 0, 1, 0, 4)));
    assert_true(is_plain(rules_round(&spec, 1, 0, 1, 0, 6000)));
    assert_true(is_plain(rules_round(&spec, 1, 0, 1, 0, (uint64_t)1 << 62)));
    assert_true(is_plain(rules_round(&spec, 1, 0, 1, UINT64_MAX, UINT64_MAX)));
    /* Near the end it is long: momentum has decayed, the mean is brought to one of 4 steps, and lr makes up for it. */
    struct schedule schedule = rules_schedule(&spec, 1);
    uint64_t due = schedule_next_due(&schedule, 0, 80000);
    uint64_t next = schedule_next_due(&schedule, 0, due);
    assert_true(next - due > 100);
    struct outer_round round = rules_round(&spec, 1, 0, 9, due, next);
    print_message("interval of %d steps: scale %g, momentum %g, lr %g\n", (int)(next - due), (double)round.scale,
                  (double)round.momentum, (double)round.lr);
    assert_true(round.scale < 0.05f && round.momentum < 0.1f && round.lr > 10);
    assert_true(fabsf(round.scale * round.lr - 0.7f) < 1e-5f);
    struct outer_round wild = rules_round(&spec, 1, 0, 9, due, (uint64_t)1 << 62);
    assert_true(wild.scale == round.scale && wild.momentum == round.momentum && wild.lr == round.lr);
    runspec_deinit(&spec);
}

static void what_the_daemon_cannot_do_is_refused(void **state)
{
    (void)state;
    struct runspec spec;
    assert_ok(runspec_parse("[run]\nname = r\nsteps = 9\n[sync]\ninterval = 5\noverlap = 5\nmix = 0\n", "text", &spec));
    assert_fails(ERR_CONF, "just before it is contributed", rules_check(&spec));
    spec.mix = 0.5;
    assert_ok(rules_check(&spec));
    runspec_deinit(&spec);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interval_is_what_the_schedule_has),
        cmocka_unit_test(what_the_daemon_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
