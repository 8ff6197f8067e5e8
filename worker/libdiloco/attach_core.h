/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_core: struct diloco, one attachment of a trainer: what the floors of libdiloco share. Private to them.
 *
 *     attach        the public calls, of diloco.h; which fragment moves when
 *     attach_register the tensors, as they are announced
 *     attach_follow what a rank does that another one decides for
 *     attach_keep   what a checkpoint keeps of all this
 *     attach_map    the memory shared with the daemon
 *     attach_move   values, and the two moves of a fragment
 *     attach_device single moves, wherever the tensors are            attach_types   values of 16 bits
 *     attach_link   the connection: what is said and heard
 *     attach_far    ranks on other machines, and what is on its way to and from them
 *     attach_group  ranks that hold the tensors in parts, who decides and who follows
 *     attach_gate   a gateway beside the daemon, where it has no rank beside it
 *     attach_part   where the values of a part lie in the whole tensor
 *     attach_core   this struct, the text of its last failure          aside   the arithmetic of work set aside
 *
 * Each floor calls only those below it. One thread at a time uses a struct diloco. Nothing here waits, opens or
 * allocates; what the floors put into the struct they release themselves.
 */
#ifndef WORKER_LIBDILOCO_ATTACH_CORE_H
#define WORKER_LIBDILOCO_ATTACH_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ipc.h"
#include "worker/libdiloco/diloco.h"

/* Of a fragment's two areas in the shared memory: the one with its base, or the other. */
enum attach_area { ATTACH_BASE, ATTACH_AREA };

enum { ATTACH_NAME_BYTES = 96 };

struct tensor {
    struct ipc_tensor announced;
    struct ipc_place place; /* of the whole tensor, once there is shared memory */
    void *data;
    uint64_t begin; /* in `data`: its first value */
    enum diloco_type type;
    uint32_t number; /* in the order of registration */
    uint64_t whole;  /* values of the whole tensor */
    /* Own values: of its rows of `width` the columns from column0 on; of these, closely packed, `count` from `first`.
     */
    uint64_t width, column0, columns, first, count;
    uint64_t own_offset; /* among the own values of the fragment */
};

/* What the trainer's side remembers of a fragment beyond the shared memory. */
struct local {
    bool sent;               /* a snapshot is out and its anchor not taken in yet */
    bool last;               /* one was taken since we were asked to leave */
    uint64_t tokens_counted; /* of ours, in the anchor our tensors last took in */
    enum ipc_word moving;    /* COPYING or MIXING: begun, and not known to be done; FREE: neither */
    uint64_t mark;           /* of the device: then it is done */
    uint64_t brought;        /* rank 0: version of the anchor that far ranks were sent last, + 1; 0: none */
    uint64_t own_count;      /* values of the fragment that are our own */
    float *aside;            /* work of the contribution that is out; NULL unless the run sets it aside */
    float *past;             /* Eager: decayed sum of the outer gradients counted so far */
    double share;            /* Eager: of the mean, as it was when the contribution that is out was taken */
    float *carry;            /* what 16 bits could not hold; NULL if all its tensors are fp32 */
};

/* The daemon is to look at the word of a fragment. */
struct word_said {
    uint32_t type; /* enum ipc_type */
    uint32_t fragment;
};

struct diloco {
    struct diloco_options options;
    struct diloco_device device;  /* all NULL: tensors are host memory */
    struct diloco_group group;    /* count 0 or 1: no others */
    char name[ATTACH_NAME_BYTES]; /* this rank's, for people */
    char trainer[sizeof((struct ipc_hello *)0)->trainer];
    struct ipc_machine machine; /* of options.machine; zero: not said */
    float *scratch;             /* attach_group: memory that ranks share; NULL: none */
    uint64_t scratch_values;
    bool rank0_attached; /* of another rank: as rank 0 last said */
    bool rank0_keeps;    /* rank 0 has all values, so that what a checkpoint keeps is its alone */
    bool first_keeps; /* rank 0 is a gateway, and the trainer's first rank has all values; its broadcasts reach that one
                         alone while something is kept */
    bool speaks_to_none;      /* rank 0, while it keeps alone */
    struct attach_far *far;   /* NULL: every rank is near */
    struct attach_gate *gate; /* NULL: the daemon is reached through its socket */
    bool is_far;              /* this one: `shm` is a copy of its head and tables, without any area */
    uint64_t awake_ms;        /* when rank 0 last told the others that it lives */
    char error[IPC_TEXT_BYTES + 256];

    struct tensor *tensors; /* as registered; from diloco_begin() on by layer and name */
    uint32_t tensors_count, tensors_room;
    struct ipc_tensor *frozen; /* as registered; from diloco_begin() on by name */
    uint32_t frozen_count, frozen_room;
    bool *changed; /* by number: by the public call that is under way, or was the last one */
    bool any_changed;
    bool looked;           /* options.before_moves was called by the public call that is under way */
    uint64_t step, tokens; /* so far */
    uint64_t trained;      /* steps taken by this process: none that was left out to follow the run */
    uint64_t steps;        /* of the run, as it was when the last call returned */
    bool begun;
    bool done;                          /* all of them were taken, as the last step said */
    struct deal deal;                   /* as heard at the end of the last call */
    bool leave;                         /* it was asked to: each fragment is contributed once more */
    bool ending;                        /* diloco_ending(); */
    uint64_t ending_wait_ms, ending_ms; /* how long diloco_finish() may wait then, and until when; 0: not yet */
    bool kept;                          /* options.kept is there, and whole */

    int memfd; /* -1 before there is one, as shm is NULL */
    struct ipc_shm *shm;
    uint64_t session;
    struct local *local; /* by fragment */
    float *stretch;      /* for values on their way to a device that can only read and write; NULL until then */
    void *bad;           /* beside the tensors, one value: whether the work set aside holds NaN */
    void *pinned;        /* host memory that the device knows; NULL: none */

    /* The connection: attach_link alone writes these. */
    char *socket_path;
    int socket;         /* -1: none */
    bool welcomed;      /* it is through: words and messages of both sides agree */
    uint32_t announced; /* attaching again: how many of HELLO, tensors and REGISTERED are out */
    uint64_t reattach_ms;
    bool end_said; /* the daemon at hand has said that no newer anchor comes */
    struct ipc_end end;
    struct word_said *say; /* ring: what the daemon is to be told and was not yet */
    uint32_t say_room, say_head, say_count;
    bool *settled; /* by fragment: the daemon at hand was told that nothing more comes */
    uint32_t settled_count;
};

/* Copies a caller's struct, that begins with its size, to `to` of `known` bytes; false if it is none that this library
 * knows: shorter, or longer with an unknown member that is not zero. */
bool attach_take(void *to, size_t known, const void *from);
#define ATTACH_WRONG_SIZE "struct %s has no size that this library knows; begin it with .size = sizeof(struct ...)"

/* Records the text and returns the code. */
int attach_fail(struct diloco *d, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Before a value of a tensor is moved: the caller may know better where it is. */
ERR_MUST_CHECK int attach_before_moves(struct diloco *d);

/* Whether the caller wants an end of waiting. */
bool attach_interrupted(const struct diloco *d);

#endif
