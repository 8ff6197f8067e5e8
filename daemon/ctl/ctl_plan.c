/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_plan.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/human.h"
#include "common/mem_limit.h"
#include "common/plot.h"
#include "common/processors.h"
#include "daemon/ctl/simulate.h"
#include "daemon/rules.h"
#include "net/sync/sync.h"
#include "net/transport/wire.h"

enum { LAYERS_MAX = 3000, INTERVAL_MAX = 100000 };
/* One digest takes so many times as long as a tree of them, which fills the lanes of a vector. */
enum { LAYERS_A_FRAGMENT = 3, DIGEST_LANES = 4 };
static const double step_s_min = 1e-5, loss_most = 0.9, gib = 1073741824;
/* The bandwidth that is needed is found to this factor. */
static const double needed_factor = 1.02;
/* Where disks are measured: on most machines the one that has the daemon's files, too. */
static const char disk[] = "/var/tmp";
/* What runs beside the rest of a step: the backward pass is two thirds of it. */
static const double step_hidden = 2.0 / 3;
/* The picture: decades below the line asked for, and in all. */
static const double decades_below = 2.5, decades = 4;
static const double BANDWIDTH_MIN = 1e3, BANDWIDTH_MAX = 1e15;
/* Parts of the time. */
static const double targets[PLAN_TARGETS] = {0.50, 0.80, 0.90, 0.95, 0.99};

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

/* Of one encoded copy of the model, what an island sends in a round in the mean: contributions out, results out. */
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

/* What is tried with one way: the interval and the overlap are the plan's. */
struct trial {
    const struct ctl_plan *plan;
    const struct way *way;
    const struct calibrate_cost *cost;
    double cores;
};

static struct simulate_conf conf_of(const struct trial *t, double bits_per_s, uint32_t most)
{
    const struct ctl_plan *plan = t->plan;
    uint32_t threads = t->cores < SIMULATE_THREADS_MAX ? (uint32_t)t->cores : SIMULATE_THREADS_MAX;
    struct simulate_conf conf = {.islands = (uint32_t)plan->islands,
                                 .params = plan->params,
                                 .fragments = t->way->stream ? fragments_of(plan) : 1,
                                 .interval = plan->interval,
                                 .overlap = t->way->overlap ? plan->overlap : 0,
                                 .step_s = plan->step_s,
                                 .slack = step_hidden,
                                 .bits = t->way->bits,
                                 .bits_per_s = bits_per_s,
                                 .half_duplex = plan->half_duplex,
                                 .rtt_s = plan->rtt_ms / 1000,
                                 .loss = plan->loss,
                                 .work = {.threads = threads > 0 ? threads : 1,
                                          .encode_ns = t->cost->encode_ns,
                                          .apply_ns = t->cost->apply_ns,
                                          .hash_ns = t->cost->hash_ns,
                                          .reduce_ns = t->cost->reduce_ns,
                                          .store_ns = t->cost->store_ns + t->cost->disk_ns,
                                          .link_ns = t->cost->link_ns},
                                 .steps = 4 * plan->interval};
    return plan->islands > most ? simulate_fewer(&conf, most) : conf;
}

static enum err try_way(const struct trial *t, double bits_per_s, double *utilisation, double *bytes_per_day)
{
    const struct ctl_plan *plan = t->plan;
    double per_day = 86400 / plan->step_s, copy = t->way->bits / 8 * plan->params;
    if (t->way->every_step) {
        *utilisation = data_parallel(plan, t->way->bits, bits_per_s);
        *bytes_per_day = share_of((double)plan->islands) * copy * per_day * *utilisation;
        return ERR_OK;
    }
    struct simulate_conf conf = conf_of(t, bits_per_s, PLAN_FEW);
    struct simulate_result result;
    TRY(simulate_run(&conf, &result));
    *utilisation = result.utilisation;
    /* The few send more than their part where they stand for many. */
    double part = t->way->bits / conf.bits * share_of((double)plan->islands) / share_of(conf.islands);
    *bytes_per_day = part * result.bytes_per_step * per_day * *utilisation;
    return ERR_OK;
}

/* The lowest bandwidth from `low` on, to two percent, at which a way trains for `target` of the time; INFINITY if the
 * round trips alone, or the machine's work, take too long. */
static enum err needed(const struct trial *t, double target, double low, double *bits_per_s)
{
    double high = BANDWIDTH_MAX, utilisation, bytes;
    *bits_per_s = INFINITY;
    TRY(try_way(t, high, &utilisation, &bytes));
    if (utilisation < target || low > high)
        return ERR_OK;
    while (high / low > needed_factor) {
        double middle = sqrt(low * high);
        TRY(try_way(t, middle, &utilisation, &bytes));
        if (utilisation >= target)
            high = middle;
        else
            low = middle;
    }
    *bits_per_s = high;
    return ERR_OK;
}

static double cores_taken(const struct ctl_plan *plan, const struct calibrate_cost *cost, double utilisation)
{
    return 1e-9 * cost->all_ns * plan->params / ((double)plan->interval * plan->step_s) * utilisation;
}

static enum err work_out(const struct ctl_plan *plan, const struct way *way, const struct plan_found *found,
                         struct plan_outcome *out)
{
    const struct trial trial = {plan, way, &out->cost, found->machine.cores};
    TRY(try_way(&trial, found->bits_per_s, &out->utilisation, &out->bytes_per_day));
    if (!way->every_step) {
        out->cores = cores_taken(plan, &out->cost, out->utilisation);
        out->memory_bytes = out->cost.memory_bytes * plan->params;
    }
    for (int i = 0; i < PLAN_TARGETS; i++)
        TRY(needed(&trial, targets[i], i > 0 ? out->needed[i - 1] : BANDWIDTH_MIN, &out->needed[i]));
    for (int k = 0; plan->plot != NULL && k < PLAN_GRID; k++) {
        double bytes;
        out->bandwidth[k] = found->bits_per_s * pow(10, decades * k / (PLAN_GRID - 1) - decades_below);
        TRY(try_way(&trial, out->bandwidth[k], &out->curve[k], &bytes));
        out->curve[k] *= 100;
    }
    return ERR_OK;
}

/* ---- what to choose ---- */

/* Steps that a fragment's exchange takes, and one for what comes between. */
static uint64_t overlap_for(const struct trial *t, double bits_per_s)
{
    const struct ctl_plan *plan = t->plan;
    const double values = plan->params / fragments_of(plan);
    double line_s =
        simulate_owner_share((uint32_t)plan->islands) * t->way->bits * values / bits_per_s / (1 - plan->loss);
    double work_ns = t->cost->encode_ns + t->cost->reduce_ns / simulate_owners((uint32_t)plan->islands) +
                     t->cost->store_ns + t->cost->disk_ns + t->cost->apply_ns;
    return 1 + (uint64_t)ceil((line_s + 1e-9 * work_ns * values + 2 * plan->rtt_ms / 1000) / plan->step_s);
}

/* What was found with few islands, with more of them. */
static enum err confirm(const struct trial *t, double bits_per_s, double *utilisation)
{
    struct simulate_conf conf = conf_of(t, bits_per_s, PLAN_CROWD);
    struct simulate_result result;
    if (t->plan->islands <= PLAN_FEW)
        return ERR_OK;
    TRY(simulate_run(&conf, &result));
    *utilisation = result.utilisation;
    return ERR_OK;
}

/* As daemon/state/memory.h and daemon/rounds/keep.h have it: anchor and momentum, with error feedback residual and the
 * owner's; results until they have as many bytes as a checkpoint, and those kept for others. */
enum { ANCHOR_BYTES = 4, STATE_BYTES = 8, RESIDUAL_BYTES = 8, LEDGER_KEEP = 1 << 30 };

static struct plan_saving saving_of(const struct trial *t, const struct plan_found *found)
{
    const struct calibration *machine = &found->machine.calibration;
    const double params = t->plan->params, file = STATE_BYTES + (t->way->error_feedback ? RESIDUAL_BYTES : 0);
    const double version = t->way->bits / 8, copied_ns = machine->copy_ns / sizeof(float);
    const double kept = (double)rules_versions((uint64_t)(STATE_BYTES * params), (uint64_t)ceil(version * params));
    const double replayed = fmin(fmax(1, STATE_BYTES / version), RULES_REPLAYED_MAX);
    return (struct plan_saving){.checkpoints_bytes = file * params * (1 + 1.0 / fragments_of(t->plan)),
                                .ledger_bytes =
                                    fmax((STATE_BYTES + version) * params, fmin(kept * version * params, LEDGER_KEEP)),
                                .exported_bytes = 2 * ANCHOR_BYTES * params,
                                .checkpoint_s = 1e-9 * STATE_BYTES * params * (copied_ns + machine->disk_ns),
                                .stop_s = 1e-9 * file * params * (copied_ns + machine->disk_ns),
                                .export_s = 1e-9 * ANCHOR_BYTES * params *
                                            (2 * copied_ns + DIGEST_LANES * machine->digest_ns + machine->disk_ns),
                                .start_s = 1e-9 * params *
                                           (file * machine->disk_ns + STATE_BYTES * (copied_ns + machine->disk_ns) +
                                            2 * machine->hash_ns + replayed * t->cost->apply_ns)};
}

/* Better: carried by the machine; then more of the time. */
static bool better(const struct plan_choice *one, const struct plan_choice *other)
{
    return one->carried != other->carried ? one->carried : one->utilisation > other->utilisation;
}

static enum err try_proposal(const struct ctl_plan *plan, const struct plan_found *found, size_t which,
                             struct plan_choice *out)
{
    const struct proposal *proposal = ctl_ways_proposal(which);
    struct ctl_plan tried = *plan;
    const struct trial trial = {&tried, &ctl_ways[proposal->way], &found->outcomes[proposal->way].cost,
                                found->machine.cores};
    uint64_t most = ctl_ways_overlap_max(which);
    double bytes;
    tried.interval = proposal->interval;
    tried.overlap = overlap_for(&trial, found->bits_per_s);
    tried.overlap = tried.overlap < most ? tried.overlap : most;
    *out = (struct plan_choice){.proposal = which, .overlap = tried.overlap};
    TRY(try_way(&trial, found->bits_per_s, &out->utilisation, &bytes));
    out->memory_bytes = trial.cost->memory_bytes * plan->params;
    /* If nothing kept it from training all of the time. */
    out->carried =
        cores_taken(&tried, trial.cost, 1) <= found->machine.cores && out->memory_bytes <= found->machine.memory_bytes;
    if (out->utilisation >= PLAN_SHARE_GOOD && out->carried)
        TRY(confirm(&trial, found->bits_per_s, &out->utilisation));
    out->cores = cores_taken(&tried, trial.cost, out->utilisation);
    out->saving = saving_of(&trial, found);
    return ERR_OK;
}

/* The mildest that the machine carries and that trains for a good share of the time; else the best there is. */
static enum err recommend(const struct ctl_plan *plan, struct plan_found *found)
{
    for (size_t i = 0; i < ctl_ways_proposals(); i++) {
        struct plan_choice choice;
        TRY(try_proposal(plan, found, i, &choice));
        if (i == 0 || better(&choice, &found->choice))
            found->choice = choice;
        if (choice.carried && choice.utilisation >= PLAN_SHARE_GOOD)
            return ERR_OK;
    }
    return ERR_OK;
}

/* ---- the machine ---- */

enum err ctl_plan_machine(const struct ctl_plan *plan, struct plan_machine *out)
{
    out->cores = plan->daemon_cores > 0 ? plan->daemon_cores : processors_jobs(0);
    out->memory_bytes = plan->daemon_memory > 0 ? plan->daemon_memory * gib : (double)mem_limit().bytes;
    TRY(calibrate_measure(disk, &out->calibration));
    for (size_t i = 0; i < WAYS; i++) {
        if (i > 0 && ctl_ways[i].codec.id == ctl_ways[i - 1].codec.id)
            out->codecs[i] = out->codecs[i - 1];
        else
            TRY(calibrate_measure_codec(&ctl_ways[i].codec, &out->codecs[i]));
    }
    return ERR_OK;
}

static struct calibrate_cost cost_of(const struct ctl_plan *plan, const struct plan_machine *machine, size_t way)
{
    const struct calibrate_run run = {.islands = (uint32_t)plan->islands,
                                      .owners = simulate_owners((uint32_t)plan->islands),
                                      .bits = ctl_ways[way].bits,
                                      .error_feedback = ctl_ways[way].error_feedback};
    return calibrate_cost(&machine->calibration, &machine->codecs[way], &run);
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
    if (plan->daemon_cores != 0 && !(plan->daemon_cores >= 1 && plan->daemon_cores <= SIMULATE_THREADS_MAX))
        return err_set(ERR_ARG, "--daemon-cores: %g; 1 to %d are possible", plan->daemon_cores, SIMULATE_THREADS_MAX);
    if (!(plan->daemon_memory >= 0))
        return err_set(ERR_ARG, "--daemon-memory: how many GiB may a daemon take?");
    return ERR_OK;
}

enum err ctl_plan_params(const char *text, double *params)
{
    static const struct {
        const char *unit;
        double times;
    } units[] = {{"", 1},    {"k", 1e3}, {"K", 1e3},  {"m", 1e6}, {"M", 1e6},
                 {"b", 1e9}, {"B", 1e9}, {"t", 1e12}, {"T", 1e12}};
    char *end;
    double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (end > text && strcmp(end, units[i].unit) == 0 && value * units[i].times >= 1 && value <= 1e15) {
            *params = value * units[i].times;
            return ERR_OK;
        }
    return err_set(ERR_ARG, "--params %s: how many parameters has the model? As 1e9, 350M or 1B", text);
}

enum err ctl_plan_find(const struct ctl_plan *plan, const struct plan_machine *machine, struct plan_found *found)
{
    *found = (struct plan_found){.machine = *machine};
    TRY(check(plan));
    TRY(parse_bandwidth(plan->bandwidth, &found->bits_per_s));
    found->fragments = fragments_of(plan);
    for (size_t i = 0; i < WAYS; i++) {
        found->outcomes[i].cost = cost_of(plan, machine, i);
        TRY(work_out(plan, &ctl_ways[i], found, &found->outcomes[i]));
    }
    return recommend(plan, found);
}

/* ---- what was found, as a table ---- */

/* Of the targets, those that the table has room for. */
static const int shown[] = {0, 3, 4};
enum { SHOWN = sizeof shown / sizeof shown[0] };

/* "9.1Mbit", "10Gbit": as --bandwidth takes it. */
static const char *rate_text(double bits_per_s, char text[HUMAN_BYTES])
{
    if (!isfinite(bits_per_s))
        return "never";
    static const char *const units[] = {"bit", "kbit", "Mbit", "Gbit", "Tbit"};
    const size_t largest = sizeof units / sizeof units[0] - 1;
    const double rounds_to_1000 = 999.5;
    size_t unit = 0;
    for (; bits_per_s >= rounds_to_1000 && unit < largest; unit++)
        bits_per_s /= 1000;
    snprintf(text, HUMAN_BYTES, "%.*g%s", bits_per_s < 100 ? 2 : 3, bits_per_s, units[unit]);
    return text;
}

static void print_row(const struct way *way, const struct plan_outcome *outcome)
{
    char text[HUMAN_BYTES];
    printf("%-22s %3.0f %%  %8s", way->name, 100 * outcome->utilisation, human_bytes(outcome->bytes_per_day, text));
    if (way->every_step)
        printf(" %5s %9s", "", "");
    else
        printf(" %5.1f %9s", outcome->cores, human_memory(outcome->memory_bytes, text));
    for (int i = 0; i < SHOWN; i++)
        printf(" %8s", rate_text(outcome->needed[shown[i]], text));
    putchar('\n');
}

static void print_table(const struct ctl_plan *plan, const struct plan_found *found)
{
    char text[HUMAN_BYTES];
    printf("%s parameters, %" PRIu64 " islands, a step every %g s; fragments exchanged every %" PRIu64
           " steps,\noverlap %" PRIu64 "; ",
           human_count(plan->params, text), plan->islands, plan->step_s, plan->interval, plan->overlap);
    printf("%s each way, round trip %g ms. A daemon may take %g cores like\n", human_rate(found->bits_per_s, text),
           plan->rtt_ms, found->machine.cores);
    printf("this machine's, and %s.\n\n", human_memory(found->machine.memory_bytes, text));
    printf("%-22s %5s  %8s %15s  bandwidth to train for\n", "", "", "", "a daemon takes");
    printf("%-22s %5s  %8s %5s %9s", "", "trains", "a day", "cores", "memory");
    for (int i = 0; i < SHOWN; i++) {
        snprintf(text, sizeof text, "%.0f %%", 100 * targets[shown[i]]);
        printf(" %8s", text);
    }
    putchar('\n');
    for (size_t i = 0; i < WAYS; i++)
        print_row(&ctl_ways[i], &found->outcomes[i]);
    if (plan->islands > PLAN_FEW)
        printf("(From %d islands, which stand for %" PRIu64 "; what is recommended is from %" PRIu64 ".)\n", PLAN_FEW,
               plan->islands, plan->islands < PLAN_CROWD ? plan->islands : PLAN_CROWD);
    if (plan->islands > WIRE_MEMBERS_MAX)
        printf("(A run has at most %d islands at present.)\n", WIRE_MEMBERS_MAX);
}

static void print_carried(const struct plan_found *found)
{
    const struct plan_choice *choice = &found->choice;
    char needs[HUMAN_BYTES], has[HUMAN_BYTES];
    if (choice->memory_bytes > found->machine.memory_bytes)
        printf("That is more memory than there is: %s of %s. Fewer parameters, or a larger machine.\n",
               human_memory(choice->memory_bytes, needs), human_memory(found->machine.memory_bytes, has));
    else if (!choice->carried)
        printf("The daemons' work is more than their %g cores carry; with more (--daemon-cores, [storage] jobs) a run\n"
               "would train more of the time.\n",
               found->machine.cores);
    else if (choice->utilisation < PLAN_SHARE_GOOD)
        printf("That is less than %.0f %%: a faster line, fewer parameters or longer steps would help.\n",
               100 * PLAN_SHARE_GOOD);
}

/* A number of percent, or a range. */
static void print_percent(double least, double most)
{
    if (least < most)
        printf("%.1f to ", least);
    printf("%.1f %%", most);
}

static void print_loss(const struct ctl_plan *plan, const struct plan_choice *choice)
{
    const struct known_loss *known[CTL_WAYS_LOSSES_MAX];
    size_t count = ctl_ways_losses(choice->proposal, known);
    bool same = false;
    printf("What it costs in loss, over data-parallel training with a tuned rate on as many tokens:\n");
    for (size_t i = 0; i < count; i++) {
        same |= known[i]->islands == plan->islands;
        printf("  %" PRIu64 " islands, %" PRIu64 " rounds: ", known[i]->islands, known[i]->rounds);
        print_percent(known[i]->least, known[i]->most);
        if (known[i]->differing >= 0)
            printf("; %.1f %% where the islands' data differ", known[i]->differing);
        printf("\n");
    }
    if (!same)
        printf("  %" PRIu64 " islands, every %" PRIu64 " steps: not measured\n", plan->islands,
               ctl_ways_proposal(choice->proposal)->interval);
    if (choice->overlap > 1)
        printf("  an overlap of %" PRIu64 " steps: not measured\n", choice->overlap);
    printf("%sSource: docs/QUALITY.md, \"What is known\".\n",
           count > 0 ? "Small models and one or two seeds: a direction, no promise. " : "");
}

/* Whose work counts for less than its tokens (outer_opt/weights.h). */
static void print_weights(const struct ctl_plan *plan)
{
    if (plan->islands < 2)
        return;
    printf("Islands that differ in speed: one more than 4 times as fast as most others weighs as 4 times (weight_max)");
    if (plan->islands == 3)
        printf(",\nand of three one that is faster than the mean of the two others weighs as that mean");
    if (plan->islands > 3)
        printf(",\nand none weighs more than half of what the others do");
    printf(".\n");
}

static void print_saving(const struct plan_saving *saving, double disk_ns)
{
    char all[HUMAN_BYTES], checkpoints[HUMAN_BYTES], ledger[HUMAN_BYTES], exported[HUMAN_BYTES], rate[HUMAN_BYTES];
    printf("Its disk holds %s: checkpoints %s, results %s, exported anchors %s.\n",
           human_memory(saving->checkpoints_bytes + saving->ledger_bytes + saving->exported_bytes, all),
           human_memory(saving->checkpoints_bytes, checkpoints), human_memory(saving->ledger_bytes, ledger),
           human_memory(saving->exported_bytes, exported));
    printf("On a disk as fast as this one (%s/s) a checkpoint of all takes %s, in parts and at most a 25th\n",
           human_bytes(1e9 / disk_ns, rate), human_duration(saving->checkpoint_s, all));
    printf("of the time; an end %s; an exported anchor %s; a start %s, if all that may be is replayed.\n",
           human_duration(saving->stop_s, checkpoints), human_duration(saving->export_s, ledger),
           human_duration(saving->start_s, exported));
}

static void print_choice(const struct ctl_plan *plan, const struct plan_found *found)
{
    const struct plan_choice *choice = &found->choice;
    char spec[CTL_WAYS_SPEC_BYTES], text[HUMAN_BYTES];
    ctl_ways_spec(choice->proposal, choice->overlap, spec);
    printf("\nOn this link a run trains %.0f %% of the time with the run spec below (name and steps are yours, and\n"
           "[model] and [train] if the trainer is ours), and %" PRIu32
           " fragments; a daemon takes %.1f cores and %s.\n",
           100 * choice->utilisation, found->fragments, choice->cores, human_memory(choice->memory_bytes, text));
    print_carried(found);
    print_saving(&choice->saving, found->machine.calibration.disk_ns);
    print_loss(plan, choice);
    print_weights(plan);
    printf("\n%s", spec);
}

static void print_plan(const struct ctl_plan *plan, const struct plan_found *found)
{
    print_table(plan, found);
    print_choice(plan, found);
}

/* ---- for programs ---- */

static json_t *cost_json(const struct calibrate_cost *cost)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "encode", cost->encode_ns, "reduce", cost->reduce_ns,
                     "store", cost->store_ns, "disk", cost->disk_ns, "apply", cost->apply_ns, "hash", cost->hash_ns,
                     "link_byte", cost->link_ns, "all", cost->all_ns);
}

static json_t *row_json(const struct way *way, const struct plan_outcome *outcome)
{
    json_t *need = json_object();
    for (int i = 0; i < PLAN_TARGETS; i++) {
        char name[8];
        snprintf(name, sizeof name, "%.0f", 100 * targets[i]);
        json_object_set_new(need, name, isfinite(outcome->needed[i]) ? json_real(outcome->needed[i]) : json_null());
    }
    json_t *row = json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", way->name, "codec", way->codec_name, "bits_per_param",
                            way->bits, "utilisation", outcome->utilisation, "bytes_per_day", outcome->bytes_per_day);
    json_object_set_new(row, "cores", way->every_step ? json_null() : json_real(outcome->cores));
    json_object_set_new(row, "memory_bytes", way->every_step ? json_null() : json_real(outcome->memory_bytes));
    json_object_set_new(row, "ns_per_param", way->every_step ? json_null() : cost_json(&outcome->cost));
    json_object_set_new(row, "bit_s_needed", need);
    return row;
}

/* null: not measured for so many islands, or with so long an overlap. */
static json_t *loss_json(const struct ctl_plan *plan, const struct plan_choice *choice)
{
    const struct known_loss *known[CTL_WAYS_LOSSES_MAX];
    size_t count = ctl_ways_losses(choice->proposal, known);
    for (size_t i = 0; choice->overlap <= 1 && i < count; i++)
        if (known[i]->islands == plan->islands)
            return json_pack("{s:I, s:f, s:f, s:o}", "rounds", (json_int_t)known[i]->rounds, "least", known[i]->least,
                             "most", known[i]->most, "differing",
                             known[i]->differing >= 0 ? json_real(known[i]->differing) : json_null());
    return json_null();
}

static json_t *choice_json(const struct ctl_plan *plan, const struct plan_choice *choice)
{
    const struct proposal *proposal = ctl_ways_proposal(choice->proposal);
    char spec[CTL_WAYS_SPEC_BYTES];
    ctl_ways_spec(choice->proposal, choice->overlap, spec);
    json_t *out = json_pack("{s:I, s:I, s:s, s:f, s:f, s:f, s:b}", "interval", (json_int_t)proposal->interval,
                            "overlap", (json_int_t)choice->overlap, "codec", ctl_ways[proposal->way].codec_name,
                            "utilisation", choice->utilisation, "cores", choice->cores, "memory_bytes",
                            choice->memory_bytes, "carried", choice->carried);
    const struct plan_saving *saving = &choice->saving;
    json_object_set_new(out, "disk",
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "checkpoints_bytes", saving->checkpoints_bytes,
                                  "ledger_bytes", saving->ledger_bytes, "exported_bytes", saving->exported_bytes,
                                  "checkpoint_s", saving->checkpoint_s, "stop_s", saving->stop_s, "export_s",
                                  saving->export_s, "start_s", saving->start_s));
    json_object_set_new(out, "loss_percent", loss_json(plan, choice));
    json_object_set_new(out, "spec", json_string(spec));
    return out;
}

/* ERR_IO. */
static enum err plan_json(const struct ctl_plan *plan, const struct plan_found *found)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < WAYS; i++)
        json_array_append_new(rows, row_json(&ctl_ways[i], &found->outcomes[i]));
    json_t *all = json_pack("{s:f, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:o}", "params", plan->params,
                            "islands", (json_int_t)plan->islands, "islands_in_table",
                            (json_int_t)(plan->islands < PLAN_FEW ? plan->islands : PLAN_FEW), "step_s", plan->step_s,
                            "bandwidth_bit_s", found->bits_per_s, "interval", (json_int_t)plan->interval, "overlap",
                            (json_int_t)plan->overlap, "fragments", (json_int_t)found->fragments, "daemon_cores",
                            found->machine.cores, "daemon_memory_bytes", found->machine.memory_bytes,
                            "disk_bytes_per_s", 1e9 / found->machine.calibration.disk_ns, "rows", rows, "recommended",
                            choice_json(plan, &found->choice));
    bool good =
        all != NULL && json_dumpf(all, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(6)) == 0;
    putchar('\n');
    json_decref(all);
    return good ? ERR_OK : err_set(ERR_IO, "cannot write the plan");
}

/* ---- for the eye ---- */

static const char *tick_text(double bits_per_s, char *text, size_t text_bytes)
{
    char rate[HUMAN_BYTES];
    snprintf(text, text_bytes, "%s", rate_text(bits_per_s, rate));
    return text;
}

/* To plan->plot. ERR_IO. */
static enum err draw_plan(const struct ctl_plan *plan, const struct plan_found *found)
{
    static const char *const colors[WAYS] = {"#777", "#a33", "#c70", "#2a7", "#27a", "#15c", "#63c", "#c3a"};
    char params[HUMAN_BYTES], line[HUMAN_BYTES], subtitle[120];
    snprintf(subtitle, sizeof subtitle,
             "%s parameters, %" PRIu64 " islands, a step every %g s, exchanged every %" PRIu64 " steps",
             human_count(plan->params, params), plan->islands, plan->step_s, plan->interval);
    struct plot plot = {.title = "Time spent training, by bandwidth",
                        .subtitle = subtitle,
                        .x_label = "each island's line",
                        .y_label = "% of the time",
                        .x_tick = tick_text,
                        .x_mark = found->bits_per_s,
                        .x_mark_name = rate_text(found->bits_per_s, line)};
    for (size_t i = 0; i < WAYS; i++)
        plot.series[plot.series_count++] = (struct plot_series){.name = ctl_ways[i].name,
                                                                .color = colors[i],
                                                                .x = found->outcomes[i].bandwidth,
                                                                .y = found->outcomes[i].curve,
                                                                .count = PLAN_GRID,
                                                                .width = 2,
                                                                .opacity = 1};
    return plot_write(&plot, plan->plot) ? ERR_OK : err_set_errno(ERR_IO, "cannot write %s", plan->plot);
}

/* ---- all of it ---- */

enum err ctl_plan(const struct ctl_plan *plan)
{
    static struct plan_found found;
    struct plan_machine machine;
    double bits_per_s;
    TRY(check(plan));
    TRY(parse_bandwidth(plan->bandwidth, &bits_per_s));
    TRY(ctl_plan_machine(plan, &machine));
    TRY(ctl_plan_find(plan, &machine, &found));
    if (plan->plot != NULL)
        TRY(draw_plan(plan, &found));
    if (plan->json)
        return plan_json(plan, &found);
    print_plan(plan, &found);
    return ERR_OK;
}
