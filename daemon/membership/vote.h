/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vote: this island's promises and acceptances (net/membership/paxos.h), on disk; and whether this disk may vote at
 * all.
 *
 * A daemon that comes back with an older disk has forgotten what it acknowledged, and the others could decide against
 * it. So beside the state folder, in a place that does not survive a boot or is marked with this boot's id, lies a
 * mark: the number of the last durable vote, how far the ledger was durable, and whether the disk was in doubt. Where
 * the disk holds less than the mark says, or there is no mark of this boot, the disk is in doubt, and gets a new
 * incarnation: until a configuration names that incarnation, or all other voters have told what they hold, it must not
 * vote (docs/PROTOCOL.md, "Epochs", rule 9).
 *
 * A flush takes what the disk takes, so a vote is given in three calls: vote_take() and vote_pack() in memory, in the
 * loop's thread, and vote_write(), which blocks, in any other. All else is the loop's thread's; vote_mark(),
 * vote_settle() and vote_distrust() may run beside vote_write().
 */
#ifndef DAEMON_MEMBERSHIP_VOTE_H
#define DAEMON_MEMBERSHIP_VOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/membership/membership_io.h"

struct vote_conf {
    const char *folder; /* of the state; it is there */
    const char *mark;   /* path of the mark; its folder is there */
    bool exposed;       /* that is where a copy of the state would bring an older mark with it */
};

struct vote;

/* `ledger_at`: how far the ledger reaches as it was found (ledger_at()). ERR_CORRUPT: the file is damaged; ERR_CONF:
 * another daemon has the mark, since it has this key, too; both with the remedy; ERR_IO, ERR_NOMEM. */
ERR_MUST_CHECK enum err vote_open(const struct vote_conf *conf, uint64_t ledger_at, struct vote **out);
/* NULL is fine. */
void vote_close(struct vote *vote);

/* Whether it may vote, its incarnation and its last vote, as they are at any time; borrowed. */
const struct voting_disk *vote_disk(const struct vote *vote);
/* Of these: VOTE_DOUBT: there is no mark of this boot, or the disk holds less than it says. */
enum vote_doubt vote_doubt(const struct vote *vote);
/* Why it is in doubt, for people; "" if it is not, or is fresh. */
const char *vote_why(const struct vote *vote);
/* As its configuration says. */
bool vote_exposed(const struct vote *vote);
/* Of this disk; never 0. */
uint64_t vote_incarnation(const struct vote *vote);
/* The last one, durable or not; all zero if there is none. Its bytes are borrowed until vote_take(). */
const struct paxos_vote *vote_last(const struct vote *vote);

/* `last` is the last vote from here on, and not durable yet. ERR_NOMEM: the one before stays. */
ERR_MUST_CHECK enum err vote_take(struct vote *vote, const struct paxos_vote *last);

/* A vote as its file is to hold it. */
struct vote_file {
    uint8_t *bytes;
    size_t bytes_count;
    uint64_t number;
};
void vote_file_deinit(struct vote_file *file);
/* The last vote. ERR_NOMEM. */
ERR_MUST_CHECK enum err vote_pack(const struct vote *vote, struct vote_file *file);
/* Durable when it returns, and the mark says so: never before. One at a time, and none after a newer one. */
ERR_MUST_CHECK enum err vote_write(struct vote *vote, const struct vote_file *file);
/* The ledger is durable up to here: said before anyone is told that a result is held. A mark that cannot be written is
 * ERR_IO: then nothing may be told. */
ERR_MUST_CHECK enum err vote_mark(struct vote *vote, uint64_t ledger_at);
/* The doubt is over: struct voting_disk says what `named` and `trusted_epoch` are. ERR_IO: all is as it was, since the
 * mark cannot be written. */
ERR_MUST_CHECK enum err vote_settle(struct vote *vote, uint64_t named, uint64_t trusted_epoch);
/* In doubt from here on, as another disk: it is known to hold less than it did, and `why`, which outlives the vote,
 * says what is missing. A fresh one, or one in doubt already, stays as it is. To be called before this island has
 * spoken to any other one. ERR_IO, ERR_NOMEM: it must not go on. */
ERR_MUST_CHECK enum err vote_lost(struct vote *vote, const char *why);
/* In doubt from here on: a configuration names another disk of this island. */
void vote_distrust(struct vote *vote);

#endif
