/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/lines.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/human.h"
#include "common/mem.h"

enum { DROPPED_TOLD_MS = 1000 };

struct line {
    char text[LINES_BYTES + 1];
    size_t used;   /* of `text` */
    size_t beyond; /* bytes that did not fit */
};

enum escape { NONE, BEGUN, SEQUENCE, TITLE };

struct lines {
    lines_say *say;
    void *user;
    struct line line; /* that is coming in */
    size_t raw;       /* bytes of it, with all that is taken out */
    bool returned;    /* its last character was a carriage return */
    bool skipping;    /* its beginning is missing */
    enum escape escape;
    struct line state; /* the newest one that was not said; used is 0: none */
    uint64_t state_ms; /* when one was said last */
    double allowance;  /* lines that may pass now */
    uint64_t filled_ms, dropped_ms;
    uint64_t dropped; /* since that was said */
    struct line kept[LINES_KEPT];
    char last[LINES_BYTES + 1]; /* see lines_last() */
    bool ended;                 /* what comes now is of the next program */
};

static void begin(struct lines *lines)
{
    struct lines next = {.say = lines->say, .user = lines->user, .allowance = LINES_BURST, .ended = true};
    memcpy(next.last, lines->last, sizeof next.last);
    *lines = next;
}

enum err lines_new(lines_say *say, void *user, struct lines **out)
{
    TRY(mem_new(1, sizeof **out, "the trainer's output", out));
    (*out)->say = say;
    (*out)->user = user;
    begin(*out);
    return ERR_OK;
}

void lines_free(struct lines *lines)
{
    mem_free(lines);
}

const char *lines_last(const struct lines *lines)
{
    return lines->last;
}

size_t lines_unfinished(const struct lines *lines)
{
    return lines->raw;
}

/* ---- saying ---- */

/* "<6>text": the level, and where the text begins. */
static enum log_level level_of(const char **text)
{
    static const enum log_level levels[] = {LOG_LEVEL_ERROR, LOG_LEVEL_ERROR, LOG_LEVEL_ERROR, LOG_LEVEL_ERROR,
                                            LOG_LEVEL_WARN,  LOG_LEVEL_INFO,  LOG_LEVEL_INFO,  LOG_LEVEL_DEBUG};
    const char *at = *text;
    if (at[0] != '<' || at[1] < '0' || at[1] > '7' || at[2] != '>')
        return LOG_LEVEL_INFO;
    *text = at + 3;
    return levels[at[1] - '0'];
}

static void say_line(const struct lines *lines, const struct line *line)
{
    char text[LINES_BYTES + 64], left_out[HUMAN_BYTES];
    const char *from = line->text;
    enum log_level level = level_of(&from);
    if (line->beyond > 0)
        snprintf(text, sizeof text, "%s... (and %s more)", from, human_bytes((double)line->beyond, left_out));
    else
        snprintf(text, sizeof text, "%s", from);
    lines->say(lines->user, level, text);
}

static void say_dropped(struct lines *lines, uint64_t now_ms)
{
    char text[160];
    if (lines->dropped == 0)
        return;
    snprintf(text, sizeof text, "(%" PRIu64 " lines are left out: %d a second are logged)", lines->dropped,
             LINES_A_SECOND);
    lines->say(lines->user, LOG_LEVEL_WARN, text);
    lines->dropped = 0;
    lines->dropped_ms = now_ms;
}

static bool pass(struct lines *lines, uint64_t now_ms)
{
    if (lines->filled_ms > 0 && now_ms > lines->filled_ms)
        lines->allowance += (double)(now_ms - lines->filled_ms) / 1000 * LINES_A_SECOND;
    lines->filled_ms = now_ms;
    if (lines->allowance > LINES_BURST)
        lines->allowance = LINES_BURST;
    if (lines->allowance < 1)
        return false;
    lines->allowance--;
    return true;
}

static void note_last(struct lines *lines, const struct line *line)
{
    const char *text = line->text;
    bool says = false;
    if (lines->ended)
        lines->last[0] = '\0';
    lines->ended = false;
    level_of(&text);
    text += strspn(text, " ");
    for (size_t i = 0; text[i] != '\0'; i++)
        says |= isalnum((unsigned char)text[i]) != 0 || (unsigned char)text[i] >= 0x80;
    if (says)
        snprintf(lines->last, sizeof lines->last, "%s", text);
}

static void line_done(struct lines *lines, uint64_t now_ms)
{
    note_last(lines, &lines->line);
    if (!pass(lines, now_ms)) {
        lines->kept[lines->dropped++ % LINES_KEPT] = lines->line;
        return;
    }
    say_dropped(lines, now_ms);
    say_line(lines, &lines->line);
}

/* ---- taking in ---- */

static void forget_line(struct lines *lines)
{
    lines->line.used = lines->line.beyond = lines->raw = 0;
    lines->line.text[0] = '\0';
    lines->returned = false;
}

/* A character is not cut in two. */
static void put(struct line *line, char c)
{
    bool continues = ((unsigned char)c & 0xc0) == 0x80;
    if (line->beyond > 0 || line->used == LINES_BYTES) {
        if (line->beyond == 0 && continues)
            while (line->used > 0 && ((unsigned char)line->text[line->used] & 0xc0) != 0xc0) {
                line->used--;
                line->beyond++;
            }
        line->beyond++;
        line->text[line->used] = '\0';
        return;
    }
    line->text[line->used++] = c;
    line->text[line->used] = '\0';
}

/* What stood before a carriage return is written over: it was a state. */
static void state_done(struct lines *lines)
{
    if (lines->line.used > 0)
        lines->state = lines->line;
    forget_line(lines);
    lines->raw = 1; /* the character that follows it */
}

/* False: the character belongs to a sequence, which steers a terminal. */
static bool is_shown(struct lines *lines, char c)
{
    unsigned char u = (unsigned char)c;
    switch (lines->escape) {
    case NONE: break;
    case BEGUN: lines->escape = c == '[' ? SEQUENCE : c == ']' ? TITLE : NONE; return false;
    case SEQUENCE: lines->escape = u >= 0x40 && u <= 0x7e ? NONE : SEQUENCE; return false;
    case TITLE: lines->escape = c == '\a' ? NONE : c == '\033' ? BEGUN : TITLE; return false;
    }
    if (c == '\033')
        lines->escape = BEGUN;
    return u >= ' ' && u != 0x7f;
}

static void take_one(struct lines *lines, char c, uint64_t now_ms)
{
    if (lines->skipping) {
        lines->skipping = c != '\n';
        return;
    }
    lines->raw++;
    if (c == '\n') {
        lines->escape = NONE;
        lines->state.used = 0; /* this line is what became of it */
        line_done(lines, now_ms);
        forget_line(lines);
        return;
    }
    if (c == '\r') {
        lines->returned = true;
        return;
    }
    if (lines->returned)
        state_done(lines);
    if (c == '\t')
        c = ' ';
    if (is_shown(lines, c))
        put(&lines->line, c);
}

void lines_skip(struct lines *lines)
{
    forget_line(lines);
    lines->escape = NONE;
    lines->skipping = true;
}

void lines_take(struct lines *lines, const char *bytes, size_t count, uint64_t now_ms)
{
    for (size_t i = 0; i < count; i++)
        take_one(lines, bytes[i], now_ms);
    lines_tick(lines, now_ms);
}

void lines_tick(struct lines *lines, uint64_t now_ms)
{
    if (lines->state.used > 0 && now_ms >= lines->state_ms + LINES_STATE_MS) {
        say_line(lines, &lines->state);
        lines->state.used = 0;
        lines->state_ms = now_ms;
    }
    if (lines->dropped > LINES_KEPT && now_ms >= lines->dropped_ms + DROPPED_TOLD_MS && pass(lines, now_ms))
        say_dropped(lines, now_ms);
}

void lines_end(struct lines *lines, uint64_t now_ms)
{
    uint64_t dropped = lines->dropped, kept = dropped < LINES_KEPT ? dropped : LINES_KEPT;
    lines->dropped = dropped - kept;
    say_dropped(lines, now_ms);
    for (uint64_t i = dropped - kept; i < dropped; i++)
        say_line(lines, &lines->kept[i % LINES_KEPT]);
    if (lines->ended) /* it said nothing at all */
        lines->last[0] = '\0';
    const struct line *left = lines->line.used > 0 ? &lines->line : &lines->state;
    if (left->used > 0) {
        note_last(lines, left);
        say_line(lines, left);
    }
    begin(lines);
}
