/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/homes.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fsio.h"
#include "tests/lib/proc.h"

enum { LOOK_MS = 50, PATH_BYTES = 600, PLACED_MAX = 8 };

char homes_out[1 << 18];
static char program[PATH_BYTES];

/* Islands that live in namespaces of others. */
static struct {
    char home[PATH_BYTES];
    int space;
} placed[PLACED_MAX];
static int placed_count;

void homes_place(const char *home, int space)
{
    if (placed_count == PLACED_MAX)
        return;
    snprintf(placed[placed_count].home, sizeof placed[0].home, "%s", home);
    placed[placed_count++].space = space;
}

static int space_of(const char *home)
{
    for (int i = 0; i < placed_count; i++)
        if (strcmp(placed[i].home, home) == 0)
            return placed[i].space;
    return 0;
}

/* Where a file of the island's folder is for us, and for who runs there. */
static void path_of(const char *home, const char *rest, char path[PATH_BYTES])
{
    int space = space_of(home);
    if (space == 0)
        snprintf(path, PATH_BYTES, "%s%s", home, rest);
    else
        snprintf(path, PATH_BYTES, "/proc/%d/root%s%s", space, home, rest);
}

void homes_init(const char *programs)
{
    snprintf(program, sizeof program, "%s/dilococtl", programs);
}

const char *homes_somewhere(void)
{
    static char address[40];
    snprintf(address, sizeof address, "127.0.0.1:%u", proc_free_port());
    return address;
}

static void append_errors(const char *path)
{
    size_t at = strlen(homes_out);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    homes_out[at + fread(homes_out + at, 1, sizeof homes_out - 1 - at, file)] = '\0';
    fclose(file);
}

int homes_run(const char *home, const char *const *arguments)
{
    const char *argv[PROC_ARGS_MAX] = {program, "--home", home};
    char errors[PATH_BYTES];
    for (size_t i = 0; arguments[i] != NULL && i + 4 < PROC_ARGS_MAX; i++)
        argv[i + 3] = arguments[i];
    path_of(home, ".errors", errors);
    unlink(errors);
    int status = proc_run_in(space_of(home), argv, errors, homes_out, sizeof homes_out);
    append_errors(errors);
    unlink(errors);
    return status;
}

json_t *homes_ask(const char *home, const char *what)
{
    return HOMES_RUN(home, what, "--json") == 0 ? json_loads(homes_out, 0, NULL) : NULL;
}

/* Of `status`, or of a part of it; the text is copied. */
static const char *text_of(const char *home, const char *part, const char *key)
{
    static char text[200];
    json_t *status = homes_ask(home, "status");
    const json_t *from = part != NULL ? json_object_get(status, part) : status;
    const char *value = json_string_value(json_object_get(from, key));
    snprintf(text, sizeof text, "%s", value != NULL ? value : "");
    json_decref(status);
    return text;
}

long long homes_number(const char *home, const char *part, const char *key)
{
    json_t *status = homes_ask(home, "status");
    const json_t *from = part != NULL ? json_object_get(status, part) : status;
    long long value = from != NULL ? json_integer_value(json_object_get(from, key)) : -1;
    json_decref(status);
    return value;
}

const char *homes_anchors(const char *home)
{
    return text_of(home, NULL, "anchors");
}

const char *homes_trainer(const char *home)
{
    return text_of(home, "trainer", "state");
}

const char *homes_role(const char *home, const char *name)
{
    static char role[32];
    json_t *peers = homes_ask(home, "peers"), *row;
    size_t index;
    role[0] = '\0';
    json_array_foreach (json_object_get(peers, "peers"), index, row) {
        const char *is = json_string_value(json_object_get(row, "name"));
        if (is != NULL && strcmp(is, name) == 0)
            snprintf(role, sizeof role, "%s", json_string_value(json_object_get(row, "role")));
    }
    json_decref(peers);
    return role;
}

const char *homes_invite(const char *home, const char *expires)
{
    static char token[4096];
    if (HOMES_RUN(home, "invite", "--json", "--expires", expires != NULL ? expires : "24h") != 0)
        return NULL;
    json_t *answer = json_loads(homes_out, JSON_DISABLE_EOF_CHECK, NULL); /* a warning may stand behind it */
    const char *text = json_string_value(json_object_get(answer, "token"));
    snprintf(token, sizeof token, "%s", text != NULL ? text : "");
    json_decref(answer);
    return token[0] != '\0' ? token : NULL;
}

bool homes_wait_versions(const char *home, long long versions, double seconds)
{
    for (double waited = 0; homes_number(home, NULL, "versions") < versions; waited += LOOK_MS / 1000.0) {
        if (waited > seconds)
            return false;
        proc_sleep_ms(LOOK_MS);
    }
    return true;
}

bool homes_wait_role(const char *home, const char *name, const char *role, double seconds)
{
    for (double waited = 0; strcmp(homes_role(home, name), role) != 0; waited += LOOK_MS / 1000.0) {
        if (waited > seconds)
            return false;
        proc_sleep_ms(LOOK_MS);
    }
    return true;
}

static bool all_same(const char *const *homes, int count)
{
    char anchors[200];
    snprintf(anchors, sizeof anchors, "%s", homes_anchors(homes[0]));
    bool same = anchors[0] != '\0';
    for (int i = 1; i < count && same; i++)
        same = strcmp(anchors, homes_anchors(homes[i])) == 0;
    return same && strcmp(anchors, homes_anchors(homes[0])) == 0;
}

bool homes_wait_same(const char *const *homes, int count, double seconds)
{
    for (double waited = 0; !all_same(homes, count); waited += LOOK_MS / 1000.0) {
        if (waited > seconds)
            return false;
        proc_sleep_ms(LOOK_MS);
    }
    return true;
}

bool homes_configure(const char *home, const char *section, const char *key, const char *value)
{
    static char text[1 << 16];
    char path[PATH_BYTES], line[2 * PATH_BYTES];
    size_t at = 0, key_bytes = strlen(key);
    path_of(home, "/dilocod.conf", path);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL && at + sizeof line < sizeof text) {
        bool old = strncmp(line, key, key_bytes) == 0 && strncmp(line + key_bytes, " =", 2) == 0;
        at += old ? 0 : (size_t)snprintf(text + at, sizeof text - at, "%s", line);
    }
    fclose(file);
    int more = snprintf(text + at, sizeof text - at, "\n[%s]\n%s = %s\n", section, key, value);
    return at + (size_t)more < sizeof text && fsio_replace(path, text, at + (size_t)more, 0644) == ERR_OK;
}

/* By the lock, not by the number in the file. */
static int holder_of(const char *home, const char *file)
{
    char path[PATH_BYTES];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    path_of(home, file, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    bool held = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    return held ? (int)lock.l_pid : 0;
}

int homes_daemon(const char *home)
{
    return holder_of(home, "/dilocod.pid");
}

int homes_supervisor(const char *home)
{
    return holder_of(home, "/supervisor.pid");
}

static void kill_and_wait(const char *home, int (*find)(const char *))
{
    int pid = find(home);
    if (pid > 1)
        kill(pid, SIGKILL);
    while (pid > 1 && find(home) == pid)
        proc_sleep_ms(1);
}

void homes_kill(const char *home)
{
    char state[PATH_BYTES];
    path_of(home, "/state", state);
    kill_and_wait(home, homes_supervisor); /* first, or it starts another daemon */
    kill_and_wait(home, homes_daemon);
    proc_kill_trainer(state);
    while (homes_number(home, NULL, "versions") >= 0)
        proc_sleep_ms(LOOK_MS);
}

void homes_empty_state(const char *home)
{
    char state[PATH_BYTES], out[16];
    path_of(home, "/state", state);
    const char *const argv[] = {"/bin/rm", "-rf", state, NULL};
    (void)!proc_run(argv, NULL, out, sizeof out);
}
