/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transfer/piece_picker.h"

#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/transport/wire.h"

/*
 * RANGE_MS: how long a range may take to come: if less, the next one is twice as long, from FIRST leaves on; if twice
 * as long, half. The time counts from when the line had nothing else to bring: so neither distance nor turns of loops
 * keep ranges short. RATE_MS: how long a rate is measured. PASSED_MS: how long who stands still is passed over.
 * SLOW_MS: what a slower source may still need at the end before another takes its range over.
 */
enum { RANGE_MS = 500, FIRST = 2, RATE_MS = 500, PASSED_MS = 10000, SLOW_MS = 2000, SHARES = 3 };
enum leaf { LEAF_MISSING, LEAF_ASKED, LEAF_HERE };
enum standing { SOURCE_NONE, SOURCE_GOOD, SOURCE_LOST, SOURCE_LIAR };

struct source {
    enum standing standing;
    uint32_t peer;
    uint32_t asks;
    uint32_t share;               /* leaves of a range */
    uint64_t whole_ms;            /* a range of it last became whole */
    bool gave;                    /* good leaves */
    uint64_t moved_ms, passed_ms; /* it last brought something, or was asked when idle; it is not asked before */
    uint64_t rate;                /* bytes a second; 0: not known */
    uint64_t rate_ms, rate_bytes; /* of the measurement under way */
};

struct ask {
    bool used, dropped; /* dropped: its leaves are others', and the caller is to be told */
    struct source *source;
    uint32_t first, end, at; /* leaves; those before `at` are here */
    uint64_t have;           /* bytes */
    uint64_t asked_ms;       /* last */
    uint64_t first_ms;       /* its first bytes came */
};

struct piece_picker {
    struct piece_picker_conf conf;
    uint8_t *leaves; /* enum leaf */
    uint32_t here, missing;
    uint32_t low;            /* none before it is missing */
    uint64_t received, good; /* bytes: all, and those of whole leaves that are here */
    uint32_t givers;
    struct source sources[PIECE_PICKER_SOURCES_MAX];
    struct ask asks[PIECE_PICKER_SOURCES_MAX * PIECE_PICKER_ASKS];
};

enum { ASKS_MAX = PIECE_PICKER_SOURCES_MAX * PIECE_PICKER_ASKS };

enum err piece_picker_new(const struct piece_picker_conf *conf, struct piece_picker **out)
{
    struct piece_picker *picker;
    *out = NULL;
    TRY(mem_new(1, sizeof *picker, "a state on its way in", &picker));
    picker->conf = *conf;
    picker->missing = conf->leaves_count;
    enum err err = mem_new(conf->leaves_count, 1, "a state on its way in", &picker->leaves);
    if (err != ERR_OK)
        mem_free(picker);
    else
        *out = picker;
    return err;
}

void piece_picker_free(struct piece_picker *picker)
{
    if (picker == NULL)
        return;
    mem_free(picker->leaves);
    mem_free(picker);
}

static struct source *find_source(struct piece_picker *picker, uint32_t peer)
{
    for (uint32_t i = 0; i < PIECE_PICKER_SOURCES_MAX; i++)
        if (picker->sources[i].standing != SOURCE_NONE && picker->sources[i].peer == peer)
            return &picker->sources[i];
    return NULL;
}

static uint64_t begin_of(const struct piece_picker *picker, uint32_t leaf)
{
    uint64_t at = (uint64_t)leaf * DIGEST_LEAF_BYTES;
    return at < picker->conf.bytes ? at : picker->conf.bytes;
}

/* ---- members ---- */

bool piece_picker_add(struct piece_picker *picker, uint32_t peer, uint64_t now_ms)
{
    struct source *source = find_source(picker, peer);
    for (uint32_t i = 0; i < PIECE_PICKER_SOURCES_MAX && source == NULL; i++)
        if (picker->sources[i].standing == SOURCE_NONE)
            source = &picker->sources[i];
    for (uint32_t i = 0; i < PIECE_PICKER_SOURCES_MAX && source == NULL; i++)
        if (picker->sources[i].standing == SOURCE_LOST && picker->sources[i].asks == 0)
            source = &picker->sources[i];
    if (source == NULL || source->standing == SOURCE_LIAR)
        return false;
    if (source->standing == SOURCE_NONE || source->peer != peer)
        *source = (struct source){.peer = peer, .share = FIRST, .moved_ms = now_ms};
    source->standing = SOURCE_GOOD;
    return true;
}

/* What of it is not here is asked of others. */
static void drop(struct piece_picker *picker, struct ask *ask)
{
    for (uint32_t i = ask->at; i < ask->end; i++)
        picker->leaves[i] = LEAF_MISSING;
    picker->missing += ask->end - ask->at;
    picker->low = ask->at < picker->low ? ask->at : picker->low;
    ask->dropped = true;
}

static void drop_all_of(struct piece_picker *picker, const struct source *source)
{
    for (uint32_t i = 0; i < ASKS_MAX; i++)
        if (picker->asks[i].used && !picker->asks[i].dropped && picker->asks[i].source == source)
            drop(picker, &picker->asks[i]);
}

static void leave(struct piece_picker *picker, uint32_t peer, enum standing standing)
{
    struct source *source = find_source(picker, peer);
    if (source == NULL || source->standing == SOURCE_LIAR)
        return;
    source->standing = standing;
    drop_all_of(picker, source);
}

void piece_picker_lose(struct piece_picker *picker, uint32_t peer)
{
    leave(picker, peer, SOURCE_LOST);
}

void piece_picker_condemn(struct piece_picker *picker, uint32_t peer)
{
    leave(picker, peer, SOURCE_LIAR);
}

/* ---- asking ---- */

static bool may_be_asked(const struct source *source, uint64_t now_ms)
{
    return source->standing == SOURCE_GOOD && source->asks < PIECE_PICKER_ASKS && now_ms >= source->passed_ms;
}

/* Whether somebody else could bring what this one does not. */
static bool another(const struct piece_picker *picker, const struct source *source, uint64_t now_ms)
{
    for (uint32_t i = 0; i < PIECE_PICKER_SOURCES_MAX; i++) {
        const struct source *other = &picker->sources[i];
        if (other != source && other->standing == SOURCE_GOOD && now_ms >= other->passed_ms)
            return true;
    }
    return false;
}

static void pass_over_who_stands(struct piece_picker *picker, uint64_t now_ms)
{
    for (uint32_t i = 0; i < PIECE_PICKER_SOURCES_MAX; i++) {
        struct source *source = &picker->sources[i];
        if (source->standing != SOURCE_GOOD || source->asks == 0 ||
            now_ms < source->moved_ms + PIECE_PICKER_STANDS_MS || !another(picker, source, now_ms))
            continue;
        source->passed_ms = now_ms + PASSED_MS;
        source->rate = 0;
        source->share = FIRST;
        drop_all_of(picker, source);
    }
}

/* Milliseconds that a source will need for so much; by what it brings, or has brought of late. */
static uint64_t needs_ms(const struct source *source, uint64_t bytes, uint64_t now_ms)
{
    if (source->rate > 0)
        return bytes * 1000 / source->rate;
    return now_ms - source->moved_ms > RANGE_MS ? UINT64_MAX / 4 : 0;
}

static uint64_t left_of(const struct piece_picker *picker, const struct ask *ask)
{
    return begin_of(picker, ask->end) - begin_of(picker, ask->first) - ask->have;
}

static uint64_t left_with(const struct piece_picker *picker, const struct ask *ask)
{
    uint64_t left = 0;
    for (uint32_t i = 0; i < ASKS_MAX; i++) {
        const struct ask *other = &picker->asks[i];
        if (other->used && !other->dropped && other->source == ask->source)
            left += left_of(picker, other);
    }
    return left;
}

/* Nothing is missing any more but what others are asked for: who is idle takes a range over that it brings in half the
 * time, if that time is long. */
static void take_over(struct piece_picker *picker, const struct source *idle, uint64_t now_ms)
{
    for (uint32_t i = 0; i < ASKS_MAX && idle->rate > 0; i++) {
        struct ask *ask = &picker->asks[i];
        if (!ask->used || ask->dropped || ask->source == idle)
            continue;
        uint64_t theirs_ms = needs_ms(ask->source, left_with(picker, ask), now_ms);
        if (theirs_ms <= SLOW_MS || theirs_ms <= 2 * needs_ms(idle, left_of(picker, ask), now_ms))
            continue;
        ask->source->passed_ms = now_ms + SLOW_MS;
        drop(picker, ask);
        return;
    }
}

static void take_over_at_the_end(struct piece_picker *picker, uint64_t now_ms)
{
    for (uint32_t i = 0; i < PIECE_PICKER_SOURCES_MAX && picker->missing == 0; i++)
        if (picker->sources[i].asks == 0 && may_be_asked(&picker->sources[i], now_ms))
            take_over(picker, &picker->sources[i], now_ms);
}

/* How many leaves a source is asked for: no more than its part of what is left, so that several end at about the same
 * time. One alone has nobody to share with. */
static uint32_t share_of(const struct piece_picker *picker, const struct source *source, uint64_t now_ms)
{
    uint32_t askable = 0;
    for (uint32_t i = 0; i < PIECE_PICKER_SOURCES_MAX; i++)
        askable += picker->sources[i].standing == SOURCE_GOOD && now_ms >= picker->sources[i].passed_ms;
    uint32_t part = askable > 1 ? picker->missing / (SHARES * askable) : picker->missing;
    uint32_t share = source->share < part ? source->share : part;
    return share > 0 ? share : 1;
}

/* A range is whole: how long may the next one be? What was asked for while another one came began when that had. */
static void grow(struct source *source, const struct ask *ask, uint64_t now_ms)
{
    uint64_t begin_ms = ask->first_ms > source->whole_ms ? ask->first_ms : source->whole_ms;
    uint64_t took_ms = now_ms - begin_ms;
    if (took_ms <= RANGE_MS && ask->end - ask->first >= source->share)
        source->share = source->share * 2 < WIRE_LEAVES_MAX ? source->share * 2 : WIRE_LEAVES_MAX;
    else if (took_ms > (uint64_t)2 * RANGE_MS && source->share > 1)
        source->share /= 2;
    source->whole_ms = now_ms;
}

static bool ask_one(struct piece_picker *picker, struct source *source, uint64_t now_ms, struct piece_range *range)
{
    struct ask *ask = NULL;
    for (uint32_t i = 0; i < ASKS_MAX && ask == NULL; i++)
        if (!picker->asks[i].used)
            ask = &picker->asks[i];
    if (ask == NULL)
        return false;
    while (picker->leaves[picker->low] != LEAF_MISSING)
        picker->low++;
    uint32_t first = picker->low, end = first, most = share_of(picker, source, now_ms);
    while (end < picker->conf.leaves_count && end - first < most && picker->leaves[end] == LEAF_MISSING)
        picker->leaves[end++] = LEAF_ASKED;
    picker->missing -= end - first;
    if (source->asks++ == 0) {
        source->moved_ms = source->rate_ms = now_ms;
        source->rate_bytes = 0;
    }
    *ask = (struct ask){.used = true, .source = source, .first = first, .end = end, .at = first, .asked_ms = now_ms};
    *range = (struct piece_range){.peer = source->peer, .first = first, .count = end - first};
    return true;
}

static struct piece_range range_of(const struct ask *ask)
{
    return (struct piece_range){.peer = ask->source->peer, .first = ask->first, .count = ask->end - ask->first};
}

/* Requests may be lost; whoever has one twice goes on where it is. */
static bool ask_again(struct piece_picker *picker, uint64_t now_ms, struct piece_range *range)
{
    for (uint32_t i = 0; i < ASKS_MAX; i++) {
        struct ask *ask = &picker->asks[i];
        if (!ask->used || ask->dropped || now_ms < ask->source->moved_ms + PIECE_PICKER_STANDS_MS ||
            now_ms < ask->asked_ms + PIECE_PICKER_STANDS_MS)
            continue;
        ask->asked_ms = now_ms;
        *range = range_of(ask);
        return true;
    }
    return false;
}

/* The one with the fewest ranges under way; NULL: nobody may be asked. */
static struct source *whom(struct piece_picker *picker, uint64_t now_ms)
{
    struct source *best = NULL;
    for (uint32_t i = 0; i < PIECE_PICKER_SOURCES_MAX; i++) {
        struct source *source = &picker->sources[i];
        if (may_be_asked(source, now_ms) && (best == NULL || source->asks < best->asks))
            best = source;
    }
    return best;
}

bool piece_picker_next(struct piece_picker *picker, uint64_t now_ms, enum piece_picker_do *what,
                       struct piece_range *range)
{
    pass_over_who_stands(picker, now_ms);
    take_over_at_the_end(picker, now_ms);
    for (uint32_t i = 0; i < ASKS_MAX; i++) {
        struct ask *ask = &picker->asks[i];
        if (!ask->used || !ask->dropped)
            continue;
        *what = PIECE_PICKER_DROP;
        *range = range_of(ask);
        ask->source->asks--;
        ask->used = false;
        return true;
    }
    *what = PIECE_PICKER_ASK_AGAIN;
    if (ask_again(picker, now_ms, range))
        return true;
    struct source *source = picker->missing > 0 ? whom(picker, now_ms) : NULL;
    *what = PIECE_PICKER_ASK;
    return source != NULL && ask_one(picker, source, now_ms, range);
}

/* ---- coming in ---- */

static struct ask *find_ask(const struct piece_picker *picker, const struct piece_range *range)
{
    for (uint32_t i = 0; i < ASKS_MAX; i++) {
        const struct ask *ask = &picker->asks[i];
        if (ask->used && !ask->dropped && ask->source->peer == range->peer && ask->first == range->first &&
            ask->end - ask->first == range->count)
            return (struct ask *)(uintptr_t)ask;
    }
    return NULL;
}

bool piece_picker_place(const struct piece_picker *picker, const struct piece_range *range, uint8_t **to,
                        uint64_t *bytes)
{
    const struct ask *ask = find_ask(picker, range);
    if (ask == NULL)
        return false;
    *to = picker->conf.body + begin_of(picker, ask->first);
    *bytes = begin_of(picker, ask->end) - begin_of(picker, ask->first);
    return true;
}

static void measure(struct source *source, uint64_t bytes, uint64_t now_ms)
{
    source->moved_ms = now_ms;
    source->rate_bytes += bytes;
    if (now_ms < source->rate_ms + RATE_MS)
        return;
    uint64_t rate = source->rate_bytes * 1000 / (now_ms - source->rate_ms);
    source->rate = source->rate > 0 ? (source->rate + rate) / 2 : rate;
    source->rate_ms = now_ms;
    source->rate_bytes = 0;
}

static bool good_leaf(const struct piece_picker *picker, uint32_t leaf)
{
    struct digest digest = digest_tree_leaf(picker->conf.body, (size_t)picker->conf.bytes, leaf);
    return memcmp(digest.byte, picker->conf.digests + (size_t)leaf * DIGEST_BYTES, DIGEST_BYTES) == 0;
}

bool piece_picker_in(struct piece_picker *picker, const struct piece_range *range, uint64_t have, uint64_t now_ms)
{
    struct ask *ask = find_ask(picker, range);
    if (ask == NULL || have <= ask->have)
        return true;
    struct source *source = ask->source;
    measure(source, have - ask->have, now_ms);
    picker->received += have - ask->have;
    ask->first_ms = ask->have == 0 ? now_ms : ask->first_ms;
    ask->have = have;
    while (ask->at < ask->end && begin_of(picker, ask->at + 1) - begin_of(picker, ask->first) <= have) {
        if (!good_leaf(picker, ask->at)) {
            piece_picker_condemn(picker, source->peer);
            return false;
        }
        picker->givers += !source->gave;
        source->gave = true;
        picker->good += begin_of(picker, ask->at + 1) - begin_of(picker, ask->at);
        picker->leaves[ask->at++] = LEAF_HERE;
        picker->here++;
    }
    if (ask->at == ask->end) {
        grow(source, ask, now_ms);
        ask->used = false;
        source->asks--;
    }
    return true;
}

/* ---- looking in ---- */

bool piece_picker_whole(const struct piece_picker *picker)
{
    return picker->here == picker->conf.leaves_count;
}

bool piece_picker_has(const struct piece_picker *picker, uint32_t peer)
{
    const struct source *source = find_source((struct piece_picker *)(uintptr_t)picker, peer);
    return source != NULL && source->standing == SOURCE_GOOD;
}

uint32_t piece_picker_sources(const struct piece_picker *picker)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PIECE_PICKER_SOURCES_MAX; i++)
        count += picker->sources[i].standing == SOURCE_GOOD;
    return count;
}

uint64_t piece_picker_received(const struct piece_picker *picker)
{
    return picker->received;
}

uint64_t piece_picker_bytes(const struct piece_picker *picker)
{
    return picker->good;
}

uint32_t piece_picker_givers(const struct piece_picker *picker)
{
    return picker->givers;
}
