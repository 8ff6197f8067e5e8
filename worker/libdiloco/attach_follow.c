/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/attach_follow.h"

#include <stdio.h>
#include <unistd.h>

#include "worker/libdiloco/attach_device.h"
#include "worker/libdiloco/attach_far.h"
#include "worker/libdiloco/attach_group.h"
#include "worker/libdiloco/attach_move.h"

/* Tells rank 0 which moves are done, or waits for all of them. Of one that failed it is told, too: nobody waits. */
static int settle(struct diloco *d, bool wait)
{
    int result = DILOCO_OK;
    for (uint32_t f = 0; d->shm != NULL && d->local != NULL && f < d->shm->fragments_count; f++) {
        struct local *local = &d->local[f];
        bool done = false;
        if (local->moving == IPC_FREE)
            continue;
        int own = attach_device_reached(d, local->mark, wait, &done);
        if (own != DILOCO_OK || done) {
            if (local->moving == IPC_MIXING)
                attach_far_swap(d, f);
            local->moving = IPC_FREE;
            int told = attach_far_did(d, f, own != DILOCO_OK);
            own = own != DILOCO_OK ? own : told;
        }
        result = own != DILOCO_OK ? own : result;
    }
    if (result == DILOCO_OK && wait) {
        bool done;
        result = attach_device_reached(d, attach_device_mark(d), true, &done);
    }
    int turned = attach_far_turn(d, wait && result == DILOCO_OK);
    return result != DILOCO_OK ? result : turned;
}

/* A move whose end rank 0 waits for. */
static int move(struct diloco *d, const struct attach_order *order)
{
    struct local *local = &d->local[order->fragment];
    int result = attach_own_part(d, order);
    if (result != DILOCO_OK) {
        (void)!attach_far_did(d, order->fragment, true);
        return result;
    }
    local->moving = order->kind == ATTACH_ORDER_SNAPSHOT ? IPC_COPYING : IPC_MIXING;
    local->mark = attach_device_mark(d);
    return settle(d, false);
}

static int carry_out(struct diloco *d, const struct attach_order *order, int fd,
                     int (*map)(struct diloco *d, int fd, uint64_t session))
{
    int result, met;
    switch ((enum attach_order_kind)order->kind) {
    case ATTACH_ORDER_MAP: return map(d, fd, order->session);
    case ATTACH_ORDER_SCRATCH:
        result = attach_group_map_scratch(d, fd, order->count);
        if (fd >= 0)
            close(fd);
        return result;
    case ATTACH_ORDER_WAIT: return settle(d, false);
    case ATTACH_ORDER_SNAPSHOT:
    case ATTACH_ORDER_ANCHOR: return move(d, order);
    case ATTACH_ORDER_SETTLE:
        result = settle(d, true);
        met = attach_meet(d);
        return result != DILOCO_OK ? result : met;
    default: return attach_own_part(d, order);
    }
}

int attach_follow(struct diloco *d, struct diloco_start *start, int (*map)(struct diloco *d, int fd, uint64_t session))
{
    int failed = settle(d, false);
    for (;;) {
        struct attach_order order;
        int fd, result = attach_hear(d, &order, &fd);
        if (result != DILOCO_OK)
            return result;
        if (order.kind != ATTACH_ORDER_END) {
            bool ready = order.kind == ATTACH_ORDER_MAP || order.kind == ATTACH_ORDER_SCRATCH ||
                         order.kind == ATTACH_ORDER_SETTLE || order.kind == ATTACH_ORDER_WAIT ||
                         (d->local != NULL && order.fragment < d->shm->fragments_count);
            result = ready ? carry_out(d, &order, fd, map) : failed;
            failed = failed == DILOCO_OK ? result : failed;
            continue;
        }
        d->step = order.step;
        d->steps = order.steps;
        d->deal = order.deal;
        d->rank0_attached = order.attached != 0;
        d->rank0_keeps = order.keeps != 0;
        if (start != NULL) {
            size_t size = start->size;
            *start = order.start;
            start->size = size;
        }
        if (failed != DILOCO_OK)
            return failed;
        if (order.result != DILOCO_OK)
            snprintf(d->error, sizeof d->error, "%s", order.error);
        return order.result;
    }
}
