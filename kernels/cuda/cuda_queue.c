/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cuda_queue.h"

#include <cuda_runtime_api.h>
#include <string.h>

#include "common/mem.h"
#include "kernels/cuda/cuda_dev.h"

enum { MARKS_FIRST = 16, QUEUE_BITS = 2 };
_Static_assert(KERN_QUEUES <= 1 << QUEUE_BITS, "a mark's number names its queue in its lowest bits");

static enum kern_queue queue_of(uint64_t mark)
{
    return (enum kern_queue)(mark & ((1u << QUEUE_BITS) - 1));
}

static struct cuda_mark *at(const struct cuda_marks *marks, size_t i)
{
    return &marks->ring[(marks->first + i) % marks->room];
}

/* The first `count` are reached. */
static void retire(struct cuda_marks *marks, size_t count)
{
    if (count == 0)
        return;
    marks->done = at(marks, count - 1)->number;
    marks->first = (marks->first + count) % marks->room;
    marks->count -= count;
}

/* Events that nobody times, and for which a thread that waits sleeps. */
static cudaError_t new_event(void **out)
{
    cudaEvent_t event = NULL;
    cudaError_t code = cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync);
    *out = event;
    return code;
}

/* Room for twice as many, the oldest in place 0. What there is stands where that fails. */
static enum err grow(struct cuda_marks *marks)
{
    size_t room = marks->room > 0 ? 2 * marks->room : MARKS_FIRST;
    struct cuda_mark *ring;
    TRY(mem_new(room, sizeof *ring, "marks in a queue", &ring));
    for (size_t i = marks->room; i < room; i++)
        if (new_event(&ring[i].event) != cudaSuccess) {
            cudaGetLastError();
            while (i-- > marks->room)
                cudaEventDestroy(ring[i].event);
            mem_free(ring);
            return err_set(ERR_NOMEM, "no events for marks in a queue");
        }
    for (size_t i = 0; i < marks->room; i++)
        ring[i] = *at(marks, i);
    mem_free(marks->ring);
    *marks = (struct cuda_marks){.ring = ring, .room = room, .count = marks->count, .done = marks->done};
    return ERR_OK;
}

enum err cuda_queues_open(struct kern_dev *dev)
{
    for (int queue = 0; queue < KERN_QUEUES; queue++) {
        cudaStream_t stream = NULL;
        /* Not blocking: the default stream, where others may work, is not waited for. */
        cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        dev->stream[queue] = stream;
        if (code == cudaSuccess)
            code = new_event(&dev->order_event[queue]);
        if (cuda_failed(dev, code, "a queue is made"))
            return cuda_kept_fault(dev);
        TRY(grow(&dev->marks[queue]));
    }
    return ERR_OK;
}

void cuda_queues_close(struct kern_dev *dev)
{
    cuda_use(dev);
    cudaDeviceSynchronize();
    for (int queue = 0; queue < KERN_QUEUES; queue++) {
        struct cuda_marks *marks = &dev->marks[queue];
        for (size_t i = 0; i < marks->room; i++)
            cudaEventDestroy(marks->ring[i].event);
        mem_free(marks->ring);
        if (dev->order_event[queue] != NULL)
            cudaEventDestroy(dev->order_event[queue]);
        if (dev->stream[queue] != NULL)
            cudaStreamDestroy(dev->stream[queue]);
    }
    cudaGetLastError();
}

void cuda_order(struct kern_dev *dev, enum kern_queue later, enum kern_queue earlier)
{
    if (later == earlier)
        return;
    cuda_use(dev);
    /* One event is enough: a wait that is queued goes by what was recorded then, not by what is recorded later. */
    cudaError_t code = cudaEventRecord(dev->order_event[earlier], dev->stream[earlier]);
    if (code == cudaSuccess)
        code = cudaStreamWaitEvent(dev->stream[later], dev->order_event[earlier], 0);
    cuda_failed(dev, code, "an order of queues");
}

/* Of those that wait, the first that is `mark` or newer; `count` if there is none. */
static size_t find(const struct cuda_marks *marks, uint64_t mark)
{
    size_t low = 0, high = marks->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (at(marks, middle)->number < mark)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether the event is reached, or will never be: then the fault is kept. */
static bool is_over(struct kern_dev *dev, void *event)
{
    cudaError_t code = cudaEventQuery(event);
    if (code == cudaErrorNotReady) {
        cudaGetLastError(); /* else the next launch would take it for its own failure */
        return false;
    }
    cuda_failed(dev, code, "seen at a mark");
    return true;
}

uint64_t cuda_mark(struct kern_dev *dev, enum kern_queue queue)
{
    struct cuda_marks *marks = &dev->marks[queue];
    uint64_t number = ++dev->last << QUEUE_BITS | queue;
    cuda_use(dev);
    if (marks->count == marks->room) {
        size_t over = 0;
        while (over < marks->count && is_over(dev, at(marks, over)->event))
            over++;
        retire(marks, over);
    }
    if (marks->count == marks->room && grow(marks) != ERR_OK) {
        cuda_failed(dev, cudaEventSynchronize(at(marks, 0)->event), "seen at a mark");
        retire(marks, 1);
    }
    struct cuda_mark *mark = at(marks, marks->count++);
    mark->number = number;
    cuda_failed(dev, cudaEventRecord(mark->event, dev->stream[queue]), "a mark");
    return number;
}

bool cuda_reached(struct kern_dev *dev, uint64_t mark)
{
    struct cuda_marks *marks = &dev->marks[queue_of(mark)];
    if (dev->fault[0] != '\0' || queue_of(mark) >= KERN_QUEUES || mark <= marks->done)
        return true;
    size_t i = find(marks, mark);
    if (i == marks->count)
        return true;
    cuda_use(dev);
    if (!is_over(dev, at(marks, i)->event))
        return false;
    retire(marks, i + 1);
    return true;
}

enum err cuda_wait(struct kern_dev *dev, uint64_t mark)
{
    if (queue_of(mark) < KERN_QUEUES) {
        struct cuda_marks *marks = &dev->marks[queue_of(mark)];
        size_t i = find(marks, mark);
        if (i < marks->count) {
            cuda_use(dev);
            cuda_failed(dev, cudaEventSynchronize(at(marks, i)->event), "seen at a mark");
            retire(marks, i + 1);
        }
    }
    return cuda_kept_fault(dev);
}

enum err cuda_sync(struct kern_dev *dev)
{
    cuda_use(dev);
    for (int queue = 0; queue < KERN_QUEUES; queue++)
        cuda_failed(dev, cudaStreamSynchronize(dev->stream[queue]), "seen at the end of a queue");
    return cuda_kept_fault(dev);
}

enum err cuda_fault(struct kern_dev *dev)
{
    if (dev->fault[0] != '\0')
        return cuda_kept_fault(dev);
    cuda_use(dev);
    for (int queue = 0; queue < KERN_QUEUES; queue++) {
        cudaError_t code = cudaStreamQuery(dev->stream[queue]);
        if (code == cudaErrorNotReady)
            cudaGetLastError();
        else
            cuda_failed(dev, code, "seen in a queue");
    }
    return cuda_kept_fault(dev);
}

void *cuda_stream(struct kern_dev *dev, enum kern_queue queue)
{
    cuda_use(dev);
    return dev->stream[queue];
}
