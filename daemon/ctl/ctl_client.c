/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/ipc.h"
#include "daemon/as_typed.h"

enum { ANSWER_MIB_MAX = 64, ANSWER_BYTES_MAX = ANSWER_MIB_MAX << 20, PATIENCE_S = 10 };

static enum err connect_to(const char *path, int seconds, int *fd)
{
    struct sockaddr_un address;
    struct timeval patience = {.tv_sec = seconds};
    TRY(ipc_address(path, &address));
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return err_set_errno(ERR_IO, "cannot open a socket");
    setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(*fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return ERR_OK;
    enum err err = err_set_errno(ERR_CLOSED, "no daemon answers at %s", path);
    close(*fd);
    if (strstr(as_typed(), " --home ") == NULL)
        return err_suffix(
            err, "is dilocod running, and is this its socket? name the island's folder with --home DIR, or its "
                 "--config or --socket");
    return err_suffix(err, "%s start starts it, and its log says why it ended: %s logs", as_typed(), as_typed());
}

static enum err read_line(int fd, char **text, size_t *bytes)
{
    FILE *stream = open_memstream(text, bytes);
    char piece[65536];
    size_t total = 0;
    bool whole = false;
    if (stream == NULL)
        return err_set(ERR_NOMEM, "out of memory for an answer");
    while (!whole && total < ANSWER_BYTES_MAX) {
        ssize_t got = recv(fd, piece, sizeof piece, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        fwrite(piece, 1, (size_t)got, stream);
        total += (size_t)got;
        whole = piece[got - 1] == '\n';
    }
    fclose(stream);
    if (!whole && total >= ANSWER_BYTES_MAX)
        return err_set(ERR_PROTO, "the answer is longer than %d MiB; is this a daemon's socket?", ANSWER_MIB_MAX);
    if (!whole)
        return err_set(ERR_CLOSED, "the daemon does not answer; it may be stopping");
    return ERR_OK;
}

/* Who listens at the other end. */
static int listener(int fd)
{
    struct ucred other = {.pid = 0};
    socklen_t bytes = sizeof other;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 ? other.pid : 0;
}

static enum err ask(const char *socket_path, const char *request, int seconds, json_t **answer, int *pid)
{
    int fd;
    char line[1024]; /* as much as the daemon takes */
    char *text = NULL;
    size_t bytes = 0;
    *answer = NULL;
    *pid = 0;
    TRY(connect_to(socket_path, seconds, &fd));
    *pid = listener(fd);
    int length = snprintf(line, sizeof line, "%s\n", request);
    enum err err = fsio_write_all(fd, line, (size_t)length, "the control socket");
    if (err == ERR_OK)
        err = read_line(fd, &text, &bytes);
    close(fd);
    if (err == ERR_OK) {
        *answer = json_loadb(text, bytes, 0, NULL);
        if (*answer == NULL)
            err = err_set(ERR_PROTO, "the daemon's answer is no JSON");
    }
    free(text);
    const char *error = err == ERR_OK ? json_string_value(json_object_get(*answer, "error")) : NULL;
    if (error != NULL) {
        err = err_set(ERR_STATE, "%s", error);
        json_decref(*answer);
        *answer = NULL;
    }
    return err;
}

enum err ctl_ask_whom(const char *socket_path, const char *request, json_t **answer, int *pid)
{
    return ask(socket_path, request, PATIENCE_S, answer, pid);
}

enum err ctl_ask_within(const char *socket_path, const char *request, int seconds, json_t **answer)
{
    int pid;
    return ask(socket_path, request, seconds, answer, &pid);
}

enum err ctl_ask(const char *socket_path, const char *request, json_t **answer)
{
    return ctl_ask_within(socket_path, request, PATIENCE_S, answer);
}

const char *ctl_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

double ctl_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

json_int_t ctl_integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}
