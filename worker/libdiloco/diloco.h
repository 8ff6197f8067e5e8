/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diloco: the public interface of libdiloco, by which any trainer takes part in a run.
 *
 *     struct diloco *d;
 *     diloco_attach(&(struct diloco_options){.size = sizeof(struct diloco_options), .socket_path = path}, &d);
 *     for each parameter tensor: diloco_register(d, &tensor);
 *     diloco_begin(d, &start);                   // tensors now hold the run's anchor; continue after start.step
 *     while (training) {
 *         ... one optimizer step ...
 *         if (diloco_step(d, &report) == DILOCO_STOP) break;   // the one call per optimizer step
 *     }
 *     diloco_finish(d);                          // last contributions in, last anchors out, at the run's end
 *     diloco_detach(d);
 *
 * Every struct that a caller fills begins with its own size (`.size = sizeof(struct ...)`), so that a library with more
 * members than the caller was compiled with knows which are there.
 *
 * diloco_step() copies fragments that are due out of the tensors and mixes anchors that are due into them; it costs
 * nothing when neither is. It does not wait for the network unless the run spec says late = wait, and for a device that
 * queues what it is told only at the end and in diloco_keep(). If the daemon goes away, training goes on and the
 * library attaches again by itself when it is back.
 *
 * One struct diloco per process and thread: calls are not thread-safe against each other. No function exits, prints or
 * installs a signal handler. Failures return a negative value; diloco_error() says what happened and what to do. A NULL
 * where something is needed is a failure like any other.
 *
 * Owns: a trainer's end of the contract with its daemon.
 * Called by: worker; any trainer.
 * Never includes: daemon/, net/, outer_opt/, kernels/, worker/model/, worker/comm/, <zmq.h>, <pthread.h>.
 */
#ifndef DILOCO_H
#define DILOCO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DILOCO_API __attribute__((visibility("default")))

enum diloco_result {
    DILOCO_OK = 0,
    DILOCO_STOP = 1,         /* the run's steps are done, or all that leaving wants: call diloco_finish() and end */
    DILOCO_INTERRUPTED = 2,  /* options.interrupted returned non-zero while waiting */
    DILOCO_OPEN = 3,         /* diloco_finish(): not the run's end, other islands may still change the parameters */
    DILOCO_ERROR = -1,       /* something failed on this side (memory, arguments) */
    DILOCO_REFUSED = -2,     /* the daemon refused us; diloco_error() has its reason */
    DILOCO_UNREACHABLE = -3, /* no daemon at the socket, or none that this user may reach (diloco_attach only) */
};

/* The type of a tensor's values. They are exchanged as fp32: reading widens them, writing rounds to the nearest, and
 * the library keeps the rounding's remainder (4 bytes a value), which goes out with the next contribution, so that an
 * island that trains in 16 bits does not pull the others towards its own grid. A trainer with fp32 masters of a 16-bit
 * model registers these, and copies them when diloco_changed() says so. */
enum diloco_type { DILOCO_F32, DILOCO_BF16, DILOCO_F16 };

/* An operation on values of one tensor: rows * columns of them from value `first` on, closely packed; in host memory
 * the rows begin `stride` values apart. Names in brackets here, as [aside], are arrays from alloc(), packed as the
 * tensor is, from their value `beside` on. A value that is not finite is treated like any other.
 *
 * Of 16 bits, `tensor` below is the wider value tensor + [carry], fp32; assigned to, it is rounded to the nearest, and
 * [carry] = what rounding cut off (0 where the value, or that, is not finite). */
enum diloco_move_kind {
    DILOCO_READ,  /* host = tensor */
    DILOCO_WRITE, /* tensor = host */
    /* The rest is asked for of a device that has alloc(). Of one that has none [carry] is NULL, and what it is to write
     * to 16 bits are values that these can hold. */
    DILOCO_MIX,   /* tensor = keep * tensor + (1 - keep) * host; keep > 0 */
    DILOCO_SHIFT, /* tensor += host - base */
    /* Where the run's overlap is a whole interval, see worker/libdiloco/aside.h; [past] is NULL unless Eager. */
    DILOCO_ASIDE_OUT,     /* aside_out(): tensor and [aside], from base */
    DILOCO_ASIDE_COUNTED, /* aside_in(), counted: tensor and [past], from base and the anchor in host */
    DILOCO_ASIDE_MISSED,  /* aside_in(), not counted */
    DILOCO_ASIDE_LOOK,    /* [bad](1) = 1 if [aside] holds a value that is not finite; an int32_t */
    DILOCO_ASIDE_OFF,     /* aside_off(): with the work set aside restored unless [bad] is not 0 */
};

struct diloco_move {
    size_t size;
    enum diloco_move_kind kind;
    enum diloco_type type; /* of the tensor's values */
    void *tensor;          /* as in diloco_tensor.data, or from alloc() */
    uint64_t first, beside;
    float *host;       /* READ alone writes here */
    const float *base; /* host memory too */
    size_t rows, columns, stride;
    void *aside, *past, *bad, *carry;      /* from alloc(); carry is NULL for fp32 */
    double keep, fresh, past_share, decay; /* struct aside_rule */
};

/* A device that tensors live on. Its functions are called from diloco_begin/step/keep/finish/detach only. */
struct diloco_device {
    size_t size;
    void *user;
    /* Does it, or queues it: behind all that was queued to change the tensor before, ahead of all that will be. Host
     * memory stays what it is until reached() says that the move is done. 0, or -1 if it failed. */
    int (*move)(void *user, const struct diloco_move *move);
    /* A number, never 0, for all moves so far; and whether they are done: 1, 0 or -1 if one has failed; never waits.
     * Both NULL: moves are done when move() returns. */
    uint64_t (*mark)(void *user);
    int (*reached)(void *user, uint64_t mark);
    /* Memory on the device: `values` times 4 bytes, zeroed; NULL if there is none. Both NULL: the device can only READ
     * and WRITE; the library computes on the host and waits for each move. */
    void *(*alloc)(void *user, size_t values);
    void (*free)(void *user, void *memory);
    /* The host memory that moves will name; may be NULL. */
    void (*pin)(void *user, void *memory, size_t bytes);
    void (*unpin)(void *user, void *memory);
};

/* What a checkpoint keeps of a tensor, or of the part of it that a process has: fp32, as many and as packed as that is.
 */
enum diloco_kept {
    DILOCO_KEPT_ANCHOR, /* as it took it in last */
    DILOCO_KEPT_SENT,   /* the contribution that is on its way; 0 where none is */
    DILOCO_KEPT_ASIDE,  /* work set aside, where the run's overlap is a whole interval */
    DILOCO_KEPT_PAST,   /* Eager's sum of earlier rounds */
    DILOCO_KEPT_CARRY,  /* what 16 bits could not hold */
    DILOCO_KEPT_KINDS
};

enum { DILOCO_TAGS = 32768 }; /* of a group's messages: as many as MPI promises */

/* Several processes that hold the tensors in parts, and are one trainer to the daemon. Each has a handle of its own and
 * makes the same calls in the same order; results are the same for all. The socket, and what kept, wait and interrupt
 * mean, are rank 0's, which runs where the daemon does; reports count as rank 0 gives them.
 *
 * A rank that broadcast() gives a descriptor, and that can map it, is near: it moves its values to and from the
 * daemon's memory itself. All others are far, on other machines or in containers of their own: a near rank serves each
 * of them, over send() and receive(), while training goes on. A far rank takes 8 bytes of memory a value of its parts.
 */
struct diloco_group {
    size_t size;
    int rank, count;  /* this process, from 0; how many there are */
    const char *name; /* what people call this one, as "rank 3 on node2"; copied; NULL: by its number */
    void *user;
    /* bytes(count) of rank 0 to all others. `*fd`, a descriptor or -1, goes along to those on its machine, who get one
     * of their own; the others get -1. */
    int (*broadcast)(void *user, void *bytes, size_t count, int *fd);
    int (*barrier)(void *user);
    /* Both 0, or -1 if a rank is gone: the call fails then, and the group is at an end. */

    /* For far ranks; all NULL: all are near. Tags are less than DILOCO_TAGS. Begins to bring bytes(count) to or from
     * another rank, and returns at once: a number for arrived(), not 0, or 0 if the rank is gone. Messages of one tag
     * between two ranks arrive in the order they were sent. The bytes stay where they are, and as they are, until they
     * have arrived. What is under way goes on while the model's own messages do, and stands in the way of none of them.
     */
    uint64_t (*send)(void *user, int rank, uint32_t tag, const void *bytes, size_t count);
    uint64_t (*receive)(void *user, int rank, uint32_t tag, void *bytes, size_t count);
    /* Whether they have: 1, or 0; with `wait` not before they have. -1: they will not. A number is asked for until
     * that, and not again. */
    int (*arrived)(void *user, uint64_t number, int wait);
};

/* What a trainer runs on, for `dilococtl status` alone. 0 or NULL: not said; what follows from it is left out. */
struct diloco_machine {
    size_t size;
    const char *device;  /* name of a rank's device, as "NVIDIA H100 80GB HBM3"; of ASCII, cut off after 95 bytes */
    int ranks;           /* processes that train together; 0: as many as options.group has, or 1 */
    int tensor_parallel; /* of these, how many share each layer; `ranks` is a multiple of it */
    uint64_t memory_bytes, memory_total_bytes; /* that training takes of a rank's device; that the device has */
    /* Floating-point operations of the model for a token, forward and backward, none counted twice where it is computed
     * twice. Times the reported tokens_per_s it is the rate that is shown. */
    double flops_per_token;
    double peak_flops; /* a second, that the devices of all ranks together can do at best, in the type of products */
};

struct diloco_options {
    size_t size;
    const char *socket_path;        /* or tcp://HOST:PORT, see below; NULL: the environment variable DILOCO_SOCKET */
    const char *trainer;            /* a name for logs; copied; may be NULL */
    int wait_ms;                    /* how long diloco_attach() waits for a daemon to appear */
    int (*interrupted)(void *user); /* polled while waiting; may be NULL */
    void *interrupted_user;
    const struct diloco_device *device; /* copied; NULL: tensors are plain host memory */
    /* What diloco_keep() or diloco_keep_rest() gave for the checkpoint that the tensors were read from; NULL: none.
     * Then they are not replaced by the run's anchor but moved as it has moved since, and what they have learned and no
     * result has counted goes out with the next contribution. Borrowed until diloco_begin() has returned. */
    const void *kept;
    size_t kept_bytes;
    const struct diloco_group *group;     /* copied; NULL: this process alone */
    const struct diloco_machine *machine; /* copied, with the name in it; NULL: not said */
    /* Not 0: the tensors hold nothing that a run could begin from, as the model that this one begins from is not on
     * this machine. diloco_begin() then waits until another island, or this one's daemon, has a state. */
    int without_initial;
    /* Called in every rank, at most once in a public call, before that call moves the first value; NULL: the tensors
     * lie where they were registered. Who cannot be sure of that looks here, and says by diloco_place() where they are
     * now. 0, or -1: the call then fails with DILOCO_ERROR, and no value has been moved. */
    int (*before_moves)(void *user);
    void *before_moves_user;
    /* With what diloco_keep_rest() gave: called in every rank from diloco_begin(), for values(count) as
     * diloco_keep_values() gave them of the same tensor, or of the part of it that this process has now. 0, or -1: they
     * are not to be had, and diloco_begin() fails. */
    int (*kept_values)(void *user, int tensor, enum diloco_kept kind, float *values, uint64_t count);
    void *kept_values_user;
};

enum { DILOCO_LAYER_NONE = -1, DILOCO_LAYER_FROM_NAME = -2 };

/* Which of a tensor's values a process has. The tensor is a matrix of shape[0] rows, of as many columns as its other
 * dimensions make (of one dimension: of one row). Of the columns from column0 on, closely packed, it has `count` values
 * from `first`. The parts of all ranks together are the tensor; none has a value that another one has. */
struct diloco_part {
    uint64_t column0, columns, first, count;
};

struct diloco_tensor {
    size_t size;
    const char *name; /* at most 127 bytes, unique */
    /* Its values, contiguous, stay where they are until detach. In host memory they begin at data[first]; with
     * options.device the library passes `data` on to it, and never looks at where it points to. */
    void *data;
    uint64_t first;
    enum diloco_type type;
    uint32_t dims; /* at most 6; 1 is taken for a norm or bias, unless it is longer than 65536, and sent as bf16 */
    uint64_t shape[6];
    int32_t layer; /* number of the layer it belongs to, from 0; NONE; or FROM_NAME: the first number between dots */
    struct diloco_part part; /* what of it is in `data`; columns 0: all */
};

/* A tensor that is not trained, and that those that are build upon: of the model below a LoRA each. */
struct diloco_frozen {
    size_t size;
    const char *name; /* at most 127 bytes, unique among all */
    const char *type; /* of its values, as "bfloat16"; at most 15 bytes */
    uint32_t dims;    /* at most 6 */
    uint64_t shape[6];
    uint64_t sum; /* of its values, by any function that all islands share: others have another sum. 0: not known */
};

struct diloco_start {
    size_t size;      /* the caller's, before the call */
    uint64_t step;    /* the run step to continue after: the first step to take is step + 1 */
    uint64_t steps;   /* of the whole run, as it is now: diloco_run_steps() */
    uint64_t version; /* highest version among the fragments */
    uint64_t tokens;  /* that trainers of this island have trained in this run, in all their lives, for which a */
    uint64_t tokens_counted; /* data position may stand; those of them that results have counted */
    uint32_t island_index;   /* 0 .. islands_count - 1, as they are now: islands that come or go later change both, */
    uint32_t islands_count;  /* so that parts of data that go by them may overlap */
    char island[64];
};

struct diloco_report {
    size_t size;
    uint64_t tokens;     /* trained in this step; contributions are weighted by their sum */
    double loss;         /* for status and logs, as the rest; 0: not said; NaN and Inf are complained of */
    double tokens_per_s; /* by all the time that goes by, that in diloco_step() too */
    double lr, grad_norm;
};

struct diloco;

/* Of this library, as "0.2.0". */
DILOCO_API const char *diloco_version(void);

/* Where options.socket_path is a diloco-gateway's address, the daemon's machine needs no rank: the gateway is rank 0
 * beside it, and all ranks, or a process alone, are far (struct diloco_group). The environment's DILOCO_SITE_KEY names
 * the file with the site's key. Of options.group broadcast() alone is used, to begin with.
 *
 * Connects to the island's daemon, as root, as the user that it runs as, or as one of the group that [worker] group
 * names in its configuration. On failure `*out` is NULL except for DILOCO_ERROR after memory was there. */
DILOCO_API int diloco_attach(const struct diloco_options *options, struct diloco **out);

/* Announces a tensor. Every island registers tensors of the same names, layers and shapes, in any order. A name twice,
 * or values that belong to another tensor already, are refused (DILOCO_ERROR): register tied parameters once. After a
 * refusal the others are registered as before. */
DILOCO_API int diloco_register(struct diloco *d, const struct diloco_tensor *tensor);

/* Announces a frozen tensor, before diloco_begin(). All islands of a run build upon the same: one whose frozen tensors
 * differ is refused there by the name of the first, unless its [worker] allow_other_base lets it. Of a group rank 0's
 * count. None announced: nothing is compared, and another island that announces some is refused. */
DILOCO_API int diloco_register_frozen(struct diloco *d, const struct diloco_frozen *frozen);

/* From now on the values of a tensor, by its number in the order of registration, are at `data`: as many, of the same
 * type and the same part, and none that belongs to another tensor. For options.before_moves, and between other calls.
 */
DILOCO_API int diloco_place(struct diloco *d, int tensor, void *data);

/* Ends registration and waits until the daemon says where to start; the tensors then hold the anchor (at the very
 * beginning of a run that this island founds: their own initial values, or those of the other founders if they differ;
 * with options.kept: the anchor and the work since that is not counted in it). Of a checkpoint that results have
 * counted beyond, after a crash, nothing is kept: counted twice would be worse. */
DILOCO_API int diloco_begin(struct diloco *d, struct diloco_start *start);

/* The one call per optimizer step. It stands still while the run is paused, as diloco_begin() does. DILOCO_STOP after
 * the run's last; one that was begun when that was over already, as by a trainer that started late (start.step ==
 * start.steps), is not counted. */
DILOCO_API int diloco_step(struct diloco *d, const struct diloco_report *report);

/* ---- data that all islands share ----
 *
 * The windows of a corpus (samples, sequences: whatever a step draws) are dealt by the run, so that no two islands draw
 * the same one in a pass, whoever comes or goes. For each run step an island draws as many as its batch has: by number,
 * below its corpus' length, the same on all islands; diloco_step() and diloco_begin() hear what is dealt from then
 * on. Draw when the window is needed, or ahead, as a data loader does: what was drawn stays right. An island that is
 * far ahead of the others, or has just come, draws from a part that is its own, of this pass and then of those to come;
 * it may see a window of that again, and no other does.
 */
struct diloco_unit {
    size_t size;       /* the caller's, before the call */
    int dealt;         /* 0: it is of the part that is this island's own */
    uint32_t island;   /* id of this island */
    uint64_t position; /* in the order that all share; of its own: about where the others are */
    uint64_t turn;     /* which of its own */
    uint64_t since;    /* of its own: turns since it began to draw of them */
};
/* Whether data is dealt at all: 0 where `[worker] stream` says that this island's is its own, or not heard of yet. */
DILOCO_API int diloco_deals(const struct diloco *d);
/* What this island draws as number `unit` of `units` for a run step; the same again for the same step, unless it was
 * not dealt before. DILOCO_ERROR: nothing is dealt. */
DILOCO_API int diloco_draw(struct diloco *d, uint64_t step, uint32_t unit, uint32_t units, struct diloco_unit *out);
/* What this island knows of the dealing, as the last call returned: plain memory, for processes that load data beside
 * the trainer. What they draw by an older one stays right. */
enum { DILOCO_DEALING_WORDS = 84 };
struct diloco_dealing {
    size_t size; /* the caller's, before the call */
    uint64_t words[DILOCO_DEALING_WORDS];
};
DILOCO_API int diloco_dealing(const struct diloco *d, struct diloco_dealing *out);
/* diloco_draw() by that; it needs no handle. */
DILOCO_API int diloco_draw_by(const struct diloco_dealing *dealing, uint64_t step, uint32_t unit, uint32_t units,
                              struct diloco_unit *out);
/* Which window of a corpus of `windows` that is, in which pass, from 0. Each pass has an order of its own, by `seed`,
 * which has to be the same on all islands. */
DILOCO_API int diloco_window(const struct diloco_unit *unit, uint64_t windows, uint64_t seed, uint64_t *pass,
                             uint64_t *window);

/* The run step after the last diloco_step(): one more than before, or more where this island is slower than others and
 * the run spec says pace = run. Learning rates go by it. */
DILOCO_API uint64_t diloco_run_step(const struct diloco *d);

/* The run's length in steps, as it was when the last call returned. The run spec says how long a run is at first, and
 * an operator may change that; learning rates that fall to the run's end go by this, after every step. */
DILOCO_API uint64_t diloco_run_steps(const struct diloco *d);

/* A seed for what must not be the same everywhere, as the order of data, dropout and noise: made of `base` and of this
 * start, so that it is another one on each island and after each restart. Below 2^31; all ranks of a group get the
 * same. Islands that seed their generators alike draw the same batches, and learn nothing from each other. 0 before
 * diloco_begin(). */
DILOCO_API uint64_t diloco_seed(const struct diloco *d, uint64_t base);

/* Whether the last diloco_begin(), diloco_step() or diloco_finish() has changed values of a tensor, by its number in
 * the order of registration, or of any (DILOCO_ANY): then who holds copies of them (the other half of fp32 masters, an
 * average, a captured graph's) makes these anew. All ranks of a group hear the same, whoever has the values. On a
 * device that queues moves the change is queued. */
enum { DILOCO_ANY = -1 };
DILOCO_API int diloco_changed(const struct diloco *d, int tensor);

/* values(count) = the anchor's values of a tensor, or of the part of it that this process has: fp32, closely packed, as
 * diloco_begin(), diloco_step() or diloco_finish() took them in last. They are what all islands share, whatever this
 * one has trained since; fragments may be at different versions. `tensor` is the number of its registration, `count`
 * how many values it, or its part, has. Between steps; the ranks of a group are not to go on before all have read. */
DILOCO_API int diloco_anchor(struct diloco *d, int tensor, float *values, uint64_t count);

/* What a checkpoint should keep beside the tensors and the optimizer, to be given to the next process as options.kept:
 * about 4 bytes per parameter, or 8 while a contribution is on its way (twice that where the overlap is a whole
 * interval), and 4 more for those of 16 bits. Call it between steps, with the tensors as they are saved. Both return
 * how many bytes: at most, 0 before diloco_begin(); and written, 0 if that failed. Of a group as many ranks call
 * diloco_keep() as diloco_keep_ranks() says: all, of whom rank 0 gets it all and the others 0; or, where rank 0 has all
 * values, it alone, so that who saves in rank 0 needs no others: what these call does nothing. */
DILOCO_API int diloco_keep_ranks(const struct diloco *d);
DILOCO_API size_t diloco_keep_bytes(const struct diloco *d);
DILOCO_API size_t diloco_keep(struct diloco *d, void *to, size_t bytes);

/* The same a tensor at a time, so that each rank saves its own parts and a checkpoint can be read by other ranks than
 * wrote it. Between steps: diloco_keep_begin(); then diloco_keep_values() of each tensor and kind, in any order, by
 * each rank as it likes; then diloco_keep_rest(), which gives rank 0 a few KiB (at most diloco_keep_rest_bytes()), and
 * the others 0. Begin and rest are calls of as many ranks as diloco_keep() is. With `values` NULL, diloco_keep_values()
 * only says whether this process has such values in this run: 1, or 0. Else it is DILOCO_OK, or a failure. */
DILOCO_API int diloco_keep_begin(struct diloco *d);
DILOCO_API int diloco_keep_values(struct diloco *d, int tensor, enum diloco_kept kind, float *values, uint64_t count);
DILOCO_API size_t diloco_keep_rest_bytes(const struct diloco *d);
DILOCO_API size_t diloco_keep_rest(struct diloco *d, void *to, size_t bytes);

/* This trainer is to end soon, as after a SIGTERM. A diloco_step() that waits for an anchor waits no longer, and
 * returns DILOCO_STOP, as the next one does; diloco_finish() contributes the work so far, waits for `wait_ms` at most
 * until it is counted, and returns DILOCO_OPEN. A contribution that is not counted by then may be counted later. To the
 * daemon the trainer has neither finished nor left the run: it is welcome again. Of a group rank 0 says it. For
 * options.interrupted and between calls; in a signal handler set a variable for these. */
DILOCO_API void diloco_ending(struct diloco *d, int wait_ms);

/* Sends all unsent work, and waits until it is counted and the run is over: every island that takes part has
 * contributed all. The tensors then hold the anchor, the same on every island. DILOCO_OPEN: it is counted, but the run
 * is not known to be over; diloco_error() says why. Others have not trained for half a minute, as they are away or
 * their trainers have ended, and have not said that they are done: the tensors hold the anchor. Or this island leaves:
 * what it has trained of a fragment since its last contribution was due is still in the tensors, and a checkpoint with
 * diloco_keep() keeps it for when it joins again. DILOCO_INTERRUPTED: it may be called again. */
DILOCO_API int diloco_finish(struct diloco *d);

/* Releases everything; NULL is fine. Without diloco_finish() the daemon counts this as a crash. */
DILOCO_API void diloco_detach(struct diloco *d);

/* Text of the last failure; never NULL. With NULL: of the last diloco_attach(), or call without a handle, in this
 * thread. */
DILOCO_API const char *diloco_error(const struct diloco *d);

/* Whether a daemon is attached just now (1), or training goes on alone (0). */
DILOCO_API int diloco_attached(const struct diloco *d);

#ifdef __cplusplus
}
#endif

#endif
