#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/trainer/port_parts.h"

/* How long a first trainer waits for the peers to be heard, so that a run under way is not begun anew. */
enum { PEERS_PATIENCE_MS = 3000, MESSAGES_PER_TURN = 4096, TURNED_AWAY_MS = 2000 };

/* ---- set-up ---- */

static enum err open_listener(const char *path, int type, int *fd)
{
    struct sockaddr_un address;
    TRY(ipc_address(path, &address));
    *fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return err_set_errno(ERR_IO, "cannot open a socket");
    /* A socket file without a listener is what a killed daemon leaves; one with a listener is a running daemon. */
    int probe = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    bool alive = probe >= 0 && connect(probe, (const struct sockaddr *)&address, sizeof address) == 0;
    if (probe >= 0)
        close(probe);
    if (alive)
        return err_set(ERR_CONF, "%s: another dilocod is running with these sockets; stop it or set [island] sockets",
                       path);
    unlink(path);
    if (bind(*fd, (const struct sockaddr *)&address, sizeof address) != 0 || listen(*fd, 8) != 0)
        return err_set_errno(ERR_CONF, "%s: cannot listen; is the folder writable?", path);
    return ERR_OK;
}

enum err port_new(struct engine *engine)
{
    struct port *port;
    TRY(mem_new(1, sizeof *port, "the trainer's port", &port));
    engine->port = port;
    port->listen_fd = port->socket = port->turned_away = port->memfd = port->resume_fd = -1;
    TRY(fsio_mkdirs(engine->conf->run_folder, 0755));
    TRY(mem_printf(&port->path, "%s/worker.sock", engine->conf->run_folder));
    return open_listener(port->path, SOCK_SEQPACKET, &port->listen_fd);
}

void port_free(struct engine *engine)
{
    struct port *port = engine->port;
    if (port == NULL)
        return;
    port_drop_shm(engine);
    if (port->socket >= 0)
        close(port->socket);
    if (port->resume_fd >= 0)
        close(port->resume_fd);
    if (port->turned_away >= 0)
        close(port->turned_away);
    if (port->listen_fd >= 0) {
        close(port->listen_fd);
        unlink(port->path);
    }
    mem_free(port->tensors);
    mem_free(port->path);
    mem_free(port);
    engine->port = NULL;
}

size_t port_poll(struct engine *engine, struct pollfd *items, size_t items_max)
{
    struct port *port = engine->port;
    size_t count = 0;
    if (items_max < 2)
        return 0;
    if (port->socket >= 0)
        items[count++] = (struct pollfd){.fd = port->socket, .events = POLLIN};
    if (port->socket >= 0 ? port->turned_away < 0 : port->pins == 0)
        items[count++] = (struct pollfd){.fd = port->listen_fd, .events = POLLIN};
    return count;
}

/* ---- sending ---- */

static void send_message(struct port *port, const struct ipc_message *message, int fd)
{
    if (port->socket >= 0 && ipc_send(port->socket, message, fd) == ERR_AGAIN)
        log_warn("the trainer does not read its messages (%s was dropped; the shared memory has the truth)",
                 ipc_type_name(message->type));
}

void port_wake(struct port *port, uint32_t f)
{
    struct ipc_message message = {.type = IPC_WAKE, .fragment = f};
    send_message(port, &message, -1);
}

/* ---- the end of an attachment ---- */

static void close_attachment(struct engine *engine)
{
    struct port *port = engine->port;
    bool was_training = port->phase == PORT_TRAINING;
    if (port->socket >= 0)
        close(port->socket);
    port->socket = -1;
    if (port->resume_fd >= 0)
        close(port->resume_fd);
    port->resume_fd = -1;
    port->phase = PORT_NONE;
    port->closing = true;
    for (uint32_t f = 0; port->fragments != NULL && f < engine_fragments(engine); f++) {
        if (!port->fragments[f].up)
            continue;
        port->fragments[f].up = false;
        engine_event(engine, &(struct sync_event){.type = SYNC_EV_TRAINER_DOWN, .fragment = f});
    }
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        engine->fragments[f].mixed_shards = 0;
        engine->fragments[f].void_work = false;
    }
    if (was_training && !port->finished)
        log_warn("the trainer (pid %" PRIu32 ") is gone; rounds go on without it", port->pid);
    engine->announce = true;
}

static void refuse(struct engine *engine, const char *reason)
{
    struct ipc_message message = {.type = IPC_REFUSED};
    snprintf(message.text, sizeof message.text, "%s", reason);
    log_error("the trainer is refused: %s", reason);
    send_message(engine->port, &message, -1);
    close_attachment(engine);
}

/* ---- attaching ---- */

static void accept_trainer(struct engine *engine)
{
    struct port *port = engine->port;
    struct ucred who;
    socklen_t bytes = sizeof who;
    if (port->pins > 0)
        return;
    port_drop_shm(engine);
    int fd = accept4(port->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    port->socket = fd;
    port->phase = PORT_REGISTERING;
    port->closing = port->finishing = port->finished = port->leave = false;
    port->tensors_count = 0;
    port->tokens_last = port->report.tokens;
    port->report_ms = 0;
    port->report = (struct ipc_report){0};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0 || (who.uid != 0 && who.uid != getuid())) {
        refuse(engine, "only the daemon's own user and root may attach a trainer");
        return;
    }
    port->pid = (uint32_t)who.pid;
}

/* Two trainers on one socket are a mistake; the second is told so, rather than left waiting for the end of the first.
 */
static void turn_away_second(struct engine *engine)
{
    struct port *port = engine->port;
    struct pollfd first = {.fd = port->socket};
    /* One that has just closed is still to be read to its end: whoever comes now may be the same trainer again. */
    if (port->turned_away >= 0 || (poll(&first, 1, 0) > 0 && first.revents != 0))
        return;
    int fd = accept4(port->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct ipc_message message = {.type = IPC_REFUSED};
    snprintf(message.text, sizeof message.text,
             "the trainer with pid %" PRIu32 " is attached already, and an island has one; end that one first "
             "(dilococtl leave)",
             port->pid);
    log_warn("a second trainer is turned away: %s", message.text);
    if (ipc_send(fd, &message, -1) != ERR_OK)
        log_debug("a second trainer was gone before it was told: %s", err_text());
    port->turned_away = fd;
    port->turned_away_ms = engine->now_ms;
}

static void hello_in(struct engine *engine, const struct ipc_message *message, int fd)
{
    struct port *port = engine->port;
    port->hello = message->hello;
    port->hello.trainer[sizeof port->hello.trainer - 1] = '\0';
    if (port->resume_fd >= 0)
        close(port->resume_fd);
    port->resume_fd = fd >= 0 ? dup(fd) : -1;
    if (port->hello.version != IPC_VERSION) {
        char text[128];
        snprintf(text, sizeof text,
                 "it speaks version %" PRIu32 " of the daemon's interface, we speak %d; install the same release",
                 port->hello.version, IPC_VERSION);
        refuse(engine, text);
    }
}

static void tensor_in(struct engine *engine, const struct ipc_message *message)
{
    struct port *port = engine->port;
    if (port->tensors_count == port->tensors_room) {
        uint32_t room = port->tensors_room > 0 ? 2 * port->tensors_room : 64;
        if (room > 2 * IPC_TENSORS_MAX ||
            mem_grow(&port->tensors, port->tensors_count, room, sizeof *port->tensors, "tensors") != ERR_OK) {
            refuse(engine, "too many tensors");
            return;
        }
        port->tensors_room = room;
    }
    struct ipc_tensor *tensor = &port->tensors[port->tensors_count++];
    *tensor = message->tensor;
    tensor->name[IPC_NAME_BYTES - 1] = '\0';
    if (tensor->dims > IPC_DIMS_MAX || tensor->layer < -1 || strpbrk(tensor->name, "\t\n") != NULL)
        refuse(engine, "a tensor with a name, shape or layer that makes no sense");
}

static void say_difference(const struct engine *engine, const struct model_plan *theirs, char *text, size_t text_bytes)
{
    const struct model_plan *ours = engine->plan;
    uint32_t i = 0;
    while (i < ours->tensors_count && i < theirs->tensors_count &&
           strcmp(ours->tensors[i].name, theirs->tensors[i].name) == 0 &&
           model_plan_count(&ours->tensors[i]) == model_plan_count(&theirs->tensors[i]))
        i++;
    snprintf(text, text_bytes, "its tensors are not those of the run: tensor %" PRIu32 " is %.80s, the run has %.80s",
             i, i < theirs->tensors_count ? theirs->tensors[i].name : "missing",
             i < ours->tensors_count ? ours->tensors[i].name : "none there");
}

static bool fits_plan(struct engine *engine)
{
    struct port *port = engine->port;
    struct model_plan *plan;
    char text[IPC_TEXT_BYTES];
    if (model_plan_new(&engine->spec, port->tensors, port->tensors_count, &plan) != ERR_OK) {
        snprintf(text, sizeof text, "%.300s", err_text());
        refuse(engine, text);
        return false;
    }
    if (engine->plan == NULL) {
        if (engine_set_plan(engine, plan) == ERR_OK)
            return true;
        snprintf(text, sizeof text, "%.300s", err_text());
        if (engine->plan != NULL) {
            engine_fail(engine, text);
        } else {
            model_plan_free(plan);
            refuse(engine, text);
        }
        return false;
    }
    bool same = digest_equal(&plan->plan->digest, &engine->plan->plan->digest);
    if (!same)
        say_difference(engine, plan, text, sizeof text);
    model_plan_free(plan);
    if (!same)
        refuse(engine, text);
    return same;
}

static struct ipc_message welcome_of(const struct engine *engine, bool need_initial, bool resumed)
{
    struct ipc_message message = {.type = IPC_WELCOME};
    message.welcome = (struct ipc_welcome){.session = engine->port->session,
                                           .bytes = engine->port->shm_bytes,
                                           .need_initial = need_initial,
                                           .island_index = engine->view.self,
                                           .islands_count = engine->view.count,
                                           .resumed = resumed};
    snprintf(message.welcome.island, sizeof message.welcome.island, "%s", engine->conf->name);
    return message;
}

/* A trainer that kept its memory while we were away goes on where it is. */
/* Whether anyone has, or is expected to have, the state of a fragment that is blank here. */
static bool to_be_had(const struct engine *engine, uint32_t f)
{
    for (uint32_t i = 0; i < engine->view.count; i++)
        if (i != engine->view.self && sync_heard(engine->sync, i, f).hash_known)
            return true;
    return engine->now_ms < engine->start_ms + PEERS_PATIENCE_MS;
}

/* Its trainer trains on meanwhile: what is being applied, fetched or repaired comes first. */
static void resume_trainer(struct engine *engine)
{
    struct port *port = engine->port;
    int fd = port->resume_fd;
    bool ready = true;
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        ready &= sync_known(engine->sync, f) && sync_state(engine->sync, f) == SYNC_LISTENING;
        if (sync_known(engine->sync, f) || to_be_had(engine, f))
            continue;
        close(fd);
        port->resume_fd = -1;
        refuse(engine, "this daemon has no state to go on from; start the trainer anew");
        return;
    }
    if (!ready)
        return;
    port->resume_fd = -1;
    if (port_adopt_shm(engine, fd) != ERR_OK) {
        if (port->memfd != fd)
            close(fd);
        char text[IPC_TEXT_BYTES];
        snprintf(text, sizeof text, "%.300s", err_text());
        refuse(engine, text);
        return;
    }
    struct ipc_message message = welcome_of(engine, false, true);
    send_message(port, &message, -1);
    port->phase = PORT_TRAINING;
    port->report.step = port->hello.step;
    port->report.tokens = port->hello.tokens;
    log_info("trainer %s (pid %" PRIu32 ") is attached again at step %" PRIu64, port->hello.trainer, port->pid,
             port->hello.step);
    for (uint32_t f = 0; f < engine_fragments(engine); f++)
        port_resume_fragment(engine, f);
}

/* Whether the run has a state somewhere: here, or at a peer. */
/* Whether there is a state to start from. A peer at version 0 has no more than its trainer's initial tensors; ours
 * brings its own, which should be the same. */
static bool run_has_begun(const struct engine *engine)
{
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        if (sync_known(engine->sync, f))
            return true;
        for (uint32_t i = 0; i < engine->view.count; i++)
            if (i != engine->view.self && sync_heard(engine->sync, i, f).version > 0)
                return true;
    }
    return false;
}

static bool peers_heard(const struct engine *engine)
{
    for (uint32_t i = 0; i < engine->view.count; i++)
        if (i != engine->view.self && (!engine->peers[i].up || engine->peers[i].sequence_in == 0))
            return false;
    return true;
}

static void welcome(struct engine *engine)
{
    struct port *port = engine->port;
    bool begun = run_has_begun(engine);
    if (!begun && !peers_heard(engine) && engine->now_ms < engine->start_ms + PEERS_PATIENCE_MS)
        return;
    if (port_make_shm(engine) != ERR_OK) {
        char text[IPC_TEXT_BYTES];
        snprintf(text, sizeof text, "%.300s", err_text());
        refuse(engine, text);
        return;
    }
    struct ipc_message message = welcome_of(engine, !begun, false);
    port->phase = begun ? PORT_STARTING : PORT_INITIAL;
    send_message(port, &message, port->memfd);
}

static void registered_in(struct engine *engine)
{
    struct port *port = engine->port;
    if (port->phase != PORT_REGISTERING || !fits_plan(engine))
        return;
    if (port->hello.session != 0 && port->resume_fd >= 0) {
        port->phase = PORT_RESUMING;
        resume_trainer(engine);
        return;
    }
    port->tokens_before += port->tokens_last; /* a new process counts from 0 */
    log_info("trainer %s (pid %" PRIu32 ") registered %" PRIu32 " tensors", port->hello.trainer, port->pid,
             port->tensors_count);
    port->phase = PORT_WELCOMING;
    welcome(engine);
}

static void initial_in(struct engine *engine)
{
    struct port *port = engine->port;
    if (port->phase != PORT_INITIAL || port->initial_left > 0)
        return;
    port->phase = PORT_STARTING;
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        /* A peer's state may have come, or be on its way: the run has begun there, and that one counts. */
        if (sync_known(engine->sync, f) || sync_state(engine->sync, f) == SYNC_REPAIR)
            continue;
        port->initial_left++;
        rounds_start(engine, f, port_base(port, f), true);
    }
}

bool port_initialising(const struct engine *engine)
{
    return engine->port->initial_left > 0;
}

/* ---- starting: fragments are brought as they become known; then the trainer goes ---- */

void port_started(struct engine *engine, uint32_t f, bool initial, const struct digest *hash)
{
    struct port *port = engine->port;
    struct engine_fragment *own = &engine->fragments[f];
    if (initial) {
        port->initial_left--;
        if (!sync_known(engine->sync, f)) {
            own->state = (struct store_fragment){.hash = *hash};
            sync_restore(engine->sync, f, 0, hash, &(struct bitset){{0}});
            rounds_checkpoint(engine, f);
            engine->announce = true;
        }
        return;
    }
    if (port->shm == NULL || port->closing || port->phase != PORT_STARTING)
        return;
    port->fragments[f].starting = false;
    own->mixed_shards = 0; /* of a trainer before this one */
    own->void_work = false;
    if (sync_state(engine->sync, f) != SYNC_LISTENING)
        return; /* it moved on meanwhile: brought again */
    port_ipc(port, f)->base_version = own->state.version;
    port->fragments[f].up = true;
    engine_event(engine,
                 &(struct sync_event){.type = SYNC_EV_TRAINER_UP, .fragment = f, .version = own->state.version});
}

static void go(struct engine *engine)
{
    struct port *port = engine->port;
    struct ipc_message message = {.type = IPC_GO};
    struct schedule schedule = rules_schedule(&engine->spec, engine_fragments(engine));
    uint64_t version = 0;
    uint64_t step = engine_step(engine);
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        uint64_t own = engine->fragments[f].state.version;
        version = own > version ? own : version;
    }
    /* Before the first result everyone is at the beginning; later, where this island was or the run is. */
    if (version > 0 && port->own_step > step)
        step = port->own_step;
    for (uint32_t f = 0; f < engine_fragments(engine); f++)
        port_ipc(port, f)->due_step = schedule_next_due(&schedule, f, step);
    message.go = (struct ipc_go){.step = step, .version = version};
    send_message(port, &message, -1);
    port->phase = PORT_TRAINING;
    port->report.step = step;
    engine->announce = true;
    log_info("training goes on behind step %" PRIu64 " from version %" PRIu64, step, version);
    for (uint32_t i = 0; i < engine->view.count; i++)
        if (i != engine->view.self && !engine->peers[i].up)
            log_warn(
                "island %s is not here; no round closes without it, and what is trained meanwhile goes out when it "
                "comes (dilococtl status says what is known)",
                engine->view.members[i].name);
}

static void start_fragments(struct engine *engine)
{
    struct port *port = engine->port;
    bool all = true;
    for (uint32_t f = 0; f < engine_fragments(engine); f++) {
        struct port_fragment *fragment = &port->fragments[f];
        if (fragment->up)
            continue;
        all = false;
        bool near = sync_own(engine->sync, f).version + 1 >= sync_version_max(engine->sync, f);
        if (fragment->starting || !near || !sync_known(engine->sync, f) ||
            sync_state(engine->sync, f) != SYNC_LISTENING)
            continue;
        fragment->starting = true;
        rounds_start(engine, f, port_base(port, f), false);
    }
    if (all)
        go(engine);
}

/* ---- messages of a training trainer ---- */

static void report_in(struct engine *engine, const struct ipc_report *report)
{
    struct port *port = engine->port;
    port->report = *report;
    /* JSON has no NaN; a loss below zero says the same to whoever looks. */
    if (!isfinite(report->loss))
        port->report.loss = -1;
    if (!isfinite(report->grad_norm))
        port->report.grad_norm = -1;
    if (!isfinite(report->tokens_per_s) || !isfinite(report->lr))
        port->report.tokens_per_s = port->report.lr = 0;
    port->report_ms = engine->now_ms;
    if (report->step > port->own_step)
        port->own_step = report->step;
}

static void finished_in(struct engine *engine)
{
    struct port *port = engine->port;
    port->finished = true;
    engine->export_follows = !port->leave;
    log_info("the trainer is done: its last contributions are counted");
    workers_finished(engine);
    if (!port->leave)
        rounds_export(engine);
    engine->announce = true;
}

static void dispatch(struct engine *engine, const struct ipc_message *message, int fd)
{
    struct port *port = engine->port;
    bool training = port->phase == PORT_TRAINING;
    uint32_t f = message->fragment;
    if (f >= engine_fragments(engine) && f != 0) {
        refuse(engine, "a message about a fragment that does not exist");
        return;
    }
    switch (message->type) {
    case IPC_HELLO: hello_in(engine, message, fd); break;
    case IPC_TENSOR:
        if (port->phase == PORT_REGISTERING)
            tensor_in(engine, message);
        break;
    case IPC_REGISTERED: registered_in(engine); break;
    case IPC_INITIAL: initial_in(engine); break;
    case IPC_TAKEN:
        if (training)
            port_taken(engine, f);
        break;
    case IPC_MIXED:
        if (training)
            port_mixed(engine, f);
        break;
    case IPC_REPORT:
        if (training)
            report_in(engine, &message->report);
        break;
    case IPC_SETTLED:
        port->finishing = true;
        if (training && port->fragments[f].up)
            engine_event(engine, &(struct sync_event){.type = SYNC_EV_SETTLED, .fragment = f});
        break;
    case IPC_FINISHED:
        if (training)
            finished_in(engine);
        break;
    default: refuse(engine, "a message that a trainer does not send"); break;
    }
}

void port_run(struct engine *engine)
{
    struct port *port = engine->port;
    struct ipc_message message;
    if (port->socket < 0)
        accept_trainer(engine);
    else
        turn_away_second(engine);
    for (int i = 0; i < MESSAGES_PER_TURN && port->socket >= 0; i++) {
        int fd;
        enum err err = ipc_recv(port->socket, &message, &fd);
        if (err == ERR_AGAIN)
            return;
        if (err == ERR_PROTO) {
            char text[IPC_TEXT_BYTES];
            snprintf(text, sizeof text, "%.300s", err_text());
            refuse(engine, text);
        } else if (err != ERR_OK) {
            close_attachment(engine);
        } else {
            dispatch(engine, &message, fd);
        }
        if (fd >= 0)
            close(fd);
    }
}

void port_tick(struct engine *engine)
{
    struct port *port = engine->port;
    if (port->closing && port->pins == 0) {
        port_drop_shm(engine);
        port->closing = false;
    }
    if (port->turned_away >= 0 && engine->now_ms >= port->turned_away_ms + TURNED_AWAY_MS) {
        close(port->turned_away);
        port->turned_away = -1;
    }
    if (port->phase == PORT_RESUMING)
        resume_trainer(engine);
    else if (port->phase == PORT_WELCOMING)
        welcome(engine);
    else if (port->phase == PORT_STARTING && port->initial_left == 0)
        start_fragments(engine);
}

void port_leave(struct engine *engine)
{
    struct port *port = engine->port;
    struct ipc_message message = {.type = IPC_LEAVE};
    if (port->phase != PORT_TRAINING)
        return;
    port->leave = port->finishing = true;
    atomic_store(&port->shm->leave, 1);
    send_message(port, &message, -1);
}

struct port_info port_info(const struct engine *engine)
{
    const struct port *port = engine->port;
    struct port_info info = {.attached = port->phase != PORT_NONE,
                             .training = port->phase == PORT_TRAINING && !port->finished,
                             .finishing = port->finishing || port->leave,
                             .finished = port->finished && !port->leave,
                             .pid = port->pid,
                             .step = port->report.step,
                             .tokens = port->tokens_before + port->report.tokens,
                             .loss = port->report.loss,
                             .tokens_per_s = port->report.tokens_per_s,
                             .lr = port->report.lr,
                             .grad_norm = port->report.grad_norm,
                             .report_ms = port->report_ms};
    snprintf(info.trainer, sizeof info.trainer, "%s", port->hello.trainer);
    return info;
}
