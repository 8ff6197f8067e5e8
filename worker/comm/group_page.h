/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_page: the memory that the ranks of an island and their launcher share (a memfd).
 *
 * It holds who the ranks are, what each is in, words by which they wait for each other, the first failure, and for each
 * rank an area through which its arrays go. The launcher makes it before it forks; every process maps it for itself and
 * owns its mapping. What is fixed is checked when it is opened and once for every collective operation, and used from a
 * copy of its own; all else may be written by a rank gone wrong at any time, and whoever reads it takes any value.
 *
 * Cancelling is for ever: the first failure's text stays, all who wait are woken, and no collective begins any more.
 * group_cancel() may be called by any thread and in a signal handler, the rest by any thread.
 */
#ifndef WORKER_COMM_GROUP_PAGE_H
#define WORKER_COMM_GROUP_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum {
    GROUP_VERSION = 2,
    GROUP_RANKS_MAX = 64,
    GROUP_SLOTS = 16, /* communicators that one rank is ever in: all of them, and those it was split into */
    GROUP_NAME_BYTES = 24,
    GROUP_WHY_BYTES = 320,
    GROUP_STAGE_MIN = 4096,     /* bytes */
    GROUP_STAGE_USUAL = 4 << 20 /* bytes: two halves stay in a cache */
};
#define GROUP_MAGIC 0x3150554f52474c44u /* "DLGROUP1" */

/* What a rank is in. */
enum group_op {
    GROUP_IDLE,
    GROUP_ALL_REDUCE,
    GROUP_REDUCE_SCATTER,
    GROUP_ALL_GATHER,
    GROUP_BROADCAST,
    GROUP_BARRIER,
    GROUP_HOST_BROADCAST,
    GROUP_SPLIT,
    GROUP_CONNECT, /* NCCL finds the other ranks */
    GROUP_OPS,
    GROUP_OP_BITS = 4
};

/* Of one rank in one communicator. */
struct group_slot {
    _Atomic uint32_t came;    /* how often it has come to a point where all wait for all; a futex */
    _Atomic uint32_t call[2]; /* which call it has come with, by the parity of `came` */
    /* Where collectives are queued (NCCL): the last one that its host has called, that its device has begun, and that
     * is done there; number << GROUP_OP_BITS | enum group_op. Begun and done are equal when none is under way. */
    _Atomic uint32_t called, begun, done;
};

struct group_rank {
    _Alignas(64) _Atomic uint32_t op; /* enum group_op */
    _Atomic uint32_t beat;            /* changes with every step it makes in there */
    _Atomic uint32_t waits;           /* for others, and sees by itself when it is in vain */
    _Atomic uint32_t left;            /* launcher: its process has ended */
    _Atomic uint32_t slots;           /* how many of `slot` it has used */
    _Atomic int32_t color, key;       /* of the split it is in */
    struct group_slot slot[GROUP_SLOTS];
};

/* Written before the first rank begins. */
struct group_fixed {
    uint64_t magic; /* GROUP_MAGIC */
    uint32_t version, ranks;
    uint64_t bytes;                                 /* of the whole memfd */
    uint64_t nonce;                                 /* random */
    uint64_t stage_offset, stage_bytes;             /* where the areas begin; of one rank's */
    char device[GROUP_RANKS_MAX][GROUP_NAME_BYTES]; /* for people: "cuda:2" */
};

struct group_shared {
    struct group_fixed fixed;
    uint64_t check;                          /* over `fixed` */
    _Alignas(64) _Atomic uint32_t cancelled; /* 0: no; 1: the text is being written; 2: it is there */
    _Atomic uint32_t code;                   /* enum err, of the first failure */
    char why[GROUP_WHY_BYTES];
    struct group_rank rank[GROUP_RANKS_MAX];
};

struct group_page {
    struct group_shared *shared;
    struct group_fixed fixed; /* as it was when it was opened */
    int fd;
};

/* What a rank is born with; its launcher's. */
struct group_seat {
    struct group_page *page;
    int rank;
    int socket[GROUP_RANKS_MAX]; /* SOCK_SEQPACKET, to the rank of that number; -1: none. Rank 0 has one to each. */
};

/* device[ranks]: names, cut to GROUP_NAME_BYTES. `stage_bytes` 0: the usual; it is rounded up. */
ERR_MUST_CHECK enum err group_page_new(int ranks, const char *const *device, size_t stage_bytes,
                                       struct group_page *out);
/* Maps a page; `fd` stays the caller's. ERR_CORRUPT says what is wrong with it. */
ERR_MUST_CHECK enum err group_page_open(int fd, struct group_page *out);
/* One of zeros is fine, and is one again. */
void group_page_free(struct group_page *page);
/* Whether what is fixed still is what it was; ERR_CORRUPT. */
ERR_MUST_CHECK enum err group_page_check(const struct group_page *page);

char *group_stage(const struct group_page *page, int rank);
struct group_rank *group_rank(const struct group_page *page, int rank);
const char *group_device(const struct group_page *page, int rank);
/* "all_reduce"; of an unknown one "?". */
const char *group_op_name(uint32_t op);
/* What a rank is in: its host, or else its device. */
enum group_op group_in(const struct group_page *page, int rank);

/* Records the first failure and wakes all. `text` goes into the page as it is, cut to fit. */
void group_cancel(const struct group_page *page, enum err code, const char *text);
bool group_cancelled(const struct group_page *page);
/* The first failure, into `text`; any bytes in the page become one line. Its code: never ERR_OK. */
enum err group_why(const struct group_page *page, char *text, size_t text_bytes);
/* The first failure as this thread's: ERR_CLOSED. */
enum err group_closed(const struct group_page *page);
/* Returns `err`, which `rank` has met in `op`: if it is not ERR_OK, and the first failure, all are told. */
enum err group_fail(const struct group_page *page, int rank, enum group_op op, enum err err);

/* Sleeps while `*word` is `seen`, at most `seconds`; may return early. */
void group_sleep(_Atomic uint32_t *word, uint32_t seen, double seconds);
void group_wake(_Atomic uint32_t *word);

#endif
