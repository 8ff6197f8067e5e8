/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "outer_opt/codec.h"
#include "outer_opt/vec.h"
#include "tests/bench/bench.h"

/* Larger than any cache; Gaussian, as outer gradients nearly are. */
enum { COUNT = 16 << 20, RUNS = 5 };

/* Whole frames as daemons make them, the default codec first. */
static const struct {
    const char *name;
    struct codec_choice choice;
} codecs[] = {{"uniform", {.id = CODEC_UNIFORM, .ratio = 1.4f}},
              {"e3m0", {.id = CODEC_E3M0}},
              {"int8", {.id = CODEC_INT8}},
              {"bf16", {.id = CODEC_BF16}},
              {"fp32", {.id = CODEC_FP32}}};
enum { CODECS = sizeof codecs / sizeof codecs[0], LARGEST = CODECS - 1 };

struct bench {
    float *base, *theta, *residual, *sum;
    uint8_t *frame, *raw;
    size_t frame_bytes;
    struct codec *codec, *plain;
};

static enum err set_up(struct bench *b)
{
    struct env_rng rng = env_rng_init(1, 1);
    TRY(mem_new(COUNT, sizeof(float), "base", &b->base));
    TRY(mem_new(COUNT, sizeof(float), "theta", &b->theta));
    TRY(mem_new(COUNT, sizeof(float), "residual", &b->residual));
    TRY(mem_new(COUNT, sizeof(float), "sum", &b->sum));
    TRY(mem_new(codec_frame_bytes_max(&(struct codec_part){.count = COUNT, .choice = codecs[LARGEST].choice}, 1), 1,
                "frame", &b->frame));
    TRY(mem_new(COUNT, 1, "raw", &b->raw));
    TRY(codec_new(1, &b->codec));
    TRY(codec_new(0, &b->plain));
    /* A million distinct values repeated: making sixteen million would take longer than the measurement. */
    for (size_t i = 0; i < COUNT; i++)
        b->base[i] = i < 1 << 20 ? (float)(1e-3 * env_rng_normal(&rng)) : b->base[i - (1 << 20)];
    return ERR_OK;
}

static double time_memcpy(struct bench *b)
{
    double took[RUNS];
    for (int r = 0; r < RUNS; r++) {
        double begin_s = env_mono_s();
        memcpy(b->sum, b->base, COUNT * sizeof(float));
        took[r] = env_mono_s() - begin_s;
    }
    return COUNT * sizeof(float) / bench_median(took, RUNS) / 1e9;
}

/* The quantising pass alone: subtract, add the residual, scale, quantise, pack, new residual. */
static double time_quantise(struct bench *b)
{
    const struct vec_codec *ops = &vec_best()->codec[CODEC_E3M0];
    double took[RUNS];
    for (int r = 0; r < RUNS; r++) {
        double begin_s = env_mono_s();
        for (size_t at = 0; at < COUNT; at += CODEC_SEGMENT) {
            struct vec_source source = {b->base + at, b->theta + at, b->residual + at};
            ops->encode(&source, CODEC_SEGMENT / CODEC_BLOCK, b->raw, b->residual + at);
        }
        took[r] = env_mono_s() - begin_s;
    }
    return COUNT / bench_median(took, RUNS) / 1e9;
}

static double time_encode(struct bench *b, const struct codec_part *part, struct codec *codec)
{
    double took[RUNS];
    size_t fault;
    for (int r = 0; r < RUNS; r++) {
        struct vec_source source = {b->base, b->theta, b->residual};
        double begin_s = env_mono_s();
        if (codec_encode(codec, part, 1, &source, b->residual, b->frame, &b->frame_bytes, &fault) != ERR_OK)
            fprintf(stderr, "bench: %s\n", err_text());
        took[r] = env_mono_s() - begin_s;
    }
    return COUNT / bench_median(took, RUNS) / 1e9;
}

static double time_decode(struct bench *b, struct codec *codec)
{
    double took[RUNS];
    for (int r = 0; r < RUNS; r++) {
        double begin_s = env_mono_s();
        if (codec_decode_add(codec, b->frame, b->frame_bytes, 2.0f, b->sum, COUNT) != ERR_OK)
            fprintf(stderr, "bench: %s\n", err_text());
        took[r] = env_mono_s() - begin_s;
    }
    return COUNT / bench_median(took, RUNS) / 1e9;
}

static double bits_of_gaussian(struct bench *b, const struct codec_part *part)
{
    struct vec_source source = {.minuend = b->base};
    size_t fault;
    if (codec_encode(b->codec, part, 1, &source, NULL, b->frame, &b->frame_bytes, &fault) != ERR_OK)
        fprintf(stderr, "bench: %s\n", err_text());
    return 8.0 * (double)b->frame_bytes / COUNT;
}

/* Billions of parameters in a second on one core, with digest; without zstd and with. */
static void one_codec(struct bench *b, size_t k, json_t *summary)
{
    const struct codec_part part = {.count = COUNT, .choice = codecs[k].choice};
    const char *name = codecs[k].name;
    double encode_plain = time_encode(b, &part, b->plain), decode_plain = time_decode(b, b->plain);
    double encode = time_encode(b, &part, b->codec), decode = time_decode(b, b->codec);
    double bits = bits_of_gaussian(b, &part);
    char key[64];
    printf("frame        %-8s %.2f G parameters/s encoded, %.2f decoded and added up; without zstd %.2f and %.2f; "
           "%.3f bit on Gaussian data\n",
           name, encode, decode, encode_plain, decode_plain, bits);
    snprintf(key, sizeof key, "%s_encode_gparams_per_s", name);
    json_object_set_new(summary, key, json_real(encode));
    snprintf(key, sizeof key, "%s_decode_gparams_per_s", name);
    json_object_set_new(summary, key, json_real(decode));
    snprintf(key, sizeof key, "%s_bits_per_param", name);
    json_object_set_new(summary, key, json_real(bits));
}

void bench_codec(json_t *summary)
{
    struct bench b = {0};
    if (set_up(&b) != ERR_OK) {
        fprintf(stderr, "bench: %s\n", err_text());
        return;
    }
    /* Gigabytes of fp32 parameters that pass through in a second, over what memcpy moves in one. */
    double memcpy_gb = time_memcpy(&b), quantise = time_quantise(&b);
    for (size_t k = 0; k < CODECS; k++)
        one_codec(&b, k, summary);
    printf("E3M0 alone, with residual, one core: %.2f G parameters/s, %.2f of memcpy, which moves %.1f GB/s\n",
           quantise, 4 * quantise / memcpy_gb, memcpy_gb);
    json_object_set_new(summary, "memcpy_gbytes_per_s", json_real(memcpy_gb));
    json_object_set_new(summary, "e3m0_quantise_over_memcpy", json_real(4 * quantise / memcpy_gb));
    codec_free(b.codec);
    codec_free(b.plain);
    mem_free(b.base);
    mem_free(b.theta);
    mem_free(b.residual);
    mem_free(b.sum);
    mem_free(b.frame);
    mem_free(b.raw);
}
