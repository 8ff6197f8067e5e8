/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/rounds.h"

#include <assert.h>

#include "common/mem.h"
#include "daemon/rounds/apply.h"
#include "daemon/rounds/copy.h"
#include "daemon/rounds/round_context.h"
#include "daemon/rounds/encode.h"
#include "daemon/rounds/install.h"
#include "daemon/rounds/keep.h"
#include "daemon/rounds/recover.h"
#include "daemon/rounds/reduce.h"

static enum err open_all(struct rounds *rounds, const struct rounds_conf *conf)
{
    TRY(mem_new(1, sizeof *rounds->context, "rounds", &rounds->context));
    struct round_context *context = rounds->context;
    TRY(round_context_init(context, conf));
    const struct jobs_room room = {.values = replica_piece_values(replica_conf(conf->replica)),
                                   .factor_values = replica_factor_values(conf->replica),
                                   .segment_values = replica_segment_values(conf->replica)};
    TRY(jobs_set_scratch(conf->jobs, &room));
    TRY(encode_new(context, &rounds->encode));
    TRY(reduce_new(context, &rounds->reduce));
    TRY(rounds_members(rounds, conf->view->count));
    TRY(apply_new(context, &rounds->apply));
    TRY(keep_new(context, rounds->apply, &rounds->keep));
    TRY(copy_new(context, rounds->keep, &rounds->copy));
    TRY(recover_new(context, &rounds->recover));
    return install_new(context, rounds->keep, &rounds->install);
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
    if (rounds->context != NULL)
        round_context_deinit(rounds->context);
    mem_free(rounds->context);
    mem_free(rounds);
}

enum err rounds_members(struct rounds *rounds, uint32_t count)
{
    TRY(slots_members(rounds->context->conf.slots, count));
    return standing_members(&rounds->context->standing, count);
}

void rounds_steps_most(struct rounds *rounds, uint64_t most)
{
    atomic_store(&rounds->context->steps_most, most);
}

void rounds_forget(struct rounds *rounds, uint32_t member)
{
    standing_forget(&rounds->context->standing, member);
}

void rounds_object_in(struct rounds *rounds, uint32_t peer, const struct wire_key *key, uint64_t bytes, bool excused)
{
    if (key->kind == WIRE_CONTRIBUTION)
        reduce_contribution_in(rounds->reduce, peer, key, bytes);
    else if (key->kind == WIRE_RESULT)
        apply_result_in(rounds->apply, peer, key, bytes);
    else
        install_state_in(rounds->install, peer, key, bytes, excused);
}

void rounds_on_disk(struct rounds *rounds, uint32_t f)
{
    copy_on_disk(rounds->copy, f);
    install_on_disk(rounds->install, f);
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

void rounds_tick(struct rounds *rounds, uint64_t now_ms, uint64_t uplink_bits, uint64_t step_line)
{
    atomic_store(&rounds->context->step_line, step_line);
    rounds->context->now_ms = now_ms;
    rounds->context->uplink_bits = uplink_bits;
    round_context_probe(rounds->context);
    reduce_tick(rounds->reduce);
    apply_tick(rounds->apply);
    keep_tick(rounds->keep);
}

/* ---- looking in ---- */

const struct store_fragment *rounds_state(const struct rounds *rounds, uint32_t f)
{
    return &rounds->context->fragments[f].state;
}

uint64_t rounds_step(const struct rounds *rounds)
{
    uint64_t step = 0;
    for (uint32_t f = 0; f < round_context_fragments(rounds->context); f++)
        if (rounds->context->fragments[f].state.step > step)
            step = rounds->context->fragments[f].state.step;
    return step;
}

struct rounds_info rounds_info(const struct rounds *rounds)
{
    const struct round_context *context = rounds->context;
    bool worth = !context->conf.compress_auto || zstd_choice_best(&context->zstd_choice, (double)context->uplink_bits);
    struct rounds_info info = {.disk_note = context->disk_note,
                               .compressing = context->conf.spec->zstd_level > 0 && worth,
                               .saving = keep_saving(rounds->keep),
                               .saved = keep_saved(rounds->keep)};
    jobs_cpu(context->conf.jobs, info.cpu_ns);
    return info;
}

uint64_t rounds_outliers(const struct rounds *rounds, uint32_t member, unsigned *lately)
{
    return standing_outliers(&rounds->context->standing, member, lately);
}

bool rounds_claims_much(const struct rounds *rounds, uint32_t member)
{
    return standing_claims_much(&rounds->context->standing, member);
}

bool rounds_turned_away(const struct rounds *rounds, uint32_t member)
{
    return bitset_has(&rounds->context->standing.away, member);
}
