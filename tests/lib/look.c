/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/look.h"

#include "tests/lib/testlib.h"

struct look look;

void look_begin_run(const char *name, uint32_t count, const char *sync)
{
    look = (struct look){.run = isle_run_new(name, count, sync), .witness = look.witness};
    look.run->witness = look.witness;
    look.b = count > LOOK_B ? played_open(look.run, LOOK_B, 0, NULL) : NULL;
    look.c = count > LOOK_C ? played_open(look.run, LOOK_C, 0, NULL) : NULL;
}

void look_begin(const char *name, uint32_t count, const char *sync)
{
    look_begin_run(name, count, sync);
    look_open();
}

void look_open(void)
{
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
    isle_know_plan(look.a);
    look.a->engine = true;
}

void look_end(void)
{
    status_deinit(&look.status);
    progress_free(look.progress);
    look.progress = NULL;
    if (look.trainer != NULL)
        played_trainer_close(look.trainer);
    isle_close(look.a);
    if (look.b != NULL)
        played_close(look.b);
    if (look.c != NULL)
        played_close(look.c);
    isle_run_free(look.run);
}

struct status_conf look_conf(void)
{
    struct status_conf conf = isle_status_conf(look.a);
    conf.progress = look.progress;
    return conf;
}

const struct status *look_take_of(const struct status_conf *conf)
{
    static struct status_conf kept; /* a status points into it */
    kept = *conf;
    status_deinit(&look.status);
    assert_ok(status_take(&kept, look.a->now_ms, &look.status));
    return &look.status;
}

const struct status *look_take(void)
{
    struct status_conf conf = look_conf();
    return look_take_of(&conf);
}

void look_report(const struct ipc_report *report)
{
    if (look.trainer == NULL) {
        look.trainer = played_trainer_open(look.a);
        played_trainer_start(look.trainer);
    }
    played_trainer_say(look.trainer, &(struct ipc_message){.type = IPC_REPORT, .report = *report});
}

void look_train(uint64_t step)
{
    look_report(&(struct ipc_report){.step = step, .tokens = 10 * step, .loss = 2.5});
}

void look_contribute(uint32_t f)
{
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_ENCODED, .fragment = f});
}
