/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate: ranks of a trainer and a process beside the daemon, that speak over TCP: what the two ends say to each other.
 *
 *     gate_link    a rank's end                       gate_door    the other one, of all ranks of one trainer
 *     gate_box     pieces of messages to and from one peer, by tag
 *     gate_key     the keys of a site                 gate_zmq     libzmq, opened when somebody wants it
 *
 * It knows nothing of tensors: broadcasts and meetings of all ranks, bytes by tag, and calls of the first one. Each
 * connection is encrypted, and both ends are known by a key (CurveZMQ, https://rfc.zeromq.org/spec/26); who has the
 * site's key is trusted with the model. One that breaks is not mended: the group is at an end, and a new one may come.
 *
 * A rank has two connections, one for what is said and one for pieces: what all wait for is not to stand behind the
 * gigabytes of an anchor.
 *
 * A message has two frames: struct gate_head, and bytes. Both ends are of the same build and byte order, but for HELLO
 * and REFUSED, which are the same in every build.
 *
 * Owns: the connections between ranks and the process that stands for them beside a daemon.
 * Called by: worker, worker/libdiloco.
 * Never includes: daemon/, net/, outer_opt/, kernels/, worker/libdiloco/, worker/model/, worker/comm/, <pthread.h>.
 */
#ifndef WORKER_GATE_GATE_H
#define WORKER_GATE_GATE_H

#include <stdint.h>

enum { GATE_VERSION = 1, GATE_NAME_BYTES = 96, GATE_BUILD_BYTES = 64, GATE_TEXT_BYTES = 512 };
#define GATE_MAGIC 0x45544147u /* "GATE" */

enum gate_kind {
    GATE_HELLO,     /* rank, on each connection: struct gate_hello */
    GATE_REFUSED,   /* door: a text, ended by a zero; `tag`: it is worth trying again */
    GATE_WELCOME,   /* door: all ranks are there */
    GATE_BEAT,      /* either, now and then; says nothing */
    GATE_BROADCAST, /* door, to all ranks in the same order */
    GATE_MEET,      /* rank: it has come; door: all have */
    GATE_PIECE,     /* either: a piece of a message of `tag`, in the order it was sent */
    GATE_CALL,      /* rank 0 of the trainer: bytes for whoever answers calls; `tag`: which call */
    GATE_ASKED,     /* the same, at any time: `tag`: enum gate_asked, `value` */
    GATE_PARTS,     /* rank: its last word */
    GATE_LOST       /* door: the group is at an end; a text, ended by a zero */
};

enum gate_asked { GATE_ASKED_INTERRUPT, GATE_ASKED_ENDING /* `value`: ms */ };

struct gate_head {
    uint32_t magic;
    uint16_t version, kind;
    uint32_t tag, none;
    uint64_t value;
};

struct gate_hello {
    uint64_t group; /* at random, the same in all ranks of one trainer */
    uint32_t rank, count;
    uint32_t pieces, none; /* pieces: whether this is the connection for them */
    char build[GATE_BUILD_BYTES], name[GATE_NAME_BYTES];
};

enum {
    GATE_PIECE_BYTES = 1 << 20, /* a connection encrypts a frame as a whole, in memory of its own */
    GATE_CALL_BYTES_MAX = 4096,
    GATE_RANKS_MAX = 4096,
    GATE_BEAT_MS = 1000,      /* who waits says that often that it lives, and finds whether the other one does */
    GATE_HEARTBEAT_MS = 5000, /* of libzmq's, which a process that computes answers as well */
    GATE_SILENCE_MS = 60000,  /* without one for so long a connection is lost; a machine may stand still for a while */
    GATE_HANDSHAKE_MS = 10000,
    GATE_FORM_MS = 60000, /* from the first rank's coming on, for all others to come */
    GATE_LINGER_MS = 2000 /* a last word has to be out by then */
};

#endif
