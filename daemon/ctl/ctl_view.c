/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/human.h"
#include "common/mem.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_print.h"
#include "daemon/ctl/ctl_screen.h"

/* Rates are over the last half minute or so; losses are kept for as wide a window as anybody has. */
enum { SAMPLES = 64, RATE_MS = 30000, LOSSES = 256, ISLANDS_MAX = 64, NAME_BYTES = 64, WHY_BYTES = 400 };
enum { AWAITED_TOLD_MS = 3000 };
/* From so many columns on a table has all of its own. */
enum { WIDE = 78, FEW = 6 };

struct sample {
    uint64_t at_ms;
    double step, steps_all, sent, received;
};

struct island {
    char name[NAME_BYTES];
    uint64_t awaited_ms;          /* since when a round waits for it; 0: none does */
    json_int_t fragment, version; /* of which */
};

struct ctl_view {
    json_t *status, *peers, *fragments; /* NULL: not known yet */
    uint64_t taken_ms;
    char why[WHY_BYTES]; /* there is no answer; "": there is */
    struct sample samples[SAMPLES];
    size_t samples_count; /* all so far; the last SAMPLES of them are kept */
    double losses[LOSSES];
    size_t losses_count;
    json_int_t loss_step;
    struct island islands[ISLANDS_MAX];
    size_t islands_count;
};

enum err ctl_view_new(struct ctl_view **out)
{
    return mem_new(1, sizeof **out, "the view", out);
}

static void drop_answers(struct ctl_view *view)
{
    json_decref(view->status);
    json_decref(view->peers);
    json_decref(view->fragments);
    view->status = view->peers = view->fragments = NULL;
}

void ctl_view_free(struct ctl_view *view)
{
    if (view == NULL)
        return;
    drop_answers(view);
    mem_free(view);
}

/* ---- taking in ---- */

/* Notes are what others say; nobody steers a terminal by them. */
static void clean_text(json_t *text)
{
    size_t bytes = json_string_length(text), dirty = 0;
    char *copy = NULL;
    if (mem_new(bytes + 1, 1, "a text", &copy) != ERR_OK)
        return;
    memcpy(copy, json_string_value(text), bytes);
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)copy[i] < ' ' || copy[i] == 0x7f) {
            copy[i] = ' ';
            dirty++;
        }
    if (dirty > 0)
        json_string_set(text, copy);
    mem_free(copy);
}

/* Answers are three deep, whatever they hold. */
static void clean(json_t *json, int depth)
{
    enum { DEPTH_MAX = 16 };
    const char *key;
    size_t index;
    json_t *value;
    if (json_is_string(json))
        clean_text(json);
    if (depth == DEPTH_MAX)
        return;
    json_object_foreach (json, key, value) {
        clean(value, depth + 1);
    }
    json_array_foreach (json, index, value) {
        clean(value, depth + 1);
    }
}

static const json_t *trainer_of(const struct ctl_view *view)
{
    return json_object_get(view->status, "trainer");
}

static void take_sample(struct ctl_view *view, uint64_t now_ms)
{
    struct sample sample = {.at_ms = now_ms,
                            .step = ctl_number(trainer_of(view), "step"),
                            .sent = ctl_number(view->status, "bytes_sent"),
                            .received = ctl_number(view->status, "bytes_received")};
    size_t index;
    json_t *row;
    json_array_foreach (json_object_get(view->peers, "peers"), index, row) {
        sample.steps_all += ctl_number(row, "step");
    }
    const struct sample *last = &view->samples[(view->samples_count + SAMPLES - 1) % SAMPLES];
    /* A daemon that was started anew counts from zero. */
    if (view->samples_count > 0 && (sample.step < last->step || sample.sent < last->sent))
        view->samples_count = 0;
    view->samples[view->samples_count++ % SAMPLES] = sample;
}

static void take_loss(struct ctl_view *view)
{
    json_int_t step = ctl_integer(trainer_of(view), "step");
    double loss = ctl_number(trainer_of(view), "loss");
    if (step == view->loss_step || loss == 0) /* not known */
        return;
    view->loss_step = step;
    view->losses[view->losses_count++ % LOSSES] = loss;
}

static struct island *find_island(struct ctl_view *view, const char *name)
{
    for (size_t i = 0; i < view->islands_count; i++)
        if (strcmp(view->islands[i].name, name) == 0)
            return &view->islands[i];
    if (view->islands_count == ISLANDS_MAX)
        return NULL;
    struct island *island = &view->islands[view->islands_count++];
    *island = (struct island){.awaited_ms = 0};
    snprintf(island->name, sizeof island->name, "%s", name);
    return island;
}

static bool waits_for(const json_t *fragment, const char *name)
{
    size_t i;
    json_t *awaited;
    json_array_foreach (json_object_get(fragment, "waiting_for"), i, awaited) {
        if (json_is_string(awaited) && strcmp(json_string_value(awaited), name) == 0)
            return true;
    }
    return false;
}

/* The round that it is waited for in longest as far as was seen; a new round is waited for anew. */
static void take_awaited(struct ctl_view *view, struct island *island, uint64_t now_ms)
{
    size_t index;
    json_t *fragment;
    bool still = false;
    json_int_t first = -1, version = 0;
    json_array_foreach (json_object_get(view->fragments, "fragments"), index, fragment) {
        if (!waits_for(fragment, island->name))
            continue;
        json_int_t at = ctl_integer(fragment, "version");
        still |= island->awaited_ms > 0 && island->fragment == (json_int_t)index && island->version == at;
        version = first < 0 ? at : version;
        first = first < 0 ? (json_int_t)index : first;
    }
    if (still)
        return;
    island->awaited_ms = first >= 0 ? now_ms : 0;
    island->fragment = first;
    island->version = version;
}

static void take_islands(struct ctl_view *view, uint64_t now_ms)
{
    size_t index;
    json_t *row;
    json_array_foreach (json_object_get(view->peers, "peers"), index, row) {
        struct island *island = find_island(view, ctl_text(row, "name"));
        if (island != NULL)
            take_awaited(view, island, now_ms);
    }
}

void ctl_view_take(struct ctl_view *view, json_t *status, json_t *peers, json_t *fragments, uint64_t now_ms)
{
    drop_answers(view);
    view->status = json_incref(status);
    view->peers = json_incref(peers);
    view->fragments = json_incref(fragments);
    clean(status, 0);
    clean(peers, 0);
    clean(fragments, 0);
    view->taken_ms = now_ms;
    view->why[0] = '\0';
    take_sample(view, now_ms);
    take_loss(view);
    take_islands(view, now_ms);
}

void ctl_view_fail(struct ctl_view *view, const char *why, uint64_t now_ms)
{
    if (view->taken_ms == 0)
        view->taken_ms = now_ms;
    snprintf(view->why, sizeof view->why, "%s", why);
}

/* ---- what follows ---- */

struct rates {
    bool known;
    double steps, steps_all, sent, received; /* a second */
};

static struct rates rates_of(const struct ctl_view *view)
{
    size_t count = view->samples_count < SAMPLES ? view->samples_count : SAMPLES;
    if (count < 2)
        return (struct rates){.known = false};
    const struct sample *last = &view->samples[(view->samples_count - 1) % SAMPLES], *first = last;
    for (size_t i = 2; i <= count; i++) {
        const struct sample *at = &view->samples[(view->samples_count - i) % SAMPLES];
        if (last->at_ms - at->at_ms > RATE_MS && first != last)
            break;
        first = at;
    }
    double s = (double)(last->at_ms - first->at_ms) / 1000;
    if (s <= 0)
        return (struct rates){.known = false};
    double all = last->steps_all - first->steps_all; /* less, where an island has gone */
    return (struct rates){.known = true,
                          .steps = (last->step - first->step) / s,
                          .steps_all = all > 0 ? all / s : 0,
                          .sent = (last->sent - first->sent) / s,
                          .received = last->received > first->received ? (last->received - first->received) / s : 0};
}

/* Bit/s that the configuration says this island may send. */
static double uplink_of(const struct ctl_view *view)
{
    size_t index;
    json_t *row;
    json_array_foreach (json_object_get(view->peers, "peers"), index, row) {
        if (json_is_true(json_object_get(row, "self")))
            return ctl_number(row, "uplink_bit_s");
    }
    return 0;
}

/* ---- the head ---- */

static void print_title(const struct ctl_view *view, FILE *file)
{
    char up[HUMAN_BYTES];
    fprintf(file, CTL_TEXT_TITLE " %s " CTL_TEXT_PLAIN "  run %s, %lld of %lld islands here, up %s\n",
            ctl_text(view->status, "island"), ctl_text(json_object_get(view->status, "run"), "name"),
            (long long)ctl_integer(view->status, "islands_up"), (long long)ctl_integer(view->status, "islands"),
            human_duration(ctl_number(view->status, "uptime_s"), up));
}

static void print_bar(double share, int columns, bool utf8, FILE *file)
{
    int full = (int)(share * columns + 0.5);
    for (int i = 0; i < columns; i++)
        fputs(i < full ? (utf8 ? "█" : "#") : (utf8 ? "░" : "-"), file);
}

/* For a round, and not just for a moment. */
static bool waits(const struct ctl_view *view)
{
    return ctl_number(trainer_of(view), "waits_s") >= (double)AWAITED_TOLD_MS / 1000;
}

static void print_run(const struct ctl_view *view, const struct ctl_view_look *look, const struct rates *rates,
                      FILE *file)
{
    double steps = ctl_number(json_object_get(view->status, "run"), "steps");
    double step = ctl_number(trainer_of(view), "step");
    double share = steps > 0 && step > 0 ? fmin(step / steps, 1) : 0;
    bool trains = strcmp(ctl_text(trainer_of(view), "state"), "training") == 0 && !waits(view) &&
                  !json_is_object(json_object_get(view->status, "paused"));
    char left[HUMAN_BYTES] = "?";
    if (rates->steps > 0)
        human_duration((steps - step) / rates->steps, left);
    fputs("run        ", file);
    print_bar(share, look->columns >= WIDE ? 20 : 8, look->utf8, file);
    fprintf(file, " %.0f %%, ", floor(100 * share));
    if (trains) {
        fprintf(file, "%s left", left);
    } else {
        fputs(CTL_TEXT_BOLD, file);
        ctl_print_state(view->status, file);
        fputs(CTL_TEXT_PLAIN, file);
    }
    fprintf(file, ", step %.0f of %.0f\n", step, steps);
}

static void print_speed(const struct ctl_view *view, const struct rates *rates, FILE *file)
{
    char here[HUMAN_BYTES], all[HUMAN_BYTES];
    double tokens_all = 0;
    size_t index;
    json_t *row;
    json_array_foreach (json_object_get(view->peers, "peers"), index, row) {
        bool here_or_up = json_is_true(json_object_get(row, "self")) || json_is_true(json_object_get(row, "up"));
        tokens_all += here_or_up ? ctl_number(row, "tokens_per_s") : 0;
    }
    fprintf(file, "speed      here " CTL_TEXT_BOLD "%s tokens/s" CTL_TEXT_PLAIN,
            human_count(ctl_number(trainer_of(view), "tokens_per_s"), here));
    if (rates->known)
        fprintf(file, ", %.3g steps/s", waits(view) ? 0 : rates->steps);
    fprintf(file, "; all %s tokens/s", human_count(tokens_all, all));
    if (rates->known)
        fprintf(file, ", %.3g steps/s", rates->steps_all);
    fputc('\n', file);
}

static void print_line(const struct ctl_view *view, const struct rates *rates, FILE *file)
{
    const double uplink = uplink_of(view);
    char sent[HUMAN_BYTES], line[HUMAN_BYTES], received[HUMAN_BYTES], total[HUMAN_BYTES];
    fputs("line       ", file);
    if (rates->known) {
        fprintf(file, "out %s", human_rate(8 * rates->sent, sent));
        double share = uplink > 0 ? 800 * rates->sent / uplink : 0; /* in percent */
        if (uplink > 0 && share > 0 && share < 0.1)
            fprintf(file, ", <0.1 %% of %s", human_rate(uplink, line));
        else if (uplink > 0)
            fprintf(file, ", %.2g %% of %s", share, human_rate(uplink, line));
        fprintf(file, "; in %s; ", human_rate(8 * rates->received, received));
    }
    fprintf(file, "sent %s\n", human_bytes(ctl_number(view->status, "bytes_sent"), total));
}

/* Higher is more; the last value is at the right. */
static void print_spark(const struct ctl_view *view, int columns, bool utf8, FILE *file)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const letters[] = {"_", "_", ".", ".", "-", "-", "^", "^"};
    enum { LEVELS = sizeof blocks / sizeof blocks[0] };
    size_t count = view->losses_count < LOSSES ? view->losses_count : LOSSES;
    count = count < (size_t)columns ? count : (size_t)columns;
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 1; i <= count; i++) {
        double loss = view->losses[(view->losses_count - i) % LOSSES];
        low = fmin(low, loss);
        high = fmax(high, loss);
    }
    for (size_t i = count; i >= 1; i--) {
        double loss = view->losses[(view->losses_count - i) % LOSSES];
        int level = high > low ? (int)((loss - low) / (high - low) * (LEVELS - 1) + 0.5) : 0;
        fputs(utf8 ? blocks[level] : letters[level], file);
    }
}

static void print_loss(const struct ctl_view *view, const struct ctl_view_look *look, FILE *file)
{
    enum { BESIDE = 20 };
    char loss[HUMAN_BYTES];
    if (view->losses_count == 0) {
        fputs("loss       not known yet\n", file);
        return;
    }
    fprintf(file, "loss       " CTL_TEXT_BOLD "%s" CTL_TEXT_PLAIN "  ",
            human_loss(ctl_number(trainer_of(view), "loss"), loss));
    if (view->losses_count > 1 && look->columns > BESIDE + 4)
        print_spark(view, look->columns - BESIDE, look->utf8, file);
    fputc('\n', file);
}

static void print_head(const struct ctl_view *view, const struct ctl_view_look *look, uint64_t now_ms, FILE *file)
{
    struct rates rates = rates_of(view);
    if (view->why[0] != '\0') {
        char since[HUMAN_BYTES], lead[HUMAN_BYTES + 32];
        human_duration(floor((double)(now_ms - view->taken_ms) / 1000), since);
        snprintf(lead, sizeof lead, "no answer for %s, asked again: ", since);
        ctl_text_wrap(CTL_TEXT_WARN, "", lead, look->columns, file);
        ctl_text_wrap(CTL_TEXT_WARN, "  ", view->why, look->columns, file);
    }
    if (view->status == NULL)
        return;
    print_title(view, file);
    if (strcmp(ctl_text(view->status, "role"), "witness") == 0) {
        fputs("run        this is its witness, which votes, and trains nothing\n", file);
        print_line(view, &rates, file);
        return;
    }
    print_run(view, look, &rates, file);
    print_speed(view, &rates, file);
    print_loss(view, look, file);
    print_line(view, &rates, file);
}

/* ---- the middle ---- */

static void print_complaints(const struct ctl_view *view, int columns, FILE *file)
{
    size_t index;
    json_t *item;
    json_array_foreach (json_object_get(view->status, "degraded"), index, item) {
        if (ctl_text(item, "of")[0] != '\0') /* that one is told */
            continue;
        ctl_text_wrap(CTL_TEXT_WARN, "! ", ctl_text(item, "what"), columns, file);
        ctl_text_wrap(CTL_TEXT_PLAIN, "  -> ", ctl_text(item, "remedy"), columns, file);
    }
}

/* What keeps an island from being as the others; "": nothing does. */
static void tell_late(const struct ctl_view *view, const json_t *row, uint64_t now_ms, char *text, size_t text_bytes)
{
    const char *name = ctl_text(row, "name");
    char since[HUMAN_BYTES];
    text[0] = '\0';
    for (size_t i = 0; i < view->islands_count; i++) {
        const struct island *island = &view->islands[i];
        if (strcmp(island->name, name) == 0 && island->awaited_ms > 0 && now_ms >= island->awaited_ms + AWAITED_TOLD_MS)
            snprintf(text, text_bytes, "rounds wait for it, for %s",
                     human_duration((double)(now_ms - island->awaited_ms) / 1000, since));
    }
    size_t at = strlen(text);
    if (ctl_integer(row, "missed") > 0)
        snprintf(text + at, text_bytes - at, "%slate: %lld rounds closed without it", at > 0 ? "; " : "",
                 (long long)ctl_integer(row, "missed"));
}

static void print_island(const struct ctl_view *view, const json_t *row, int columns, uint64_t now_ms, FILE *file)
{
    static const char below[] = "             ";
    const bool wide = columns >= WIDE;
    bool self = json_is_true(json_object_get(row, "self")), up = json_is_true(json_object_get(row, "up"));
    const json_t *heard = json_object_get(row, "heard_s");
    char state[48], speed[HUMAN_BYTES], since[HUMAN_BYTES], loss[HUMAN_BYTES], rtt[32] = "-", late[160];
    if (self || up)
        snprintf(state, sizeof state, "%s", self ? "here" : "up");
    else if (json_is_number(heard))
        snprintf(state, sizeof state, "away %s", human_duration(json_number_value(heard), since));
    else
        snprintf(state, sizeof state, "never heard");
    if (!self)
        snprintf(rtt, sizeof rtt, "%lld ms", (long long)ctl_integer(row, "rtt_ms"));
    fprintf(file, "%s%-12.12s %-*s ", self || up ? "" : CTL_TEXT_WARN, ctl_text(row, "name"), wide ? 18 : 10, state);
    if (wide)
        fprintf(file, "%-10s ", ctl_text(row, "trainer"));
    fprintf(file, "%7lld %7s", (long long)ctl_integer(row, "step"), human_loss(ctl_number(row, "loss"), loss));
    if (wide)
        fprintf(file, " %8s %8s", human_count(self || up ? ctl_number(row, "tokens_per_s") : 0, speed), rtt);
    fputs(CTL_TEXT_PLAIN "\n", file);
    tell_late(view, row, now_ms, late, sizeof late);
    if (late[0] != '\0')
        ctl_text_wrap("", below, late, columns, file);
    static const char *const more[] = {"note", "fault"};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (ctl_text(row, more[i])[0] != '\0')
            ctl_text_wrap("", below, ctl_text(row, more[i]), columns, file);
}

static void print_islands(const struct ctl_view *view, int columns, uint64_t now_ms, FILE *file)
{
    const bool wide = columns >= WIDE;
    size_t index;
    json_t *row;
    fprintf(file, CTL_TEXT_FAINT "%-12s %-*s ", "island", wide ? 18 : 10, "state");
    fprintf(file, wide ? "%-10s %7s %7s %8s %8s" : "%.0s%7s %7s", "trainer", "step", "loss", "tokens/s", "rtt");
    fputs(CTL_TEXT_PLAIN "\n", file);
    json_array_foreach (json_object_get(view->peers, "peers"), index, row) {
        print_island(view, row, columns, now_ms, file);
    }
}

static bool under_way(const json_t *fragment)
{
    const char *state = ctl_text(fragment, "state");
    return json_array_size(json_object_get(fragment, "waiting_for")) > 0 ||
           (strcmp(state, "idle") != 0 && strcmp(state, "listening") != 0);
}

/* Those that stand wait for nobody; how many they are is enough. */
static void print_fragments(const struct ctl_view *view, FILE *file)
{
    const json_t *fragments = json_object_get(view->fragments, "fragments");
    size_t index, moving = 0, i;
    json_t *row, *name;
    json_array_foreach (fragments, index, row) {
        moving += under_way(row);
    }
    fprintf(file, CTL_TEXT_FAINT "%zu of %zu fragments under way, versions %lld to %lld" CTL_TEXT_PLAIN "\n", moving,
            json_array_size(fragments), (long long)ctl_integer(view->status, "version_min"),
            (long long)ctl_integer(view->status, "version_max"));
    json_array_foreach (fragments, index, row) {
        if (!under_way(row))
            continue;
        fprintf(file, "%-6lld version %-8lld %-12s", (long long)ctl_integer(row, "fragment"),
                (long long)ctl_integer(row, "version"), ctl_text(row, "state"));
        json_array_foreach (json_object_get(row, "waiting_for"), i, name) {
            fprintf(file, "%s%s", i > 0 ? ", " : " waits for ", json_string_value(name));
        }
        fputc('\n', file);
    }
}

static void print_help(FILE *file)
{
    fputs("q, Ctrl-C     end\n"
          "?             this, and back\n"
          "space         ask at once\n"
          "up, down      scroll; k and j, page up and page down do, too\n"
          "\n"
          "speed         tokens a second as the trainers say; steps as seen in the last half minute\n"
          "line          what goes out, as a share of the uplink that is configured\n"
          "loss          of this island since watch began; the newest is on the right\n"
          "!             what is not as it should be, and -> what to do\n",
          file);
}

static void print_middle(const struct ctl_view *view, const struct ctl_view_look *look, uint64_t now_ms, FILE *file)
{
    if (look->help) {
        print_help(file);
        return;
    }
    if (view->status == NULL)
        return;
    /* Few islands are seen at a glance; many stand below what is wrong with them. */
    bool few = json_array_size(json_object_get(view->peers, "peers")) <= FEW;
    ctl_print_machine(view->status, &(struct ctl_text_look){.columns = look->columns}, file);
    fputc('\n', file);
    if (!few)
        print_complaints(view, look->columns, file);
    print_islands(view, look->columns, now_ms, file);
    fputc('\n', file);
    if (few)
        print_complaints(view, look->columns, file);
    print_fragments(view, file);
}

/* ---- all ---- */

static int count_lines(const char *text)
{
    int lines = 0;
    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}

/* From line `first` on, as many as there is room for; empty ones where there are none. */
static void copy_lines(const char *text, int first, int room, FILE *file)
{
    for (int i = 0; i < first && *text != '\0'; i++)
        text += strcspn(text, "\n") + 1;
    for (int i = 0; i < room; i++) {
        size_t line = strcspn(text, "\n");
        fprintf(file, "%.*s\n", (int)line, text);
        text += line + (text[line] == '\n');
    }
}

void ctl_view_print(const struct ctl_view *view, struct ctl_view_look *look, uint64_t now_ms, FILE *file)
{
    char *head = NULL, *middle = NULL;
    size_t bytes;
    char interval[HUMAN_BYTES];
    FILE *stream = open_memstream(&head, &bytes);
    if (stream == NULL)
        return;
    print_head(view, look, now_ms, stream);
    fclose(stream);
    stream = open_memstream(&middle, &bytes);
    if (stream != NULL) {
        print_middle(view, look, now_ms, stream);
        fclose(stream);
    }
    int head_lines = count_lines(head), lines = middle != NULL ? count_lines(middle) : 0;
    head_lines = head_lines < look->rows - 1 ? head_lines : look->rows - 1;
    int room = look->rows - 1 - head_lines, most = lines > room ? lines - room : 0;
    look->first = look->first < 0 ? 0 : look->first > most ? most : look->first;
    if (head_lines > 0)
        copy_lines(head, 0, head_lines, file);
    if (room > 0 && middle != NULL)
        copy_lines(middle, look->first, room, file);
    fprintf(file, CTL_TEXT_FAINT "q end   ? help   space now   every %s",
            human_duration((double)look->interval_ms / 1000, interval));
    if (most > 0)
        fprintf(file, "   up, down: lines %d to %d of %d", look->first + 1, look->first + room, lines);
    fputs(CTL_TEXT_PLAIN "\n", file);
    free(head);
    free(middle);
}
