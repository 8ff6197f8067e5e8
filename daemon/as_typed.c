/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/as_typed.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { QUOTED_BYTES = 4 * PATH_MAX + 3 }; /* each quote within quotes takes four */

static char here[2 * QUOTED_BYTES] = "dilococtl";
static bool by_file; /* a configuration or a socket was named, not a folder or the service */

static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+,:@%";

static void quote(const char *value, char *out)
{
    size_t at = 0;
    bool bare = value[0] != '\0' && value[strspn(value, plain)] == '\0';
    if (!bare)
        out[at++] = '\'';
    for (; *value != '\0'; value++) {
        if (*value == '\'')
            at += (size_t)sprintf(out + at, "'\\'");
        out[at++] = *value;
    }
    if (!bare)
        out[at++] = '\'';
    out[at] = '\0';
}

void as_typed_add(const char *option, const char *value)
{
    char quoted[QUOTED_BYTES];
    size_t at = strlen(here);
    if (value == NULL || strlen(value) >= PATH_MAX) /* no such file can be: what is asked fails before it is said */
        return;
    by_file |= strcmp(option, "--home") != 0;
    quote(value, quoted);
    snprintf(here + at, sizeof here - at, " %s %s", option, quoted);
}

const char *as_typed(void)
{
    return here;
}

/* What stands for a mark. A daemon by a configuration of its own writes its log where whoever started it said, and
 * `logs` cannot know that. */
static const struct mark {
    const char *mark, *command, *elsewhere;
} marks[] = {{"{here}", "", NULL},
             {"{logs}", " logs", "the daemon's log"},
             {"{trainer logs}", " logs --trainer", "the trainer's lines in the daemon's log"}};

static const struct mark *mark_at(const char *text)
{
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (strncmp(text, marks[i].mark, strlen(marks[i].mark)) == 0)
            return &marks[i];
    return NULL;
}

/* Whether all of it fitted. */
static bool fill(const char *text, const char *command, char *out, size_t out_bytes)
{
    size_t at = 0;
    out[0] = '\0';
    while (*text != '\0' && at < out_bytes) {
        const struct mark *mark = mark_at(text);
        size_t length = mark != NULL ? strlen(mark->mark) : 1 + strcspn(text + 1, "{");
        if (mark == NULL)
            at += (size_t)snprintf(out + at, out_bytes - at, "%.*s", (int)length, text);
        else if (by_file && mark->elsewhere != NULL)
            at += (size_t)snprintf(out + at, out_bytes - at, "%s", mark->elsewhere);
        else
            at += (size_t)snprintf(out + at, out_bytes - at, "%s%s", command, mark->command);
        text += length;
    }
    return at < out_bytes;
}

void as_typed_fill(const char *text, char *out, size_t out_bytes)
{
    if (!fill(text, here, out, out_bytes))
        fill(text, "dilococtl", out, out_bytes);
}
