/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_join: where a token is read from, so that nobody else sees it. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/mem.h"
#include "daemon/ctl/ctl_join.h"

static const char *folder;

static void a_token_that_was_typed_is_read_once(void **state)
{
    (void)state;
    char word[] = "dilo1-abc", *token;
    assert_ok(ctl_join_token(word, NULL, &token));
    assert_string_equal(token, "dilo1-abc");
    assert_string_equal(word, "*********"); /* as the list of processes shows it from now on */
    mem_free(token);
}

static void a_token_comes_from_a_file(void **state)
{
    (void)state;
    char *token, word[] = "dilo1-abc";
    const char *path = testlib_file(folder, "token", "\n  dilo1-abc \nmore\n");
    assert_ok(ctl_join_token(NULL, path, &token));
    assert_string_equal(token, "  dilo1-abc \n");
    mem_free(token);
    assert_fails(ERR_ARG, "leave one of the two out", ctl_join_token(word, path, &token));
    assert_string_equal(word, "dilo1-abc");
    path = testlib_file(folder, "empty", "\n");
    assert_fails(ERR_ARG, "there is no token in it", ctl_join_token(NULL, path, &token));
    assert_fails(ERR_ARG, "--token-file no/such: cannot open", ctl_join_token(NULL, "no/such", &token));
}

static void a_token_comes_from_standard_input(void **state)
{
    (void)state;
    char dash[] = "-", *token;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "dilo1-xyz\n", 10), 10);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    close(ends[1]);
    assert_ok(ctl_join_token(dash, NULL, &token));
    assert_string_equal(token, "dilo1-xyz\n");
    mem_free(token);
    assert_fails(ERR_ARG, "standard input: there is no token in it", ctl_join_token(dash, NULL, &token));
}

int main(void)
{
    folder = testlib_folder("ctl-join");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_that_was_typed_is_read_once),
        cmocka_unit_test(a_token_comes_from_a_file),
        cmocka_unit_test(a_token_comes_from_standard_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
