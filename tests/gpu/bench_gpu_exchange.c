/* SPDX-License-Identifier: Apache-2.0 */
/* What the exchange between islands costs a trainer: the same steps with its moves of parameters and without, in turns.
 */
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/env.h"
#include "tests/gpu/bench_gpu.h"
#include "worker/inner.h"
#include "worker/model/model_shares.h"
#include "worker/moves.h"

enum { INTERVAL = 100, OVERLAP = 5, LAYERS_PER_FRAGMENT = 3 };

static const char what[] =
    "steps of the trainer with its share of a streaming exchange against steps without, in turns, one period of each "
    "for every fragment: the fragment is read to pinned host memory (DILOCO_READ), and `overlap` steps later host "
    "memory is mixed into it (DILOCO_MIX, half and half). Fragment 0 is all outside the layers, the others 3 layers "
    "each. Not in it: the daemon, its codecs and the network, and what they take of the host's processors and memory";

struct exchange {
    struct bench_gpu *b;
    struct bench_run *run;
    struct moves *moves;
    float *host; /* what is shared with the daemon, as own values lie */
    size_t host_bytes;
    bool pinned;
    int fragments;
    int period, overlap; /* steps between fragments, and until what comes back */
};

static kern_act *act_of(const void *model, const float *own)
{
    return model_act_of(model, own);
}

static int fragment_of(const struct model_tensor *tensor)
{
    return tensor->layer < 0 ? 0 : 1 + tensor->layer / LAYERS_PER_FRAGMENT;
}

static enum err move(struct exchange *x, int fragment, enum diloco_move_kind kind)
{
    const struct diloco_device *device = moves_device(x->moves);
    const struct model *model = x->run->model;
    for (int i = 0; i < model->tensors_count; i++) {
        struct model_share share = model_share(model, &model->tensors[i]);
        struct diloco_move one = {.size = sizeof one,
                                  .kind = kind,
                                  .tensor = model->w + share.at,
                                  .host = x->host + share.at,
                                  .rows = 1,
                                  .columns = (size_t)share.count,
                                  .stride = (size_t)share.count,
                                  .keep = 0.5};
        if (fragment_of(&model->tensors[i]) == fragment && device->move(device->user, &one) != 0)
            return x->b->kern->fault(x->b->dev);
    }
    return ERR_OK;
}

/* A period of steps, with that fragment's exchange; -1: without any. */
static enum err time_period(struct exchange *x, int fragment, double *seconds)
{
    double begin_s = env_mono_s();
    for (int step = 0; step < x->period; step++) {
        TRY(bench_gpu_step(x->run));
        if (fragment >= 0 && step == 0)
            TRY(move(x, fragment, DILOCO_READ));
        if (fragment >= 0 && step == x->overlap)
            TRY(move(x, fragment, DILOCO_MIX));
    }
    TRY(bench_gpu_settle(x->run));
    TRY(x->b->kern->sync(x->b->dev));
    *seconds = env_mono_s() - begin_s;
    return ERR_OK;
}

struct costs {
    double with, without; /* seconds of all periods */
    double least, most;   /* with / without of a single period */
};

static enum err time_all(struct exchange *x, struct costs *c)
{
    double took[2];
    c->least = INFINITY;
    for (int f = 0; f < x->fragments; f++) {
        /* Each is first every other time: clocks drift. */
        for (int i = 0; i < 2; i++) {
            int with = (f + i) % 2;
            TRY(time_period(x, with ? f : -1, &took[with]));
        }
        c->without += took[0];
        c->with += took[1];
        c->least = fmin(c->least, took[1] / took[0]);
        c->most = fmax(c->most, took[1] / took[0]);
    }
    return isfinite(x->run->loss) ? ERR_OK : err_set(ERR_NONFINITE, "the loss with the exchange is not finite");
}

static enum err set_up(struct exchange *x)
{
    const struct kern *kern = x->b->kern;
    struct model *model = x->run->model;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = ((size_t)model->own_count * sizeof(float) + page - 1) / page * page;
    TRY(moves_new(kern, x->b->dev, model->w, model->own_count, act_of, model, &x->moves));
    void *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED)
        return err_set(ERR_NOMEM, "no host memory for the exchange: %zu bytes", bytes);
    x->host = host;
    x->host_bytes = bytes;
    x->pinned = kern->pin(x->b->dev, host, bytes) == ERR_OK;
    /* Once each, which is not measured. */
    for (int f = 0; f < x->fragments; f++) {
        TRY(move(x, f, DILOCO_READ));
        TRY(move(x, f, DILOCO_MIX));
    }
    return kern->sync(x->b->dev);
}

static enum err take_down(struct exchange *x)
{
    enum err err = x->b->kern->sync(x->b->dev);
    if (x->pinned)
        x->b->kern->unpin(x->b->dev, x->host);
    if (x->host != NULL)
        munmap(x->host, x->host_bytes);
    moves_free(x->moves);
    return err;
}

static enum err skip(struct bench_gpu *b, const char *name, const char *why)
{
    printf("               exchange: skipped: %s\n", why);
    fflush(stdout);
    json_array_append_new(json_object_get(b->summary, "exchange"),
                          json_pack("{s:s, s:s}", "name", name, "skipped", why));
    return bench_gpu_keep(b);
}

static enum err add_row(struct exchange *x, const char *name, const struct costs *c)
{
    double steps = (double)(x->period * x->fragments), ratio = c->with / c->without;
    printf("               exchange: %.2f ms a step with it, %.2f without: %+.2f %% (aim below 1 %%; single periods "
           "%+.2f to %+.2f %%)%s\n",
           c->with / steps * 1e3, c->without / steps * 1e3, 100 * (ratio - 1), 100 * (c->least - 1),
           100 * (c->most - 1), x->pinned ? "" : "; host memory could not be pinned");
    fflush(stdout);
    json_array_append_new(json_object_get(x->b->summary, "exchange"),
                          json_pack("{s:s, s:s, s:i, s:i, s:i, s:b, s:f, s:f, s:f, s:f, s:f, s:f}", "name", name,
                                    "what", what, "fragments", x->fragments, "period", x->period, "overlap", x->overlap,
                                    "pinned", x->pinned, "ms_with", c->with / steps * 1e3, "ms_without",
                                    c->without / steps * 1e3, "ratio", ratio, "ratio_least", c->least, "ratio_most",
                                    c->most, "aim", 1.01));
    return bench_gpu_keep(x->b);
}

enum err bench_gpu_exchange(struct bench_gpu *b, const char *name, struct bench_run *run, double step_s)
{
    struct exchange x = {.b = b, .run = run};
    struct costs costs = {0};
    for (int i = 0; i < run->model->tensors_count; i++) {
        int f = fragment_of(&run->model->tensors[i]);
        x.fragments = f + 1 > x.fragments ? f + 1 : x.fragments;
    }
    x.period = b->small ? 4 : INTERVAL / x.fragments;
    x.overlap = OVERLAP < x.period ? OVERLAP : x.period - 1;
    if (bench_gpu_left(b) < 2.5 * x.period * x.fragments * step_s)
        return skip(b, name, "no time left");
    enum err err = set_up(&x);
    bool room = err != ERR_NOMEM;
    if (err == ERR_OK)
        err = time_all(&x, &costs);
    if (err == ERR_OK)
        err = add_row(&x, name, &costs);
    else if (!room)
        err = skip(b, name, err_text());
    enum err ended = take_down(&x);
    return err != ERR_OK ? err : ended;
}
