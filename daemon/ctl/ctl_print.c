/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_print.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "common/human.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_text.h"

/* A line of status that is put together. */
struct line {
    char text[1200];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line->text + line->used, sizeof line->text - line->used, format, arguments);
    va_end(arguments);
    if (bytes > 0)
        line->used +=
            (size_t)bytes < sizeof line->text - line->used ? (size_t)bytes : sizeof line->text - line->used - 1;
}

/* `label`: what the line is about; "": it goes on with what the one above is about. */
static void say(const struct line *line, const char *label, const struct ctl_text_look *look, FILE *file)
{
    char lead[32];
    snprintf(lead, sizeof lead, "%-10s ", label);
    ctl_text_wrap("", lead, line->text, look->columns, file);
}

static void say_text(const char *text, const char *label, const struct ctl_text_look *look, FILE *file)
{
    struct line line = {.used = 0};
    add(&line, "%s", text);
    if (text[0] != '\0')
        say(&line, label, look, file);
}

static bool is_witness(const json_t *status)
{
    return strcmp(ctl_text(status, "role"), "witness") == 0;
}

/* How much of the run's state is here, while some of it is not. */
static void print_arriving(const json_t *arriving, const struct ctl_text_look *look, FILE *file)
{
    struct line line = {.used = 0};
    char here[HUMAN_BYTES], due[HUMAN_BYTES];
    double bytes = ctl_number(arriving, "bytes"), bytes_due = ctl_number(arriving, "bytes_due");
    if (ctl_number(arriving, "fragments") == 0 || bytes == 0)
        return;
    add(&line, "%s of the state's %s are here, %.0f %%", human_bytes(bytes, here), human_bytes(bytes_due, due),
        floor(100 * bytes / bytes_due));
    say(&line, "", look, file);
}

/* What this island is to the run, and what follows from it. */
static void print_role(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    static const struct {
        const char *role, *text;
    } roles[] = {
        {"owner", "owner: it contributes what it trains, and makes its part of each result"},
        {"contributor", "contributor: what it trains is merged; it owns nothing"},
        {"observer", "observer: it catches up; what it trains is merged when it takes part, which comes by itself"},
        {"draining", "it has left: it owns nothing, and nobody waits for it; resume takes part again, stop ends it"},
        {"away", "put out: the others go on without it; what it trains is merged when it is back"},
    };
    bool back = json_is_true(json_object_get(status, "catches_up"));
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(back ? "observer" : ctl_text(status, "role"), roles[i].role) == 0)
            say_text(roles[i].text, "role", look, file);
    print_arriving(json_object_get(status, "arriving"), look, file);
    if (json_is_true(json_object_get(status, "undialled")))
        say_text("no owner gets through to this island, so it owns shards only beside a single other: let its port in "
                 "([net] listen), or say where it is reached ([net] address)",
                 "role", look, file);
}

static void print_drained(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    size_t index;
    json_t *name;
    json_array_foreach (json_object_get(status, "left"), index, name) {
        struct line line = {.used = 0};
        add(&line, "%s has left the run", json_string_value(name));
        say(&line, "", look, file);
    }
}

/* In every round it may wait for a moment, which is not worth a word. */
static bool stands_still(const json_t *trainer)
{
    const double told_s = 3;
    return ctl_number(trainer, "waits_s") >= told_s;
}

static void add_state(const json_t *status, struct line *line)
{
    const json_t *trainer = json_object_get(status, "trainer"), *names = json_object_get(trainer, "waits_for");
    char since[HUMAN_BYTES];
    size_t index;
    json_t *name;
    if (json_is_object(json_object_get(status, "paused")) && strcmp(ctl_text(trainer, "state"), "training") == 0) {
        add(line, "paused with the run");
        return;
    }
    if (!stands_still(trainer)) {
        bool stopped = strcmp(ctl_text(trainer, "state"), "stopped") == 0;
        add(line, "%s%s", ctl_text(trainer, "state"), stopped ? " (resume starts it)" : "");
        return;
    }
    add(line, "waits%s", json_array_size(names) > 0 ? " for" : "");
    json_array_foreach (names, index, name) {
        add(line, "%s %s", index > 0 ? "," : "", json_string_value(name));
    }
    add(line, " (for %s, as late = wait has it)", human_duration(floor(ctl_number(trainer, "waits_s")), since));
}

void ctl_print_state(const json_t *status, FILE *file)
{
    struct line line = {.used = 0};
    add_state(status, &line);
    fputs(line.text, file);
}

/* "38 %, 4 h 12 min left": of the run, at the pace of the island that is furthest. */
static void add_left(const json_t *status, struct line *line)
{
    const json_t *left = json_object_get(status, "left_s");
    double step = ctl_number(json_object_get(status, "trainer"), "step");
    double steps = ctl_number(json_object_get(status, "run"), "steps");
    char text[HUMAN_BYTES];
    if (steps > 0)
        add(line, " (%.0f %%)", floor(100 * fmin(step / steps, 1)));
    if (json_is_number(left))
        add(line, ", %s left", human_duration(json_number_value(left), text));
}

static void print_trainer(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    const json_t *trainer = json_object_get(status, "trainer");
    const json_t *run = json_object_get(status, "run");
    char number[HUMAN_BYTES], counted[HUMAN_BYTES], loss[HUMAN_BYTES];
    struct line line = {.used = 0}, tokens = {.used = 0};
    if (is_witness(status)) {
        say_text("none: this is the run's witness, which votes and keeps no parameters", "trainer", look, file);
        return;
    }
    add_state(status, &line);
    add(&line, ", step %lld of %lld", (long long)ctl_integer(trainer, "step"), (long long)ctl_integer(run, "steps"));
    add_left(status, &line);
    bool trains =
        strcmp(ctl_text(trainer, "state"), "training") == 0 || strcmp(ctl_text(trainer, "state"), "finishing") == 0;
    if (trains && !stands_still(trainer) && ctl_number(trainer, "tokens_per_s") > 0)
        add(&line, ", loss %s, %s tokens/s", human_loss(ctl_number(trainer, "loss"), loss),
            human_count(ctl_number(trainer, "tokens_per_s"), number));
    say(&line, "trainer", look, file);
    if (ctl_integer(trainer, "tokens") <= 0)
        return;
    add(&tokens, "%s tokens trained, %s counted in the anchors", human_count(ctl_number(trainer, "tokens"), number),
        human_count(ctl_number(trainer, "tokens_counted"), counted));
    say(&tokens, "", look, file);
}

/* "41.2 GiB of 79.1 GiB" */
static void add_memory(const json_t *machine, struct line *line)
{
    char planned[HUMAN_BYTES], total[HUMAN_BYTES];
    if (ctl_number(machine, "memory_bytes") <= 0)
        return;
    add(line, ", %s", human_memory(ctl_number(machine, "memory_bytes"), planned));
    if (ctl_number(machine, "memory_total_bytes") > 0)
        add(line, " of %s", human_memory(ctl_number(machine, "memory_total_bytes"), total));
    add(line, "%s", ctl_integer(machine, "ranks") > 1 ? " each" : "");
}

/* "312 TFLOP/s (39 % MFU)" */
static void add_rate(const json_t *machine, struct line *line)
{
    char rate[HUMAN_BYTES];
    if (ctl_number(machine, "flops_per_s") <= 0)
        return;
    add(line, ", %s", human_flops(ctl_number(machine, "flops_per_s"), rate));
    if (ctl_number(machine, "mfu") > 0)
        add(line, " (%.0f %% MFU)", 100 * ctl_number(machine, "mfu"));
}

static void print_base(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    const char *other = ctl_text(json_object_get(status, "trainer"), "other_base");
    struct line line = {.used = 0};
    if (other[0] == '\0')
        return;
    add(&line, "another than the run's, as allow_other_base lets it: %s", other);
    say(&line, "base", look, file);
}

/* What the own trainer runs on, as far as it says so. */
void ctl_print_machine(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    const json_t *machine = json_object_get(json_object_get(status, "trainer"), "machine");
    long long ranks = (long long)ctl_integer(machine, "ranks"),
              shared = (long long)ctl_integer(machine, "tensor_parallel");
    const char *device = ctl_text(machine, "device");
    struct line line = {.used = 0};
    if (ranks <= 0)
        return;
    add(&line, "%lld rank%s", ranks, ranks > 1 ? "s" : "");
    if (shared > 1)
        add(&line, " (dp %lld x tp %lld)", ranks / shared, shared);
    if (device[0] != '\0')
        add(&line, " on %s", device);
    add_memory(machine, &line);
    add_rate(machine, &line);
    say(&line, "machine", look, file);
}

static void print_anchor(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    long long fragments = (long long)ctl_integer(status, "fragments");
    long long low = (long long)ctl_integer(status, "version_min"), high = (long long)ctl_integer(status, "version_max");
    struct line line = {.used = 0};
    if (is_witness(status))
        add(&line, "%lld fragments, elsewhere, at versions %lld to %lld", fragments, low, high);
    else
        add(&line, "%lld fragments at versions %lld to %lld, step %lld, hash %.16s", fragments, low, high,
            (long long)ctl_integer(status, "step"),
            json_is_string(json_object_get(status, "anchors")) ? ctl_text(status, "anchors") : "not known yet");
    say(&line, "anchor", look, file);
}

static void print_epoch(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    long long heard = (long long)ctl_integer(status, "voters_heard");
    long long sure = (long long)ctl_integer(status, "voters_sure");
    size_t index;
    json_t *order;
    struct line line = {.used = 0}, next = {.used = 0};
    add(&line, "%lld, %lld of %lld islands that vote heard", (long long)ctl_integer(status, "epoch"), heard,
        (long long)ctl_integer(status, "voters"));
    if (sure < heard)
        add(&line, ", %lld may vote", sure);
    add(&line, "%s", json_is_true(json_object_get(status, "votes")) ? "" : "; this one has no vote");
    say(&line, "epoch", look, file);
    if (ctl_integer(status, "sealed_ms") > 0)
        add(&next, "the next one is being decided; it waits for %s", ctl_text(status, "waits"));
    else if (ctl_integer(status, "requested_ms") > 0)
        add(&next, "a change of members is not decided; it waits for %s", ctl_text(status, "waits"));
    say_text(next.text, "", look, file);
    json_array_foreach (json_object_get(status, "orders"), index, order) {
        struct line asked = {.used = 0};
        add(&asked, "order %lld of %s waits: %s, since %.0f s", (long long)ctl_integer(order, "number"),
            ctl_text(order, "by"), ctl_text(order, "text"), (double)ctl_integer(order, "for_ms") / 1000);
        if (json_object_get(order, "needed") != NULL)
            add(&asked, "; %lld of %lld voters agree", (long long)ctl_integer(order, "approvals"),
                (long long)ctl_integer(order, "needed"));
        say_text(asked.text, "", look, file);
    }
    json_array_foreach (json_object_get(status, "rekeys"), index, order) {
        struct line asked = {.used = 0};
        add(&asked, "%s asks for another key, which takes an operator's order: dilococtl rekey %s",
            ctl_text(order, "island"), ctl_text(order, "island"));
        say_text(asked.text, "", look, file);
    }
}

/* The one that is set, and what it comes to with those that take part. */
static void print_quorum(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    long long set = (long long)ctl_integer(json_object_get(status, "run"), "quorum");
    long long now = (long long)ctl_integer(status, "quorum");
    long long contributors = (long long)ctl_integer(status, "contributors");
    struct line line = {.used = 0};
    if (set <= 0 || now <= 0)
        return;
    add(&line, "%lld, %lld contributor%s part: a round closes with %lld", set, contributors,
        contributors == 1 ? " takes" : "s take", now);
    say(&line, "quorum", look, file);
}

/* What takes the most of what the daemon takes comes first; what takes less than a tenth is not told. */
static void print_processor(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    static const char *const apart[] = {"cores", "seconds"};
    json_t *rest = json_deep_copy(json_object_get(status, "processor"));
    double seconds = ctl_number(rest, "seconds");
    const char *before = "; ";
    struct line line = {.used = 0};
    add(&line, "%.2f cores in the last minute", ctl_number(rest, "cores"));
    for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++)
        json_object_del(rest, apart[i]);
    for (size_t left = json_object_size(rest); left > 0; left--) {
        const char *key, *most = NULL;
        json_t *value;
        json_object_foreach (rest, key, value)
            if (most == NULL || ctl_number(rest, key) > ctl_number(rest, most))
                most = key;
        if (10 * ctl_number(rest, most) < seconds)
            break;
        add(&line, "%s%s %.0f %%", before, most, 100 * ctl_number(rest, most) / seconds);
        before = ", ";
        json_object_del(rest, most);
    }
    if (ctl_integer(status, "loop_lag_ms") > 0)
        add(&line, "; its loop stood for %lld ms at most", (long long)ctl_integer(status, "loop_lag_ms"));
    say(&line, "processor", look, file);
    json_decref(rest);
}

/* By its supervisor, which nobody sees at work. */
static void print_restarts(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    const json_t *restarts = json_object_get(status, "restarts");
    time_t at = (time_t)ctl_integer(restarts, "at");
    char when[32] = "";
    struct tm local;
    struct line line = {.used = 0};
    if (ctl_integer(restarts, "count") <= 0)
        return;
    if (localtime_r(&at, &local) != NULL)
        strftime(when, sizeof when, "at %H:%M", &local);
    add(&line, "the daemon %s and was started again %s", ctl_text(restarts, "why"), when);
    if (ctl_integer(restarts, "count") > 1)
        add(&line, " (%lld times within an hour)", (long long)ctl_integer(restarts, "count"));
    say(&line, "", look, file);
}

static void print_run(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    const json_t *run = json_object_get(status, "run");
    char up[HUMAN_BYTES], params[HUMAN_BYTES];
    struct line island = {.used = 0}, line = {.used = 0};
    add(&island, "%s, %lld of %lld islands here, up %s", ctl_text(status, "island"),
        (long long)ctl_integer(status, "islands_up"), (long long)ctl_integer(status, "islands"),
        human_duration(ctl_number(status, "uptime_s"), up));
    say(&island, "island", look, file);
    print_restarts(status, look, file);
    print_drained(status, look, file);
    add(&line, "%s, %s parameters, each fragment every %lld steps, overlap %lld, codec %s", ctl_text(run, "name"),
        human_count(ctl_number(status, "params"), params), (long long)ctl_integer(run, "interval"),
        (long long)ctl_integer(run, "overlap"), ctl_text(run, "codec"));
    say(&line, "run", look, file);
}

static void print_paused(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    const json_t *paused = json_object_get(status, "paused");
    struct line line = {.used = 0};
    if (!json_is_object(paused))
        return;
    add(&line, "the run is paused");
    if (ctl_text(paused, "by")[0] != '\0')
        add(&line, ", by %s (order %lld)", ctl_text(paused, "by"), (long long)ctl_integer(paused, "order"));
    add(&line, "; an operator lets it go on (resume --run)");
    say(&line, "", look, file);
}

static void print_traffic(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    char sent[HUMAN_BYTES], received[HUMAN_BYTES], ledger[HUMAN_BYTES], memory[HUMAN_BYTES];
    struct line line = {.used = 0};
    add(&line, "sent %s, received %s; ledger %s; memory %s", human_bytes(ctl_number(status, "bytes_sent"), sent),
        human_bytes(ctl_number(status, "bytes_received"), received),
        human_bytes(ctl_number(status, "ledger_bytes"), ledger),
        human_bytes(ctl_number(status, "memory_bytes"), memory));
    say(&line, "traffic", look, file);
}

/* What follows from an event is told with it, or only if that is asked for. */
static bool is_event(const json_t *complaint)
{
    return ctl_text(complaint, "of")[0] == '\0';
}

static void print_degraded(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    const json_t *degraded = json_object_get(status, "degraded");
    size_t index;
    json_t *item;
    if (json_array_size(degraded) == 0)
        fputs("degraded   no\n", file);
    json_array_foreach (degraded, index, item) {
        if (!is_event(item))
            continue;
        ctl_text_wrap(CTL_TEXT_WARN, "degraded   ", ctl_text(item, "what"), look->columns, file);
        ctl_text_wrap("", "           -> ", ctl_text(item, "remedy"), look->columns, file);
    }
    json_array_foreach (degraded, index, item) {
        if (is_event(item) || !look->verbose)
            continue;
        ctl_text_wrap("", "follows    ", ctl_text(item, "what"), look->columns, file);
        ctl_text_wrap("", "           -> ", ctl_text(item, "remedy"), look->columns, file);
    }
}

void ctl_print_status(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    print_run(status, look, file);
    print_paused(status, look, file);
    print_role(status, look, file);
    print_trainer(status, look, file);
    ctl_print_machine(status, look, file);
    print_base(status, look, file);
    print_anchor(status, look, file);
    print_epoch(status, look, file);
    print_quorum(status, look, file);
    print_traffic(status, look, file);
    print_processor(status, look, file);
    say_text(ctl_text(status, "saved"), "saved", look, file);
    if (look->verbose) {
        say_text(ctl_text(status, "advice"), "advice", look, file);
        say_text(ctl_text(status, "orders_advice"), "advice", look, file);
    }
    say_text(ctl_text(status, "capped"), "advice", look, file);
    print_degraded(status, look, file);
}

void ctl_print_check(const json_t *status, const struct ctl_text_look *look, FILE *file)
{
    (void)look;
    const json_t *degraded = json_object_get(status, "degraded");
    size_t index;
    json_t *item;
    if (json_array_size(degraded) == 0 && is_witness(status))
        fprintf(file, "good: %lld of %lld islands, of which this is the witness\n",
                (long long)ctl_integer(status, "islands_up"), (long long)ctl_integer(status, "islands"));
    else if (json_array_size(degraded) == 0)
        fprintf(file, "good: %lld of %lld islands, step %lld of %lld%s\n", (long long)ctl_integer(status, "islands_up"),
                (long long)ctl_integer(status, "islands"),
                (long long)ctl_integer(json_object_get(status, "trainer"), "step"),
                (long long)ctl_integer(json_object_get(status, "run"), "steps"),
                json_is_object(json_object_get(status, "paused")) ? ", the run is paused" : "");
    json_array_foreach (degraded, index, item) {
        if (is_event(item))
            fprintf(file, "degraded: %s\n", ctl_text(item, "what"));
    }
}

/* Fits 80 columns; notes go below their row, and what a member is to the run, where it is not an owner. */
void ctl_print_peers(const json_t *answer, const struct ctl_text_look *look, FILE *file)
{
    static const char below[] = "             ";
    size_t index;
    json_t *row;
    fprintf(file, "%-12s %-5s %-9s %7s %7s %8s %7s %8s %8s\n", "island", "state", "trainer", "step", "loss", "tokens/s",
            "rtt", "sent", "received");
    json_array_foreach (json_object_get(answer, "peers"), index, row) {
        char sent[HUMAN_BYTES], received[HUMAN_BYTES], speed[HUMAN_BYTES], loss[HUMAN_BYTES], rtt[32];
        bool self = json_is_true(json_object_get(row, "self"));
        const char *state = self ? "self" : json_is_true(json_object_get(row, "up")) ? "up" : "away";
        snprintf(rtt, sizeof rtt, "%lld ms", (long long)ctl_integer(row, "rtt_ms"));
        fprintf(file, "%-12s %-5s %-9s %7lld %7s %8s %7s %8s %8s\n", ctl_text(row, "name"), state,
                ctl_text(row, "trainer"), (long long)ctl_integer(row, "step"),
                human_loss(ctl_number(row, "loss"), loss), human_count(ctl_number(row, "tokens_per_s"), speed),
                self ? "-" : rtt, self ? "-" : human_bytes(ctl_number(row, "bytes_sent"), sent),
                self ? "-" : human_bytes(ctl_number(row, "bytes_received"), received));
        if (json_is_true(json_object_get(row, "catches_up")))
            ctl_text_wrap("", below, "away; it is back, and catches up", look->columns, file);
        else if (strcmp(ctl_text(row, "role"), "owner") != 0)
            ctl_text_wrap("", below, ctl_text(row, "role"), look->columns, file);
        if (ctl_text(row, "note")[0] != '\0')
            ctl_text_wrap("", below, ctl_text(row, "note"), look->columns, file);
        if (ctl_text(row, "fault")[0] != '\0')
            ctl_text_wrap("", below, ctl_text(row, "fault"), look->columns, file);
    }
}

void ctl_print_members(const json_t *answer, const struct ctl_text_look *look, FILE *file)
{
    (void)look; /* its columns are as wide as they are */
    size_t index;
    json_t *row;
    fprintf(file, "%-12s %-40s %12s  %-8s  %s\n", "island", "public key", "uplink", "orders", "address");
    json_array_foreach (json_object_get(answer, "peers"), index, row) {
        char uplink[HUMAN_BYTES];
        const char *address = ctl_text(row, "address");
        const char *orders = json_is_true(json_object_get(row, "founder"))    ? "founder"
                             : json_is_true(json_object_get(row, "operator")) ? "operator"
                                                                              : "-";
        fprintf(file, "%-12s %-40s %12s  %-8s  %s\n", ctl_text(row, "name"), ctl_text(row, "public_key"),
                human_rate(ctl_number(row, "uplink_bit_s"), uplink), orders, address[0] != '\0' ? address : "-");
    }
}

void ctl_print_fragments(const json_t *answer, const struct ctl_text_look *look, FILE *file)
{
    (void)look; /* its columns are as wide as they are */
    size_t index;
    json_t *row;
    fprintf(file, "%-9s %11s %8s %8s  %-12s %-16s %s\n", "fragment", "params", "version", "newest", "state", "hash",
            "waiting for");
    json_array_foreach (json_object_get(answer, "fragments"), index, row) {
        char params[HUMAN_BYTES];
        fprintf(file, "%-9lld %11s %8lld %8lld  %-12s %-16.16s", (long long)ctl_integer(row, "fragment"),
                human_count(ctl_number(row, "params"), params), (long long)ctl_integer(row, "version"),
                (long long)ctl_integer(row, "newest"), ctl_text(row, "state"), ctl_text(row, "hash"));
        size_t i;
        json_t *name;
        json_array_foreach (json_object_get(row, "waiting_for"), i, name) {
            fprintf(file, "%s%s", i > 0 ? ", " : " ", json_string_value(name));
        }
        fputc('\n', file);
    }
}
