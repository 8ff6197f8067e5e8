/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/beat.h"

#include <stdio.h>
#include <string.h>

#include "common/human.h"

void beat_hello(const struct peers_conf *conf, const struct transfer_plan *plan, uint8_t wish, bool draining,
                struct wire_message *out)
{
    struct wire_hello *hello = &out->hello;
    out->type = WIRE_HELLO;
    *hello = (struct wire_hello){.run_id = conf->spec->digest,
                                 .plan_known = plan->plan != NULL,
                                 .first_known = conf->view->epoch == 0,
                                 .session = conf->session,
                                 .island = conf->view->members[conf->view->self].id,
                                 .window_kib = (uint32_t)(conf->conf->window / 1024),
                                 .uplink = conf->conf->uplink,
                                 .owner_wish = wish,
                                 .draining = draining};
    if (hello->first_known)
        hello->first = *chain_last_digest(conf->chain);
    snprintf(hello->address, sizeof hello->address, "%s", dconf_address(conf->conf));
    if (hello->plan_known)
        hello->plan_id = plan->plan->id;
    snprintf(hello->name, sizeof hello->name, "%s", conf->conf->name);
    snprintf(hello->software, sizeof hello->software, "diloco " DILOCO_VERSION);
}

const char *beat_plan_misfit(const struct transfer_plan *plan, bool known, const struct digest *theirs)
{
    if (!known || plan->plan == NULL || digest_equal(theirs, &plan->plan->id))
        return NULL;
    return "its model has other tensors, or another frozen base; the trainers of all islands must register the same";
}

/* Founders make record 0 from their configurations, each for itself, and nothing of one fits what another makes. */
static const char *first_misfit(const struct peers_conf *conf, const struct view_member *member,
                                const struct wire_hello *hello)
{
    static _Thread_local char text[WIRE_REASON_BYTES];
    char theirs[HUMAN_BYTES], ours[HUMAN_BYTES];
    if (!hello->first_known || conf->view->epoch > 0 || digest_equal(&hello->first, chain_last_digest(conf->chain)))
        return NULL;
    if (hello->uplink != 0 && hello->uplink != member->uplink)
        snprintf(text, sizeof text,
                 "it has uplink = %s of itself, and its [peer] section here has %s: one figure for each island in all "
                 "configurations",
                 human_rate((double)hello->uplink, theirs), human_rate((double)member->uplink, ours));
    else
        snprintf(text, sizeof text,
                 "its configuration and this one have other uplinks or witnesses of the same islands: compare "
                 "dilococtl peers on both");
    return text;
}

const char *beat_misfit(const struct peers_conf *conf, const struct transfer_plan *plan, uint32_t slot,
                        const struct wire_hello *hello)
{
    const struct view_member *member = &conf->view->members[slot];
    if (!digest_equal(&hello->run_id, &conf->spec->digest))
        return "it has another run spec; give every island the same file";
    if (hello->island != member->id || strcmp(hello->name, member->name) != 0)
        return "its name is not the one its key stands for";
    const char *first = first_misfit(conf, member, hello);
    return first != NULL ? first : beat_plan_misfit(plan, hello->plan_known, &hello->plan_id);
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
            beat->silent[beat->silent_count++] = view->members[i].id;
}

void beat_fill(const struct peers_conf *conf, const struct transfer_plan *plan, const struct bitset *silent,
               struct wire_message *out)
{
    struct wire_heartbeat *beat = &out->heartbeat;
    struct trainer_info trainer = trainer_info(conf->trainer);
    enum trainer_phase phase = trainer_phase(conf->trainer);
    bool training = phase == TRAINER_TRAINING || phase == TRAINER_FINISHING;
    out->type = WIRE_HEARTBEAT;
    beat->session = conf->session;
    beat->taking_part = training || phase == TRAINER_STARTING;
    beat->step = training ? trainer.step : plan->rounds != NULL ? rounds_step(plan->rounds) : 0;
    beat->tokens = trainer.tokens;
    memcpy(&beat->loss, &trainer.loss, sizeof beat->loss);
    beat->tokens_per_s = bounded(trainer.tokens_per_s);
    beat->trainer = trainer_word(phase);
    beat->epoch = conf->view->epoch;
    beat->incarnation = vote_incarnation(conf->vote);
    beat->disk_fails = plan->rounds != NULL && rounds_refused(plan->rounds);
    beat->in_doubt = vote_doubt(conf->vote) != VOTE_SURE;
    beat->fragments_count = beat->held_count = 0;
    put_silent(conf->view, silent, beat);
}

enum err beat_vouches_new(const struct peers_conf *conf, uint32_t fragments, struct vouches **out)
{
    const struct view *view = conf->view;
    struct vouches_conf vouches = {.chain = conf->chain,
                                   .ident = conf->ident,
                                   .nonce = view->nonce,
                                   .id = view->members[view->self].id,
                                   .fragments_count = fragments};
    return vouches_new(&vouches, out);
}

void beat_vouches_heard(const struct peers_conf *conf, struct vouches *vouches, uint32_t slot,
                        const struct wire_heartbeat *beat)
{
    const struct view *view = conf->view;
    for (uint32_t k = 0; vouches != NULL && k < beat->fragments_count; k++) {
        const struct wire_fragment *row = &beat->fragments[k];
        const struct vouch_subject subject = {
            .nonce = view->nonce, .fragment = row->fragment, .version = row->at.version, .hash = row->at.hash};
        if (row->vouched)
            vouches_heard(vouches, view->members[slot].id, &subject, row->signature);
    }
}
