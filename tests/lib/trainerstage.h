/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainerstage: daemon/trainer with the test on both sides of it. Above, it plays the engine: takes events out, steps
 * the protocol's core, carries its orders out and answers as jobs would, at once. Below, it plays the trainer, one raw
 * message at a time.
 *
 * Answers can be held back, so that a trainer can go while a job is at its memory. What the trainer's part posts is
 * kept as text: "up 0@3, snapshot 1, down 0, announce". Time is the test's. A failure fails the running test, and so
 * does an event that has no place in the core.
 */
#ifndef TESTS_LIB_TRAINERSTAGE_H
#define TESTS_LIB_TRAINERSTAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/ipc.h"
#include "daemon/trainer/trainer.h"
#include "tests/lib/trainerrun.h"

enum { STAGE_SAID_BYTES = 1024, STAGE_HELD_MAX = 32 };

struct stage {
    struct trainerrun run;
    struct dconf conf;
    struct events *events;
    struct trainer *trainer;
    uint64_t start_ms, now_ms;
    uint64_t go_step; /* where training goes on */
    bool peers_heard; /* what every tick says */
    struct run_end_found end;
    const char *refusal; /* why tensors are refused; NULL: they fit */
    unsigned held;       /* types of events that are not answered: 1 << type */
    bool applies;        /* outer steps are taken when they are ordered, */
    bool hashes;         /* and what they make is hashed */
    char said[STAGE_SAID_BYTES];
    struct event waiting[STAGE_HELD_MAX];
    size_t waiting_count;
    struct replica_snapshot snapshot[TRAINERRUN_FRAGMENTS]; /* as last handed out */
    float *contribution[TRAINERRUN_FRAGMENTS];              /* what was encoded last */
    uint64_t counted_tokens[TRAINERRUN_FRAGMENTS];          /* bob alone: in all its rounds */

    /* the trainer */
    struct ipc_machine machine; /* what its HELLO says that it runs on */
    int socket, memfd;
    uint64_t session;
    struct ipc_shm *shm;
};

/* Of trainers' parts that are made from now on; the test's. NULL, as at first: they have none. */
extern struct jobs *stage_jobs;

/* A daemon that has just started, with nothing on disk. `islands` and `lines` as in trainerrun.h; `program` as in
 * [worker] program: "" for none. */
void stage_open(struct stage *stage, uint32_t islands, const char *lines, const char *program);
/* The same in a folder that is there, with what it holds of tokens and results. */
void stage_open_in(struct stage *stage, const char *folder, uint32_t islands, const char *lines, const char *program);
void stage_close(struct stage *stage);
/* Another daemon in its place, which has the fragments' versions from disk and lost all that was under way; the trainer
 * has not noticed yet. */
void stage_restart(struct stage *stage);

/* Another that does not know the run's plan before a trainer brings it. */
void stage_forget_plan(struct stage *stage);

/* ---- the engine ---- */

/* Takes in all that has come and deals with it. */
void stage_turn(struct stage *stage);
/* The same `ms` later, after a tick. */
void stage_tick(struct stage *stage, uint64_t ms);
/* Deals with what was held back, oldest first; from now on nothing is held. */
void stage_answer(struct stage *stage);
/* Steps the core and carries out what it orders, all that follows too. */
void stage_step(struct stage *stage, const struct sync_event *event);
/* The results of the fragment's next version are there. All count ana; those of these shards count us, too. */
void stage_results(struct stage *stage, uint32_t f, const struct bitset *shards);
/* Fails unless these were posted since it was last asked, in this order. */
#define assert_posted(stage, text) stage_assert_posted((stage), (text), __FILE__, __LINE__)
void stage_assert_posted(struct stage *stage, const char *want, const char *file, int line);
/* Memories shared with a trainer that are mapped into this process: by the daemon's part, and by the test as trainer.
 */
unsigned stage_memories(void);
/* Forgets what was posted so far. */
void stage_forget(struct stage *stage);

/* ---- the trainer ---- */

/* Another connection; the caller closes it. */
int stage_dial(const struct stage *stage);
void stage_connect(struct stage *stage);
void stage_say(struct stage *stage, enum ipc_type type, uint32_t f);
void stage_send(struct stage *stage, const struct ipc_message *message, int fd);
void stage_hello(struct stage *stage, uint64_t session, uint64_t step, uint64_t tokens, int fd);
/* HELLO, all tensors, REGISTERED. */
void stage_register(struct stage *stage);
/* The next message, which is of this type. A memory that comes with it is kept and mapped. */
struct ipc_message stage_hear(struct stage *stage, enum ipc_type type);
void stage_hear_nothing(const struct stage *stage);
/* It says REFUSED with this text in it, and hangs up. */
void stage_hear_refusal(struct stage *stage, const char *part);
/* Connects and goes through to training; with `initial` its tensors are the run's first. */
void stage_train(struct stage *stage, bool initial);
/* Attaches again with the memory it has. */
void stage_attach_again(struct stage *stage, uint64_t step, uint64_t tokens);
/* It is gone. Its memory too, unless `keep`. */
void stage_hang_up(struct stage *stage, bool keep);

/* What the trainer is to do with the values of a member's shards; they are one range, or lie in one. */
uint32_t stage_mode(const struct stage *stage, uint32_t f, uint32_t member);
struct ipc_fragment *stage_fragment(const struct stage *stage, uint32_t f);
uint32_t stage_word(const struct stage *stage, uint32_t f);
void stage_put_word(const struct stage *stage, uint32_t f, uint32_t word);
/* FREE to SNAPSHOT, all values being `value`, and tells the daemon. */
void stage_take_snapshot(struct stage *stage, uint32_t f, uint64_t step, uint64_t tokens, float value);
/* ANCHOR to FREE, and tells the daemon. */
void stage_mix(struct stage *stage, uint32_t f);

#endif
