/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public calls; see diloco.h for the interface and common/ipc.h for the contract with the daemon. Here is decided
 * which fragment moves when; attach_move moves it, attach_link tells the daemon. The words in shared memory are the
 * truth; messages only wake.
 */
#include "worker/libdiloco/diloco.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/env.h"
#include "common/err.h"
#include "common/ipc.h"
#include "common/mem.h"
#include "worker/libdiloco/attach_core.h"
#include "worker/libdiloco/attach_device.h"
#include "worker/libdiloco/attach_far.h"
#include "worker/libdiloco/attach_follow.h"
#include "worker/libdiloco/attach_gate.h"
#include "worker/libdiloco/attach_group.h"
#include "worker/libdiloco/attach_keep.h"
#include "worker/libdiloco/attach_link.h"
#include "worker/libdiloco/attach_map.h"
#include "worker/libdiloco/attach_move.h"
#include "worker/libdiloco/attach_register.h"

static _Thread_local char attach_error[IPC_TEXT_BYTES + 256];

/* What a call needs is missing. Without a handle the text is kept where diloco_attach() leaves its own. */
static int misused(struct diloco *d, const char *call, const char *how)
{
    if (d != NULL)
        return attach_fail(d, DILOCO_ERROR, "%s %s", call, how);
    snprintf(attach_error, sizeof attach_error, "%s without a handle; diloco_attach() gives one", call);
    return DILOCO_ERROR;
}

/* The same of a call that takes no handle. */
static int misused_alone(const char *call, const char *how)
{
    snprintf(attach_error, sizeof attach_error, "%s %s", call, how);
    return DILOCO_ERROR;
}

/* ---- moving fragments ---- */

/* Waits for the daemon to change something: a message, a slice of time, or its return. */
static int wait_for_daemon(struct diloco *d)
{
    if (attach_interrupted(d))
        return attach_fail(d, DILOCO_INTERRUPTED, "interrupted while waiting for the daemon");
    attach_group_awake(d);
    attach_wait(d);
    return attach_turn(d);
}

static int move_fragment(struct diloco *d, uint32_t f)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    bool released;
    int result = attach_settle_move(d, f, false);
    if (result == DILOCO_OK)
        result = attach_withdraw(d, f, &released);
    bool anchor = ipc_word(fragment) == IPC_ANCHOR, due = d->step >= fragment->mix_step, there;
    if (result == DILOCO_OK && anchor && due)
        result = attach_merge(d, f, false, d->shm->late_wait != 0);
    else if (result == DILOCO_OK && anchor)
        result = attach_bring(d, f, false, &there);
    if (result == DILOCO_OK && ipc_word(fragment) == IPC_FREE && d->step >= fragment->due_step)
        result = attach_snapshot(d, f, false);
    return result;
}

static int sync_fragments(struct diloco *d)
{
    for (;;) {
        bool wait = false;
        for (uint32_t f = 0; f < d->shm->fragments_count; f++) {
            struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
            int result = attach_words_free(d) ? move_fragment(d, f) : DILOCO_OK;
            if (result != DILOCO_OK)
                return result;
            /* With overlap = 0 the anchor is due at this very step; otherwise it may be late. */
            if (d->local[f].sent && d->shm->late_wait != 0 && d->step >= fragment->mix_step) {
                wait = true;
                result = attach_settle_move(d, f, true); /* what is waited for goes out first */
            }
            if (result != DILOCO_OK)
                return result;
        }
        if (!wait)
            return DILOCO_OK;
        int result = d->ending ? DILOCO_OK : wait_for_daemon(d);
        if (result != DILOCO_OK || d->ending)
            return result;
    }
}

/* As long as the run is paused. What becomes due meanwhile is moved: rounds that are open may close. */
static int stand(struct diloco *d)
{
    int result = DILOCO_OK;
    while (result == DILOCO_OK && !d->ending && atomic_load(&d->shm->paused) != 0) {
        result = wait_for_daemon(d);
        if (result == DILOCO_OK)
            result = sync_fragments(d);
    }
    return result;
}

/* The run's length may have changed; whoever has taken all of its steps is done. */
static void look_at_length(struct diloco *d)
{
    d->steps = atomic_load(&d->shm->steps);
    d->done = d->step >= d->steps;
}

/* ---- public calls ---- */

/* The others: what rank 0 decides; behind a gateway it is asked to. */
static int follow(struct diloco *d, enum gate_call call, const void *bytes, size_t count)
{
    attach_gate_call(d, call, bytes, count);
    return attach_follow(d, NULL, attach_map);
}

/* Rank 0 at the end of a call: the others return as well, with the same result. */
static int over(struct diloco *d, int result, const struct diloco_start *start)
{
    if (d->shm != NULL)
        ipc_deal_get(d->shm, &d->deal);
    struct attach_order order = {.kind = ATTACH_ORDER_END,
                                 .result = result,
                                 .deal = d->deal,
                                 .step = d->step,
                                 .steps = d->steps,
                                 .attached = d->socket >= 0,
                                 .keeps = d->rank0_keeps || d->first_keeps,
                                 .start = start != NULL ? *start : (struct diloco_start){0}};
    snprintf(order.error, sizeof order.error, "%s", d->error);
    int told = attach_order(d, &order, -1);
    return result != DILOCO_OK ? result : told;
}

/* By statx() and not stat(), which programs built today take from C libraries of 2021 on only: see conf/wheel.sh. */
static int explain_unreachable(struct diloco *d, const char *path, int reason)
{
    struct statx status;
    if (reason != EACCES)
        return attach_fail(d, DILOCO_UNREACHABLE, "no daemon at %s: %s; start dilocod, or check the path", path,
                           strerror(reason));
    if (statx(AT_FDCWD, path, 0, STATX_MODE | STATX_UID | STATX_GID, &status) != 0) {
        return attach_fail(d, DILOCO_UNREACHABLE,
                           "%s: permission denied: this user may not enter the socket's folder; open it (chmod o+x)",
                           path);
    } else {
        bool open = (status.stx_mode & S_IWGRP) != 0;
        const struct group *group = open ? getgrgid(status.stx_gid) : NULL;
        return attach_fail(d, DILOCO_UNREACHABLE,
                           "%s: permission denied: it is for root, user %u%s%s; run this trainer as one of them, or "
                           "let a group in with [worker] group in dilocod.conf and add this user to it",
                           path, (unsigned)status.stx_uid, open ? " and group " : "",
                           !open           ? ""
                           : group != NULL ? group->gr_name
                                           : "that its mode shows");
    }
}

static int find_daemon(struct diloco *d)
{
    int wait_ms = d->options.wait_ms;
    uint64_t deadline_ms = env_mono_ms() + (uint64_t)(wait_ms > 0 ? wait_ms : 0);
    while (!attach_connect(d)) {
        int reason = errno;
        if (reason == EACCES || env_mono_ms() >= deadline_ms || attach_interrupted(d))
            return explain_unreachable(d, d->socket_path, reason);
        attach_wait(d);
    }
    return DILOCO_OK;
}

static int take_machine(struct diloco *d, const struct diloco_machine *machine)
{
    struct diloco_machine known;
    if (machine == NULL)
        return DILOCO_OK;
    if (!attach_take(&known, sizeof known, machine))
        return attach_fail(d, DILOCO_ERROR, ATTACH_WRONG_SIZE, "diloco_machine");
    if (known.ranks < 0 || known.tensor_parallel < 0)
        return attach_fail(d, DILOCO_ERROR, "options.machine: %d ranks, tensor_parallel %d; 0 is for what is not said",
                           known.ranks, known.tensor_parallel);
    int processes = d->group.count > 1 ? d->group.count : 1;
    d->machine = (struct ipc_machine){.ranks = (uint32_t)(known.ranks > 0 ? known.ranks : processes),
                                      .tensor_parallel = (uint32_t)known.tensor_parallel,
                                      .memory_bytes = known.memory_bytes,
                                      .memory_total_bytes = known.memory_total_bytes,
                                      .flops_per_token = known.flops_per_token,
                                      .peak_flops = known.peak_flops};
    snprintf(d->machine.device, sizeof d->machine.device, "%s", known.device != NULL ? known.device : "");
    return DILOCO_OK;
}

int diloco_attach(const struct diloco_options *options, struct diloco **out)
{
    struct diloco *d;
    snprintf(attach_error, sizeof attach_error, "diloco_attach() without options, or a place for the handle");
    if (out == NULL)
        return DILOCO_ERROR;
    *out = NULL;
    if (options == NULL)
        return DILOCO_ERROR;
    struct diloco_options known;
    snprintf(attach_error, sizeof attach_error, ATTACH_WRONG_SIZE, "diloco_options");
    if (!attach_take(&known, sizeof known, options))
        return DILOCO_ERROR;
    options = &known;
    const char *path = options->socket_path != NULL ? options->socket_path : getenv("DILOCO_SOCKET");
    snprintf(attach_error, sizeof attach_error, "no socket path: set options.socket_path or DILOCO_SOCKET");
    if (path == NULL)
        return DILOCO_ERROR;
    if (mem_new(1, sizeof *d, "the attachment", &d) != ERR_OK || attach_link_init(d, path) != ERR_OK) {
        snprintf(attach_error, sizeof attach_error, "%s", err_text());
        mem_free(d);
        return DILOCO_ERROR;
    }
    d->options = *options;
    d->options.socket_path = d->socket_path;
    snprintf(d->trainer, sizeof d->trainer, "%s", options->trainer != NULL ? options->trainer : "trainer");
    d->options.trainer = d->trainer;
    d->memfd = -1;
    if (attach_device_take(d, options->device) != DILOCO_OK || attach_group_take(d, options->group) != DILOCO_OK ||
        take_machine(d, options->machine) != DILOCO_OK) {
        snprintf(attach_error, sizeof attach_error, "%s", d->error);
        diloco_detach(d);
        return DILOCO_ERROR;
    }
    int result = attach_gate_open(d, path);
    if (result == DILOCO_OK)
        result = attach_far_greet(d);
    if (result == DILOCO_OK)
        result = attach_follows(d) ? attach_follow(d, NULL, attach_map) : over(d, find_daemon(d), NULL);
    if (result != DILOCO_OK) {
        snprintf(attach_error, sizeof attach_error, "%s", d->error);
        diloco_detach(d);
        return result;
    }
    *out = d;
    return DILOCO_OK;
}

int diloco_register(struct diloco *d, const struct diloco_tensor *tensor)
{
    if (d == NULL || tensor == NULL)
        return misused(d, "diloco_register()", "without a tensor");
    struct diloco_tensor known;
    if (d->begun)
        return attach_fail(d, DILOCO_ERROR, "diloco_register() after diloco_begin()");
    if (!attach_take(&known, sizeof known, tensor))
        return attach_fail(d, DILOCO_ERROR, ATTACH_WRONG_SIZE, "diloco_tensor");
    return attach_register(d, &known);
}

int diloco_register_frozen(struct diloco *d, const struct diloco_frozen *frozen)
{
    if (d == NULL || frozen == NULL)
        return misused(d, "diloco_register_frozen()", "without a tensor");
    struct diloco_frozen known;
    if (d->begun)
        return attach_fail(d, DILOCO_ERROR, "diloco_register_frozen() after diloco_begin()");
    if (!attach_take(&known, sizeof known, frozen))
        return attach_fail(d, DILOCO_ERROR, ATTACH_WRONG_SIZE, "diloco_frozen");
    return attach_register_frozen(d, &known);
}

int diloco_place(struct diloco *d, int tensor, void *data)
{
    return d != NULL ? attach_register_place(d, tensor, data) : misused(d, "diloco_place()", "");
}

/* What the daemon wants of us before it says where to start. */
static int bring_own(struct diloco *d, const struct ipc_welcome *welcome)
{
    int result = DILOCO_OK;
    for (uint32_t f = 0; welcome->need_initial != 0 && result == DILOCO_OK && f < d->shm->fragments_count; f++)
        result = attach_copy_out(d, f, ATTACH_BASE);
    if (welcome->need_kept == 0)
        d->tokens = 0; /* of the run that begins now */
    else if (result == DILOCO_OK)
        result =
            d->kept ? attach_keep_restore(d) : attach_fail(d, DILOCO_ERROR, "the daemon asks for what is not there");
    if (result == DILOCO_OK)
        result = attach_settle_all(d);
    if (result == DILOCO_OK && (welcome->need_initial != 0 || welcome->need_kept != 0))
        attach_send(d, IPC_INITIAL);
    return result;
}

/* Whether an anchor newer than the one that was kept is to be taken in before training goes on. */
static bool is_due(const struct diloco *d, const struct ipc_fragment *fragment)
{
    return fragment->kept != IPC_KEPT_NOTHING && ipc_word(fragment) == IPC_ANCHOR && d->step >= fragment->mix_step;
}

static int await_go(struct diloco *d, struct ipc_message *message)
{
    for (;;) {
        int fd, result = attach_await(d, IPC_WAKE, IPC_GO, message, &fd);
        if (result != DILOCO_OK || message->type == IPC_GO)
            return result;
        for (uint32_t f = 0; result == DILOCO_OK && f < d->shm->fragments_count; f++) {
            if (is_due(d, ipc_fragment(d->shm, f)))
                result = attach_merge(d, f, false, true);
            if (result == DILOCO_OK)
                result = attach_settle_move(d, f, true);
        }
        if (result != DILOCO_OK)
            return result;
    }
}

static int begin(struct diloco *d, struct diloco_start *start)
{
    struct ipc_message message;
    int fd;
    int result = attach_keep_read(d);
    if (result == DILOCO_OK)
        result = attach_announce(d, &message, &fd);
    if (result != DILOCO_OK)
        return result;
    struct ipc_welcome welcome = message.welcome;
    result = attach_order(d, &(struct attach_order){.kind = ATTACH_ORDER_MAP, .session = welcome.session}, fd);
    if (result == DILOCO_OK)
        result = attach_map(d, fd, welcome.session);
    else if (fd >= 0)
        close(fd);
    if (result != DILOCO_OK)
        return result;
    result = bring_own(d, &welcome);
    if (result == DILOCO_OK)
        result = await_go(d, &message);
    if (result != DILOCO_OK)
        return result;
    for (uint32_t f = 0; result == DILOCO_OK && f < d->shm->fragments_count; f++) {
        bool kept;
        result = attach_keep_begins(d, f, &kept);
        if (result == DILOCO_OK && !kept)
            result = attach_copy_in(d, f, ATTACH_BASE);
    }
    if (result != DILOCO_OK)
        return result;
    d->begun = true;
    d->step = message.go.step;
    *start = (struct diloco_start){.size = start->size,
                                   .step = message.go.step,
                                   .steps = atomic_load(&d->shm->steps),
                                   .version = message.go.version,
                                   .tokens = message.go.tokens,
                                   .tokens_counted = message.go.tokens_counted,
                                   .island_index = welcome.island_index,
                                   .islands_count = welcome.islands_count};
    snprintf(start->island, sizeof start->island, "%.63s", welcome.island);
    /* A step may have been interrupted before it had moved all that is due after it. */
    result = d->kept ? sync_fragments(d) : DILOCO_OK;
    if (result == DILOCO_OK)
        result = stand(d);
    look_at_length(d);
    start->steps = d->steps;
    return result;
}

int diloco_changed(const struct diloco *d, int tensor)
{
    return d != NULL && attach_register_changed(d, tensor);
}

int diloco_begin(struct diloco *d, struct diloco_start *start)
{
    if (d == NULL || start == NULL)
        return misused(d, "diloco_begin()", "without a place for where to start");
    if (d->shm != NULL)
        return attach_fail(d, DILOCO_ERROR, "diloco_begin() twice");
    if (start->size < sizeof *start)
        return attach_fail(d, DILOCO_ERROR, ATTACH_WRONG_SIZE, "diloco_start");
    int result = attach_register_sort(d);
    if (!attach_follows(d))
        d->rank0_keeps = attach_group_has_all(d);
    if (!attach_follows(d))
        return over(d, result == DILOCO_OK ? begin(d, start) : result, start);
    if (result == DILOCO_OK)
        result = attach_gate_call_begin(d, attach_group_has_all(d));
    if (result == DILOCO_OK)
        result = attach_follow(d, start, attach_map);
    d->begun = result == DILOCO_OK;
    return result;
}

/* One step further; an island that is slower than others goes on where the run is. */
static void advance(struct diloco *d)
{
    uint64_t run = atomic_load_explicit(&d->shm->run_step, memory_order_relaxed);
    d->step++;
    d->trained++;
    if (d->shm->run_slack == IPC_LOCKSTEP || run <= d->step || run - d->step <= d->shm->run_slack)
        return;
    uint64_t steps = atomic_load(&d->shm->steps), furthest = run < steps ? run : steps;
    d->step = furthest > d->step ? furthest : d->step;
}

uint64_t diloco_run_step(const struct diloco *d)
{
    return d != NULL ? d->step : 0;
}

uint64_t diloco_run_steps(const struct diloco *d)
{
    return d != NULL ? d->steps : 0;
}

int diloco_deals(const struct diloco *d)
{
    return d != NULL && d->deal.count > 0;
}

static void draw(const struct deal *deal, uint64_t step, uint32_t unit, uint32_t units, struct diloco_unit *out)
{
    struct deal_place place = deal_place(deal, step, unit, units);
    *out = (struct diloco_unit){.size = out->size,
                                .dealt = place.dealt,
                                .island = place.id,
                                .position = place.position,
                                .turn = place.turn,
                                .since = place.since};
}

#define NOTHING_DEALT "%s: no data is dealt to this island: see diloco_deals()"

int diloco_draw(struct diloco *d, uint64_t step, uint32_t unit, uint32_t units, struct diloco_unit *out)
{
    if (d == NULL || out == NULL || unit >= units)
        return misused(d, "diloco_draw()", "without a place, or of a number beyond its units");
    if (out->size < sizeof *out)
        return attach_fail(d, DILOCO_ERROR, ATTACH_WRONG_SIZE, "diloco_unit");
    if (!diloco_deals(d))
        return attach_fail(d, DILOCO_ERROR, NOTHING_DEALT, "diloco_draw()");
    draw(&d->deal, step, unit, units, out);
    return DILOCO_OK;
}

_Static_assert(sizeof(struct deal) == DILOCO_DEALING_WORDS * sizeof(uint64_t), "it is handed out whole");

int diloco_dealing(const struct diloco *d, struct diloco_dealing *out)
{
    if (d == NULL || out == NULL || out->size < sizeof *out)
        return misused_alone("diloco_dealing()", "without a handle, or a place of its size");
    memcpy(out->words, &d->deal, sizeof d->deal);
    return DILOCO_OK;
}

int diloco_draw_by(const struct diloco_dealing *dealing, uint64_t step, uint32_t unit, uint32_t units,
                   struct diloco_unit *out)
{
    struct deal deal;
    if (dealing == NULL || dealing->size < sizeof *dealing || out == NULL || out->size < sizeof *out || unit >= units)
        return misused_alone("diloco_draw_by()", "without a dealing or a place, or of a number beyond its units");
    memcpy(&deal, dealing->words, sizeof deal);
    if (deal.count == 0 || deal.count > DEAL_LISTS)
        return misused_alone("diloco_draw_by()", "of what deals nothing: see diloco_deals()");
    draw(&deal, step, unit, units, out);
    return DILOCO_OK;
}

int diloco_window(const struct diloco_unit *unit, uint64_t windows, uint64_t seed, uint64_t *pass, uint64_t *window)
{
    if (unit == NULL || unit->size < sizeof *unit || windows == 0 || pass == NULL || window == NULL)
        return misused_alone("diloco_window()", "without a unit, or of no windows");
    struct deal_place place = {.dealt = unit->dealt != 0,
                               .position = unit->position,
                               .turn = unit->turn,
                               .since = unit->since,
                               .id = unit->island};
    struct deal_window drawn = deal_window(&place, windows);
    *pass = drawn.pass;
    *window = deal_shuffled(drawn.index, windows, deal_key(seed, drawn.pass));
    return DILOCO_OK;
}

/* The daemon draws a session at random for each trainer that begins. */
uint64_t diloco_seed(const struct diloco *d, uint64_t base)
{
    const unsigned beyond = 33; /* bits, of 64 */
    return d != NULL && d->begun ? env_mix64(d->session ^ env_mix64(base)) >> beyond : 0;
}

/* Whether we were asked to leave, and no contribution is still to become due. Rounds are made when it is the others'
 * time for them, too: until then training goes on. */
static bool has_left(const struct diloco *d)
{
    bool all = true;
    for (uint32_t f = 0; f < d->shm->fragments_count; f++)
        all &= d->local[f].last;
    return d->leave && (all || d->step >= d->shm->leave_step);
}

static int step(struct diloco *d, const struct diloco_report *report)
{
    if (!d->done) {
        advance(d);
        d->tokens += report->tokens;
    }
    int result = attach_turn(d);
    if (result != DILOCO_OK)
        return result;
    attach_report(d, &(struct ipc_report){.step = d->step,
                                          .tokens = d->tokens,
                                          .trained = d->trained,
                                          .loss = report->loss,
                                          .tokens_per_s = report->tokens_per_s,
                                          .lr = report->lr,
                                          .grad_norm = report->grad_norm});
    d->leave = d->leave || atomic_load(&d->shm->leave) != 0; /* the message may have been lost with a daemon */
    result = sync_fragments(d);
    if (result == DILOCO_OK && !has_left(d) && d->step < atomic_load(&d->shm->steps))
        result = stand(d);
    if (result != DILOCO_OK)
        return result;
    look_at_length(d);
    return d->ending || has_left(d) || d->done ? DILOCO_STOP : DILOCO_OK;
}

int diloco_step(struct diloco *d, const struct diloco_report *report)
{
    if (d == NULL || report == NULL)
        return misused(d, "diloco_step()", "without a report");
    struct diloco_report known;
    if (!d->begun)
        return attach_fail(d, DILOCO_ERROR, "diloco_step() before diloco_begin()");
    if (!attach_take(&known, sizeof known, report))
        return attach_fail(d, DILOCO_ERROR, ATTACH_WRONG_SIZE, "diloco_report");
    attach_register_unchanged(d);
    return attach_follows(d) ? follow(d, GATE_CALL_STEP, &known, sizeof known) : over(d, step(d, &known), NULL);
}

/* The last contributions and anchors of a fragment. `*pending` becomes true if there is something to wait for. */
static int finish_fragment(struct diloco *d, uint32_t f, bool *pending)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    bool released = false;
    int result = attach_withdraw(d, f, &released);
    if (released)
        d->local[f].tokens_counted = d->tokens; /* refused for good: waiting would not make it better */
    if (result == DILOCO_OK && ipc_word(fragment) == IPC_ANCHOR)
        result = attach_merge(d, f, d->local[f].sent && fragment->snapshot_tokens == d->tokens, true);
    if (result == DILOCO_OK)
        result = attach_settle_move(d, f, true);
    if (result != DILOCO_OK)
        return result;
    /* What a fragment has learned since its last contribution stays, for when we join again. */
    if (ipc_word(fragment) == IPC_FREE && d->local[f].tokens_counted < d->tokens && !d->local[f].last) {
        result = attach_snapshot(d, f, true);
        if (result == DILOCO_OK)
            result = attach_settle_move(d, f, true);
    } else if (ipc_word(fragment) == IPC_FREE) {
        /* Said at once, fragment by fragment: others may be waiting for us in a round of this one while we wait for
         * them in another. */
        attach_settle(d, f);
    }
    *pending |= ipc_word(fragment) != IPC_FREE;
    return result;
}

void diloco_ending(struct diloco *d, int wait_ms)
{
    if (d == NULL || d->ending)
        return;
    d->ending_wait_ms = (uint64_t)(wait_ms > 0 ? wait_ms : 0);
    d->ending = true;
}

/* Whether what a trainer that is to end waits for has taken too long. It contributes as one that leaves does. */
static bool ends_now(struct diloco *d)
{
    if (!d->ending)
        return false;
    d->leave = true;
    if (d->ending_ms == 0)
        d->ending_ms = env_mono_ms() + d->ending_wait_ms;
    return env_mono_ms() >= d->ending_ms;
}

/* The run was made longer after its last step was taken here: its end is not waited for, since it needs our steps. */
static bool outgrown(const struct diloco *d)
{
    return d->done && d->step < atomic_load(&d->shm->steps);
}

/* Until all is contributed and counted, and the daemon has said that no newer anchor comes. */
static int finish_fragments(struct diloco *d)
{
    for (bool done = false; !done;) {
        bool last = ends_now(d); /* what is free is contributed all the same */
        bool pending = !attach_words_free(d);
        int result = DILOCO_OK;
        for (uint32_t f = 0; result == DILOCO_OK && attach_words_free(d) && f < d->shm->fragments_count; f++)
            result = finish_fragment(d, f, &pending);
        if (result == DILOCO_OK)
            result = attach_turn(d); /* what was said goes out, too */
        done = !pending && d->say_count == 0 && (d->end_said || d->leave || outgrown(d));
        if (result == DILOCO_OK && !done && !last)
            result = wait_for_daemon(d);
        if (result != DILOCO_OK || last)
            return result;
    }
    return DILOCO_OK;
}

static uint32_t counted_fragments(const struct diloco *d)
{
    uint32_t counted = 0;
    for (uint32_t f = 0; f < d->shm->fragments_count; f++)
        counted += d->local[f].tokens_counted >= d->tokens;
    return counted;
}

/* It has to end before the run is over, and before all that an order to leave asks for is done. */
static bool cut_short(const struct diloco *d)
{
    bool left = atomic_load(&d->shm->leave) != 0 && counted_fragments(d) == d->shm->fragments_count;
    return d->ending && d->end.over == 0 && !left;
}

static int told_short(struct diloco *d)
{
    return attach_fail(d, DILOCO_OPEN,
                       "this trainer was to end: of %" PRIu32 " fragments its last contributions to %" PRIu32
                       " are counted, and the others are with the daemon or lost",
                       d->shm->fragments_count, counted_fragments(d));
}

static int finished(struct diloco *d)
{
    if (cut_short(d))
        return told_short(d);
    if (d->leave)
        return attach_fail(d, DILOCO_OPEN,
                           "this island leaves: its last contributions are counted, and the run goes on "
                           "without it");
    if (outgrown(d))
        return attach_fail(d, DILOCO_OPEN,
                           "all that was trained here is counted, and the run was made longer meanwhile, to step "
                           "%" PRIu64 ": this trainer is to be started again",
                           atomic_load(&d->shm->steps));
    if (d->end.over != 0)
        return DILOCO_OK;
    return attach_fail(d, DILOCO_OPEN, "all that was trained here is counted, but the run may go on: %.*s",
                       (int)sizeof d->end.why - 1, d->end.why);
}

static int finish(struct diloco *d)
{
    int result, outcome;
    do {
        result = finish_fragments(d);
        outcome = result == DILOCO_OK ? finished(d) : result;
        /* Exactly: what was shifted may be a rounding away from it. */
        for (uint32_t f = 0; result == DILOCO_OK && f < d->shm->fragments_count; f++)
            if (!d->leave || d->local[f].tokens_counted >= d->tokens)
                result = attach_copy_in(d, f, ATTACH_BASE);
        if (result == DILOCO_OK)
            result = attach_settle_all(d);
        if (result != DILOCO_OK)
            return result;
        if (cut_short(d)) /* it has not finished: it may come again */
            return outcome;
    } while (!attach_finished(d)); /* a daemon that went away just now has to know it, too */
    return outcome;
}

int diloco_finish(struct diloco *d)
{
    if (d == NULL)
        return misused(d, "diloco_finish()", "");
    if (!d->begun)
        return attach_fail(d, DILOCO_ERROR, "diloco_finish() before diloco_begin()");
    attach_register_unchanged(d);
    return attach_follows(d) ? follow(d, GATE_CALL_FINISH, NULL, 0) : over(d, finish(d), NULL);
}

void diloco_detach(struct diloco *d)
{
    if (d == NULL)
        return;
    bool done;
    attach_link_deinit(d);
    if (d->shm != NULL)
        (void)!attach_device_reached(d, attach_device_mark(d), true, &done);
    attach_free_beside(d);
    attach_device_deinit(d);
    attach_group_deinit(d);
    attach_far_deinit(d);
    attach_gate_close(d);
    if (d->shm != NULL)
        munmap(d->shm, d->shm->bytes);
    if (d->memfd >= 0)
        close(d->memfd);
    mem_free(d->tensors);
    mem_free(d->frozen);
    mem_free(d->changed);
    mem_free(d->local);
    mem_free(d);
}

int diloco_anchor(struct diloco *d, int tensor, float *values, uint64_t count)
{
    if (d == NULL || (values == NULL && count > 0))
        return misused(d, "diloco_anchor()", "without a place for values");
    if (!d->begun)
        return attach_fail(d, DILOCO_ERROR, "diloco_anchor() before diloco_begin()");
    return attach_read_anchor(d, tensor, values, count);
}

size_t diloco_keep_bytes(const struct diloco *d)
{
    return d != NULL && d->begun ? attach_keep_bytes(d) : 0;
}

int diloco_keep_ranks(const struct diloco *d)
{
    return d == NULL || !d->begun || d->rank0_keeps || d->group.count < 1 ? 1 : attach_gate_ranks(d);
}

static int keep_call(struct diloco *d, const char *call)
{
    if (d == NULL || !d->begun)
        return misused(d, call, "before diloco_begin()");
    d->looked = false;
    return DILOCO_OK;
}

/* Another rank, in a call of all ranks that keeps: rank 0 says what, unless it needs nobody. */
static int keep_along(struct diloco *d, enum gate_call call)
{
    return d->rank0_keeps && !attach_gate_leads(d) ? DILOCO_OK : follow(d, call, NULL, 0);
}

/* The trainer's first rank gets what is kept, also where that is not rank 0, which a gateway is. */
static size_t keep_far(struct diloco *d, enum gate_call call, void *to, size_t bytes)
{
    return keep_along(d, call) == DILOCO_OK ? attach_gate_fetch(d, to, bytes) : 0;
}

/* Rank 0, around what it does in such a call. */
static void keep_apart(struct diloco *d, bool begins)
{
    d->speaks_to_none = begins && d->rank0_keeps;
}

/* How many bytes rank 0 wrote. */
static size_t kept(struct diloco *d, size_t written)
{
    size_t result = over(d, written > 0 ? DILOCO_OK : DILOCO_ERROR, NULL) == DILOCO_OK ? written : 0;
    keep_apart(d, false);
    return result;
}

size_t diloco_keep(struct diloco *d, void *to, size_t bytes)
{
    size_t written = 0;
    if (keep_call(d, "diloco_keep()") != DILOCO_OK)
        return 0;
    if (attach_follows(d))
        return keep_far(d, GATE_CALL_KEEP, to, bytes);
    keep_apart(d, true);
    if (to == NULL || bytes < attach_keep_bytes(d))
        attach_fail(d, DILOCO_ERROR, "diloco_keep() without room for diloco_keep_bytes()");
    else
        written = attach_keep(d, to);
    return kept(d, written);
}

int diloco_keep_begin(struct diloco *d)
{
    int result = keep_call(d, "diloco_keep_begin()");
    if (result != DILOCO_OK)
        return result;
    if (attach_follows(d))
        return keep_along(d, GATE_CALL_KEEP_BEGIN);
    keep_apart(d, true);
    result = over(d, attach_keep_settle(d), NULL);
    keep_apart(d, false);
    return result;
}

int diloco_keep_values(struct diloco *d, int tensor, enum diloco_kept kind, float *values, uint64_t count)
{
    int result = keep_call(d, "diloco_keep_values()");
    return result == DILOCO_OK ? attach_kept_out(d, tensor, kind, values, count) : result;
}

size_t diloco_keep_rest_bytes(const struct diloco *d)
{
    return d != NULL && d->begun ? attach_keep_rest_bytes(d) : 0;
}

size_t diloco_keep_rest(struct diloco *d, void *to, size_t bytes)
{
    size_t written = 0;
    if (keep_call(d, "diloco_keep_rest()") != DILOCO_OK)
        return 0;
    if (attach_follows(d))
        return keep_far(d, GATE_CALL_KEEP_REST, to, bytes);
    keep_apart(d, true);
    if (to == NULL || bytes < attach_keep_rest_bytes(d))
        attach_fail(d, DILOCO_ERROR, "diloco_keep_rest() without room for diloco_keep_rest_bytes()");
    else
        written = attach_keep_rest(d, to);
    return kept(d, written);
}

const char *diloco_error(const struct diloco *d)
{
    if (d == NULL)
        return attach_error;
    return d->error[0] != '\0' ? d->error : "no error recorded";
}

const char *diloco_version(void)
{
    return DILOCO_VERSION;
}

int diloco_attached(const struct diloco *d)
{
    return d != NULL && (d->socket >= 0 || d->rank0_attached);
}
