/* SPDX-License-Identifier: Apache-2.0 */
/* engine: what a trainer builds upon and does not train: told to the daemon, kept with the run's plan, compared with
 * it by name; another base is refused, or let in and shown where the configuration allows it. One daemon in a thread of
 * the test, with trainers that attach through libdiloco. */
#include "tests/lib/testlib.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/state/model_plan.h"
#include "tests/lib/adder.h"
#include "tests/lib/hosted.h"
#include "tests/lib/isle.h"
#include "tests/lib/overhear.h"
#include "tests/lib/played.h"

enum { A, B };

static struct diloco *t;

static struct diloco_frozen base_tensor(const char *name, uint64_t sum)
{
    return (struct diloco_frozen){
        .size = sizeof(struct diloco_frozen), .name = name, .type = "bfloat16", .dims = 2, .shape = {4, 8}, .sum = sum};
}

static void announce(struct diloco_frozen frozen)
{
    if (diloco_register_frozen(t, &frozen) != DILOCO_OK)
        fail_msg("%s", diloco_error(t));
}

static int begin(void)
{
    struct diloco_start go = {.size = sizeof(struct diloco_start)};
    return diloco_begin(t, &go);
}

/* One trainer upon a base of two tensors, announced in another order than by layer and name. */
static void attach_upon(uint64_t head, uint64_t layer)
{
    t = adder_attach(hosted.worker, "layer");
    announce(base_tensor("base.2.weight", layer));
    announce(base_tensor("base.head", head));
}

static void train_upon(uint64_t head, uint64_t layer)
{
    attach_upon(head, layer);
    if (begin() != DILOCO_OK)
        fail_msg("%s", diloco_error(t));
}

static void assert_refused_with(const char *part)
{
    assert_int_equal(begin(), DILOCO_REFUSED);
    if (strstr(diloco_error(t), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diloco_error(t), part);
    diloco_detach(t);
}

static void another_base_than_the_runs_is_refused_by_name(void **state)
{
    (void)state;
    hosted_start(A);
    train_upon(1, 2);
    assert_int_equal(adder_train(t, 6), DILOCO_OK);
    diloco_detach(t);
    attach_upon(1, 3);
    assert_refused_with("it trains upon another base than the run: base.2.weight has other values; load the same one");
    attach_upon(1, 0);
    assert_refused_with("base.2.weight has values that are not known");
    t = adder_attach(hosted.worker, "layer");
    assert_refused_with("base.head is missing");
    t = adder_attach(hosted.worker, "layer");
    struct diloco_frozen quantised = base_tensor("base.head", 1);
    quantised.type = "uint8";
    announce(quantised);
    announce(base_tensor("base.2.weight", 2));
    assert_refused_with("base.head is uint8 (4 x 8), the run has bfloat16 (4 x 8)");
    attach_upon(1, 2);
    announce(base_tensor("base.3.weight", 1));
    assert_refused_with("base.3.weight is bfloat16 (4 x 8), the run has none there");
    hosted_stop();
    hosted_restart(A); /* it is kept with the plan */
    attach_upon(9, 2);
    assert_refused_with("base.head has other values");
    train_upon(1, 2);
    assert_int_equal(adder_train(t, 3), DILOCO_OK);
    assert_true(hosted_says("trainer", "other_base", ""));
    diloco_detach(t);
    hosted_stop();
}

static void allow(bool yes)
{
    static const struct conf_override overrides[] = {{"worker.allow_other_base=yes"}};
    hosted.overrides = overrides;
    hosted.overrides_count = yes ? 1 : 0;
}

static void where_it_is_allowed_it_is_let_in_and_shown(void **state)
{
    (void)state;
    hosted_start(A);
    train_upon(1, 2);
    diloco_detach(t);
    hosted_stop();
    allow(true);
    hosted_restart(A);
    overhear_begin();
    train_upon(1, 3);
    assert_true(hosted_says("trainer", "other_base", "base.2.weight has other values"));
    assert_int_equal(adder_train(t, 6), DILOCO_OK);
    diloco_detach(t);
    train_upon(1, 2); /* of the next one nothing is said that was of this one */
    assert_true(hosted_says("trainer", "other_base", ""));
    diloco_detach(t);
    struct diloco_start go = {.size = sizeof(struct diloco_start)};
    t = adder_attach(hosted.worker, "another"); /* what is trained has to be the same all the same */
    assert_int_equal(diloco_begin(t, &go), DILOCO_REFUSED);
    assert_non_null(strstr(diloco_error(t), "its tensors are not those of the run"));
    diloco_detach(t);
    const char *log = overhear_end();
    assert_non_null(strstr(log, "it trains upon another base than the run's"));
    hosted_stop();
    allow(false);
}

/* ---- what is no frozen tensor ---- */

static void assert_not_frozen(struct diloco_frozen frozen, const char *part)
{
    assert_int_equal(diloco_register_frozen(t, &frozen), DILOCO_ERROR);
    if (strstr(diloco_error(t), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diloco_error(t), part);
}

static void what_can_be_no_frozen_tensor_is_named_and_not_taken(void **state)
{
    (void)state;
    char name[200];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    hosted_start(A);
    t = adder_attach(hosted.worker, "layer");
    struct diloco_frozen it = base_tensor("base", 1);
    it.size = 3;
    assert_not_frozen(it, "struct diloco_frozen has no size that this library knows");
    assert_not_frozen(base_tensor(NULL, 1), "a name of at most 127 bytes");
    assert_not_frozen(base_tensor(name, 1), "a name of at most 127 bytes");
    it = base_tensor("base", 1);
    it.dims = 7;
    assert_not_frozen(it, "at most 6 dimensions");
    it = base_tensor("base", 1);
    it.type = "a type of more than so many";
    assert_not_frozen(it, "tensor \"base\": a type is a word of at most 15 bytes");
    it.type = "";
    assert_not_frozen(it, "a type is a word");
    it.type = NULL;
    assert_not_frozen(it, "a type is a word");
    assert_not_frozen(base_tensor("layer", 1), "tensor \"layer\" is registered twice");
    announce(base_tensor("base", 1));
    assert_not_frozen(base_tensor("base", 1), "tensor \"base\" is registered twice");
    float values[4];
    struct diloco_tensor trained = {.size = sizeof trained, .name = "base", .data = values, .dims = 1, .shape = {4}};
    assert_int_equal(diloco_register(t, &trained), DILOCO_ERROR);
    assert_int_equal(begin(), DILOCO_OK);
    assert_not_frozen(base_tensor("more", 1), "diloco_register_frozen() after diloco_begin()");
    assert_int_equal(diloco_register_frozen(t, NULL), DILOCO_ERROR);
    assert_int_equal(diloco_register_frozen(NULL, &it), DILOCO_ERROR);
    diloco_detach(t);
    hosted_stop();
}

/* ---- whose base is the run's ---- */

static void *begin_in_the_background(void *out)
{
    *(int *)out = begin();
    return NULL;
}

/* As the trainers of attach_upon() make it. */
static struct model_plan *plan_upon(uint64_t head, uint64_t layer)
{
    enum { ROWS = ADDER_VALUES / 64, COLUMNS = 64 };
    struct model_plan *plan;
    const struct ipc_tensor tensors[] = {
        {.name = "base.head", .frozen = 1, .type = "bfloat16", .sum = head, .dims = 2, .shape = {4, 8}},
        {.name = "base.2.weight", .frozen = 1, .type = "bfloat16", .sum = layer, .dims = 2, .shape = {4, 8}},
        {.name = "embed", .layer = -1, .dims = 2, .shape = {ROWS, COLUMNS}},
        {.name = "layer", .layer = 0, .dims = 2, .shape = {ROWS, COLUMNS}}};
    assert_ok(model_plan_new(&hosted.run->spec, tensors, sizeof tensors / sizeof tensors[0], &plan));
    return plan;
}

static bool complains(const char *code)
{
    bool does = false;
    json_t *status = hosted_ask("status"), *complaint;
    size_t i;
    json_array_foreach (json_object_get(status, "degraded"), i, complaint)
        does |= strcmp(ctl_text(complaint, "code"), code) == 0;
    json_decref(status);
    return does;
}

/* Its own does not become the run's: another island says which is, and its trainer waits for that. */
static void who_may_have_another_base_waits_for_the_runs(void **state)
{
    (void)state;
    static const struct wire_key key = {.kind = WIRE_PLAN};
    pthread_t beginning;
    int result = DILOCO_OK;
    isle_run_free(hosted.run);
    hosted.run = isle_run_new("other-base", 2, NULL);
    hosted_conf(B); /* the run spec, whose digest the played one needs */
    struct played *other = played_open(hosted.run, A, 0, NULL);
    allow(true);
    hosted_start(B);
    attach_upon(1, 3);
    assert_int_equal(pthread_create(&beginning, NULL, begin_in_the_background, &result), 0);
    isle_wait(complains("no-plan"));
    assert_int_equal(hosted_number("fragments"), 0);
    struct model_plan *plan = plan_upon(1, 2);
    played_hello(other)->plan_known = true;
    other->out.hello.plan_id = plan->id;
    played_say(other, B);
    isle_wait(played_heard_of(other, WIRE_FETCH, &key));
    played_send(other, B, &key, plan->text, strlen(plan->text));
    isle_wait(hosted_says("trainer", "other_base", "base.2.weight has other values"));
    assert_false(complains("no-plan"));
    isle_wait(played_heard_type(other, WIRE_HELLO) && other->in.hello.plan_known);
    assert_true(digest_equal(&other->in.hello.plan_id, &plan->id)); /* and it says that it has the run's */
    hosted_stop();
    assert_int_equal(pthread_join(beginning, NULL), 0);
    assert_int_not_equal(result, DILOCO_OK);
    diloco_detach(t);
    model_plan_free(plan);
    played_close(other);
    allow(false);
}

int main(void)
{
    assert_ok(digest_init());
    signal(SIGPIPE, SIG_IGN);
#define CASE(name) cmocka_unit_test_setup_teardown(name, hosted_begin, hosted_finish)
    const struct CMUnitTest tests[] = {
        CASE(another_base_than_the_runs_is_refused_by_name),
        CASE(where_it_is_allowed_it_is_let_in_and_shown),
        CASE(what_can_be_no_frozen_tensor_is_named_and_not_taken),
        CASE(who_may_have_another_base_waits_for_the_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
