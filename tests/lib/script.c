/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/script.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/testlib.h"

enum { DEADLINE_MS = 10000 };

/* None lasts for ever: a test that fails on the way leaves it behind. */
const char script_sleeps[] = "echo ready >\"$5\"\nexec sleep 60";
const char script_stays[] = "trap '' TERM\necho ready >\"$5\"\nexec sleep 60";
const char script_answers[] = "trap 'echo alive >\"$5\"' USR1\ntrap 'exit 1' TERM\necho ready >\"$5\"\n"
                              "i=0\nwhile [ $((i += 1)) -lt 3000 ]; do sleep 0.01; done";

static const char *folder, *ready;
static int ready_fd = -1;

void script_open(const char *path)
{
    folder = path;
    ready = testlib_path(folder, "ready");
    assert_int_equal(mkfifo(ready, 0600), 0);
    ready_fd = open(ready, O_RDWR | O_CLOEXEC); /* for both, so that no end waits for the other */
    assert_true(ready_fd >= 0);
}

struct dconf script_conf(void)
{
    return (struct dconf){.state_folder = (char *)(uintptr_t)folder,
                          .run_folder = "some/sockets",
                          .run_path = "some/run.ini",
                          .data = script_ready_path(),
                          .device = "cpu",
                          .devices = "",
                          .stream = ""};
}

void script_close(void)
{
    close(ready_fd);
    ready_fd = -1;
}

char *script_ready_path(void)
{
    return (char *)(uintptr_t)ready;
}

void script_wait_ready(void)
{
    struct pollfd item = {.fd = ready_fd, .events = POLLIN};
    char text[64];
    assert_int_equal(poll(&item, 1, DEADLINE_MS), 1);
    assert_true(read(ready_fd, text, sizeof text) > 0);
}

char *script_make(const char *name, const char *body)
{
    const char *path = testlib_file(folder, name, "#!/bin/sh\n%s\n", body);
    assert_int_equal(chmod(path, 0755), 0);
    return (char *)(uintptr_t)path;
}

/* Twice: one that is on its way to its end answers once at most. */
void script_assert_alive(int pid)
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kill(pid, SIGUSR1), 0);
        script_wait_ready();
    }
}
