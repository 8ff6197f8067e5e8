/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/gate/gate_door.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "worker/gate/gate_box.h"

enum { IO_THREADS = 2, SLICE_MS = 100, Z85_BYTES = 32, STRANGERS_MS = 10000 };
enum { ASKED_KINDS = GATE_ASKED_ENDING + 1 };
/* Of a request of ZAP's (https://rfc.zeromq.org/spec/27), behind what a REP socket takes off: its frames. */
enum { ZAP_VERSION, ZAP_REQUEST, ZAP_DOMAIN, ZAP_ADDRESS, ZAP_IDENTITY, ZAP_MECHANISM, ZAP_KEY, ZAP_FRAMES };
static const char zap_endpoint[] = "inproc://zeromq.zap.01";

struct rank {
    bool there, parted; /* there: by its connection for what is said */
    bool sends;         /* by that for pieces, too */
    char name[GATE_NAME_BYTES];
    struct gate_box box, pieces;
    uint64_t met; /* meetings that it has come to, and that are not over */
};

struct call {
    uint32_t call;
    zmq_msg_t bytes;
    struct call *next;
};

struct gate_door {
    const struct gate_zmq *zmq;
    void *context, *socket, *zap;
    char build[GATE_BUILD_BYTES];
    uint8_t rank_key[Z85_BYTES];
    struct log_limit strangers, refusals;
    uint64_t group, form_ms, form_until_ms, beat_ms;
    struct rank *ranks; /* NULL: nobody has come */
    uint32_t count, there;
    struct call *calls;
    bool asked[ASKED_KINDS];
    uint64_t asked_value[ASKED_KINDS];
    bool lost;
    char why[GATE_TEXT_BYTES];
};

/* ---- the end of a group ---- */

void gate_door_dismiss(struct gate_door *door, const char *why)
{
    if (door->lost)
        return;
    door->lost = true;
    snprintf(door->why, sizeof door->why, "%s", why);
    for (uint32_t r = 0; r < door->count; r++)
        if (door->ranks[r].there && !door->ranks[r].parted)
            (void)!gate_box_say(&door->ranks[r].box, GATE_LOST, 0, 0, door->why, strlen(door->why) + 1);
}

static void rank_is_gone(struct gate_door *door, uint32_t r)
{
    char why[GATE_TEXT_BYTES];
    snprintf(why, sizeof why, "%s is gone, or the way from it to the gateway", door->ranks[r].name);
    door->ranks[r].parted = true; /* it is told nothing */
    gate_door_dismiss(door, why);
}

/* ---- who comes ---- */

struct message {
    uint8_t route[GATE_ROUTE_BYTES];
    size_t route_bytes;
    struct gate_head head;
    zmq_msg_t body;
};

static void refuse(struct gate_door *door, const struct message *m, bool again, const char *why)
{
    struct gate_box stranger = {.zmq = door->zmq, .socket = door->socket, .route_bytes = m->route_bytes};
    memcpy(stranger.route, m->route, m->route_bytes);
    if (log_limit_pass(&door->refusals, env_mono_ms(), STRANGERS_MS))
        log_info("refused: %s", why);
    (void)!gate_box_say(&stranger, GATE_REFUSED, again, 0, why, strlen(why) + 1);
}

/* The first one of a group makes room for all. */
static bool begin_group(struct gate_door *door, const struct gate_hello *hello)
{
    if (hello->count == 0 || hello->count > GATE_RANKS_MAX ||
        mem_new(hello->count, sizeof *door->ranks, "ranks", &door->ranks) != ERR_OK)
        return false;
    door->group = hello->group;
    door->count = hello->count;
    door->form_until_ms = env_mono_ms() + door->form_ms;
    return true;
}

static void welcome(struct gate_door *door)
{
    for (uint32_t r = 0; r < door->count; r++)
        if (gate_box_say(&door->ranks[r].box, GATE_WELCOME, 0, 0, NULL, 0) != ERR_OK)
            rank_is_gone(door, r);
}

/* It is there when both its connections are. */
static void take_rank(struct gate_door *door, const struct message *m, const struct gate_hello *hello)
{
    struct rank *rank = &door->ranks[hello->rank];
    struct gate_box *box = hello->pieces != 0 ? &rank->pieces : &rank->box;
    *box = (struct gate_box){.zmq = door->zmq, .socket = door->socket, .route_bytes = m->route_bytes};
    memcpy(box->route, m->route, m->route_bytes);
    snprintf(rank->name, sizeof rank->name, "%s", hello->name);
    if (hello->pieces != 0)
        rank->sends = true;
    else
        rank->there = true;
    door->there += rank->there && rank->sends;
    if (door->there == door->count)
        welcome(door);
}

static void take_hello(struct gate_door *door, const struct message *m)
{
    struct gate_hello hello;
    char why[GATE_TEXT_BYTES];
    if (m->head.version != GATE_VERSION || door->zmq->zmq_msg_size((zmq_msg_t *)&m->body) != sizeof hello) {
        snprintf(why, sizeof why,
                 "the gateway has libdiloco %s, and a rank one of another protocol: install the same "
                 "package on all machines of an island",
                 door->build);
        refuse(door, m, false, why);
        return;
    }
    memcpy(&hello, door->zmq->zmq_msg_data((zmq_msg_t *)&m->body), sizeof hello);
    hello.build[sizeof hello.build - 1] = hello.name[sizeof hello.name - 1] = '\0';
    if (strcmp(hello.build, door->build) != 0) {
        snprintf(why, sizeof why,
                 "%s has libdiloco %s, and the gateway has %s: install the same package on all "
                 "machines of an island",
                 hello.name, hello.build, door->build);
        refuse(door, m, false, why);
        return;
    }
    if (door->ranks != NULL && hello.group != door->group) {
        snprintf(why, sizeof why, "the gateway has a trainer: %s%s; end it, or wait until it has ended",
                 door->ranks[0].there ? door->ranks[0].name : "one whose first rank is on its way",
                 door->count > 1 ? " and others" : "");
        refuse(door, m, true, why);
        return;
    }
    bool good = door->ranks != NULL || begin_group(door, &hello);
    good = good && hello.count == door->count && hello.rank < door->count;
    if (!good || (hello.pieces != 0 ? door->ranks[hello.rank].sends : door->ranks[hello.rank].there)) {
        snprintf(why, sizeof why, "%s: is rank %u of %u, which this group has not, or has already", hello.name,
                 hello.rank, hello.count);
        refuse(door, m, false, why);
        return;
    }
    take_rank(door, m, &hello);
}

/* ---- what they say ---- */

/* One that is not there has no route. */
static bool is_from(const struct gate_box *box, const struct message *m)
{
    return box->route_bytes > 0 && box->route_bytes == m->route_bytes &&
           memcmp(box->route, m->route, m->route_bytes) == 0;
}

static int rank_of(const struct gate_door *door, const struct message *m)
{
    for (uint32_t r = 0; r < door->count; r++)
        if (is_from(&door->ranks[r].box, m) || is_from(&door->ranks[r].pieces, m))
            return (int)r;
    return -1;
}

static enum err keep_call(struct gate_door *door, uint32_t number, zmq_msg_t *body)
{
    struct call *call, **at = &door->calls;
    if (door->zmq->zmq_msg_size(body) > GATE_CALL_BYTES_MAX)
        return err_set(ERR_PROTO, "a call of too many bytes");
    TRY(mem_new(1, sizeof *call, "a call", &call));
    call->call = number;
    door->zmq->zmq_msg_init(&call->bytes);
    door->zmq->zmq_msg_move(&call->bytes, body);
    while (*at != NULL)
        at = &(*at)->next;
    *at = call;
    return ERR_OK;
}

static void take(struct gate_door *door, struct message *m)
{
    int r = rank_of(door, m);
    enum err err = ERR_OK;
    if (m->head.kind == GATE_HELLO && r < 0)
        take_hello(door, m);
    if (r < 0)
        return;
    struct rank *rank = &door->ranks[r];
    switch ((enum gate_kind)m->head.kind) {
    case GATE_PIECE: err = gate_box_take(&rank->pieces, m->head.tag, &m->body); break;
    case GATE_MEET: rank->met++; break;
    case GATE_CALL: err = r == 0 ? keep_call(door, m->head.tag, &m->body) : ERR_OK; break;
    case GATE_ASKED:
        if (r == 0 && m->head.tag < ASKED_KINDS) {
            door->asked[m->head.tag] = true;
            door->asked_value[m->head.tag] = m->head.value;
        }
        break;
    case GATE_PARTS: rank->parted = true; break;
    default: break;
    }
    if (err != ERR_OK) {
        char why[GATE_TEXT_BYTES];
        snprintf(why, sizeof why, "%s: %.400s", rank->name, err_text());
        gate_door_dismiss(door, why);
    }
}

/* A message of three frames; all others are thrown away. False: there is none. */
static bool receive(struct gate_door *door)
{
    const struct gate_zmq *zmq = door->zmq;
    struct message m = {.route_bytes = 0};
    size_t frames = 0;
    bool more = true, good = true;
    zmq->zmq_msg_init(&m.body);
    for (; more; frames++) {
        zmq_msg_t frame;
        zmq->zmq_msg_init(&frame);
        if (zmq->zmq_msg_recv(&frame, door->socket, ZMQ_DONTWAIT) < 0) {
            zmq->zmq_msg_close(&frame);
            zmq->zmq_msg_close(&m.body);
            return false;
        }
        more = zmq->zmq_msg_more(&frame) != 0;
        size_t bytes = zmq->zmq_msg_size(&frame);
        if (frames == 0 && bytes <= sizeof m.route) {
            memcpy(m.route, zmq->zmq_msg_data(&frame), bytes);
            m.route_bytes = bytes;
        } else if (frames == 1 && bytes == sizeof m.head) {
            memcpy(&m.head, zmq->zmq_msg_data(&frame), bytes);
        } else if (frames == 2) {
            zmq->zmq_msg_move(&m.body, &frame);
        } else {
            good = false;
        }
        zmq->zmq_msg_close(&frame);
    }
    if (good && frames == 3 && m.head.magic == GATE_MAGIC)
        take(door, &m);
    zmq->zmq_msg_close(&m.body);
    return true;
}

/* Whoever connects proves a key: it is asked for here. */
static void let_in(struct gate_door *door)
{
    const struct gate_zmq *zmq = door->zmq;
    zmq_msg_t frame[ZAP_FRAMES];
    size_t count = 0;
    bool more = true;
    while (more) {
        zmq_msg_t one;
        zmq->zmq_msg_init(&one);
        if (zmq->zmq_msg_recv(&one, door->zap, ZMQ_DONTWAIT) < 0) {
            zmq->zmq_msg_close(&one);
            break;
        }
        more = zmq->zmq_msg_more(&one) != 0;
        if (count < ZAP_FRAMES)
            frame[count++] = one;
        else
            zmq->zmq_msg_close(&one);
    }
    bool ours = count == ZAP_FRAMES && zmq->zmq_msg_size(&frame[ZAP_KEY]) == sizeof door->rank_key &&
                memcmp(zmq->zmq_msg_data(&frame[ZAP_KEY]), door->rank_key, sizeof door->rank_key) == 0;
    if (count == ZAP_FRAMES && !ours && log_limit_pass(&door->strangers, env_mono_ms(), STRANGERS_MS))
        log_warn("somebody without this site's key at %.*s", (int)zmq->zmq_msg_size(&frame[ZAP_ADDRESS]),
                 (const char *)zmq->zmq_msg_data(&frame[ZAP_ADDRESS]));
    if (count > ZAP_REQUEST) {
        const char *rest[] = {ours ? "200" : "400", ours ? "" : "no such key", "", ""};
        struct gate_box answer = {.zmq = zmq, .socket = door->zap};
        (void)zmq->zmq_msg_send(&frame[ZAP_VERSION], answer.socket, ZMQ_SNDMORE);
        (void)zmq->zmq_msg_send(&frame[ZAP_REQUEST], answer.socket, ZMQ_SNDMORE);
        for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
            zmq_msg_t said;
            if (zmq->zmq_msg_init_size(&said, strlen(rest[i])) != 0)
                break;
            memcpy(zmq->zmq_msg_data(&said), rest[i], strlen(rest[i]));
            (void)zmq->zmq_msg_send(&said, answer.socket, i + 1 < sizeof rest / sizeof rest[0] ? ZMQ_SNDMORE : 0);
        }
    }
    for (size_t i = 0; i < count; i++)
        zmq->zmq_msg_close(&frame[i]);
}

/* Each second: a rank whose connection has ended takes nothing. */
static void beat(struct gate_door *door)
{
    uint64_t now_ms = env_mono_ms();
    char why[GATE_TEXT_BYTES];
    if (now_ms < door->beat_ms + GATE_BEAT_MS)
        return;
    door->beat_ms = now_ms;
    for (uint32_t r = 0; r < door->count && !door->lost; r++)
        if (door->ranks[r].there && !door->ranks[r].parted &&
            (gate_box_say(&door->ranks[r].box, GATE_BEAT, 0, 0, NULL, 0) != ERR_OK ||
             (door->ranks[r].sends && gate_box_say(&door->ranks[r].pieces, GATE_BEAT, 0, 0, NULL, 0) != ERR_OK)))
            rank_is_gone(door, r);
    if (door->count == 0 || door->there == door->count || now_ms < door->form_until_ms)
        return;
    uint32_t missing = 0;
    while (missing + 1 < door->count && door->ranks[missing].there && door->ranks[missing].sends)
        missing++;
    snprintf(why, sizeof why, "of %u ranks %u came to the gateway within %" PRIu64 " s; rank %u did not", door->count,
             door->there, (door->form_ms + 999) / 1000, missing);
    gate_door_dismiss(door, why);
}

void gate_door_turn(struct gate_door *door, int wait_ms)
{
    zmq_pollitem_t items[] = {{.socket = door->socket, .events = ZMQ_POLLIN},
                              {.socket = door->zap, .events = ZMQ_POLLIN}};
    (void)door->zmq->zmq_poll(items, 2, wait_ms);
    if ((items[1].revents & ZMQ_POLLIN) != 0)
        let_in(door);
    while (!door->lost && receive(door))
        ;
    beat(door);
}

/* ---- life ---- */

static bool set_int(struct gate_door *door, int option, int value)
{
    return door->zmq->zmq_setsockopt(door->socket, option, &value, sizeof value) == 0;
}

static enum err listen_there(struct gate_door *door, const char *listen, const struct gate_key *key)
{
    char endpoint[512];
    snprintf(endpoint, sizeof endpoint, "tcp://%s", listen);
    if (!set_int(door, ZMQ_CURVE_SERVER, 1) ||
        door->zmq->zmq_setsockopt(door->socket, ZMQ_CURVE_SECRETKEY, key->own_secret, GATE_KEY_TEXT) != 0 ||
        !set_int(door, ZMQ_ROUTER_MANDATORY, 1) || !set_int(door, ZMQ_SNDHWM, 0) || !set_int(door, ZMQ_RCVHWM, 0) ||
        !set_int(door, ZMQ_IPV6, 1) || !set_int(door, ZMQ_LINGER, GATE_LINGER_MS) ||
        !set_int(door, ZMQ_HANDSHAKE_IVL, GATE_HANDSHAKE_MS) || !set_int(door, ZMQ_HEARTBEAT_IVL, GATE_HEARTBEAT_MS) ||
        !set_int(door, ZMQ_HEARTBEAT_TIMEOUT, GATE_SILENCE_MS) || door->zmq->zmq_bind(door->socket, endpoint) != 0)
        return gate_zmq_failed(door->zmq, ERR_CONF, listen);
    return ERR_OK;
}

enum err gate_door_open(const struct gate_zmq *zmq, const char *listen, const char *build, const struct gate_key *key,
                        uint64_t form_ms, struct gate_door **out)
{
    struct gate_door *door;
    *out = NULL;
    TRY(mem_new(1, sizeof *door, "the door of ranks", &door));
    door->zmq = zmq;
    door->form_ms = form_ms;
    snprintf(door->build, sizeof door->build, "%s", build);
    enum err err = ERR_OK;
    if (zmq->zmq_z85_decode(door->rank_key, key->other_public) == NULL)
        err = err_set(ERR_CONF, "a key of ranks that is none");
    door->context = zmq->zmq_ctx_new();
    if (err == ERR_OK && (door->context == NULL || zmq->zmq_ctx_set(door->context, ZMQ_IO_THREADS, IO_THREADS) != 0))
        err = gate_zmq_failed(zmq, ERR_NOMEM, "the door of ranks");
    if (err == ERR_OK) {
        door->zap = zmq->zmq_socket(door->context, ZMQ_REP);
        door->socket = zmq->zmq_socket(door->context, ZMQ_ROUTER);
        if (door->zap == NULL || door->socket == NULL || zmq->zmq_bind(door->zap, zap_endpoint) != 0)
            err = gate_zmq_failed(zmq, ERR_NOMEM, "the door of ranks");
    }
    if (err == ERR_OK)
        err = listen_there(door, listen, key);
    if (err == ERR_OK)
        *out = door;
    else
        gate_door_close(door);
    return err;
}

void gate_door_close(struct gate_door *door)
{
    if (door == NULL)
        return;
    for (struct call *call = door->calls, *next; call != NULL; call = next) {
        next = call->next;
        door->zmq->zmq_msg_close(&call->bytes);
        mem_free(call);
    }
    if (door->socket != NULL)
        door->zmq->zmq_close(door->socket);
    if (door->zap != NULL)
        door->zmq->zmq_close(door->zap);
    if (door->context != NULL)
        door->zmq->zmq_ctx_term(door->context);
    for (uint32_t r = 0; r < door->count; r++) {
        gate_box_deinit(&door->ranks[r].box);
        gate_box_deinit(&door->ranks[r].pieces);
    }
    mem_free(door->ranks);
    mem_free(door);
}

/* ---- the group ---- */

uint32_t gate_door_count(const struct gate_door *door)
{
    return door->there == door->count ? door->count : 0;
}

const char *gate_door_name(const struct gate_door *door, uint32_t rank)
{
    return door->ranks[rank].name;
}

const char *gate_door_lost(const struct gate_door *door)
{
    return door->lost ? door->why : NULL;
}

bool gate_door_parted(const struct gate_door *door)
{
    bool all = door->count > 0;
    for (uint32_t r = 0; r < door->count; r++)
        all &= door->ranks[r].parted;
    return all;
}

bool gate_door_call(struct gate_door *door, uint32_t *call, void *bytes, size_t *count)
{
    struct call *first = door->calls;
    if (first == NULL || door->lost)
        return false;
    *call = first->call;
    *count = door->zmq->zmq_msg_size(&first->bytes);
    memcpy(bytes, door->zmq->zmq_msg_data(&first->bytes), *count);
    door->zmq->zmq_msg_close(&first->bytes);
    door->calls = first->next;
    mem_free(first);
    return true;
}

bool gate_door_asked(struct gate_door *door, enum gate_asked what, uint64_t *value)
{
    bool asked = door->asked[what];
    *value = door->asked_value[what];
    door->asked[what] = false;
    return asked;
}

bool gate_door_broadcast(struct gate_door *door, uint32_t ranks, const void *bytes, size_t count)
{
    for (uint32_t r = 0; r < ranks && !door->lost; r++)
        if (gate_box_say(&door->ranks[r].box, GATE_BROADCAST, 0, 0, bytes, count) != ERR_OK)
            rank_is_gone(door, r);
    return !door->lost;
}

static bool all_have_come(const struct gate_door *door, uint32_t ranks)
{
    bool all = true;
    for (uint32_t r = 0; r < ranks; r++)
        all &= door->ranks[r].met > 0;
    return all;
}

/* They hear that all have come when the gateway has, too. */
bool gate_door_meet(struct gate_door *door, uint32_t ranks)
{
    while (!door->lost && !all_have_come(door, ranks))
        gate_door_turn(door, SLICE_MS);
    for (uint32_t r = 0; r < ranks && !door->lost; r++) {
        door->ranks[r].met--;
        if (gate_box_say(&door->ranks[r].box, GATE_MEET, 0, 0, NULL, 0) != ERR_OK)
            rank_is_gone(door, r);
    }
    return !door->lost;
}

/* Numbers of all ranks are apart: that of the rank's own, and behind it which rank. */
static uint64_t numbered(struct gate_door *door, uint32_t rank, uint64_t number)
{
    if (number == 0)
        rank_is_gone(door, rank);
    return number != 0 ? number * GATE_RANKS_MAX + rank : 0;
}

uint64_t gate_door_send(struct gate_door *door, uint32_t rank, uint32_t tag, const void *bytes, size_t count)
{
    return door->lost ? 0 : numbered(door, rank, gate_box_send(&door->ranks[rank].pieces, tag, bytes, count));
}

uint64_t gate_door_receive(struct gate_door *door, uint32_t rank, uint32_t tag, void *bytes, size_t count)
{
    return door->lost ? 0 : numbered(door, rank, gate_box_receive(&door->ranks[rank].pieces, tag, bytes, count));
}

int gate_door_arrived(struct gate_door *door, uint64_t number, bool wait)
{
    struct gate_box *box = &door->ranks[number % GATE_RANKS_MAX].pieces;
    for (;;) {
        int there = gate_box_arrived(box, number / GATE_RANKS_MAX);
        if (there != 0)
            return there;
        if (door->lost)
            return -1;
        gate_door_turn(door, wait ? SLICE_MS : 0);
        if (!wait)
            return gate_box_arrived(box, number / GATE_RANKS_MAX);
    }
}
