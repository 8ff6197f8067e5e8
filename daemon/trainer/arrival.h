/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrival: how a trainer that has registered comes to train: again, with the memory it has, or for the first time.
 * Private to trainer/.
 *
 * The picture is in attachment.h. Only the loop's thread calls; nothing blocks.
 */
#ifndef DAEMON_TRAINER_ARRIVAL_H
#define DAEMON_TRAINER_ARRIVAL_H

#include <stdbool.h>
#include <stdint.h>

struct attachment;

/* As trainer_accept(). */
void arrival_accept(struct attachment *attachment, const char *other_base);
/* IPC_INITIAL: its tensors are in the base areas. */
void arrival_initial(struct attachment *attachment);
/* Answers, as in trainer.h. */
void arrival_started(struct attachment *attachment, uint32_t f, bool initial);
void arrival_go(struct attachment *attachment, uint64_t step);
void arrival_tick(struct attachment *attachment);
/* It brings no initial tensors: it said so, or this island joins a run that others have begun. */
bool arrival_without_initial(const struct attachment *attachment);
/* Jobs are taking its initial tensors over as the anchor. */
bool arrival_initialising(const struct attachment *attachment);

#endif
