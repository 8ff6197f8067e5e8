/* ctl_plan: what makes no sense is refused with the reason, and what is recommended is not. What a forecast comes to is
 * tested in tests/num. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "common/runspec.h"
#include "daemon/ctl/ctl_plan.h"

static void a_plan_that_makes_no_sense_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct ctl_plan good = {.params = 1e6,
                                         .step_s = 1,
                                         .layers = 4,
                                         .islands = 2,
                                         .interval = 100,
                                         .overlap = 1,
                                         .bandwidth = "1Mbit",
                                         .rtt_ms = 10};
    struct ctl_plan plan;
#define REFUSES(field, value, part)                   \
    do {                                              \
        plan = good;                                  \
        plan.field = value;                           \
        assert_fails(ERR_ARG, part, ctl_plan(&plan)); \
    } while (0)
    REFUSES(params, 0, "--params");
    REFUSES(step_s, 0, "--step-time");
    REFUSES(bandwidth, NULL, "--bandwidth");
    REFUSES(bandwidth, "fast", "is no rate");
    REFUSES(bandwidth, "-1Mbit", "is no rate");
    REFUSES(bandwidth, "1Mb", "is no rate");
    REFUSES(islands, 1, "--islands");
    REFUSES(islands, 1025, "--islands");
    REFUSES(layers, 0, "--layers");
    REFUSES(overlap, 101, "--overlap");
    REFUSES(interval, 0, "--overlap");
    REFUSES(loss, 0.95, "--loss");
    REFUSES(rtt_ms, -1, "--rtt");
}

/* Whoever takes what is recommended must not be refused. */
static void every_run_spec_that_is_recommended_loads(void **state)
{
    (void)state;
    for (size_t which = 0; which < ctl_plan_specs(); which++)
        for (uint64_t overlap = 0; overlap <= ctl_plan_overlap_max(which); overlap++) {
            char text[400];
            struct runspec spec;
            ctl_plan_spec(which, overlap, text, sizeof text);
            assert_true(strlen(text) + 1 < sizeof text);
            if (runspec_parse(text, "plan", &spec) != ERR_OK)
                fail_msg("%s\n%s", err_text(), text);
            assert_int_equal(spec.overlap, overlap);
            runspec_deinit(&spec);
        }
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_that_makes_no_sense_is_refused_with_the_reason),
        cmocka_unit_test(every_run_spec_that_is_recommended_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
