/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_door: the gateway's end: all ranks of one trainer. Others that come meanwhile are told to wait. When the group
 * is at an end, as one of its ranks has gone or said its last word, the door is of no more use. One thread.
 */
#ifndef WORKER_GATE_GATE_DOOR_H
#define WORKER_GATE_GATE_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "worker/gate/gate.h"
#include "worker/gate/gate_key.h"

struct gate_door;

/* `listen`: "HOST:PORT", or "*:PORT". `form_ms`: from the first rank's coming on, for all others to come. ERR_CONF: it
 * cannot listen there. `key` is not needed after it. */
ERR_MUST_CHECK enum err gate_door_open(const struct gate_zmq *zmq, const char *listen, const char *build,
                                       const struct gate_key *key, uint64_t form_ms, struct gate_door **out);
/* What was said goes out, within GATE_LINGER_MS. NULL is fine. */
void gate_door_close(struct gate_door *door);

/* Waits up to `wait_ms` for something to come, and takes all that is there. */
void gate_door_turn(struct gate_door *door, int wait_ms);

/* How many ranks the group has, from 0 on, once all are there; 0 before. */
uint32_t gate_door_count(const struct gate_door *door);
/* What people call one. */
const char *gate_door_name(const struct gate_door *door, uint32_t rank);
/* NULL, or why the group is at an end: one has gone, or does what it may not. */
const char *gate_door_lost(const struct gate_door *door);
/* Whether all have said their last word. */
bool gate_door_parted(const struct gate_door *door);
/* Ends the group: they are told why. */
void gate_door_dismiss(struct gate_door *door, const char *why);

/* The next call of rank 0, into `bytes`, that has room for GATE_CALL_BYTES_MAX. */
bool gate_door_call(struct gate_door *door, uint32_t *call, void *bytes, size_t *count);
/* What was asked for since it was asked last; `*value` of the last such word. */
bool gate_door_asked(struct gate_door *door, enum gate_asked what, uint64_t *value);

/* False, or 0, or -1: the group is at an end. */
/* To, and with, the first `ranks` of them. */
bool gate_door_broadcast(struct gate_door *door, uint32_t ranks, const void *bytes, size_t count);
bool gate_door_meet(struct gate_door *door, uint32_t ranks);
uint64_t gate_door_send(struct gate_door *door, uint32_t rank, uint32_t tag, const void *bytes, size_t count);
uint64_t gate_door_receive(struct gate_door *door, uint32_t rank, uint32_t tag, void *bytes, size_t count);
int gate_door_arrived(struct gate_door *door, uint64_t number, bool wait);

#endif
