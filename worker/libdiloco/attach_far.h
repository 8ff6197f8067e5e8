/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_far: ranks of a group that cannot map the daemon's memory, since they run on other machines or in containers
 * of their own. A far rank has its own parts of both areas of a fragment in memory of its own, closely packed. A near
 * rank serves it: what it contributes goes there and is put into the shared memory, and anchors come from there. What
 * is on its way is the group's business (send, receive, arrived); here it is begun, and looked at whenever a rank does
 * something anyway.
 *
 * Every carrying is begun by an order that all ranks hear, so that both ends know of it: neither asks the other. A
 * word of four bytes follows what a far rank has done, or says that it could not; with it the rank that serves it
 * counts it among those that are done.
 *
 * Owns the areas of a far rank, the parts of those that a near one serves, and memory for what is on its way. On the
 * trainer's thread. With near ranks alone all of this is nothing.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_FAR_H
#define WORKER_LIBDILOCO_ATTACH_FAR_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/libdiloco/attach_core.h"

/* ---- meeting: all ranks call alike, and hear the same ---- */

/* Before anything else is said: whether all have the same build of this library. DILOCO_ERROR names the rank that
 * has not. */
ERR_MUST_CHECK int attach_far_greet(struct diloco *d);
/* Once each rank has mapped the shared memory, or could not (`mapped`: how that went; d->shm is NULL for whoever got no
 * descriptor). Then a far rank has a copy of its head and tables. DILOCO_ERROR: one that could not, or that has other
 * tensors; all ranks name it. */
ERR_MUST_CHECK int attach_far_meet(struct diloco *d, int mapped);
/* Once tensors have their places: far ranks tell who serves them what their parts are. */
ERR_MUST_CHECK int attach_far_parts(struct diloco *d);
void attach_far_deinit(struct diloco *d);

/* ---- values ---- */

/* An area: the whole fragment's in shared memory, or own parts, closely packed, of a far rank. */
float *attach_far_area(const struct diloco *d, uint32_t f, enum attach_area which);
/* Where in such an array own value `own` of a tensor is, that is value `at` of the whole tensor. */
uint64_t attach_far_place(const struct diloco *d, const struct tensor *t, uint64_t own, uint64_t at);
/* A far rank has taken an anchor in: its areas swap. */
void attach_far_swap(struct diloco *d, uint32_t f);

/* ---- carrying: called in all ranks for the same order ---- */

/* A far rank's parts to who serves it, who puts them into `to`, the same array of the whole fragment: a far rank has
 * filled its own by a move, and they go out when its device is done with all that is queued; near ranks take them in
 * from then on. */
ERR_MUST_CHECK int attach_far_up(struct diloco *d, uint32_t f, float *to);
/* The other way. A far rank returns when it has them with `wait`; else it says by attach_far_did() that it has, once it
 * finds them in attach_far_turn(). */
ERR_MUST_CHECK int attach_far_down(struct diloco *d, uint32_t f, float *from, bool wait);
/* In a near rank, for each one that it serves: the word with which it will say that it is done is counted, once what it
 * brings up of this fragment is there. */
ERR_MUST_CHECK int attach_far_expect(struct diloco *d, uint32_t f);
/* This rank has done its part of an order that is counted, or cannot: attach_group_did(), wherever it is. */
ERR_MUST_CHECK int attach_far_did(struct diloco *d, uint32_t f, bool failed);
/* Looks at all that is on its way; waits for it with `wait`. */
ERR_MUST_CHECK int attach_far_turn(struct diloco *d, bool wait);
/* Whether nothing is. */
bool attach_far_idle(const struct diloco *d);

#endif
