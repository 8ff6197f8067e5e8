/* SPDX-License-Identifier: Apache-2.0 */
#include "net/dialled.h"

#include <errno.h>

#include "common/env.h"
#include "net/socket.h"

enum { AGAIN_MS = 2000 };

enum err dialled_open(struct dialled *dialled, void *context, const struct ident *ident,
                      const uint8_t peer_key[IDENT_KEY_BYTES], const char *address, bool bulk, size_t part_bytes_max)
{
    char route[SOCKET_ROUTE_BYTES];
    uint8_t server[IDENT_KEY_BYTES];
    struct socket_dial conf = {.address = address,
                               .server = server,
                               .key = ident->curve_key,
                               .secret = ident->curve_secret,
                               .route = route,
                               .route_bytes = socket_route(ident->key, bulk, env_random_u64(), route),
                               .part_bytes_max = part_bytes_max};
    *dialled = (struct dialled){.fd = -1};
    TRY(ident_curve(peer_key, server));
    enum err err = socket_dial(context, &conf, &dialled->socket, &dialled->monitor);
    if (err != ERR_OK)
        dialled_close(dialled);
    return err;
}

void dialled_close(struct dialled *dialled)
{
    socket_close(&dialled->socket, &dialled->monitor);
    *dialled = (struct dialled){.fd = -1};
}

/* A server that does not admit us says so, one that has another key just ends the handshake. One that hangs does not
 * even do that: the kernel takes the connection, and we end it. ZeroMQ has no word for it, and `error` may be an older
 * one. */
static bool is_unanswered(const struct dialled *d, uint16_t event, int error)
{
    bool closed = error == EPIPE || error == ECONNRESET;
    return event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL &&
           (!closed || env_mono_ms() >= d->begun_ms + SOCKET_HANDSHAKE_MS - SOCKET_HANDSHAKE_MS / 10);
}

enum dialled_news dialled_next(struct dialled *dialled)
{
    uint16_t event;
    uint32_t value;
    if (!socket_event(dialled->monitor, &event, &value))
        return DIALLED_NOTHING;
    bool was_up = dialled->up;
    dialled->up = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    switch (event) {
    case ZMQ_EVENT_CONNECTED:
        dialled->fd = (int)value;
        dialled->begun_ms = env_mono_ms();
        return DIALLED_CONNECTED;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED: return DIALLED_UP;
    case ZMQ_EVENT_DISCONNECTED: return was_up ? DIALLED_LOST : DIALLED_FAILED;
    default: break;
    }
    if (event != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        dialled->again_ms = env_mono_ms() + AGAIN_MS;
    return is_unanswered(dialled, event, (int)value) ? DIALLED_NO_ANSWER : DIALLED_NOT_ADMITTED;
}
