/* SPDX-License-Identifier: Apache-2.0 */
#include "common/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ERR_TEXT_BYTES = 640 };

static _Thread_local char text[ERR_TEXT_BYTES];

static const char *const names[ERR_COUNT] = {
    [ERR_OK] = "ok",           [ERR_ARG] = "argument", [ERR_CONF] = "config",         [ERR_IO] = "io",
    [ERR_NOSPACE] = "nospace", [ERR_NOMEM] = "memory", [ERR_PROTO] = "protocol",      [ERR_CORRUPT] = "corrupt",
    [ERR_AGAIN] = "again",     [ERR_STATE] = "state",  [ERR_NONFINITE] = "nonfinite", [ERR_NOTFOUND] = "notfound",
    [ERR_CLOSED] = "closed",
};

enum err err_set(enum err code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return code;
}

enum err err_set_errno(enum err code, const char *format, ...)
{
    int saved = errno;
    char message[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    snprintf(text, sizeof text, "%.*s: %s", ERR_TEXT_BYTES - 128, message, strerror(saved));
    errno = saved;
    if (saved == ENOSPC || saved == EDQUOT)
        return ERR_NOSPACE;
    return code;
}

enum err err_prefix(enum err code, const char *format, ...)
{
    char old[ERR_TEXT_BYTES];
    memcpy(old, text, sizeof old);
    char front[ERR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(front, sizeof front, format, args);
    va_end(args);
    int front_bytes = snprintf(text, sizeof text, "%.*s: ", ERR_TEXT_BYTES / 2, front);
    snprintf(text + front_bytes, sizeof text - (size_t)front_bytes, "%s", old);
    return code;
}

enum err err_suffix(enum err code, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    if (used + 3 > sizeof text)
        return code;
    memcpy(text + used, "; ", 3);
    va_start(args, format);
    vsnprintf(text + used + 2, sizeof text - used - 2, format, args);
    va_end(args);
    return code;
}

const char *err_text(void)
{
    return text[0] != '\0' ? text : "no error recorded";
}

const char *err_name(enum err code)
{
    return (unsigned)code < ERR_COUNT ? names[code] : "unknown";
}
