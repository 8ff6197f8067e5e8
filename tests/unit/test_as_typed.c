/* SPDX-License-Identifier: Apache-2.0 */
/* as_typed: what is suggested works when it is copied into a shell. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "daemon/as_typed.h"

static void a_command_carries_what_was_given_as_a_shell_takes_it(void **state)
{
    (void)state;
    assert_string_equal(as_typed(), "dilococtl");
    as_typed_add("--home", NULL);
    assert_string_equal(as_typed(), "dilococtl");
    as_typed_add("--home", "/srv/paris-1");
    assert_string_equal(as_typed(), "dilococtl --home /srv/paris-1");
    as_typed_add("--socket", "/srv/it's here/$x");
    assert_string_equal(as_typed(), "dilococtl --home /srv/paris-1 --socket '/srv/it'\\''s here/$x'");
}

/* By a shell itself. */
static void logs_are_a_command_where_that_finds_them(void **state)
{
    (void)state;
    char text[100];
    as_typed_fill("{logs}; {trainer logs}", text, sizeof text);
    assert_string_equal(text, "dilococtl logs; dilococtl logs --trainer");
}

static void a_shell_reads_back_what_was_quoted(void **state)
{
    (void)state;
    char command[200], line[200] = "";
    snprintf(command, sizeof command, "dilococtl() { printf '%%s' \"$4\"; }; %s", as_typed());
    FILE *shell = popen(command, "r");
    assert_non_null(shell);
    assert_non_null(fgets(line, sizeof line, shell));
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(line, "/srv/it's here/$x");
}

static void a_remedy_is_filled_in_or_stays_readable(void **state)
{
    (void)state;
    char text[100];
    as_typed_fill("{here} pause --now ends it; {here} resume", text, sizeof text);
    assert_string_equal(text,
                        "dilococtl pause --now ends it; dilococtl resume"); /* what was added does not fit twice */
    as_typed_fill("start it with: {here} join", text, sizeof text);
    assert_string_equal(text, "start it with: dilococtl --home /srv/paris-1 --socket '/srv/it'\\''s here/$x' join");
    as_typed_fill("it says: {trainer logs}; {logs}; {", text, sizeof text); /* which no --socket tells */
    assert_string_equal(text, "it says: the trainer's lines in the daemon's log; the daemon's log; {");
    as_typed_fill("nothing to do", text, sizeof text);
    assert_string_equal(text, "nothing to do");
    as_typed_fill("", text, sizeof text);
    assert_string_equal(text, "");
    as_typed_fill("{here}, too long for this", text, 12);
    assert_string_equal(text, "dilococtl, ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logs_are_a_command_where_that_finds_them),
        cmocka_unit_test(a_command_carries_what_was_given_as_a_shell_takes_it),
        cmocka_unit_test(a_shell_reads_back_what_was_quoted),
        cmocka_unit_test(a_remedy_is_filled_in_or_stays_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
