/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover: a fragment from its last checkpoint and the ledger's results since: at start, and later beside the one in
 * memory, to see whether that is what it should be. The loop's thread calls.
 *
 * A version is made again only if a commit says of which results it was made, and all of these are there: results that
 * were merely received may be of a version that never came to be.
 */
#ifndef DAEMON_ROUNDS_RECOVER_H
#define DAEMON_ROUNDS_RECOVER_H

#include "daemon/rounds/round_context.h"
#include "daemon/rounds/keep.h"

/* How far a start has come with reading what the disk has. */
struct rounds_recovery {
    uint32_t fragments, fragments_done;
    uint64_t versions; /* replayed from the ledger */
};

struct recover;

/* `round_context` is borrowed for its life. ERR_NOMEM. */
ERR_MUST_CHECK enum err recover_new(struct round_context *context, struct recover **out);
/* No job may be under way. NULL is fine. */
void recover_free(struct recover *recover);

/* At start: a job for each fragment, which goes back to the loop between its pieces: EVENT_RECOVERED when all have
 * ended. Until then no epoch may begin, and nothing else be ordered. Once. ERR_NOMEM. */
ERR_MUST_CHECK enum err recover_begin(struct recover *recover);
/* The daemon ends: pieces under way end, and no EVENT_RECOVERED comes. */
void recover_stop(struct recover *recover);
struct rounds_recovery recover_info(const struct recover *recover);
/* After EVENT_RECOVERED, once: puts the findings into the round context. Returns the error of the first fragment that
 * has one; a file that is merely missing or damaged is no error. */
ERR_MUST_CHECK enum err recover_end(struct recover *recover, struct keep *keep);
/* From then on: whether a fragment has a state; and what the ledger holds of the version after it, as
 * apply_post_held() tells it. */
/* Whether a checkpoint was damaged, so that what this disk held of its fragment is gone. */
bool recover_damaged(const struct recover *recover);
bool recover_known(const struct recover *recover, uint32_t f);
/* The largest run step that a result names of which the ledger says that it made a version here. */
uint64_t recover_applied_step(const struct recover *recover, uint32_t f);
void recover_tell_held(struct recover *recover, uint32_t f);

/* Into `shadow` (replica_shadow()), up to `version`; on a job's thread, with its codec. ERR_NOTFOUND: they do not lead
 * there. */
ERR_MUST_CHECK enum err recover_replay(const struct round_context *context, uint32_t f, uint64_t version,
                                       struct replica *shadow, struct codec *codec, struct store_fragment *state);

#endif
