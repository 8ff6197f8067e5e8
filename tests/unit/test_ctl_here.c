/* ctl_here: what is suggested works when it is copied into a shell. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl_here.h"

static void a_command_carries_what_was_given_as_a_shell_takes_it(void **state)
{
    (void)state;
    assert_string_equal(ctl_here(), "dilococtl");
    ctl_here_add("--home", NULL);
    assert_string_equal(ctl_here(), "dilococtl");
    ctl_here_add("--home", "/srv/paris-1");
    assert_string_equal(ctl_here(), "dilococtl --home /srv/paris-1");
    ctl_here_add("--socket", "/srv/it's here/$x");
    assert_string_equal(ctl_here(), "dilococtl --home /srv/paris-1 --socket '/srv/it'\\''s here/$x'");
}

/* By a shell itself. */
static void a_shell_reads_back_what_was_quoted(void **state)
{
    (void)state;
    char command[200], line[200] = "";
    snprintf(command, sizeof command, "dilococtl() { printf '%%s' \"$4\"; }; %s", ctl_here());
    FILE *shell = popen(command, "r");
    assert_non_null(shell);
    assert_non_null(fgets(line, sizeof line, shell));
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(line, "/srv/it's here/$x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_carries_what_was_given_as_a_shell_takes_it),
        cmocka_unit_test(a_shell_reads_back_what_was_quoted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
