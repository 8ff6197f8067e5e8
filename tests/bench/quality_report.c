/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/quality.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/plot.h"

/* Over the seeds that are there. */
struct summary {
    const struct quality_row *row;
    uint64_t seeds;
    double loss, spread; /* mean, largest - smallest */
    double tokens, rounds, bytes_sent, bytes_data_parallel;
};

static struct summary summarise(const struct quality_row *row, uint64_t seeds)
{
    struct summary s = {.row = row};
    double least = INFINITY, most = -INFINITY;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        char path[200];
        quality_path(row, seed, path, sizeof path);
        json_t *run = json_load_file(path, 0, NULL);
        if (run == NULL)
            continue;
        double loss = json_number_value(json_object_get(run, "val_loss"));
        s.loss += loss;
        least = fmin(least, loss);
        most = fmax(most, loss);
        s.tokens = json_number_value(json_object_get(run, "tokens"));
        s.rounds = json_number_value(json_object_get(run, "rounds"));
        s.bytes_sent = json_number_value(json_object_get(run, "bytes_sent"));
        s.bytes_data_parallel = json_number_value(json_object_get(run, "bytes_data_parallel"));
        s.seeds++;
        json_decref(run);
    }
    s.loss = s.seeds > 0 ? s.loss / (double)s.seeds : 0;
    s.spread = s.seeds > 0 ? most - least : 0;
    return s;
}

/* Of each seed, and half of the mean's 95 % interval (Student's t; NAN for one seed). */
static json_t *losses_of(const struct quality_row *row, uint64_t seeds, double mean, double *half)
{
    static const double t[] = {NAN, NAN, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
    const size_t known = sizeof t / sizeof t[0];
    json_t *losses = json_array();
    double squares = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        char path[200];
        quality_path(row, seed, path, sizeof path);
        json_t *run = json_load_file(path, 0, NULL);
        if (run == NULL)
            continue;
        double loss = json_number_value(json_object_get(run, "val_loss"));
        squares += (loss - mean) * (loss - mean);
        json_array_append_new(losses, json_real(loss));
        json_decref(run);
    }
    size_t count = json_array_size(losses);
    *half = (count < known ? t[count] : 1.96) * sqrt(squares / (double)(count - 1) / (double)count);
    return losses;
}

/* In percent over the row of that name, on the seeds both have; NAN if it has not been run. */
static double gap_to(const struct summary *s, const char *name, uint64_t seeds, double *loss)
{
    *loss = NAN;
    for (size_t i = 0; name != NULL && i < quality_rows_count; i++)
        if (strcmp(quality_rows[i].name, name) == 0) {
            uint64_t common = s->seeds < seeds ? s->seeds : seeds;
            struct summary other = summarise(&quality_rows[i], common);
            if (other.seeds < common || common == 0)
                return NAN;
            *loss = other.loss;
            return 100 * (s->loss / other.loss - 1);
        }
    return NAN;
}

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* The value of a key among the row's settings, or the common one. */
static const char *setting(const struct quality_row *row, const char *key, const char *common)
{
    for (int i = 0; i < QUALITY_SETS_MAX && row->sets[i] != NULL; i++)
        if (strncmp(row->sets[i], key, strlen(key)) == 0 && row->sets[i][strlen(key)] == '=')
            return row->sets[i] + strlen(key) + 1;
    return common;
}

static json_t *row_json(const struct summary *s, uint64_t seeds)
{
    const struct quality_row *row = s->row;
    double exchange, parallel, half;
    double codec_gap = gap_to(s, row->lab.data_parallel ? NULL : row->against, seeds, &exchange);
    double dp_gap = gap_to(s, row->parallel, seeds, &parallel);
    json_t *sets = json_array();
    for (int i = 0; i < QUALITY_SETS_MAX && row->sets[i] != NULL; i++)
        json_array_append_new(sets, json_string(row->sets[i]));
    json_t *out =
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:s, s:f, s:f, s:i, s:f, s:f}", "name", row->name, "group", row->group,
                  "islands", (int)row->islands, "H", atoi(setting(row, "sync.interval", "30")), "tau",
                  atoi(setting(row, "sync.overlap", "1")), "codec", setting(row, "sync.codec", "fp32"), "rounds",
                  s->rounds, "tokens", s->tokens, "seeds", (int)s->seeds, "val_loss", s->loss, "spread", s->spread);
    json_object_set_new(out, "val_losses", losses_of(row, seeds, s->loss, &half));
    json_object_set_new(out, "interval_95", real_or_null(half));
    json_object_set_new(out, "val_loss_fp32_exchange", real_or_null(exchange));
    json_object_set_new(out, "val_loss_data_parallel", real_or_null(parallel));
    json_object_set_new(out, "codec_gap_percent", real_or_null(codec_gap));
    json_object_set_new(out, "dp_gap_percent", real_or_null(dp_gap));
    json_object_set_new(out, "bytes_sent", json_real(s->bytes_sent));
    json_object_set_new(out, "reduction", json_real(s->bytes_data_parallel / s->bytes_sent));
    json_object_set_new(out, "settings", sets);
    printf("%-28s %2u islands  %4.0f rounds  %.4f +- %.4f", row->name, row->islands, s->rounds, s->loss, s->spread / 2);
    printf(isfinite(codec_gap) ? "  %+6.2f %%" : "          ", codec_gap);
    printf(isfinite(dp_gap) ? "  %+6.2f %%" : "          ", dp_gap);
    printf("  %7.0f x  %d seeds\n", s->bytes_data_parallel / s->bytes_sent, (int)s->seeds);
    return out;
}

static void describe(json_t *out, const char *data)
{
    struct utsname machine;
    char commit[64] = "";
    FILE *git = popen("git rev-parse --short HEAD 2>/dev/null", "r");
    if (git != NULL) {
        if (fgets(commit, sizeof commit, git) != NULL)
            commit[strcspn(commit, "\n")] = '\0';
        pclose(git);
    }
    uname(&machine);
    const char *base = strrchr(data, '/');
    json_object_set_new(out, "commit", json_string(commit));
    json_object_set_new(
        out, "machine",
        json_pack("{s:s, s:i}", "architecture", machine.machine, "processors", (int)sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(out, "data", json_string(base != NULL ? base + 1 : data));
    json_object_set_new(out, "base", json_string(quality_base));
}

/* Gap to data-parallel over the reduction of bytes, a point a row; rows that ran away are left out. */
static bool draw(const json_t *rows, const char *path)
{
    static double reduction[256], gap[256];
    struct plot plot = {.title = "What fewer bytes cost",
                        .subtitle = "held-out loss over data-parallel training at equal tokens; one point a row",
                        .x_label = "log10 of the reduction of bytes",
                        .y_label = "% over data-parallel",
                        .series_count = 1};
    size_t index, count = 0;
    json_t *row;
    json_array_foreach (rows, index, row) {
        json_t *percent = json_object_get(row, "dp_gap_percent");
        if (count == 256 || !json_is_number(percent) || json_number_value(percent) > 20)
            continue;
        reduction[count] = log10(json_number_value(json_object_get(row, "reduction")));
        gap[count++] = json_number_value(percent);
    }
    plot.series[0] = (struct plot_series){.color = "#15c", .x = reduction, .y = gap, .count = count, .opacity = 0.7};
    return plot_write(&plot, path);
}

bool quality_report(uint64_t seeds, const char *data, const char *out)
{
    json_t *all = json_object();
    json_t *rows = json_array();
    const char *group = "";
    describe(all, data);
    printf("\n%-28s %10s  %11s  %-16s  %-9s %-9s %10s\n", "", "", "", "held-out loss", "to fp32", "to d.p.", "bytes");
    for (size_t i = 0; i < quality_rows_count; i++) {
        struct summary s = summarise(&quality_rows[i], seeds);
        if (s.seeds == 0)
            continue;
        if (strcmp(group, quality_rows[i].group) != 0)
            printf("%s\n", group = quality_rows[i].group);
        json_array_append_new(rows, row_json(&s, seeds));
    }
    json_object_set_new(all, "rows", rows);
    bool drawn = draw(rows, "build/bench/quality.svg");
    bool good = json_dump_file(all, out, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(7)) == 0;
    json_decref(all);
    printf(good ? "\nresults  %s\n" : "\ncannot write %s\n", out);
    printf(drawn ? "picture  build/bench/quality.svg\n" : "cannot write build/bench/quality.svg\n");
    return good && drawn;
}
