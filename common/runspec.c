/* SPDX-License-Identifier: Apache-2.0 */
#include "common/runspec.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

static const char *const formats[] = {"bytes", "tokens", "uint16", "uint32", NULL};
static const char *const inners[] = {"adamw", "sgd", "muon", NULL};
static const char *const patterns[] = {"strided", "sequential", "balanced", NULL};
static const char *const offset_kinds[] = {"spread", "zero", NULL};
static const char *const lates[] = {"merge", "wait", NULL};
static const char *const paces[] = {"run", "lockstep", NULL};
static const char *const codecs[] = {
    [CODEC_ADAPTIVE] = "adaptive", [CODEC_FP32] = "fp32", [CODEC_BF16] = "bf16",         [CODEC_INT8] = "int8",
    [CODEC_E3M0] = "e3m0",         [CODEC_INT4] = "int4", [CODEC_INT2] = "int2",         [CODEC_TERNARY] = "ternary",
    [CODEC_UNIFORM] = "uniform",   [CODEC_TOPK] = "topk", [CODEC_POWERSGD] = "powersgd", NULL};
static const char *const outlier_actions[] = {"keep", "drop", "clip", "trimmed", "median", NULL};
static const char *const precisions[] = {"fp32", "bf16", NULL};
static const char *const outers[] = {"nesterov", "heavyball", "average", NULL};

#define AT(field) offsetof(struct runspec, field)

static const struct conf_key keys[] = {
    {"run", "name", CONF_STRING, AT(name), NULL, 0, 0, NULL, NULL,
     "Name of the run, for people. Letters, digits, '-' and '_'."},
    {"run", "steps", CONF_INT, AT(steps), NULL, 1, 1e12, NULL, "steps",
     "Length of the run in inner steps; schedules and learning rates refer to them. An operator may change it later: "
     "dilococtl set steps=N."},
    {"run", "seed", CONF_INT, AT(seed), "1", 0, 9e15, NULL, NULL,
     "Seed of the initial parameters and of the order of the data."},
    {"run", "init", CONF_LOCAL, AT(init), "", 0, 0, NULL, NULL,
     "Model that the run begins from, instead of random parameters: a folder with config.json and safetensors of a "
     "LlamaForCausalLM, or a checkpoint or anchor of ours. Its place on this machine; an island that has none gets the "
     "parameters from the others. dilococtl init --from and diloco-worker spec --from fill it in."},
    {"run", "init_digest", CONF_STRING, AT(init_digest), "", 0, 0, NULL, NULL,
     "What lies there, the same on every island: the digest of the parameters' values, whatever files they are in. "
     "Empty: random parameters, from the seed."},

    {"model", "vocab", CONF_INT, AT(vocab), "256", 2, 1048576, NULL, "tokens",
     "Size of the vocabulary. 256 with format = bytes."},
    {"model", "width", CONF_INT, AT(width), "256", 2, 65536, NULL, "values",
     "Width of the residual stream; a multiple of heads."},
    {"model", "layers", CONF_INT, AT(layers), "4", 1, 4096, NULL, "layers", "Transformer blocks."},
    {"model", "heads", CONF_INT, AT(heads), "4", 1, 1024, NULL, "heads", "Query heads; width / heads must be even."},
    {"model", "kv_heads", CONF_INT, AT(kv_heads), "0", 0, 1024, NULL, "heads",
     "Key and value heads (grouped-query attention); divides heads. 0: as many as heads."},
    {"model", "ff", CONF_INT, AT(ff), "0", 0, 1e6, NULL, "values",
     "Hidden width of the SwiGLU block. 0: 8/3 of width, rounded up to a multiple of 32."},
    {"model", "context", CONF_INT, AT(context), "256", 1, 1e6, NULL, "tokens", "Length of a training sequence."},
    {"model", "rope_theta", CONF_REAL, AT(rope_theta), "10000", 1, 1e9, NULL, NULL,
     "Base of the rotary position embedding."},
    {"model", "norm_eps", CONF_REAL, AT(norm_eps), "1e-5", 1e-12, 0.1, NULL, NULL, "Epsilon of RMSNorm."},
    {"model", "init_std", CONF_REAL, AT(init_std), "0.02", 1e-6, 1, NULL, NULL,
     "Standard deviation of the initial weights; projections back into the residual stream are divided by "
     "sqrt(2 layers)."},
    {"model", "tied", CONF_BOOL, AT(tied), "yes", 0, 0, NULL, NULL, "Whether the output head is the embedding."},

    {"data", "format", CONF_ENUM, AT(format), "bytes", 0, 0, formats, NULL,
     "What the files hold. bytes: any file, one token a byte. tokens: shards with llm.c's header, whose magic number "
     "says which: 20240520 (GPT-2, 16-bit tokens) or 20240801 (Llama 3, 32-bit). uint16, uint32: tokens and nothing "
     "else, as nanoGPT's .bin files."},
    {"data", "held_out", CONF_REAL, AT(held_out), "0.02", 0, 0.5, NULL, "fraction",
     "Part at the end of the data that is never trained on and serves for validation."},

    {"train", "optimizer", CONF_ENUM, AT(inner), "adamw", 0, 0, inners, NULL,
     "Inner optimizer. sgd is plain: no momentum, no decay. muon: the layers' matrices step along their orthogonalised "
     "momentum, everything else with adamw; learning rates are adamw's."},
    {"train", "precision", CONF_OWN_ENUM, AT(precision), "fp32", 0, 0, precisions, NULL,
     "Of the operands of a CPU's matrix products. bf16: rounded to it and added up in fp32, with AVX512-BF16 or AMX; a "
     "CPU that has neither trains in fp32 and says so. Weights, moments, gradients and activations are fp32 either "
     "way, and so is what islands exchange: each may have its own. A GPU's products are in bf16 in any case."},
    {"train", "batch", CONF_INT, AT(batch), "8", 1, 1e6, NULL, "sequences",
     "Sequences in one micro-batch of an island."},
    {"train", "accumulate", CONF_INT, AT(accumulate), "1", 1, 1e6, NULL, "micro-batches",
     "Micro-batches whose gradients are averaged into one inner step."},
    {"train", "lr", CONF_REAL, AT(lr), "1e-3", 0, 1000, NULL, NULL, "Peak inner learning rate."},
    {"train", "lr_final", CONF_REAL, AT(lr_final), "0.1", 0, 1, NULL, "fraction of lr",
     "Where the cosine ends at the last step. 1 keeps the learning rate constant after warm-up."},
    {"train", "warmup", CONF_INT, AT(warmup), "0", 0, 1e12, NULL, "steps", "Steps of linear warm-up."},
    {"train", "beta1", CONF_REAL, AT(beta1), "0.9", 0, 0.999999, NULL, NULL,
     "AdamW: decay of the first moment. Muon: of its momentum."},
    {"train", "beta2", CONF_REAL, AT(beta2), "0.99", 0, 0.999999, NULL, NULL, "AdamW: decay of the second moment."},
    {"train", "eps", CONF_REAL, AT(eps), "1e-8", 1e-20, 1, NULL, NULL, "AdamW: epsilon."},
    {"train", "weight_decay", CONF_REAL, AT(weight_decay), "0.1", 0, 10, NULL, NULL,
     "AdamW and Muon: decoupled decay of matrices; norms are not decayed."},
    {"train", "clip", CONF_REAL, AT(clip), "1.0", 0, 1e9, NULL, NULL,
     "Largest global gradient norm of an inner step; 0 turns clipping off."},

    {"sync", "interval", CONF_INT, AT(interval), "30", 1, 1e9, NULL, "steps",
     "Inner steps between two synchronisations of one fragment (H)."},
    {"sync", "growth", CONF_REAL, AT(growth), "0", 0, 1e6, NULL, NULL,
     "Quadratic synchronization rule: a fragment's next interval is (growth / learning rate)^2 steps where that is "
     "longer than interval, and the last one ends with the run. 0: intervals are fixed."},
    {"sync", "growth_correction", CONF_BOOL, AT(growth_correction), "yes", 0, 0, NULL, NULL,
     "Whether outer momentum and outer gradient are brought to the length of a longer interval. Not used by average."},
    {"sync", "warm_steps", CONF_INT, AT(warm_steps), "0", 0, 1e12, NULL, "steps",
     "Warm start: until this step fragments are due every warm_interval steps. 0: none."},
    {"sync", "warm_interval", CONF_INT, AT(warm_interval), "0", 0, 1e9, NULL, "steps",
     "Steps between two synchronisations of one fragment during the warm start."},
    {"sync", "pattern", CONF_ENUM, AT(pattern), "strided", 0, 0, patterns, NULL,
     "How layers form fragments: strided, sequential, or balanced by size without regard to layers."},
    {"sync", "layers_per_fragment", CONF_INT, AT(layers_per_fragment), "3", 1, 4096, NULL, "layers",
     "Layers in one fragment (strided, sequential). All other tensors form fragment 0."},
    {"sync", "fragments", CONF_INT, AT(fragments), "1", 1, 4096, NULL, "fragments",
     "Number of fragments (balanced only)."},
    {"sync", "offsets", CONF_ENUM, AT(offsets), "spread", 0, 0, offset_kinds, NULL,
     "When fragments are due. spread: in turns within the interval (Streaming DiLoCo). zero: all at once (DiLoCo)."},
    {"sync", "overlap", CONF_INT, AT(overlap), "1", 0, 1e9, NULL, "steps",
     "Inner steps that go on between sending a fragment and taking in the result (tau). At most interval; with a "
     "whole one a fragment's work is set aside while it is on its way, and training goes on from the anchor (CO2); "
     "that costs the trainer 4 bytes per parameter."},
    {"sync", "mix", CONF_REAL, AT(mix), "0.5", 0, 1, NULL, NULL,
     "Share of an island's own parameters kept when a new anchor comes in (alpha). 0 overwrites."},
    {"sync", "eager", CONF_BOOL, AT(eager), "no", 0, 0, NULL, NULL,
     "For an overlap of a whole interval with mix = 0: train on from the anchor and this island's own share of the "
     "step that is on its way. Costs the trainer 4 more bytes per parameter."},
    {"sync", "late", CONF_ENUM, AT(late), "merge", 0, 0, lates, NULL,
     "When a result is not in after overlap steps: merge trains on and takes it in on arrival; wait stands still until "
     "it is there."},
    {"sync", "pace", CONF_ENUM, AT(pace), "run", 0, 0, paces, NULL,
     "Whose steps count. run: those of the fastest island; one that is slower skips to the run's step, contributes "
     "what it has trained by then, weighted by its tokens, and ends with the others. lockstep: every island takes all "
     "steps, and rounds go at the pace of the slowest, as in the papers; so it is with late = wait, too."},
    {"sync", "codec", CONF_ENUM, AT(codec), "uniform", 0, 0, codecs, NULL,
     "How outer gradients are encoded. Bits per parameter on Gaussian data, after zstd: fp32 30, bf16 12.4, int8 7.5, "
     "int4 3.7, e3m0 3.5, int2 2.0, uniform 1.7 with step 1.4, ternary 1.6, topk 0.16 with keep 1/64, powersgd by "
     "rank. adaptive: tensor by tensor what takes the fewest bytes, at the error of uniform in all. Norms and biases "
     "are sent as bf16."},
    {"sync", "step", CONF_REAL, AT(step), "1.4", 0.13, 8, NULL, "rms",
     "For uniform and adaptive: the distance between two levels, over the root mean square of 256 values. From 2 on a "
     "block whose values are alike is left out whole, and without error_feedback for ever; adaptive then needs less."},
    {"sync", "keep", CONF_REAL, AT(keep), "0.015625", 1e-4, 0.5, NULL, "fraction",
     "For topk: the part of the values that is sent, of every 4096 the largest."},
    {"sync", "rank", CONF_INT, AT(rank), "4", 1, 32, NULL, NULL,
     "For powersgd: columns of the two factors that stand for a matrix."},
    {"sync", "error_feedback", CONF_BOOL, AT(error_feedback), "no", 0, 0, NULL, NULL,
     "Whether the residual, which is what encoding left out of an outer gradient, is added to the next one. Helps "
     "codecs that leave most of it out (topk, powersgd must have it; int2 a little). Costs 8 bytes per parameter."},
    {"sync", "feedback_decay", CONF_REAL, AT(feedback_decay), "1", 0, 1, NULL, "fraction",
     "Share of the residual that is kept until the next round."},
    {"sync", "feedback_limit", CONF_REAL, AT(feedback_limit), "0.7", 0, 100, NULL, "outer gradients",
     "Largest residual over the outer gradient, as norms; it is cut down to that. An outer gradient that is larger "
     "than usual for the tokens behind it counts as a usual one. 0: no limit."},
    {"sync", "zstd_level", CONF_INT, AT(zstd_level), "1", 0, 19, NULL, NULL,
     "Lossless compression after the codec; 0 turns it off."},
    {"sync", "quorum", CONF_INT, AT(quorum), "0", 0, 1024, NULL, "islands",
     "Contributions that let a round close without the others, once they are later than usual (grace); of fewer "
     "islands that take part, all of these. 0: all members that take part."},
    {"sync", "grace", CONF_DURATION, AT(grace_ms), "30s", 0, 86400e3, NULL, "ms",
     "The most that a round with a quorum waits for the others. An island that is usually there sooner is waited for "
     "that long, and one that is usually later not at all."},

    {"sync", "outliers", CONF_ENUM, AT(outliers), "clip", 0, 0, outlier_actions, NULL,
     "What an owner does, where three or more contribute, with a contribution whose norm is more than "
     "outlier_threshold times the upper median of the others', whatever was before. clip: it is scaled down to that "
     "median. drop: it weighs nothing. keep: nothing is done. trimmed, median: value by value over all islands, "
     "whatever the norms, without weights."},
    {"sync", "outlier_threshold", CONF_REAL, AT(outlier_threshold), "3", 1.5, 1000, NULL, "medians",
     "For drop and clip: what is above that many times the upper median of the others' norms is an outlier. One that "
     "weighs more than is usual may be that many times larger."},
    {"sync", "weight_max", CONF_REAL, AT(weight_max), "4", 1, 1e6, NULL, "medians",
     "Contributions are weighted by the tokens that their islands say. These count at most this many times the upper "
     "median of the other owners' tokens a round, for each round that the island was not counted in, at most 8. Where "
     "three or more contribute, none weighs more than half of what the others do, nor do all that own nothing weigh "
     "more than the owners. What is counted of an island's work is not changed by that. And the run's step follows one "
     "island alone at most that many times as fast as most owners train."},
    {"sync", "trim", CONF_INT, AT(trim), "1", 1, 31, NULL, "islands",
     "For trimmed: how many of the largest and of the smallest values are left out."},

    {"outer", "optimizer", CONF_ENUM, AT(outer), "nesterov", 0, 0, outers, NULL,
     "Outer optimizer. average: the mean of the islands becomes the anchor; lr and momentum are not used."},
    {"outer", "lr", CONF_REAL, AT(outer_lr), "0.4", 0, 100, NULL, NULL, "Outer learning rate."},
    {"outer", "momentum", CONF_REAL, AT(outer_momentum), "0.9", 0, 0.9999, NULL, NULL, "Outer momentum."},
    {"outer", "average", CONF_INT, AT(outer_average), "0", 0, 1e12, NULL, "versions",
     "The first versions of every fragment are plain averages; momentum begins after them."},
    {"outer", "warmup", CONF_INT, AT(outer_warmup), "0", 0, 1e12, NULL, "versions",
     "Versions over which lr then rises linearly."},
    {"outer", "clip", CONF_REAL, AT(outer_clip), "0", 0, 1e9, NULL, NULL,
     "For heavyball: largest magnitude of any element of the momentum (CO2). 0: none."},
    {"outer", "staleness_penalty", CONF_BOOL, AT(staleness_penalty), "no", 0, 0, NULL, NULL,
     "For heavyball: an outer gradient is divided by 1 + the anchor's last move over its own size (CO2), for overlaps "
     "of a whole interval."},
};

const struct conf_schema runspec_schema = {
    .keys = keys, .keys_count = sizeof keys / sizeof keys[0], .struct_bytes = sizeof(struct runspec)};

static enum err check_name(const char *path, const char *name)
{
    size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
    if (name[0] == '\0' || name[good] != '\0' || strlen(name) > 63)
        return err_set(ERR_CONF, "%s: [run] name: \"%s\" must be 1 to 63 letters, digits, '-' or '_'", path, name);
    return ERR_OK;
}

/* A path alone would let islands begin with different models. */
static enum err check_init(const char *path, const struct runspec *spec)
{
    const char *hex = spec->init_digest;
    if (hex[0] != '\0' && (strlen(hex) != DIGEST_HEX_BYTES - 1 || strspn(hex, "0123456789abcdef") != strlen(hex)))
        return err_set(
            ERR_CONF,
            "%s: [run] init_digest: \"%s\" is no digest of 64 digits; diloco-worker spec --run %s --from MODEL "
            "prints it",
            path, hex, path);
    if (spec->init[0] != '\0' && hex[0] == '\0')
        return err_set(
            ERR_CONF,
            "%s: [run] init_digest: must say what init holds, so that all islands begin alike; diloco-worker "
            "spec --run %s --from %s prints both",
            path, path, spec->init);
    return ERR_OK;
}

static enum err check_model(const char *path, struct runspec *spec)
{
    if (spec->kv_heads == 0)
        spec->kv_heads = spec->heads;
    if (spec->ff == 0)
        spec->ff = (spec->width * 8 / 3 + 31) / 32 * 32;
    if (spec->width % spec->heads != 0)
        return err_set(ERR_CONF, "%s: [model] width: %" PRId64 " is not a multiple of heads = %" PRId64, path,
                       spec->width, spec->heads);
    if (spec->width / spec->heads % 2 != 0)
        return err_set(ERR_CONF, "%s: [model] heads: width / heads = %" PRId64 " must be even for rotary positions",
                       path, spec->width / spec->heads);
    if (spec->heads % spec->kv_heads != 0)
        return err_set(ERR_CONF, "%s: [model] kv_heads: %" PRId64 " does not divide heads = %" PRId64, path,
                       spec->kv_heads, spec->heads);
    if (spec->format == RUNSPEC_BYTES && spec->vocab != 256)
        return err_set(ERR_CONF, "%s: [model] vocab: format = bytes needs 256, not %" PRId64, path, spec->vocab);
    if (spec->format == RUNSPEC_UINT16 && spec->vocab > 65536)
        return err_set(ERR_CONF,
                       "%s: [data] format: uint16 holds no token above 65535, and vocab is %" PRId64
                       "; set uint32, or a "
                       "vocabulary of at most 65536",
                       path, spec->vocab);
    return ERR_OK;
}

static enum err check_codec(const char *path, const struct runspec *spec)
{
    if (spec->codec == CODEC_FP32 && spec->error_feedback)
        return err_set(ERR_CONF, "%s: [sync] error_feedback: fp32 leaves nothing over; set error_feedback = no", path);
    bool drops = spec->codec == CODEC_TOPK || spec->codec == CODEC_POWERSGD;
    if (drops && !spec->error_feedback)
        return err_set(ERR_CONF,
                       "%s: [sync] error_feedback: %s leaves most of an outer gradient out, which would be lost; set "
                       "error_feedback = yes",
                       path, codecs[spec->codec]);
    if (spec->codec == CODEC_ADAPTIVE && !spec->error_feedback && spec->step >= 2)
        return err_set(ERR_CONF,
                       "%s: [sync] step: %g leaves out all of a block whose values are alike, round after round; with "
                       "codec = adaptive set a step below 2, or error_feedback = yes",
                       path, spec->step);
    return ERR_OK;
}

static enum err check_sync(const char *path, const struct runspec *spec)
{
    if (spec->overlap > spec->interval)
        return err_set(ERR_CONF, "%s: [sync] overlap: %" PRId64 " steps is longer than interval = %" PRId64, path,
                       spec->overlap, spec->interval);
    if ((spec->warm_steps > 0) != (spec->warm_interval > 0))
        return err_set(ERR_CONF, "%s: [sync] warm_steps: a warm start needs both warm_steps and warm_interval", path);
    if (spec->warm_steps > 0 && spec->growth > 0)
        return err_set(ERR_CONF, "%s: [sync] growth: begins with interval itself; leave warm_steps out", path);
    if (spec->warm_interval > spec->interval || (spec->warm_steps > 0 && spec->overlap > spec->warm_interval))
        return err_set(ERR_CONF,
                       "%s: [sync] warm_interval: %" PRId64 " steps must be from overlap = %" PRId64
                       " to interval = %" PRId64,
                       path, spec->warm_interval, spec->overlap, spec->interval);
    if (spec->outer_clip > 0 && spec->outer != RUNSPEC_HEAVY_BALL)
        return err_set(ERR_CONF, "%s: [outer] clip: bounds the momentum of heavyball; %s has none to bound", path,
                       outers[spec->outer]);
    if (spec->outer_clip > 0 && spec->outer_average > 0)
        return err_set(ERR_CONF, "%s: [outer] average: a plain average is not to be clipped; leave out clip or average",
                       path);
    if (spec->staleness_penalty && spec->outer != RUNSPEC_HEAVY_BALL)
        return err_set(ERR_CONF,
                       "%s: [outer] staleness_penalty: the anchor's last move is known from the momentum of heavyball; "
                       "with %s it is not",
                       path, outers[spec->outer]);
    if (spec->eager && (spec->overlap != spec->interval || spec->mix != 0))
        return err_set(ERR_CONF,
                       "%s: [sync] eager: needs overlap = interval = %" PRId64
                       " and mix = 0; with a shorter overlap the "
                       "live parameters hold an island's own work anyway",
                       path, spec->interval);
    bool varies = spec->growth > 0 || spec->outer_average > 0 || spec->outer_warmup > 0 || spec->outer_clip > 0 ||
                  spec->staleness_penalty;
    if (spec->eager && varies)
        return err_set(ERR_CONF,
                       "%s: [sync] eager: reckons with an outer step that is always the same; leave out growth, and "
                       "[outer] average, warmup, clip and staleness_penalty",
                       path);
    if (spec->staleness_penalty && spec->overlap != spec->interval)
        return err_set(ERR_CONF,
                       "%s: [outer] staleness_penalty: with overlap below interval = %" PRId64
                       " no outer gradient is stale; leave it out",
                       path, spec->interval);
    if (spec->mix == 1 && spec->outer != RUNSPEC_AVERAGE)
        return err_set(ERR_CONF,
                       "%s: [sync] mix: 1 never takes an anchor in, so the islands would not train one model; "
                       "use a value below 1",
                       path);
    if (spec->warmup > spec->steps)
        return err_set(ERR_CONF, "%s: [train] warmup: %" PRId64 " is longer than the run's %" PRId64 " steps", path,
                       spec->warmup, spec->steps);
    return ERR_OK;
}

enum err runspec_text(const struct runspec *spec, char **text)
{
    char *stream_text = NULL;
    size_t bytes = 0;
    *text = NULL;
    FILE *stream = open_memstream(&stream_text, &bytes);
    if (stream == NULL)
        return err_set(ERR_NOMEM, "out of memory for the run spec's text");
    conf_print(&runspec_schema, spec, false, stream);
    fclose(stream);
    enum err err = mem_strdup(stream_text, text);
    free(stream_text);
    return err;
}

static enum err check_and_digest(const char *path, struct runspec *spec)
{
    enum err err;
    char *text = NULL;
    TRY_OUT(check_name(path, spec->name));
    TRY_OUT(check_init(path, spec));
    TRY_OUT(check_model(path, spec));
    TRY_OUT(check_sync(path, spec));
    TRY_OUT(check_codec(path, spec));
    TRY_OUT(runspec_text(spec, &text));
    spec->digest = digest_of(text, strlen(text));
out:
    mem_free(text);
    if (err != ERR_OK)
        runspec_deinit(spec);
    return err;
}

enum err runspec_load(const char *path, const struct conf_override *overrides, size_t overrides_count,
                      struct runspec *spec)
{
    TRY(conf_load(&runspec_schema, path, overrides, overrides_count, spec));
    return check_and_digest(path, spec);
}

enum err runspec_parse_with(const char *text, const char *name, const struct conf_override *overrides,
                            size_t overrides_count, struct runspec *spec)
{
    TRY(conf_parse_with(&runspec_schema, text, name, overrides, overrides_count, spec));
    return check_and_digest(name, spec);
}

enum err runspec_parse(const char *text, const char *name, struct runspec *spec)
{
    return runspec_parse_with(text, name, NULL, 0, spec);
}

void runspec_deinit(struct runspec *spec)
{
    conf_deinit(&runspec_schema, spec);
}

uint64_t runspec_length(const struct runspec *spec)
{
    return (uint64_t)(spec->length > 0 ? spec->length : spec->steps);
}

uint64_t runspec_rounds(const struct runspec *spec)
{
    int64_t steps = (int64_t)runspec_length(spec);
    int64_t warm = spec->warm_steps < steps ? spec->warm_steps : steps;
    int64_t rounds = (steps - warm) / spec->interval;
    if (spec->warm_interval > 0)
        rounds += warm / spec->warm_interval;
    return (uint64_t)rounds;
}

void runspec_advice(const struct runspec *spec, char text[RUNSPEC_ADVICE_BYTES])
{
    uint64_t rounds = runspec_rounds(spec);
    text[0] = '\0';
    if (rounds >= RUNSPEC_ROUNDS_FEW || spec->outer == RUNSPEC_AVERAGE || spec->outer_momentum == 0)
        return;
    snprintf(text, RUNSPEC_ADVICE_BYTES,
             "this run has %" PRIu64 " intervals, too few for outer momentum, which pays from about %d on: set [outer] "
             "optimizer = average, or a shorter [sync] interval, before it begins",
             rounds, RUNSPEC_ROUNDS_FEW);
}

double runspec_lr(const struct runspec *spec, uint64_t step)
{
    double warmup = (double)spec->warmup;
    double at = (double)step;
    if (at < warmup)
        return spec->lr * at / warmup;
    double span = (double)runspec_length(spec) - warmup;
    double progress = span > 0 ? (at - warmup) / span : 1;
    if (progress > 1)
        progress = 1;
    double low = spec->lr * spec->lr_final;
    return low + (spec->lr - low) * 0.5 * (1 + cos(3.14159265358979323846 * progress));
}
