/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counterpart: a daemon played by a test for libdiloco: one tensor of COUNT values in one fragment. State is the
 * process's: begin() makes it, end() ends it. A failure fails the cmocka case.
 */
#ifndef TESTS_LIB_COUNTERPART_H
#define TESTS_LIB_COUNTERPART_H

#include <stdbool.h>

#include "common/ipc.h"
#include "worker/libdiloco/diloco.h"

enum { COUNT = 500, VALUES = 512, SHM_BYTES = 65536, SESSION = 9 };

extern float tensor[COUNT];
extern int listener, connection, memfd;
extern struct ipc_shm *shm;
extern struct ipc_fragment *fragment;
extern struct diloco *d;
/* What a test wants different before begin(). */
extern struct ipc_shm make_conf;
extern bool unsealed;                  /* the shared memory may be made smaller */
extern struct diloco_device device;    /* size 0: host memory */
extern struct diloco_tensor announced; /* all of `tensor`, or, with a part, its first values */
extern struct diloco_group group;      /* size 0: alone */
extern struct diloco_machine machine;  /* size 0: not said */
extern char trainer_name[11];          /* it may be changed once attached */
extern struct ipc_hello greeting;      /* the trainer's last */
/* What the daemon does while the trainer waits: called before each slice of waiting with its number; non-zero ends it.
 */
extern int (*while_waiting)(int slice);
extern int slices;
/* The trainer's options.before_moves; NULL: none. */
extern int (*before_moves)(void *user);

/* New shared memory, as begin() makes it. */
void make_shm(void);
/* A socket to attach to; its path. */
const char *listen_here(void);
/* The next message of the trainer, waiting for it; `*fd` as it came along. */
struct ipc_message hear(int *fd);
void hear_introduction(uint64_t session);
void say_welcome(bool resumed);
void say_end(bool over, const char *why);
/* The next message that is no report; fails if there is none. */
void assert_hears(uint32_t type);

extern int begins; /* what diloco_begin() is to give; DILOCO_OK, unless a test says otherwise */
/* The trainer is attached, and its tensor holds the anchor: each value its index. */
void begin(void);
void end(void);
/* A step that adds `by` to each value. */
int train(float by);
void daemon_moves(enum ipc_word from, enum ipc_word to);
/* An anchor of one value, ready to be taken in. */
void bring_anchor(uint64_t version, float value, const struct ipc_range *ranges, uint32_t count);

#endif
