/* SPDX-License-Identifier: Apache-2.0 */
#include "common/ipc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/fsio.h"

enum { BACKLOG = 8 };

static const char *const type_names[IPC_TYPES] = {
    [IPC_HELLO] = "HELLO",     [IPC_TENSOR] = "TENSOR",   [IPC_REGISTERED] = "REGISTERED",
    [IPC_INITIAL] = "INITIAL", [IPC_TAKEN] = "TAKEN",     [IPC_MIXED] = "MIXED",
    [IPC_REPORT] = "REPORT",   [IPC_SETTLED] = "SETTLED", [IPC_FINISHED] = "FINISHED",
    [IPC_WELCOME] = "WELCOME", [IPC_REFUSED] = "REFUSED", [IPC_GO] = "GO",
    [IPC_WAKE] = "WAKE",       [IPC_LEAVE] = "LEAVE",     [IPC_END] = "END",
};

const char *ipc_type_name(uint32_t type)
{
    return type < IPC_TYPES ? type_names[type] : "unknown";
}

static const char *const word_names[IPC_WORDS] = {
    [IPC_FREE] = "FREE",       [IPC_COPYING] = "COPYING", [IPC_SNAPSHOT] = "SNAPSHOT",
    [IPC_FILLING] = "FILLING", [IPC_ANCHOR] = "ANCHOR",   [IPC_MIXING] = "MIXING",
};

const char *ipc_word_name(uint32_t word)
{
    return word < IPC_WORDS ? word_names[word] : "unknown";
}

/* ---- the words ---- */

/* The arrows drawn in ipc.h: where each side may move a word, as a set of words. */
#define TO(word) (1u << (word))
static const uint32_t moves[IPC_SIDES][IPC_WORDS] = {
    [IPC_TRAINER] = {[IPC_FREE] = TO(IPC_COPYING),
                     [IPC_COPYING] = TO(IPC_SNAPSHOT),
                     [IPC_ANCHOR] = TO(IPC_MIXING),
                     [IPC_MIXING] = TO(IPC_FREE)},
    [IPC_DAEMON] = {[IPC_FREE] = TO(IPC_FILLING),
                    [IPC_SNAPSHOT] = TO(IPC_FILLING) | TO(IPC_FREE),
                    [IPC_FILLING] = TO(IPC_ANCHOR) | TO(IPC_FREE),
                    [IPC_ANCHOR] = TO(IPC_FILLING)},
};

uint32_t ipc_word(const struct ipc_fragment *fragment)
{
    return atomic_load_explicit(&fragment->word, memory_order_acquire);
}

bool ipc_move(struct ipc_fragment *fragment, enum ipc_side side, enum ipc_word from, enum ipc_word to)
{
    uint32_t expected = from;
    if ((unsigned)side >= IPC_SIDES || (unsigned)from >= IPC_WORDS || (unsigned)to >= IPC_WORDS ||
        (moves[side][from] & TO(to)) == 0)
        return false;
    return atomic_compare_exchange_strong_explicit(&fragment->word, &expected, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* ---- messages ---- */

enum err ipc_address(const char *path, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address->sun_path)
        return err_set(ERR_CONF, "%s: a socket's path may have at most %zu bytes; choose a shorter folder", path,
                       sizeof address->sun_path - 1);
    memcpy(address->sun_path, path, strlen(path) + 1);
    return ERR_OK;
}

static bool someone_listens(const struct sockaddr_un *address, int type)
{
    int probe = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    bool alive = probe >= 0 && connect(probe, (const struct sockaddr *)address, sizeof *address) == 0;
    if (probe >= 0)
        close(probe);
    return alive;
}

static enum err listen_failed(const char *path)
{
    int error = errno;
    enum err err = fsio_failed(ERR_CONF, "%s: cannot listen", path);
    if (error != EOPNOTSUPP && error != ENOSYS && error != EPERM)
        return err;
    return err_suffix(err,
                      "if its file system keeps no sockets (NFS, Lustre), set [island] sockets to a folder on a disk "
                      "of this machine");
}

enum err ipc_listen(const char *path, int type, int *fd)
{
    struct sockaddr_un address;
    *fd = -1;
    TRY(ipc_address(path, &address));
    /* A socket file without a listener is what a killed daemon leaves; one with a listener is a running daemon. */
    if (someone_listens(&address, type))
        return err_set(ERR_CONF, "%s: another dilocod is running with these sockets; stop it or set [island] sockets",
                       path);
    int listener = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0)
        return err_set_errno(ERR_IO, "cannot open a socket");
    unlink(path);
    if (bind(listener, (const struct sockaddr *)&address, sizeof address) != 0 || listen(listener, BACKLOG) != 0) {
        enum err err = listen_failed(path);
        close(listener);
        return err;
    }
    *fd = listener;
    return ERR_OK;
}

static enum err socket_error(const char *what)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return err_set(ERR_AGAIN, "%s: not now", what);
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
        return err_set(ERR_CLOSED, "%s: the other side is gone", what);
    return err_set_errno(ERR_IO, "%s", what);
}

enum err ipc_send(int socket, const struct ipc_message *message, int fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        header.msg_control = control.space;
        header.msg_controllen = sizeof control.space;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    ssize_t put;
    do
        put = sendmsg(socket, &header, MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    if (put < 0)
        return socket_error("sending between daemon and trainer");
    return ERR_OK;
}

/* Takes the one descriptor that may come along; more than one is a protocol error and all are closed. */
static enum err take_descriptor(struct msghdr *header, int *fd)
{
    enum err err = ERR_OK;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int one;
            memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
            if (*fd >= 0) {
                close(one);
                err = err_set(ERR_PROTO, "a trainer message carries more than one descriptor");
            } else {
                *fd = one;
            }
        }
    }
    return err;
}

enum err ipc_recv(int socket, struct ipc_message *message, int *fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = message, .iov_len = sizeof *message};
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    ssize_t got = 0;
    bool reset = false;
    *fd = -1;
    do {
        /* Once, if the other side hung up with something of ours unread; what it said before that comes then. */
        reset = got < 0 && errno == ECONNRESET;
        got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    } while (got < 0 && (errno == EINTR || (errno == ECONNRESET && !reset)));
    if (got < 0)
        return socket_error("receiving between daemon and trainer");
    if (got == 0)
        return err_set(ERR_CLOSED, "the other side is gone");
    enum err err = take_descriptor(&header, fd);
    if (err == ERR_OK && ((size_t)got != sizeof *message || message->type >= IPC_TYPES))
        err = err_set(ERR_PROTO, "%zd bytes that are no trainer message of version %d", got, IPC_VERSION);
    if (err != ERR_OK && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return err;
}

/* ---- the shared memory ---- */

static bool inside(uint64_t offset, uint64_t count, uint64_t size, uint64_t bytes)
{
    return offset % IPC_ALIGN == 0 && offset <= bytes && count <= (bytes - offset) / size;
}

enum err ipc_shm_check(const struct ipc_shm *shm, uint64_t bytes)
{
    if (bytes < sizeof *shm || shm->magic != IPC_MAGIC || shm->version != IPC_VERSION || shm->bytes != bytes)
        return err_set(ERR_PROTO, "the shared memory is not of version %d", IPC_VERSION);
    if (!inside(shm->fragments_offset, shm->fragments_count, sizeof(struct ipc_fragment), bytes) ||
        !inside(shm->places_offset, shm->tensors_count, sizeof(struct ipc_place), bytes))
        return err_set(ERR_PROTO, "the shared memory's tables leave it");
    if (shm->fragments_count > IPC_FRAGMENTS_MAX)
        return err_set(ERR_PROTO, "the shared memory has %u fragments; %d are possible", shm->fragments_count,
                       IPC_FRAGMENTS_MAX);
    const struct ipc_fragment *fragments =
        (const struct ipc_fragment *)(const void *)((const char *)shm + shm->fragments_offset);
    for (uint32_t i = 0; i < shm->fragments_count; i++) {
        const struct ipc_fragment *f = &fragments[i];
        if (f->base > 1 || !inside(f->area_offset[0], f->values_count, sizeof(float), bytes) ||
            !inside(f->area_offset[1], f->values_count, sizeof(float), bytes))
            return err_set(ERR_PROTO, "fragment %u leaves the shared memory", i);
        if (ipc_word(f) >= IPC_WORDS)
            return err_set(ERR_PROTO, "fragment %u has the unknown word %u", i, ipc_word(f));
    }
    const struct ipc_place *places = (const struct ipc_place *)(const void *)((const char *)shm + shm->places_offset);
    for (uint32_t i = 0; i < shm->tensors_count; i++) {
        const struct ipc_place *place = &places[i];
        if (place->fragment >= shm->fragments_count || place->offset > fragments[place->fragment].values_count ||
            place->count > fragments[place->fragment].values_count - place->offset)
            return err_set(ERR_PROTO, "tensor %u leaves its fragment", i);
    }
    return ERR_OK;
}

_Static_assert(sizeof(struct deal) % sizeof(uint64_t) == 0, "it is of 64-bit words alone");

void ipc_deal_put(struct ipc_shm *shm, const struct deal *deal)
{
    uint64_t words[IPC_DEAL_WORDS], turn = atomic_load_explicit(&shm->deal.turn, memory_order_relaxed) | 1;
    memcpy(words, deal, sizeof words);
    atomic_store_explicit(&shm->deal.turn, turn, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (int i = 0; i < IPC_DEAL_WORDS; i++)
        atomic_store_explicit(&shm->deal.words[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&shm->deal.turn, turn + 1, memory_order_release);
}

void ipc_deal_get(const struct ipc_shm *shm, struct deal *deal)
{
    enum { TRIES = 1000 };
    for (int i = 0; i < TRIES; i++) {
        uint64_t words[IPC_DEAL_WORDS], turn = atomic_load_explicit(&shm->deal.turn, memory_order_acquire);
        struct deal got;
        for (int k = 0; k < IPC_DEAL_WORDS; k++)
            words[k] = atomic_load_explicit(&shm->deal.words[k], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if ((turn & 1) != 0 || turn != atomic_load_explicit(&shm->deal.turn, memory_order_relaxed))
            continue;
        memcpy(&got, words, sizeof got);
        if (turn > 0 && got.count <= DEAL_LISTS)
            *deal = got;
        return;
    }
}

struct ipc_fragment *ipc_fragment(struct ipc_shm *shm, uint32_t index)
{
    return (struct ipc_fragment *)(void *)((char *)shm + shm->fragments_offset) + index;
}

struct ipc_place *ipc_places(struct ipc_shm *shm)
{
    return (struct ipc_place *)(void *)((char *)shm + shm->places_offset);
}

float *ipc_base(struct ipc_shm *shm, const struct ipc_fragment *fragment)
{
    return (float *)(void *)((char *)shm + fragment->area_offset[fragment->base & 1]);
}

float *ipc_area(struct ipc_shm *shm, const struct ipc_fragment *fragment)
{
    return (float *)(void *)((char *)shm + fragment->area_offset[(fragment->base & 1) ^ 1]);
}
