/* SPDX-License-Identifier: Apache-2.0 */
/* congestion_window: a line of any rate and length is full, and what waits in its queues is short. */
#include "tests/lib/testlib.h"

#include <inttypes.h>
#include <stdlib.h>

#include "net/transfer/congestion_window.h"

enum { FLOWS_MAX = 4, QUEUE_MAX = 1 << 16, US = 1000000, CLOCKS_DIFFER_US = 77777777 };

struct packet {
    uint64_t at_us, bytes; /* when the answer is back */
    uint32_t delay_us;     /* one way, by clocks that differ */
    uint64_t queue_us;     /* both ways */
    unsigned flow;
};

/* As measured lately; 0: not known. */
static uint64_t bits_per_s(const struct congestion_window *congestion)
{
    return 8 * (congestion->rate.now > congestion->rate.before ? congestion->rate.now : congestion->rate.before);
}

/* A line that sends one byte after the other, `burst` of them at once after a rest, and has a long way after that. What
 * comes back waits behind other things, now more, now less. */
struct world {
    uint64_t now_us, rate, base_us, free_us; /* bytes per second; when what is queued will have left */
    uint64_t burst_us, reverse_us, back_us;  /* the wait at most; when the last answer is back */
    struct congestion_window flows[FLOWS_MAX];
    unsigned flows_count;
    bool busy[FLOWS_MAX]; /* has something to send */
    struct packet *packets;
    size_t head, count;
    uint64_t delivered[FLOWS_MAX], queue_max_us;
};

static struct world *new_world(uint64_t bits, uint64_t base_us, unsigned flows)
{
    struct world *w = calloc(1, sizeof *w);
    w->packets = calloc(QUEUE_MAX, sizeof *w->packets);
    w->rate = bits / 8;
    w->base_us = base_us;
    w->now_us = 1000000000;
    w->flows_count = flows;
    w->burst_us = (uint64_t)8192 * US / w->rate;
    for (unsigned i = 0; i < flows; i++) {
        w->flows[i] = congestion_window_init(w->now_us);
        w->busy[i] = true;
    }
    return w;
}

static void free_world(struct world *w)
{
    free(w->packets);
    free(w);
}

static void send_one(struct world *w, unsigned flow)
{
    uint64_t bytes = congestion_window_chunk_bytes(&w->flows[flow]);
    uint64_t earliest = w->now_us > w->burst_us ? w->now_us - w->burst_us : 0;
    w->free_us = w->free_us > earliest ? w->free_us : earliest; /* a token bucket */
    w->free_us += bytes * US / w->rate;
    uint64_t leaves_us = w->free_us > w->now_us ? w->free_us : w->now_us;
    uint64_t queue_us = leaves_us - w->now_us;
    uint64_t back_us = leaves_us + w->base_us + (w->reverse_us > 0 ? leaves_us / 10 % w->reverse_us : 0);
    w->back_us = back_us > w->back_us ? back_us : w->back_us;
    w->queue_max_us = queue_us > w->queue_max_us ? queue_us : w->queue_max_us;
    assert_true(w->count < QUEUE_MAX);
    w->packets[(w->head + w->count++) % QUEUE_MAX] =
        (struct packet){.at_us = w->back_us,
                        .bytes = bytes,
                        .queue_us = w->back_us - w->now_us - w->base_us,
                        .delay_us = (uint32_t)(queue_us + w->base_us / 2 - CLOCKS_DIFFER_US),
                        .flow = flow};
    congestion_window_sent(&w->flows[flow], bytes, w->now_us);
}

/* Runs for so long, in steps of what a busy loop takes. */
static void run(struct world *w, uint64_t us)
{
    uint64_t end_us = w->now_us + us;
    for (; w->now_us < end_us; w->now_us += 200) {
        while (w->count > 0 && w->packets[w->head].at_us <= w->now_us) {
            struct packet p = w->packets[w->head];
            w->head = (w->head + 1) % QUEUE_MAX;
            w->count--;
            w->delivered[p.flow] += p.bytes;
            congestion_window_look(&w->flows[p.flow], &(struct congestion_socket){.queue_us = p.queue_us});
            congestion_window_delivered(&w->flows[p.flow], p.bytes, p.delay_us, w->now_us);
        }
        for (unsigned i = 0; i < w->flows_count; i++)
            congestion_window_look(&w->flows[i], &(struct congestion_socket){0});
        bool sent = true;
        while (sent) {
            sent = false;
            for (unsigned i = 0; i < w->flows_count; i++) {
                struct congestion_window *congestion = &w->flows[i];
                if (!w->busy[i] || (congestion_window_flight(congestion) > 0 &&
                                    congestion_window_flight(congestion) + congestion_window_chunk_bytes(congestion) >
                                        congestion_window_now(congestion)))
                    continue;
                send_one(w, i);
                sent = true;
            }
        }
    }
}

static uint64_t measure(struct world *w, uint64_t us, uint64_t *queue_ms)
{
    uint64_t before = 0, after = 0;
    for (unsigned i = 0; i < w->flows_count; i++)
        before += w->delivered[i];
    w->queue_max_us = 0;
    run(w, us);
    for (unsigned i = 0; i < w->flows_count; i++)
        after += w->delivered[i];
    *queue_ms = w->queue_max_us / 1000;
    return (after - before) * 1000 / (w->rate * us / US); /* thousandths of what the line carries */
}

static const uint64_t rates[] = {1000000, 2000000, 10000000, 100000000, 1000000000};
static const uint64_t bases_us[] = {200, 20000, 100000, 300000};

enum {
    SHARE_MIN = 950,
    EVEN_MIN = 200,
    LONG_MIN_SHARE = 100,
    QUEUE_MS_MAX = 200,
    START_QUEUE_MS_MAX = 300,
    REVERSE_MS = 100
};

static void assert_full_and_short(uint64_t bits, uint64_t base_us, uint64_t reverse_us)
{
    struct world *w = new_world(bits, base_us, 1);
    uint64_t queue_ms, start_queue_ms;
    w->reverse_us = reverse_us;
    measure(w, 12 * US, &start_queue_ms);
    uint64_t share = measure(w, 60 * US, &queue_ms);
    if (share < SHARE_MIN || queue_ms > QUEUE_MS_MAX + reverse_us / 2000 ||
        start_queue_ms > START_QUEUE_MS_MAX + reverse_us / 1000)
        fail_msg("%" PRIu64 " Mbit/s, %" PRIu64 " ms: %" PRIu64 "/1000 of it used, %" PRIu64 " ms of queue, %" PRIu64
                 " ms at the start",
                 bits / 1000000, base_us / 1000, share, queue_ms, start_queue_ms);
    /* The bucket's burst counts. */
    assert_in_range(bits_per_s(&w->flows[0]), bits * 9 / 10, bits * 2);
    free_world(w);
}

static void a_line_is_full_and_its_queue_short(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++)
        for (size_t b = 0; b < sizeof bases_us / sizeof *bases_us; b++)
            assert_full_and_short(rates[r], bases_us[b], 0);
}

/* Answers wait behind what the peer sends us: that is not our queue. */
static void what_comes_the_other_way_does_not_matter(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++)
        for (size_t b = 0; b < sizeof bases_us / sizeof *bases_us; b++)
            assert_full_and_short(rates[r], bases_us[b], REVERSE_MS * 1000);
}

static void a_line_that_changes_is_followed(void **state)
{
    (void)state;
    static const uint64_t changes[][2] = {
        {10000000, 1000000}, {1000000, 10000000}, {100000000, 2000000}, {2000000, 100000000}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct world *w = new_world(changes[i][0], 40000, 1);
        uint64_t queue_ms;
        run(w, 10 * US);
        w->rate = changes[i][1] / 8;
        run(w, 15 * US);
        uint64_t share = measure(w, 20 * US, &queue_ms);
        if (share < SHARE_MIN || queue_ms > QUEUE_MS_MAX)
            fail_msg("from %" PRIu64 " to %" PRIu64 ": %" PRIu64 "/1000, %" PRIu64 " ms", changes[i][0], changes[i][1],
                     share, queue_ms);
        free_world(w);
    }
}

/* Several peers behind one line: each keeps its part of the queue, whoever came first. */
static void flows_share_a_line(void **state)
{
    (void)state;
    struct world *w = new_world(10000000, 40000, 3);
    uint64_t queue_ms, before[3];
    w->busy[1] = w->busy[2] = false;
    run(w, 10 * US);
    w->busy[1] = true;
    run(w, 10 * US);
    w->busy[2] = true;
    run(w, 40 * US);
    for (unsigned i = 0; i < 3; i++)
        before[i] = w->delivered[i];
    uint64_t share = measure(w, 60 * US, &queue_ms);
    assert_in_range(share, SHARE_MIN, 1010);
    assert_in_range(queue_ms, 1, QUEUE_MS_MAX);
    for (unsigned i = 0; i < 3; i++) /* nobody starves */
        assert_true((w->delivered[i] - before[i]) * 1000 / (w->rate * 60) > 150);
    free_world(w);
}

/* One that was cut off, or has just begun and sees the other's queue, comes to its share, too: slowly on long lines. */
static void assert_even(uint64_t bits, uint64_t base_us)
{
    struct world *w = new_world(bits, base_us, 2);
    bool is_long = base_us > 100000;
    uint64_t least = is_long ? LONG_MIN_SHARE : EVEN_MIN;
    uint64_t queue_most = QUEUE_MS_MAX + (uint64_t)2 * CONGESTION_CHUNK_MIN * 8000 / bits;
    uint64_t queue_ms, before[2];
    w->busy[1] = false;
    run(w, 10 * US);
    w->flows[1].starting = false;
    w->busy[1] = true;
    run(w, is_long ? 100 * US : 20 * US);
    for (unsigned i = 0; i < 2; i++)
        before[i] = w->delivered[i];
    uint64_t share = measure(w, 20 * US, &queue_ms);
    uint64_t of_late = (w->delivered[1] - before[1]) * 1000 / (w->rate * 20);
    if (share < SHARE_MIN || queue_ms > queue_most || of_late < least || of_late > 1000 - EVEN_MIN)
        fail_msg("%" PRIu64 " Mbit/s, %" PRIu64 " ms: %" PRIu64 "/1000 used, %" PRIu64
                 " of them by who came late, %" PRIu64 " ms of queue",
                 bits / 1000000, base_us / 1000, share, of_late, queue_ms);
    free_world(w);
}

static void who_comes_late_gets_its_share(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++)
        for (size_t b = 0; b < sizeof bases_us / sizeof *bases_us; b++)
            assert_even(rates[r], bases_us[b]);
}

/* A rest, or objects too small to fill it, make the line no slower. */
static void a_rest_makes_nothing_forgotten(void **state)
{
    (void)state;
    struct world *w = new_world(10000000, 40000, 1);
    uint64_t queue_ms;
    run(w, 10 * US);
    w->busy[0] = false;
    run(w, 60 * US);
    for (int i = 0; i < 100; i++) {
        send_one(w, 0);
        run(w, US / 2);
    }
    w->busy[0] = true;
    assert_in_range(measure(w, 2 * US, &queue_ms), SHARE_MIN, 1010);
    assert_in_range(queue_ms, 1, QUEUE_MS_MAX);
    free_world(w);
}

/* What is given up takes no place, and is not taken for delivered. */
static void what_is_given_up_is_not_delivered(void **state)
{
    (void)state;
    struct congestion_window congestion = congestion_window_init(0);
    congestion_window_sent(&congestion, 8000, 0);
    congestion_window_given_up(&congestion, 8000);
    assert_int_equal(congestion_window_flight(&congestion), 0);
    congestion_window_sent(&congestion, 8000, 1000);
    congestion_window_delivered(&congestion, 4000, 0, 101000);
    assert_int_equal(bits_per_s(&congestion), 0); /* half a chunk settles no mark */
    congestion_window_delivered(&congestion, 4000, 0, 101000);
    assert_int_equal(bits_per_s(&congestion), 8 * 80000);
}

/* Where TCP is slower than the line (it lost something): it always has something to send, and not much. */
static void what_waits_in_the_socket_is_little(void **state)
{
    (void)state;
    struct world *w = new_world(10000000, 40000, 1);
    struct congestion_window *congestion = &w->flows[0];
    run(w, 10 * US);
    uint64_t flight = congestion_window_flight(congestion), rate = bits_per_s(congestion) / 8;
    congestion_window_look(congestion, &(struct congestion_socket){.unsent = flight});
    assert_int_equal(congestion_window_now(congestion), flight);
    congestion_window_look(congestion, &(struct congestion_socket){.unsent = flight / 10});
    uint64_t room = congestion_window_now(congestion) - flight;
    assert_in_range(room, 1, rate * CONGESTION_QUEUE_MS / 1000);
    assert_true(congestion_window_now(congestion) > flight);
    congestion_window_sent(congestion, room, w->now_us); /* until the next look it counts as waiting */
    assert_int_equal(congestion_window_now(congestion), congestion_window_flight(congestion));
    free_world(w);
}

static uint64_t window_after_delay(bool retransmitted)
{
    struct world *w = new_world(10000000, 40000, 1);
    struct congestion_window *congestion = &w->flows[0];
    run(w, 10 * US);
    for (int i = 0; i < 200; i++) { /* everything comes half a second late */
        w->now_us += 10000;
        congestion_window_sent(congestion, 10000, w->now_us);
        congestion_window_look(
            congestion, &(struct congestion_socket){.retransmits = (uint64_t)i * retransmitted, .queue_us = 500000});
        congestion_window_delivered(congestion, congestion_window_flight(congestion),
                                    (uint32_t)(500000 - CLOCKS_DIFFER_US), w->now_us);
    }
    uint64_t window = congestion->window;
    free_world(w);
    return window;
}

static void what_tcp_sends_again_is_no_queue(void **state)
{
    (void)state;
    assert_true(4 * window_after_delay(true) > 5 * window_after_delay(false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_full_and_its_queue_short),
        cmocka_unit_test(what_comes_the_other_way_does_not_matter),
        cmocka_unit_test(a_line_that_changes_is_followed),
        cmocka_unit_test(flows_share_a_line),
        cmocka_unit_test(who_comes_late_gets_its_share),
        cmocka_unit_test(a_rest_makes_nothing_forgotten),
        cmocka_unit_test(what_is_given_up_is_not_delivered),
        cmocka_unit_test(what_waits_in_the_socket_is_little),
        cmocka_unit_test(what_tcp_sends_again_is_no_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
