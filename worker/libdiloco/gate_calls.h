/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_calls: what rank 0 of a trainer asks of the gateway, which makes the same call beside the daemon. Bytes that
 * belong to a call follow it, and what a call gives comes back, as messages of GATE_TAG_DATA.
 */
#ifndef WORKER_LIBDILOCO_GATE_CALLS_H
#define WORKER_LIBDILOCO_GATE_CALLS_H

#include <stdint.h>

#include "common/ipc.h"
#include "worker/gate/gate.h"
#include "worker/libdiloco/diloco.h"

enum { GATE_TAG_DATA = DILOCO_TAGS };

enum gate_call {
    GATE_CALL_ATTACH, /* struct gate_attach; then what was kept */
    GATE_CALL_BEGIN,  /* struct gate_begin; then struct gate_tensor of each tensor, struct ipc_tensor of each frozen */
    GATE_CALL_STEP,   /* struct diloco_report */
    GATE_CALL_FINISH,
    GATE_CALL_KEEP_BEGIN,
    GATE_CALL_KEEP,      /* a uint64_t comes back: how many bytes; and these */
    GATE_CALL_KEEP_REST, /* the same */
    GATE_CALL_DETACH
};

struct gate_attach {
    int32_t wait_ms;
    uint32_t without_initial;
    uint64_t kept_bytes;
    char trainer[sizeof((struct ipc_hello *)0)->trainer];
    struct ipc_machine machine;
};

struct gate_begin {
    uint32_t tensors, frozen;
    uint32_t has_all, none; /* has_all: this rank has all values, so that what a checkpoint keeps is its alone */
};

struct gate_tensor {
    struct ipc_tensor announced;
    uint32_t type; /* enum diloco_type */
    uint32_t none;
};

_Static_assert(sizeof(struct gate_attach) <= GATE_CALL_BYTES_MAX, "a call has room for it");

#endif
