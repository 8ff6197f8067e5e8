/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endorsed: endorsements for configurations that a test makes by hand. A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_ENDORSED_H
#define TESTS_LIB_ENDORSED_H

#include <stdint.h>

#include "net/config/config.h"
#include "net/transport/ident.h"

/* Gives `next` what it needs after `previous`, signed by these voters: ids in order, with the key of each. */
void endorsed(const struct config *previous, struct config *next, const uint32_t *ids,
              const struct ident *const *idents, uint32_t count);
/* Adds one that says this of a member, whether it is needed or not, in its place, in ballot 1 or the configuration's.
 */
void endorsed_by(struct config *config, uint32_t signer, const struct ident *ident, uint32_t member,
                 enum config_endorsed says, uint64_t incarnation);

#endif
