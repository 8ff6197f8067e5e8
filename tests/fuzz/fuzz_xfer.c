/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers under members that say anything: chunks, acknowledgements and ends of objects under way, in any order, of
 * any length. Five bytes make one event; buffers are exactly as large as the receiver said. */
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "net/transfer/xfer.h"
#include "tests/lib/fuzz.h"

enum { BUFFERS = 4, BUFFER_BYTES = 3000, EVENT_BYTES = 5, PEERS = 3 };

static uint8_t *buffers[BUFFERS];
static bool busy[BUFFERS]; /* complete, and read by a job */

/* Ids are not slots. */
static bool maker(void *user, uint32_t peer, const struct wire_key *key)
{
    (void)user;
    return key->island == peer + 3;
}

static enum xfer_verdict offer(void *user, uint32_t peer, const struct wire_key *key, uint64_t total,
                               struct xfer_offer *out)
{
    (void)user;
    (void)peer;
    (void)total;
    out->answer = (enum wire_done)(1 + key->version % 5);
    if (key->version % 4 == 3 || busy[key->fragment % BUFFERS])
        return XFER_ANSWER;
    out->buffer = buffers[key->fragment % BUFFERS];
    out->bytes_max = BUFFER_BYTES;
    return XFER_TAKE;
}

static void send_all(struct xfer *xfer, uint8_t mask, uint64_t now_ms)
{
    struct bitset blocked = bitset_of_word(mask);
    struct xfer_chunk out;
    struct xfer_message message;
    for (int i = 0; i < 20 && xfer_next(xfer, &blocked, &out); i++) {
        volatile uint8_t last = out.bytes > 0 ? out.data[out.bytes - 1] : 0; /* read where a socket would */
        (void)last;
        xfer_sent(xfer, &out, now_ms);
    }
    while (xfer_message(xfer, &message)) {
    }
}

static void chunk_in(struct xfer *xfer, uint32_t peer, const struct wire_key *key, uint8_t a, uint8_t b,
                     uint64_t now_ms)
{
    static const uint8_t data[1024];
    uint64_t whole;
    static const uint64_t totals[] = {100, 1024, 2048, BUFFER_BYTES, BUFFER_BYTES + 1, 4096, (uint64_t)1 << 50};
    struct wire_chunk chunk = {.key = *key, .pass = a / 7 % 3, .total = totals[a % 7], .data = data};
    chunk.offset = b < 240 ? b % 5 * 1024u : b * 64u;
    chunk.bytes = b % 7 == 0 ? 16 : b % 7 == 1 ? 0 : 1024;
    if (chunk.offset > chunk.total)
        return; /* wire_chunk_get() lets none of these through */
    if (chunk.bytes > chunk.total - chunk.offset)
        chunk.bytes = (size_t)(chunk.total - chunk.offset);
    if (xfer_chunk_in(xfer, peer, &chunk, 0, now_ms, &whole) != XFER_COMPLETE)
        return;
    if (whole > BUFFER_BYTES)
        abort();
    busy[key->fragment % BUFFERS] = true;
    memset(buffers[key->fragment % BUFFERS], 1, (size_t)whole);
}

static void ack_in(struct xfer *xfer, uint32_t peer, const struct wire_key *key, const uint8_t *e, uint64_t now_ms)
{
    struct wire_ack ack = {.key = *key,
                           .have = e[3] < 250 ? e[3] * 64u : UINT64_MAX,
                           .ask = (enum wire_ask)(e[4] % WIRE_ASKS),
                           .pass = e[4] / 16 % 3};
    (void)xfer_ack_in(xfer, peer, &ack, now_ms);
    if (xfer_outstanding(xfer, peer) > UINT64_MAX / 2)
        abort(); /* more settled than was sent */
}

static void event(struct xfer *xfer, const uint8_t *e, uint64_t *now_ms)
{
    static uint8_t object[5000];
    uint32_t peer = e[1] % PEERS;
    struct wire_key key = {.kind = 1 + e[1] / 3 % 2, .fragment = e[2] % 2, .version = e[2] / 2 % 4};
    switch (e[0] % 10) {
    case 0:
    case 1:
    case 2: chunk_in(xfer, peer, &key, e[3], e[4], *now_ms); break;
    case 3: ack_in(xfer, peer, &key, e, *now_ms); break;
    case 4: (void)xfer_done_in(xfer, peer, &key, (enum wire_done)e[3], *now_ms); break;
    case 5:
        if (e[3] < 128)
            xfer_ask(xfer, peer);
        else
            xfer_set_limit(xfer, peer, &(struct xfer_limit){.window = e[4] * 64u, .chunk = 1 + e[3] * 8u});
        break;
    case 6: (void)!xfer_send(xfer, peer, &key, object, 1 + e[3] * 19u, e[4] & 1, *now_ms); break;
    case 7:
        busy[key.fragment % BUFFERS] = false;
        xfer_finish(xfer, peer, &key, (enum wire_done)(1 + e[3] % 5));
        break;
    case 8:
        if (e[3] < 30)
            xfer_reset_peer(xfer, peer);
        else if (e[3] < 60)
            xfer_cancel(xfer, key.kind, key.fragment, key.version);
        break;
    case 9:
        *now_ms += e[3] * 16u;
        if (e[4] >= 128) /* ticks come late now and then */
            xfer_tick(xfer, *now_ms);
        break;
    }
    send_all(xfer, e[4] % 8, *now_ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct xfer_conf conf = {
        .peers_count = PEERS, .outgoing_max = 8, .incoming_max = 8, .offer = offer, .maker = maker};
    struct xfer *xfer;
    uint64_t now_ms = 1000;
    if (xfer_new(&conf, &xfer) != ERR_OK)
        return 0;
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = malloc(BUFFER_BYTES);
        busy[i] = false;
    }
    for (size_t at = 0; at + EVENT_BYTES <= bytes && buffers[BUFFERS - 1] != NULL; at += EVENT_BYTES)
        event(xfer, data + at, &now_ms);
    for (int i = 0; i < BUFFERS; i++)
        free(buffers[i]);
    xfer_free(xfer);
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    if (digest_init() != ERR_OK)
        return 1;
    return fuzz_replay("xfer", LLVMFuzzerTestOneInput, 4000);
}
#endif
