/* SPDX-License-Identifier: Apache-2.0 */
/* wan, of the tests themselves: who enters a namespace of its own finds loopback up; who cannot stays where it is, and
 * hears why, so that what needs no lines is tested there. */
#include "tests/lib/testlib.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/wan.h"

enum { WELL, NO_LOOPBACK, ELSEWHERE, STAYED, NO_REASON, REFUSED };

static bool loopback_works(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), dialler = socket(AF_INET, SOCK_STREAM, 0);
    return listener >= 0 && bind(listener, (struct sockaddr *)&address, bytes) == 0 && listen(listener, 1) == 0 &&
           getsockname(listener, (struct sockaddr *)&address, &bytes) == 0 &&
           connect(dialler, (struct sockaddr *)&address, bytes) == 0;
}

static void where(char *text, size_t text_bytes)
{
    ssize_t bytes = readlink("/proc/self/ns/net", text, text_bytes - 1);
    text[bytes > 0 ? bytes : 0] = '\0';
}

static int try_it(const char *reason)
{
    char before[64], after[64], why[200] = "";
    where(before, sizeof before);
    bool entered = wan_enter(why, sizeof why);
    where(after, sizeof after);
    if (!loopback_works())
        return NO_LOOPBACK;
    if (entered)
        return reason != NULL || strcmp(before, after) == 0 ? STAYED : WELL;
    if (strcmp(before, after) != 0)
        return ELSEWHERE;
    print_message("%s\n", why);
    if (reason == NULL)
        return REFUSED;
    return strstr(why, reason) != NULL ? WELL : NO_REASON;
}

/* In a child, with these folders in PATH; what it returns. */
static int child_tries(const char *path, const char *reason)
{
    int status, pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (path != NULL)
            setenv("PATH", path, 1);
        _exit(try_it(reason));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void loopback_is_up_inside(void **state)
{
    (void)state;
    int outcome = child_tries(NULL, NULL);
    if (outcome == REFUSED)
        skip_because("no namespaces with lines in them can be made here");
    assert_int_equal(outcome, WELL);
}

static void without_its_tools_nothing_is_entered(void **state)
{
    (void)state;
    assert_int_equal(child_tries(testlib_folder("wan"), "apt-get install iproute2"), WELL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loopback_is_up_inside),
        cmocka_unit_test(without_its_tools_nothing_is_entered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
