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
#include "daemon/rounds/recover.h"
#include "daemon/rounds/reduce.h"

static enum err open_all(struct rounds *rounds, const struct rounds_conf *conf)
{
    TRY(mem_new(1, sizeof *rounds->desk, "rounds", &rounds->desk));
    struct desk *desk = rounds->desk;
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
    copy_free(rounds->copy);
    apply_free(rounds->apply);
    reduce_free(rounds->reduce);
    encode_free(rounds->encode);
    if (rounds->desk != NULL)
        desk_deinit(rounds->desk);
    mem_free(rounds->desk);
    mem_free(rounds);
}

enum err rounds_members(struct rounds *rounds, uint32_t count)
{
    TRY(slots_members(rounds->desk->conf.slots, count));
    return standing_members(&rounds->desk->standing, count);
}

void rounds_begin(struct rounds *rounds, uint32_t f, const struct digest *hash)
{
    rounds->desk->fragments[f].state = (struct store_fragment){.hash = *hash};
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

void rounds_tick(struct rounds *rounds, uint64_t now_ms, uint64_t uplink_bits)
{
    rounds->desk->now_ms = now_ms;
    rounds->desk->uplink_bits = uplink_bits;
    desk_probe(rounds->desk);
    reduce_tick(rounds->reduce);
    apply_tick(rounds->apply);
    keep_tick(rounds->keep);
}

/* ---- looking in ---- */

const struct store_fragment *rounds_state(const struct rounds *rounds, uint32_t f)
{
    return &rounds->desk->fragments[f].state;
}

uint64_t rounds_step(const struct rounds *rounds)
{
    uint64_t step = 0;
    for (uint32_t f = 0; f < desk_fragments(rounds->desk); f++)
        if (rounds->desk->fragments[f].state.step > step)
            step = rounds->desk->fragments[f].state.step;
    return step;
}

struct rounds_info rounds_info(const struct rounds *rounds)
{
    const struct desk *desk = rounds->desk;
    bool worth = !desk->conf.compress_auto || squeeze_best(&desk->squeeze, (double)desk->uplink_bits);
    struct rounds_info info = {.disk_note = desk->disk_note,
                               .compressing = desk->conf.spec->zstd_level > 0 && worth,
                               .saving = keep_saving(rounds->keep),
                               .saved = keep_saved(rounds->keep)};
    jobs_cpu(desk->conf.jobs, info.cpu_ns);
    return info;
}

uint64_t rounds_outliers(const struct rounds *rounds, uint32_t member, unsigned *lately)
{
    return standing_outliers(&rounds->desk->standing, member, lately);
}
