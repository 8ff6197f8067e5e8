/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/join_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "common/mem.h"
#include "net/transport/address.h"
#include "net/transport/dial_listener.h"
#include "net/transport/socket.h"

/* AGAIN: an answer may be lost with its connection, so the question is repeated. TURN: how long one address is tried
 * before the next one is, longer than a handshake that hangs; CONNECT: as long as there is no connection. */
/* KNOCKS: so often all addresses are tried before those that do not admit us are believed. */
enum { AGAIN_MS = 2000, TURN_MS = 12000, CONNECT_MS = 3000, LOOK_MS = 50, KNOCKS = 3, PAUSE_MS = 300 };
enum { LATE_MS = 4000 }; /* longer than a run takes that can decide */
/* Of the dialling: longer than an inviter takes that tests, with one more owner. */
enum { DIAL_PATIENCE_MS = 12000 };

/* What was heard at an address, from least to most: the most is told. */
enum heard { HEARD_NOTHING, HEARD_CLOSED, HEARD_STRANGER, HEARD_UP, HEARDS };

struct ask {
    const struct join_client_conf *conf;
    void *context, *socket, *monitor;
    struct dial_listener *listener; /* as long as we ask to be dialled; NULL: we ask to be let in */
    struct wire_join join;          /* what we ask by */
    uint8_t payload[WIRE_JOIN_BYTES_MAX];
    size_t payload_bytes;
    uint64_t begin_ms, end_ms, decided_ms;
    uint64_t late_ms;     /* when to tell that there is no answer; UINT64_MAX: that was told */
    uint64_t dial_end_ms; /* until when an answer about dialling is waited for; 0: nobody was asked yet */
    enum heard heard[INVITE_ADDRESSES_MAX];
    bool up;
    bool anew;                     /* something else is to be said than before */
    char later[WIRE_REASON_BYTES]; /* why not yet, as we were told last; "": nobody said so */
    struct wire_joined *joined;
};

/* What is said from now on. */
static void sign(struct ask *ask, uint64_t number, uint8_t owner_choice)
{
    const struct join_client_conf *conf = ask->conf;
    ask->join = (struct wire_join){.invitation = invite_id(conf->invite),
                                   .witness = conf->witness,
                                   .word = {.number = number, .uplink = conf->uplink, .owner_choice = owner_choice}};
    snprintf(ask->join.name, sizeof ask->join.name, "%s", conf->name);
    snprintf(ask->join.word.address, sizeof ask->join.word.address, "%s", conf->address);
    if (ask->listener != NULL)
        wire_dial_request_sign(conf->ident, conf->invite->nonce, &ask->join);
    else
        wire_join_sign(conf->ident, conf->invite->nonce, &ask->join);
    ask->payload_bytes = wire_join_pack(&ask->join, ask->payload);
}

/* A question to be dialled is another one each time: what came of an older one is no answer to it. */
static enum err begin_dial(struct ask *ask)
{
    const struct join_client_conf *conf = ask->conf;
    if (conf->listen == NULL || conf->listen[0] == '\0' || conf->address[0] == '\0')
        return ERR_OK;
    TRY(dial_listener_new(ask->context, conf->listen, &ask->listener));
    sign(ask, 1 + env_random_u64() % (MEMBER_WORD_NUMBER_MAX - 1), conf->owner_choice);
    return ERR_OK;
}

/* From now on we ask to be let in. */
static void end_dial(struct ask *ask, const struct wire_dial_report *reports, uint32_t reports_count)
{
    const struct join_client_conf *conf = ask->conf;
    dial_listener_free(ask->listener);
    ask->listener = NULL;
    ask->anew = true;
    if (ask->late_ms != UINT64_MAX)
        ask->late_ms = env_mono_ms() + LATE_MS;
    sign(ask, 1, conf->dialled != NULL ? conf->dialled(conf->user, reports, reports_count) : conf->owner_choice);
}

static enum err prepare(struct ask *ask)
{
    const struct join_client_conf *conf = ask->conf;
    if (!wire_name_good(conf->name))
        return err_set(ERR_ARG, "the name \"%s\" must be 1 to %d letters, digits, '-' or '_'", conf->name,
                       WIRE_NAME_BYTES - 1);
    if (conf->address[0] != '\0' && !address_good(conf->address))
        return err_set(ERR_ARG, "the address \"%s\" is not host:port, as in oslo.example.org:7600", conf->address);
    if (env_wall_ms() / 1000 >= conf->invite->expiry_s)
        return err_set(ERR_STATE, "this invitation has expired (or this machine's clock is wrong); ask for another");
    sign(ask, 1, conf->owner_choice);
    ask->context = zmq_ctx_new();
    return ask->context != NULL ? begin_dial(ask) : socket_failed("cannot start ZeroMQ");
}

static enum err knock(struct ask *ask, uint32_t i)
{
    const struct invite *invite = ask->conf->invite;
    uint8_t server[IDENT_KEY_BYTES], key[IDENT_KEY_BYTES], secret[IDENT_KEY_BYTES];
    char route[SOCKET_ROUTE_BYTES];
    TRY(ident_curve(invite->inviter, server));
    invite_curve(invite, key, secret);
    struct socket_dial dial = {.address = invite->addresses[i],
                               .server = server,
                               .key = key,
                               .secret = secret,
                               .route = route,
                               .route_bytes = socket_route(ask->conf->ident->key, false, env_random_u64(), route),
                               .part_bytes_max = WIRE_JOINED_BYTES_MAX};
    return socket_dial(ask->context, &dial, &ask->socket, &ask->monitor);
}

static void hear(struct ask *ask, uint32_t i, enum heard heard)
{
    if (heard > ask->heard[i])
        ask->heard[i] = heard;
}

static void read_monitor(struct ask *ask, uint32_t i)
{
    uint16_t event;
    uint32_t value;
    while (socket_event(ask->monitor, &event, &value)) {
        if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
            hear(ask, i, HEARD_UP);
        else if (event == ZMQ_EVENT_CONNECTED)
            hear(ask, i, HEARD_CLOSED);
        else if (event != ZMQ_EVENT_DISCONNECTED) /* CURVE says nothing to who is not admitted: the handshake ends */
            hear(ask, i, HEARD_STRANGER);
        ask->up = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    }
}

static void say(struct ask *ask)
{
    const struct invite *invite = ask->conf->invite;
    uint8_t header[WIRE_HEADER_BYTES];
    struct wire_header fields = {.version = WIRE_VERSION,
                                 .type = ask->listener != NULL ? WIRE_DIAL_REQUEST : WIRE_JOIN,
                                 .run_tag = wire_run_tag(invite->nonce, &invite->run_id)};
    wire_header_put(&fields, header);
    /* One that does not go is repeated. */
    (void)!socket_send(ask->socket, &(struct socket_part){header, sizeof header}, 1,
                       &(struct socket_part){ask->payload, ask->payload_bytes}, &(struct socket_part){NULL, 0});
}

/* One of an older question, or that comes when we do not wait for it any more, is passed over. */
static enum err take_dialled(struct ask *ask, const void *payload, size_t bytes)
{
    struct wire_dial_response response;
    uint8_t tag[WIRE_DIAL_TAG_BYTES];
    TRY(wire_dial_response_unpack(payload, bytes, &response));
    wire_dial_tag(&ask->join, tag);
    if (ask->listener != NULL && memcmp(response.request, tag, sizeof tag) == 0)
        end_dial(ask, response.reports, response.reports_count);
    return ERR_AGAIN;
}

static enum err judge(struct ask *ask, const struct wire_header *header, const void *payload, size_t bytes)
{
    bool later;
    char reason[WIRE_REASON_BYTES];
    const struct invite *invite = ask->conf->invite;
    if (header->version != WIRE_VERSION)
        return err_set(ERR_PROTO,
                       "the inviter speaks protocol version %" PRIu32 ", we speak %d; install the same release",
                       header->version, WIRE_VERSION);
    if (header->run_tag != wire_run_tag(invite->nonce, &invite->run_id))
        return err_set(ERR_PROTO, "the inviter's answer is of another run");
    if (header->type == WIRE_JOINED)
        return wire_joined_unpack(payload, bytes, ask->joined);
    if (header->type == WIRE_DIAL_RESPONSE)
        return take_dialled(ask, payload, bytes);
    if (header->type != WIRE_REFUSAL)
        return err_set(ERR_PROTO, "the inviter answers with a message of type %" PRIu32, header->type);
    TRY(wire_refusal_unpack(payload, bytes, reason, &later));
    snprintf(ask->later, sizeof ask->later, "%s", later ? reason : "");
    return later ? ERR_AGAIN : err_set(ERR_STATE, "refused: %s", reason);
}

/* One whole message. ERR_AGAIN: there is none. */
static enum err take_answer(struct ask *ask)
{
    zmq_msg_t parts[2];
    struct wire_header header;
    int count = 0;
    bool more = true;
    enum err err = ERR_AGAIN;
    zmq_msg_init(&parts[0]);
    zmq_msg_init(&parts[1]);
    for (; more; count++) {
        zmq_msg_t *to = &parts[count > 0];
        if (zmq_msg_recv(to, ask->socket, ZMQ_DONTWAIT) < 0)
            break;
        more = zmq_msg_more(to) != 0;
    }
    if (count > 0) {
        err = count == 2 ? wire_header_get(zmq_msg_data(&parts[0]), zmq_msg_size(&parts[0]), &header)
                         : err_set(ERR_PROTO, "the inviter's answer has %d parts", count);
        if (err == ERR_OK)
            err = judge(ask, &header, zmq_msg_data(&parts[1]), zmq_msg_size(&parts[1]));
    }
    zmq_msg_close(&parts[0]);
    zmq_msg_close(&parts[1]);
    return err;
}

/* Once, and only what is so just now. */
static void tell_late(struct ask *ask, uint32_t i, uint64_t now_ms)
{
    char text[WIRE_ADDRESS_BYTES + WIRE_REASON_BYTES + 160];
    if (ask->conf->late == NULL || now_ms < ask->late_ms || (ask->up && ask->listener != NULL))
        return;
    ask->late_ms = UINT64_MAX;
    if (ask->later[0] != '\0')
        snprintf(text, sizeof text, "%s lets nobody more in just now, and is asked again: %s",
                 ask->conf->invite->addresses[i], ask->later);
    else
        snprintf(text, sizeof text,
                 ask->up
                     ? "%s has taken the question, and the islands that vote have to decide it; it takes a majority of "
                       "them to be there, and at the beginning the first trainer"
                     : "no connection to %s yet",
                 ask->conf->invite->addresses[i]);
    ask->conf->late(ask->conf->user, text);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Who listens there meanwhile is us; and nobody waits for long whether that is seen. */
static void look_at_dial(struct ask *ask, uint64_t now_ms)
{
    if (ask->listener == NULL)
        return;
    (void)dial_listener_serve(ask->listener, ask->conf->ident, &ask->join);
    if (ask->up && ask->dial_end_ms == 0)
        ask->dial_end_ms =
            earlier(now_ms + DIAL_PATIENCE_MS, now_ms + (ask->decided_ms - earlier(now_ms, ask->decided_ms)) / 2);
    if (ask->dial_end_ms != 0 && now_ms >= ask->dial_end_ms)
        end_dial(ask, NULL, 0);
}

/* ERR_AGAIN: not here, or not yet. An address that answers nobody is left for the next one, one that let us in is not.
 */
static enum err try_address(struct ask *ask, uint32_t i)
{
    uint64_t begin_ms = env_mono_ms(), now_ms = begin_ms, say_ms = 0, leave_ms = begin_ms + CONNECT_MS;
    enum err err = knock(ask, i);
    ask->up = false;
    ask->heard[i] = HEARD_NOTHING;
    if (err == ERR_OK)
        err = ERR_AGAIN;
    while (err == ERR_AGAIN && now_ms < (ask->up ? ask->end_ms : earlier(leave_ms, ask->end_ms))) {
        zmq_pollitem_t items[] = {{.socket = ask->socket, .events = ZMQ_POLLIN},
                                  {.socket = ask->monitor, .events = ZMQ_POLLIN},
                                  {.events = ZMQ_POLLIN}};
        bool listens = ask->listener != NULL;
        if (listens)
            items[2].socket = dial_listener_socket(ask->listener);
        zmq_poll(items, listens ? 3 : 2, LOOK_MS);
        now_ms = env_mono_ms();
        bool was_up = ask->up;
        read_monitor(ask, i);
        if (ask->up)
            ask->end_ms = ask->decided_ms;
        look_at_dial(ask, now_ms);
        if (ask->up && (!was_up || now_ms >= say_ms || ask->anew)) {
            say(ask);
            ask->anew = false;
            say_ms = now_ms + AGAIN_MS;
        }
        if (ask->heard[i] == HEARD_STRANGER)
            leave_ms = 0;
        else if (ask->heard[i] != HEARD_NOTHING)
            leave_ms = begin_ms + TURN_MS;
        err = take_answer(ask);
        if (err == ERR_AGAIN)
            tell_late(ask, i, now_ms);
    }
    socket_close(&ask->socket, &ask->monitor);
    return err;
}

static enum err nobody_answered(const struct ask *ask)
{
    static const char *const words[HEARDS] = {
        [HEARD_NOTHING] = "no connection",
        [HEARD_CLOSED] = "connects, and says nothing",
        [HEARD_STRANGER] = "does not admit the token: it is used up, revoked or expired, or another island listens",
        [HEARD_UP] = "took the question, and did not answer"};
    static const char *const remedies[HEARDS] = {
        [HEARD_NOTHING] = "check that these are its address and port, that its daemon runs, and that no firewall there "
                          "is in the way (an island that was revoked has ended, and its tokens are worth nothing: ask "
                          "another island); with another address: dilococtl invite --address HOST:PORT there",
        [HEARD_CLOSED] = "check that these are its address and port, and that dilocod is what listens there",
        [HEARD_STRANGER] = "ask for another token",
        [HEARD_UP] = ("the run may have no majority just now, or its first trainer has not attached yet: dilococtl "
                      "status says so there; the token stays good, and the same command goes on later")};
    enum { LIST_BYTES = 330 }; /* so that the remedy has its place */
    enum heard most = HEARD_NOTHING;
    char text[INVITE_ADDRESSES_MAX * (WIRE_ADDRESS_BYTES + 100)] = "";
    const struct invite *invite = ask->conf->invite;
    for (uint32_t i = 0; i < invite->addresses_count; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s: %s", i > 0 ? "; " : "", invite->addresses[i],
                 words[ask->heard[i]]);
        most = ask->heard[i] > most ? ask->heard[i] : most;
    }
    if (ask->later[0] != '\0')
        return err_set(ERR_CLOSED,
                       "not let in within %" PRIu64 " s: %s; the token stays good, and the same command goes on later",
                       (env_mono_ms() - ask->begin_ms) / 1000, ask->later);
    enum err err = err_set(ERR_CLOSED, "no answer within %" PRIu64 " s: %.*s", (env_mono_ms() - ask->begin_ms) / 1000,
                           LIST_BYTES, text);
    return err_suffix(err, "%s", remedies[most]);
}

/* Somebody is there, and nobody lets us in. */
static bool not_admitted(const struct ask *ask)
{
    bool stranger = false;
    for (uint32_t i = 0; i < ask->conf->invite->addresses_count; i++) {
        if (ask->heard[i] == HEARD_UP)
            return false;
        stranger |= ask->heard[i] == HEARD_STRANGER;
    }
    return stranger;
}

/* After all addresses were tried once more. */
static enum err judge_round(const struct ask *ask, uint32_t rounds)
{
    struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    if (rounds >= KNOCKS && not_admitted(ask))
        return err_set(ERR_STATE,
                       "refused: %s does not admit this token: it is used up, revoked or expired, or another "
                       "island listens there; ask for another",
                       ask->conf->invite->addresses[0]);
    nanosleep(&pause, NULL);
    return ERR_AGAIN;
}

enum err admit_ask(const struct join_client_conf *conf, struct wire_joined *joined)
{
    uint64_t now_ms = env_mono_ms();
    struct ask ask = {.conf = conf,
                      .joined = joined,
                      .begin_ms = now_ms,
                      .end_ms = now_ms + conf->timeout_ms,
                      .decided_ms = now_ms + conf->decide_ms,
                      .late_ms = now_ms + LATE_MS};
    *joined = (struct wire_joined){.id = 0};
    enum err err = prepare(&ask);
    if (err == ERR_OK)
        err = ERR_AGAIN;
    for (uint32_t turn = 0; err == ERR_AGAIN; turn++) {
        uint32_t i = turn % conf->invite->addresses_count;
        if (turn > 0 && i == 0)
            err = judge_round(&ask, turn / conf->invite->addresses_count);
        if (err == ERR_AGAIN && env_mono_ms() >= ask.end_ms)
            err = nobody_answered(&ask);
        else if (err == ERR_AGAIN)
            err = try_address(&ask, i);
        if (err == ERR_OK && conf->answered != NULL)
            *conf->answered = turn % conf->invite->addresses_count;
    }
    dial_listener_free(ask.listener);
    if (ask.context != NULL)
        zmq_ctx_term(ask.context);
    return err;
}
