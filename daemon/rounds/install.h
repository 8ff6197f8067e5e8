/*
 * install: a peer's whole state takes the place of ours. Private to rounds/; the loop's thread calls.
 */
#ifndef DAEMON_ROUNDS_INSTALL_H
#define DAEMON_ROUNDS_INSTALL_H

#include "daemon/rounds/desk.h"
#include "daemon/rounds/keep.h"

struct install;

/* Both are borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err install_new(struct desk *desk, struct keep *keep, struct install **out);
void install_free(struct install *install);
/* A state lies whole in its memory: taken over now, or when nobody reads the anchor. */
void install_state_in(struct install *install, uint32_t peer, const struct wire_key *key, uint64_t bytes);
void install_unread(struct install *install, uint32_t f);
/* A state has come and waits for readers. */
bool install_waits(const struct install *install, uint32_t f);

#endif
