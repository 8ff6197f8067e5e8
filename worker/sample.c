#include "worker/sample.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "worker/ckpt.h"
#include "worker/memory_plan.h"
#include "worker/model/model.h"

struct candidate {
    double probability;
    int32_t token;
};

struct sampler {
    const struct sample_options *options;
    const struct kern *kern;
    struct kern_dev *dev;
    struct model *model;
    float *logits;
    struct candidate *candidates;
    int32_t *history; /* all tokens so far */
    uint64_t history_count, history_room;
    struct env_rng rng;
};

static int likelier_first(const void *left, const void *right)
{
    const struct candidate *a = left;
    const struct candidate *b = right;
    if (a->probability != b->probability)
        return a->probability > b->probability ? -1 : 1;
    return a->token - b->token;
}

static int32_t choose(struct sampler *s)
{
    int64_t V = s->model->V;
    const struct sample_options *o = s->options;
    double temperature = o->temperature > 0 ? o->temperature : 1;
    double most = (double)s->logits[0];
    double sum = 0;
    for (int64_t i = 1; i < V; i++)
        most = fmax(most, (double)s->logits[i]);
    for (int64_t i = 0; i < V; i++) {
        double p = exp(((double)s->logits[i] - most) / temperature);
        s->candidates[i] = (struct candidate){.probability = p, .token = (int32_t)i};
        sum += p;
    }
    qsort(s->candidates, (size_t)V, sizeof *s->candidates, likelier_first);
    if (o->temperature <= 0)
        return s->candidates[0].token;
    int64_t kept = 0;
    double mass = 0;
    while (kept < V && (kept == 0 || mass < o->top_p * sum))
        mass += s->candidates[kept++].probability;
    double at = env_rng_uniform(&s->rng) * mass;
    for (int64_t i = 0; i < kept; i++) {
        at -= s->candidates[i].probability;
        if (at <= 0)
            return s->candidates[i].token;
    }
    return s->candidates[kept - 1].token;
}

static void print_token(const struct sampler *s, int32_t token, FILE *out)
{
    if (s->options->spec->format == RUNSPEC_BYTES)
        fputc(token, out);
    else
        fprintf(out, "%" PRId32 " ", token);
}

/* Feeds one token; when the context is full, the last half of it is fed again at the beginning. */
static enum err feed(struct sampler *s, int32_t token, uint64_t *fed)
{
    if (*fed == (uint64_t)s->model->T) {
        uint64_t again = (uint64_t)s->model->T / 2;
        model_decode_reset(s->model);
        for (uint64_t i = 0; i < again; i++)
            TRY(model_decode(s->model, s->history[s->history_count - again + i], s->logits));
        *fed = again;
    }
    TRY(model_decode(s->model, token, s->logits));
    (*fed)++;
    s->history[s->history_count++] = token;
    return ERR_OK;
}

static enum err feed_prompt(struct sampler *s, FILE *out, uint64_t *fed)
{
    const struct sample_options *o = s->options;
    const char *at = o->prompt;
    if (o->spec->format == RUNSPEC_BYTES) {
        for (; *at != '\0'; at++) {
            TRY(feed(s, (unsigned char)*at, fed));
            print_token(s, (unsigned char)*at, out);
        }
    } else {
        for (char *end; *(at += strspn(at, " ")) != '\0'; at = end) {
            long token = strtol(at, &end, 10);
            if (end == at || token < 0 || token >= s->model->V)
                return err_set(ERR_ARG, "--prompt: \"%s\" is not a token below %" PRId64, at, s->model->V);
            TRY(feed(s, (int32_t)token, fed));
            print_token(s, (int32_t)token, out);
        }
    }
    if (s->history_count > 0)
        return ERR_OK;
    /* Nothing to continue: begin with a line break, or token 0. */
    return feed(s, o->spec->format == RUNSPEC_BYTES ? '\n' : 0, fed);
}

static enum err generate(struct sampler *s, FILE *out)
{
    uint64_t fed = 0;
    TRY(feed_prompt(s, out, &fed));
    for (uint64_t i = 0; i < s->options->tokens; i++) {
        int32_t token = choose(s);
        print_token(s, token, out);
        TRY(feed(s, token, &fed));
    }
    fputc('\n', out);
    if (fflush(out) != 0)
        return err_set_errno(ERR_IO, "cannot write the sample");
    return ERR_OK;
}

enum err sample_run(const struct sample_options *options, FILE *out)
{
    enum err err;
    struct sampler s = {.options = options, .rng = env_rng_init(options->seed, 1)};
    TRY_OUT(kern_find(options->device, &s.kern));
    TRY_OUT(s.kern->open(&(struct kern_place){.threads = options->threads}, &s.dev));
    struct memory_plan_conf conf = {.model = {.batch = 1}, .decodes = true};
    TRY_OUT(memory_plan_check(options->spec, s.kern, s.dev, &conf, NULL));
    TRY_OUT(model_new(options->spec, s.kern, s.dev, &conf.model, &s.model));
    TRY_OUT(ckpt_load_params(options->params_path, s.model));
    s.history_room = strlen(options->prompt) + 1 + options->tokens;
    TRY_OUT(mem_new((size_t)s.model->V, sizeof *s.logits, "logits", &s.logits));
    TRY_OUT(mem_new((size_t)s.model->V, sizeof *s.candidates, "candidates", &s.candidates));
    TRY_OUT(mem_new((size_t)s.history_room, sizeof *s.history, "the text so far", &s.history));
    err = generate(&s, out);
out:
    model_free(s.model);
    if (s.dev != NULL)
        s.kern->close(s.dev);
    mem_free(s.logits);
    mem_free(s.candidates);
    mem_free(s.history);
    return err;
}
