/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lies: what a rogue (tests/lib/rogue.h) says in more than one test.
 *
 * A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_LIES_H
#define TESTS_LIB_LIES_H

#include <stdint.h>

#include "net/transport/ident.h"
#include "net/transport/wire_join.h"
#include "tests/lib/rogue.h"

/* In a heartbeat: it is a million versions ahead, and has contributed to what comes then. */
void lie_far_ahead(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat);
/* To one island: a draft of the next configuration that starts a thousand versions beyond it; the rogue owns all of it
 * alone. */
void lie_invented_draft(struct rogue *rogue, uint32_t to);
/* Whoever has the key of `ident` asks to come in by this name with the mirror image of that key, which has the same
 * connection key: all of it is well signed. */
struct wire_join lie_mirrored(const struct ident *ident, const uint8_t *nonce, const char *name);

#endif
