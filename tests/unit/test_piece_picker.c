/* SPDX-License-Identifier: Apache-2.0 */
/* piece_picker: a body comes whole from whoever brings it; who lies, dies, stands still or is slow costs little. In
 * virtual time: each source has a line of its own, on which its ranges come one behind the other. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/env.h"
#include "net/transfer/piece_picker.h"
#include "net/transport/wire.h"

enum { LEAF = DIGEST_LEAF_BYTES, PEERS = 6, LINE_MAX = 64, STEP_MS = 10, NEVER = 1 << 30 };

struct line {
    uint64_t rate; /* bytes a second */
    uint64_t dies_ms, back_ms;
    uint64_t stands_ms, goes_ms; /* nothing comes between these */
    int lies;                    /* from this leaf on; -1: never */
    bool told;                   /* that it is dead */
    bool shuffled;               /* its ranges come in pieces, in any order */
    uint64_t far_ms;             /* from asking to the first byte */
    unsigned deaf;               /* so many requests are lost */
    struct piece_range ranges[LINE_MAX];
    uint64_t have[LINE_MAX];  /* of each */
    uint64_t ready[LINE_MAX]; /* likewise: when it begins to come; NEVER: the request was lost */
    size_t count;
    uint64_t sent, begun, again; /* bytes; ranges; of these asked for again */
    bool caught;
};

static struct {
    uint8_t *body, *got, *digests;
    uint64_t bytes, now_ms;
    uint32_t leaves;
    int *asked_of; /* of each leaf: who is to bring it; -1: nobody */
    bool *here;
    struct piece_picker *picker;
    struct line lines[PEERS];
} w;

static void setup(uint64_t bytes)
{
    memset(&w, 0, sizeof w);
    w.bytes = bytes;
    w.leaves = (uint32_t)digest_tree_leaves(bytes);
    w.body = malloc(bytes);
    w.got = calloc(1, bytes);
    w.digests = malloc((size_t)w.leaves * DIGEST_BYTES);
    w.asked_of = malloc(w.leaves * sizeof *w.asked_of);
    w.here = calloc(w.leaves, sizeof *w.here);
    struct env_rng rng = env_rng_init(bytes, 3);
    for (uint64_t i = 0; i < bytes; i++)
        w.body[i] = (uint8_t)(i % 4096 == 0 ? env_rng_u64(&rng) : i * 7 + i / LEAF);
    for (uint32_t i = 0; i < w.leaves; i++) {
        struct digest leaf = digest_tree_leaf(w.body, bytes, i);
        memcpy(w.digests + (size_t)i * DIGEST_BYTES, leaf.byte, DIGEST_BYTES);
        w.asked_of[i] = -1;
    }
    const struct piece_picker_conf conf = {
        .digests = w.digests, .leaves_count = w.leaves, .bytes = bytes, .body = w.got};
    assert_ok(piece_picker_new(&conf, &w.picker));
    for (uint32_t i = 0; i < PEERS; i++)
        w.lines[i] =
            (struct line){.dies_ms = NEVER, .back_ms = NEVER, .stands_ms = NEVER, .goes_ms = NEVER, .lies = -1};
}

static void teardown(void)
{
    piece_picker_free(w.picker);
    free(w.body);
    free(w.got);
    free(w.digests);
    free(w.asked_of);
    free(w.here);
}

static void add(uint32_t peer, uint64_t rate)
{
    w.lines[peer].rate = rate;
    assert_true(piece_picker_add(w.picker, peer, w.now_ms));
}

static void take_off(struct line *line, size_t i)
{
    for (line->count--; i < line->count; i++) {
        line->ranges[i] = line->ranges[i + 1];
        line->have[i] = line->have[i + 1];
        line->ready[i] = line->ready[i + 1];
    }
}

/* What is asked for was missing, and of nobody else; what is dropped was asked for. */
static void follow(enum piece_picker_do what, const struct piece_range *range)
{
    struct line *line = &w.lines[range->peer];
    assert_true(range->count > 0 && range->count <= WIRE_LEAVES_MAX && range->first + range->count <= w.leaves);
    if (what == PIECE_PICKER_DROP) {
        size_t i = 0;
        while (i < line->count && line->ranges[i].first != range->first)
            i++;
        if (i < line->count)
            take_off(line, i);
        for (uint32_t k = range->first; k < range->first + range->count; k++)
            if (!w.here[k])
                w.asked_of[k] = -1;
        return;
    }
    assert_false(line->caught);
    if (what == PIECE_PICKER_ASK_AGAIN) { /* it is under way, as far as anyone knows */
        size_t i = 0;
        while (line->ranges[i].first != range->first)
            assert_true(++i < line->count);
        assert_int_equal(line->ranges[i].count, range->count);
        line->ready[i] = line->ready[i] == NEVER ? w.now_ms + line->far_ms : line->ready[i];
        line->again++;
        return;
    }
    assert_true(line->count < PIECE_PICKER_ASKS);
    for (uint32_t k = range->first; k < range->first + range->count; k++) {
        assert_false(w.here[k]);
        assert_int_equal(w.asked_of[k], -1);
        w.asked_of[k] = (int)range->peer;
    }
    line->ready[line->count] = line->deaf > 0 ? NEVER : w.now_ms + line->far_ms;
    line->deaf -= line->deaf > 0;
    line->ranges[line->count] = *range;
    line->have[line->count++] = 0;
    line->begun++;
}

static void ask(void)
{
    enum piece_picker_do what;
    struct piece_range range;
    while (piece_picker_next(w.picker, w.now_ms, &what, &range))
        follow(what, &range);
}

static void note_here(const struct piece_range *range, uint64_t have)
{
    for (uint32_t k = range->first; k < range->first + range->count; k++) {
        uint64_t end = (uint64_t)(k + 1) * LEAF < w.bytes ? (uint64_t)(k + 1) * LEAF : w.bytes;
        w.here[k] |= end - (uint64_t)range->first * LEAF <= have;
    }
}

/* The range that comes next; as many as there are: none. */
static size_t next_of(const struct line *line)
{
    size_t which = line->shuffled && line->count > 0 ? (size_t)(w.now_ms / STEP_MS + line->sent) % line->count : 0;
    for (size_t i = 0; i < line->count; i++, which = (which + 1) % line->count)
        if (w.now_ms >= line->ready[which])
            return which;
    return line->count;
}

/* Some of the range at the front of a line comes, or of any. */
static void bring(uint32_t peer, uint64_t budget)
{
    struct line *line = &w.lines[peer];
    for (size_t which; budget > 0 && (which = next_of(line)) < line->count;) {
        const struct piece_range range = line->ranges[which];
        uint8_t *to;
        uint64_t bytes, at = line->have[which], from = (uint64_t)range.first * LEAF + at;
        assert_true(piece_picker_place(w.picker, &range, &to, &bytes));
        assert_ptr_equal(to, w.got + (uint64_t)range.first * LEAF);
        uint64_t part = bytes - at < budget ? bytes - at : budget;
        memcpy(to + at, w.body + from, part);
        bool lie = line->lies >= 0 && (from + part - 1) / LEAF >= (uint64_t)line->lies;
        if (lie)
            to[at + part - 1] ^= 1;
        line->sent += part;
        budget -= part;
        line->have[which] = at + part;
        if (!piece_picker_in(w.picker, &range, at + part, w.now_ms)) {
            assert_true(line->lies >= 0 && !line->caught);
            line->caught = true;
            ask();
            return;
        }
        note_here(&range, at + part);
        if (at + part == bytes)
            take_off(line, which);
        ask();
    }
}

static void step(void)
{
    w.now_ms += STEP_MS;
    for (uint32_t i = 0; i < PEERS; i++) {
        struct line *line = &w.lines[i];
        bool dead = w.now_ms >= line->dies_ms && w.now_ms < line->back_ms;
        bool stands = w.now_ms >= line->stands_ms && w.now_ms < line->goes_ms;
        if (dead && !line->told && w.now_ms >= line->dies_ms + 500) /* as heartbeats tell */
            piece_picker_lose(w.picker, i);
        line->told |= dead && w.now_ms >= line->dies_ms + 500;
        if (line->told && w.now_ms >= line->back_ms) {
            assert_int_equal(piece_picker_add(w.picker, i, w.now_ms), !line->caught);
            line->told = false;
            line->dies_ms = NEVER;
        }
        if (!dead && !stands)
            bring(i, line->rate * STEP_MS / 1000);
    }
    ask();
}

static void run(uint64_t until_ms)
{
    ask();
    while (!piece_picker_whole(w.picker) && w.now_ms < until_ms)
        step();
}

static uint64_t sent(void)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < PEERS; i++)
        bytes += w.lines[i].sent;
    return bytes;
}

static void assert_got(void)
{
    assert_true(piece_picker_whole(w.picker));
    assert_memory_equal(w.got, w.body, w.bytes);
    assert_int_equal(piece_picker_bytes(w.picker), w.bytes);
}

/* ---- what it is for ---- */

static uint64_t time_from(uint32_t sources)
{
    setup(400 * LEAF + 17);
    for (uint32_t i = 0; i < sources; i++)
        add(i, 1 << 20);
    run(NEVER);
    assert_got();
    assert_int_equal(sent(), w.bytes); /* nothing twice */
    assert_int_equal(piece_picker_givers(w.picker), sources);
    for (uint32_t i = 0; i < sources; i++)
        assert_true(w.lines[i].sent * sources * 10 > w.bytes * 8);
    uint64_t ms = w.now_ms;
    teardown();
    return ms;
}

static void three_sources_take_a_third_of_the_time(void **state)
{
    (void)state;
    uint64_t one = time_from(1), three = time_from(3);
    assert_in_range(one, 25000, 25200); /* the line is never idle */
    assert_true(three * 10 < one * 4);
}

/* What comes of a line that could bring `rate` from each of so many, that far away: its part of the bytes that it could
 * have brought, in hundredths. */
static uint64_t share_of(uint32_t sources, uint64_t rate, uint64_t far_ms)
{
    setup(1200 * LEAF + 17);
    for (uint32_t i = 0; i < sources; i++) {
        w.lines[i].far_ms = far_ms;
        add(i, rate);
    }
    run(NEVER);
    assert_got();
    assert_int_equal(sent(), w.bytes);
    uint64_t share = w.bytes * 100 * 1000 / (rate * sources) / w.now_ms;
    teardown();
    return share;
}

/* 10 Mbit/s to 8 Gbit/s, near; and as far as the bytes are many: two requests to begin with, and the line is full. */
static void a_line_is_full_whatever_it_carries(void **state)
{
    (void)state;
    for (uint64_t rate = 1250000; rate <= 1000000000; rate *= 10)
        for (uint32_t sources = 1; sources <= 4; sources += 3)
            if (rate * sources <= 100000000)
                assert_in_range(share_of(sources, rate, 0), 90, 100);
    assert_in_range(share_of(1, 12500000, 40), 90, 100); /* 6.3 s */
    assert_in_range(share_of(4, 3125000, 40), 85, 100);
    assert_in_range(share_of(1, 1250000, 300), 90, 100);
    assert_in_range(share_of(1, 12500000, 200), 70, 100);
}

/* Alone: nobody else has what it was asked for. */
static void a_request_that_is_lost_is_made_again(void **state)
{
    (void)state;
    setup(100 * LEAF);
    w.lines[2].deaf = 2;
    add(2, 1 << 20);
    run(60000);
    assert_got();
    assert_in_range(w.lines[2].again, 2, 2);
    assert_int_equal(sent(), w.bytes);
    assert_in_range(w.now_ms, PIECE_PICKER_STANDS_MS + 6000, PIECE_PICKER_STANDS_MS + 8000);
    teardown();
}

/* A tenth of it is left: what was asked for while it was fast is no more than some seconds of it now. */
static void a_line_that_drops_to_a_tenth_is_followed(void **state)
{
    (void)state;
    setup(600 * LEAF);
    add(0, 4 << 20);
    add(1, 4 << 20);
    for (int i = 0; i < 200; i++) /* half of it */
        step();
    w.lines[1].rate /= 10;
    run(60000);
    assert_got();
    assert_in_range(w.now_ms, 5000, 8200); /* 2 s for 16 MiB, and the rest at 4.4 MiB/s; two leaves' worth at the end */
    assert_true(sent() <= w.bytes + 4 * LEAF);
    teardown();
}

static void any_length_comes_whole(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {1, LEAF - 1, LEAF, LEAF + 1, 2 * LEAF, 5 * LEAF - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        setup(lengths[i]);
        add(0, 1 << 22);
        add(1, 1 << 22);
        run(NEVER);
        assert_got();
        assert_int_equal(sent(), w.bytes);
        teardown();
    }
}

/* ---- sources that go ---- */

/* At most the leaf that it was at is sent again, and that by the others, both of whom bring something. */
static void a_source_that_dies_costs_a_leaf(void **state)
{
    (void)state;
    for (uint64_t dies_ms = 300; dies_ms < 9000; dies_ms += 730) {
        setup(400 * LEAF);
        for (uint32_t i = 0; i < 3; i++)
            add(i, 1 << 20);
        w.lines[1].dies_ms = dies_ms;
        run(60000);
        assert_got();
        assert_true(sent() <= w.bytes + LEAF);
        assert_true(w.lines[1].sent > 0 || dies_ms < 500);
        assert_true(w.lines[0].sent * 4 > w.bytes && w.lines[2].sent * 4 > w.bytes);
        teardown();
    }
}

static void what_came_stays_when_all_sources_go_and_one_comes_back(void **state)
{
    (void)state;
    setup(100 * LEAF);
    add(0, 1 << 20);
    add(1, 1 << 20);
    w.lines[0].dies_ms = w.lines[1].dies_ms = 2000;
    run(20000);
    assert_false(piece_picker_whole(w.picker));
    assert_int_equal(piece_picker_sources(w.picker), 0);
    uint64_t before = piece_picker_bytes(w.picker);
    assert_true(before > 50 * LEAF);
    add(4, 1 << 20); /* another one has it */
    run(60000);
    assert_got();
    assert_true(w.lines[4].sent == w.bytes - before);
    teardown();
}

static void who_restarts_is_asked_again(void **state)
{
    (void)state;
    setup(300 * LEAF);
    add(0, 1 << 20);
    add(1, 1 << 18);
    w.lines[0].dies_ms = 2000;
    w.lines[0].back_ms = 6000;
    run(90000);
    assert_got();
    assert_true(w.now_ms < 30000); /* the slow one alone takes 75 s */
    assert_true(sent() <= w.bytes + 2 * LEAF);
    teardown();
}

/* ---- liars ---- */

static void a_liar_is_found_at_the_leaf_and_not_asked_again(void **state)
{
    (void)state;
    setup(300 * LEAF);
    for (uint32_t i = 0; i < 3; i++)
        add(i, 1 << 20);
    w.lines[1].lies = 100;
    run(60000);
    assert_got(); /* follow() sees that it is not asked again */
    assert_true(w.lines[1].caught);
    assert_false(piece_picker_add(w.picker, 1, w.now_ms)); /* whatever it says now */
    assert_int_equal(piece_picker_sources(w.picker), 2);
    assert_true(sent() <= w.bytes + 2 * LEAF);
    teardown();
}

static void where_all_lie_nothing_is_whole(void **state)
{
    (void)state;
    setup(20 * LEAF);
    for (uint32_t i = 0; i < 3; i++) {
        add(i, 1 << 20);
        w.lines[i].lies = 0;
    }
    run(20000);
    assert_false(piece_picker_whole(w.picker));
    assert_int_equal(piece_picker_sources(w.picker), 0);
    assert_int_equal(piece_picker_bytes(w.picker), 0);
    teardown();
}

/* One that breaks its word otherwise: what it was asked for goes to others. */
static void who_is_condemned_is_asked_for_nothing(void **state)
{
    (void)state;
    setup(50 * LEAF);
    add(0, 1 << 20);
    add(1, 1 << 20);
    ask();
    assert_int_equal(w.lines[1].count, PIECE_PICKER_ASKS);
    struct piece_range range = w.lines[1].ranges[0], other = range;
    uint8_t *to;
    uint64_t bytes;
    piece_picker_condemn(w.picker, 1);
    assert_false(piece_picker_place(w.picker, &range, &to, &bytes));
    assert_true(piece_picker_in(w.picker, &range, LEAF, w.now_ms)); /* late, and of no account */
    w.lines[1].caught = true;
    run(20000);
    assert_got();
    assert_int_equal(w.lines[1].sent, 0);
    other.peer = 0;
    assert_false(piece_picker_place(w.picker, &other, &to, &bytes)); /* all is here */
    teardown();
}

/* As many more come as it has places for sources: what the first one brought is here all the same. */
static void what_is_here_is_told_when_its_source_has_gone(void **state)
{
    (void)state;
    setup(50 * LEAF);
    add(0, 1 << 20);
    ask();
    run(100);
    uint64_t here = piece_picker_bytes(w.picker);
    assert_true(here > 0 && !piece_picker_whole(w.picker));
    for (uint32_t peer = 0; peer <= PIECE_PICKER_SOURCES_MAX; peer++) {
        assert_true(piece_picker_add(w.picker, 100 + peer, w.now_ms));
        piece_picker_lose(w.picker, peer == 0 ? 0 : 99 + peer);
    }
    assert_int_equal(piece_picker_bytes(w.picker), here);
    assert_int_equal(piece_picker_givers(w.picker), 1);
    teardown();
}

/* ---- slow ones ---- */

static void who_stands_still_is_passed_over_while_there_is_another(void **state)
{
    (void)state;
    setup(300 * LEAF);
    add(0, 1 << 20);
    add(1, 1 << 20);
    w.lines[1].stands_ms = 1000;
    w.lines[1].goes_ms = 100000;
    run(60000);
    assert_got();
    assert_true(w.now_ms < 25000);
    assert_true(sent() <= w.bytes + 4 * LEAF);
    teardown();
    /* Alone it is waited for, and nothing is sent twice. */
    setup(40 * LEAF);
    add(1, 1 << 20);
    w.lines[1].stands_ms = 1000;
    w.lines[1].goes_ms = 9000;
    run(60000);
    assert_got();
    assert_int_equal(sent(), w.bytes);
    teardown();
}

static void at_the_end_nobody_waits_for_the_slowest(void **state)
{
    (void)state;
    setup(200 * LEAF);
    add(0, 1 << 21);
    add(1, 1 << 13); /* 8 s a leaf */
    run(120000);
    assert_got();
    assert_true(w.now_ms < 12000);
    assert_true(sent() <= w.bytes + w.bytes / 10);
    teardown();
}

/* ---- anything at all ---- */

static void line_of(struct env_rng *rng, struct line *line)
{
    line->rate = (uint64_t)1 << (13 + env_rng_below(rng, 10));
    if (env_rng_below(rng, 3) == 0) {
        line->dies_ms = env_rng_below(rng, 20000);
        line->back_ms = env_rng_below(rng, 2) == 0 ? line->dies_ms + 1000 + env_rng_below(rng, 9000) : NEVER;
    }
    if (env_rng_below(rng, 3) == 0) {
        line->stands_ms = env_rng_below(rng, 20000);
        line->goes_ms = line->stands_ms + env_rng_below(rng, 20000);
    }
    line->shuffled = env_rng_below(rng, 2) == 0;
    line->lies = env_rng_below(rng, 4) == 0 ? (int)env_rng_below(rng, w.leaves) : -1;
}

static void any_mixture_ends_with_the_right_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= testlib_seeds(300); seed++) {
        struct env_rng rng = env_rng_init(seed, 9);
        setup(1 + env_rng_below(&rng, 60 * LEAF));
        add(0, 1 << 18); /* one that keeps its word */
        for (uint32_t i = 1; i < PEERS; i++) {
            line_of(&rng, &w.lines[i]);
            add(i, w.lines[i].rate);
        }
        run(1000000);
        assert_got();
        assert_false(w.lines[0].caught);
        teardown();
    }
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_sources_take_a_third_of_the_time),
        cmocka_unit_test(a_line_is_full_whatever_it_carries),
        cmocka_unit_test(a_request_that_is_lost_is_made_again),
        cmocka_unit_test(a_line_that_drops_to_a_tenth_is_followed),
        cmocka_unit_test(any_length_comes_whole),
        cmocka_unit_test(a_source_that_dies_costs_a_leaf),
        cmocka_unit_test(what_came_stays_when_all_sources_go_and_one_comes_back),
        cmocka_unit_test(who_restarts_is_asked_again),
        cmocka_unit_test(a_liar_is_found_at_the_leaf_and_not_asked_again),
        cmocka_unit_test(where_all_lie_nothing_is_whole),
        cmocka_unit_test(who_is_condemned_is_asked_for_nothing),
        cmocka_unit_test(what_is_here_is_told_when_its_source_has_gone),
        cmocka_unit_test(who_stands_still_is_passed_over_while_there_is_another),
        cmocka_unit_test(at_the_end_nobody_waits_for_the_slowest),
        cmocka_unit_test(any_mixture_ends_with_the_right_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
