/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/dial_listener.h"

#include <stdbool.h>
#include <string.h>
#include <zmq.h>

#include "common/mem.h"
#include "net/transport/address.h"
#include "net/transport/socket.h"

/* ROUTE: ZeroMQ's name of a connection. TURN: messages taken in at once. */
enum { CALLERS_MAX = 16, ROUTE_BYTES_MAX = 32, PIECE_BYTES_MAX = 4096, TURN = 64 };

/* A connection of which a part of a challenge has come, or one that was answered. */
struct caller {
    size_t route_bytes; /* 0: none */
    bool answered;
    uint8_t route[ROUTE_BYTES_MAX];
    size_t bytes;
    uint8_t said[DIAL_CHALLENGE_BYTES];
};

struct dial_listener {
    void *socket;
    struct caller callers[CALLERS_MAX]; /* ring of places */
    uint32_t turn;
};

enum err dial_listener_new(void *context, const char *listen, struct dial_listener **out)
{
    enum err err;
    struct dial_listener *listener = NULL;
    *out = NULL;
    TRY(mem_new(1, sizeof *listener, "a listener", &listener));
    TRY_OUT(socket_open(context, ZMQ_STREAM, PIECE_BYTES_MAX, &listener->socket));
    TRY_OUT(socket_int(listener->socket, ZMQ_STREAM_NOTIFY, 0));
    TRY_OUT(here_listen(listener->socket, listen));
out:
    if (err != ERR_OK)
        dial_listener_free(listener);
    else
        *out = listener;
    return err;
}

void dial_listener_free(struct dial_listener *listener)
{
    if (listener == NULL)
        return;
    if (listener->socket != NULL)
        zmq_close(listener->socket);
    mem_free(listener);
}

void *dial_listener_socket(const struct dial_listener *listener)
{
    return listener->socket;
}

/* Nothing: hangs up. One that is gone is as good. */
static void say(struct dial_listener *listener, const struct caller *caller, const uint8_t *bytes, size_t count)
{
    (void)!socket_send(listener->socket, &(struct socket_part){caller->route, caller->route_bytes}, 1,
                       &(struct socket_part){bytes, count}, &(struct socket_part){NULL, 0});
}

/* Its place, or a new one, in that of the oldest: what that one says later would seem to be the first that it says. */
static struct caller *caller_of(struct dial_listener *listener, const uint8_t *route, size_t route_bytes)
{
    for (uint32_t i = 0; i < CALLERS_MAX; i++) {
        struct caller *caller = &listener->callers[i];
        if (caller->route_bytes == route_bytes && memcmp(caller->route, route, route_bytes) == 0)
            return caller;
    }
    struct caller *caller = &listener->callers[listener->turn++ % CALLERS_MAX];
    if (caller->route_bytes > 0)
        say(listener, caller, NULL, 0);
    *caller = (struct caller){.route_bytes = route_bytes};
    memcpy(caller->route, route, route_bytes);
    return caller;
}

/* Whether it was answered. Who says more than a challenge says something else, also after the answer. */
static bool hear(struct dial_listener *listener, const struct ident *ident, const struct wire_join *join,
                 struct caller *caller, const void *data, size_t bytes)
{
    uint8_t answer[DIAL_ANSWER_BYTES];
    bool good = !caller->answered && bytes <= sizeof caller->said - caller->bytes;
    if (good) {
        memcpy(caller->said + caller->bytes, data, bytes);
        caller->bytes += bytes;
        if (caller->bytes < sizeof caller->said)
            return false;
        good = dial_challenge_good(caller->said);
    }
    if (good) {
        dial_answer(ident, join, caller->said, answer);
        say(listener, caller, answer, sizeof answer);
        caller->answered = true;
    } else {
        say(listener, caller, NULL, 0);
        caller->route_bytes = 0;
    }
    return good;
}

/* Name of the connection, then what came on it; false: nothing waits. */
static bool take(struct dial_listener *listener, zmq_msg_t *route, zmq_msg_t *data)
{
    if (zmq_msg_recv(route, listener->socket, ZMQ_DONTWAIT) < 0)
        return false;
    return zmq_msg_more(route) && zmq_msg_recv(data, listener->socket, ZMQ_DONTWAIT) >= 0;
}

uint32_t dial_listener_serve(struct dial_listener *listener, const struct ident *ident, const struct wire_join *join)
{
    uint32_t answered = 0;
    zmq_msg_t route, data;
    zmq_msg_init(&route);
    zmq_msg_init(&data);
    for (int i = 0; i < TURN && take(listener, &route, &data); i++) {
        size_t route_bytes = zmq_msg_size(&route);
        if (route_bytes == 0 || route_bytes > ROUTE_BYTES_MAX || zmq_msg_size(&data) == 0)
            continue;
        struct caller *caller = caller_of(listener, zmq_msg_data(&route), route_bytes);
        answered += hear(listener, ident, join, caller, zmq_msg_data(&data), zmq_msg_size(&data));
    }
    zmq_msg_close(&route);
    zmq_msg_close(&data);
    return answered;
}
