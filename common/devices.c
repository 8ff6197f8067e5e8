/* SPDX-License-Identifier: Apache-2.0 */
#include "common/devices.h"

#include <stdbool.h>
#include <stdio.h>

/* "3" or "0-3"; moves `*at` behind it. */
static bool read_stretch(const char **at, int *first, int *last)
{
    int end = 0;
    if (**at < '0' || **at > '9' || sscanf(*at, "%9d%n", first, &end) != 1)
        return false;
    *at += end;
    *last = *first;
    if (**at != '-')
        return true;
    if ((*at)[1] < '0' || (*at)[1] > '9' || sscanf(*at + 1, "%9d%n", last, &end) != 1)
        return false;
    *at += 1 + end;
    return *last >= *first;
}

enum err devices_parse(const char *where, const char *text, int number[DEVICES_MAX], int *count)
{
    *count = 0;
    for (const char *at = text; *at != '\0';) {
        int first, last;
        bool good = read_stretch(&at, &first, &last);
        if (!good || (*at != '\0' && (*at != ',' || at[1] == '\0')))
            return err_set(ERR_ARG, "%s %s: expected numbers and stretches of them, as in 0-3,6", where, text);
        for (int device = first; device <= last; device++) {
            for (int i = 0; i < *count; i++)
                if (number[i] == device)
                    return err_set(ERR_ARG, "%s %s: device %d is there twice", where, text, device);
            if (*count == DEVICES_MAX)
                return err_set(ERR_ARG, "%s %s: more than %d devices", where, text, DEVICES_MAX);
            number[(*count)++] = device;
        }
        at += *at == ',';
    }
    return *count > 0 ? ERR_OK : err_set(ERR_ARG, "%s is empty", where);
}
