/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/gate/gate_link.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/env.h"
#include "common/mem.h"
#include "worker/gate/gate_box.h"
#include "worker/gate/gate_key.h"
#include "worker/gate/gate_zmq.h"

enum { SLICE_MS = 100, AGAIN_MS = 500, PROBE_MS = 5000 };
#define SCHEME "tcp://"
enum {
    CONNECTION_ENDS = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                      ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH
};

struct heard {
    zmq_msg_t bytes;
    struct heard *next;
};

struct gate_link {
    struct gate_link_conf conf;
    const struct gate_zmq *zmq;
    void *context;
    struct end {
        void *socket, *monitor; /* monitor: says what becomes of the connection */
        struct gate_box box;
    } words, pieces;
    struct heard *heard; /* broadcasts, the oldest first */
    bool welcomed, refused, worth_again, lost;
    bool told;    /* lost, as the gateway has said itself */
    uint64_t met; /* meetings that all have come to, and nobody has waited for yet */
    uint64_t beat_ms;
    char why[GATE_TEXT_BYTES];
};

static void lose(struct gate_link *link, const char *why)
{
    if (!link->lost)
        snprintf(link->why, sizeof link->why, "%s", why);
    link->lost = true;
}

/* ---- what comes ---- */

static void take_text(struct gate_link *link, zmq_msg_t *body)
{
    size_t bytes = link->zmq->zmq_msg_size(body);
    snprintf(link->why, sizeof link->why, "%.*s", (int)(bytes < sizeof link->why ? bytes : sizeof link->why - 1),
             (const char *)link->zmq->zmq_msg_data(body));
}

static enum err keep_heard(struct gate_link *link, zmq_msg_t *body)
{
    struct heard *heard, **at = &link->heard;
    TRY(mem_new(1, sizeof *heard, "what was heard", &heard));
    link->zmq->zmq_msg_init(&heard->bytes);
    link->zmq->zmq_msg_move(&heard->bytes, body);
    while (*at != NULL)
        at = &(*at)->next;
    *at = heard;
    return ERR_OK;
}

/* `body` is closed here, or taken over. */
static void take(struct gate_link *link, const struct gate_head *head, zmq_msg_t *body)
{
    enum err err = ERR_OK;
    switch ((enum gate_kind)head->kind) {
    case GATE_WELCOME: link->welcomed = true; break;
    case GATE_MEET: link->met++; break;
    case GATE_REFUSED:
        take_text(link, body);
        link->refused = true;
        link->worth_again = head->tag != 0;
        break;
    case GATE_LOST:
        take_text(link, body);
        link->lost = link->told = true;
        break;
    case GATE_BROADCAST: err = keep_heard(link, body); break;
    case GATE_PIECE: err = gate_box_take(&link->pieces.box, head->tag, body); break;
    default: break;
    }
    if (err != ERR_OK)
        lose(link, err_text());
    link->zmq->zmq_msg_close(body);
}

/* One message: false if there is none. */
static bool receive(struct gate_link *link, void *socket)
{
    struct gate_head head;
    zmq_msg_t first, body;
    bool whole = false;
    link->zmq->zmq_msg_init(&first);
    if (link->zmq->zmq_msg_recv(&first, socket, ZMQ_DONTWAIT) < 0) {
        link->zmq->zmq_msg_close(&first);
        return false;
    }
    link->zmq->zmq_msg_init(&body);
    if (link->zmq->zmq_msg_size(&first) == sizeof head && link->zmq->zmq_msg_more(&first) != 0) {
        memcpy(&head, link->zmq->zmq_msg_data(&first), sizeof head);
        whole = link->zmq->zmq_msg_recv(&body, socket, ZMQ_DONTWAIT) >= 0 && link->zmq->zmq_msg_more(&body) == 0 &&
                head.magic == GATE_MAGIC;
    }
    link->zmq->zmq_msg_close(&first);
    if (whole) {
        take(link, &head, &body);
        return true;
    }
    link->zmq->zmq_msg_close(&body);
    lose(link, "what speaks there is no diloco-gateway, or one of another version");
    return false;
}

static void beat(struct gate_link *link)
{
    uint64_t now_ms = env_mono_ms();
    if (now_ms < link->beat_ms + GATE_BEAT_MS)
        return;
    link->beat_ms = now_ms;
    (void)!gate_box_say(&link->words.box, GATE_BEAT, 0, 0, NULL, 0);
}

/* One that has ended is not made anew. An event is a frame, of 16 bits that say which and a value, and another one. */
static void watch(struct gate_link *link, void *monitor)
{
    uint16_t event = 0;
    bool ended = false, more = true;
    char why[GATE_TEXT_BYTES];
    while (monitor != NULL) {
        zmq_msg_t frame;
        link->zmq->zmq_msg_init(&frame);
        bool any = link->zmq->zmq_msg_recv(&frame, monitor, ZMQ_DONTWAIT) >= 0;
        if (any && more && link->zmq->zmq_msg_size(&frame) >= sizeof event)
            memcpy(&event, link->zmq->zmq_msg_data(&frame), sizeof event);
        ended |= any && (event & CONNECTION_ENDS) != 0;
        more = any && link->zmq->zmq_msg_more(&frame) == 0;
        link->zmq->zmq_msg_close(&frame);
        if (!any)
            break;
    }
    if (!ended)
        return;
    snprintf(why, sizeof why, "the gateway at %s is gone, or the way to it", link->conf.address);
    lose(link, why);
}

/* Takes what is there; what came before an end, too. */
static void turn(struct gate_link *link)
{
    bool was_lost = link->lost;
    if (!was_lost) {
        watch(link, link->words.monitor);
        watch(link, link->pieces.monitor);
    }
    bool ends = link->lost;
    link->lost = was_lost;
    while (!link->lost && receive(link, link->words.socket))
        ;
    while (!link->lost && receive(link, link->pieces.socket))
        ;
    link->lost |= ends;
}

/* The same, after a while in which something may come. False: the caller wants an end of waiting. */
static bool wait_a_little(struct gate_link *link)
{
    zmq_pollitem_t items[] = {{.socket = link->words.socket, .events = ZMQ_POLLIN},
                              {.socket = link->words.monitor, .events = ZMQ_POLLIN},
                              {.socket = link->pieces.socket, .events = ZMQ_POLLIN},
                              {.socket = link->pieces.monitor, .events = ZMQ_POLLIN}};
    (void)link->zmq->zmq_poll(items, sizeof items / sizeof items[0], SLICE_MS);
    turn(link);
    if (!link->lost)
        beat(link);
    return link->conf.idle == NULL || !link->conf.idle(link->conf.user);
}

/* ---- opening ---- */

/* Whether anybody listens there: libzmq would try for ever, and say nothing. */
static enum err probe(const char *address)
{
    char host[256];
    const char *from = address + sizeof SCHEME - 1, *colon = strrchr(from, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    size_t bytes = colon != NULL ? (size_t)(colon - from) : 0;
    bool brackets = bytes > 2 && from[0] == '[' && from[bytes - 1] == ']';
    if (bytes == 0 || bytes >= sizeof host || colon[1] == '\0')
        return err_set(ERR_CONF, "%s: is no address of a gateway; it is written tcp://HOST:PORT", address);
    snprintf(host, sizeof host, "%.*s", (int)(brackets ? bytes - 2 : bytes), brackets ? from + 1 : from);
    int code = getaddrinfo(host, colon + 1, &hints, &found);
    if (code != 0)
        return err_set(ERR_CLOSED, "%s: %s", address, gai_strerror(code));
    int reason = 0;
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct pollfd item = {.fd = fd, .events = POLLOUT};
        socklen_t size = sizeof reason;
        if (fd < 0 || (connect(fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS))
            reason = errno;
        else if (poll(&item, 1, PROBE_MS) != 1)
            reason = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &size) != 0)
            reason = errno;
        if (fd >= 0)
            close(fd);
        if (reason == 0)
            break;
    }
    freeaddrinfo(found);
    return reason == 0 ? ERR_OK : err_set(ERR_CLOSED, "no gateway at %s: %s", address, strerror(reason));
}

static bool set_int(const struct gate_zmq *zmq, void *socket, int option, int value)
{
    return zmq->zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static bool set_key(const struct gate_zmq *zmq, void *socket, int option, const char key[GATE_KEY_TEXT])
{
    return zmq->zmq_setsockopt(socket, option, key, GATE_KEY_TEXT) == 0;
}

/* Unlimited queues: what is sent is the caller's memory, and of what comes the gateway sends no more than a fragment at
 * a time. */
static bool configure(const struct gate_zmq *zmq, void *socket, const struct gate_key *key)
{
    return set_key(zmq, socket, ZMQ_CURVE_SERVERKEY, key->other_public) &&
           set_key(zmq, socket, ZMQ_CURVE_PUBLICKEY, key->own_public) &&
           set_key(zmq, socket, ZMQ_CURVE_SECRETKEY, key->own_secret) && set_int(zmq, socket, ZMQ_SNDHWM, 0) &&
           set_int(zmq, socket, ZMQ_RCVHWM, 0) && set_int(zmq, socket, ZMQ_IPV6, 1) &&
           set_int(zmq, socket, ZMQ_RECONNECT_IVL, -1) && set_int(zmq, socket, ZMQ_LINGER, GATE_LINGER_MS) &&
           set_int(zmq, socket, ZMQ_HANDSHAKE_IVL, GATE_HANDSHAKE_MS) &&
           set_int(zmq, socket, ZMQ_HEARTBEAT_IVL, GATE_HEARTBEAT_MS) &&
           set_int(zmq, socket, ZMQ_HEARTBEAT_TIMEOUT, GATE_SILENCE_MS);
}

static enum err connect_end(struct gate_link *link, struct end *end, const char *monitor, const struct gate_key *key)
{
    const struct gate_zmq *zmq = link->zmq;
    end->socket = zmq->zmq_socket(link->context, ZMQ_DEALER);
    end->monitor = zmq->zmq_socket(link->context, ZMQ_PAIR);
    end->box = (struct gate_box){.zmq = zmq, .socket = end->socket};
    if (end->socket == NULL || end->monitor == NULL || !configure(zmq, end->socket, key) ||
        zmq->zmq_socket_monitor(end->socket, monitor, CONNECTION_ENDS) != 0 ||
        zmq->zmq_connect(end->monitor, monitor) != 0)
        return gate_zmq_failed(zmq, ERR_NOMEM, "a connection to the gateway");
    if (zmq->zmq_connect(end->socket, link->conf.address) != 0)
        return gate_zmq_failed(zmq, ERR_CLOSED, link->conf.address);
    return ERR_OK;
}

static enum err connect_there(struct gate_link *link, const struct gate_key *key)
{
    link->context = link->zmq->zmq_ctx_new();
    if (link->context == NULL)
        return gate_zmq_failed(link->zmq, ERR_NOMEM, "a connection to the gateway");
    TRY(connect_end(link, &link->words, "inproc://words", key));
    return connect_end(link, &link->pieces, "inproc://pieces", key);
}

static void disconnect_end(struct gate_link *link, struct end *end)
{
    if (end->socket != NULL && (link->lost || !link->welcomed))
        (void)set_int(link->zmq, end->socket, ZMQ_LINGER, 0); /* nobody takes what is left */
    if (end->socket != NULL)
        link->zmq->zmq_close(end->socket);
    if (end->monitor != NULL)
        link->zmq->zmq_close(end->monitor);
    end->socket = end->monitor = NULL;
}

static void disconnect(struct gate_link *link)
{
    for (struct heard *heard = link->heard, *next; heard != NULL; heard = next) {
        next = heard->next;
        link->zmq->zmq_msg_close(&heard->bytes);
        mem_free(heard);
    }
    link->heard = NULL;
    disconnect_end(link, &link->words);
    disconnect_end(link, &link->pieces);
    if (link->context != NULL)
        link->zmq->zmq_ctx_term(link->context);
    link->context = NULL;
    if (link->zmq != NULL) {
        gate_box_deinit(&link->words.box);
        gate_box_deinit(&link->pieces.box);
    }
}

static enum err introduce(struct gate_link *link)
{
    struct gate_hello hello = {.group = link->conf.group, .rank = link->conf.rank, .count = link->conf.count};
    snprintf(hello.build, sizeof hello.build, "%s", link->conf.build);
    snprintf(hello.name, sizeof hello.name, "%s", link->conf.name);
    TRY(gate_box_say(&link->words.box, GATE_HELLO, 0, 0, &hello, sizeof hello));
    hello.pieces = 1;
    TRY(gate_box_say(&link->pieces.box, GATE_HELLO, 0, 0, &hello, sizeof hello));
    link->beat_ms = env_mono_ms();
    while (!link->welcomed && !link->refused && !link->lost)
        if (!wait_a_little(link))
            return err_set(ERR_AGAIN, "interrupted while waiting for the gateway");
    if (link->welcomed)
        return ERR_OK;
    if (link->told)
        return err_set(ERR_STATE, "%s", link->why);
    if (link->refused)
        return err_set(link->worth_again ? ERR_CLOSED : ERR_STATE, "%s", link->why);
    return err_set(ERR_CLOSED,
                   "%s hung up before it had said a word: the key in %s is not that gateway's, or it is no "
                   "diloco-gateway",
                   link->conf.address, link->conf.key_path);
}

static enum err try_once(struct gate_link *link, const struct gate_key *key)
{
    TRY(probe(link->conf.address));
    link->welcomed = link->refused = link->worth_again = link->lost = link->told = false;
    enum err err = connect_there(link, key);
    if (err == ERR_OK)
        err = introduce(link);
    return err;
}

enum err gate_link_open(const struct gate_link_conf *conf, struct gate_link **out)
{
    struct gate_key key = {0};
    struct gate_link *link;
    *out = NULL;
    TRY(mem_new(1, sizeof *link, "a connection to the gateway", &link));
    link->conf = *conf;
    enum err err = gate_zmq_open(&link->zmq);
    if (err == ERR_OK)
        err = gate_key_of_rank(link->zmq, conf->key_path, &key);
    for (uint64_t until_ms = env_mono_ms() + (uint64_t)(conf->wait_ms > 0 ? conf->wait_ms : 0); err == ERR_OK;) {
        err = try_once(link, &key);
        if (err == ERR_OK || err != ERR_CLOSED || env_mono_ms() >= until_ms)
            break;
        disconnect(link);
        err = ERR_OK;
        for (uint64_t again_ms = env_mono_ms() + AGAIN_MS; err == ERR_OK && env_mono_ms() < again_ms;) {
            poll(NULL, 0, SLICE_MS);
            if (conf->idle != NULL && conf->idle(conf->user))
                err = err_set(ERR_AGAIN, "interrupted while waiting for the gateway");
        }
    }
    explicit_bzero(&key, sizeof key);
    if (err != ERR_OK) {
        disconnect(link);
        mem_free(link);
        return err;
    }
    *out = link;
    return ERR_OK;
}

void gate_link_close(struct gate_link *link)
{
    if (link == NULL)
        return;
    if (!link->lost)
        (void)!gate_box_say(&link->words.box, GATE_PARTS, 0, 0, NULL, 0);
    disconnect(link);
    mem_free(link);
}

/* ---- in use ---- */

static bool put_down(struct gate_link *link, void *bytes, size_t count)
{
    struct heard *heard = link->heard;
    bool fits = link->zmq->zmq_msg_size(&heard->bytes) == count;
    if (fits && count > 0)
        memcpy(bytes, link->zmq->zmq_msg_data(&heard->bytes), count);
    link->heard = heard->next;
    link->zmq->zmq_msg_close(&heard->bytes);
    mem_free(heard);
    if (!fits)
        lose(link, "the gateway says other things than this rank waits for");
    return fits;
}

/* Before the first wait all is taken that is there: what was said before an end counts. */
bool gate_link_hear(struct gate_link *link, void *bytes, size_t count)
{
    turn(link);
    while (link->heard == NULL && !link->lost)
        (void)wait_a_little(link);
    return link->heard != NULL && put_down(link, bytes, count);
}

static bool say(struct gate_link *link, enum gate_kind kind, uint32_t tag, uint64_t value, const void *bytes,
                size_t count)
{
    if (link->lost)
        return false;
    if (gate_box_say(&link->words.box, kind, tag, value, bytes, count) == ERR_OK)
        return true;
    turn(link); /* why may be among what came */
    lose(link, "the gateway takes nothing any more");
    return false;
}

bool gate_link_meet(struct gate_link *link)
{
    if (!say(link, GATE_MEET, 0, 0, NULL, 0))
        return false;
    while (link->met == 0 && !link->lost)
        (void)wait_a_little(link);
    if (link->met == 0)
        return false;
    link->met--;
    return true;
}

bool gate_link_call(struct gate_link *link, uint32_t call, const void *bytes, size_t count)
{
    return say(link, GATE_CALL, call, 0, bytes, count);
}

void gate_link_ask(struct gate_link *link, enum gate_asked what, uint64_t value)
{
    (void)say(link, GATE_ASKED, what, value, NULL, 0);
}

uint64_t gate_link_send(struct gate_link *link, uint32_t tag, const void *bytes, size_t count)
{
    turn(link);
    return link->lost ? 0 : gate_box_send(&link->pieces.box, tag, bytes, count);
}

uint64_t gate_link_receive(struct gate_link *link, uint32_t tag, void *bytes, size_t count)
{
    turn(link);
    return link->lost ? 0 : gate_box_receive(&link->pieces.box, tag, bytes, count);
}

int gate_link_arrived(struct gate_link *link, uint64_t number, bool wait)
{
    for (;;) {
        turn(link);
        int there = gate_box_arrived(&link->pieces.box, number);
        if (there != 0)
            return there;
        if (link->lost)
            return -1;
        if (!wait)
            return 0;
        (void)wait_a_little(link);
    }
}

const char *gate_link_why(const struct gate_link *link)
{
    return link->why[0] != '\0' ? link->why : "the connection to the gateway is at an end";
}
