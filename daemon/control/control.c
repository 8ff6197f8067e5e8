/*
 * The control socket: one request a line, one JSON answer a line (docs/FORMATS.md). Reading is for everyone who can
 * open the socket; join, leave and save are for root and the daemon's own user.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/ipc.h"
#include "common/mem.h"
#include "daemon/engine.h"

enum { CLIENTS_MAX = 32, REQUEST_BYTES_MAX = 1024 };

struct client {
    int fd; /* -1: free */
    bool privileged;
    char request[REQUEST_BYTES_MAX];
    size_t request_bytes;
    char *answer; /* malloc'ed by jansson */
    size_t answer_bytes, answer_at;
};

struct control {
    int listen_fd;
    char *path;
    struct client clients[CLIENTS_MAX];
};

/* ---- commands ---- */

typedef json_t *command_fn(struct engine *engine);

static json_t *outcome(enum err err, const char *text)
{
    if (err != ERR_OK)
        return json_pack("{s:s, s:s}", "error", err_text(), "code", err_name(err));
    return json_pack("{s:s}", "ok", text);
}

static json_t *command_join(struct engine *engine)
{
    return outcome(workers_join(engine), "the trainer is starting");
}

static json_t *command_leave(struct engine *engine)
{
    return outcome(workers_leave(engine), "the trainer sends its last contributions and stops");
}

static json_t *command_leave_now(struct engine *engine)
{
    return outcome(workers_leave_now(engine), "the trainer stops; work that no round has counted yet is given up");
}

static json_t *command_save(struct engine *engine)
{
    if (engine->sync == NULL)
        return outcome(err_set(ERR_STATE, "there is no anchor yet: no trainer was attached"), NULL);
    engine->export_note[0] = '\0';
    rounds_export(engine);
    return outcome(ERR_OK, "the anchor is being written; status shows where");
}

struct command {
    const char *name;
    bool privileged;
    command_fn *run;
};

static const struct command commands[] = {
    {"status", false, status_json}, {"peers", false, status_peers_json}, {"fragments", false, status_fragments_json},
    {"join", true, command_join},   {"leave", true, command_leave},      {"leave now", true, command_leave_now},
    {"save", true, command_save},
};

static json_t *run_command(struct engine *engine, const struct client *client, const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, name) != 0)
            continue;
        if (commands[i].privileged && !client->privileged)
            return outcome(err_set(ERR_STATE, "%s is for root and the user the daemon runs as", name), NULL);
        return commands[i].run(engine);
    }
    return outcome(err_set(ERR_ARG, "no command \"%.40s\"", name), NULL);
}

/* ---- clients ---- */

static void close_client(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    free(client->answer);
    *client = (struct client){.fd = -1};
}

static void accept_client(struct engine *engine)
{
    struct control *control = engine->control;
    struct ucred who;
    socklen_t bytes = sizeof who;
    int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &control->clients[i];
        if (client->fd >= 0)
            continue;
        client->fd = fd;
        client->privileged =
            getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && (who.uid == 0 || who.uid == getuid());
        return;
    }
    close(fd);
}

static void write_answer(struct client *client)
{
    while (client->answer != NULL) {
        ssize_t put = send(client->fd, client->answer + client->answer_at, client->answer_bytes - client->answer_at,
                           MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && errno == EAGAIN)
            return;
        if (put < 0) {
            close_client(client);
            return;
        }
        client->answer_at += (size_t)put;
        if (client->answer_at < client->answer_bytes)
            continue;
        free(client->answer);
        client->answer = NULL;
        client->answer_at = client->answer_bytes = 0;
    }
}

static void answer_request(struct engine *engine, struct client *client)
{
    json_t *json = run_command(engine, client, client->request);
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(json);
    if (text == NULL) {
        close_client(client);
        return;
    }
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* in place of the NUL: a line is what ends an answer */
    client->answer = text;
    client->answer_bytes = bytes + 1;
    client->answer_at = 0;
    write_answer(client);
}

static void read_requests(struct engine *engine, struct client *client)
{
    while (client->fd >= 0 && client->answer == NULL) {
        char *end = memchr(client->request, '\n', client->request_bytes);
        if (end != NULL) {
            size_t used = (size_t)(end - client->request) + 1;
            *end = '\0';
            answer_request(engine, client);
            if (client->fd < 0)
                return;
            client->request_bytes -= used;
            memmove(client->request, client->request + used, client->request_bytes);
            continue;
        }
        if (client->request_bytes == sizeof client->request) {
            close_client(client);
            return;
        }
        ssize_t got = recv(client->fd, client->request + client->request_bytes,
                           sizeof client->request - client->request_bytes, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            close_client(client);
            return;
        }
        client->request_bytes += (size_t)got;
    }
}

/* ---- the interface ---- */

enum err control_new(struct engine *engine)
{
    struct control *control;
    struct sockaddr_un address;
    TRY(mem_new(1, sizeof *control, "the control socket", &control));
    engine->control = control;
    control->listen_fd = -1;
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        control->clients[i].fd = -1;
    TRY(mem_printf(&control->path, "%s/control.sock", engine->conf->run_folder));
    TRY(ipc_address(control->path, &address));
    control->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(control->path); /* port_new() made sure that no other daemon uses this folder */
    if (control->listen_fd < 0 || bind(control->listen_fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        chmod(control->path, 0666) != 0 || listen(control->listen_fd, 8) != 0)
        return err_set_errno(ERR_CONF, "%s: cannot listen; is the folder writable?", control->path);
    return ERR_OK;
}

void control_free(struct engine *engine)
{
    struct control *control = engine->control;
    if (control == NULL)
        return;
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        close_client(&control->clients[i]);
    if (control->listen_fd >= 0) {
        close(control->listen_fd);
        unlink(control->path);
    }
    mem_free(control->path);
    mem_free(control);
    engine->control = NULL;
}

size_t control_poll(struct engine *engine, struct pollfd *items, size_t items_max)
{
    struct control *control = engine->control;
    size_t count = 0;
    items[count++] = (struct pollfd){.fd = control->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < CLIENTS_MAX && count < items_max; i++)
        if (control->clients[i].fd >= 0)
            items[count++] = (struct pollfd){.fd = control->clients[i].fd,
                                             .events = control->clients[i].answer != NULL ? POLLOUT : POLLIN};
    return count;
}

void control_run(struct engine *engine)
{
    struct control *control = engine->control;
    accept_client(engine);
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &control->clients[i];
        if (client->fd >= 0)
            write_answer(client);
        if (client->fd >= 0)
            read_requests(engine, client);
    }
}
