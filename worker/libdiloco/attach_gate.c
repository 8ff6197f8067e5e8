/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_gate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/err.h"
#include "common/mem.h"
#include "worker/gate/gate_link.h"

struct attach_gate {
    struct diloco *d;
    struct gate_link *link;
    bool leads;       /* it speaks for the trainer */
    bool told_ending; /* the gateway knows of diloco_ending() */
    bool told_end;    /* and that this call is to end */
};

#define GATEWAY_BUILD DILOCO_VERSION

bool attach_gate_leads(const struct diloco *d)
{
    return d->gate != NULL && d->gate->leads;
}

int attach_gate_ranks(const struct diloco *d)
{
    return d->group.count - (d->gate != NULL);
}

const char *attach_gate_why(const struct diloco *d)
{
    return d->gate != NULL ? gate_link_why(d->gate->link) : NULL;
}

static void tell_ending(struct attach_gate *gate)
{
    if (gate->leads && gate->d->ending && !gate->told_ending) {
        gate->told_ending = true;
        gate_link_ask(gate->link, GATE_ASKED_ENDING, gate->d->ending_wait_ms);
    }
}

/* Whatever waits comes here. */
static bool idle(void *user)
{
    struct attach_gate *gate = user;
    bool wants = gate->leads && attach_interrupted(gate->d);
    if (gate->link == NULL)
        return wants;
    tell_ending(gate);
    if (wants && !gate->told_end) {
        gate->told_end = true;
        gate_link_ask(gate->link, GATE_ASKED_INTERRUPT, 0);
    }
    return wants;
}

/* ---- as a group ---- */

static int broadcast(void *user, void *bytes, size_t count, int *fd)
{
    struct attach_gate *gate = user;
    *fd = -1;
    return gate_link_hear(gate->link, bytes, count) ? 0 : -1;
}

static int barrier(void *user)
{
    return gate_link_meet(((struct attach_gate *)user)->link) ? 0 : -1;
}

/* With nobody but the gateway: it serves all. */
static uint64_t send_bytes(void *user, int rank, uint32_t tag, const void *bytes, size_t count)
{
    return rank == 0 ? gate_link_send(((struct attach_gate *)user)->link, tag, bytes, count) : 0;
}

static uint64_t receive_bytes(void *user, int rank, uint32_t tag, void *bytes, size_t count)
{
    return rank == 0 ? gate_link_receive(((struct attach_gate *)user)->link, tag, bytes, count) : 0;
}

static int arrived(void *user, uint64_t number, int wait)
{
    return gate_link_arrived(((struct attach_gate *)user)->link, number, wait != 0);
}

/* ---- opening ---- */

static const struct {
    enum err err;
    int result;
} results[] = {{ERR_CLOSED, DILOCO_UNREACHABLE}, {ERR_STATE, DILOCO_REFUSED}, {ERR_AGAIN, DILOCO_INTERRUPTED}};

static int result_of(struct diloco *d, enum err err)
{
    int result = DILOCO_ERROR;
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
        if (results[i].err == err)
            result = results[i].result;
    return attach_fail(d, result, "%s", err_text());
}

static void name_this(struct diloco *d, bool named)
{
    char host[64] = "";
    if (named)
        return;
    (void)gethostname(host, sizeof host - 1);
    if (d->group.count > 1)
        snprintf(d->name, sizeof d->name, "rank %d on %s", d->group.rank, host);
    else
        snprintf(d->name, sizeof d->name, "the trainer on %s", host);
}

/* All ranks of one trainer have the same number, and no other trainer has it. */
static int agree_on_number(struct diloco *d, uint64_t *number)
{
    int none = -1;
    if (getrandom(number, sizeof *number, 0) != sizeof *number)
        return attach_fail(d, DILOCO_ERROR, "no random number: %s", strerror(errno));
    if (d->group.count <= 1 || d->group.broadcast(d->group.user, number, sizeof *number, &none) == 0)
        return DILOCO_OK;
    return attach_fail(d, DILOCO_ERROR, "%s has lost the others of its group", d->name);
}

static void ask_to_attach(struct diloco *d)
{
    struct gate_attach attach = {.wait_ms = d->options.wait_ms,
                                 .without_initial = d->options.without_initial != 0,
                                 .kept_bytes = d->options.kept != NULL ? d->options.kept_bytes : 0,
                                 .machine = d->machine};
    snprintf(attach.trainer, sizeof attach.trainer, "%s", d->trainer);
    attach_gate_call(d, GATE_CALL_ATTACH, &attach, sizeof attach);
    if (attach_gate_leads(d) && attach.kept_bytes > 0) {
        uint64_t number = gate_link_send(d->gate->link, GATE_TAG_DATA, d->options.kept, attach.kept_bytes);
        (void)gate_link_arrived(d->gate->link, number, true); /* a failure is heard by whoever follows */
    }
}

int attach_gate_open(struct diloco *d, const char *path)
{
    uint64_t number;
    const char *key = getenv("DILOCO_SITE_KEY");
    bool named = d->group.count > 0 && d->options.group != NULL && d->options.group->name != NULL;
    if (strncmp(path, "tcp://", strlen("tcp://")) != 0)
        return DILOCO_OK;
    name_this(d, named);
    int result = agree_on_number(d, &number);
    if (result != DILOCO_OK)
        return result;
    if (key == NULL || key[0] == '\0')
        return attach_fail(d, DILOCO_ERROR,
                           "%s is a gateway's address, and DILOCO_SITE_KEY is not set: it names the file site.key that "
                           "diloco-gateway has made",
                           path);
    if (mem_new(1, sizeof *d->gate, "the connection to the gateway", &d->gate) != ERR_OK)
        return attach_fail(d, DILOCO_ERROR, "%s", err_text());
    const uint32_t rank = d->group.count > 0 ? (uint32_t)d->group.rank : 0,
                   count = d->group.count > 0 ? (uint32_t)d->group.count : 1;
    d->gate->d = d;
    d->gate->leads = rank == 0;
    struct gate_link_conf conf = {.address = path,
                                  .key_path = key,
                                  .build = GATEWAY_BUILD,
                                  .name = d->name,
                                  .group = number,
                                  .rank = rank,
                                  .count = count,
                                  .wait_ms = d->options.wait_ms,
                                  .idle = idle,
                                  .user = d->gate};
    enum err err = gate_link_open(&conf, &d->gate->link);
    if (err != ERR_OK) {
        mem_free(d->gate);
        d->gate = NULL;
        return result_of(d, err);
    }
    d->group = (struct diloco_group){.size = sizeof d->group,
                                     .rank = (int)rank + 1,
                                     .count = (int)count + 1,
                                     .name = d->name,
                                     .user = d->gate,
                                     .broadcast = broadcast,
                                     .barrier = barrier,
                                     .send = send_bytes,
                                     .receive = receive_bytes,
                                     .arrived = arrived};
    ask_to_attach(d);
    return DILOCO_OK;
}

void attach_gate_close(struct diloco *d)
{
    if (d->gate == NULL)
        return;
    attach_gate_call(d, GATE_CALL_DETACH, NULL, 0);
    gate_link_close(d->gate->link);
    mem_free(d->gate);
    d->gate = NULL;
}

/* ---- calls ---- */

void attach_gate_call(struct diloco *d, enum gate_call call, const void *bytes, size_t count)
{
    if (!attach_gate_leads(d))
        return;
    d->gate->told_end = false;
    tell_ending(d->gate);
    (void)gate_link_call(d->gate->link, call, bytes, count);
}

/* What the daemon is to be told of the model. */
int attach_gate_call_begin(struct diloco *d, bool has_all)
{
    struct gate_begin begin = {.tensors = d->tensors_count, .frozen = d->frozen_count, .has_all = has_all};
    struct gate_tensor *tensors;
    struct ipc_tensor *frozen;
    if (!attach_gate_leads(d))
        return DILOCO_OK;
    const size_t tensors_bytes = d->tensors_count * sizeof *tensors, frozen_bytes = d->frozen_count * sizeof *frozen;
    if (mem_new(1, tensors_bytes + frozen_bytes + 1, "what is registered", &tensors) != ERR_OK)
        return attach_fail(d, DILOCO_ERROR, "%s", err_text());
    for (uint32_t i = 0; i < d->tensors_count; i++) {
        tensors[i].announced = d->tensors[i].announced;
        tensors[i].type = d->tensors[i].type;
    }
    frozen = (struct ipc_tensor *)(void *)(tensors + d->tensors_count);
    if (frozen_bytes > 0)
        memcpy(frozen, d->frozen, frozen_bytes);
    attach_gate_call(d, GATE_CALL_BEGIN, &begin, sizeof begin);
    uint64_t number = gate_link_send(d->gate->link, GATE_TAG_DATA, tensors, tensors_bytes + frozen_bytes);
    if (gate_link_arrived(d->gate->link, number, true) == 1)
        mem_free(tensors); /* else libzmq may still read it */
    return DILOCO_OK;
}

static int fetch_bytes(struct diloco *d, void *to, size_t bytes)
{
    struct gate_link *link = d->gate->link;
    uint64_t number = gate_link_receive(link, GATE_TAG_DATA, to, bytes);
    if (gate_link_arrived(link, number, true) == 1)
        return DILOCO_OK;
    return attach_fail(d, DILOCO_ERROR, "%s", gate_link_why(link));
}

size_t attach_gate_fetch(struct diloco *d, void *to, size_t room)
{
    uint64_t bytes = 0;
    void *own = NULL;
    if (!attach_gate_leads(d) || fetch_bytes(d, &bytes, sizeof bytes) != DILOCO_OK)
        return 0;
    if (to != NULL && bytes <= room)
        return fetch_bytes(d, to, bytes) == DILOCO_OK ? bytes : 0;
    /* It is on its way, and is to be in nobody's way. */
    if (mem_new_unset(bytes, 1, "what is kept", &own) == ERR_OK && fetch_bytes(d, own, bytes) == DILOCO_OK)
        mem_free(own);
    attach_fail(d, DILOCO_ERROR, "what is kept is %" PRIu64 " bytes, and there is room for %zu", bytes, room);
    return 0;
}
