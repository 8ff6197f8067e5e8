/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_origin.h"

#include <string.h>

#include "common/mem.h"
#include "common/origin.h"
#include "daemon/ctl/ctl_draft.h"

/* A comment sign or a blank at the end of a path would be read as something else. */
static enum err check_same(const struct runspec *meant, const char *text)
{
    struct runspec read;
    TRY(runspec_parse(text, "the run spec", &read));
    enum err err = strcmp(read.init, meant->init) == 0
                       ? ERR_OK
                       : err_set(ERR_CONF,
                                 "--from: \"%s\" cannot stand in a run spec, where it would read \"%s\"; "
                                 "rename the folder",
                                 meant->init, read.init);
    runspec_deinit(&read);
    return err;
}

enum err ctl_origin_run(const char *from, const char *run, char **text)
{
    const struct origin_base base = {.file = run, .text = ctl_draft_sample, .name = "the sample"};
    struct runspec spec;
    *text = NULL;
    TRY(origin_spec(from, &base, true, &spec));
    enum err err = ctl_draft_run_of(&spec, text);
    if (err == ERR_OK)
        err = check_same(&spec, *text);
    runspec_deinit(&spec);
    if (err != ERR_OK) {
        mem_free(*text);
        *text = NULL;
    }
    return err;
}

enum err ctl_origin_check(const char *text, const char *path)
{
    struct runspec spec;
    TRY(runspec_parse(text, "the run spec", &spec)); /* of no folder, so that paths stay as they are written */
    bool moves = spec.init[0] != '\0' && spec.init[0] != '/';
    enum err err = ERR_OK;
    if (moves)
        err = err_set(ERR_CONF,
                      "--run %s: [run] init is relative to its folder, and the island keeps the run spec in another; "
                      "write the whole path",
                      path);
    runspec_deinit(&spec);
    return err;
}
