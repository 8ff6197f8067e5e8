/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool attach_take(void *to, size_t known, const void *from)
{
    size_t size;
    memcpy(&size, from, sizeof size);
    if (size < known)
        return false;
    for (size_t i = known; i < size; i++)
        if (((const char *)from)[i] != 0)
            return false;
    memcpy(to, from, known);
    return true;
}

int attach_fail(struct diloco *d, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(d->error, sizeof d->error, format, args);
    va_end(args);
    return code;
}

int attach_before_moves(struct diloco *d)
{
    if (d->looked || d->options.before_moves == NULL)
        return DILOCO_OK;
    d->looked = d->options.before_moves(d->options.before_moves_user) == 0;
    return d->looked ? DILOCO_OK : attach_fail(d, DILOCO_ERROR, "options.before_moves() does not find the tensors");
}

bool attach_interrupted(const struct diloco *d)
{
    return d->options.interrupted != NULL && d->options.interrupted(d->options.interrupted_user) != 0;
}
