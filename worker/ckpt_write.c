/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/ckpt_write.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "common/mem.h"
#include "common/tensorfile.h"
#include "worker/ckpt_folder.h"
#include "worker/comm/comm.h"

/* TOLD_MS: how often rank 0 tells the others that it still waits, so that none of them takes it for dead. */
enum { POLL_MS = 10, TOLD_MS = 1000, TEXT_BYTES = 640, NUMBER_BYTES = 24, META = 7 };

struct sink {
    char *path;
    struct tensorfile_writer *file; /* NULL: this rank writes none, or can no more */
    float *host;                    /* for one tensor's values, where there is no image */
};

struct ckpt_writer {
    const char *folder;
    struct model *model;
    const struct inner *inner;
    /* The same in every file: tensors in its order, of which the last one, CKPT_KEPT, is not in each; their names. */
    struct tensorfile_tensor *tensors;
    char (*names)[CKPT_NAME_BYTES];
    size_t tensors_count; /* without the last one */
    char *run_spec;
    /* Of the checkpoint that is being written: the thread's from its beginning until it is joined. */
    struct ckpt_state state;
    uint64_t updates, rounded;
    struct sink sink;
    bool imaged;  /* its values are in the image; else they are in the file already */
    float *image; /* all tensors' values, one behind the other; NULL: not yet, or there is no memory for it */
    enum err err;
    char text[TEXT_BYTES];
    pthread_t thread;
    bool busy;        /* there is such a thread */
    atomic_bool done; /* which has nothing left to do */
    bool no_room;     /* for an image; that was said */
};

/* ---- birth ---- */

static size_t flat_arrays(const struct ckpt_writer *w)
{
    return w->inner->m != NULL ? 1 + CKPT_MOMENTS : 1;
}

static enum err list_tensors(struct ckpt_writer *w)
{
    size_t n = (size_t)w->model->tensors_count;
    w->tensors_count = flat_arrays(w) * n;
    TRY(mem_new(w->tensors_count + 1, sizeof *w->tensors, "tensor names", &w->tensors));
    TRY(mem_new(w->tensors_count, sizeof *w->names, "tensor names", &w->names));
    for (size_t i = 0; i < w->tensors_count; i++) {
        const struct model_tensor *tensor = &w->model->tensors[i % n];
        if (i < n)
            snprintf(w->names[i], sizeof w->names[i], "%s", tensor->name);
        else
            snprintf(w->names[i], sizeof w->names[i], "%s/%s", ckpt_moments[i / n - 1], tensor->name);
        w->tensors[i] = (struct tensorfile_tensor){
            .name = w->names[i], .dims = tensor->dims, .shape = {tensor->shape[0], tensor->shape[1]}};
    }
    return ERR_OK;
}

enum err ckpt_writer_new(const char *folder, const struct runspec *spec, struct model *model, const struct inner *inner,
                         struct ckpt_writer **out)
{
    enum err err;
    struct ckpt_writer *w = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *w, "the checkpoints' writer", &w));
    w->folder = folder;
    w->model = model;
    w->inner = inner;
    TRY_OUT(list_tensors(w));
    TRY_OUT(runspec_text(spec, &w->run_spec));
    *out = w;
out:
    if (err != ERR_OK)
        ckpt_writer_free(w);
    return err;
}

/* ---- the file ---- */

static enum err open_file(struct ckpt_writer *w)
{
    struct sink *sink = &w->sink;
    char step[NUMBER_BYTES], position[NUMBER_BYTES], tokens[NUMBER_BYTES], updates[NUMBER_BYTES], rounded[NUMBER_BYTES];
    const struct ckpt_state *s = &w->state;
    size_t count = w->tensors_count;
    snprintf(step, sizeof step, "%" PRIu64, s->step);
    snprintf(position, sizeof position, "%" PRIu64, s->position);
    snprintf(tokens, sizeof tokens, "%" PRIu64, s->tokens);
    snprintf(updates, sizeof updates, "%" PRIu64, w->updates);
    snprintf(rounded, sizeof rounded, "%" PRIu64, w->rounded);
    const struct tensorfile_meta meta[META] = {{"format", CKPT_FORMAT}, {"step", step},       {"position", position},
                                               {"tokens", tokens},      {"updates", updates}, {"run_spec", w->run_spec},
                                               {"rounded", rounded}};
    if (s->kept_count > 0)
        w->tensors[count++] = (struct tensorfile_tensor){.name = CKPT_KEPT, .dims = 1, .shape = {s->kept_count}};
    TRY(ckpt_folder_path(w->folder, s->step, &sink->path));
    return tensorfile_create(sink->path, w->tensors, count, meta, w->rounded > 0 ? META : META - 1, &sink->file);
}

static enum err end_file(struct ckpt_writer *w)
{
    struct tensorfile_writer *file = w->sink.file;
    if (w->state.kept_count > 0)
        TRY(tensorfile_write(file, w->state.kept, w->state.kept_count));
    w->sink.file = NULL;
    TRY(tensorfile_commit(file));
    ckpt_folder_tidy(w->folder, w->state.step);
    return ERR_OK;
}

static void sink_deinit(struct sink *sink)
{
    tensorfile_abort(sink->file);
    mem_free(sink->path);
    mem_free(sink->host);
    *sink = (struct sink){0};
}

static size_t count_of(const struct ckpt_writer *w, size_t tensor)
{
    return (size_t)w->model->tensors[tensor % (size_t)w->model->tensors_count].count;
}

static size_t image_values(const struct ckpt_writer *w)
{
    size_t sum = 0;
    for (size_t i = 0; i < w->tensors_count; i++)
        sum += count_of(w, i);
    return sum;
}

/* What is left to do where nobody has to wait for it. */
static enum err finish(struct ckpt_writer *w)
{
    const float *at = w->image;
    if (w->imaged)
        TRY(open_file(w));
    for (size_t i = 0; w->imaged && i < w->tensors_count; i++) {
        TRY(tensorfile_write(w->sink.file, at, count_of(w, i)));
        at += count_of(w, i);
    }
    return end_file(w);
}

/* ---- from the device ---- */

/* The values of the i-th tensor in the file's order; of several ranks all call, those that do not write with NULL. */
static enum err read_tensor(struct ckpt_writer *w, size_t i, float *to)
{
    const float *const own[1 + CKPT_MOMENTS] = {w->model->w, w->inner->m, w->inner->v};
    size_t n = (size_t)w->model->tensors_count;
    return model_read(w->model, &w->model->tensors[i % n], own[i / n], to);
}

static enum err fill_image(struct ckpt_writer *w)
{
    float *at = w->image;
    for (size_t i = 0; i < w->tensors_count; i++) {
        TRY(read_tensor(w, i, at));
        at += count_of(w, i);
    }
    return ERR_OK;
}

/* Tensor by tensor, all but the end of the file. Of several ranks all read every one, whatever happens, and the first
 * one writes. */
static enum err write_through(struct ckpt_writer *w)
{
    size_t most = 0;
    for (size_t i = 0; i < w->tensors_count; i++)
        most = count_of(w, i) > most ? count_of(w, i) : most;
    bool writes = w->model->rank == 0;
    enum err err = ERR_OK, written = ERR_OK;
    if (writes)
        written = mem_new(most, sizeof *w->sink.host, "a tensor", &w->sink.host);
    if (writes && written == ERR_OK)
        written = open_file(w);
    for (size_t i = 0; err == ERR_OK && i < w->tensors_count && (written == ERR_OK || w->model->ranks > 1); i++) {
        err = read_tensor(w, i, w->sink.host);
        if (err == ERR_OK && writes && written == ERR_OK)
            written = tensorfile_write(w->sink.file, w->sink.host, count_of(w, i));
    }
    return err == ERR_OK ? written : err;
}

/* ---- the thread ---- */

static void *write_beside(void *user)
{
    struct ckpt_writer *w = user;
    w->err = finish(w);
    if (w->err != ERR_OK)
        snprintf(w->text, sizeof w->text, "%s", err_text());
    atomic_store_explicit(&w->done, true, memory_order_release);
    return NULL;
}

/* Signals are asked for by the trainer's own thread. */
static bool start_thread(struct ckpt_writer *w)
{
    sigset_t all, before;
    atomic_store_explicit(&w->done, false, memory_order_relaxed);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    w->busy = pthread_create(&w->thread, NULL, write_beside, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w->busy;
}

static void drop_all(struct ckpt_writer *w)
{
    sink_deinit(&w->sink);
    mem_free(w->state.kept);
    w->state.kept = NULL;
    w->state.kept_count = 0;
}

/* Waits for the thread, where there is one. */
static void join(struct ckpt_writer *w, const char *consequence)
{
    if (!w->busy)
        return;
    pthread_join(w->thread, NULL);
    w->busy = false;
    drop_all(w);
    if (w->err != ERR_OK)
        log_error("checkpoint at step %" PRIu64 " failed: %s; %s", w->state.step, w->text, consequence);
    else
        log_debug("checkpoint at step %" PRIu64 " is on the disk", w->state.step);
}

static bool is_done(const struct ckpt_writer *w)
{
    return !w->busy || atomic_load_explicit(&w->done, memory_order_acquire);
}

static void wait_at_most(const struct ckpt_writer *w, int ms)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    for (; !is_done(w) && ms > 0; ms -= POLL_MS)
        nanosleep(&pause, NULL);
}

/* Until the write before is at its end. Others than rank 0 know by being told, again and again. */
static enum err await_before(struct ckpt_writer *w, uint64_t step)
{
    struct comm *comm = w->model->grid.of_all;
    bool done = is_done(w);
    if (!done)
        log_info("checkpoint at step %" PRIu64 ": the one before is still being written; waiting", step);
    while (comm != NULL) {
        TRY(comm->calls->host_broadcast(comm, &done, sizeof done, NULL, 0));
        if (done)
            break;
        wait_at_most(w, TOLD_MS);
        done = is_done(w);
    }
    join(w, "training goes on");
    return ERR_OK;
}

/* ---- saving ---- */

static enum err begin(struct ckpt_writer *w, struct ckpt_state *state)
{
    enum err err = await_before(w, state->step);
    if (err == ERR_OK) { /* else the thread may still be at the one before */
        w->state = *state;
        w->updates = w->inner->updates;
        w->rounded = w->inner->stochastic ? w->inner->updated : 0;
    } else {
        mem_free(state->kept);
    }
    state->kept = NULL;
    state->kept_count = 0;
    return err;
}

/* Whether there is memory for the copy; where there is not, that is said once and not tried again. */
static bool has_image(struct ckpt_writer *w)
{
    size_t bytes = image_values(w) * sizeof *w->image;
    if (w->image != NULL || w->no_room)
        return w->image != NULL;
    /* Asked first: the kernel promises memory that it does not have, and ends programs that use it. Some is left for
     * others, and for what the disk has not written yet. */
    if (bytes + bytes / 4 < mem_available() && mem_new(bytes, 1, "a copy of the checkpoint", &w->image) == ERR_OK)
        return true;
    w->no_room = true;
    log_warn("the host has no %.1f MiB of memory for a copy of what a checkpoint holds: training waits while one is "
             "written",
             (double)bytes / 1048576.0);
    return false;
}

enum err ckpt_save(struct ckpt_writer *w, struct ckpt_state *state)
{
    TRY(begin(w, state));
    w->imaged = w->model->rank == 0 && has_image(w);
    enum err err = w->imaged ? fill_image(w) : write_through(w);
    if (err == ERR_OK && w->model->rank > 0)
        return ERR_OK;
    if (err == ERR_OK && start_thread(w))
        return ERR_OK;
    if (err == ERR_OK)
        err = finish(w); /* without a thread then */
    drop_all(w);
    return err;
}

enum err ckpt_save_now(struct ckpt_writer *w, struct ckpt_state *state)
{
    TRY(begin(w, state));
    w->imaged = false;
    enum err err = write_through(w);
    if (err == ERR_OK && w->model->rank == 0)
        err = finish(w);
    drop_all(w);
    return err;
}

void ckpt_look(struct ckpt_writer *w)
{
    if (w->busy && is_done(w))
        join(w, "training goes on");
}

void ckpt_writer_free(struct ckpt_writer *w)
{
    if (w == NULL)
        return;
    join(w, "the one before stands");
    drop_all(w);
    mem_free(w->tensors);
    mem_free(w->names);
    mem_free(w->run_spec);
    mem_free(w->image);
    mem_free(w);
}
