/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally: the tokens that this island's trainers have trained, and how many of them are counted in the anchors. Private
 * to trainer/.
 *
 * It outlives trainers, and, in a small file of the state folder, daemons; a daemon that is killed loses the counts of
 * the last second, or since the checkpoint being written began. Only the loop's thread calls; a job writes the file,
 * since a disk that is busy may take long to flush it.
 */
#ifndef DAEMON_TRAINER_TALLY_H
#define DAEMON_TRAINER_TALLY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/jobs.h"

/* The last result whose counts are in the tally. */
struct tally_fragment {
    uint64_t version, shards;
};

/* In the caller's storage. */
struct tally {
    uint64_t before; /* trained by trainers before the last */
    uint64_t last;   /* by the last one; 0 while one is attached that counts its own */
    struct {
        bool there;                  /* one is attached */
        bool idle;                   /* the last one had trained nothing when it went */
        uint64_t kept, before, last; /* as it began, and as known then */
    } begun;
    double counted;  /* mean over all parameters, as shards are counted one by one */
    bool unfinished; /* trainers took steps here, and none has said since that it has contributed all that it will */
    char *path;
    double saved;      /* the counted tokens, as in the file */
    uint64_t saved_ms; /* when it was written last; 0: not yet */

    struct jobs *jobs;     /* the caller's, from tally_init() on; NULL: it is written at once */
    struct tally_job *job; /* that writes it; NULL: none was needed yet */
    bool writing, again;   /* it is under way; and the file is to be written once more */
    char *text;            /* its next content */

    struct tally_fragment *fragments;
    uint32_t fragments_count; /* as many as any was noted of */
};

/* Begins with what the folder holds; a file that is damaged counts as none, and is said. */
ERR_MUST_CHECK enum err tally_init(struct tally *tally, const char *folder);
/* Writes what no job has written. None may be under way. */
void tally_deinit(struct tally *tally);

/* A new trainer counts on from `kept` tokens, which those before it have trained. */
void tally_begin(struct tally *tally, uint64_t kept);
/* It is gone, after `tokens`. One that has trained nothing leaves the tally as it was: the next one may go on from an
 * earlier one's checkpoint. */
void tally_end(struct tally *tally, uint64_t tokens);
/* The trainer that was there is there again, with a new connection or a new daemon. */
void tally_resume(struct tally *tally);
/* The trainer, which has trained `tokens`, takes steps; or it has contributed all that it will. */
void tally_unfinished(struct tally *tally, bool unfinished, uint64_t tokens);
/* All that trainers of this island have trained, the present one `tokens`; and those that results have counted. Tokens
 * are the trainer's word: as many as anyone could print, at most. */
uint64_t tally_trained(const struct tally *tally, uint64_t tokens);
uint64_t tally_counted(const struct tally *tally);

/* A result that made `version` of a fragment was counted: of these shards, more of which may follow. */
void tally_note(struct tally *tally, uint32_t fragment, uint64_t version, uint64_t shards);
/* The shards of which that was noted, or a later version was. */
uint64_t tally_noted(const struct tally *tally, uint32_t fragment, uint64_t version);

/* Writes it, with what the present trainer has trained. */
void tally_save(struct tally *tally, uint64_t tokens);
/* The same, once a minute, and within a second where results have counted more. */
void tally_tick(struct tally *tally, uint64_t tokens, uint64_t now_ms);

#endif
