/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices: a list of devices by their numbers, as people write it: "0-3,6". Pure; any thread.
 */
#ifndef COMMON_DEVICES_H
#define COMMON_DEVICES_H

#include "common/err.h"

/* As many ranks as a trainer may have, and so devices. */
enum { DEVICES_MAX = 64 };

/* Numbers and stretches of them, each number once. `where` is what the text stands behind, for an error: "--devices".
 * ERR_ARG: it is no such list, is empty, or names more than DEVICES_MAX. */
ERR_MUST_CHECK enum err devices_parse(const char *where, const char *text, int number[DEVICES_MAX], int *count);

#endif
