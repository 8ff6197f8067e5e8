/* SPDX-License-Identifier: Apache-2.0 */
/*
 * begun: a run of several islands on disk, as it is when one has founded it and the others have joined: configuration 0
 * is the founder's alone, configuration 1, which the founder has voted for, has all of them as owners and voters. A
 * test then starts them at once, as fast as if they had always been there.
 *
 * It writes what daemons would have: in each state folder configuration, vote and, of the founder, configuration 0; the
 * copy of the newest configuration and the mark of the vote beside the sockets; the file of those that joined.
 * Blocking; no cmocka here.
 */
#ifndef TESTS_LIB_BEGUN_H
#define TESTS_LIB_BEGUN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "net/config/view.h"
#include "net/transport/ident.h"

struct begun_island {
    const char *name;
    const char *address; /* "host:port"; "": it dials the others */
    const struct ident *ident;
    uint64_t uplink; /* bit/s */
    bool witness;
    const char *state, *sockets; /* folders */
    const char *mark;            /* path of its mark; NULL: where a daemon without --home has it */
    const char *joined;          /* path; NULL: it needs none */
};

/* Puts down a run that its first island has founded: ids from 0 in this order, owners that vote, slots shared out by
 * uplink; a witness votes where the owners are even in number. The
 * folders are made; what is there of a run before is not looked at. `nonce`: of the run; NULL: drawn. */
ERR_MUST_CHECK enum err begun_write(const struct begun_island *islands, uint32_t count, const struct runspec *spec,
                                    const uint8_t *nonce);
/* All of them in configuration 0, which no daemon makes so: for tests of parts, where the first epoch is 0. It names
 * the disks of those that have `sockets`; others' are new, and in doubt. The first two are operators. */
ERR_MUST_CHECK enum err begun_at_once(const struct begun_island *islands, uint32_t count, const struct runspec *spec,
                                      const uint8_t *nonce);

/* The membership by the newest configuration of a state folder, as the owner of `key` sees it, or nobody (NULL).
 * view_free() it. */
ERR_MUST_CHECK enum err begun_view(const char *state, const uint8_t *key, struct view *view);

#endif
