/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/gateway.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/ipc.h"
#include "common/log.h"
#include "common/mem.h"
#include "worker/gate/gate_door.h"
#include "worker/gate/gate_key_pair.h"
#include "worker/libdiloco/attach_core.h"
#include "worker/libdiloco/attach_far.h"
#include "worker/libdiloco/diloco.h"
#include "worker/libdiloco/gate_calls.h"

enum { SLICE_MS = 200, ENDING_MS = 10000 }; /* less than [worker] stop, of 15 s */

struct gateway {
    const struct gateway_conf *conf;
    struct gate_door *door;
    struct diloco *d; /* NULL: the trainer has not attached */
    void *kept;       /* of its checkpoint, until it begins */
    bool interrupt;   /* the trainer wants an end of the call that is under way */
    bool ending;      /* it is to end, as it said itself, or as this process is */
    bool keeping;     /* a call that keeps is under way */
    bool detached;
    bool done; /* it has finished, and nobody had asked it to end */
};

/* ---- as rank 0 of the group ---- */

/* How many ranks hear, from the first on. Where that one has all values it keeps them alone, and asks no others. */
static uint32_t listeners(const struct gateway *g)
{
    return g->keeping && g->d->first_keeps ? 1 : gate_door_count(g->door);
}

static int broadcast(void *user, void *bytes, size_t count, int *fd)
{
    (void)fd; /* nobody is on this machine */
    struct gateway *g = user;
    return gate_door_broadcast(g->door, listeners(g), bytes, count) ? 0 : -1;
}

static int barrier(void *user)
{
    struct gateway *g = user;
    return gate_door_meet(g->door, listeners(g)) ? 0 : -1;
}

static uint64_t send_bytes(void *user, int rank, uint32_t tag, const void *bytes, size_t count)
{
    return gate_door_send(((struct gateway *)user)->door, (uint32_t)rank - 1, tag, bytes, count);
}

static uint64_t receive_bytes(void *user, int rank, uint32_t tag, void *bytes, size_t count)
{
    return gate_door_receive(((struct gateway *)user)->door, (uint32_t)rank - 1, tag, bytes, count);
}

static int arrived(void *user, uint64_t number, int wait)
{
    return gate_door_arrived(((struct gateway *)user)->door, number, wait != 0);
}

/* ---- what is asked for meanwhile ---- */

static void end_it(struct gateway *g, uint64_t wait_ms)
{
    g->ending = true;
    if (g->d != NULL)
        diloco_ending(g->d, (int)wait_ms);
}

static void look_around(struct gateway *g)
{
    uint64_t value;
    if (gate_door_asked(g->door, GATE_ASKED_INTERRUPT, &value))
        g->interrupt = true;
    if (gate_door_asked(g->door, GATE_ASKED_ENDING, &value))
        end_it(g, value < INT32_MAX ? value : INT32_MAX);
    if (g->conf->stopped() && !g->ending)
        end_it(g, ENDING_MS);
}

static int interrupted(void *user)
{
    struct gateway *g = user;
    gate_door_turn(g->door, 0);
    look_around(g);
    return g->interrupt || gate_door_lost(g->door) != NULL || (g->d == NULL && g->ending);
}

/* ---- calls ---- */

/* What follows a call, of the trainer's first rank; NULL: the group is at an end. */
static void *fetch(struct gateway *g, uint64_t bytes)
{
    void *data;
    if (mem_new_unset(bytes + 1, 1, "what a trainer sends", &data) != ERR_OK) {
        gate_door_dismiss(g->door, err_text());
        return NULL;
    }
    uint64_t number = gate_door_receive(g->door, 0, GATE_TAG_DATA, data, bytes);
    if (number != 0 && gate_door_arrived(g->door, number, true) == 1)
        return data;
    return NULL; /* what still comes is put there */
}

/* Of a checkpoint: the ranks have them. */
static int no_values(void *user, int tensor, enum diloco_kept kind, float *values, uint64_t count)
{
    (void)user, (void)tensor, (void)kind, (void)values;
    return count == 0 ? 0 : -1;
}

/* Texts in what a rank sends have an end, whatever it sends. */
#define ENDED(text) (text)[sizeof(text) - 1] = '\0'

static void attach(struct gateway *g, struct gate_attach *attach)
{
    ENDED(attach->trainer);
    ENDED(attach->machine.device);
    g->kept = attach->kept_bytes > 0 ? fetch(g, attach->kept_bytes) : NULL;
    struct diloco_machine machine = {.size = sizeof machine,
                                     .device = attach->machine.device,
                                     .ranks = (int)attach->machine.ranks,
                                     .tensor_parallel = (int)attach->machine.tensor_parallel,
                                     .memory_bytes = attach->machine.memory_bytes,
                                     .memory_total_bytes = attach->machine.memory_total_bytes,
                                     .flops_per_token = attach->machine.flops_per_token,
                                     .peak_flops = attach->machine.peak_flops};
    struct diloco_group group = {.size = sizeof group,
                                 .count = (int)gate_door_count(g->door) + 1,
                                 .name = "the gateway",
                                 .user = g,
                                 .broadcast = broadcast,
                                 .barrier = barrier,
                                 .send = send_bytes,
                                 .receive = receive_bytes,
                                 .arrived = arrived};
    struct diloco_options options = {.size = sizeof options,
                                     .socket_path = g->conf->socket_path,
                                     .trainer = attach->trainer,
                                     .wait_ms = attach->wait_ms,
                                     .interrupted = interrupted,
                                     .interrupted_user = g,
                                     .kept = g->kept,
                                     .kept_bytes = attach->kept_bytes,
                                     .kept_values = no_values,
                                     .group = &group,
                                     .machine = attach->machine.ranks > 0 ? &machine : NULL,
                                     .without_initial = (int)attach->without_initial};
    if (gate_door_lost(g->door) != NULL)
        return;
    if (diloco_attach(&options, &g->d) != DILOCO_OK)
        log_warn("the trainer could not attach: %s", diloco_error(NULL));
    if (g->d != NULL && g->ending)
        diloco_ending(g->d, ENDING_MS);
}

/* Of a tensor it has no value; what is called its memory is never looked at. */
static int register_tensor(struct gateway *g, struct gate_tensor *tensor)
{
    ENDED(tensor->announced.name);
    static char nothing;
    struct diloco_tensor known = {.size = sizeof known,
                                  .name = tensor->announced.name,
                                  .data = &nothing,
                                  .type = (enum diloco_type)tensor->type,
                                  .dims = tensor->announced.dims,
                                  .layer = tensor->announced.layer};
    bool any = true;
    for (uint32_t i = 0; i < tensor->announced.dims && i < sizeof known.shape / sizeof known.shape[0]; i++) {
        known.shape[i] = tensor->announced.shape[i];
        any &= known.shape[i] > 0;
    }
    known.part.columns = any;
    return diloco_register(g->d, &known);
}

static int register_frozen(struct gateway *g, struct ipc_tensor *frozen)
{
    ENDED(frozen->name);
    ENDED(frozen->type);
    struct diloco_frozen known = {
        .size = sizeof known, .name = frozen->name, .type = frozen->type, .dims = frozen->dims, .sum = frozen->sum};
    for (uint32_t i = 0; i < frozen->dims && i < sizeof known.shape / sizeof known.shape[0]; i++)
        known.shape[i] = frozen->shape[i];
    return diloco_register_frozen(g->d, &known);
}

static int begin(struct gateway *g, const struct gate_begin *begin)
{
    if (begin->tensors > IPC_TENSORS_MAX || begin->frozen > IPC_TENSORS_MAX) {
        gate_door_dismiss(g->door, "a trainer with more tensors than there may be");
        return DILOCO_ERROR;
    }
    const size_t tensors_bytes = begin->tensors * sizeof(struct gate_tensor);
    char *data = fetch(g, tensors_bytes + begin->frozen * sizeof(struct ipc_tensor));
    int result = data != NULL ? DILOCO_OK : DILOCO_ERROR;
    for (uint32_t i = 0; i < begin->tensors && result == DILOCO_OK; i++)
        result = register_tensor(g, (struct gate_tensor *)(void *)data + i);
    for (uint32_t i = 0; i < begin->frozen && result == DILOCO_OK; i++)
        result = register_frozen(g, (struct ipc_tensor *)(void *)(data + tensors_bytes) + i);
    mem_free(data);
    if (result != DILOCO_OK) {
        gate_door_dismiss(g->door, diloco_error(g->d));
        return result;
    }
    struct diloco_start start = {.size = sizeof start};
    g->d->first_keeps = begin->has_all != 0;
    result = diloco_begin(g->d, &start);
    mem_free(g->kept);
    g->kept = NULL;
    return result;
}

static void finish(struct gateway *g)
{
    int result = diloco_finish(g->d);
    g->done = (result == DILOCO_OK || result == DILOCO_OPEN) && !g->ending;
}

/* What was written goes to the trainer's first rank, behind how much it is. */
static void keep(struct gateway *g, bool rest)
{
    size_t room = rest ? diloco_keep_rest_bytes(g->d) : diloco_keep_bytes(g->d);
    char *data = NULL;
    if (mem_new_unset(sizeof(uint64_t) + room, 1, "what is kept", &data) != ERR_OK) {
        gate_door_dismiss(g->door, err_text());
        return;
    }
    char *to = data + sizeof(uint64_t);
    const uint64_t written = rest ? diloco_keep_rest(g->d, to, room) : diloco_keep(g->d, to, room);
    memcpy(data, &written, sizeof written);
    if (written == 0) { /* they have heard why */
        mem_free(data);
        return;
    }
    uint64_t size = gate_door_send(g->door, 0, GATE_TAG_DATA, data, sizeof written),
             rest_of_it = gate_door_send(g->door, 0, GATE_TAG_DATA, to, written);
    if (size != 0 && rest_of_it != 0 && gate_door_arrived(g->door, size, true) == 1 &&
        gate_door_arrived(g->door, rest_of_it, true) == 1)
        mem_free(data); /* else libzmq may still read it */
}

static void detach(struct gateway *g)
{
    diloco_detach(g->d);
    g->d = NULL;
    g->detached = true;
}

/* A call of a rank that is of the same build has what it needs; one that makes no sense is the end of the group. */
static void answer(struct gateway *g, uint32_t call, void *bytes, size_t count)
{
    static const size_t sizes[] = {[GATE_CALL_ATTACH] = sizeof(struct gate_attach),
                                   [GATE_CALL_BEGIN] = sizeof(struct gate_begin),
                                   [GATE_CALL_STEP] = sizeof(struct diloco_report),
                                   [GATE_CALL_DETACH] = 0};
    bool known = call < sizeof sizes / sizeof sizes[0] && count == sizes[call];
    g->interrupt = false;
    g->keeping = call == GATE_CALL_KEEP_BEGIN || call == GATE_CALL_KEEP || call == GATE_CALL_KEEP_REST;
    if (!known || (call != GATE_CALL_DETACH && (call == GATE_CALL_ATTACH) != (g->d == NULL))) {
        gate_door_dismiss(g->door, "a call that the gateway does not know");
        return;
    }
    switch ((enum gate_call)call) {
    case GATE_CALL_ATTACH: attach(g, bytes); break;
    case GATE_CALL_BEGIN: (void)begin(g, bytes); break;
    case GATE_CALL_STEP: (void)diloco_step(g->d, bytes); break;
    case GATE_CALL_FINISH: finish(g); break;
    case GATE_CALL_KEEP_BEGIN: (void)diloco_keep_begin(g->d); break;
    case GATE_CALL_KEEP: keep(g, false); break;
    case GATE_CALL_KEEP_REST: keep(g, true); break;
    case GATE_CALL_DETACH: detach(g); break;
    }
}

/* ---- a trainer ---- */

static void say_who_came(const struct gateway *g)
{
    uint32_t count = gate_door_count(g->door);
    if (count > 1)
        log_info("a trainer of %" PRIu32 " ranks is there: %s, to %s", count, gate_door_name(g->door, 0),
                 gate_door_name(g->door, count - 1));
    else
        log_info("%s is there", gate_door_name(g->door, 0));
}

static void serve(struct gateway *g)
{
    _Alignas(max_align_t) char bytes[GATE_CALL_BYTES_MAX];
    bool said = false;
    while (gate_door_lost(g->door) == NULL && !g->detached && !gate_door_parted(g->door)) {
        uint32_t call;
        size_t count;
        gate_door_turn(g->door, SLICE_MS);
        look_around(g);
        if (gate_door_count(g->door) > 0 && !said) {
            say_who_came(g);
            said = true;
        }
        if (g->ending && g->d == NULL && gate_door_count(g->door) > 0)
            gate_door_dismiss(g->door, "the gateway ends");
        if (g->ending && g->d == NULL)
            return;
        while (!g->detached && gate_door_call(g->door, &call, bytes, &count))
            answer(g, call, bytes, count);
        /* While ranks compute, what they have sent is put where it belongs, not when they wait for the next call. A
         * failure is that of the group, or of that call. */
        if (g->d != NULL)
            (void)!attach_far_turn(g->d, false);
    }
}

enum err gateway_run(const struct gateway_conf *conf, enum gateway_end *end)
{
    const struct gate_zmq *zmq;
    struct gate_key key = {0};
    struct gateway g = {.conf = conf};
    TRY(gate_zmq_open(&zmq));
    enum err err = gate_key_of_gateway(zmq, conf->key_path, conf->site_path, &key);
    if (err == ERR_OK)
        err = gate_door_open(zmq, conf->listen, DILOCO_VERSION, &key, GATE_FORM_MS, &g.door);
    explicit_bzero(&key, sizeof key);
    if (err != ERR_OK)
        return err;
    serve(&g);
    if (gate_door_lost(g.door) != NULL)
        log_warn("%s", gate_door_lost(g.door));
    else if (gate_door_count(g.door) > 0)
        log_info("the trainer has detached");
    diloco_detach(g.d);
    gate_door_close(g.door);
    *end = g.done || conf->stopped() ? GATEWAY_OVER : GATEWAY_NEXT;
    return ERR_OK;
}
