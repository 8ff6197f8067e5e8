/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/played.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "tests/lib/testlib.h"

enum { PIECE_BYTES = 64 << 10, CONTROL_MAX = 64, BULK_MAX = 32, EPOCH_MAX = 64 };

struct played_control {
    enum wire_type type;
    size_t bytes;
    uint8_t payload[WIRE_CONTROL_BYTES_MAX];
};

struct played_epoch {
    uint32_t type;
    size_t bytes;
    uint8_t *payload;
};

struct played_bulk {
    size_t bytes;
    uint8_t payload[WIRE_CHUNK_HEADER_BYTES + WIRE_CHUNK_BYTES_MAX];
};

struct played *played_open(struct isle_run *run, uint32_t self, uint64_t run_tag, const struct ident *as)
{
    struct played *played = calloc(1, sizeof *played);
    struct link_member members[ISLE_MAX] = {{.name = NULL}};
    assert_non_null(played);
    played->control = calloc(CONTROL_MAX, sizeof *played->control);
    played->bulk = calloc(BULK_MAX, sizeof *played->bulk);
    played->epoch = calloc(EPOCH_MAX, sizeof *played->epoch);
    assert_true(played->control != NULL && played->bulk != NULL && played->epoch != NULL);
    for (uint32_t i = 0; i < run->count; i++) {
        members[i].name = isle_names[i];
        members[i].address = i != self ? run->addresses[i] : NULL;
        memcpy(members[i].key, run->idents[i].key, sizeof members[i].key);
    }
    struct link_conf conf = {.ident = as != NULL ? as : &run->idents[self],
                             .listen = "127.0.0.1:*",
                             .members = members,
                             .members_count = run->count,
                             .self = self,
                             .run_tag = run_tag != 0 ? run_tag : isle_run_tag(run),
                             .io_threads = 1};
    played->run = run;
    played->self = self;
    played->session = 70 + self;
    assert_ok(link_new(&conf, &played->link));
    snprintf(run->addresses[self], sizeof run->addresses[self], "127.0.0.1:%u", link_port(played->link));
    isle_watch(played->link);
    return played;
}

const char *played_connection_key(const struct ident *ident)
{
    static char text[IDENT_TEXT_BYTES];
    ident_text(ident->curve_key, text);
    return text;
}

void played_close(struct played *played)
{
    isle_unwatch(played->link);
    link_free(played->link);
    for (size_t i = 0; i < played->epoch_count; i++)
        free(played->epoch[i].payload);
    free(played->epoch);
    free(played->control);
    free(played->bulk);
    free(played);
}

/* ---- hearing ---- */

static void keep_epoch(struct played_epoch *to, const struct link_message *message)
{
    to->type = message->header.type;
    to->bytes = message->bytes;
    to->payload = malloc(message->bytes + 1);
    assert_non_null(to->payload);
    memcpy(to->payload, message->payload, message->bytes);
}

/* Takes in what is there, as far as there is room for it; of the epoch protocol the first ones. */
static void take_in(struct played *played)
{
    struct link_message message;
    while (played->control_count < CONTROL_MAX && played->bulk_count < BULK_MAX &&
           link_recv(played->link, &message) == ERR_OK) {
        enum wire_type type = message.header.type;
        if (type == WIRE_CHUNK) {
            struct played_bulk *to = &played->bulk[(played->bulk_head + played->bulk_count++) % BULK_MAX];
            to->bytes = message.bytes;
            memcpy(to->payload, message.payload, message.bytes);
        } else if (wire_is_epoch(type)) {
            if (played->epoch_count < EPOCH_MAX)
                keep_epoch(&played->epoch[played->epoch_count++], &message);
        } else if (type != WIRE_BULK_HELLO) {
            struct played_control *to =
                &played->control[(played->control_head + played->control_count++) % CONTROL_MAX];
            to->type = type;
            to->bytes = message.bytes;
            memcpy(to->payload, message.payload, message.bytes);
        }
    }
}

bool played_heard(struct played *played)
{
    take_in(played);
    if (played->control_count == 0)
        return false;
    const struct played_control *from = &played->control[played->control_head];
    assert_ok(wire_unpack(from->type, from->payload, from->bytes, &played->in));
    played->control_head = (played->control_head + 1) % CONTROL_MAX;
    played->control_count--;
    return true;
}

static bool heard_chunk(struct played *played)
{
    take_in(played);
    if (played->bulk_count == 0)
        return false;
    const struct played_bulk *from = &played->bulk[played->bulk_head];
    assert_ok(wire_chunk_get(from->payload, from->bytes, &played->chunk));
    memcpy(played->data, played->chunk.data, played->chunk.bytes);
    played->chunk.data = played->data;
    played->bulk_head = (played->bulk_head + 1) % BULK_MAX;
    played->bulk_count--;
    return true;
}

bool played_heard_type(struct played *played, enum wire_type type)
{
    if (type == WIRE_CHUNK)
        return heard_chunk(played);
    while (played_heard(played))
        if (played->in.type == type)
            return true;
    return false;
}

const struct wire_heartbeat *played_next_beat(struct played *played)
{
    isle_wait(played_heard_type(played, WIRE_HEARTBEAT));
    return &played->in.heartbeat;
}

static const struct wire_key *key_of(const struct played *played, enum wire_type type)
{
    switch (type) {
    case WIRE_CHUNK: return &played->chunk.key;
    case WIRE_ACK: return &played->in.ack.key;
    case WIRE_DONE: return &played->in.done.key;
    default: return &played->in.fetch.key;
    }
}

bool played_heard_of(struct played *played, enum wire_type type, const struct wire_key *key)
{
    while (played_heard_type(played, type))
        if (wire_key_equal(key_of(played, type), key))
            return true;
    return false;
}

/* ---- saying ---- */

struct wire_hello *played_hello(struct played *played)
{
    struct wire_hello *hello = &played->out.hello;
    played->out.type = WIRE_HELLO;
    *hello = (struct wire_hello){
        .run_id = played->run->spec.digest, .session = played->session, .island = played->self, .window_kib = 1024};
    hello->word = (struct member_word){.number = 1,
                                       .uplink = played->run->uplinks[played->self],
                                       .units = (uint32_t)(played->run->spec.batch * played->run->spec.accumulate)};
    member_word_sign(&played->run->idents[played->self], played->run->nonce, played->self, &hello->word);
    snprintf(hello->name, sizeof hello->name, "%s", isle_names[played->self]);
    snprintf(hello->software, sizeof hello->software, "a test");
    return hello;
}

struct wire_heartbeat *played_beat(struct played *played)
{
    struct wire_heartbeat *beat = &played->out.heartbeat;
    played->out.type = WIRE_HEARTBEAT;
    memset(beat, 0, sizeof *beat);
    beat->session = played->session;
    beat->sequence = ++played->sequence;
    beat->fragments_count = ISLE_FRAGMENTS;
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++)
        beat->fragments[f].fragment = f;
    return beat;
}

void played_holds(struct wire_heartbeat *beat, uint32_t f, uint32_t owner, const struct digest *digest)
{
    struct wire_fragment *row = &beat->fragments[f];
    if (row->held_count == 0)
        row->held_first = beat->held_count;
    assert_int_equal(row->held_first + row->held_count, beat->held_count); /* a row's stand together */
    assert_true(beat->held_count < WIRE_HELD_MAX);
    struct wire_held *held = &beat->held[beat->held_count++];
    row->held_count++;
    held->owner = owner;
    memcpy(held->tag, digest->byte, sizeof held->tag);
}

void played_hold_the_same(struct played *played, uint32_t to, uint32_t fragments, uint64_t version)
{
    struct wire_heartbeat beat = {.session = played->session, .fragments_count = fragments};
    for (uint32_t said = 0; said < fragments;) {
        isle_wait(played_heard_type(played, WIRE_HEARTBEAT));
        const struct wire_heartbeat *in = &played->in.heartbeat;
        for (uint32_t i = 0; i < in->fragments_count; i++) {
            const struct wire_fragment *row = &in->fragments[i];
            struct wire_fragment *ours = &beat.fragments[row->fragment];
            if (row->at.version + 1 != version || row->held_count == 0 || ours->held_count > 0)
                continue;
            *ours = *row;
            ours->held_first = beat.held_count;
            memcpy(&beat.held[beat.held_count], &in->held[row->held_first], row->held_count * sizeof beat.held[0]);
            beat.held_count += row->held_count;
            said++;
        }
    }
    beat.sequence = ++played->sequence;
    played->out.type = WIRE_HEARTBEAT;
    played->out.heartbeat = beat;
    played_say(played, to);
}

void played_say(struct played *played, uint32_t to)
{
    isle_wait((take_in(played), link_up(played->link, to, false)));
    assert_ok(link_say(played->link, to, &played->out));
}

void played_say_epoch(struct played *played, uint32_t to, const struct paxos_message *message)
{
    uint8_t *bytes;
    size_t count;
    assert_ok(wire_paxos_pack(message, &bytes, &count));
    isle_wait((take_in(played), link_up(played->link, to, false)));
    assert_ok(link_send(played->link, to, (enum wire_type)message->type, bytes, count, NULL, 0));
    mem_free(bytes);
}

bool played_heard_epoch(struct played *played, struct paxos_message *message)
{
    take_in(played);
    if (played->epoch_count == 0)
        return false;
    struct played_epoch first = played->epoch[0];
    memmove(played->epoch, played->epoch + 1, --played->epoch_count * sizeof first);
    assert_ok(wire_paxos_unpack(first.type, first.payload, first.bytes, message));
    free(first.payload);
    return true;
}

void played_say_done(struct played *played, uint32_t to, const struct wire_key *key, enum wire_done status)
{
    played->out.type = WIRE_DONE;
    played->out.done.key = *key;
    played->out.done.status = (uint32_t)status;
    played_say(played, to);
}

void played_say_ack(struct played *played, uint32_t to, const struct wire_key *key, uint64_t have, bool resume)
{
    played->out.type = WIRE_ACK;
    played->out.ack.key = *key;
    played->out.ack.have = have;
    played->out.ack.ask = resume ? WIRE_ASK_GO_ON : WIRE_ASK_NOTHING;
    played->out.ack.pass = played->chunk.pass;
    played_say(played, to);
}

void played_say_fetch(struct played *played, uint32_t to, const struct wire_key *key)
{
    played->out.type = WIRE_FETCH;
    played->out.fetch.key = *key;
    played_say(played, to);
}

void played_send_chunk(struct played *played, uint32_t to, const struct wire_key *key, uint64_t total, uint64_t offset,
                       const void *data, size_t bytes)
{
    uint8_t head[WIRE_CHUNK_HEADER_BYTES];
    struct wire_chunk chunk = {.key = *key, .total = total, .offset = offset};
    wire_chunk_put(&chunk, head);
    isle_wait((take_in(played), link_up(played->link, to, true)));
    assert_ok(link_send(played->link, to, WIRE_CHUNK, head, sizeof head, data, bytes));
}

void played_send(struct played *played, uint32_t to, const struct wire_key *key, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE_BYTES)
        played_send_chunk(played, to, key, bytes, at, (const uint8_t *)data + at,
                          bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES);
}

void played_greet(struct played *played, struct isle *to)
{
    played_hello(played);
    played_say(played, to->self);
    isle_wait(peers_info(to->peers, played->self).up);
}

int played_settle(struct played *played, uint32_t to, enum wire_type type)
{
    static const struct wire_key nothing = {.kind = WIRE_STATE, .version = 123456789};
    int count = 0;
    played_say_fetch(played, to, &nothing);
    do {
        isle_wait(played_heard(played));
        count += played->in.type == type;
    } while (played->in.type != WIRE_DONE || !wire_key_equal(&played->in.done.key, &nothing));
    return count;
}
