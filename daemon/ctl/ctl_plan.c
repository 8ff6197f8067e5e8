#include "daemon/ctl/ctl_plan.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/human.h"
#include "common/plot.h"
#include "daemon/ctl/forecast.h"
#include "net/sync.h"
#include "net/wire.h"

/* FEW: islands that are simulated for the table; with more of them the share of the time hardly changes
 * (tests/num/test_forecast.c). */
enum { TARGETS = 5, GRID = 50, ROWS_MAX = 12, FEW = 16 };
/* Of the run spec that is printed to begin with. */
enum { RUN_ROUNDS = 100, SPEC_BYTES = 400 };
/* MANY: with more islands a run of all takes minutes, which is said first. */
enum { MANY = 200, LAYERS_MAX = 3000, INTERVAL_MAX = 100000 };
enum { LAYERS_A_FRAGMENT = 3 };
static const double step_s_min = 1e-5, loss_most = 0.9;
/* A run that trains for this part of its time is good; the bandwidth that is needed is found to this factor. */
static const double share_good = 0.95, needed_factor = 1.02;
/* What runs beside the rest of a step: the backward pass is two thirds of it. */
static const double step_hidden = 2.0 / 3;
/* Of a recommended overlap: so many of them fit into the interval. */
enum { OVERLAPS_AN_INTERVAL = 3 };
static const double BANDWIDTH_MIN = 1e3, BANDWIDTH_MAX = 1e15;
static const double targets[TARGETS] = {0.50, 0.80, 0.90, 0.95, 0.99};

/* A way to synchronise. */
struct way {
    const char *name;
    const char *codec;
    double bits; /* per parameter, behind zstd on Gaussian data (tests/num/test_codec.c) */
    bool every_step, stream, overlap;
    const char *lines; /* of a run spec's [sync]; NULL: it is never recommended */
};
enum { E3M0 = 5, UNIFORM, TOPK };

static const struct way ways[] = {
    {"data-parallel, bf16", "bf16", 16, true, false, false, NULL},
    {"DiLoCo, bf16", "bf16", 16, false, false, false, NULL},
    {"streaming, bf16", "bf16", 16, false, true, false, NULL},
    {"+ overlap, bf16", "bf16", 16, false, true, true, NULL},
    {"+ overlap, int8", "int8", 7.5, false, true, true, NULL},
    [E3M0] = {"+ overlap, e3m0", "e3m0", 3.6, false, true, true, "codec = e3m0\n"},
    [UNIFORM] = {"+ overlap, uniform 1.4", "uniform", 1.74, false, true, true, "codec = uniform\nstep = 1.4\n"},
    [TOPK] = {"+ overlap, topk 1/64", "topk", 0.17, false, true, true,
              "codec = topk\nkeep = 0.015625\nerror_feedback = yes\n"},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* What one way comes to. */
struct outcome {
    double utilisation, bytes_per_day;
    double needed[TARGETS];              /* bit/s */
    double curve[GRID], bandwidth[GRID]; /* for the picture */
};

static enum err parse_bandwidth(const char *text, double *bits_per_s)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"bit", 1}, {"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}};
    char *end;
    *bits_per_s = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (end != text && strcmp(end, units[i].unit) == 0 && *bits_per_s > 0) {
            *bits_per_s *= units[i].factor;
            return ERR_OK;
        }
    return err_set(ERR_ARG, "--bandwidth: \"%s\" is no rate; write it as 100Mbit or 2.5Gbit", text);
}

/* ---- one way at one bandwidth ---- */

static uint32_t fragments_of(const struct ctl_plan *plan)
{
    return (uint32_t)((plan->layers + LAYERS_A_FRAGMENT - 1) / LAYERS_A_FRAGMENT);
}

/* Of one encoded copy of the model, what an island sends in a round: contributions out, results out. */
static double share_of(double islands)
{
    return 2 * (islands - 1) / islands;
}

/* Gradients of every step as a ring all-reduce, some of it hidden behind the backward pass. */
static double data_parallel(const struct ctl_plan *plan, double bits, double bits_per_s)
{
    double share = share_of((double)plan->islands);
    double takes_s = share * bits * plan->params / bits_per_s / (1 - plan->loss) +
                     2 * ((double)plan->islands - 1) * plan->rtt_ms / 2000;
    double late_s = takes_s - step_hidden * plan->step_s;
    return plan->step_s / (plan->step_s + (late_s > 0 ? late_s : 0));
}

/* With `few`, a large run is stood for by FEW islands. */
static struct forecast_conf conf_of(const struct ctl_plan *plan, const struct way *way, double bits_per_s, bool few)
{
    return (struct forecast_conf){.islands = few && plan->islands > FEW ? FEW : (uint32_t)plan->islands,
                                  .params = plan->params,
                                  .fragments = way->stream ? fragments_of(plan) : 1,
                                  .interval = plan->interval,
                                  .overlap = way->overlap ? plan->overlap : 0,
                                  .step_s = plan->step_s,
                                  .slack = step_hidden,
                                  .bits = way->bits,
                                  .bits_per_s = bits_per_s,
                                  .half_duplex = plan->half_duplex,
                                  .rtt_s = plan->rtt_ms / 1000,
                                  .loss = plan->loss,
                                  .steps = 4 * plan->interval};
}

static enum err try_way(const struct ctl_plan *plan, const struct way *way, double bits_per_s, double *utilisation,
                        double *bytes_per_day)
{
    struct forecast_conf conf = conf_of(plan, way, bits_per_s, true);
    struct forecast_result result;
    double per_day = 86400 / plan->step_s;
    if (way->every_step) {
        *utilisation = data_parallel(plan, way->bits, bits_per_s);
        double share = share_of((double)plan->islands);
        *bytes_per_day = share * way->bits / 8 * plan->params * per_day * *utilisation;
        return ERR_OK;
    }
    TRY(forecast_run(&conf, &result));
    *utilisation = result.utilisation;
    double share = share_of((double)plan->islands) / share_of((double)conf.islands);
    *bytes_per_day = share * result.bytes_per_step * per_day * *utilisation;
    return ERR_OK;
}

/* The lowest bandwidth from `low` on, to two percent, at which a way trains for `target` of the time; INFINITY if the
 * round trips alone take too long. */
static enum err needed(const struct ctl_plan *plan, const struct way *way, double target, double low,
                       double *bits_per_s)
{
    double high = BANDWIDTH_MAX, utilisation, bytes;
    *bits_per_s = INFINITY;
    TRY(try_way(plan, way, high, &utilisation, &bytes));
    if (utilisation < target || low > high)
        return ERR_OK;
    while (high / low > needed_factor) {
        double middle = sqrt(low * high);
        TRY(try_way(plan, way, middle, &utilisation, &bytes));
        if (utilisation >= target)
            high = middle;
        else
            low = middle;
    }
    *bits_per_s = high;
    return ERR_OK;
}

static enum err work_out(const struct ctl_plan *plan, const struct way *way, double bits_per_s, struct outcome *outcome)
{
    TRY(try_way(plan, way, bits_per_s, &outcome->utilisation, &outcome->bytes_per_day));
    for (int t = 0; t < TARGETS; t++)
        TRY(needed(plan, way, targets[t], t > 0 ? outcome->needed[t - 1] : BANDWIDTH_MIN, &outcome->needed[t]));
    for (int k = 0; plan->plot != NULL && k < GRID; k++) {
        double bytes;
        outcome->bandwidth[k] = log10(bits_per_s) - 2.5 + 4.0 * k / (GRID - 1);
        TRY(try_way(plan, way, pow(10, outcome->bandwidth[k]), &outcome->curve[k], &bytes));
        outcome->curve[k] *= 100;
    }
    return ERR_OK;
}

/* ---- what to choose ---- */

/* The mildest first: finer codecs and shorter intervals. topk loses more than a longer interval does; it is for lines
 * where nothing else will do. */
static const struct candidate {
    uint64_t interval;
    size_t way;
} candidates[] = {
    {30, E3M0},  {30, UNIFORM},  {50, E3M0},  {50, UNIFORM},  {100, E3M0}, {100, UNIFORM},
    {200, E3M0}, {200, UNIFORM}, {500, E3M0}, {500, UNIFORM}, {500, TOPK},
};
enum { CANDIDATES = sizeof candidates / sizeof candidates[0] };

struct choice {
    const struct candidate *candidate;
    uint64_t overlap;
    double utilisation;
};

size_t ctl_plan_specs(void)
{
    return CANDIDATES;
}

uint64_t ctl_plan_overlap_max(size_t which)
{
    return candidates[which].interval / OVERLAPS_AN_INTERVAL;
}

void ctl_plan_spec(size_t which, uint64_t overlap, char *text, size_t text_bytes)
{
    uint64_t interval = candidates[which].interval;
    snprintf(text, text_bytes,
             "[run]\nname = planned\nsteps = %" PRIu64 "\n[sync]\ninterval = %" PRIu64 "\noverlap = %" PRIu64 "\n%s",
             RUN_ROUNDS * interval, interval, overlap, ways[candidates[which].way].lines);
}

/* Steps that a fragment's exchange takes, and one for what comes between. */
static uint64_t overlap_for(const struct ctl_plan *plan, double bits, double bits_per_s)
{
    double share = share_of((double)plan->islands);
    double fragment_s = share * bits * plan->params / fragments_of(plan) / bits_per_s / (1 - plan->loss);
    return 1 + (uint64_t)ceil((fragment_s + 2 * plan->rtt_ms / 1000) / plan->step_s);
}

/* What was found with FEW islands, with all of the run. */
static enum err confirm(const struct ctl_plan *plan, const struct way *way, double bits_per_s, double *utilisation)
{
    struct forecast_conf conf = conf_of(plan, way, bits_per_s, false);
    struct forecast_result result;
    if (plan->islands <= FEW)
        return ERR_OK;
    if (plan->islands > MANY)
        fprintf(stderr, "trying interval %" PRIu64 ", codec %s with all %" PRIu64 " islands: minutes, and %.1f GiB\n",
                plan->interval, way->codec, plan->islands, forecast_bytes(&conf) / (1 << 30));
    TRY(forecast_run(&conf, &result));
    *utilisation = result.utilisation;
    return ERR_OK;
}

/* The mildest that trains for a good share of the time; else the best there is. */
static enum err recommend(const struct ctl_plan *plan, double bits_per_s, struct choice *best)
{
    *best = (struct choice){.candidate = NULL};
    for (size_t i = 0; i < CANDIDATES; i++) {
        struct ctl_plan tried = *plan;
        const struct way *way = &ways[candidates[i].way];
        double utilisation, bytes;
        tried.interval = candidates[i].interval;
        tried.overlap = overlap_for(plan, way->bits, bits_per_s);
        if (tried.overlap > ctl_plan_overlap_max(i))
            tried.overlap = ctl_plan_overlap_max(i);
        TRY(try_way(&tried, way, bits_per_s, &utilisation, &bytes));
        if (utilisation >= share_good)
            TRY(confirm(&tried, way, bits_per_s, &utilisation));
        if (best->candidate != NULL && best->utilisation >= utilisation)
            continue;
        *best = (struct choice){&candidates[i], tried.overlap, utilisation};
        if (utilisation >= share_good)
            return ERR_OK;
    }
    return ERR_OK;
}

/* ---- printing ---- */

static const char *rate_text(double bits_per_s, char text[32])
{
    if (!isfinite(bits_per_s))
        return "never";
    static const char *const units[] = {"bit", "kbit", "Mbit", "Gbit", "Tbit"};
    const size_t largest = sizeof units / sizeof units[0] - 1;
    const double rounds_to_1000 = 999.5, rounds_to_10 = 9.95;
    size_t unit = 0;
    for (; bits_per_s >= rounds_to_1000 && unit < largest; unit++)
        bits_per_s /= 1000;
    snprintf(text, 32, bits_per_s < rounds_to_10 ? "%.1f%s" : "%.0f%s", bits_per_s, units[unit]);
    return text;
}

static void print_table(const struct ctl_plan *plan, double bits_per_s, const struct outcome *outcomes,
                        const struct choice *choice)
{
    char text[HUMAN_BYTES];
    printf("%s parameters, %" PRIu64 " islands, a step every %g s; fragments exchanged every %" PRIu64
           " steps,\noverlap %" PRIu64 "; ",
           human_count(plan->params, text), plan->islands, plan->step_s, plan->interval, plan->overlap);
    printf("%s each way, round trip %g ms.\n\n", human_rate(bits_per_s, text), plan->rtt_ms);
    printf("%-23s %6s  %8s  bandwidth to train for\n", "", "trains", "a day");
    printf("%-23s %6s  %8s  %8s %8s %8s %8s %8s\n", "", "", "", "50 %", "80 %", "90 %", "95 %", "99 %");
    for (size_t i = 0; i < WAYS; i++) {
        printf("%-23s %4.0f %%  %8s ", ways[i].name, 100 * outcomes[i].utilisation,
               human_bytes(outcomes[i].bytes_per_day, text));
        for (int t = 0; t < TARGETS; t++)
            printf(" %8s", rate_text(outcomes[i].needed[t], text));
        putchar('\n');
    }
    char spec[SPEC_BYTES];
    ctl_plan_spec((size_t)(choice->candidate - candidates), choice->overlap, spec, sizeof spec);
    printf("\nOn this link a run trains %.0f %% of the time with the run spec below (name and steps are yours, and\n"
           "[model] and [train] if the trainer is ours), and %" PRIu32 " fragments.\n",
           100 * choice->utilisation, fragments_of(plan));
    if (plan->islands > FEW)
        printf("(The table is from %d islands, which stand for more; the recommendation from all %" PRIu64 ".)\n", FEW,
               plan->islands);
    if (plan->islands > WIRE_MEMBERS_MAX)
        printf("(A run has at most %d islands at present.)\n", WIRE_MEMBERS_MAX);
    if (choice->utilisation < share_good)
        printf("That is less than %.0f %%: a faster line, fewer parameters or longer steps would help.\n",
               100 * share_good);
    printf("\n%s", spec);
}

static enum err print_json(const struct ctl_plan *plan, double bits_per_s, const struct outcome *outcomes,
                           const struct choice *choice)
{
    json_t *rows = json_array();
    char spec[SPEC_BYTES];
    ctl_plan_spec((size_t)(choice->candidate - candidates), choice->overlap, spec, sizeof spec);
    for (size_t i = 0; i < WAYS; i++) {
        json_t *need = json_object();
        for (int t = 0; t < TARGETS; t++) {
            char name[8];
            snprintf(name, sizeof name, "%.0f", 100 * targets[t]);
            json_object_set_new(need, name,
                                isfinite(outcomes[i].needed[t]) ? json_real(outcomes[i].needed[t]) : json_null());
        }
        json_array_append_new(rows,
                              json_pack("{s:s, s:s, s:f, s:f, s:f, s:o}", "name", ways[i].name, "codec", ways[i].codec,
                                        "bits_per_param", ways[i].bits, "utilisation", outcomes[i].utilisation,
                                        "bytes_per_day", outcomes[i].bytes_per_day, "bit_s_needed", need));
    }
    json_t *all = json_pack(
        "{s:f, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:o, s:o}", "params", plan->params, "islands",
        (json_int_t)plan->islands, "islands_in_table", (json_int_t)(plan->islands < FEW ? plan->islands : FEW),
        "step_s", plan->step_s, "bandwidth_bit_s", bits_per_s, "interval", (json_int_t)plan->interval, "overlap",
        (json_int_t)plan->overlap, "fragments", (json_int_t)fragments_of(plan), "rows", rows, "recommended",
        json_pack("{s:I, s:I, s:s, s:f, s:s}", "interval", (json_int_t)choice->candidate->interval, "overlap",
                  (json_int_t)choice->overlap, "codec", ways[choice->candidate->way].codec, "utilisation",
                  choice->utilisation, "spec", spec));
    bool good =
        all != NULL && json_dumpf(all, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(6)) == 0;
    putchar('\n');
    json_decref(all);
    return good ? ERR_OK : err_set(ERR_IO, "cannot write the plan");
}

static enum err draw(const struct ctl_plan *plan, const struct outcome *outcomes)
{
    static const char *const colors[ROWS_MAX] = {"#777", "#a33", "#c70", "#2a7", "#27a", "#15c", "#63c", "#c3a"};
    struct plot plot = {.title = "Time spent training, by bandwidth",
                        .subtitle = "the protocol's state machines in virtual time",
                        .x_label = "log10 of bit/s of every island's line",
                        .y_label = "% of the time",
                        .legend_low = true};
    for (size_t i = 0; i < WAYS; i++)
        plot.series[plot.series_count++] = (struct plot_series){.name = ways[i].name,
                                                                .color = colors[i],
                                                                .x = outcomes[i].bandwidth,
                                                                .y = outcomes[i].curve,
                                                                .count = GRID,
                                                                .width = 2,
                                                                .opacity = 1};
    return plot_write(&plot, plan->plot) ? ERR_OK : err_set_errno(ERR_IO, "cannot write %s", plan->plot);
}

static enum err check(const struct ctl_plan *plan)
{
    if (!(plan->params >= 1))
        return err_set(ERR_ARG, "--params: how many parameters has the model? As 1e9");
    if (!(plan->step_s >= step_s_min))
        return err_set(ERR_ARG, "--step-time: how many seconds does one inner step take? At least 0.00001");
    if (plan->bandwidth == NULL)
        return err_set(ERR_ARG, "--bandwidth: how fast is the line? As 100Mbit");
    if (plan->islands < 2 || plan->islands > SYNC_MEMBERS_MAX)
        return err_set(ERR_ARG, "--islands: %" PRIu64 "; 2 to %d are possible", plan->islands, SYNC_MEMBERS_MAX);
    if (plan->layers < 1 || plan->layers > LAYERS_MAX)
        return err_set(ERR_ARG, "--layers: %" PRIu64 "; 1 to %d are possible", plan->layers, LAYERS_MAX);
    if (plan->interval < 1 || plan->interval > INTERVAL_MAX || plan->overlap > plan->interval)
        return err_set(ERR_ARG, "--overlap: %" PRIu64 " steps of the steps between two exchanges, --every, %" PRIu64,
                       plan->overlap, plan->interval);
    if (!(plan->loss >= 0 && plan->loss < loss_most) || !(plan->rtt_ms >= 0))
        return err_set(ERR_ARG, "--loss is a fraction from 0 to 0.9, --rtt milliseconds from 0 on");
    return ERR_OK;
}

enum err ctl_plan(const struct ctl_plan *plan)
{
    static struct outcome outcomes[WAYS];
    struct choice choice;
    double bits_per_s;
    TRY(check(plan));
    TRY(parse_bandwidth(plan->bandwidth, &bits_per_s));
    for (size_t i = 0; i < WAYS; i++)
        TRY(work_out(plan, &ways[i], bits_per_s, &outcomes[i]));
    TRY(recommend(plan, bits_per_s, &choice));
    if (plan->plot != NULL)
        TRY(draw(plan, outcomes));
    if (plan->json)
        return print_json(plan, bits_per_s, outcomes, &choice);
    print_table(plan, bits_per_s, outcomes, &choice);
    return ERR_OK;
}
