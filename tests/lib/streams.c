/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/streams.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kern.h"
#include "tests/fakes/fake_nccl.h"

enum { RANGES_MAX = 64, QUEUE_BITS = 2 };

struct item {
    struct item *next;
    bool (*job)(void *arg); /* NULL: a copy, or `after` */
    void *arg;
    void *to;
    const void *from;
    void *taken; /* what was to be taken at once; ours */
    size_t bytes;
    int queue; /* all that is up to `upto` there comes first */
    uint64_t number, upto;
};

struct queue {
    struct fake_stream stream; /* first, so that it leads here */
    pthread_t thread;
    struct item *first, **end;
    uint64_t done;
};

struct range {
    const char *begin;
    size_t bytes;
};

static struct kern table;
static const struct kern *cpu;
static bool refusing;
static struct queue queues[KERN_QUEUES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint64_t last;
static bool closing;
static struct range device[RANGES_MAX], pinned[RANGES_MAX];

/* ---- the device's side ---- */

static void copy_now(void *to, const void *from, size_t bytes)
{
    if (bytes == sizeof(uint32_t) && (uintptr_t)to % sizeof(uint32_t) == 0) {
        uint32_t word;
        memcpy(&word, from, sizeof word);
        atomic_store((_Atomic uint32_t *)to, word);
        return;
    }
    memmove(to, from, bytes);
}

static void do_one(const struct item *item)
{
    if (item->job != NULL)
        while (!item->job(item->arg))
            usleep(200);
    else if (item->bytes > 0)
        copy_now(item->to, item->taken != NULL ? item->taken : item->from, item->bytes);
}

static void *be_queue(void *user)
{
    struct queue *q = user;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct item *item = q->first;
        if (item == NULL && closing)
            break;
        if (item == NULL || (item->upto > 0 && queues[item->queue].done < item->upto)) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        do_one(item);
        pthread_mutex_lock(&lock);
        q->first = item->next;
        if (q->first == NULL)
            q->end = &q->first;
        q->done = item->number;
        free(item->taken);
        free(item);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* ---- the host's side ---- */

/* Its number. */
static uint64_t append(int queue, struct item from)
{
    struct item *item = malloc(sizeof *item);
    if (item == NULL)
        abort();
    *item = from;
    pthread_mutex_lock(&lock);
    item->number = ++last << QUEUE_BITS | (uint64_t)queue;
    *queues[queue].end = item;
    queues[queue].end = &item->next;
    uint64_t number = item->number;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return number;
}

static void enqueue(struct fake_stream *stream, bool (*job)(void *arg), void *arg)
{
    append((int)((struct queue *)stream - queues), (struct item){.job = job, .arg = arg});
}

static bool holds(const struct range *ranges, const void *at)
{
    for (int i = 0; i < RANGES_MAX; i++)
        if ((const char *)at >= ranges[i].begin && (const char *)at < ranges[i].begin + ranges[i].bytes)
            return true;
    return false;
}

static void put(struct range *ranges, const void *at, size_t bytes)
{
    for (int i = 0; i < RANGES_MAX; i++)
        if (ranges[i].begin == NULL) {
            ranges[i] = (struct range){at, bytes};
            return;
        }
    abort();
}

static void take_out(struct range *ranges, const void *at)
{
    for (int i = 0; i < RANGES_MAX; i++)
        if (ranges[i].begin == at)
            ranges[i] = (struct range){NULL, 0};
}

static enum err streams_wait(struct kern_dev *dev, uint64_t mark)
{
    const struct queue *q = &queues[mark & ((1u << QUEUE_BITS) - 1)];
    (void)dev;
    pthread_mutex_lock(&lock);
    while (q->done < mark)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return ERR_OK;
}

static uint64_t streams_mark(struct kern_dev *dev, enum kern_queue queue)
{
    (void)dev;
    return append((int)queue, (struct item){0});
}

static bool streams_reached(struct kern_dev *dev, uint64_t mark)
{
    (void)dev;
    pthread_mutex_lock(&lock);
    bool reached = queues[mark & ((1u << QUEUE_BITS) - 1)].done >= mark;
    pthread_mutex_unlock(&lock);
    return reached;
}

static enum err streams_sync(struct kern_dev *dev)
{
    for (int queue = 0; queue < KERN_QUEUES; queue++)
        TRY(streams_wait(dev, streams_mark(dev, (enum kern_queue)queue)));
    return ERR_OK;
}

static enum err streams_fault(struct kern_dev *dev)
{
    (void)dev;
    return ERR_OK;
}

static void streams_order(struct kern_dev *dev, enum kern_queue later, enum kern_queue earlier)
{
    if (later != earlier)
        append((int)later, (struct item){.queue = (int)earlier, .upto = streams_mark(dev, earlier)});
}

static void streams_copy(struct kern_dev *dev, enum kern_queue queue, void *to, const void *from, size_t bytes)
{
    struct item item = {.to = to, .from = from, .bytes = bytes};
    if (bytes == 0)
        return;
    if (!holds(device, from) && !holds(pinned, from)) {
        item.taken = malloc(bytes);
        if (item.taken == NULL)
            abort();
        memcpy(item.taken, from, bytes);
    }
    uint64_t number = append((int)queue, item);
    if (!holds(device, to) && !holds(pinned, to))
        (void)streams_wait(dev, number);
}

static void streams_copy_rows(struct kern_dev *dev, enum kern_queue queue, void *to, size_t to_stride, const void *from,
                              size_t from_stride, size_t bytes, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        streams_copy(dev, queue, (char *)to + r * to_stride, (const char *)from + r * from_stride, bytes);
}

static void streams_zero(struct kern_dev *dev, void *pointer, size_t bytes)
{
    (void)streams_sync(dev);
    cpu->zero(dev, pointer, bytes);
}

static void *streams_stream(struct kern_dev *dev, enum kern_queue queue)
{
    (void)dev;
    return &queues[queue].stream;
}

/* ---- memory and life ---- */

static enum err streams_alloc(struct kern_dev *dev, size_t bytes, const char *what, void **out)
{
    TRY(cpu->alloc(dev, bytes, what, out));
    put(device, *out, bytes);
    return ERR_OK;
}

static void streams_free(struct kern_dev *dev, void *pointer)
{
    (void)streams_sync(dev);
    take_out(device, pointer);
    cpu->free(dev, pointer);
}

static enum err streams_pin(struct kern_dev *dev, void *host, size_t bytes)
{
    (void)dev;
    if (refusing)
        return err_set(ERR_STATE, "no memory is pinned here");
    put(pinned, host, bytes);
    return ERR_OK;
}

static void streams_unpin(struct kern_dev *dev, void *host)
{
    (void)dev;
    take_out(pinned, host);
}

static enum err streams_open(const struct kern_place *place, struct kern_dev **dev)
{
    TRY(cpu->open(place, dev));
    closing = false;
    for (int i = 0; i < KERN_QUEUES; i++) {
        queues[i] = (struct queue){.stream = {.enqueue = enqueue}};
        queues[i].end = &queues[i].first;
    }
    for (int i = 0; i < KERN_QUEUES; i++)
        if (pthread_create(&queues[i].thread, NULL, be_queue, &queues[i]) != 0)
            abort();
    return ERR_OK;
}

static void streams_close(struct kern_dev *dev)
{
    if (dev == NULL)
        return;
    pthread_mutex_lock(&lock);
    closing = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < KERN_QUEUES; i++)
        pthread_join(queues[i].thread, NULL);
    cpu->close(dev);
}

void streams_refuse_pins(bool refuse)
{
    refusing = refuse;
}

const struct kern *streams_table(void)
{
    if (kern_find("cpu", &cpu) != ERR_OK)
        abort();
    table = *cpu;
    table.name = "streams";
    table.on_host = false;
    table.ahead = 1;
    table.open = streams_open;
    table.close = streams_close;
    table.alloc = streams_alloc;
    table.free = streams_free;
    table.pin = streams_pin;
    table.unpin = streams_unpin;
    table.order = streams_order;
    table.mark = streams_mark;
    table.reached = streams_reached;
    table.wait = streams_wait;
    table.sync = streams_sync;
    table.fault = streams_fault;
    table.stream = streams_stream;
    table.zero = streams_zero;
    table.copy = streams_copy;
    table.copy_rows = streams_copy_rows;
    return &table;
}
