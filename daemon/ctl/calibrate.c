/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/calibrate.h"

#include <fcntl.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/mem.h"
#include "outer_opt/outer.h"

/* VALUES: larger than a core's caches. Everything is done RUNS times, and the quickest counts: the first one meets
 * memory that was never touched. */
enum { VALUES = 4 << 20, DISTINCT = 1 << 16, RUNS = 3 };
/* MESSAGE: what the cipher gets at a time. */
enum { MESSAGE = 64 << 10, MESSAGES = 64, DISK_BYTES = 32 << 20, PATH_BYTES = 256 };
/* Between the memory that holds a frame and the line it is copied: into a message, and into the kernel's buffers, which
 * does as much again for its packets. */
enum { LINK_COPIES = 3 };
/* Held per parameter: anchor, momentum, and twice what is shared with the trainer; with error feedback residual and
 * pending residual. */
enum { HELD_BYTES = 16, FEEDBACK_BYTES = 8 };

struct bench {
    float *base, *theta, *residual, *sum;
    uint8_t *frame, *sealed;
    struct codec *codec;
};

static double quicker(double best_ns, uint64_t begin_ns, double count)
{
    return fmin(best_ns, (double)(env_thread_cpu_ns() - begin_ns) / count);
}

static void clean_up(struct bench *b)
{
    mem_free(b->base);
    mem_free(b->theta);
    mem_free(b->residual);
    mem_free(b->sum);
    mem_free(b->frame);
    mem_free(b->sealed);
    codec_free(b->codec);
}

/* Gaussian, as outer gradients nearly are. */
static enum err set_up(struct bench *b, const struct codec_part *part)
{
    struct env_rng rng = env_rng_init(1, 1);
    TRY(mem_new(VALUES, sizeof(float), "measuring", &b->base));
    TRY(mem_new(VALUES, sizeof(float), "measuring", &b->theta));
    TRY(mem_new(VALUES, sizeof(float), "measuring", &b->residual));
    TRY(mem_new(VALUES, sizeof(float), "measuring", &b->sum));
    TRY(mem_new(codec_frame_bytes_max(part, 1), 1, "measuring", &b->frame));
    TRY(mem_new(MESSAGE + crypto_secretbox_MACBYTES, 1, "measuring", &b->sealed));
    for (size_t i = 0; i < VALUES; i++)
        b->base[i] = i < DISTINCT ? (float)(1e-3 * env_rng_normal(&rng)) : b->base[i - DISTINCT];
    return codec_new(1, &b->codec);
}

static void measure_values(struct bench *b, struct calibration *out)
{
    static const struct outer_conf conf = {.kind = OUTER_NESTEROV, .lr = 0.7f, .momentum = 0.9f};
    const struct outer_round round = outer_round_of(&conf, 1);
    struct digest leaves[VALUES * sizeof(float) / DIGEST_LEAF_BYTES];
    for (int r = 0; r < RUNS; r++) {
        uint64_t begin_ns = env_thread_cpu_ns();
        outer_step(&conf, &round, b->theta, b->sum, b->base, VALUES);
        out->step_ns = quicker(out->step_ns, begin_ns, VALUES);
        begin_ns = env_thread_cpu_ns();
        digest_tree_whole(b->theta, sizeof leaves / sizeof *leaves, leaves);
        out->digest_ns = quicker(out->digest_ns, begin_ns, VALUES * sizeof(float));
        begin_ns = env_thread_cpu_ns();
        memcpy(b->sum, b->theta, VALUES * sizeof(float));
        out->copy_ns = quicker(out->copy_ns, begin_ns, VALUES);
    }
    out->hash_ns = 2 * sizeof(float) * out->digest_ns;
}

/* CURVE's cipher (CurveZMQ, RFC 26) with the keys agreed. */
static void measure_cipher(struct bench *b, struct calibration *out)
{
    static const uint8_t key[crypto_secretbox_KEYBYTES] = {1}, nonce[crypto_secretbox_NONCEBYTES] = {2};
    for (int r = 0; r < RUNS; r++) {
        uint64_t begin_ns = env_thread_cpu_ns();
        for (size_t i = 0; i < MESSAGES; i++)
            (void)crypto_secretbox_easy(b->sealed, (const uint8_t *)b->base + i * MESSAGE, MESSAGE, nonce, key);
        out->cipher_ns = quicker(out->cipher_ns, begin_ns, (double)MESSAGES * MESSAGE);
    }
}

static enum err measure_disk(struct bench *b, const char *folder, struct calibration *out)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/diloco-XXXXXX", folder);
    int fd = mkostemp(path, O_CLOEXEC);
    enum err err = ERR_OK;
    if (fd < 0)
        return err_set_errno(ERR_IO, "cannot measure the disk in %s", folder);
    (void)unlink(path);
    for (int r = 0; r < RUNS && err == ERR_OK; r++) {
        double begin_s = env_mono_s();
        if (pwrite(fd, b->base, DISK_BYTES / 2, 0) < 0 || pwrite(fd, b->base, DISK_BYTES / 2, DISK_BYTES / 2) < 0 ||
            fdatasync(fd) != 0)
            err = err_set_errno(ERR_IO, "cannot measure the disk in %s", folder);
        out->disk_ns = fmin(out->disk_ns, 1e9 * (env_mono_s() - begin_s) / DISK_BYTES);
    }
    (void)close(fd);
    return err;
}

enum err calibrate_measure(const char *folder, struct calibration *out)
{
    static const struct codec_part part = {.count = CODEC_BLOCK, .choice = {.id = CODEC_FP32}};
    struct bench bench = {.base = NULL};
    enum err err;
    *out = (struct calibration){INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, INFINITY};
    TRY_OUT(set_up(&bench, &part));
    measure_values(&bench, out);
    measure_cipher(&bench, out);
    TRY_OUT(measure_disk(&bench, folder, out));
out:
    clean_up(&bench);
    return err;
}

enum err calibrate_measure_codec(const struct codec_choice *choice, struct calibrate_codec *out)
{
    const struct codec_part part = {.count = VALUES, .choice = *choice};
    struct bench b = {.base = NULL};
    size_t fault, bytes;
    enum err err;
    *out = (struct calibrate_codec){INFINITY, INFINITY, INFINITY};
    TRY_OUT(codec_choice_check(choice));
    TRY_OUT(set_up(&b, &part));
    const struct vec_source source = {b.base, b.theta, NULL};
    for (int r = 0; r < RUNS; r++) {
        uint64_t begin_ns = env_thread_cpu_ns();
        TRY_OUT(codec_encode(b.codec, &part, 1, &source, b.residual, b.frame, &bytes, &fault));
        out->encode_ns = quicker(out->encode_ns, begin_ns, VALUES);
        begin_ns = env_thread_cpu_ns();
        TRY_OUT(codec_decode_add(b.codec, b.frame, bytes, 0.5f, b.sum, VALUES));
        out->add_ns = quicker(out->add_ns, begin_ns, VALUES);
        begin_ns = env_thread_cpu_ns();
        TRY_OUT(codec_decodable(b.codec, b.frame, bytes, VALUES));
        out->look_ns = quicker(out->look_ns, begin_ns, VALUES);
    }
out:
    clean_up(&b);
    return err;
}

struct calibrate_cost calibrate_cost(const struct calibration *machine, const struct calibrate_codec *codec,
                                     const struct calibrate_run *run)
{
    const double bytes = run->bits / 8, others = run->islands - 1, own = 1.0 / run->owners;
    struct calibrate_cost cost = {
        .encode_ns = codec->encode_ns,
        /* Every contribution is looked at as it comes, and once more as it is added up; then the mean is encoded. */
        .reduce_ns = run->islands * (codec->add_ns + bytes * machine->digest_ns) + codec->encode_ns,
        .store_ns = codec->look_ns + bytes * (machine->digest_ns + machine->copy_ns / sizeof(float)),
        .apply_ns = bytes * machine->digest_ns + codec->add_ns + machine->step_ns + machine->copy_ns,
        .hash_ns = machine->hash_ns,
        .link_ns = machine->cipher_ns + LINK_COPIES * machine->copy_ns / sizeof(float),
        .disk_ns = bytes * machine->disk_ns,
        /* What we send and the result of every part, and what comes for ours, once more with its result. */
        .memory_bytes =
            HELD_BYTES + (run->error_feedback ? FEEDBACK_BYTES : 0) + bytes * (2 + (run->islands + 1) * own),
    };
    /* In the mean of all islands: each sends and receives a contribution and all results but for its own shards. */
    const double share = others / run->islands;
    cost.all_ns = cost.encode_ns + cost.reduce_ns / run->islands + cost.store_ns + cost.apply_ns + cost.hash_ns +
                  4 * share * bytes * cost.link_ns;
    return cost;
}
