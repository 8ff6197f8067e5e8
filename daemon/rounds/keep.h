/*
 * keep: what is written besides the ledger: checkpoints, from which a restart replays, and the exported anchors, which
 * are for people. Private to rounds/; the loop's thread calls.
 */
#ifndef DAEMON_ROUNDS_KEEP_H
#define DAEMON_ROUNDS_KEEP_H

#include "daemon/rounds/apply.h"
#include "daemon/rounds/desk.h"

struct keep;

ERR_MUST_CHECK enum err keep_new(struct desk *desk, const struct apply *apply, struct keep **out);
void keep_free(struct keep *keep);

/* `version` of the fragment is on disk, or, KEEP_NONE, none that the ledger leads on from. */
#define KEEP_NONE UINT64_MAX
void keep_on_disk(struct keep *keep, uint32_t f, uint64_t version);
void keep_checkpoint(struct keep *keep, uint32_t f);
void keep_export(struct keep *keep);
void keep_follow(struct keep *keep);
void keep_tick(struct keep *keep);
enum rounds_export_state keep_saving(const struct keep *keep);
const char *keep_saved(const struct keep *keep);

#endif
