/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/gate.h"

#include <inttypes.h>

#include "common/env.h"

static enum err enrol(void *user, const struct record_member *as)
{
    struct gate *gate = user;
    return membership_enrol(gate->conf.membership, as);
}

static enum err wish(void *user, uint32_t kind, uint32_t id, uint64_t number)
{
    struct gate *gate = user;
    return membership_wish(gate->conf.membership, kind, id, number);
}

static enum err decidable(void *user)
{
    const struct gate *gate = user;
    uint32_t heard, voters = membership_voters(gate->conf.membership, &heard), needed = voters / 2 + 1;
    if (heard >= needed)
        return ERR_OK;
    return err_set(ERR_STATE,
                   "nobody could decide it now: it takes %" PRIu32 " of the %" PRIu32 " islands that vote, and %" PRIu32
                   " are heard here; ask again when they are back, or at an island that hears them",
                   needed, voters, heard);
}

/* Before a trainer has ever run nobody knows the model, so no record can be made that lets anyone in. */
static enum err look_at_trainer(const struct gate *gate)
{
    enum trainer_phase phase = trainer_phase(gate->conf.trainer);
    struct trainer_info trainer = trainer_info(gate->conf.trainer);
    if (gate->planned || (phase != TRAINER_RESTARTING && phase != TRAINER_ENDED))
        return ERR_OK;
    return err_set(ERR_STATE,
                   "nobody can come in before a trainer has run there, and its own does not: %.120s; once it does, use "
                   "this token again",
                   trainer.process_note);
}

static enum err is_open(void *user, bool begun)
{
    const struct gate *gate = user;
    if (gate->shut_out)
        return err_set(ERR_STATE, "the island that gave out this token was probably revoked itself: the others do not "
                                  "know its key; ask another island for a token");
    return begun ? ERR_OK : look_at_trainer(gate);
}

uint8_t gate_owner_wish(const struct gate *gate)
{
    enum record_wish wish = dconf_owner_wish(gate->conf.conf);
    return gate->undialled && wish != RECORD_OWNER_NO ? RECORD_OWNER_DIALS : (uint8_t)wish;
}

/* What others learn by our greeting. */
static void say_of_ourselves(struct gate *gate)
{
    const struct dconf *conf = gate->conf.conf;
    struct membership_said said = {.address = dconf_address(conf),
                                   .uplink = conf->uplink,
                                   .owner_wish = gate_owner_wish(gate),
                                   .draining = gate->draining};
    membership_said(gate->conf.membership, gate->conf.view->self, &said);
}

enum err gate_open(const struct gate_conf *conf, uint64_t now_ms, struct gate *gate)
{
    *gate = (struct gate){.conf = *conf};
    struct doorway_conf doorway = {.folder = conf->conf->state_folder,
                                   .spec = conf->spec,
                                   .ident = conf->ident,
                                   .chain = conf->chain,
                                   .link = conf->link,
                                   .enrol = enrol,
                                   .wish = wish,
                                   .decidable = decidable,
                                   .open = is_open,
                                   .user = gate};
    TRY(doorway_new(&doorway, now_ms, env_wall_ms() / 1000, &gate->doorway));
    say_of_ourselves(gate);
    return ERR_OK;
}

void gate_close(struct gate *gate)
{
    doorway_free(gate->doorway);
    *gate = (struct gate){0};
}

void gate_drain(struct gate *gate, bool draining)
{
    gate->news |= gate->draining != draining;
    gate->draining = draining;
    say_of_ourselves(gate);
}

void gate_undialled(struct gate *gate, bool undialled)
{
    if (gate->undialled == undialled)
        return;
    gate->undialled = undialled;
    gate->news = true;
    say_of_ourselves(gate);
}

void gate_said(struct gate *gate, uint32_t member, const struct wire_hello *hello)
{
    struct membership_said said = {.address = hello->address,
                                   .uplink = hello->uplink,
                                   .owner_wish = hello->owner_wish,
                                   .draining = hello->draining};
    membership_said(gate->conf.membership, member, &said);
}

void gate_look(struct gate *gate, uint64_t now_ms)
{
    doorway_look(gate->doorway, now_ms, env_wall_ms() / 1000);
}

bool gate_tick(struct gate *gate, uint64_t now_ms)
{
    bool news = gate->news;
    gate->news = false;
    doorway_tick(gate->doorway, now_ms, env_wall_ms() / 1000);
    return news;
}
