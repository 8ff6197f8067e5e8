/* SPDX-License-Identifier: Apache-2.0 */
#include "common/human.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { UNITS_MAX = 8 };

/* What has no digits; false: it has. */
static bool is_odd(double value, char text[HUMAN_BYTES])
{
    if (isfinite(value))
        return false;
    snprintf(text, HUMAN_BYTES, "%s", isnan(value) ? "?" : value > 0 ? "inf" : "-inf");
    return true;
}

/* With three digits: 1.23, 12.3, 123. A value of 1000 or more, which only the largest unit has, keeps all of its own;
 * beyond what anybody has it is written in powers of ten. */
static void digits(double value, char *text, size_t text_bytes)
{
    const double to_ten = 9.995, to_hundred = 99.95, too_long = 1e15;
    double size = fabs(value);
    snprintf(text, text_bytes,
             size < to_ten       ? "%.2f"
             : size < to_hundred ? "%.1f"
             : size < too_long   ? "%.0f"
                                 : "%.2e",
             value);
}

/* The unit in which `*value` has three digits before its point at most. Without a fraction in the first unit, since
 * there are no parts of a byte. */
static size_t scale(double *value, double step, size_t units_count)
{
    const double rounds_up = 999.5;
    size_t unit = 0;
    for (; fabs(*value) >= rounds_up && unit + 1 < units_count; unit++)
        *value /= step;
    return unit;
}

static const char *with_unit(double value, double step, const char *const *units, size_t units_count, bool whole,
                             char text[HUMAN_BYTES])
{
    char number[HUMAN_BYTES / 2];
    if (is_odd(value, text))
        return text;
    size_t unit = scale(&value, step, units_count);
    if (unit == 0 && whole)
        snprintf(number, sizeof number, "%.0f", value + 0.0);
    else
        digits(value, number, sizeof number);
    snprintf(text, HUMAN_BYTES, "%s %s", strcmp(number, "-0") == 0 ? "0" : number, units[unit]);
    return text;
}

#define UNITS(...)                                    \
    static const char *const units[] = {__VA_ARGS__}; \
    enum { UNITS_COUNT = sizeof units / sizeof units[0] }

const char *human_bytes(double bytes, char text[HUMAN_BYTES])
{
    UNITS("B", "kB", "MB", "GB", "TB", "PB", "EB");
    return with_unit(bytes, 1000, units, UNITS_COUNT, true, text);
}

const char *human_memory(double bytes, char text[HUMAN_BYTES])
{
    UNITS("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB");
    return with_unit(bytes, 1024, units, UNITS_COUNT, true, text);
}

const char *human_rate(double bits_per_s, char text[HUMAN_BYTES])
{
    UNITS("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s");
    return with_unit(bits_per_s, 1000, units, UNITS_COUNT, true, text);
}

const char *human_flops(double flops_per_s, char text[HUMAN_BYTES])
{
    UNITS("FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s");
    return with_unit(flops_per_s, 1000, units, UNITS_COUNT, true, text);
}

const char *human_count(double count, char text[HUMAN_BYTES])
{
    UNITS("", "k", "M", "B", "T");
    char number[HUMAN_BYTES / 2];
    if (is_odd(count, text))
        return text;
    size_t unit = scale(&count, 1000, UNITS_COUNT);
    if (unit == 0)
        snprintf(number, sizeof number, "%.0f", count);
    else
        digits(count, number, sizeof number);
    if (strchr(number, '.') != NULL && strchr(number, 'e') == NULL) {
        size_t end = strlen(number);
        while (number[end - 1] == '0')
            end--;
        number[number[end - 1] == '.' ? end - 1 : end] = '\0';
    }
    snprintf(text, HUMAN_BYTES, "%s%s", strcmp(number, "-0") == 0 ? "0" : number, units[unit]);
    return text;
}

const char *human_loss(double loss, char text[HUMAN_BYTES])
{
    const double plain_max = 1000;
    if (!isfinite(loss) || loss == 0)
        snprintf(text, HUMAN_BYTES, "-");
    else
        snprintf(text, HUMAN_BYTES, fabs(loss) < plain_max ? "%.4f" : "%.3g", loss);
    return text;
}

const char *human_duration(double seconds, char text[HUMAN_BYTES])
{
    /* From here on the next unit reads better, or rounding would say 60 of this one. */
    const double ms_until = 0.9995, tenths_until = 9.95, s_until = 59.5, longest_d = 36525;
    const char *sign = seconds < 0 ? "-" : "";
    if (is_odd(seconds, text))
        return text;
    double size = fabs(seconds);
    if (size == 0)
        snprintf(text, HUMAN_BYTES, "0 s");
    else if (size < ms_until)
        snprintf(text, HUMAN_BYTES, "%s%.0f ms", sign, size * 1000);
    else if (size < s_until)
        snprintf(text, HUMAN_BYTES, "%s%.*f s", sign, size < tenths_until && round(10 * size) != 10 * round(size),
                 size);
    else if (size < 3599.5)
        snprintf(text, HUMAN_BYTES, "%s%.0f min %.0f s", sign, floor(round(size) / 60), fmod(round(size), 60));
    else if (size < 86400 - 30)
        snprintf(text, HUMAN_BYTES, "%s%.0f h %.0f min", sign, floor(round(size / 60) / 60),
                 fmod(round(size / 60), 60));
    else if (size < longest_d * 86400)
        snprintf(text, HUMAN_BYTES, "%s%.0f d %.0f h", sign, floor(round(size / 3600) / 24),
                 fmod(round(size / 3600), 24));
    else
        snprintf(text, HUMAN_BYTES, "over 100 years");
    return text;
}
