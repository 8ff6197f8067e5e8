#include "worker/libdiloco/attach_core.h"

#include <stdarg.h>
#include <stdio.h>

int attach_fail(struct diloco *d, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(d->error, sizeof d->error, format, args);
    va_end(args);
    return code;
}

bool attach_interrupted(const struct diloco *d)
{
    return d->options.interrupted != NULL && d->options.interrupted(d->options.interrupted_user) != 0;
}
