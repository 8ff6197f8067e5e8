/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nearest: which of the names that there are somebody probably meant, for "did you mean".
 *
 * Near is what takes few slips: a letter too many, too few, another one, or two that changed places; one slip in a
 * short name, and one in three letters of a longer one; or a name's beginning, of three letters at least. Case is no
 * slip. Of two that are equally near neither is named. Pure; no allocation.
 */
#ifndef COMMON_NEAREST_H
#define COMMON_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

struct nearest {
    const char *name; /* as typed; borrowed */
    const char *best; /* borrowed */
    size_t slips;     /* in it, doubled, and one more if it is less likely for another reason */
    bool tie;
};

struct nearest nearest_to(const char *name);
/* One of the names there are, borrowed until nearest_found(). `unlikely`: an equally near one that is not is meant. */
void nearest_try(struct nearest *nearest, const char *candidate, bool unlikely);
/* NULL: none is near, or two are equally so. */
const char *nearest_found(const struct nearest *nearest);

#endif
