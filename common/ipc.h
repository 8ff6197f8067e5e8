/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc: the contract between the daemon and a trainer on the same machine.
 *
 * Two parts. Small fixed messages over a Unix SOCK_SEQPACKET socket carry events. One memfd, made by the daemon and
 * passed over that socket, carries the numbers: per fragment two areas of floats that swap roles, and one atomic
 * word that says who may touch them. Same machine, same binary interface: plain structs, checked by version and
 * size. The daemon still treats what the trainer writes as input and checks it.
 *
 * The word of a fragment says who owns the area that is not the base. Words are the truth, messages only wake:
 *
 *           ┌──────────────────daemon: refused, there is NaN in it──────────────────┐
 *           ▼                                                                       │
 *        IPC_FREE ──trainer: the step is due──▶ IPC_COPYING ──trainer: copied──▶ IPC_SNAPSHOT
 *        ▲  │   ▲                                                                   │
 *        │  │   └──daemon: was killed while writing──┐                              │ daemon: encoded and averaged
 *        │  └──daemon: a round closed without us──▶ IPC_FILLING ◀───────────────────┘
 *        │                                           │    ▲
 *        │                      daemon: anchor there │    │ daemon: took it back for a newer one
 *        │                                           ▼    │
 *        └──trainer: mixed, areas swapped── IPC_MIXING ◀── IPC_ANCHOR
 *                                                    trainer: the step is due
 *
 * SNAPSHOT and FILLING belong to the daemon, COPYING and MIXING to the trainer. FREE and ANCHOR go to whoever moves
 * them first. Only ipc_move() writes a word, and it knows no other moves than these.
 * A trainer that attaches again moves none from IPC_HELLO until IPC_WELCOME: the daemon sees to what it finds first.
 * The base area holds the anchor that the trainer's live tensors last took in.
 */
#ifndef COMMON_IPC_H
#define COMMON_IPC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/deal.h"
#include "common/err.h"

/* 1: first version. 2: the run's clock. 3: work set aside. 4: the run's end; work that a trainer kept. 5: trainers of
 * several processes. 6: what a trainer runs on. 7: tokens after a restart. 8: trainers without initial tensors. 9:
 * tensors that are not trained. 10: a length of the run that changes, a pause, and the dealing of data. 11: steps that
 * a trainer has taken. */
enum { IPC_VERSION = 12 };
enum {
    IPC_DEVICE_BYTES = 96,
    IPC_NAME_BYTES = 128,
    IPC_TYPE_BYTES = 16,
    IPC_DIMS_MAX = 6,
    IPC_TEXT_BYTES = 320,
    IPC_RANGES_MAX = 64,
    IPC_TENSORS_MAX = 65536,
    IPC_FRAGMENTS_MAX = 4096
};

/* Bytes: tables and areas begin on multiples of it. */
enum { IPC_ALIGN = 64 };

/* A new memfd is all zero: every fragment is FREE. */
enum ipc_word { IPC_FREE, IPC_COPYING, IPC_SNAPSHOT, IPC_FILLING, IPC_ANCHOR, IPC_MIXING, IPC_WORDS };
enum ipc_side { IPC_TRAINER, IPC_DAEMON, IPC_SIDES };

/* trainer: base, base_version, due_step, the counted tokens and, as SNAPSHOT, the contribution on its way are those of
 * its checkpoint. daemon: IPC_KEPT_NOTHING, if the base area holds the present anchor instead. */
enum ipc_kept {
    IPC_KEPT_NOTHING,
    IPC_KEPT_ALL,
    IPC_KEPT_BUT_SNAPSHOT, /* its values are gone, since an anchor was on its way back; it is only counted, or not */
};

/* How the trainer takes an anchor in, for a range of a fragment. */
enum ipc_mode {
    IPC_MIX,   /* our work is in the anchor: live = alpha * live + (1 - alpha) * anchor */
    IPC_SHIFT, /* our work is not in it yet: live += anchor - base */
    IPC_RESET, /* our work is void: live = anchor */
};

struct ipc_range {
    uint64_t begin, end; /* values within the fragment */
    uint32_t mode;       /* enum ipc_mode */
    uint32_t reserved;
};

struct ipc_fragment {
    _Alignas(IPC_ALIGN) _Atomic uint32_t word; /* enum ipc_word; see ipc_word() and ipc_move() */
    /* The rest is written by the word's owner alone. */
    uint32_t base; /* 0 or 1: the area that holds the base */
    uint64_t values_count;
    uint64_t area_offset[2];  /* bytes from the start of the memfd */
    uint64_t due_step;        /* snapshot when the trainer has finished this step; UINT64_MAX: never */
    uint64_t snapshot_step;   /* trainer: the step after which the snapshot was taken */
    uint64_t snapshot_tokens; /* trainer: all tokens this trainer process had trained by then */
    uint64_t mix_step;        /* take the anchor in after this step, or as soon after as it is there */
    uint64_t anchor_version;  /* version of the anchor in the non-base area */
    uint64_t base_version;    /* version of the base */
    double eager_share;       /* daemon: of the newest mean that is this island's, by weight */
    uint32_t snapshot_final;  /* trainer: non-zero if this is its last contribution before it stops */
    uint32_t ranges_count;
    uint32_t kept; /* enum ipc_kept, before IPC_GO */
    /* trainer: of its processes, those beside the one that attached that have done their part of COPYING or MIXING */
    _Atomic uint32_t ranks_done;
    struct ipc_range ranges[IPC_RANGES_MAX];
    /* daemon: per shard, tokens of this trainer process that are counted in the anchor; kept here so that it outlives
     * the daemon and a restarted one weighs contributions right. */
    uint64_t counted_tokens[IPC_RANGES_MAX];
};

/* Where a registered tensor lives. */
struct ipc_place {
    uint32_t fragment;
    uint32_t reserved;
    uint64_t offset, count; /* values within the fragment */
};

/* How data is dealt to this island (common/deal.h). ipc_deal_put() and ipc_deal_get() alone touch it. */
enum { IPC_DEAL_WORDS = sizeof(struct deal) / sizeof(uint64_t) };
struct ipc_deal {
    _Atomic uint64_t turn; /* odd while it is being written */
    _Atomic uint64_t words[IPC_DEAL_WORDS];
};

struct ipc_shm {
    uint64_t magic; /* IPC_MAGIC */
    uint32_t version;
    uint32_t fragments_count;
    uint32_t tensors_count;
    uint32_t late_wait; /* non-zero: stand still at mix_step until the anchor is there */
    uint64_t bytes;     /* of the whole memfd */
    uint64_t session;   /* random, of the memfd */
    uint64_t plan_tag;
    uint64_t overlap; /* steps from snapshot to mixing */
    double mix;       /* alpha */
    /* The overlap is a whole interval: see worker/libdiloco/aside.h. */
    uint32_t set_aside; /* non-zero: the work of a contribution leaves the live tensors at the snapshot */
    uint32_t reserved;
    double eager_fresh, eager_past, eager_decay; /* of struct aside_rule, for a share of 1; 0: not Eager */
    uint64_t fragments_offset, places_offset;
    _Atomic uint32_t leave;    /* daemon: contribute once more, at each fragment's next due step, and stop */
    uint64_t leave_step;       /* daemon, before that: by this step all have been due */
    uint64_t run_slack;        /* a trainer this many steps behind the run skips to it; IPC_LOCKSTEP: it never does */
    _Atomic uint64_t run_step; /* daemon: the step the furthest island was last heard at */
    _Atomic uint64_t steps;    /* daemon: of the run: the trainer is done after this one, or when it has taken more */
    _Atomic uint32_t paused;   /* daemon: non-zero: the run is paused: no step is taken until it is not */
    uint32_t reserved_too;
    struct ipc_deal deal; /* daemon */
};
#define IPC_LOCKSTEP UINT64_MAX
#define IPC_MAGIC 0x314d48534f4c4944u /* "DILOSHM1" */

enum ipc_type {
    /* trainer to daemon */
    IPC_HELLO,      /* hello; the memfd of the previous attachment comes along if there was one */
    IPC_TENSOR,     /* tensor, one each, by layer and name; then those that are not trained */
    IPC_REGISTERED, /* all tensors are announced */
    IPC_INITIAL,    /* the areas hold the trainer's initial tensors, or what it kept, as IPC_WELCOME asked for */
    IPC_TAKEN,      /* fragment: a snapshot was taken */
    IPC_MIXED,      /* fragment: the anchor was taken in, or was found to be FREE again */
    IPC_REPORT,     /* report, once a step; may be lost */
    IPC_SETTLED,    /* fragment, settled: nothing more will be contributed */
    IPC_FINISHED,   /* report: all contributions are in and all anchors taken up to this step: the trainer goes; no
                       restart is wanted, unless the run is longer than that by now */
    /* daemon to trainer */
    IPC_WELCOME, /* welcome, with the memfd */
    IPC_REFUSED, /* text */
    IPC_GO,      /* go: the base areas hold the anchors to start from, but for fragments that are kept */
    IPC_WAKE,    /* fragment: its word changed */
    IPC_LEAVE,   /* shm->leave was set */
    IPC_END,     /* end: all fragments are settled, and no newer anchor comes */
    IPC_TYPES
};

/* What a trainer runs on, for status alone; 0 or "": not said. See struct diloco_machine. */
struct ipc_machine {
    char device[IPC_DEVICE_BYTES];
    uint32_t ranks, tensor_parallel;
    uint64_t memory_bytes, memory_total_bytes; /* of each rank's device */
    double flops_per_token;
    double peak_flops; /* a second, of all ranks together */
};

struct ipc_hello {
    uint32_t version;
    uint32_t pid;
    uint64_t session;      /* of the memfd passed along; 0 if none */
    uint64_t step, tokens; /* so far, of this process, and of those before it whose work it kept */
    uint32_t kept;         /* non-zero: it has work of its own, from a checkpoint */
    /* non-zero: its tensors are not what a run could begin from, so IPC_WELCOME waits until somebody has a state */
    uint32_t without_initial;
    char trainer[64];
    struct ipc_machine machine;
};

struct ipc_tensor {
    char name[IPC_NAME_BYTES];
    uint32_t dims;
    int32_t layer; /* -1: not part of a layer */
    uint64_t shape[IPC_DIMS_MAX];
    /* Not trained, and in no fragment: what the others are trained upon, as the model below a LoRA. */
    uint32_t frozen;
    char type[IPC_TYPE_BYTES]; /* of a frozen one, as "bfloat16" */
    uint64_t sum;              /* of its values: other values, another sum; 0: not known */
};

struct ipc_welcome {
    uint64_t session, bytes;
    uint32_t need_initial;
    uint32_t island_index, islands_count;
    uint32_t resumed;   /* non-zero: your memfd was taken over; go on, no IPC_GO follows */
    uint32_t need_kept; /* non-zero: put what you kept into the memory */
    uint32_t reserved;
    char island[64];
};

struct ipc_go {
    uint64_t step;                   /* run step to start after: the first step taken is step + 1 */
    uint64_t version;                /* highest version among the fragments, for people */
    uint64_t tokens, tokens_counted; /* of all trainers of this island, in this run */
};

struct ipc_report {
    uint64_t step, tokens;
    uint64_t trained; /* steps taken since its process began: none that it left out to follow the run */
    double loss, tokens_per_s, lr, grad_norm;
};

struct ipc_settled {
    uint32_t ends; /* non-zero: before the run's last step, since it is to end: its island may contribute again */
};

struct ipc_end {
    uint32_t over; /* non-zero: all islands have contributed all; else somebody may still change the anchors */
    char why[IPC_TEXT_BYTES - sizeof(uint32_t)]; /* who */
};

struct ipc_message {
    uint32_t type; /* enum ipc_type */
    uint32_t fragment;
    union {
        struct ipc_hello hello;
        struct ipc_tensor tensor;
        struct ipc_welcome welcome;
        struct ipc_go go;
        struct ipc_report report;
        struct ipc_settled settled;
        struct ipc_end end;
        char text[IPC_TEXT_BYTES];
    };
};

const char *ipc_type_name(uint32_t type);
const char *ipc_word_name(uint32_t word);

/* The word as it is now. What its owner wrote before moving it here can be read after this. */
uint32_t ipc_word(const struct ipc_fragment *fragment);

/* Moves the word. False if it is not `from` (the other side moved it first), or if `side` has no such move; then
 * nothing has changed. False where `side` owns `from` means that somebody else wrote into the memory. */
ERR_MUST_CHECK bool ipc_move(struct ipc_fragment *fragment, enum ipc_side side, enum ipc_word from, enum ipc_word to);

/* Fills a Unix socket address; ERR_CONF if the path is too long for one (about 107 bytes). */
struct sockaddr_un;
ERR_MUST_CHECK enum err ipc_address(const char *path, struct sockaddr_un *address);

/* Listens on a Unix socket of `type` (SOCK_STREAM or SOCK_SEQPACKET), non-blocking; a socket file that a killed daemon
 * left is replaced. ERR_CONF: another daemon listens there, or the folder cannot be written. */
ERR_MUST_CHECK enum err ipc_listen(const char *path, int type, int *fd);

/* Sends one message; `fd` < 0 means none goes along. ERR_AGAIN if a non-blocking socket is full, ERR_CLOSED if the
 * other side is gone. */
ERR_MUST_CHECK enum err ipc_send(int socket, const struct ipc_message *message, int fd);

/* Receives one message without blocking beyond the socket's own mode. `*fd` is the descriptor that came along, or
 * -1; the caller closes it. ERR_AGAIN: none there. ERR_CLOSED: the other side is gone. ERR_PROTO: not a message. */
ERR_MUST_CHECK enum err ipc_recv(int socket, struct ipc_message *message, int *fd);

/* Checks that a mapped memfd of `bytes` bytes is what its header says, with every area inside it and aligned, and
 * every word one of ours. */
ERR_MUST_CHECK enum err ipc_shm_check(const struct ipc_shm *shm, uint64_t bytes);

/* The daemon's; of one thread. */
void ipc_deal_put(struct ipc_shm *shm, const struct deal *deal);
/* The trainer's: as the daemon last put it, whole. One that it was killed in, or that makes no sense, leaves `*deal` as
 * it is. */
void ipc_deal_get(const struct ipc_shm *shm, struct deal *deal);

struct ipc_fragment *ipc_fragment(struct ipc_shm *shm, uint32_t index);
struct ipc_place *ipc_places(struct ipc_shm *shm);
/* The base area, or the other one. */
float *ipc_base(struct ipc_shm *shm, const struct ipc_fragment *fragment);
float *ipc_area(struct ipc_shm *shm, const struct ipc_fragment *fragment);

#endif
