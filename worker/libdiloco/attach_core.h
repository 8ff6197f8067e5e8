/*
 * attach_core: struct diloco, one attachment of a trainer: what the floors of libdiloco share. Private to them.
 *
 *     attach        the public calls, of diloco.h; which fragment moves when
 *     attach_keep   what a checkpoint keeps of all this
 *     attach_move   values, and the two moves of a fragment
 *     attach_link   the connection: what is said and heard
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

struct tensor {
    struct ipc_tensor announced;
    void *data;
    uint64_t count;
};

/* What the trainer's side remembers of a fragment beyond the shared memory. */
struct local {
    bool sent;               /* a snapshot is out and its anchor not taken in yet */
    bool last;               /* one was taken since we were asked to leave */
    uint64_t tokens_counted; /* of ours, in the anchor our tensors last took in */
    float *aside;            /* work of the contribution that is out; NULL unless the run sets it aside */
    float *past;             /* Eager: decayed sum of the outer gradients counted so far */
};

/* The daemon is to look at the word of a fragment. */
struct word_said {
    uint32_t type; /* enum ipc_type */
    uint32_t fragment;
};

struct diloco {
    struct diloco_options options;
    char error[IPC_TEXT_BYTES + 256];

    struct tensor *tensors; /* as registered */
    uint32_t tensors_count, tensors_room;
    uint64_t step, tokens; /* so far */
    bool begun;
    bool leave; /* it was asked to: each fragment is contributed once more */
    bool kept;  /* options.kept is there, and whole */

    int memfd; /* -1 before there is one, as shm is NULL */
    struct ipc_shm *shm;
    uint64_t session;
    struct local *local; /* by fragment */
    float *stretch;      /* for values on their way between tensors and what is set aside */

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

/* Records the text and returns the code. */
int attach_fail(struct diloco *d, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Whether the caller wants an end of waiting. */
bool attach_interrupted(const struct diloco *d);

#endif
