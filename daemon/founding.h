/* SPDX-License-Identifier: Apache-2.0 */
/*
 * founding: what was drawn at random when a run was founded, in a file beside the configuration of its founders.
 *
 * A run's nonce is made of it: founders that are reset and begin anew, with the same names, keys and run spec, begin
 * another run, and what was signed in the run before proves nothing in it. Blocking; any thread.
 */
#ifndef DAEMON_FOUNDING_H
#define DAEMON_FOUNDING_H

#include <stdint.h>

#include "common/err.h"

enum { FOUNDING_BYTES = 16 };

/* Draws one, and puts it into the file: 32 hexadecimal digits and a line's end. */
ERR_MUST_CHECK enum err founding_draw(const char *path);
/* ERR_CONF: there is no such file, or something else in it, with the remedy. */
ERR_MUST_CHECK enum err founding_read(const char *path, uint8_t out[FOUNDING_BYTES]);

#endif
