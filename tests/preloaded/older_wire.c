/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon of the release before, for LD_PRELOAD: the headers of its messages (docs/PROTOCOL.md, 3) carry a protocol
 * version that is one lower, and those that it gets one that is one higher, as it would see them.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <zmq.h>

#define SEEN __attribute__((visibility("default")))
enum { HEADER_BYTES = 16, VERSION_AT = 4 };

SEEN int zmq_send(void *socket, const void *data, size_t bytes, int flags);
SEEN int zmq_msg_recv(zmq_msg_t *message, void *socket, int flags);

static int is_header(const void *data, size_t bytes)
{
    return bytes == HEADER_BYTES && memcmp(data, "DLC1", VERSION_AT) == 0;
}

int zmq_send(void *socket, const void *data, size_t bytes, int flags)
{
    static int (*real)(void *, const void *, size_t, int);
    uint8_t header[HEADER_BYTES];
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "zmq_send");
    if (!is_header(data, bytes))
        return real(socket, data, bytes, flags);
    memcpy(header, data, HEADER_BYTES);
    header[VERSION_AT]--;
    return real(socket, header, HEADER_BYTES, flags);
}

int zmq_msg_recv(zmq_msg_t *message, void *socket, int flags)
{
    static int (*real)(zmq_msg_t *, void *, int);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "zmq_msg_recv");
    int result = real(message, socket, flags);
    int why = errno;
    if (result >= 0 && is_header(zmq_msg_data(message), zmq_msg_size(message)))
        ((uint8_t *)zmq_msg_data(message))[VERSION_AT]++;
    errno = why;
    return result;
}
