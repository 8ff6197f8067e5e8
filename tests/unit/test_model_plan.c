/* SPDX-License-Identifier: Apache-2.0 */
/* model_plan: the model's tensors as text and back; text that is none is refused, and two plans are told apart. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "daemon/state/model_plan.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/smallrun.h"

static struct smallrun run;

static enum err parse(const char *text, size_t bytes, struct model_plan **out)
{
    /* From memory of just that size, so that a byte read beyond it shows. */
    char *copy;
    assert_ok(mem_new(bytes, 1, "text", &copy));
    memcpy(copy, text, bytes);
    enum err err = model_plan_parse(&run.spec, copy, bytes, out);
    mem_free(copy);
    assert_true(err == ERR_OK || *out == NULL);
    return err;
}

static void assert_refused(const char *part, const char *text)
{
    struct model_plan *plan;
    assert_fails(ERR_PROTO, part, parse(text, strlen(text), &plan));
}

static void a_plan_as_text_is_the_same_plan(void **state)
{
    (void)state;
    struct model_plan *again;
    assert_string_equal(run.plan->text, "embedding\t-1\t2\t70\t40\n"
                                        "layer.0.weight\t0\t2\t48\t32\n"
                                        "layer.0.norm\t0\t1\t300\n"
                                        "layer.1.weight\t1\t2\t48\t32\n"
                                        "layer.1.norm\t1\t1\t300\n");
    assert_ok(parse(run.plan->text, strlen(run.plan->text), &again));
    assert_string_equal(again->text, run.plan->text);
    assert_true(digest_equal(&again->id, &run.plan->id));
    assert_int_equal(again->tensors_count, SMALLRUN_TENSORS);
    for (uint32_t i = 0; i < SMALLRUN_TENSORS; i++)
        assert_memory_equal(&again->tensors[i], &smallrun_tensors[i], sizeof smallrun_tensors[i]);
    model_plan_free(again);
    model_plan_free(NULL);
}

static void the_plan_knows_matrices_and_what_is_sent_without_loss(void **state)
{
    (void)state;
    struct ipc_tensor tensors[] = {{.name = "matrix", .layer = -1, .dims = 2, .shape = {6, 100}},
                                   {.name = "cube", .layer = 0, .dims = 3, .shape = {4, 5, 50}},
                                   {.name = "norm", .layer = 0, .dims = 1, .shape = {65536}},
                                   {.name = "flat", .layer = 0, .dims = 1, .shape = {65537}},
                                   {.name = "number", .layer = 1, .dims = 0}};
    static const uint64_t rows[] = {6, 4, 0, 0, 0}, counts[] = {600, 1000, 65536, 65537, 1};
    struct model_plan *plan;
    assert_ok(model_plan_new(&run.spec, tensors, 5, &plan));
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(plan->plan->tensors[i].rows, rows[i]);
        assert_int_equal(plan->plan->tensors[i].count, counts[i]);
        assert_int_equal(plan->plan->tensors[i].sensitive, i == 2);
        assert_int_equal(plan->plan->tensors[i].layer, tensors[i].layer);
    }
    tensors[0].name[0] = 'x'; /* it was copied */
    assert_string_equal(plan->tensors[0].name, "matrix");
    model_plan_free(plan);
}

static void a_text_that_is_cut_off_is_refused_unless_whole_lines_are_missing(void **state)
{
    (void)state;
    const char *text = run.plan->text;
    uint32_t lines = 0;
    for (size_t bytes = 0; bytes < strlen(text); bytes++) {
        struct model_plan *plan;
        bool whole = bytes > 0 && text[bytes - 1] == '\n';
        lines += whole;
        if (!whole) {
            if (parse(text, bytes, &plan) != ERR_PROTO)
                fail_msg("the first %zu bytes are taken for a plan", bytes);
        } else {
            assert_ok(parse(text, bytes, &plan));
            assert_int_equal(plan->tensors_count, lines);
            assert_false(digest_equal(&plan->id, &run.plan->id));
            model_plan_free(plan);
        }
    }
    assert_int_equal(lines, SMALLRUN_TENSORS - 1);
}

static void lines_that_are_no_tensors_are_refused(void **state)
{
    (void)state;
    assert_refused("a plan of 0 bytes", "");
    assert_refused("a plan of 0 tensors", "embedding\t-1\t1\t5");
    assert_refused("no tensor", "\n");
    assert_refused("no tensor", "\n\n\n");
    assert_refused("no tensor", "a\n");
    assert_refused("no tensor", "a\t\n");
    assert_refused("no tensor", "\t-1\t1\t5\n"); /* no name */
    assert_refused("no tensor", "a\tx\t1\t5\n");
    assert_refused("no tensor", "a\t-2\t1\t5\n");
    assert_refused("no tensor", "a\t-1\t7\t1\t1\t1\t1\t1\t1\t1\n");
    assert_refused("no tensor", "a\t-1\t-1\t5\n");
    assert_refused("without its shape", "a\t-1\t2\t5\n");
    assert_refused("without its shape", "a\t-1\t1\tx\n");
    assert_refused("without its shape", "a\t-1\t1\n");
    assert_refused("too long", "a\t-1\t1\t5\t6\n");
    assert_refused("too long", "a\t-1\t1\t5 \n");
    assert_refused("too long", "a\t-1\t0\t5\n");
    assert_refused("too long", "a\t-1\t1\t5\r\n");
}

/* Two texts of one plan would be two truths; and what scanf() reads is more than a plan's lines. */
static void a_plan_that_is_written_in_another_way_is_refused(void **state)
{
    (void)state;
    assert_refused("", "a -1 1 5\n");
    assert_refused("", "a\t\t-1\t1\t5\n");
    assert_refused("", "a\t -1\t1\t5\n");
    assert_refused("", "a\t+0\t1\t5\n");
    assert_refused("", "a\t-1\t1\t05\n");
    assert_refused("", "a\t-1\t01\t5\n");
    assert_refused("", "a\n-1\t1\t5\n");              /* one line on two */
    assert_refused("", "a\t-1\t1\t5\nb\n0\n1\n5\n");  /* one line on four */
    assert_refused("", "a\t-1\t1\t5\nb\t0\t1\t5\nc"); /* the last line is torn */
    assert_refused("", "a\t-1\t1\t-5\n");             /* 2^64 - 5 values */
    assert_refused("", "a\t4294967295\t1\t5\n");      /* layer -1 */
    assert_refused("", "a\t-1\t4294967297\t5\n");     /* 2^32 + 1 dimensions */
    assert_refused("", "a\t-1\t1\t18446744073709551621\n");
}

static void tensors_that_make_no_plan_are_refused_as_well(void **state)
{
    (void)state;
    char text[400];
    assert_refused("0 values", "a\t-1\t1\t0\n");
    assert_refused("0 values", "a\t-1\t2\t5\t0\n");
    assert_refused("two tensors are called a", "a\t-1\t1\t5\nb\t-1\t1\t5\na\t-1\t1\t5\n");
    assert_refused("values", "a\t-1\t1\t18446744073709551615\n");
    assert_refused("values", "a\t-1\t6\t65536\t65536\t65536\t65536\t65536\t65536\n"); /* 2^96 */
    assert_refused("values", "a\t-1\t2\t4294967296\t4294967296\n");                   /* 2^64: 0, if it wrapped */
    assert_refused("values", "a\t-1\t3\t1\t4294967297\t4294967297\n");                /* 2^33 + 1, if it wrapped */
    assert_refused("fragments", "a\t2147483647\t1\t5\n");
    assert_refused("gaps", "a\t0\t1\t5\nb\t2\t1\t5\n");
    /* A name as long as can be, and one byte more. */
    for (int bytes = IPC_NAME_BYTES - 1; bytes <= IPC_NAME_BYTES; bytes++) {
        struct model_plan *plan;
        memset(text, 'n', sizeof text);
        snprintf(text + bytes, sizeof text - (size_t)bytes, "\t-1\t1\t5\n");
        if (bytes < IPC_NAME_BYTES) {
            assert_ok(parse(text, strlen(text), &plan));
            assert_string_equal(plan->text, text);
            model_plan_free(plan);
        } else {
            assert_refused("no tensor", text);
        }
    }
}

static void as_many_tensors_as_there_can_be_are_read(void **state)
{
    (void)state;
    struct model_plan *plan;
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    assert_non_null(stream);
    for (int i = 0; i < IPC_TENSORS_MAX; i++)
        fprintf(stream, "t%d\t-1\t1\t5\n", i);
    fclose(stream);
    assert_ok(parse(text, bytes, &plan));
    assert_int_equal(plan->tensors_count, IPC_TENSORS_MAX);
    assert_string_equal(plan->text, text);
    model_plan_free(plan);
    free(text);
}

static void a_text_beyond_the_limits_is_refused_unread(void **state)
{
    (void)state;
    struct model_plan *plan;
    char small[] = "a\t-1\t1\t5\n\0b\t-1\t1\t5\n";
    assert_fails(ERR_PROTO, "a plan of", parse(small, sizeof small - 1, &plan)); /* a zero byte in it */
    /* One byte more than the largest: nothing of it is looked at. */
    assert_fails(ERR_PROTO, "a plan of 16777217 bytes",
                 model_plan_parse(&run.spec, small, (size_t)MODEL_PLAN_TEXT_MAX + 1, &plan));
    assert_null(plan);
    char *lines;
    assert_ok(mem_new(IPC_TENSORS_MAX + 2, 1, "lines", &lines));
    memset(lines, '\n', IPC_TENSORS_MAX + 1);
    mem_fail_after(0); /* before any memory is taken */
    enum err err = model_plan_parse(&run.spec, lines, IPC_TENSORS_MAX + 1, &plan);
    mem_fail_after(-1);
    assert_fails(ERR_PROTO, "a plan of 65537 tensors", err);
    mem_free(lines);
}

/* Whatever a byte is changed to: the text is refused, or it is another plan to the letter. */
static void a_changed_byte_is_refused_or_another_plan(void **state)
{
    (void)state;
    static const uint8_t flips[] = {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x03, 0x29};
    size_t bytes = strlen(run.plan->text), refused = 0, other = 0;
    for (size_t at = 0; at < bytes; at++) {
        for (size_t i = 0; i < sizeof flips; i++) {
            char text[512] = "";
            struct model_plan *plan;
            memcpy(text, run.plan->text, bytes);
            text[at] = (char)(text[at] ^ (char)flips[i]);
            enum err err = parse(text, bytes, &plan);
            if (err == ERR_OK) {
                assert_string_equal(plan->text, text);
                assert_false(digest_equal(&plan->id, &run.plan->id));
                model_plan_free(plan);
                other++;
            } else {
                if (err != ERR_PROTO)
                    fail_msg("%s: \"%s\"", err_name(err), text);
                refused++;
            }
        }
    }
    print_message("%zu refused, %zu other plans\n", refused, other);
    assert_true(refused > 100 && other > 100);
}

static void assert_difference(const struct ipc_tensor *tensors, uint32_t count, const char *want)
{
    struct model_plan *other;
    char text[IPC_TEXT_BYTES];
    assert_ok(model_plan_new(&run.spec, tensors, count, &other));
    model_plan_difference(run.plan, other, text, sizeof text);
    if (strcmp(text, want) != 0)
        fail_msg("\"%s\" where \"%s\" should stand", text, want);
    char small[12]; /* cut to what there is room for */
    model_plan_difference(run.plan, other, small, sizeof small);
    assert_memory_equal(small, want, sizeof small - 1);
    assert_int_equal(small[sizeof small - 1], '\0');
    model_plan_free(other);
}

static void the_first_difference_of_two_plans_is_named(void **state)
{
    (void)state;
    struct ipc_tensor tensors[SMALLRUN_TENSORS + 1];
    memcpy(tensors, smallrun_tensors, sizeof smallrun_tensors);
    tensors[SMALLRUN_TENSORS] = (struct ipc_tensor){.name = "more", .layer = 1, .dims = 1, .shape = {9}};
    assert_difference(tensors, SMALLRUN_TENSORS + 1, "tensor 5 is more (layer 1, 9), the run has none there");
    assert_difference(tensors, SMALLRUN_TENSORS - 1, "tensor 4 is missing, the run has layer.1.norm (layer 1, 300)");
    snprintf(tensors[3].name, sizeof tensors[3].name, "another");
    assert_difference(tensors, SMALLRUN_TENSORS,
                      "tensor 3 is another (layer 1, 48 x 32), the run has layer.1.weight (layer 1, 48 x 32)");
    tensors[0].shape[0] = 71;
    assert_difference(tensors, SMALLRUN_TENSORS,
                      "tensor 0 is embedding (no layer, 71 x 40), the run has embedding (no layer, 70 x 40)");
}

/* The same names and as many values, and yet another plan. */
static void a_shape_or_a_layer_makes_a_difference_too(void **state)
{
    (void)state;
    struct ipc_tensor tensors[SMALLRUN_TENSORS];
    memcpy(tensors, smallrun_tensors, sizeof smallrun_tensors);
    tensors[2].layer = 1;
    assert_difference(tensors, SMALLRUN_TENSORS,
                      "tensor 2 is layer.0.norm (layer 1, 300), the run has layer.0.norm (layer 0, 300)");
    tensors[1].shape[0] = 32;
    tensors[1].shape[1] = 48;
    assert_difference(tensors, SMALLRUN_TENSORS,
                      "tensor 1 is layer.0.weight (layer 0, 32 x 48), the run has layer.0.weight (layer 0, 48 x 32)");
    tensors[0] = (struct ipc_tensor){.name = "embedding", .layer = -1, .dims = 1, .shape = {2800}};
    assert_difference(tensors, SMALLRUN_TENSORS,
                      "tensor 0 is embedding (no layer, 2800), the run has embedding (no layer, 70 x 40)");
}

/* ---- what is not trained ---- */

enum { WITH_BASE = SMALLRUN_TENSORS + 2 };

/* Frozen ones among the others, as a trainer might say them. */
static void with_base(struct ipc_tensor tensors[WITH_BASE])
{
    tensors[0] = (struct ipc_tensor){
        .name = "base.7.weight", .frozen = 1, .type = "bfloat16", .layer = 7, .sum = 0xab, .dims = 2, .shape = {4, 8}};
    memcpy(tensors + 1, smallrun_tensors, sizeof smallrun_tensors);
    tensors[WITH_BASE - 1] =
        (struct ipc_tensor){.name = "head", .frozen = 1, .type = "uint8", .layer = -1, .sum = UINT64_MAX};
}

static struct model_plan *plan_of(const struct ipc_tensor *tensors, uint32_t count)
{
    struct model_plan *plan;
    assert_ok(model_plan_new(&run.spec, tensors, count, &plan));
    return plan;
}

static void a_frozen_base_is_in_the_text_and_in_no_fragment(void **state)
{
    (void)state;
    struct ipc_tensor tensors[WITH_BASE];
    struct model_plan *again;
    with_base(tensors);
    struct model_plan *plan = plan_of(tensors, WITH_BASE);
    assert_int_equal(plan->tensors_count, SMALLRUN_TENSORS);
    assert_int_equal(plan->frozen_count, 2);
    size_t trained = strlen(run.plan->text);
    assert_memory_equal(plan->text, run.plan->text, trained);
    assert_string_equal(plan->text + trained, "base.7.weight\tfrozen\tbfloat16\t00000000000000ab\t2\t4\t8\n"
                                              "head\tfrozen\tuint8\tffffffffffffffff\t0\n");
    assert_true(digest_equal(&plan->plan->digest, &run.plan->plan->digest));
    assert_true(digest_equal(&run.plan->id, &run.plan->plan->digest)); /* where nothing is frozen */
    assert_false(digest_equal(&plan->id, &run.plan->id));
    assert_ok(parse(plan->text, strlen(plan->text), &again));
    assert_true(digest_equal(&again->id, &plan->id));
    assert_int_equal(again->frozen_count, 2);
    assert_string_equal(again->text, plan->text);
    for (uint32_t i = 0; i < WITH_BASE; i++)
        assert_true(again->tensors[i].sum == plan->tensors[i].sum);
    model_plan_free(again);
    tensors[0].sum++;
    again = plan_of(tensors, WITH_BASE);
    assert_false(digest_equal(&again->id, &plan->id));
    model_plan_free(again);
    model_plan_free(plan);
}

static void a_line_of_a_base_that_is_none_is_refused(void **state)
{
    (void)state;
    assert_refused("", "a\tfrozen\tint8\t00000000000000ab\t1\t5\n");             /* nothing is trained */
    assert_refused("", "a\tfrozen\tint8\t00000000000000ab\t1\t5\nw\t0\t1\t5\n"); /* it stands behind */
    assert_refused("", "w\t0\t1\t5\na\tfrozen\tint8\tab\t1\t5\n");               /* another text of the same */
    assert_refused("", "w\t0\t1\t5\na\tfrozen\tint8\t00000000000000AB\t1\t5\n");
    assert_refused("", "w\t0\t1\t5\na\tfrozen\tint8\t100000000000000ab\t1\t5\n");
    assert_refused("no tensor", "w\t0\t1\t5\na\tfrozen\tint8\txyz\t1\t5\n");
    assert_refused("no tensor", "w\t0\t1\t5\na\tfrozen\tint8\n");
    assert_refused("no tensor", "w\t0\t1\t5\na\tfrozen\tint8\t00000000000000ab\t7\t5\n");
    assert_refused("without its shape", "w\t0\t1\t5\na\tfrozen\tint8\t00000000000000ab\t1\n");
    assert_refused("no tensor", "w\t0\t1\t5\na\tfrozen\tof-sixteen-bytes\t00000000000000ab\t1\t5\n");
}

static void assert_base_difference(const struct ipc_tensor *run_has, const struct ipc_tensor *tensors, uint32_t count,
                                   const char *want)
{
    struct model_plan *of_run = plan_of(run_has, WITH_BASE), *other = plan_of(tensors, count);
    char text[IPC_TEXT_BYTES];
    assert_true(model_plan_same_but_base(of_run, other));
    model_plan_difference(of_run, other, text, sizeof text);
    if (strcmp(text, want) != 0)
        fail_msg("\"%s\" where \"%s\" should stand", text, want);
    model_plan_free(of_run);
    model_plan_free(other);
}

static void the_first_difference_of_two_bases_is_named(void **state)
{
    (void)state;
    struct ipc_tensor tensors[WITH_BASE], its[WITH_BASE];
    with_base(tensors);
    with_base(its);
    its[WITH_BASE - 1].sum = 5;
    assert_base_difference(tensors, its, WITH_BASE, "head has other values");
    its[WITH_BASE - 1].sum = 0;
    assert_base_difference(tensors, its, WITH_BASE, "head has values that are not known");
    assert_base_difference(its, tensors, WITH_BASE, "head has values that are not known");
    assert_base_difference(tensors, its, WITH_BASE - 1, "head is missing");
    snprintf(its[0].type, sizeof its[0].type, "uint8");
    assert_base_difference(tensors, its, WITH_BASE, "base.7.weight is uint8 (4 x 8), the run has bfloat16 (4 x 8)");
    with_base(its);
    its[0].shape[1] = 9;
    assert_base_difference(tensors, its, WITH_BASE, "base.7.weight is bfloat16 (4 x 9), the run has bfloat16 (4 x 8)");
    snprintf(its[0].name, sizeof its[0].name, "more");
    assert_base_difference(tensors, its, WITH_BASE,
                           "more is bfloat16 (4 x 9), the run has base.7.weight, bfloat16 (4 x 8)");
    struct model_plan *same = plan_of(tensors, WITH_BASE), *other = plan_of(tensors + 1, SMALLRUN_TENSORS - 1);
    assert_false(model_plan_same_but_base(same, same));
    assert_false(model_plan_same_but_base(same, other));
    model_plan_free(same);
    model_plan_free(other);
}

static enum err make_from_text(void *user)
{
    struct model_plan *plan;
    (void)user;
    enum err err = model_plan_parse(&run.spec, run.plan->text, strlen(run.plan->text), &plan);
    assert_true(err == ERR_OK || plan == NULL);
    model_plan_free(plan);
    return err;
}

static void without_memory_there_is_no_plan(void **state)
{
    (void)state;
    print_message("%zu allocations failed in turn\n", outofmem_walk(make_from_text, NULL));
}

int main(void)
{
    assert_ok(digest_init());
    run = smallrun_new("");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_as_text_is_the_same_plan),
        cmocka_unit_test(the_plan_knows_matrices_and_what_is_sent_without_loss),
        cmocka_unit_test(a_text_that_is_cut_off_is_refused_unless_whole_lines_are_missing),
        cmocka_unit_test(lines_that_are_no_tensors_are_refused),
        cmocka_unit_test(a_plan_that_is_written_in_another_way_is_refused),
        cmocka_unit_test(tensors_that_make_no_plan_are_refused_as_well),
        cmocka_unit_test(as_many_tensors_as_there_can_be_are_read),
        cmocka_unit_test(a_text_beyond_the_limits_is_refused_unread),
        cmocka_unit_test(a_changed_byte_is_refused_or_another_plan),
        cmocka_unit_test(the_first_difference_of_two_plans_is_named),
        cmocka_unit_test(a_shape_or_a_layer_makes_a_difference_too),
        cmocka_unit_test(a_frozen_base_is_in_the_text_and_in_no_fragment),
        cmocka_unit_test(a_line_of_a_base_that_is_none_is_refused),
        cmocka_unit_test(the_first_difference_of_two_bases_is_named),
        cmocka_unit_test(without_memory_there_is_no_plan),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    smallrun_free(&run);
    return failed;
}
