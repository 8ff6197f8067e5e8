/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "tests/lib/proc.h"
#include "tests/lib/testlib.h"

char cli_out[1 << 18];
static const char *log_path;

void cli_init(const char *folder)
{
    log_path = testlib_path(folder, "errors");
}

const char *cli_program(const char *name)
{
    const char *build = getenv("BUILD");
    return testlib_path(build != NULL ? build : "build/gcc", name);
}

int cli_run(const char *program, const char *const *arguments)
{
    const char *argv[PROC_ARGS_MAX] = {0};
    argv[0] = cli_program(program);
    for (size_t i = 0; arguments[i] != NULL; i++)
        argv[i + 1] = arguments[i];
    unlink(log_path);
    return proc_run(argv, log_path, cli_out, sizeof cli_out);
}

void assert_says(const char *part)
{
    char *text;
    size_t bytes;
    assert_ok(fsio_read(log_path, 1 << 20, &text, &bytes));
    if (strstr(text, part) == NULL)
        fail_msg("the errors do not say \"%s\":\n%s", part, text);
    mem_free(text);
}

void assert_prints(const char *part)
{
    if (strstr(cli_out, part) == NULL)
        fail_msg("the output does not say \"%s\":\n%s", part, cli_out);
}

json_t *cli_parsed(void)
{
    json_error_t error;
    json_t *json = json_loads(cli_out, 0, &error);
    if (json == NULL)
        fail_msg("not JSON: %s\n%s", error.text, cli_out);
    return json;
}
