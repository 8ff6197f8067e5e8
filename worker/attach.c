/*
 * libdiloco: see diloco.h for the interface and common/ipc.h for the contract with the daemon.
 *
 * Three layers: the connection (connect, announce, receive, attach again), the two moves of a fragment (snapshot out,
 * anchor in), and the public calls that drive them. The words in shared memory are the truth; messages only wake.
 */
#include "worker/diloco.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/env.h"
#include "common/err.h"
#include "common/ipc.h"
#include "common/mem.h"

enum { POLL_SLICE_MS = 200, REATTACH_INTERVAL_MS = 1000 };

struct tensor {
    struct ipc_tensor announced;
    void *data;
    uint64_t count;
};

/* What the trainer's side remembers of a fragment beyond the shared memory. */
struct local {
    bool sent;               /* a snapshot is out and its anchor not taken in yet */
    bool settled;            /* the daemon knows that nothing more comes */
    uint64_t tokens_counted; /* of ours, in the anchor our tensors last took in */
};

struct diloco {
    struct diloco_options options;
    char *socket_path;
    int socket;
    int memfd;
    struct ipc_shm *shm;
    uint64_t session;
    struct tensor *tensors;
    uint32_t tensors_count, tensors_room;
    struct local *local;
    uint64_t step, tokens;
    uint64_t reattach_ms;
    bool begun, stop;
    char error[IPC_TEXT_BYTES + 256];
};

static _Thread_local char attach_error[IPC_TEXT_BYTES + 256];

static int fail(struct diloco *d, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int fail(struct diloco *d, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(d->error, sizeof d->error, format, args);
    va_end(args);
    return code;
}

static bool interrupted(const struct diloco *d)
{
    return d->options.interrupted != NULL && d->options.interrupted(d->options.interrupted_user) != 0;
}

/* ---- connection ---- */

static void disconnect(struct diloco *d)
{
    if (d->socket >= 0)
        close(d->socket);
    d->socket = -1;
}

static bool try_connect(struct diloco *d)
{
    struct sockaddr_un address;
    if (ipc_address(d->socket_path, &address) != ERR_OK)
        return false;
    d->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->socket >= 0 && connect(d->socket, (const struct sockaddr *)&address, sizeof address) == 0)
        return true;
    disconnect(d);
    return false;
}

/* Waits until the socket can be read or written, for one slice at most. */
static void wait_socket(const struct diloco *d, short events)
{
    struct pollfd item = {.fd = d->socket, .events = events};
    poll(&item, d->socket >= 0 ? 1 : 0, POLL_SLICE_MS);
}

/* Sends, waiting for room; false if the daemon is gone. */
static bool send_message(struct diloco *d, const struct ipc_message *message, int fd)
{
    while (d->socket >= 0) {
        enum err err = ipc_send(d->socket, message, fd);
        if (err == ERR_OK)
            return true;
        if (err != ERR_AGAIN || interrupted(d))
            break;
        wait_socket(d, POLLOUT);
    }
    disconnect(d);
    return false;
}

static void send_fragment(struct diloco *d, enum ipc_type type, uint32_t fragment)
{
    struct ipc_message message = {.type = type, .fragment = fragment};
    send_message(d, &message, -1);
}

/* Next message, waiting for it: DILOCO_OK, DILOCO_INTERRUPTED, or DILOCO_UNREACHABLE if the daemon went away. */
static int recv_message(struct diloco *d, struct ipc_message *message, int *fd)
{
    *fd = -1;
    while (d->socket >= 0) {
        enum err err = ipc_recv(d->socket, message, fd);
        if (err == ERR_OK)
            return DILOCO_OK;
        if (err != ERR_AGAIN) {
            disconnect(d);
            break;
        }
        if (interrupted(d))
            return fail(d, DILOCO_INTERRUPTED, "interrupted while waiting for the daemon");
        wait_socket(d, POLLIN);
    }
    return fail(d, DILOCO_UNREACHABLE, "the daemon at %s went away", d->socket_path);
}

/* Waits for one type of message; REFUSED ends the wait, others are passed over. */
static int await(struct diloco *d, enum ipc_type type, struct ipc_message *message, int *fd)
{
    for (;;) {
        int result = recv_message(d, message, fd);
        if (result != DILOCO_OK)
            return result;
        if (message->type == type)
            return DILOCO_OK;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        if (message->type == IPC_LEAVE)
            d->stop = true;
        if (message->type == IPC_REFUSED) {
            disconnect(d);
            return fail(d, DILOCO_REFUSED, "the daemon refused this trainer: %.*s", IPC_TEXT_BYTES - 1, message->text);
        }
    }
}

/* HELLO, every tensor, REGISTERED; then the daemon's WELCOME. */
static int announce(struct diloco *d, struct ipc_message *message, int *fd)
{
    struct ipc_message hello = {.type = IPC_HELLO};
    hello.hello = (struct ipc_hello){
        .version = IPC_VERSION, .pid = (uint32_t)getpid(), .session = d->session, .step = d->step, .tokens = d->tokens};
    snprintf(hello.hello.trainer, sizeof hello.hello.trainer, "%s",
             d->options.trainer != NULL ? d->options.trainer : "trainer");
    bool sent = send_message(d, &hello, d->memfd);
    for (uint32_t i = 0; sent && i < d->tensors_count; i++) {
        struct ipc_message tensor = {.type = IPC_TENSOR};
        tensor.tensor = d->tensors[i].announced;
        sent = send_message(d, &tensor, -1);
    }
    struct ipc_message end = {.type = IPC_REGISTERED};
    if (!sent || !send_message(d, &end, -1)) {
        /* It may have said why before it closed. */
        return fail(d, DILOCO_UNREACHABLE, "the daemon at %s went away", d->socket_path);
    }
    return await(d, IPC_WELCOME, message, fd);
}

static int map_shared(struct diloco *d, int memfd, uint64_t session)
{
    struct stat status;
    if (memfd < 0 || fstat(memfd, &status) != 0 || status.st_size < (off_t)sizeof(struct ipc_shm))
        return fail(d, DILOCO_ERROR, "the daemon sent no shared memory; is it of the same version?");
    void *map = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (map == MAP_FAILED)
        return fail(d, DILOCO_ERROR, "cannot map the daemon's shared memory: %s", strerror(errno));
    if (ipc_shm_check(map, (uint64_t)status.st_size) != ERR_OK ||
        ((struct ipc_shm *)map)->tensors_count != d->tensors_count) {
        munmap(map, (size_t)status.st_size);
        return fail(d, DILOCO_ERROR, "the daemon's shared memory does not fit: %s", err_text());
    }
    d->memfd = memfd;
    d->shm = map;
    d->session = session;
    if (mem_new(d->shm->fragments_count, sizeof *d->local, "fragments", &d->local) != ERR_OK)
        return fail(d, DILOCO_ERROR, "%s", err_text());
    return DILOCO_OK;
}

/* Tries to attach again after the daemon went away; at most once per interval. Only a refusal is an error. */
static int reattach(struct diloco *d)
{
    uint64_t now = env_mono_ms();
    if (now < d->reattach_ms)
        return DILOCO_OK;
    d->reattach_ms = now + REATTACH_INTERVAL_MS;
    if (!try_connect(d))
        return DILOCO_OK;
    struct ipc_message message;
    int fd;
    int result = announce(d, &message, &fd);
    if (fd >= 0)
        close(fd);
    if (result == DILOCO_OK && !message.welcome.resumed) {
        disconnect(d);
        return fail(d, DILOCO_REFUSED, "the daemon could not take over the shared memory; start this trainer anew");
    }
    return result == DILOCO_UNREACHABLE ? DILOCO_OK : result;
}

/* Takes in what has arrived without waiting. */
static int drain_messages(struct diloco *d)
{
    struct ipc_message message;
    int fd;
    if (d->socket < 0)
        return reattach(d);
    for (;;) {
        enum err err = ipc_recv(d->socket, &message, &fd);
        if (fd >= 0)
            close(fd);
        if (err == ERR_AGAIN)
            return DILOCO_OK;
        if (err != ERR_OK) {
            disconnect(d);
            return DILOCO_OK;
        }
        if (message.type == IPC_LEAVE)
            d->stop = true;
        if (message.type == IPC_REFUSED) {
            disconnect(d);
            return fail(d, DILOCO_REFUSED, "the daemon refused this trainer: %.*s", IPC_TEXT_BYTES - 1, message.text);
        }
    }
}

/* ---- values ---- */

static void read_tensor(const struct diloco *d, float *to, const void *tensor, size_t count)
{
    if (d->options.device.read != NULL)
        d->options.device.read(d->options.device.user, to, tensor, count);
    else
        memcpy(to, tensor, count * sizeof *to);
}

static void write_tensor(const struct diloco *d, void *tensor, const float *from, size_t count)
{
    if (d->options.device.write != NULL)
        d->options.device.write(d->options.device.user, tensor, from, count);
    else
        memcpy(tensor, from, count * sizeof *from);
}

static void mix_host(float *live, const float *anchor, const float *base, size_t count, enum diloco_mix mode,
                     double alpha)
{
    float keep = (float)alpha;
    float take = (float)(1 - alpha);
    if (mode == DILOCO_RESET) {
        memcpy(live, anchor, count * sizeof *live);
    } else if (mode == DILOCO_SHIFT) {
        for (size_t i = 0; i < count; i++)
            live[i] += anchor[i] - base[i];
    } else {
        for (size_t i = 0; i < count; i++)
            live[i] = keep * live[i] + take * anchor[i];
    }
}

static void mix_tensor(const struct diloco *d, void *tensor, size_t skip, const float *anchor, const float *base,
                       size_t count, enum diloco_mix mode)
{
    void *live = (float *)tensor + skip;
    double alpha = d->shm->mix;
    if (mode == DILOCO_MIX && alpha == 0)
        mode = DILOCO_RESET; /* and an Inf in the old value cannot survive as 0 * Inf */
    if (d->options.device.mix != NULL)
        d->options.device.mix(d->options.device.user, live, anchor, base, count, mode, alpha);
    else
        mix_host(live, anchor, base, count, mode, alpha);
}

/* ---- the two moves of a fragment ---- */

static bool word_move(struct ipc_fragment *fragment, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong_explicit(&fragment->word, &from, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

static uint32_t word_of(struct ipc_fragment *fragment)
{
    return atomic_load_explicit(&fragment->word, memory_order_acquire);
}

static void copy_out(struct diloco *d, uint32_t f, float *area)
{
    const struct ipc_place *places = ipc_places(d->shm);
    for (uint32_t i = 0; i < d->tensors_count; i++)
        if (places[i].fragment == f)
            read_tensor(d, area + places[i].offset, d->tensors[i].data, places[i].count);
}

static void copy_in(struct diloco *d, uint32_t f, const float *area)
{
    const struct ipc_place *places = ipc_places(d->shm);
    for (uint32_t i = 0; i < d->tensors_count; i++)
        if (places[i].fragment == f)
            write_tensor(d, d->tensors[i].data, area + places[i].offset, places[i].count);
}

/* FREE -> SNAPSHOT. False if the daemon took the fragment just now to bring an anchor. */
static bool take_snapshot(struct diloco *d, uint32_t f, bool final)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    if (!word_move(fragment, IPC_FREE, IPC_COPYING))
        return false;
    copy_out(d, f, ipc_area(d->shm, fragment));
    fragment->snapshot_step = d->step;
    fragment->snapshot_tokens = d->tokens;
    fragment->snapshot_final = final;
    fragment->mix_step = final ? d->step : d->step + d->shm->overlap;
    atomic_store_explicit(&fragment->word, IPC_SNAPSHOT, memory_order_release);
    d->local[f].sent = true;
    send_fragment(d, IPC_TAKEN, f);
    return true;
}

static void mix_range(struct diloco *d, uint32_t f, const struct ipc_range *range, enum diloco_mix mode)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    const struct ipc_place *places = ipc_places(d->shm);
    const float *anchor = ipc_area(d->shm, fragment);
    const float *base = ipc_base(d->shm, fragment);
    for (uint32_t i = 0; i < d->tensors_count; i++) {
        const struct ipc_place *place = &places[i];
        uint64_t begin = range->begin > place->offset ? range->begin : place->offset;
        uint64_t end = place->offset + place->count;
        end = range->end < end ? range->end : end;
        if (place->fragment != f || begin >= end)
            continue;
        mix_tensor(d, d->tensors[i].data, begin - place->offset, anchor + begin, base + begin, end - begin, mode);
    }
}

/* ANCHOR -> FREE. `ending`: nothing was trained since the snapshot and nothing will be, so the anchor replaces what it
 * already contains. */
static void take_anchor(struct diloco *d, uint32_t f, bool ending)
{
    struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
    if (!word_move(fragment, IPC_ANCHOR, IPC_MIXING))
        return;
    bool counted = false;
    bool missed = false;
    for (uint32_t r = 0; r < fragment->ranges_count && r < IPC_RANGES_MAX; r++) {
        const struct ipc_range *range = &fragment->ranges[r];
        enum diloco_mix mode = range->mode == IPC_SHIFT             ? DILOCO_SHIFT
                               : range->mode == IPC_RESET || ending ? DILOCO_RESET
                                                                    : DILOCO_MIX;
        mix_range(d, f, range, mode);
        if (range->mode == IPC_SHIFT)
            missed = true;
        else
            counted = true;
    }
    if (counted && !missed)
        d->local[f].tokens_counted = d->local[f].sent ? fragment->snapshot_tokens : d->tokens;
    d->local[f].sent = false;
    fragment->base ^= 1;
    fragment->base_version = fragment->anchor_version;
    atomic_store_explicit(&fragment->word, IPC_FREE, memory_order_release);
    send_fragment(d, IPC_MIXED, f);
}

/* A snapshot that the daemon refused (a NaN in it) comes back as FREE without an anchor. True if that happened. */
static bool notice_release(struct diloco *d, uint32_t f)
{
    if (!d->local[f].sent || word_of(ipc_fragment(d->shm, f)) != IPC_FREE)
        return false;
    d->local[f].sent = false;
    return true;
}

/* Waits for the daemon to change something: a message, a slice of time, or its return. */
static int wait_for_daemon(struct diloco *d)
{
    if (interrupted(d))
        return fail(d, DILOCO_INTERRUPTED, "interrupted while waiting for an anchor");
    wait_socket(d, POLLIN);
    return drain_messages(d);
}

static int sync_fragments(struct diloco *d)
{
    for (;;) {
        bool wait = false;
        for (uint32_t f = 0; f < d->shm->fragments_count; f++) {
            struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
            notice_release(d, f);
            if (word_of(fragment) == IPC_ANCHOR && d->step >= fragment->mix_step)
                take_anchor(d, f, false);
            if (word_of(fragment) == IPC_FREE && d->step >= fragment->due_step)
                take_snapshot(d, f, false);
            /* With overlap = 0 the anchor is due at this very step; otherwise it may be late. */
            if (d->local[f].sent && d->shm->late_wait != 0 && d->step >= fragment->mix_step)
                wait = true;
        }
        if (!wait)
            return DILOCO_OK;
        int result = wait_for_daemon(d);
        if (result != DILOCO_OK)
            return result;
    }
}

/* ---- public calls ---- */

int diloco_attach(const struct diloco_options *options, struct diloco **out)
{
    struct diloco *d;
    *out = NULL;
    const char *path = options->socket_path != NULL ? options->socket_path : getenv("DILOCO_SOCKET");
    snprintf(attach_error, sizeof attach_error, "no socket path: set options.socket_path or DILOCO_SOCKET");
    if (path == NULL)
        return DILOCO_ERROR;
    if (mem_new(1, sizeof *d, "the attachment", &d) != ERR_OK || mem_strdup(path, &d->socket_path) != ERR_OK) {
        snprintf(attach_error, sizeof attach_error, "%s", err_text());
        mem_free(d);
        return DILOCO_ERROR;
    }
    d->options = *options;
    d->options.socket_path = d->socket_path;
    d->socket = -1;
    d->memfd = -1;
    uint64_t deadline_ms = env_mono_ms() + (uint64_t)(options->wait_ms > 0 ? options->wait_ms : 0);
    while (!try_connect(d)) {
        int reason = errno;
        if (env_mono_ms() >= deadline_ms || interrupted(d)) {
            snprintf(attach_error, sizeof attach_error, "no daemon at %s: %s; start dilocod, or check the path", path,
                     strerror(reason));
            diloco_detach(d);
            return DILOCO_UNREACHABLE;
        }
        poll(NULL, 0, POLL_SLICE_MS);
    }
    *out = d;
    return DILOCO_OK;
}

/* The first number between dots of a name, as in "model.layers.7.mlp.weight"; -1 if there is none. */
static int32_t layer_from_name(const char *name)
{
    for (const char *at = name; (at = strchr(at, '.')) != NULL;) {
        char *end;
        at++;
        if (*at < '0' || *at > '9')
            continue;
        long number = strtol(at, &end, 10);
        if ((*end == '.' || *end == '\0') && number < INT32_MAX)
            return (int32_t)number;
    }
    return -1;
}

int diloco_register(struct diloco *d, const struct diloco_tensor *tensor)
{
    if (d->begun)
        return fail(d, DILOCO_ERROR, "diloco_register() after diloco_begin()");
    if (tensor->name == NULL || strlen(tensor->name) >= IPC_NAME_BYTES || tensor->dims > IPC_DIMS_MAX)
        return fail(d, DILOCO_ERROR,
                    "tensor \"%.40s\": a name of at most %d bytes and at most %d dimensions are possible",
                    tensor->name != NULL ? tensor->name : "", IPC_NAME_BYTES - 1, IPC_DIMS_MAX);
    if (d->tensors_count == IPC_TENSORS_MAX)
        return fail(d, DILOCO_ERROR, "more than %d tensors", IPC_TENSORS_MAX);
    if (d->tensors_count == d->tensors_room) {
        uint32_t room = d->tensors_room > 0 ? 2 * d->tensors_room : 64;
        if (mem_grow(&d->tensors, d->tensors_count, room, sizeof *d->tensors, "registered tensors") != ERR_OK)
            return fail(d, DILOCO_ERROR, "%s", err_text());
        d->tensors_room = room;
    }
    struct tensor *slot = &d->tensors[d->tensors_count++];
    *slot = (struct tensor){.data = tensor->data, .count = 1};
    snprintf(slot->announced.name, sizeof slot->announced.name, "%s", tensor->name);
    slot->announced.dims = tensor->dims;
    slot->announced.layer = tensor->layer == DILOCO_LAYER_FROM_NAME ? layer_from_name(tensor->name) : tensor->layer;
    for (uint32_t i = 0; i < tensor->dims; i++) {
        slot->announced.shape[i] = tensor->shape[i];
        slot->count *= tensor->shape[i];
    }
    return DILOCO_OK;
}

int diloco_begin(struct diloco *d, struct diloco_start *start)
{
    struct ipc_message message;
    int fd;
    int result = announce(d, &message, &fd);
    if (result != DILOCO_OK)
        return result;
    struct ipc_welcome welcome = message.welcome;
    result = map_shared(d, fd, welcome.session);
    if (result != DILOCO_OK) {
        if (fd >= 0 && d->memfd != fd)
            close(fd);
        return result;
    }
    const struct ipc_place *places = ipc_places(d->shm);
    for (uint32_t i = 0; i < d->tensors_count; i++)
        if (places[i].count != d->tensors[i].count)
            return fail(d, DILOCO_ERROR, "the daemon has another size for tensor %s", d->tensors[i].announced.name);
    if (welcome.need_initial) {
        for (uint32_t f = 0; f < d->shm->fragments_count; f++)
            copy_out(d, f, ipc_base(d->shm, ipc_fragment(d->shm, f)));
        send_fragment(d, IPC_INITIAL, 0);
    }
    result = await(d, IPC_GO, &message, &fd);
    if (result != DILOCO_OK)
        return result;
    for (uint32_t f = 0; f < d->shm->fragments_count; f++)
        copy_in(d, f, ipc_base(d->shm, ipc_fragment(d->shm, f)));
    d->begun = true;
    d->step = message.go.step;
    *start = (struct diloco_start){.step = message.go.step,
                                   .steps = d->shm->steps,
                                   .version = message.go.version,
                                   .island_index = welcome.island_index,
                                   .islands_count = welcome.islands_count};
    snprintf(start->island, sizeof start->island, "%.63s", welcome.island);
    return DILOCO_OK;
}

int diloco_step(struct diloco *d, const struct diloco_report *report)
{
    if (!d->begun)
        return fail(d, DILOCO_ERROR, "diloco_step() before diloco_begin()");
    d->step++;
    d->tokens += report->tokens;
    int result = drain_messages(d);
    if (result != DILOCO_OK)
        return result;
    if (d->socket >= 0) {
        struct ipc_message message = {.type = IPC_REPORT};
        message.report = (struct ipc_report){.step = d->step,
                                             .tokens = d->tokens,
                                             .loss = report->loss,
                                             .tokens_per_s = report->tokens_per_s,
                                             .lr = report->lr,
                                             .grad_norm = report->grad_norm};
        /* A full socket drops a report, not a step. */
        if (ipc_send(d->socket, &message, -1) == ERR_CLOSED)
            disconnect(d);
    }
    result = sync_fragments(d);
    if (result != DILOCO_OK)
        return result;
    return d->stop || d->step >= d->shm->steps ? DILOCO_STOP : DILOCO_OK;
}

int diloco_finish(struct diloco *d)
{
    if (!d->begun)
        return fail(d, DILOCO_ERROR, "diloco_finish() before diloco_begin()");
    for (;;) {
        bool wait = false;
        for (uint32_t f = 0; f < d->shm->fragments_count; f++) {
            struct ipc_fragment *fragment = ipc_fragment(d->shm, f);
            if (notice_release(d, f))
                d->local[f].tokens_counted = d->tokens; /* refused for good: waiting would not make it better */
            if (word_of(fragment) == IPC_ANCHOR)
                take_anchor(d, f, d->local[f].sent && fragment->snapshot_tokens == d->tokens);
            if (word_of(fragment) == IPC_FREE && d->local[f].tokens_counted < d->tokens)
                take_snapshot(d, f, true);
            else if (word_of(fragment) == IPC_FREE && !d->local[f].settled) {
                /* Said at once, fragment by fragment: others may be waiting for us in a round of this one while we
                 * wait for them in another. */
                send_fragment(d, IPC_SETTLED, f);
                d->local[f].settled = d->socket >= 0;
            }
            wait |= word_of(fragment) != IPC_FREE;
        }
        if (!wait)
            break;
        int result = wait_for_daemon(d);
        if (result != DILOCO_OK)
            return result;
    }
    struct ipc_message message = {.type = IPC_FINISHED};
    send_message(d, &message, -1);
    return DILOCO_OK;
}

void diloco_detach(struct diloco *d)
{
    if (d == NULL)
        return;
    disconnect(d);
    if (d->shm != NULL)
        munmap(d->shm, d->shm->bytes);
    if (d->memfd >= 0)
        close(d->memfd);
    mem_free(d->tensors);
    mem_free(d->local);
    mem_free(d->socket_path);
    mem_free(d);
}

const char *diloco_error(const struct diloco *d)
{
    if (d == NULL)
        return attach_error;
    return d->error[0] != '\0' ? d->error : "no error recorded";
}

int diloco_attached(const struct diloco *d)
{
    return d->socket >= 0;
}
