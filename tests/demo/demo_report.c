/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/demo/demo.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/human.h"
#include "daemon/ctl/ctl_client.h"
#include "common/plot.h"
#include "tests/lib/proc.h"

/* The sample begins with it where the model has learned from plays. */
#define PROMPT "ROMEO:\n"
/* One trainer's curve, as it wrote it, and what it measured on held-out text on the way. */
struct curve {
    double *step, *loss, *smooth;
    size_t count;
    double held_out_step[2 * DEMO_EVALS], held_out[2 * DEMO_EVALS];
    size_t held_out_count;
};

struct demo_held_out demo_held_out(const char *folder)
{
    struct demo_held_out last = {.loss = NAN};
    char path[160], line[512];
    snprintf(path, sizeof path, "%s/train.jsonl", folder);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        (void)sscanf(line, "{\"step\":%lld,\"val_loss\":%lf", &last.step, &last.loss);
    if (file != NULL)
        fclose(file);
    return last;
}

static void keep_held_out(struct curve *curve, double step, double loss)
{
    if (curve->held_out_count == sizeof curve->held_out / sizeof curve->held_out[0])
        return;
    curve->held_out_step[curve->held_out_count] = step;
    curve->held_out[curve->held_out_count++] = loss;
}

static struct curve read_curve(const char *folder)
{
    struct curve curve = {.step = calloc(DEMO_STEPS_MAX, sizeof(double)),
                          .loss = calloc(DEMO_STEPS_MAX, sizeof(double)),
                          .smooth = calloc(DEMO_STEPS_MAX, sizeof(double))};
    char path[128], line[512];
    snprintf(path, sizeof path, "%s/train.jsonl", folder);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL && curve.count < DEMO_STEPS_MAX) {
        double step, loss;
        if (sscanf(line, "{\"step\":%lf,\"val_loss\":%lf", &step, &loss) == 2)
            keep_held_out(&curve, step, loss);
        if (sscanf(line, "{\"step\":%lf,\"loss\":%lf", &step, &loss) != 2)
            continue;
        double before = curve.count > 0 ? curve.smooth[curve.count - 1] : loss;
        curve.step[curve.count] = step;
        curve.loss[curve.count] = loss;
        /* At first the mean of all so far, later of about the last ten: no lag behind a steep beginning. */
        double weight = curve.count < 9 ? 1.0 / (double)(curve.count + 1) : 0.1;
        curve.smooth[curve.count++] = before + weight * (loss - before);
    }
    if (file != NULL)
        fclose(file);
    return curve;
}

static void free_curve(struct curve *curve)
{
    free(curve->step);
    free(curve->loss);
    free(curve->smooth);
}

/* Mean over a few steps at the beginning or the end. */
static double mean_loss(const struct curve *curve, bool first)
{
    size_t take = curve->count < 10 ? curve->count : 10;
    double sum = 0;
    for (size_t i = 0; i < take; i++)
        sum += curve->loss[first ? i : curve->count - 1 - i];
    return take > 0 ? sum / (double)take : NAN;
}

/* One thread, as in the run: on a machine that others use, too, several wait for each other longer than they gain. */
static double evaluate(const struct demo *demo, const char *option, const char *file)
{
    char worker[300], batches[12], out[64] = "";
    snprintf(batches, sizeof batches, "%d", DEMO_EVAL_BATCHES);
    snprintf(worker, sizeof worker, "%s/diloco-worker", demo->programs);
    const char *argv[] = {worker,      "eval", option,           file,    "--data", DEMO_FOLDER "/corpus",
                          "--threads", "1",    "--eval-batches", batches, NULL};
    int status = proc_run(argv, DEMO_FOLDER "/report.log", out, sizeof out);
    return status == 0 ? strtod(out, NULL) : NAN;
}

/* Text in place of what is no text, so that a terminal survives it. */
static bool write_sample(const struct demo *demo, const char *params, char *text, size_t text_bytes)
{
    char worker[300];
    snprintf(worker, sizeof worker, "%s/diloco-worker", demo->programs);
    const char *argv[] = {
        worker,     "sample", "--params",      params, "--prompt",  demo->data == NULL ? PROMPT : "\n",
        "--tokens", "600",    "--temperature", "0.7",  "--threads", "1",
        NULL};
    if (proc_run(argv, DEMO_FOLDER "/report.log", text, text_bytes) != 0)
        return false;
    for (char *at = text; *at != '\0'; at++)
        *at = (unsigned char)*at >= 32 || *at == '\n' || *at == '\t' ? *at : '?';
    return fsio_replace(DEMO_FOLDER "/sample.txt", text, strlen(text), 0644) == ERR_OK;
}

struct figures {
    double loss_first, loss_last, val_start, val_anchor, val_parallel; /* the last NAN: not trained */
    double bytes_data_parallel, reduction, bits_per_param;
    long long bytes_sent_max, tokens, steps;
    bool identical, fell;
};

static struct figures figures_of(const struct demo *demo, const struct curve *curves, const char *anchor)
{
    struct figures f = {.identical = true};
    double rounds = 0, payload = 0;
    for (int i = 0; i < DEMO_ISLANDS; i++) {
        const struct demo_island *island = &demo->island[i];
        f.loss_first += mean_loss(&curves[i], true) / DEMO_ISLANDS;
        f.loss_last += mean_loss(&curves[i], false) / DEMO_ISLANDS;
        f.bytes_sent_max = island->bytes_sent > f.bytes_sent_max ? island->bytes_sent : f.bytes_sent_max;
        f.tokens += island->tokens;
        f.steps = island->step;
        f.identical =
            f.identical && strlen(island->anchors) == 64 && strcmp(island->anchors, demo->island[0].anchors) == 0;
        rounds += (double)island->versions / (double)demo->fragments / DEMO_ISLANDS;
        payload += (double)island->payload_sent / DEMO_ISLANDS;
    }
    demo_say(demo, "measuring the held-out loss before training");
    f.val_start = evaluate(demo, "--run", DEMO_FOLDER "/run.ini");
    demo_say(demo, "measuring the held-out loss of the trained model");
    f.val_anchor = evaluate(demo, "--params", anchor);
    f.val_parallel = NAN;
    if (demo->parallel) {
        char params[128];
        snprintf(params, sizeof params, DEMO_PARALLEL "/worker-%09lld.safetensors", f.steps);
        demo_say(demo, "measuring the held-out loss of data-parallel training");
        f.val_parallel = evaluate(demo, "--params", params);
    }
    /* A ring all-reduce of bf16 gradients sends 2 (M - 1) / M times their size from each island, every step; here the
     * contributions and results of a round are as many values. */
    double share = 2.0 * (DEMO_ISLANDS - 1) / DEMO_ISLANDS;
    f.bytes_data_parallel = share * 2 * (double)demo->params * (double)f.steps;
    f.reduction = f.bytes_data_parallel / (double)f.bytes_sent_max;
    f.bits_per_param = payload * 8 / (share * (double)demo->params * rounds);
    f.fell = f.loss_last < f.loss_first && f.val_anchor < f.val_start;
    return f;
}

static void print_table(const struct demo *demo, const struct figures *f)
{
    char a[32], b[32];
    printf("\n%-7s %6s %8s %7s %8s %9s %9s  %s\n", "island", "steps", "tokens", "loss", "versions", "sent", "received",
           "anchors");
    for (int i = 0; i < DEMO_ISLANDS; i++) {
        const struct demo_island *island = &demo->island[i];
        printf("%-7s %6lld %8lld %7.4f %8lld %9s %9s  %.16s\n", island->name, island->step, island->tokens,
               island->loss, island->versions, human_bytes((double)island->bytes_sent, a),
               human_bytes((double)island->bytes_received, b), island->anchors);
    }
    printf("\nanchors             %s\n", f->identical ? "identical on both islands, bit for bit" : "DIFFER");
    printf("held-out loss       %.4f at the start, %.4f after training (nats per byte)\n", f->val_start, f->val_anchor);
    if (demo->parallel)
        printf("data-parallel       %.4f held out after as many tokens; the islands: %+.1f %%\n", f->val_parallel,
               100 * (f->val_anchor / f->val_parallel - 1));
    printf("bytes per island    %s; data-parallel (bf16, every step) would send\n"
           "                    %s, %.0f times that\n",
           human_bytes((double)f->bytes_sent_max, a), human_bytes(f->bytes_data_parallel, b), f->reduction);
    printf("on the wire         %.2f bit per parameter and synchronisation (%s, zstd)\n", f->bits_per_param,
           demo->codec);
    printf("took                %.0f s of training, %.0f s in all\n", demo->took_s, env_mono_s() - demo->begin_s);
}

/* Where the curves end is what matters: the beginning of the axis' upper end is cut off. */
static double upper_end(const struct demo *demo, const struct curve *curves, const struct figures *f)
{
    double low = fmin(f->val_anchor, demo->parallel ? f->val_parallel : f->val_anchor);
    double high = fmax(f->val_anchor, demo->parallel ? f->val_parallel : f->val_anchor);
    for (int i = 0; i < DEMO_ISLANDS; i++)
        low = fmin(low, curves[i].smooth[curves[i].count - 1]);
    return fmax(low + 0.25 * (f->val_start - low), high + 0.1 * (high - low));
}

/* Of islands or of data-parallel training: the loss on held-out text on the way, and in the end, as a point. */
static void add_held_out(struct plot *plot, const char *name, const char *color, const struct curve *curve,
                         const double *end_step, const double *end_loss, double radius)
{
    plot->series[plot->series_count++] = (struct plot_series){.name = name,
                                                              .color = color,
                                                              .x = curve->held_out_step,
                                                              .y = curve->held_out,
                                                              .count = curve->held_out_count,
                                                              .width = 2.5,
                                                              .opacity = 1};
    plot->series[plot->series_count++] =
        (struct plot_series){.color = color, .x = end_step, .y = end_loss, .count = 1, .radius = radius, .opacity = 1};
}

static bool draw(const struct demo *demo, const struct curve *curves, const struct figures *f)
{
    static const char *const colors[] = {"#90caf9", "#ffcc80", "#bdbdbd"};
    static const char *const names[] = {"oslo, in training", "lima, in training", "data-parallel, in training"};
    double end_x = (double)f->steps;
    char title[128], subtitle[256], parallel[40] = "";
    snprintf(title, sizeof title, "Two islands train one model, with %.0f times fewer bytes than data-parallel",
             f->reduction);
    if (demo->parallel)
        snprintf(parallel, sizeof parallel, ", data-parallel %.3f", f->val_parallel);
    snprintf(subtitle, sizeof subtitle,
             "held out: islands %.3f%s; %.1f million parameters, %lld fragments, each exchanged every %lld steps",
             f->val_anchor, parallel, (double)demo->params / 1e6, demo->fragments, demo->interval);
    struct plot plot = {.title = title,
                        .subtitle = subtitle,
                        .x_label = "inner step",
                        .y_label = "loss, nats per byte",
                        .y_high = upper_end(demo, curves, f)};
    for (int i = 0; i < DEMO_ISLANDS + demo->parallel; i++)
        plot.series[plot.series_count++] = (struct plot_series){.name = names[i],
                                                                .color = colors[i],
                                                                .x = curves[i].step,
                                                                .y = curves[i].smooth,
                                                                .count = curves[i].count,
                                                                .width = 1.5,
                                                                .opacity = 1};
    if (demo->parallel)
        add_held_out(&plot, "data-parallel, held out", "#c62828", &curves[DEMO_ISLANDS], &end_x, &f->val_parallel, 8);
    add_held_out(&plot, "islands, held out", "#1b5e20", &curves[0], &end_x, &f->val_anchor, 4);
    return plot_write(&plot, DEMO_FOLDER "/loss.svg");
}

static bool write_summary(const struct demo *demo, const struct figures *f)
{
    json_t *hashes = json_array(), *sent = json_array();
    for (int i = 0; i < DEMO_ISLANDS; i++) {
        json_array_append_new(hashes, json_string(demo->island[i].anchors));
        json_array_append_new(sent, json_integer(demo->island[i].bytes_sent));
    }
    json_t *s = json_object();
    json_object_set_new(s, "islands", json_integer(DEMO_ISLANDS));
    json_object_set_new(s, "params", json_integer(demo->params));
    json_object_set_new(s, "steps", json_integer(f->steps));
    json_object_set_new(s, "tokens", json_integer(f->tokens));
    json_object_set_new(s, "loss_first", json_real(f->loss_first));
    json_object_set_new(s, "loss_last", json_real(f->loss_last));
    json_object_set_new(s, "val_loss_anchor", json_real(f->val_anchor));
    json_object_set_new(s, "val_loss_start", json_real(f->val_start));
    json_object_set_new(s, "val_loss_data_parallel", demo->parallel ? json_real(f->val_parallel) : json_null());
    json_object_set_new(s, "fragments", json_integer(demo->fragments));
    json_object_set_new(s, "versions", json_integer(demo->island[0].versions));
    json_object_set_new(s, "anchors_identical", json_boolean(f->identical));
    json_object_set_new(s, "anchor_hashes", hashes);
    json_object_set_new(s, "bytes_sent", sent);
    json_object_set_new(s, "bytes_data_parallel", json_real(f->bytes_data_parallel));
    json_object_set_new(s, "reduction", json_real(f->reduction));
    json_object_set_new(s, "codec", json_string(demo->codec));
    json_object_set_new(s, "bits_per_param", json_real(f->bits_per_param));
    json_object_set_new(s, "seconds", json_real(demo->took_s));
    FILE *file = fopen(DEMO_FOLDER "/summary.json", "we");
    bool written = file != NULL &&
                   json_dumpf(s, file, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(8)) == 0 &&
                   fputc('\n', file) != EOF;
    written = file != NULL && fclose(file) == 0 && written;
    json_decref(s);
    return written;
}

void demo_say(const struct demo *demo, const char *what)
{
    printf("%5.0f s  %s\n", env_mono_s() - demo->begin_s, what);
    fflush(stdout);
}

int demo_report(const struct demo *demo)
{
    static char sample[4096];
    struct curve curves[DEMO_ISLANDS + 1];
    char anchor[128], folder[128];
    snprintf(anchor, sizeof anchor, "%s/anchor.safetensors", demo->island[0].state);
    for (int i = 0; i < DEMO_ISLANDS; i++) {
        snprintf(folder, sizeof folder, "%s/worker", demo->island[i].state);
        curves[i] = read_curve(folder);
    }
    curves[DEMO_ISLANDS] = read_curve(DEMO_PARALLEL);
    struct figures f = figures_of(demo, curves, anchor);
    demo_say(demo, "letting the model write");
    bool wrote = write_sample(demo, anchor, sample, sizeof sample);
    demo_say(demo, "drawing the picture");
    bool drawn = draw(demo, curves, &f);
    bool written = write_summary(demo, &f);
    for (int i = 0; i < DEMO_ISLANDS + 1; i++)
        free_curve(&curves[i]);
    print_table(demo, &f);
    printf("\nWhat the model writes:\n\n%s", sample);
    printf("\npicture  " DEMO_FOLDER "/loss.svg\nfigures  " DEMO_FOLDER "/summary.json\nmodel    %s\n", anchor);
    if (!f.identical)
        fprintf(stderr, "FAILED: the islands' anchors differ\n");
    if (demo->parallel && isnan(f.val_parallel))
        fprintf(stderr, "FAILED: no held-out loss of data-parallel training\n");
    if (!f.fell)
        fprintf(stderr, "FAILED: the loss did not fall\n");
    if (!wrote)
        fprintf(stderr, "FAILED: no sample; " DEMO_FOLDER "/report.log says why\n");
    if (!drawn || !written)
        fprintf(stderr, "FAILED: picture or summary could not be written to " DEMO_FOLDER "\n");
    return f.identical && f.fell && wrote && drawn && written && demo->parallel == !isnan(f.val_parallel) ? 0 : 1;
}
