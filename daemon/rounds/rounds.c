/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/rounds.h"

#include <assert.h>

#include "common/mem.h"
#include "daemon/rounds/apply.h"
#include "daemon/rounds/copy.h"
#include "daemon/rounds/desk.h"
#include "daemon/rounds/encode.h"
#include "daemon/rounds/install.h"
#include "daemon/rounds/keep.h"
#include "daemon/rounds/loan.h"
#include "daemon/rounds/recover.h"
#include "daemon/rounds/reduce.h"

struct rounds {
    struct desk desk;
    struct encode *encode;
    struct reduce *reduce;
    struct apply *apply;
    struct copy *copy;
    struct install *install;
    struct keep *keep;
    struct loans *loans;
    struct recover *recover;
};

static enum err open_all(struct rounds *rounds, const struct rounds_conf *conf)
{
    struct desk *desk = &rounds->desk;
    TRY(desk_init(desk, conf));
    const struct jobs_room room = {.values = replica_piece_values(replica_conf(conf->replica)),
                                   .factor_values = replica_factor_values(conf->replica),
                                   .segment_values = replica_segment_values(conf->replica)};
    TRY(jobs_set_scratch(conf->jobs, &room));
    TRY(encode_new(desk, &rounds->encode));
    TRY(reduce_new(desk, &rounds->reduce));
    TRY(rounds_members(rounds, conf->view->count));
    TRY(apply_new(desk, &rounds->apply));
    TRY(copy_new(desk, &rounds->copy));
    TRY(loans_new(desk, &rounds->loans));
    TRY(keep_new(desk, rounds->apply, &rounds->keep));
    TRY(recover_new(desk, &rounds->recover));
    return install_new(desk, rounds->keep, &rounds->install);
}

enum err rounds_new(const struct rounds_conf *conf, struct rounds **out)
{
    struct rounds *rounds;
    *out = NULL;
    TRY(mem_new(1, sizeof *rounds, "rounds", &rounds));
    enum err err = open_all(rounds, conf);
    if (err != ERR_OK)
        rounds_free(rounds);
    else
        *out = rounds;
    return err;
}

void rounds_free(struct rounds *rounds)
{
    if (rounds == NULL)
        return;
    install_free(rounds->install);
    recover_free(rounds->recover);
    keep_free(rounds->keep);
    loans_free(rounds->loans);
    copy_free(rounds->copy);
    apply_free(rounds->apply);
    reduce_free(rounds->reduce);
    encode_free(rounds->encode);
    desk_deinit(&rounds->desk);
    mem_free(rounds);
}

void rounds_post_held(struct rounds *rounds, uint32_t f)
{
    apply_post_held(&rounds->desk, f);
}

enum err rounds_members(struct rounds *rounds, uint32_t count)
{
    TRY(slots_members(rounds->desk.conf.slots, count));
    return standing_members(&rounds->desk.standing, count);
}

enum err rounds_recover(struct rounds *rounds)
{
    return recover_begin(rounds->recover);
}

void rounds_recover_stop(struct rounds *rounds)
{
    recover_stop(rounds->recover);
}

struct rounds_recovery rounds_recovery(const struct rounds *rounds)
{
    return recover_info(rounds->recover);
}

enum err rounds_recovered(struct rounds *rounds)
{
    return recover_end(rounds->recover, rounds->keep);
}

bool rounds_known(const struct rounds *rounds, uint32_t f)
{
    return recover_known(rounds->recover, f);
}

void rounds_tell_recovered(struct rounds *rounds, uint32_t f)
{
    recover_tell_held(rounds->recover, f);
}

void rounds_begin(struct rounds *rounds, uint32_t f, const struct digest *hash)
{
    rounds->desk.fragments[f].state = (struct store_fragment){.hash = *hash};
}

/* ---- the core's orders ---- */

void rounds_encode(struct rounds *rounds, uint32_t f, uint64_t version, const struct replica_snapshot *snapshot)
{
    encode_begin(rounds->encode, f, version, snapshot);
}

void rounds_reduce(struct rounds *rounds, uint32_t f, uint64_t version, const struct bitset *have)
{
    reduce_begin(rounds->reduce, f, version, have);
}

void rounds_store(struct rounds *rounds, uint32_t f, uint64_t version)
{
    reduce_store(rounds->reduce, f, version);
}

void rounds_apply(struct rounds *rounds, uint32_t f, uint64_t version)
{
    apply_begin(rounds->apply, f, version);
}

void rounds_replay(struct rounds *rounds, uint32_t f, uint64_t version)
{
    install_replay(rounds->install, f, version);
}

void rounds_mend(struct rounds *rounds, uint32_t f, uint64_t version)
{
    install_mend(rounds->install, f, version);
}

/* ---- what other parts ask for ---- */

void rounds_give(struct rounds *rounds, uint32_t f, float *area)
{
    copy_give(rounds->copy, f, area);
}

void rounds_start(struct rounds *rounds, uint32_t f, float *base, bool initial)
{
    copy_start(rounds->copy, f, base, initial);
}

void rounds_lend(struct rounds *rounds, struct state_loan *loan)
{
    loans_make(rounds->loans, loan);
}

void rounds_object_in(struct rounds *rounds, uint32_t peer, const struct wire_key *key, uint64_t bytes)
{
    if (key->kind == WIRE_CONTRIBUTION)
        reduce_contribution_in(rounds->reduce, peer, key, bytes);
    else if (key->kind == WIRE_RESULT)
        apply_result_in(rounds->apply, peer, key, bytes);
    else
        install_state_in(rounds->install, peer, key, bytes);
}

void rounds_unread(struct rounds *rounds, uint32_t f)
{
    /* The core asks for a state in REPAIR, and orders an outer step in APPLYING: one after the other. */
    assert(!install_waits(rounds->install, f) || !apply_waits(rounds->apply, f));
    reduce_unread(rounds->reduce, f);
    install_unread(rounds->install, f);
    apply_unread(rounds->apply, f);
    encode_unread(rounds->encode, f);
}

void rounds_checkpoint(struct rounds *rounds, uint32_t f)
{
    keep_checkpoint(rounds->keep, f);
}

void rounds_checkpoint_all(struct rounds *rounds)
{
    keep_checkpoint_all(rounds->keep);
}

void rounds_export(struct rounds *rounds)
{
    keep_export(rounds->keep);
}

void rounds_export_follow(struct rounds *rounds)
{
    keep_follow(rounds->keep);
}

void rounds_tick(struct rounds *rounds, uint64_t now_ms, uint64_t uplink_bits)
{
    rounds->desk.now_ms = now_ms;
    rounds->desk.uplink_bits = uplink_bits;
    desk_probe(&rounds->desk);
    reduce_tick(rounds->reduce);
    apply_tick(rounds->apply);
    keep_tick(rounds->keep);
}

/* ---- looking in ---- */

const struct store_fragment *rounds_state(const struct rounds *rounds, uint32_t f)
{
    return &rounds->desk.fragments[f].state;
}

uint64_t rounds_first_epoch(const struct rounds *rounds)
{
    return keep_first_epoch(rounds->keep);
}

uint64_t rounds_step(const struct rounds *rounds)
{
    uint64_t step = 0;
    for (uint32_t f = 0; f < desk_fragments(&rounds->desk); f++)
        if (rounds->desk.fragments[f].state.step > step)
            step = rounds->desk.fragments[f].state.step;
    return step;
}

bool rounds_refused(const struct rounds *rounds)
{
    return desk_refuses(&rounds->desk);
}

struct rounds_info rounds_info(const struct rounds *rounds)
{
    const struct desk *desk = &rounds->desk;
    bool worth = !desk->conf.compress_auto || squeeze_best(&desk->squeeze, (double)desk->uplink_bits);
    struct rounds_info info = {.disk_note = desk->disk_note,
                               .compressing = desk->conf.spec->zstd_level > 0 && worth,
                               .saving = keep_saving(rounds->keep),
                               .saved = keep_saved(rounds->keep)};
    jobs_cpu(desk->conf.jobs, info.cpu_ns);
    return info;
}

double rounds_grown(const struct rounds *rounds, uint32_t f)
{
    return apply_grown(rounds->apply, f);
}

uint64_t rounds_outliers(const struct rounds *rounds, uint32_t member, unsigned *lately)
{
    return standing_outliers(&rounds->desk.standing, member, lately);
}
