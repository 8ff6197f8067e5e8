/* SPDX-License-Identifier: Apache-2.0 */
/*
 * talk: the protocol core of one island among a few members whose words the test chooses, for one fragment. Members are
 * named by number, which is their slot; ids are others (roster_id()).
 *
 * One island at a time: talk_among() begins it, talk_ends() ends it, also as a teardown after a test that failed.
 */
#ifndef TESTS_LIB_TALK_H
#define TESTS_LIB_TALK_H

#include "tests/lib/testlib.h"

#include "net/sync/sync.h"

enum { TALK_MEMBERS_MAX = 5 };

extern struct sync *talk_sync;
extern struct config_log *talk_config_log;
extern uint64_t talk_now_ms;
/* What each will say in its next heartbeat. */
extern struct wire_fragment talk_said[TALK_MEMBERS_MAX];
extern uint64_t talk_epoch_of[TALK_MEMBERS_MAX]; /* in which it speaks */
extern bool talk_takes_part[TALK_MEMBERS_MAX];
extern bool talk_witness;         /* of talk_among(): its last member is the witness; until talk_ends() */
extern bool talk_empty;           /* likewise: we have no state */
extern uint64_t talk_patience_ms; /* with who does not do its part, from the next talk_among() on; 0: no end */

/* We are member `self` of `count`, all of whom vote, at `version` with hash 'a'; all are up and say the same of
 * themselves. Members whose bit is in `owners` own a part of the fragment. */
void talk_among(uint32_t count, uint32_t self, uint64_t owners, uint64_t version, struct owner_rule rule);
int talk_ends(void **state);

/* ---- what happens ---- */

void talk_happens(struct sync_event event);
void talk_tick(uint64_t later_ms);
/* The member says what talk_said has. */
void talk_hear(uint32_t member);
/* And that it does not hear that one, from now on. */
void talk_does_not_hear(uint32_t member, uint32_t whom);
void talk_comes_up(uint32_t member);
void talk_goes_away(uint32_t member);
/* From now on it stands at this version, with hash 'a'. */
void talk_is_at(uint32_t member, uint64_t version);
/* It says that it has this result of `owner`, for the version after its own; or, next time, one of this digest. */
void talk_shows(uint32_t member, uint32_t owner);
void talk_shows_digest(uint32_t member, uint32_t owner, const struct digest *digest);
/* Its contribution is here. */
void talk_contributes(uint32_t member, uint64_t version);
/* Ours is on its way. */
void talk_we_contribute(void);
/* A result of this owner is on our disk, made in the present epoch, or in another one. */
void talk_stored(uint32_t owner, uint64_t version, uint32_t from);
void talk_stored_of(uint32_t owner, uint64_t version, uint64_t epoch, uint32_t from);

/* The next configuration, as the last one; and the epoch that it begins, for us: the others go on in the last one until
 * they follow. */
struct config talk_draft(void);
void talk_begin_epoch(struct config *config);
void talk_follows(uint32_t member);

/* ---- what the last event ordered; NULL: nothing of the kind ---- */

const struct sync_action *talk_ordered(enum sync_action_type type);
const struct sync_action *talk_reported(enum sync_report what);
const struct sync_action *talk_sent_to(uint32_t member);
/* Whom we asked for a result of this owner; UINT32_MAX: nobody. */
uint32_t talk_asked_for(uint32_t owner);

/* ---- names ---- */

struct digest talk_hash_named(char name, uint64_t version);
/* The digest of the result that `owner` made of its part in an epoch; `name`: of several. */
struct digest talk_result_named(char name, uint32_t owner, uint64_t version, uint64_t epoch);
struct wire_key talk_result_key(uint64_t version, uint32_t owner);
struct wire_key talk_contribution_key(uint64_t version, uint32_t owner, uint32_t island);

/* ---- what is held ---- */
/* The fragment's outer step is taken, and the ledger has no result of the next version. */
void talk_applied(uint64_t version);
/* The ledger has no result of the next version that was not told; what the event before this ordered stays ordered. */
void talk_listed(void);
/* The shards of an owner's part in the present configuration. */
uint64_t talk_shards_of(uint32_t owner);
/* Whether the result of that owner's part is here, and we say so; and whether it is, and we do not. */
bool talk_held_and_told(uint32_t owner, uint64_t epoch);
bool talk_held_in_silence(uint32_t owner, uint64_t epoch);
/* The next epoch begins, and starts at version 4. */
void talk_epoch_later(void);
/* The next configuration, which carries member 0's result of version 5, of that name. */
struct config talk_draft_with_one(char name);

#endif
