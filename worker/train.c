/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "worker/ckpt.h"
#include "worker/ckpt_write.h"
#include "worker/crew.h"
#include "worker/data.h"
#include "worker/inner.h"
#include "worker/libdiloco/diloco.h"
#include "worker/machine.h"
#include "worker/memory_plan.h"
#include "worker/model/model.h"
#include "worker/model/model_shares.h"
#include "worker/moves.h"
#include "worker/speed.h"

enum { SKIPS_MAX = 10, DAEMON_WAIT_MS = 10000, LOG_EVERY_STEPS = 50 };

/* A step that was queued; its line in train.jsonl is written when its result is there. */
struct queued {
    uint64_t step;   /* of the run, after it */
    uint64_t tokens; /* of this island, all so far */
    bool known;
    struct inner_result result;
};

struct trainer {
    const struct train_options *options;
    const struct runspec *spec; /* `run`, once there is a model */
    struct runspec run;         /* the options', and how long the run is now, by which learning rates go */
    const struct kern *kern;
    struct kern_dev *dev;
    struct crew crew;
    int64_t batch;         /* of this rank */
    uint64_t memory_bytes; /* that training takes of this rank's device */
    struct model *model;
    struct inner *inner;
    struct ckpt_writer *writer;
    struct data *data;
    struct moves *moves;   /* NULL: parameters are on the host, or we are alone */
    struct diloco *diloco; /* NULL: alone */
    struct ckpt_state state;
    int32_t *tokens, *targets; /* one micro-batch */
    FILE *metrics;
    struct speed speed;
    double tokens_per_s; /* by `speed` */
    uint32_t stream, streams_count;
    bool deals;                          /* the run deals the windows */
    struct deal_place *places;           /* of one micro-batch */
    struct queued queued[INNER_RESULTS]; /* the oldest first */
    unsigned queued_count;
    struct inner_result last; /* the newest result that is known */
    uint64_t owed;            /* tokens that were reported, of steps that turned out to be skipped */
    unsigned skips;           /* steps in a row whose gradient was not finite */
    bool without_initial;     /* the model that the run begins from is not here: the daemon has the others' */
    bool was_attached;
    bool told_attention;
    bool was_interrupted; /* rank 0 was, in a call of libdiloco's */
};

/* ---- set-up and end ---- */

static uint64_t windows_per_step(const struct trainer *t)
{
    return (uint64_t)(t->spec->batch * t->spec->accumulate);
}

static enum err open_data(struct trainer *t)
{
    struct data_conf conf = {
        .path = t->options->data_path,
        .format = t->spec->format,
        .vocab = t->spec->vocab,
        .context = t->spec->context,
        .held_out = t->spec->held_out,
        .seed = (uint64_t)t->spec->seed,
        .stream = t->stream,
        .streams_count = t->streams_count,
        .windows_per_step = windows_per_step(t),
        .steps = (uint64_t)t->spec->steps,
    };
    TRY(data_open(&conf, &t->data));
    uint64_t need = (uint64_t)(t->spec->batch * t->spec->context) + 1;
    if (data_train_tokens(t->data) < need)
        return err_set(ERR_CONF,
                       "data file %s: %" PRIu64 " tokens for training are fewer than one batch (batch %" PRId64
                       " x context %" PRId64 "); use a larger file or a smaller batch",
                       conf.path, data_train_tokens(t->data), t->spec->batch, t->spec->context);
    return ERR_OK;
}

static enum err open_model(struct trainer *t)
{
    const struct launch_rank *rank = t->options->rank;
    int tp = t->options->tensor_parallel;
    struct model_grid grid = crew_grid(rank, tp);
    struct kern_place place = {.device = rank != NULL ? rank->device : 0,
                               .threads = t->options->threads,
                               .bf16 = t->spec->precision == RUNSPEC_PRECISION_BF16};
    char device[160], *choices;
    t->batch = t->spec->batch / grid.dp;
    size_t count = (size_t)(t->batch * t->spec->context);
    struct memory_plan_conf conf = {
        .model = {.batch = t->batch, .train = true, .recompute = t->options->recompute, .grid = grid},
        .attached = t->options->socket_path != NULL,
        .sharing = rank != NULL ? rank->count / rank->devices : 1};
    TRY(kern_find(t->options->device, &t->kern));
    TRY(mem_printf(&choices, "%s/algorithms-%d.txt", t->options->folder, rank != NULL ? rank->rank : 0));
    place.choices = choices;
    enum err err = t->kern->open(&place, &t->dev);
    mem_free(choices);
    TRY(err);
    t->kern->describe(t->dev, device, sizeof device);
    log_info("device %s: %s", t->kern->name, device);
    if (place.bf16 && !t->kern->bf16(t->dev))
        log_warn("[train] precision = bf16: this CPU has neither AVX512-BF16 nor AMX; training in fp32");
    TRY(crew_init(&t->crew, rank, tp, t->kern, t->dev)); /* takes memory, too, where sums go through NCCL */
    conf.model.grid = t->crew.grid;
    TRY(memory_plan_check(t->spec, t->kern, t->dev, &conf, &t->memory_bytes));
    TRY(crew_meet(&t->crew)); /* all have looked before any allocates */
    TRY(model_new(t->spec, t->kern, t->dev, &conf.model, &t->model));
    TRY(inner_new(t->model, t->spec, &t->inner));
    inner_round(t->inner, t->options->stochastic_rounding);
    if (t->options->stochastic_rounding && t->kern->act_bytes == sizeof(float))
        log_info("device %s: products read float weights, of which nothing is rounded: --rounding changes nothing",
                 t->kern->name);
    TRY(ckpt_writer_new(t->options->folder, t->spec, t->model, t->inner, &t->writer));
    TRY(mem_new(count, sizeof *t->tokens, "a batch", &t->tokens));
    TRY(mem_new((size_t)t->batch, sizeof *t->places, "a batch", &t->places));
    return mem_new(count, sizeof *t->targets, "a batch", &t->targets);
}

static void trainer_deinit(struct trainer *t)
{
    ckpt_writer_free(t->writer);
    diloco_detach(t->diloco);
    moves_free(t->moves);
    data_close(t->data);
    inner_free(t->inner);
    model_free(t->model);
    crew_deinit(&t->crew);
    if (t->dev != NULL)
        t->kern->close(t->dev);
    mem_free(t->state.kept);
    mem_free(t->tokens);
    mem_free(t->targets);
    mem_free(t->places);
    if (t->metrics != NULL)
        fclose(t->metrics);
}

/* Whether there is another one that speaks for this rank. */
static bool follows(const struct trainer *t)
{
    return t->options->rank != NULL && t->options->rank->rank > 0;
}

/* A daemon's trainer writes in the daemon's state folder, and makes none where that was moved away: the folder that is
 * put back would come to lie inside the new one. */
static enum err make_folder(const struct train_options *options)
{
    if (options->socket_path == NULL)
        return fsio_mkdirs(options->folder, 0755);
    if (mkdir(options->folder, 0755) != 0 && errno != EEXIST)
        return err_set_errno(ERR_IO, "cannot create folder %s", options->folder);
    return ERR_OK;
}

static enum err open_folder(struct trainer *t)
{
    char *path;
    if (follows(t))
        return ERR_OK;
    TRY(make_folder(t->options));
    TRY(mem_printf(&path, "%s/train.jsonl", t->options->folder));
    t->metrics = fopen(path, "ae");
    enum err err = t->metrics != NULL ? ERR_OK : err_set_errno(ERR_IO, "cannot open %s", path);
    mem_free(path);
    return err;
}

/* ---- the daemon ---- */

static int stop_asked(void *user)
{
    const struct trainer *t = user;
    return t->options->interrupted() ? 1 : 0;
}

static enum err attachment_failed(struct trainer *t, int result)
{
    t->was_interrupted = result == DILOCO_INTERRUPTED;
    if (t->was_interrupted)
        return err_set(ERR_CLOSED, "interrupted");
    return err_set(result == DILOCO_REFUSED ? ERR_CONF : ERR_IO, "%s", diloco_error(t->diloco));
}

/* After the exchange may have changed masters: what products use follows. On a device moves has seen to this rank's. */
static enum err show_parameters(struct trainer *t)
{
    return t->kern->on_host ? model_refresh(t->model) : model_spread(t->model);
}

static kern_act *act_of(const void *model, const float *own)
{
    return model_act_of(model, own);
}

/* The data stream goes with the run's steps: nothing this island trained is drawn twice, and weights that change by
 * step change for one that skips some as for all others. */
static void go_to(struct trainer *t, uint64_t step)
{
    if (step == t->state.step)
        return;
    t->state.step = step;
    t->state.position = step * windows_per_step(t);
}

/* Which may have changed since. */
static void note_length(struct trainer *t)
{
    uint64_t steps = diloco_run_steps(t->diloco);
    if (steps != runspec_length(t->spec))
        log_info("the run is %" PRIu64 " steps long now", steps);
    t->run.length = (int64_t)steps;
}

static struct diloco_tensor announced(const struct trainer *t, const struct model_tensor *tensor)
{
    struct model_share share = model_share(t->model, tensor);
    const struct model_part *part = &tensor->part;
    struct diloco_tensor out = {.size = sizeof out,
                                .name = tensor->name,
                                .data = t->model->w + share.at,
                                .dims = tensor->dims,
                                .shape = {tensor->shape[0], tensor->shape[1]},
                                .layer = tensor->layer};
    if (t->crew.count > 1)
        out.part = (struct diloco_part){.column0 = (uint64_t)part->column,
                                        .columns = (uint64_t)part->columns,
                                        .first = (uint64_t)(part->row * part->columns + share.first),
                                        .count = (uint64_t)share.count};
    return out;
}

static struct diloco_machine machine(const struct trainer *t, char name[MACHINE_NAME_BYTES])
{
    struct machine_conf conf = {.kern = t->kern,
                                .dev = t->dev,
                                .ranks = t->crew.count,
                                .tensor_parallel = t->crew.grid.tp,
                                .devices = t->options->rank != NULL ? t->options->rank->devices : 1,
                                .memory_bytes = t->memory_bytes,
                                .flops_per_token = model_train_flops(t->model, 1)};
    return machine_of(&conf, name);
}

static enum err attach(struct trainer *t)
{
    if (t->options->socket_path == NULL)
        return ERR_OK;
    char name[MACHINE_NAME_BYTES];
    struct diloco_machine runs_on = machine(t, name);
    if (!t->kern->on_host)
        TRY(moves_new(t->kern, t->dev, t->model->w, t->model->own_count, act_of, t->model, &t->moves));
    struct diloco_options options = {.size = sizeof(struct diloco_options),
                                     .socket_path = t->options->socket_path,
                                     .trainer = "diloco-worker",
                                     .wait_ms = DAEMON_WAIT_MS,
                                     .device = t->moves != NULL ? moves_device(t->moves) : NULL,
                                     .interrupted = stop_asked,
                                     .interrupted_user = t,
                                     .group = t->crew.count > 1 ? &t->crew.group : NULL,
                                     .machine = &runs_on,
                                     .without_initial = t->without_initial,
                                     .kept = t->state.kept,
                                     .kept_bytes = t->state.kept_count * sizeof *t->state.kept};
    if (diloco_attach(&options, &t->diloco) != DILOCO_OK)
        return err_set(ERR_IO, "%s", diloco_error(t->diloco));
    for (int i = 0; i < t->model->tensors_count; i++) {
        struct diloco_tensor tensor = announced(t, &t->model->tensors[i]);
        int result = diloco_register(t->diloco, &tensor);
        if (result != DILOCO_OK)
            return attachment_failed(t, result);
    }
    struct diloco_start start = {.size = sizeof(struct diloco_start)};
    int result = diloco_begin(t->diloco, &start);
    if (result != DILOCO_OK)
        return attachment_failed(t, result);
    TRY(show_parameters(t));
    mem_free(t->state.kept); /* it is in the shared memory now */
    t->state.kept = NULL;
    t->state.kept_count = 0;
    t->was_attached = true;
    if (!t->options->stream_published) {
        t->stream = start.island_index;
        t->streams_count = start.islands_count;
    }
    go_to(t, start.step);
    note_length(t);
    log_info("attached as island %s (%" PRIu32 " of %" PRIu32 "), after step %" PRIu64 ", version %" PRIu64,
             start.island, start.island_index + 1, start.islands_count, start.step, start.version);
    return ERR_OK;
}

static void report_attachment(struct trainer *t)
{
    bool now = diloco_attached(t->diloco) != 0;
    if (now != t->was_attached)
        log_warn(now ? "the daemon is back; attached again"
                     : "the daemon is gone; training goes on alone and attaches again when it is back");
    t->was_attached = now;
}

/* ---- one step ---- */

static uint64_t tokens_per_step(const struct trainer *t)
{
    return windows_per_step(t) * (uint64_t)t->spec->context;
}

/* Windows from number `first` on of those that this island draws for the step. Judged now: whatever is heard later,
 * they are its own. */
static enum err draw(struct trainer *t, uint64_t first)
{
    for (int64_t i = 0; i < t->batch; i++) {
        struct diloco_unit unit = {.size = sizeof unit};
        if (diloco_draw(t->diloco, t->state.step + 1, (uint32_t)first + (uint32_t)i, (uint32_t)windows_per_step(t),
                        &unit) != DILOCO_OK)
            return err_set(ERR_STATE, "%s", diloco_error(t->diloco));
        t->places[i] = (struct deal_place){.dealt = unit.dealt != 0,
                                           .position = unit.position,
                                           .turn = unit.turn,
                                           .since = unit.since,
                                           .id = unit.island};
    }
    return data_batch_dealt(t->data, t->places, t->batch, t->tokens, t->targets);
}

static enum err gradients(struct trainer *t)
{
    double scale = 1.0 / (double)t->spec->accumulate;
    for (int64_t i = 0; i < t->spec->accumulate; i++) {
        uint64_t own = (uint64_t)(t->crew.grid.row * t->batch);
        TRY(t->deals ? draw(t, (uint64_t)(i * t->spec->batch) + own)
                     : data_batch(t->data, t->state.position + own, t->batch, t->tokens, t->targets));
        if (i == t->spec->accumulate - 1)
            model_sum_next(t->model);
        TRY(model_train(t->model, t->tokens, t->targets, scale));
        t->state.position += (uint64_t)t->spec->batch;
    }
    return ERR_OK;
}

static enum err check_finite(struct trainer *t, const struct queued *queued)
{
    const struct inner_result *result = &queued->result;
    t->skips = result->skipped ? t->skips + 1 : 0;
    if (t->skips >= SKIPS_MAX)
        return err_set(ERR_NONFINITE,
                       "training has diverged: %d steps in a row gave a gradient with NaN or Inf (last at step %" PRIu64
                       "); lower [train] lr in the run spec",
                       SKIPS_MAX, queued->step);
    if (result->skipped)
        log_warn("step %" PRIu64 ": the gradient holds NaN or Inf; parameters left as they were", queued->step);
    return ERR_OK;
}

/* Results, until no more than `pending` steps are without. */
static enum err take_results(struct trainer *t, uint64_t pending)
{
    for (unsigned i = 0; i < t->queued_count; i++) {
        struct queued *queued = &t->queued[i];
        if (queued->known || inner_pending(t->inner) <= pending)
            continue;
        TRY(inner_result(t->inner, &queued->result));
        queued->known = true;
        t->last = queued->result;
        if (queued->result.skipped)
            t->owed += tokens_per_step(t);
        TRY(check_finite(t, queued));
    }
    return ERR_OK;
}

static void write_lines(struct trainer *t)
{
    unsigned written = 0;
    for (; written < t->queued_count && t->queued[written].known; written++) {
        const struct queued *q = &t->queued[written];
        const struct inner_result *r = &q->result;
        if (follows(t))
            continue;
        fprintf(t->metrics,
                "{\"step\":%" PRIu64 ",\"loss\":%.6f,\"lr\":%.6g,\"grad_norm\":%.5g,\"tokens\":%" PRIu64
                ",\"tokens_per_s\":%.1f,\"time_ms\":%" PRIu64 "}\n",
                q->step, isfinite(r->loss) ? r->loss : -1, r->lr, isfinite(r->grad_norm) ? r->grad_norm : -1, q->tokens,
                t->tokens_per_s, env_wall_ms());
    }
    t->queued_count -= written;
    memmove(t->queued, t->queued + written, t->queued_count * sizeof *t->queued);
    if (!follows(t))
        fflush(t->metrics);
}

/* All results and their lines: before anything that is to be as of the last step. */
static enum err settle(struct trainer *t)
{
    TRY(take_results(t, 0));
    write_lines(t);
    return ERR_OK;
}

/* Tokens of a step count as it is queued, and are taken back from later ones if it turns out to have been skipped. */
static enum err exchange(struct trainer *t, uint64_t tokens, bool *leave)
{
    uint64_t back = t->owed < tokens ? t->owed : tokens;
    struct diloco_report report = {.size = sizeof(struct diloco_report),
                                   .tokens = tokens - back,
                                   .loss = t->last.loss,
                                   .tokens_per_s = t->tokens_per_s,
                                   .lr = t->last.lr,
                                   .grad_norm = t->last.grad_norm};
    t->owed -= back;
    if (t->diloco == NULL)
        return model_spread(t->model);
    int code = diloco_step(t->diloco, &report);
    report_attachment(t);
    if (code != DILOCO_OK && code != DILOCO_STOP)
        return attachment_failed(t, code);
    *leave = code == DILOCO_STOP;
    go_to(t, diloco_run_step(t->diloco));
    note_length(t);
    return show_parameters(t);
}

/* Whether a multiple of `interval` was reached: steps may be skipped where the run is further. */
static bool passes(uint64_t interval, uint64_t before, uint64_t now)
{
    return interval > 0 && now / interval > before / interval;
}

/* Whose kernels do it, where there is a choice: once, after the first batch, which has tried them. */
static void tell_attention(struct trainer *t)
{
    for (int backward = 0; backward < 2 && !t->told_attention; backward++) {
        char text[512];
        model_attention_by(t->model, backward == 1, text, sizeof text);
        if (strcmp(text, "ours") != 0)
            log_info("attention_%s by %s", backward == 1 ? "bwd" : "fwd", text);
    }
    t->told_attention = true;
}

static enum err one_step(struct trainer *t, bool *leave)
{
    uint64_t before = t->state.step;
    uint64_t tokens = tokens_per_step(t);
    TRY(gradients(t));
    tell_attention(t);
    t->state.step++;
    TRY(inner_step(t->inner, t->state.step));
    t->state.tokens += tokens;
    struct queued *queued = &t->queued[t->queued_count++];
    *queued = (struct queued){.step = t->state.step, .tokens = t->state.tokens};
    TRY(take_results(t, t->kern->ahead));
    t->tokens_per_s = speed_count(&t->speed, tokens, env_mono_s());
    TRY(exchange(t, tokens, leave));
    queued->step = t->state.step; /* the run may be further */
    write_lines(t);
    if (passes(LOG_EVERY_STEPS, before, t->state.step) || t->state.step == 1)
        log_info("step %" PRIu64 "/%" PRIu64 "  loss %.4f  %.0f tokens/s", t->state.step, runspec_length(t->spec),
                 t->last.loss, t->tokens_per_s);
    return ERR_OK;
}

/* ---- evaluation and saving ---- */

/* Of several rows each has its share of every batch. */
static enum err held_out_loss(struct model *model, const struct data *data, uint64_t batches, int32_t *tokens,
                              int32_t *targets, double *loss)
{
    uint64_t whole = (uint64_t)(model->B * model->grid.dp), own = (uint64_t)(model->B * model->grid.row);
    *loss = 0;
    for (uint64_t i = 0; i < batches; i++) {
        double part;
        TRY(data_held_out(data, i * whole + own, batches * whole, model->B, tokens, targets));
        TRY(model_loss(model, tokens, targets, &part));
        *loss += part / (double)batches;
    }
    return model_mean(model, loss);
}

static enum err evaluate(struct trainer *t)
{
    double loss;
    TRY(settle(t));
    if (t->options->eval_batches == 0 || !data_holds_out(t->data))
        return ERR_OK;
    TRY(held_out_loss(t->model, t->data, t->options->eval_batches, t->tokens, t->targets, &loss));
    if (follows(t))
        return ERR_OK;
    fprintf(t->metrics, "{\"step\":%" PRIu64 ",\"val_loss\":%.6f,\"time_ms\":%" PRIu64 "}\n", t->state.step, loss,
            env_wall_ms());
    fflush(t->metrics);
    log_info("step %" PRIu64 ": held-out loss %.4f", t->state.step, loss);
    return ERR_OK;
}

/* What of our work no result has counted. */
static enum err keep(struct trainer *t)
{
    size_t bytes = diloco_keep_bytes(t->diloco);
    mem_free(t->state.kept);
    t->state.kept = NULL;
    t->state.kept_count = 0;
    if (bytes == 0)
        return ERR_OK;
    if (follows(t)) {
        diloco_keep(t->diloco, NULL, 0); /* rank 0 gets it all */
        return ERR_OK;
    }
    if (mem_new(bytes / sizeof *t->state.kept + 1, sizeof *t->state.kept, "what the checkpoint keeps",
                &t->state.kept) != ERR_OK) {
        log_warn("%s: the checkpoint holds no work that is not counted yet", err_text());
        bytes = 0; /* the other ranks are to hear it all the same */
    }
    t->state.kept_count = diloco_keep(t->diloco, t->state.kept, bytes) / sizeof *t->state.kept;
    return ERR_OK;
}

/* The last one, with which training ends. */
static enum err save(struct trainer *t)
{
    TRY(settle(t));
    TRY(keep(t));
    return ckpt_save_now(t->writer, &t->state);
}

static enum err begin_save(struct trainer *t)
{
    TRY(settle(t));
    TRY(keep(t));
    return ckpt_save(t->writer, &t->state);
}

/* A checkpoint that cannot be written does not stop the training: the one before stands, and it is tried again. */
static void save_or_complain(struct trainer *t)
{
    if (begin_save(t) != ERR_OK)
        log_error("checkpoint at step %" PRIu64 " failed: %s; training goes on", t->state.step, err_text());
}

static bool goes_on(const struct trainer *t)
{
    return t->state.step < runspec_length(t->spec);
}

static enum err loop(struct trainer *t)
{
    bool leave = false;
    t->speed = speed_init(env_mono_s());
    while (goes_on(t) && !leave) {
        bool stop = t->options->interrupted();
        TRY(crew_agree(&t->crew, &stop, sizeof stop));
        if (stop) {
            TRY(save(t));
            log_info("stopped at step %" PRIu64 "; the same command goes on from there", t->state.step);
            return ERR_OK;
        }
        uint64_t before = t->state.step;
        enum err err = one_step(t, &leave);
        if (err == ERR_CLOSED && t->was_interrupted) { /* while standing still for an anchor */
            TRY(save(t));
            log_info("stopped at step %" PRIu64, t->state.step);
            return ERR_OK;
        }
        TRY(err);
        ckpt_look(t->writer);
        if (passes(t->options->eval_every, before, t->state.step) && goes_on(t))
            TRY(evaluate(t));
        if (passes(t->options->checkpoint_every, before, t->state.step) && goes_on(t))
            save_or_complain(t);
    }
    TRY(settle(t));
    if (t->diloco != NULL) {
        log_info("step %" PRIu64 ": sending the last contributions", t->state.step);
        int result = diloco_finish(t->diloco);
        if (result == DILOCO_INTERRUPTED)
            log_warn("interrupted before the last contributions were counted");
        else if (result == DILOCO_OPEN)
            log_warn("%s", diloco_error(t->diloco));
        else if (result != DILOCO_OK)
            return attachment_failed(t, result);
        TRY(show_parameters(t));
    }
    TRY(evaluate(t));
    return save(t);
}

/* Where no checkpoint is to go on from, and no seed gives the parameters. */
static enum err read_origin(struct trainer *t)
{
    enum err err = ckpt_load_origin(t->spec, t->model);
    if (err == ERR_OK) {
        log_info("beginning from %s", t->spec->init);
        return ERR_OK;
    }
    if (err != ERR_NOTFOUND)
        return err;
    if (t->options->socket_path == NULL)
        return err_suffix(ERR_CONF, "set it, as in --set run.init=FOLDER");
    log_info("%s: the parameters come from the other islands", err_text());
    t->without_initial = true;
    return ERR_OK;
}

static enum err resume_or_begin(struct trainer *t)
{
    bool seeded = t->spec->init_digest[0] == '\0';
    if (seeded)
        TRY(model_init(t->model, (uint64_t)t->spec->seed));
    enum err err = ckpt_load(t->options->folder, t->spec, t->model, t->inner, &t->state);
    if (err == ERR_OK)
        log_info("resuming after step %" PRIu64, t->state.step);
    else if (err == ERR_CORRUPT && t->options->socket_path != NULL)
        log_warn("%s; going on from the run's anchor, without what this island had beside it", err_text());
    else if (err != ERR_NOTFOUND)
        return err;
    return err == ERR_OK || seeded ? ERR_OK : read_origin(t);
}

static void look_who_deals(struct trainer *t)
{
    bool dealt = t->diloco != NULL && !t->options->stream_published && diloco_deals(t->diloco);
    t->deals = dealt && data_deals(t->data);
    if (dealt && !t->deals)
        log_info("the mixture's weights change with the steps: its windows are not dealt by the run, and are drawn as "
                 "stream %" PRIu32 " of %" PRIu32,
                 t->stream + 1, t->streams_count);
}

enum err train_run(const struct train_options *options)
{
    enum err err;
    struct trainer t = {.options = options,
                        .run = *options->spec, /* its strings stay theirs */
                        .stream = options->stream_published ? options->stream : 0,
                        .streams_count = options->stream_published ? options->streams_count : 1};
    t.spec = &t.run;
    /* Bad data is found before anything is allocated or announced. */
    TRY_OUT(open_data(&t));
    TRY_OUT(open_model(&t));
    TRY_OUT(open_folder(&t));
    TRY_OUT(resume_or_begin(&t));
    TRY_OUT(attach(&t));
    data_close(t.data);
    t.data = NULL;
    TRY_OUT(open_data(&t)); /* again, now that the stream is known */
    data_look(t.data);
    look_who_deals(&t);
    log_info(
        "%" PRId64 " parameters, %" PRIu64 " tokens for training, %" PRIu64 " held out, stream %" PRIu32 " of %" PRIu32,
        t.model->params_count, data_train_tokens(t.data), data_held_out_tokens(t.data), t.stream + 1, t.streams_count);
    err = loop(&t);
out:
    if (err == ERR_CLOSED && t.was_interrupted) /* before there was anything to save */
        err = ERR_OK;
    trainer_deinit(&t);
    return err;
}

enum err train_check(const struct train_options *options, int device)
{
    enum err err;
    struct trainer t = {.options = options, .spec = options->spec, .streams_count = 1};
    struct kern_place place = {.device = device, .threads = 1};
    TRY_OUT(open_data(&t));
    data_look(t.data);
    TRY_OUT(kern_find(options->device, &t.kern));
    TRY_OUT(t.kern->open(&place, &t.dev));
out:
    trainer_deinit(&t);
    return err;
}

enum err train_eval(const struct eval_options *options, double *loss)
{
    enum err err;
    const struct runspec *spec = options->spec;
    struct train_options train = {.spec = spec, .data_path = options->data_path};
    struct trainer t = {.options = &train, .spec = spec, .streams_count = 1};
    size_t count = (size_t)(spec->batch * spec->context);
    TRY_OUT(open_data(&t));
    data_look(t.data);
    TRY_OUT(kern_find(options->device, &t.kern));
    TRY_OUT(t.kern->open(&(struct kern_place){.threads = options->threads}, &t.dev));
    struct memory_plan_conf conf = {.model = {.batch = spec->batch}};
    TRY_OUT(memory_plan_check(spec, t.kern, t.dev, &conf, NULL));
    TRY_OUT(model_new(spec, t.kern, t.dev, &conf.model, &t.model));
    if (options->params_path != NULL)
        TRY_OUT(ckpt_load_params(options->params_path, spec, t.model));
    else if (spec->init_digest[0] != '\0')
        TRY_OUT(ckpt_load_origin(spec, t.model));
    else
        TRY_OUT(model_init(t.model, (uint64_t)spec->seed));
    TRY_OUT(mem_new(count, sizeof *t.tokens, "a batch", &t.tokens));
    TRY_OUT(mem_new(count, sizeof *t.targets, "a batch", &t.targets));
    err = held_out_loss(t.model, t.data, options->batches, t.tokens, t.targets, loss);
out:
    trainer_deinit(&t);
    return err;
}
