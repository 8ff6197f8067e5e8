/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/announcer.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "daemon/rounds/round_context.h"
#include "net/membership/membership.h"

void announcer_init(struct announcer *announcer, const struct announcer_conf *conf)
{
    announcer->conf = *conf;
}

void announcer_deinit(struct announcer *announcer)
{
    for (uint32_t i = 0; i < VIEW_SLOTS_MAX; i++)
        announcer_forget(announcer, i);
}

static uint32_t fragments_of(const struct announcer *announcer)
{
    const struct model_plan *plan = announcer->conf.plan->plan;
    return plan != NULL ? plan->plan->fragments_count : 0;
}

static enum err reserve(struct announcer *announcer, uint32_t slot, uint32_t fragments)
{
    struct told *told = &announcer->told[slot];
    if (told->rows == NULL && fragments > 0)
        TRY(mem_new(fragments, sizeof *told->rows, "peers", &told->rows));
    return ERR_OK;
}

enum err announcer_reserve(struct announcer *announcer, uint32_t slot)
{
    return reserve(announcer, slot, fragments_of(announcer));
}

enum err announcer_plan_known(struct announcer *announcer, uint32_t fragments)
{
    const struct view *view = announcer->conf.view;
    for (uint32_t i = 0; i < view->count; i++)
        if (i != view->self && view->members[i].used)
            TRY(reserve(announcer, i, fragments));
    return ERR_OK;
}

void announcer_forget(struct announcer *announcer, uint32_t slot)
{
    mem_free(announcer->told[slot].rows);
    announcer->told[slot] = (struct told){0};
}

void announcer_anew(struct announcer *announcer, uint32_t slot)
{
    struct told *told = &announcer->told[slot];
    if (told->rows != NULL)
        memset(told->rows, 0xff, fragments_of(announcer) * sizeof *told->rows);
}

static void say(struct announcer *announcer, uint32_t slot)
{
    enum err err = link_say(announcer->conf.link, slot, &announcer->out);
    if (err != ERR_OK && err != ERR_AGAIN && err != ERR_CLOSED)
        log_error("cannot talk to island %s: %s", announcer->conf.view->members[slot].as.name, err_text());
}

void announcer_hello(struct announcer *announcer, uint32_t slot)
{
    const struct announcer_conf *conf = &announcer->conf;
    const struct model_plan *plan = conf->plan->plan;
    struct wire_hello *hello = &announcer->out.hello;
    announcer->out.type = WIRE_HELLO;
    *hello = (struct wire_hello){.run_id = conf->spec->digest,
                                 .plan_known = plan != NULL,
                                 .session = conf->session,
                                 .island = conf->view->members[conf->view->self].as.id,
                                 .window_kib = (uint32_t)(conf->conf->window / 1024),
                                 .word = *membership_own_word(membership_host_membership(conf->host))};
    announcer->word = hello->word.number;
    if (hello->plan_known)
        hello->plan_id = plan->id;
    snprintf(hello->name, sizeof hello->name, "%s", conf->conf->name);
    snprintf(hello->software, sizeof hello->software, "diloco " DILOCO_VERSION);
    say(announcer, slot);
}

static uint32_t trainer_word(enum trainer_phase phase)
{
    static const uint32_t words[TRAINER_PHASES] = {
        [TRAINER_NONE] = WIRE_TRAINER_NONE,           [TRAINER_STOPPED] = WIRE_TRAINER_NONE,
        [TRAINER_STARTING] = WIRE_TRAINER_STARTING,   [TRAINER_TRAINING] = WIRE_TRAINER_TRAINING,
        [TRAINER_FINISHING] = WIRE_TRAINER_FINISHING, [TRAINER_FINISHED] = WIRE_TRAINER_FINISHED,
        [TRAINER_LEAVING] = WIRE_TRAINER_NONE,        [TRAINER_RESTARTING] = WIRE_TRAINER_FAILED,
        [TRAINER_ENDED] = WIRE_TRAINER_NONE};
    return words[phase];
}

static uint32_t bounded(double value)
{
    return value > 0 && value < (double)UINT32_MAX ? (uint32_t)value : 0;
}

static void put_silent(const struct view *view, const struct bitset *silent, struct wire_heartbeat *beat)
{
    beat->silent_count = 0;
    for (uint32_t i = 0; i < view->count; i++)
        if (bitset_has(silent, i) && view->members[i].used)
            beat->silent[beat->silent_count++] = view->members[i].as.id;
}

/* A heartbeat without rows, and without what is each member's own: sequence and echo. */
static void fill_beat(struct announcer *announcer)
{
    const struct announcer_conf *conf = &announcer->conf;
    const struct rounds *rounds = conf->plan->rounds;
    struct wire_heartbeat *beat = &announcer->out.heartbeat;
    struct trainer_info trainer = trainer_info(conf->trainer);
    enum trainer_phase phase = trainer_phase(conf->trainer);
    bool training = phase == TRAINER_TRAINING || phase == TRAINER_FINISHING;
    announcer->out.type = WIRE_HEARTBEAT;
    beat->session = conf->session;
    beat->taking_part = training || phase == TRAINER_STARTING;
    beat->step = training ? trainer.step : rounds != NULL ? rounds_step(rounds) : 0;
    beat->trained = training ? trainer.trained : 0;
    beat->tokens = trainer.tokens;
    memcpy(&beat->loss, &trainer.loss, sizeof beat->loss);
    beat->tokens_per_s = bounded(trainer.tokens_per_s);
    beat->trainer = trainer_word(phase);
    beat->unfinished = trainer.unfinished;
    beat->epoch = conf->view->epoch;
    beat->incarnation = vote_incarnation(conf->vote);
    beat->disk_fails =
        (rounds != NULL && round_context_refuses(rounds->context)) || membership_host_unkept(conf->host)[0] != '\0';
    beat->in_doubt = vote_doubt(conf->vote) != VOTE_SURE;
    beat->fragments_count = beat->held_count = 0;
    put_silent(conf->view, conf->silent, beat);
}

void announcer_heartbeat(struct announcer *announcer, uint32_t slot, struct beats *beats, bool undialled,
                         uint64_t now_ms)
{
    const struct transfer_plan *plan = announcer->conf.plan;
    struct told *told = &announcer->told[slot];
    struct wire_heartbeat *beat = &announcer->out.heartbeat;
    fill_beat(announcer);
    beat->undialled = undialled;
    membership_beat(membership_host_membership(announcer->conf.host), beat, now_ms);
    beats_out(beats, beat, now_ms);
    if (plan->sync != NULL && !sync_is_witness(plan->sync))
        rows_fill(plan->sync, plan->certificates, fragments_of(announcer), told->rows, &told->refresh, beat);
    say(announcer, slot);
}

void announcer_bye(struct announcer *announcer, uint32_t slot, const char *reason)
{
    announcer->out.type = WIRE_BYE;
    snprintf(announcer->out.bye.reason, sizeof announcer->out.bye.reason, "%s", reason);
    say(announcer, slot);
}
