/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/dialled.h"

#include <errno.h>

#include "common/env.h"
#include "net/transport/socket.h"

/* AGAIN: a member may have its second key for 5 s only (net/membership/key_turns.h): dialled by both in turn it is met.
 */
enum { AGAIN_MS = 2000, ENDED_MS = 500 };
/* ENDED: handshakes that end one after the other, each so soon after the last one, are no accident. */
enum { ENDED_IN_A_ROW = 3, ENDED_APART_MS = 15000 };

bool dialled_is(const struct dialled *dialled)
{
    return dialled->socket != NULL || dialled->again_ms != 0;
}

void dialled_close(struct dialled *dialled)
{
    socket_close(&dialled->socket, &dialled->monitor);
    *dialled = (struct dialled){.fd = -1};
}

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

/* A server that does not admit us says so. One that has another key just ends the handshake; but so does one whose
 * process ends meanwhile. One that hangs does not even do that: the kernel takes the connection, and we end it. ZeroMQ
 * has no word for it, and `error` may be an older one. */
static bool is_unanswered(const struct dialled *d, int error)
{
    bool closed = error == EPIPE || error == ECONNRESET;
    return !closed || env_mono_ms() >= d->begun_ms + SOCKET_HANDSHAKE_MS - SOCKET_HANDSHAKE_MS / 10;
}

static bool ends_again(struct dialled *d)
{
    uint64_t now_ms = env_mono_ms();
    d->ended = now_ms - d->ended_ms <= ENDED_APART_MS ? d->ended + 1 : 1;
    d->ended_ms = now_ms;
    return d->ended >= ENDED_IN_A_ROW;
}

void dialled_pause(struct dialled *d, uint32_t keys)
{
    uint64_t pause_ms = ENDED_MS;
    for (uint32_t ended = keys; ended < d->ended && pause_ms < AGAIN_MS; ended += keys)
        pause_ms *= 2;
    d->again_ms = env_mono_ms() + pause_ms;
    (void)!socket_int(d->socket, ZMQ_LINGER, 0);
    socket_close(&d->socket, &d->monitor); /* nothing less keeps ZeroMQ from dialling */
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
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED: dialled->ended = 0; return DIALLED_UP;
    case ZMQ_EVENT_DISCONNECTED: return was_up ? DIALLED_LOST : DIALLED_FAILED;
    default: break;
    }
    if (event != ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
        dialled->again_ms = env_mono_ms() + AGAIN_MS;
        dialled->unwanted = true;
        return DIALLED_NOT_ADMITTED;
    }
    if (is_unanswered(dialled, (int)value))
        return DIALLED_NO_ANSWER;
    return ends_again(dialled) ? DIALLED_NOT_ADMITTED : DIALLED_FAILED;
}
