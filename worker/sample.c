/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/sample.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "worker/ckpt.h"
#include "worker/memory_plan.h"
#include "worker/model/model.h"
#include "worker/tokenizer.h"

struct candidate {
    double probability;
    int32_t token;
};

struct sampler {
    const struct sample_options *options;
    const struct kern *kern;
    struct kern_dev *dev;
    struct model *model;
    struct tokenizer *tokenizer; /* NULL: numbers, or bytes */
    struct tokenizer_text text;
    struct bpe_ids prompt;
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
    int64_t count = 0;
    for (int64_t i = 1; i < V; i++)
        most = fmax(most, (double)s->logits[i]);
    for (int64_t i = 0; i < V; i++)
        sum += exp(((double)s->logits[i] - most) / temperature);
    /* All below this together are less than what top_p leaves out: sorting a large vocabulary takes long. */
    double least = (1 - o->top_p) * sum / (double)V;
    for (int64_t i = 0; i < V; i++) {
        double p = exp(((double)s->logits[i] - most) / temperature);
        if (p >= least)
            s->candidates[count++] = (struct candidate){.probability = p, .token = (int32_t)i};
    }
    qsort(s->candidates, (size_t)count, sizeof *s->candidates, likelier_first);
    if (o->temperature <= 0)
        return s->candidates[0].token;
    int64_t kept = 0;
    double mass = 0;
    while (kept < count && (kept == 0 || mass < o->top_p * sum))
        mass += s->candidates[kept++].probability;
    double at = env_rng_uniform(&s->rng) * mass;
    for (int64_t i = 0; i < kept; i++) {
        at -= s->candidates[i].probability;
        if (at <= 0)
            return s->candidates[i].token;
    }
    return s->candidates[kept - 1].token;
}

static void print_token(struct sampler *s, int32_t token, FILE *out)
{
    if (s->options->spec->format == RUNSPEC_BYTES)
        fputc(token, out);
    else if (s->tokenizer != NULL)
        tokenizer_put(&s->text, token, out);
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

static enum err read_numbers(struct sampler *s, const char *prompt)
{
    const char *at = prompt;
    for (char *end; *(at += strspn(at, " ")) != '\0'; at = end) {
        long token = strtol(at, &end, 10);
        if (end == at || token < 0 || token >= s->model->V)
            return err_set(ERR_ARG, "--prompt: \"%s\" is not a token below %" PRId64, at, s->model->V);
        TRY(bpe_ids_add(&s->prompt, (int32_t)token));
    }
    return ERR_OK;
}

static enum err read_prompt(struct sampler *s)
{
    const struct sample_options *o = s->options;
    bool bytes = o->spec->format == RUNSPEC_BYTES;
    for (const char *at = o->prompt; bytes && *at != '\0'; at++)
        TRY(bpe_ids_add(&s->prompt, (unsigned char)*at));
    if (bytes)
        return ERR_OK;
    if (s->tokenizer == NULL)
        return read_numbers(s, o->prompt);
    if (tokenizer_why_not(s->tokenizer)[0] == '\0') {
        enum err err = tokenizer_encode(s->tokenizer, o->prompt, &s->prompt);
        return err == ERR_OK ? ERR_OK : err_prefix(err, "--prompt");
    }
    enum err err = read_numbers(s, o->prompt);
    return err == ERR_OK
               ? ERR_OK
               : err_suffix(err,
                            "the tokenizer has no text for tokens here, as it has a part that is not known (%s): "
                            "give numbers",
                            tokenizer_why_not(s->tokenizer));
}

static enum err feed_prompt(struct sampler *s, FILE *out, uint64_t *fed)
{
    for (size_t i = 0; i < s->prompt.count; i++) {
        TRY(feed(s, s->prompt.id[i], fed));
        print_token(s, s->prompt.id[i], out);
    }
    if (s->history_count > 0)
        return ERR_OK;
    /* Nothing to continue: begin with a line break, or as texts do. */
    int32_t begin = s->tokenizer != NULL ? tokenizer_begin_token(s->tokenizer) : 0;
    return feed(s, s->options->spec->format == RUNSPEC_BYTES ? '\n' : begin > 0 ? begin : 0, fed);
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
    if (s->tokenizer != NULL)
        tokenizer_finish(&s->text, out);
    fputc('\n', out);
    if (fflush(out) != 0)
        return err_set_errno(ERR_IO, "cannot write the sample");
    return ERR_OK;
}

/* The file beside the parameters. */
static enum err default_path(const char *params_path, char **path)
{
    const char *slash = strrchr(params_path, '/');
    int folder = slash != NULL ? (int)(slash + 1 - params_path) : 0;
    return mem_printf(path, "%.*stokenizer.json", folder, params_path);
}

/* One that was asked for has to be good; one that happens to lie there does not. */
static enum err open_tokenizer(struct sampler *s)
{
    const struct sample_options *o = s->options;
    char *beside = NULL;
    bool asked = o->tokenizer_path != NULL;
    if (o->spec->format == RUNSPEC_BYTES && asked && strcmp(o->tokenizer_path, "none") != 0)
        return err_set(ERR_ARG, "--tokenizer %s: the run is on bytes, which are text already; leave it out",
                       o->tokenizer_path);
    if (o->spec->format == RUNSPEC_BYTES || (asked && strcmp(o->tokenizer_path, "none") == 0))
        return ERR_OK;
    if (!asked)
        TRY(default_path(o->params_path, &beside));
    enum err err = tokenizer_open(asked ? o->tokenizer_path : beside, s->model->V, &s->tokenizer);
    mem_free(beside);
    if (asked && err != ERR_OK)
        return err_suffix(err, "--tokenizer none gives numbers");
    if (err != ERR_OK && err != ERR_NOTFOUND)
        log_warn("%s; tokens are numbers here", err_text());
    if (s->tokenizer == NULL)
        return ERR_OK;
    if (tokenizer_end(s->tokenizer) < s->model->V)
        log_info("the tokenizer has %" PRId32 " tokens, the model's vocabulary %" PRId64
                 ": those beyond are shown as <ID>",
                 tokenizer_end(s->tokenizer), s->model->V);
    s->text = tokenizer_text(s->tokenizer);
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
    TRY_OUT(ckpt_load_params(options->params_path, options->spec, s.model));
    TRY_OUT(open_tokenizer(&s));
    TRY_OUT(read_prompt(&s));
    s.history_room = s.prompt.count + 1 + options->tokens;
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
    mem_free(s.prompt.id);
    tokenizer_close(s.tokenizer);
    return err;
}
