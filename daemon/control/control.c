/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/control.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/env.h"
#include "common/ipc.h"
#include "common/mem.h"
#include "daemon/control/members.h"
#include "daemon/control/status_json.h"
#include "daemon/rounds/keep.h"

/* KEPT: of all places, for root and the user the daemon runs as. Who has neither asked anything nor taken of its answer
 * for IDLE loses its place; dilococtl asks once. */
enum { CLIENTS_MAX = 32, CLIENTS_KEPT = 8, REQUEST_BYTES_MAX = 1024, IDLE_MS = 30000 };

struct client {
    int fd; /* -1: free */
    bool privileged;
    uint64_t heard_ms; /* when something last came from it, or went to it */
    char request[REQUEST_BYTES_MAX];
    size_t request_bytes;
    char *answer; /* malloc'ed by jansson */
    size_t answer_bytes, answer_at;
};

struct control {
    struct control_conf conf;
    struct rounds *rounds; /* NULL: the plan is not known yet */
    uint64_t now_ms;
    int listen_fd;
    char *path;
    struct progress *progress;
    struct alike *alike;
    struct load load;
    struct members members;
    struct client clients[CLIENTS_MAX];
};

/* ---- commands ---- */

/* `words`: what stands after the command. */
typedef json_t *command_fn(struct control *control, const char *words);

static json_t *outcome(enum err err, const char *text)
{
    if (err != ERR_OK)
        return json_pack("{s:s, s:s}", "error", err_text(), "code", err_name(err));
    return json_pack("{s:s}", "ok", text);
}

static json_t *print_status(const struct control *control, json_t *(*print)(const struct status *status))
{
    struct status status;
    enum err err = status_take(&control->conf.status, control->now_ms, &status);
    if (err != ERR_OK)
        return outcome(err, NULL);
    json_t *json = print(&status);
    status_deinit(&status);
    return json;
}

static json_t *command_status(struct control *control, const char *words)
{
    (void)words;
    return print_status(control, status_json);
}

static json_t *command_peers(struct control *control, const char *words)
{
    (void)words;
    return print_status(control, status_json_peers);
}

static json_t *command_fragments(struct control *control, const char *words)
{
    (void)words;
    return print_status(control, status_json_fragments);
}

/* What a witness has no part in. */
static bool no_witness(const struct control *control, json_t **answer)
{
    if (!view_is_witness(control->conf.status.view))
        return false;
    *answer = outcome(err_set(ERR_STATE, "this is the run's witness: it trains nothing and has no parameters; ask "
                                         "another island"),
                      NULL);
    return true;
}

static json_t *command_resume(struct control *control, const char *words)
{
    json_t *refusal;
    (void)words;
    if (no_witness(control, &refusal))
        return refusal;
    enum err err = trainer_join(control->conf.trainer, control->now_ms);
    if (err == ERR_OK)
        members_return(&control->members);
    return outcome(err, "the trainer is starting");
}

static json_t *command_pause(struct control *control, const char *words)
{
    json_t *refusal;
    (void)words;
    if (no_witness(control, &refusal))
        return refusal;
    char text[200] = "the trainer sends its last contributions and stops";
    struct trainer_leaving leaving;
    enum err err = trainer_leave(control->conf.trainer, &leaving);
    if (err == ERR_OK && leaving.steps > 0)
        snprintf(
            text, sizeof text,
            "the trainer trains on for %llu steps (about %.0f s), until its last contributions are due, and stops when "
            "they are counted",
            (unsigned long long)leaving.steps, leaving.seconds);
    return outcome(err, text);
}

static json_t *command_pause_now(struct control *control, const char *words)
{
    json_t *refusal;
    (void)words;
    if (no_witness(control, &refusal))
        return refusal;
    char text[200];
    bool killed = false;
    enum err err = trainer_leave_now(control->conf.trainer, &killed);
    snprintf(text, sizeof text,
             killed ? "the trainer is killed; what it has trained since its last checkpoint is lost"
                    : "the trainer saves and stops; if it does not within %.0f s it is killed, and at once if this is "
                      "said again",
             (double)control->conf.status.conf->stop_ms / 1000);
    return outcome(err, text);
}

static json_t *command_save(struct control *control, const char *words)
{
    json_t *refusal;
    (void)words;
    if (no_witness(control, &refusal))
        return refusal;
    if (control->conf.status.recovers != NULL)
        return outcome(err_set(ERR_STATE, "this island still reads what it has saved: ask again when it has"), NULL);
    if (control->rounds == NULL)
        return outcome(err_set(ERR_STATE, "there is no anchor yet: no trainer was attached"), NULL);
    keep_export(control->rounds->keep);
    return outcome(ERR_OK, "the anchor is being written; status shows where");
}

typedef enum err members_fn(struct members *members, const char *words, json_t **answer);

static json_t *about_members(struct control *control, members_fn *act, const char *words)
{
    json_t *answer;
    enum err err = act(&control->members, words, &answer);
    return err == ERR_OK ? answer : outcome(err, NULL);
}

static json_t *command_invite(struct control *control, const char *words)
{
    return about_members(control, members_invite, words);
}

static json_t *command_invites(struct control *control, const char *words)
{
    (void)words;
    return members_invites(&control->members);
}

static json_t *command_uninvite(struct control *control, const char *words)
{
    return about_members(control, members_uninvite, words);
}

static json_t *command_leave(struct control *control, const char *words)
{
    return about_members(control, members_leave, words);
}

static json_t *command_evict(struct control *control, const char *words)
{
    return about_members(control, members_evict, words);
}

static json_t *command_revoke(struct control *control, const char *words)
{
    return about_members(control, members_revoke, words);
}

struct command {
    const char *name;
    bool privileged, words;
    command_fn *run;
};

static const struct command commands[] = {
    {"status", false, false, command_status},
    {"peers", false, false, command_peers},
    {"fragments", false, false, command_fragments},
    {"resume", true, false, command_resume},
    {"pause", true, false, command_pause},
    {"pause now", true, false, command_pause_now},
    {"save", true, false, command_save},
    {"invite", true, true, command_invite},
    {"invites", true, false, command_invites},
    {"uninvite", true, true, command_uninvite},
    {"leave", true, true, command_leave},
    {"evict", true, true, command_evict},
    {"revoke", true, true, command_revoke},
};

/* What stands after the command; NULL: it is another one. */
static const char *words_after(const struct command *command, const char *line)
{
    size_t length = strlen(command->name);
    if (strcmp(line, command->name) == 0)
        return "";
    return command->words && strncmp(line, command->name, length) == 0 && line[length] == ' ' ? line + length + 1
                                                                                              : NULL;
}

static json_t *run_command(struct control *control, const struct client *client, const char *line)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const char *words = words_after(&commands[i], line);
        if (words == NULL)
            continue;
        if (commands[i].privileged && !client->privileged)
            return outcome(err_set(ERR_STATE, "%s is for root and the user the daemon runs as", commands[i].name),
                           NULL);
        control->members.now_ms = control->now_ms;
        return commands[i].run(control, words);
    }
    return outcome(err_set(ERR_ARG, "no command \"%.40s\"", line), NULL);
}

/* ---- clients ---- */

static void close_client(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    free(client->answer);
    *client = (struct client){.fd = -1};
}

static bool is_privileged(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && (who.uid == 0 || who.uid == getuid());
}

/* A place for one more; NULL: there is none, or the last ones are kept for others. */
static struct client *find_place(struct control *control, bool privileged)
{
    struct client *place = NULL;
    size_t places = 0;
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        if (control->clients[i].fd >= 0)
            continue;
        if (places++ == 0)
            place = &control->clients[i];
    }
    return privileged || places > CLIENTS_KEPT ? place : NULL;
}

static void accept_client(struct control *control)
{
    static const char full[] = "{\"error\":\"too many programs ask at the same time; try again\",\"code\":\"again\"}\n";
    int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    bool privileged = is_privileged(fd);
    struct client *client = find_place(control, privileged);
    if (client == NULL) {
        (void)!send(fd, full, sizeof full - 1, MSG_NOSIGNAL);
        close(fd);
        return;
    }
    client->fd = fd;
    client->privileged = privileged;
    client->heard_ms = control->now_ms;
}

static void write_answer(struct client *client, uint64_t now_ms)
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
        client->heard_ms = now_ms;
        if (client->answer_at < client->answer_bytes)
            continue;
        free(client->answer);
        client->answer = NULL;
        client->answer_at = client->answer_bytes = 0;
    }
}

static void answer_request(struct control *control, struct client *client)
{
    json_t *json = run_command(control, client, client->request);
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
    write_answer(client, control->now_ms);
}

static void read_requests(struct control *control, struct client *client)
{
    while (client->fd >= 0 && client->answer == NULL) {
        char *end = memchr(client->request, '\n', client->request_bytes);
        if (end != NULL) {
            size_t used = (size_t)(end - client->request) + 1;
            *end = '\0';
            answer_request(control, client);
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
        client->heard_ms = control->now_ms;
    }
}

/* ---- the interface ---- */

static enum err open_socket(struct control *control)
{
    TRY(mem_printf(&control->path, "%s/control.sock", control->conf.folder));
    TRY(ipc_listen(control->path, SOCK_STREAM, &control->listen_fd));
    /* Who may do what is judged by the peer's user. */
    return chmod(control->path, 0666) == 0 ? ERR_OK : err_set_errno(ERR_CONF, "%s: cannot open it", control->path);
}

enum err control_new(const struct control_conf *conf, struct control **out)
{
    struct control *control;
    *out = NULL;
    TRY(mem_new(1, sizeof *control, "the control socket", &control));
    control->conf = *conf;
    control->listen_fd = -1;
    control->members = (struct members){.conf = conf->status.conf,
                                        .view = conf->status.view,
                                        .link = conf->status.link,
                                        .doorway = conf->doorway,
                                        .peers = conf->peers,
                                        .trainer = conf->trainer};
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        control->clients[i].fd = -1;
    enum err err = progress_new(&control->progress);
    if (err == ERR_OK)
        err = alike_new(&control->alike);
    control->conf.status.progress = control->progress;
    control->conf.status.alike = control->alike;
    control->conf.status.load = &control->load;
    if (err == ERR_OK)
        err = open_socket(control);
    if (err != ERR_OK)
        control_free(control);
    else
        *out = control;
    return err;
}

void control_free(struct control *control)
{
    if (control == NULL)
        return;
    for (size_t i = 0; i < CLIENTS_MAX; i++)
        close_client(&control->clients[i]);
    if (control->listen_fd >= 0) {
        close(control->listen_fd);
        unlink(control->path);
    }
    progress_free(control->progress);
    alike_free(control->alike);
    mem_free(control->path);
    mem_free(control);
}

void control_recovers(struct control *control, const struct rounds *rounds)
{
    control->conf.status.recovers = rounds;
}

void control_plan_known(struct control *control, const struct control_plan *plan)
{
    struct status_conf *status = &control->conf.status;
    status->recovers = NULL;
    control->rounds = plan->rounds;
    status->plan = plan->plan;
    status->sync = plan->sync;
    status->rounds = plan->rounds;
    status->replica = plan->replica;
    status->parts = plan->parts;
    status->memory_bytes = plan->memory_bytes;
}

size_t control_poll(const struct control *control, struct pollfd *items, size_t items_max)
{
    size_t count = 0;
    if (items_max == 0)
        return 0;
    items[count++] = (struct pollfd){.fd = control->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < CLIENTS_MAX && count < items_max; i++)
        if (control->clients[i].fd >= 0)
            items[count++] = (struct pollfd){.fd = control->clients[i].fd,
                                             .events = control->clients[i].answer != NULL ? POLLOUT : POLLIN};
    return count;
}

void control_run(struct control *control, uint64_t now_ms)
{
    control->now_ms = now_ms;
    members_run(&control->members);
    accept_client(control);
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &control->clients[i];
        if (client->fd >= 0)
            write_answer(client, now_ms);
        if (client->fd >= 0)
            read_requests(control, client);
        if (client->fd >= 0 && now_ms >= client->heard_ms + IDLE_MS)
            close_client(client);
    }
}

void control_sample(struct control *control, uint64_t now_ms)
{
    const struct status_conf *from = &control->conf.status;
    struct trainer_info trainer = trainer_info(from->trainer);
    load_note(&control->load, now_ms, env_process_cpu_ns());
    alike_note(control->alike, from->view, from->peers, from->trainer);
    if (from->sync != NULL)
        progress_note(control->progress, from->sync, from->plan->plan->fragments_count, from->view->count,
                      peers_furthest_said(from->peers, trainer.training ? trainer.step : 0), now_ms);
}

void control_line(const struct control *control, uint64_t now_ms, char *line, size_t line_bytes)
{
    struct status status;
    if (status_take(&control->conf.status, now_ms, &status) != ERR_OK) {
        snprintf(line, line_bytes, "degraded: %s", err_text());
        return;
    }
    status_line(&status, line, line_bytes);
    status_deinit(&status);
}
