/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_plan_print.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "common/human.h"
#include "common/plot.h"
#include "net/transport/wire.h"

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
        snprintf(text, sizeof text, "%.0f %%", 100 * found->targets[shown[i]]);
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
    print_saving(&choice->saving, found->machine.yardstick.disk_ns);
    print_loss(plan, choice);
    print_weights(plan);
    printf("\n%s", spec);
}

void ctl_plan_print(const struct ctl_plan *plan, const struct plan_found *found)
{
    print_table(plan, found);
    print_choice(plan, found);
}

/* ---- for programs ---- */

static json_t *cost_json(const struct yardstick_cost *cost)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "encode", cost->encode_ns, "reduce", cost->reduce_ns,
                     "store", cost->store_ns, "disk", cost->disk_ns, "apply", cost->apply_ns, "hash", cost->hash_ns,
                     "link_byte", cost->link_ns, "all", cost->all_ns);
}

static json_t *row_json(const struct way *way, const struct plan_outcome *outcome, const double targets[PLAN_TARGETS])
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

enum err ctl_plan_json(const struct ctl_plan *plan, const struct plan_found *found)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < WAYS; i++)
        json_array_append_new(rows, row_json(&ctl_ways[i], &found->outcomes[i], found->targets));
    json_t *all = json_pack("{s:f, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:o}", "params", plan->params,
                            "islands", (json_int_t)plan->islands, "islands_in_table",
                            (json_int_t)(plan->islands < PLAN_FEW ? plan->islands : PLAN_FEW), "step_s", plan->step_s,
                            "bandwidth_bit_s", found->bits_per_s, "interval", (json_int_t)plan->interval, "overlap",
                            (json_int_t)plan->overlap, "fragments", (json_int_t)found->fragments, "daemon_cores",
                            found->machine.cores, "daemon_memory_bytes", found->machine.memory_bytes,
                            "disk_bytes_per_s", 1e9 / found->machine.yardstick.disk_ns, "rows", rows, "recommended",
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

enum err ctl_plan_draw(const struct ctl_plan *plan, const struct plan_found *found)
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
