/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/attachment_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "common/log.h"

uint32_t attachment_core_fragments(const struct attachment *a)
{
    return a->plan.plan != NULL ? a->plan.plan->plan->fragments_count : 0;
}

uint64_t attachment_core_step(const struct attachment *a, uint64_t step)
{
    uint64_t steps = (uint64_t)a->conf.spec->steps;
    return step < steps ? step : steps;
}

void attachment_core_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- saying ---- */

/* One that hangs is told of every anchor. */
enum { UNREAD_SAID_MS = 60000 };

void attachment_core_send(struct attachment *a, const struct ipc_message *message, int fd)
{
    if (a->socket >= 0 && ipc_send(a->socket, message, fd) == ERR_AGAIN &&
        log_limit_pass(&a->unread_said, a->now_ms, UNREAD_SAID_MS))
        log_warn("the trainer does not read its messages (%s was dropped; the shared memory has the truth)",
                 ipc_type_name(message->type));
}

void attachment_core_wake(struct attachment *a, uint32_t f)
{
    struct ipc_message message = {.type = IPC_WAKE, .fragment = f};
    attachment_core_send(a, &message, -1);
}

void attachment_core_post(struct attachment *a, enum event_type type, uint32_t f)
{
    event_post(a->conf.events, &(struct event){.type = type, .fragment = f});
}

void attachment_core_post_sync(struct attachment *a, enum sync_event_type type, uint32_t f, uint64_t version)
{
    event_post_sync(a->conf.events, &(struct sync_event){.type = type, .fragment = f, .version = version});
}

/* ---- the end of an attachment ---- */

void attachment_core_close(struct attachment *a)
{
    bool was_training = a->phase == TRAINING;
    attachment_core_close_fd(&a->socket);
    attachment_core_close_fd(&a->pidfd);
    introduction_close_memory(&a->introduction);
    a->phase = NONE;
    a->closing = true;
    a->wait_said = false;
    for (uint32_t f = 0; a->fragments != NULL && f < attachment_core_fragments(a); f++) {
        a->fragments[f].stands_ms = 0;
        if (!a->fragments[f].up)
            continue;
        a->fragments[f].up = false;
        attachment_core_post_sync(a, SYNC_EV_TRAINER_DOWN, f, 0);
    }
    if (was_training && !a->counted)
        log_warn("the trainer (pid %" PRIu32 ") is gone; rounds go on without it", a->pid);
    tally_save(&a->tally, a->report.tokens);
    attachment_core_post(a, EVENT_ANNOUNCE, 0);
}

void attachment_core_refuse(struct attachment *a, const char *reason)
{
    struct ipc_message message = {.type = IPC_REFUSED};
    snprintf(message.text, sizeof message.text, "%.*s", (int)sizeof message.text - 1, reason);
    log_error("the trainer is refused: %s", reason);
    attachment_core_send(a, &message, -1);
    attachment_core_close(a);
}
