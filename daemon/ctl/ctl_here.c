#include "daemon/ctl/ctl_here.h"

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

void ctl_here_add(const char *option, const char *value)
{
    char quoted[QUOTED_BYTES];
    size_t at = strlen(here);
    if (value == NULL || strlen(value) >= PATH_MAX) /* no such file can be: what is asked fails before it is said */
        return;
    quote(value, quoted);
    snprintf(here + at, sizeof here - at, " %s %s", option, quoted);
}

const char *ctl_here(void)
{
    return here;
}
