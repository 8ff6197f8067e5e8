/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/as_typed.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { QUOTED_BYTES = 4 * PATH_MAX + 3 }; /* each quote within quotes takes four */

static char here[2 * QUOTED_BYTES] = "dilococtl";

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
    quote(value, quoted);
    snprintf(here + at, sizeof here - at, " %s %s", option, quoted);
}

const char *as_typed(void)
{
    return here;
}

/* Whether all of it fitted. */
static bool fill(const char *text, const char *command, char *out, size_t out_bytes)
{
    static const char mark[] = "{here}";
    size_t at = 0;
    out[0] = '\0';
    while (*text != '\0' && at < out_bytes) {
        const char *next = strstr(text, mark);
        int length = next != NULL ? (int)(next - text) : (int)strlen(text);
        at += (size_t)snprintf(out + at, out_bytes - at, "%.*s%s", length, text, next != NULL ? command : "");
        text += next != NULL ? (size_t)length + strlen(mark) : (size_t)length;
    }
    return at < out_bytes;
}

void as_typed_fill(const char *text, char *out, size_t out_bytes)
{
    if (!fill(text, here, out, out_bytes))
        fill(text, "dilococtl", out, out_bytes);
}
