/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/village.h"

#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/proc.h"

enum { HOMES_MAX = 8, TEXT_BYTES = 40000, LINE_BYTES_MAX = 64 };

static char folder[40];
static char homes[HOMES_MAX][80];
static int homes_count;

/* A test that fails leaves no daemon behind. */
static void close_village(void)
{
    char command[100];
    for (int i = 0; i < homes_count; i++)
        if (access(homes[i], F_OK) == 0)
            HOMES_RUN(homes[i], "stop");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        print_message("%s stays\n", folder);
}

bool village_open(const char *name)
{
    const char *build = getenv("BUILD");
    snprintf(folder, sizeof folder, "/tmp/diloco-%s-XXXXXX", name); /* wherever this was built */
    if (mkdtemp(folder) == NULL)
        return false;
    homes_init(build != NULL ? build : "build/gcc");
    unsetenv("DILOCO_HOME");
    atexit(close_village);
    return true;
}

const char *village_folder(void)
{
    return folder;
}

const char *village_home(const char *name)
{
    assert_true(homes_count < HOMES_MAX);
    snprintf(homes[homes_count], sizeof homes[0], "%s/%s", folder, name);
    return homes[homes_count++];
}

const char *village_text(void)
{
    char text[TEXT_BYTES + LINE_BYTES_MAX];
    size_t bytes = 0;
    for (int i = 0; bytes < TEXT_BYTES; i++)
        bytes += (size_t)sprintf(text + bytes, "line %d of a small text\n", i * 7919 % 10007);
    return testlib_file(folder, "text.txt", "%s", text);
}

const char *village_spec(int interval)
{
    return testlib_file(folder, "small.ini",
                        "[run]\nname = small\nsteps = 1000000\n"
                        "[model]\nwidth = 64\nlayers = 2\nheads = 2\ncontext = 32\n[train]\nbatch = 4\n"
                        "[sync]\ninterval = %d\nlayers_per_fragment = 1\n",
                        interval);
}

const char *village_synth(const char *spec, const char *island, const char *data)
{
    static char command[700];
    const char *build = getenv("BUILD");
    char here[300];
    if (getcwd(here, sizeof here) == NULL)
        fail_msg("there is no current folder");
    snprintf(command, sizeof command, "%s/%s/tests/system/tool_synth --run %s --mark %s --data '%s'", here,
             build != NULL ? build : "build/gcc", spec, island, data);
    return command;
}

void village_ends_alike(const char *const *all, int count, int patience_s)
{
    for (int i = 0; i < count; i++)
        GOOD(all[i], "pause", "--no-wait");
    for (int i = 0; i < count; i++)
        for (int k = 0; strcmp(homes_trainer(all[i]), "stopped") != 0 && k < patience_s * 10; k++)
            proc_sleep_ms(100);
    assert_true(homes_wait_same(all, count, patience_s));
}

void assert_told(const char *part)
{
    if (strstr(homes_out, part) == NULL)
        fail_msg("it does not say \"%s\":\n%s", part, homes_out);
}
