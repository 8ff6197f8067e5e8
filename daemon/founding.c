/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/founding.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/as_typed.h"

enum { DIGITS = 2 * FOUNDING_BYTES, FILE_BYTES_MAX = 256 };

enum err founding_draw(const char *path)
{
    char text[DIGITS + 2];
    snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64 "\n", env_random_u64(), env_random_u64());
    return fsio_replace(path, text, DIGITS + 1, 0644);
}

static int value_of(char digit)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = digit != '\0' ? strchr(digits, digit) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

enum err founding_read(const char *path, uint8_t out[FOUNDING_BYTES])
{
    char *text;
    size_t bytes;
    enum err err = fsio_read(path, FILE_BYTES_MAX, &text, &bytes);
    if (err == ERR_NOMEM)
        return err;
    if (err != ERR_OK)
        return err_suffix(ERR_CONF,
                          "[island] founded names it: what was drawn when the run was founded; put it back, or, to "
                          "begin a run anew: %s reset",
                          as_typed());
    bool good = bytes >= DIGITS && strspn(text + DIGITS, "\r\n") == bytes - DIGITS;
    for (int i = 0; good && i < FOUNDING_BYTES; i++) {
        int high = value_of(text[2 * i]), low = value_of(text[2 * i + 1]);
        good = high >= 0 && low >= 0;
        out[i] = (uint8_t)(high * 16 + low);
    }
    mem_free(text);
    return good ? ERR_OK
                : err_set(ERR_CONF,
                          "[island] founded: %s does not hold %d hexadecimal digits; put back what was drawn when the "
                          "run was founded, or, to begin a run anew: %s reset",
                          path, DIGITS, as_typed());
}
