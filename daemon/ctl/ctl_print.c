/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_print.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/human.h"
#include "daemon/ctl/ctl_client.h"

static bool is_witness(const json_t *status)
{
    return strcmp(ctl_text(status, "role"), "witness") == 0;
}

/* What this island is to the run, and what follows from it. */
static void print_role(const json_t *status, FILE *file)
{
    static const struct {
        const char *role, *text;
    } roles[] = {
        {"owner", "owner: it contributes what it trains, and makes its part of each result"},
        {"contributor", "contributor: what it trains is merged; it owns nothing"},
        {"observer", "observer: it catches up; what it trains is merged when it takes part, which comes by itself"},
        {"draining", "drained: it owns nothing, and nobody waits for it"},
        {"away", "put out: the others go on without it; what it trains is merged when it is back"},
    };
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(ctl_text(status, "role"), roles[i].role) == 0)
            fprintf(file, "role       %s\n", roles[i].text);
}

static void print_drained(const json_t *status, FILE *file)
{
    size_t index;
    json_t *name;
    json_array_foreach (json_object_get(status, "drained"), index, name) {
        fprintf(file, "           %s has drained, and is away\n", json_string_value(name));
    }
}

/* In every round it may wait for a moment, which is not worth a word. */
void ctl_print_state(const json_t *status, FILE *file)
{
    const double told_s = 3;
    const json_t *trainer = json_object_get(status, "trainer"), *names = json_object_get(trainer, "waits_for");
    char since[HUMAN_BYTES];
    size_t index;
    json_t *name;
    if (ctl_number(trainer, "waits_s") < told_s) {
        fputs(ctl_text(trainer, "state"), file);
        return;
    }
    fprintf(file, "waits%s", json_array_size(names) > 0 ? " for" : "");
    json_array_foreach (names, index, name) {
        fprintf(file, "%s %s", index > 0 ? "," : "", json_string_value(name));
    }
    fprintf(file, " (for %s, as late = wait has it)", human_duration(floor(ctl_number(trainer, "waits_s")), since));
}

static void print_trainer(const json_t *status, FILE *file)
{
    const json_t *trainer = json_object_get(status, "trainer");
    const json_t *run = json_object_get(status, "run");
    char number[HUMAN_BYTES], counted[HUMAN_BYTES];
    if (is_witness(status)) {
        fputs("trainer    none: this is the run's witness, which votes and keeps no parameters\n", file);
        return;
    }
    fputs("trainer    ", file);
    ctl_print_state(status, file);
    fprintf(file, ", step %lld of %lld", (long long)ctl_integer(trainer, "step"), (long long)ctl_integer(run, "steps"));
    if (ctl_number(trainer, "tokens_per_s") > 0)
        fprintf(file, ", loss %.4f, %s tokens/s", ctl_number(trainer, "loss"),
                human_count(ctl_number(trainer, "tokens_per_s"), number));
    if (ctl_integer(trainer, "tokens") > 0)
        fprintf(file, "\n           %s tokens trained, %s counted in the anchors",
                human_count(ctl_number(trainer, "tokens"), number),
                human_count(ctl_number(trainer, "tokens_counted"), counted));
    fputc('\n', file);
}

/* "41.2 GiB of 79.1 GiB" */
static void print_memory(const json_t *machine, FILE *file)
{
    char planned[HUMAN_BYTES], total[HUMAN_BYTES];
    if (ctl_number(machine, "memory_bytes") <= 0)
        return;
    fprintf(file, ", %s", human_memory(ctl_number(machine, "memory_bytes"), planned));
    if (ctl_number(machine, "memory_total_bytes") > 0)
        fprintf(file, " of %s", human_memory(ctl_number(machine, "memory_total_bytes"), total));
    fputs(ctl_integer(machine, "ranks") > 1 ? " each" : "", file);
}

/* "312 TFLOP/s (39 % MFU)" */
static void print_rate(const json_t *machine, FILE *file)
{
    char rate[HUMAN_BYTES];
    if (ctl_number(machine, "flops_per_s") <= 0)
        return;
    fprintf(file, ", %s", human_flops(ctl_number(machine, "flops_per_s"), rate));
    if (ctl_number(machine, "mfu") > 0)
        fprintf(file, " (%.0f %% MFU)", 100 * ctl_number(machine, "mfu"));
}

/* What the own trainer runs on, as far as it says so. */
void ctl_print_machine(const json_t *status, FILE *file)
{
    const json_t *machine = json_object_get(json_object_get(status, "trainer"), "machine");
    long long ranks = (long long)ctl_integer(machine, "ranks"),
              shared = (long long)ctl_integer(machine, "tensor_parallel");
    const char *device = ctl_text(machine, "device");
    if (ranks <= 0)
        return;
    fprintf(file, "machine    %lld rank%s", ranks, ranks > 1 ? "s" : "");
    if (shared > 1)
        fprintf(file, " (dp %lld x tp %lld)", ranks / shared, shared);
    if (device[0] != '\0')
        fprintf(file, " on %s", device);
    print_memory(machine, file);
    print_rate(machine, file);
    fputc('\n', file);
}

static void print_anchor(const json_t *status, FILE *file)
{
    long long fragments = (long long)ctl_integer(status, "fragments");
    long long low = (long long)ctl_integer(status, "version_min"), high = (long long)ctl_integer(status, "version_max");
    if (is_witness(status))
        fprintf(file, "anchor     %lld fragments, elsewhere, at versions %lld to %lld\n", fragments, low, high);
    else
        fprintf(file, "anchor     %lld fragments at versions %lld to %lld, step %lld, hash %.16s\n", fragments, low,
                high, (long long)ctl_integer(status, "step"),
                json_is_string(json_object_get(status, "anchors")) ? ctl_text(status, "anchors") : "not known yet");
}

static void print_epoch(const json_t *status, FILE *file)
{
    long long heard = (long long)ctl_integer(status, "voters_heard");
    long long sure = (long long)ctl_integer(status, "voters_sure");
    fprintf(file, "epoch      %lld, %lld of %lld islands that vote heard", (long long)ctl_integer(status, "epoch"),
            heard, (long long)ctl_integer(status, "voters"));
    if (sure < heard)
        fprintf(file, ", %lld may vote", sure);
    fprintf(file, "%s\n", json_is_true(json_object_get(status, "votes")) ? "" : "; this one has no vote");
    if (ctl_integer(status, "sealed_ms") > 0)
        fprintf(file, "           the next one is being decided; it waits for %s\n", ctl_text(status, "waits"));
    else if (ctl_integer(status, "wished_ms") > 0)
        fprintf(file, "           a change is wished, and not decided; it waits for %s\n", ctl_text(status, "waits"));
}

/* What takes the most of what the daemon takes comes first; what takes less than a tenth is not told. */
static void print_processor(const json_t *status, FILE *file)
{
    static const char *const apart[] = {"cores", "seconds"};
    json_t *rest = json_deep_copy(json_object_get(status, "processor"));
    double seconds = ctl_number(rest, "seconds");
    const char *before = "; ";
    fprintf(file, "processor  %.2f cores in the last minute", ctl_number(rest, "cores"));
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
        fprintf(file, "%s%s %.0f %%", before, most, 100 * ctl_number(rest, most) / seconds);
        before = ", ";
        json_object_del(rest, most);
    }
    fputc('\n', file);
    json_decref(rest);
}

void ctl_print_status(const json_t *status, FILE *file)
{
    const json_t *run = json_object_get(status, "run");
    const json_t *degraded = json_object_get(status, "degraded");
    char sent[HUMAN_BYTES], received[HUMAN_BYTES], ledger[HUMAN_BYTES], memory[HUMAN_BYTES];
    fprintf(file, "island     %s, %lld of %lld islands here, up %s\n", ctl_text(status, "island"),
            (long long)ctl_integer(status, "islands_up"), (long long)ctl_integer(status, "islands"),
            human_duration(ctl_number(status, "uptime_s"), sent));
    print_drained(status, file);
    fprintf(file, "run        %s, %s parameters, each fragment every %lld steps, overlap %lld, codec %s\n",
            ctl_text(run, "name"), human_count(ctl_number(status, "params"), sent),
            (long long)ctl_integer(run, "interval"), (long long)ctl_integer(run, "overlap"), ctl_text(run, "codec"));
    print_role(status, file);
    print_trainer(status, file);
    ctl_print_machine(status, file);
    print_anchor(status, file);
    print_epoch(status, file);
    fprintf(file, "traffic    sent %s, received %s; ledger %s; memory %s\n",
            human_bytes(ctl_number(status, "bytes_sent"), sent),
            human_bytes(ctl_number(status, "bytes_received"), received),
            human_bytes(ctl_number(status, "ledger_bytes"), ledger),
            human_bytes(ctl_number(status, "memory_bytes"), memory));
    print_processor(status, file);
    if (ctl_text(status, "saved")[0] != '\0')
        fprintf(file, "saved      %s\n", ctl_text(status, "saved"));
    if (ctl_text(status, "advice")[0] != '\0')
        fprintf(file, "advice     %s\n", ctl_text(status, "advice"));
    if (ctl_text(status, "capped")[0] != '\0')
        fprintf(file, "advice     %s\n", ctl_text(status, "capped"));
    if (json_array_size(degraded) == 0)
        fputs("degraded   no\n", file);
    size_t index;
    json_t *item;
    json_array_foreach (degraded, index, item) {
        fprintf(file, "degraded   %s\n           -> %s\n", ctl_text(item, "what"), ctl_text(item, "remedy"));
    }
}

void ctl_print_check(const json_t *status, FILE *file)
{
    const json_t *degraded = json_object_get(status, "degraded");
    size_t index;
    json_t *item;
    if (json_array_size(degraded) == 0 && is_witness(status))
        fprintf(file, "good: %lld of %lld islands, of which this is the witness\n",
                (long long)ctl_integer(status, "islands_up"), (long long)ctl_integer(status, "islands"));
    else if (json_array_size(degraded) == 0)
        fprintf(file, "good: %lld of %lld islands, step %lld of %lld\n", (long long)ctl_integer(status, "islands_up"),
                (long long)ctl_integer(status, "islands"),
                (long long)ctl_integer(json_object_get(status, "trainer"), "step"),
                (long long)ctl_integer(json_object_get(status, "run"), "steps"));
    json_array_foreach (degraded, index, item) {
        fprintf(file, "degraded: %s\n", ctl_text(item, "what"));
    }
}

/* Fits 80 columns; notes go below their row, and what a member is to the run, where it is not an owner. */
void ctl_print_peers(const json_t *answer, FILE *file)
{
    size_t index;
    json_t *row;
    fprintf(file, "%-12s %-5s %-9s %7s %7s %8s %7s %8s %8s\n", "island", "state", "trainer", "step", "loss", "tokens/s",
            "rtt", "sent", "received");
    json_array_foreach (json_object_get(answer, "peers"), index, row) {
        char sent[HUMAN_BYTES], received[HUMAN_BYTES], speed[HUMAN_BYTES], rtt[32];
        bool self = json_is_true(json_object_get(row, "self"));
        const char *state = self ? "self" : json_is_true(json_object_get(row, "up")) ? "up" : "away";
        snprintf(rtt, sizeof rtt, "%lld ms", (long long)ctl_integer(row, "rtt_ms"));
        fprintf(file, "%-12s %-5s %-9s %7lld %7.4f %8s %7s %8s %8s\n", ctl_text(row, "name"), state,
                ctl_text(row, "trainer"), (long long)ctl_integer(row, "step"), ctl_number(row, "loss"),
                human_count(ctl_number(row, "tokens_per_s"), speed), self ? "-" : rtt,
                self ? "-" : human_bytes(ctl_number(row, "bytes_sent"), sent),
                self ? "-" : human_bytes(ctl_number(row, "bytes_received"), received));
        if (strcmp(ctl_text(row, "role"), "owner") != 0)
            fprintf(file, "             %s\n", ctl_text(row, "role"));
        if (ctl_text(row, "note")[0] != '\0')
            fprintf(file, "             %s\n", ctl_text(row, "note"));
        if (ctl_text(row, "fault")[0] != '\0')
            fprintf(file, "             %s\n", ctl_text(row, "fault"));
    }
}

void ctl_print_members(const json_t *answer, FILE *file)
{
    size_t index;
    json_t *row;
    fprintf(file, "%-12s %-40s %12s  %s\n", "island", "public key", "uplink", "address");
    json_array_foreach (json_object_get(answer, "peers"), index, row) {
        char uplink[HUMAN_BYTES];
        const char *address = ctl_text(row, "address");
        fprintf(file, "%-12s %-40s %12s  %s\n", ctl_text(row, "name"), ctl_text(row, "public_key"),
                human_rate(ctl_number(row, "uplink_bit_s"), uplink), address[0] != '\0' ? address : "-");
    }
}

void ctl_print_fragments(const json_t *answer, FILE *file)
{
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
