/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proofs: who has signed two results of one part, on disk: a file for each, with the proof (net/membership/proof.h).
 * Whoever broke its word stays evicted, whoever is started again.
 *
 * Nothing is checked here: a file is what somebody left there. Blocking; any thread, one at a time for one member.
 */
#ifndef DAEMON_MEMBERSHIP_PROOFS_H
#define DAEMON_MEMBERSHIP_PROOFS_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* Of the member of this id. Durable when it returns; one that is there already is replaced. */
ERR_MUST_CHECK enum err proofs_save(const char *folder, uint32_t id, const uint8_t *bytes, size_t count);
/* Caller frees `*bytes`. ERR_NOTFOUND: there is none. */
ERR_MUST_CHECK enum err proofs_load(const char *folder, uint32_t id, uint8_t **bytes, size_t *count);

#endif
