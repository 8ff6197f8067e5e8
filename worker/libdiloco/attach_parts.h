/*
 * attach_parts: what the files of libdiloco share. attach.c: the public calls; attach_move.c: values, the two moves of
 * a fragment; attach_link.c: the connection to the daemon. Private to them.
 *
 * While training goes on nothing here waits for the daemon: what cannot be sent is kept in order, and attaching again
 * goes on a little with every step.
 */
#ifndef WORKER_ATTACH_PARTS_H
#define WORKER_ATTACH_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ipc.h"
#include "worker/libdiloco/aside.h"
#include "worker/libdiloco/diloco.h"

enum { ATTACH_POLL_MS = 200 };

struct tensor {
    struct ipc_tensor announced;
    void *data;
    uint64_t count;
};

/* What the trainer's side remembers of a fragment beyond the shared memory. */
struct local {
    bool sent;               /* a snapshot is out and its anchor not taken in yet */
    bool settled;            /* the daemon knows that nothing more comes */
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
    char *socket_path;
    int socket;
    int memfd;
    struct ipc_shm *shm;
    uint64_t session;
    struct tensor *tensors;
    uint32_t tensors_count, tensors_room;
    struct local *local;
    float *stretch; /* for values on their way between tensors and what is set aside */
    uint64_t step, tokens;
    uint64_t reattach_ms;
    bool begun, stop;
    bool welcomed;         /* the connection is through: words and messages of both sides agree */
    uint32_t announced;    /* attaching again: how many of HELLO, tensors and REGISTERED are out */
    struct word_said *say; /* ring: what the daemon is to be told and was not yet */
    uint32_t say_room, say_head, say_count;
    char error[IPC_TEXT_BYTES + 256];
};

/* Records the text and returns the code. */
int attach_fail(struct diloco *d, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool attach_interrupted(const struct diloco *d);

/* ---- attach_move.c ---- */
/* Between live tensors and a fragment's values. */
void attach_copy_out(struct diloco *d, uint32_t f, float *area);
void attach_copy_in(struct diloco *d, uint32_t f, const float *area);
/* Memory for work set aside, if the run does that: 4 bytes per parameter, 8 with Eager. */
ERR_MUST_CHECK enum err attach_make_aside(struct diloco *d);
void attach_free_aside(struct diloco *d);
/* FREE -> SNAPSHOT; nothing happens if the daemon took the fragment just now to bring an anchor. DILOCO_ERROR:
 * somebody else wrote its word meanwhile. */
ERR_MUST_CHECK int attach_snapshot(struct diloco *d, uint32_t f, bool final);
/* ANCHOR -> FREE; nothing happens if the daemon took the anchor back just now. `ending`: nothing was trained since the
 * snapshot and nothing will be, so the anchor replaces what it already contains. DILOCO_ERROR as above. */
ERR_MUST_CHECK int attach_take_in(struct diloco *d, uint32_t f, bool ending);
/* A snapshot that the daemon refused (a NaN in it), or lost, comes back as FREE without an anchor. True if that
 * happened; what was set aside for it is back then, unless it held NaN. */
bool attach_released(struct diloco *d, uint32_t f);

/* ---- attach_link.c ---- */
bool attach_connect(struct diloco *d);
void attach_disconnect(struct diloco *d);
/* Waits for input or for one slice of time. */
void attach_wait(const struct diloco *d);

/* The first time: HELLO, every tensor, REGISTERED, then the daemon's WELCOME. Waits. */
int attach_announce(struct diloco *d, struct ipc_message *message, int *fd);
/* Sends, waiting for room; false if the daemon is gone. */
bool attach_send(struct diloco *d, const struct ipc_message *message, int fd);
/* Waits for one type of message; REFUSED ends the wait, others are passed over. */
int attach_await(struct diloco *d, enum ipc_type type, struct ipc_message *message, int *fd);

/* Tells the daemon to look at a fragment, now or as soon as there is room; never waits. */
void attach_say(struct diloco *d, enum ipc_type type, uint32_t fragment);
/* Takes in what has arrived, sends what waits, goes on with attaching again; never waits. Only a refusal is an error.
 */
int attach_turn(struct diloco *d);
/* False while a connection is being made anew: the daemon reads the words then, so they must not change. */
bool attach_words_free(const struct diloco *d);

#endif
