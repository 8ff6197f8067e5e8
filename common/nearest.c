/* SPDX-License-Identifier: Apache-2.0 */
#include "common/nearest.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { NAME_BYTES_MAX = 63, BEGINNING_MIN = 3, LETTERS_A_SLIP = 3 };

static bool same(char left, char right)
{
    return tolower((unsigned char)left) == tolower((unsigned char)right);
}

static size_t least(size_t left, size_t right)
{
    return left < right ? left : right;
}

/* Slips from one name to the other (optimal string alignment); both have NAME_BYTES_MAX bytes at most. */
static size_t slips_between(const char *left, const char *right)
{
    size_t rows[3][NAME_BYTES_MAX + 1];
    size_t left_bytes = strlen(left), right_bytes = strlen(right);
    for (size_t j = 0; j <= right_bytes; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= left_bytes; i++) {
        const size_t *last = rows[(i - 1) % 3], *before = rows[(i + 1) % 3];
        size_t *row = rows[i % 3];
        row[0] = i;
        for (size_t j = 1; j <= right_bytes; j++) {
            row[j] = least(last[j - 1] + !same(left[i - 1], right[j - 1]), 1 + least(last[j], row[j - 1]));
            if (i > 1 && j > 1 && same(left[i - 1], right[j - 2]) && same(left[i - 2], right[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[left_bytes % 3][right_bytes];
}

struct nearest nearest_to(const char *name)
{
    return (struct nearest){.name = name, .slips = SIZE_MAX};
}

void nearest_try(struct nearest *nearest, const char *candidate, bool unlikely)
{
    size_t bytes = strlen(nearest->name);
    if (bytes == 0 || bytes > NAME_BYTES_MAX || strlen(candidate) > NAME_BYTES_MAX)
        return;
    size_t slips = slips_between(nearest->name, candidate), most = 1 + bytes / LETTERS_A_SLIP;
    bool begins = bytes >= BEGINNING_MIN && strncasecmp(nearest->name, candidate, bytes) == 0;
    if (begins && slips > most)
        slips = most; /* as good as the worst of the others */
    if (slips > most || slips >= bytes)
        return;
    slips = 2 * slips + unlikely;
    if (slips > nearest->slips || (nearest->best != NULL && strcmp(nearest->best, candidate) == 0))
        return;
    nearest->tie = slips == nearest->slips;
    nearest->slips = slips;
    nearest->best = candidate;
}

const char *nearest_found(const struct nearest *nearest)
{
    return nearest->tie ? NULL : nearest->best;
}
