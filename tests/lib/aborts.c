/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/aborts.h"

#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

void aborts_assert(void (*run)(void *user), void *user, const char *file, int line)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int nothing = open("/dev/null", O_WRONLY);
        dup2(nothing, STDERR_FILENO);
        dup2(nothing, STDOUT_FILENO);
        run(user);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        fail_msg("%s:%d: it was not ended by an assertion: status %#x", file, line, (unsigned)status);
}
