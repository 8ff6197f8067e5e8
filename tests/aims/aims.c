/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every aim that is a figure, measured with real daemons and default settings unless it says otherwise: a table, and
 * build/aims/summary.json. Not in `make check`: figures are of the machine. Exit status 1: an aim is missed.
 */
#include "tests/aims/aims.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "tests/lib/testlib.h"
#include "tests/lib/wan.h"

enum { VALUES_MAX = 64 };

static struct {
    const char *key, *what, *unit;
    double limit;
    double values[VALUES_MAX];
    unsigned count;
} aims[AIMS] = {
    [AIM_OWNER_LOST] = {"owner_lost_s", "anchors move again after the loss of an owner", "s", 5, {0}, 0},
    [AIM_PROPOSER_LOST] = {"proposer_lost_s", "... of the one that proposes", "s", 5, {0}, 0},
    [AIM_LOST_AT_RETURN] = {"lost_at_return_s", "... of an owner, while another comes back", "s", 5, {0}, 0},
    [AIM_DIALLED_LOST] = {"dialled_lost_s", "... of the one that everybody dialled", "s", 5, {0}, 0},
    [AIM_OWNER_LOST_SOON] = {"owner_lost_500ms_s", "away = 500ms: ... of an owner", "s", 2, {0}, 0},
    [AIM_PROPOSER_LOST_SOON] = {"proposer_lost_500ms_s", "away = 500ms: ... of the one that proposes", "s", 2, {0}, 0},
    [AIM_LOST_AT_RETURN_SOON] =
        {"lost_at_return_500ms_s", "away = 500ms: ... while another comes back", "s", 2, {0}, 0},
    [AIM_NOT_HEARD] = {"not_heard_s", "status says `not heard`, after the last word", "s", 3, {0}, 0},
    [AIM_NOT_HEARD_SOON] = {"not_heard_500ms_s", "away = 500ms: the same", "s", 0.5, {0}, 0},
    [AIM_DECIDED] = {"decided_s", "the next epoch, after `away` has ended", "s", 1, {0}, 0},
    [AIM_JOINED] = {"join_s", "a contribution counted after `join`", "s", 30, {0}, 0},
    [AIM_JOINED_LARGE] = {"join_64m_s", "64M parameters: it trains after its trainer is there", "s", 10, {0}, 0},
    [AIM_JOIN_COST] = {"join_cost_percent", "versions a second less during a join", "%", 5, {0}, 0},
    [AIM_EPOCH_CHANGE] = {"epoch_beyond_ms", "an epoch's change, beyond two round trips", "ms", 50, {0}, 0},
    [AIM_CERTIFICATE] = {"certificate_beyond_ms", "a certificate, beyond one round trip", "ms", 50, {0}, 0},
};

void aims_note(enum aim aim, double value)
{
    assert_true(aims[aim].count < VALUES_MAX);
    aims[aim].values[aims[aim].count++] = value;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Prints a row; returns what the summary says of it. */
static json_t *row(int a, bool *good)
{
    unsigned count = aims[a].count;
    if (count == 0) {
        printf("%-48s %-4s not measured\n", aims[a].what, aims[a].unit);
        return json_null();
    }
    qsort(aims[a].values, count, sizeof aims[a].values[0], by_value);
    double worst = aims[a].values[count - 1], median = aims[a].values[count / 2];
    bool met = worst <= aims[a].limit;
    *good = *good && met;
    printf("%-48s %-4s %7.2f %8.3f %8.3f %4u  %s\n", aims[a].what, aims[a].unit, aims[a].limit, median, worst, count,
           met ? "ok" : "MISSED");
    return json_pack("{s:f, s:f, s:f, s:i, s:b}", "aim", aims[a].limit, "median", median, "worst", worst, "times",
                     (int)count, "ok", (int)met);
}

static bool summarise(void)
{
    bool good = true;
    double load = 0;
    json_t *json = json_object();
    printf("\n%-48s %-4s %7s %8s %8s %4s\n", "", "", "aim", "median", "worst", "n");
    for (int a = 0; a < AIMS; a++)
        json_object_set_new(json, aims[a].key, row(a, &good));
    (void)!getloadavg(&load, 1);
    json_object_set_new(json, "load_average", json_real(load));
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(4) | JSON_PRESERVE_ORDER);
    json_decref(json);
    if (text == NULL || fsio_mkdirs("build/aims", 0755) != ERR_OK ||
        fsio_replace("build/aims/summary.json", text, strlen(text), 0644) != ERR_OK)
        good = false;
    printf("load average %.2f; build/aims/summary.json\n", load);
    free(text);
    return good;
}

int main(void)
{
    char why[300] = "";
    if (digest_init() != ERR_OK)
        return 2;
    if (!wan_enter(why, sizeof why))
        printf("skip: network namespaces: %s\n", why);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aims_loss), cmocka_unit_test(aims_loss_soon),  cmocka_unit_test(aims_dialled),
        cmocka_unit_test(aims_join), cmocka_unit_test(aims_join_large), cmocka_unit_test(aims_join_cost),
        cmocka_unit_test(aims_far),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return summarise() && failed == 0 ? 0 : 1;
}
