/* SPDX-License-Identifier: Apache-2.0 */
/* The host side of the emulated table: memory and queues. The product of matrices stands in kern_emu_product.c. */
#include "tests/emu/kern_emu.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/mem.h"
#include "kernels/cuda/cuda.h"
#include "tests/emu/emu.h"
#include "tests/fakes/fake_nccl.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1 /* gcc's name for it */
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { DEVICES = 8, PROCESSORS = 4, SCRATCH_ALIGN = 256, GUARD = 64, GUARD_VALUE = 0xa5 };

static const size_t TOTAL_BYTES = (size_t)8 << 30;

/* Memory of the device, or pages pinned. */
struct range {
    struct range *next;
    char *at;
    size_t bytes;
};

struct rows {
    void *to;
    const void *from;
    size_t to_stride, from_stride, bytes, count;
};

/* Something queued: work, a copy, an order, or a mark. */
struct item {
    struct item *next;
    uint64_t number; /* rises with every item; of a mark it is what mark() has returned */
    enum { WORK, COPY, SERVED, AFTER, MARK } kind;
    void (*work)(void *context); /* WORK; its context is `taken` */
    struct rows rows;            /* COPY; LENT: one from pinned memory, which must be then what it is now */
    void *taken;                 /* what `from` held when it was queued, if that is what counts; ours */
    enum kern_queue queue;       /* AFTER: everything up to `upto` there comes first */
    uint64_t upto;
    bool asked; /* MARK: once, whether it is reached */
};

/* What kern->stream() gives. */
struct stream {
    struct fake_stream base;
    struct kern_dev *dev;
    enum kern_queue queue;
};

struct kern_dev {
    struct stream stream[KERN_QUEUES];
    struct range *memory, *pinned;
    size_t used;
    struct item *first[KERN_QUEUES], **end[KERN_QUEUES];
    uint64_t last; /* item's number */
    char *scratch_memory, *scratch;
    size_t scratch_bytes, scratch_taken;
};

/* ---- queues ---- */

static bool hurry;

void kern_emu_hurry(bool yes)
{
    hurry = yes;
}

/* A word at once, as a GPU does it: others may look meanwhile. */
static void do_row(void *to, const void *from, size_t bytes)
{
    uint32_t word;
    if (bytes != sizeof word || (uintptr_t)to % sizeof word != 0) {
        memmove(to, from, bytes);
        return;
    }
    memcpy(&word, from, sizeof word);
    atomic_store((_Atomic uint32_t *)to, word);
}

static void do_rows(const struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        do_row((char *)rows->to + i * rows->to_stride, (const char *)rows->from + i * rows->from_stride, rows->bytes);
}

/* A GPU may have copied sooner. */
static void look_at_served(const struct item *item)
{
    const struct rows *rows = &item->rows;
    for (size_t i = 0; i < rows->count; i++)
        if (memcmp((const char *)item->taken + i * rows->bytes, (const char *)rows->from + i * rows->from_stride,
                   rows->bytes) != 0)
            emu_record("pinned memory was written while a copy from it was queued");
}

/* Does what a queue holds, up to an item's number. */
static void run(struct kern_dev *dev, enum kern_queue queue, uint64_t upto)
{
    struct item *item;
    while ((item = dev->first[queue]) && item->number <= upto) {
        dev->first[queue] = item->next;
        if (!item->next)
            dev->end[queue] = &dev->first[queue];
        if (item->kind == AFTER)
            run(dev, item->queue, item->upto);
        if (item->kind == SERVED)
            look_at_served(item);
        if (item->kind == COPY || item->kind == SERVED)
            do_rows(&item->rows);
        if (item->kind == WORK)
            item->work(item->taken);
        mem_free(item->taken);
        mem_free(item);
    }
}

static void run_all(struct kern_dev *dev)
{
    for (int queue = 0; queue < KERN_QUEUES; queue++)
        run(dev, (enum kern_queue)queue, UINT64_MAX);
}

/* What stands at its end now is complete. */
static void appended(struct kern_dev *dev, enum kern_queue queue)
{
    if (hurry && queue != KERN_MAIN)
        run(dev, queue, UINT64_MAX);
}

/* NULL, if memory is short: then the queue has been run, and what was to be queued is to be done. */
static struct item *append(struct kern_dev *dev, enum kern_queue queue, int kind)
{
    struct item *item;
    dev->last++;
    if (mem_new(1, sizeof *item, "an emulated queue", &item) != ERR_OK) {
        run(dev, queue, UINT64_MAX);
        return NULL;
    }
    item->number = dev->last;
    item->kind = kind;
    *dev->end[queue] = item;
    dev->end[queue] = &item->next;
    return item;
}

static void emu_order(struct kern_dev *dev, enum kern_queue later, enum kern_queue earlier)
{
    if (later == earlier || !dev->first[earlier])
        return;
    struct item *item = append(dev, later, AFTER);
    if (!item) {
        run(dev, earlier, UINT64_MAX);
        return;
    }
    item->queue = earlier;
    item->upto = item->number;
    appended(dev, later);
}

static void queue_work(struct kern_dev *dev, enum kern_queue queue, void (*work)(void *context), void *context,
                       size_t bytes)
{
    void *taken;
    if (!dev || mem_new(bytes, 1, "an emulated launch", &taken) != ERR_OK) {
        if (dev)
            run(dev, queue, UINT64_MAX);
        work(context);
        return;
    }
    memcpy(taken, context, bytes);
    struct item *item = append(dev, queue, WORK);
    if (!item) {
        work(taken);
        mem_free(taken);
        return;
    }
    item->work = work;
    item->taken = taken;
    appended(dev, queue);
}

void emu_queue(struct kern_dev *dev, void (*work)(void *context), void *context, size_t bytes)
{
    queue_work(dev, KERN_MAIN, work, context, bytes);
}

/* ---- streams: a queue to whoever else puts work there ---- */

struct foreign {
    bool (*job)(void *arg);
    void *arg;
};

static void do_foreign(void *context)
{
    const struct foreign *foreign = context;
    const struct timespec moment = {.tv_nsec = 50000};
    while (!foreign->job(foreign->arg)) /* it waits for other ranks, who want the processor */
        nanosleep(&moment, NULL);
}

static void enqueue(struct fake_stream *stream, bool (*job)(void *arg), void *arg)
{
    const struct stream *own = (const struct stream *)stream;
    queue_work(own->dev, own->queue, do_foreign, &(struct foreign){job, arg}, sizeof(struct foreign));
}

static void *emu_stream(struct kern_dev *dev, enum kern_queue queue)
{
    return &dev->stream[queue].base;
}

static uint64_t emu_mark(struct kern_dev *dev, enum kern_queue queue)
{
    (void)append(dev, queue, MARK);
    return dev->last;
}

static struct item *find_mark(struct kern_dev *dev, uint64_t mark, enum kern_queue *queue)
{
    for (int q = 0; q < KERN_QUEUES; q++)
        for (struct item *item = dev->first[q]; item; item = item->next)
            if (item->kind == MARK && item->number == mark) {
                *queue = (enum kern_queue)q;
                return item;
            }
    return NULL;
}

static bool emu_reached(struct kern_dev *dev, uint64_t mark)
{
    enum kern_queue queue;
    struct item *item = find_mark(dev, mark, &queue);
    if (!item)
        return true;
    if (!item->asked) {
        item->asked = true;
        return false;
    }
    run(dev, queue, mark);
    return true;
}

static enum err emu_fault(struct kern_dev *dev)
{
    (void)dev;
    return emu_error()[0] == '\0' ? ERR_OK : err_set(ERR_STATE, "the emulated GPU: %s", emu_error());
}

static enum err emu_wait_mark(struct kern_dev *dev, uint64_t mark)
{
    enum kern_queue queue;
    if (find_mark(dev, mark, &queue))
        run(dev, queue, mark);
    return emu_fault(dev);
}

static enum err emu_sync(struct kern_dev *dev)
{
    run_all(dev);
    return emu_fault(dev);
}

/* ---- memory ---- */

/* The range that holds the byte at `at`; its rest is *bytes. */
static const struct range *find(const struct range *ranges, const void *at, size_t *bytes)
{
    for (const struct range *range = ranges; range; range = range->next)
        if ((uintptr_t)at - (uintptr_t)range->at < range->bytes) {
            *bytes = range->bytes - ((uintptr_t)at - (uintptr_t)range->at);
            return range;
        }
    return NULL;
}

static enum err add_range(struct range **ranges, void *at, size_t bytes)
{
    struct range *range;
    TRY(mem_new(1, sizeof *range, "an emulated device's memory", &range));
    *range = (struct range){.next = *ranges, .at = at, .bytes = bytes};
    *ranges = range;
    return ERR_OK;
}

/* Whether there was one that begins there. */
static bool take_range(struct range **ranges, const void *at, size_t *bytes)
{
    for (struct range **link = ranges; *link; link = &(*link)->next) {
        struct range *range = *link;
        if (range->at != at)
            continue;
        *bytes = range->bytes;
        *link = range->next;
        mem_free(range);
        return true;
    }
    return false;
}

enum err cuda_alloc(struct kern_dev *dev, size_t bytes, const char *what, void **out)
{
    void *at;
    if (bytes > TOTAL_BYTES - dev->used)
        return err_set(ERR_NOMEM, "no %zu bytes for %s on the emulated GPU", bytes, what);
    TRY(mem_new(bytes, 1, what, &at));
    enum err err = add_range(&dev->memory, at, bytes);
    if (err != ERR_OK) {
        mem_free(at);
        return err;
    }
    dev->used += bytes;
    *out = at;
    return ERR_OK;
}

void cuda_free(struct kern_dev *dev, void *pointer)
{
    size_t bytes;
    if (!pointer)
        return;
    run_all(dev);
    if (!take_range(&dev->memory, pointer, &bytes)) {
        emu_record("free: not memory of this device");
        return;
    }
    dev->used -= bytes;
    mem_free(pointer);
}

static enum err emu_memory(struct kern_dev *dev, size_t *free_bytes, size_t *total)
{
    *free_bytes = TOTAL_BYTES - dev->used;
    *total = TOTAL_BYTES;
    return ERR_OK;
}

static enum err emu_pin(struct kern_dev *dev, void *host, size_t bytes)
{
    size_t rest;
    if ((uintptr_t)host % 4096 != 0)
        emu_record("pin: memory that does not begin at a page");
    if (find(dev->pinned, host, &rest) || find(dev->memory, host, &rest))
        emu_record("pin: memory that is pinned already, or the device's");
    return add_range(&dev->pinned, host, bytes);
}

static bool touches(const struct rows *rows, const char *at, size_t bytes)
{
    return (uintptr_t)rows->to - (uintptr_t)at < bytes || (uintptr_t)rows->from - (uintptr_t)at < bytes;
}

static void emu_unpin(struct kern_dev *dev, void *host)
{
    size_t bytes;
    if (!host)
        return;
    if (!take_range(&dev->pinned, host, &bytes)) {
        emu_record("unpin: memory that is not pinned");
        return;
    }
    for (int q = 0; q < KERN_QUEUES; q++)
        for (const struct item *item = dev->first[q]; item; item = item->next)
            if (item->kind == COPY && touches(&item->rows, host, bytes))
                emu_record("unpin: memory that copies are still using");
    run_all(dev);
}

/* ---- scratch ---- */

static void look_behind_scratch(struct kern_dev *dev)
{
    if (!dev->scratch)
        return;
    ASAN_UNPOISON_MEMORY_REGION(dev->scratch, dev->scratch_bytes + GUARD);
    for (size_t i = 0; i < GUARD; i++)
        if ((unsigned char)dev->scratch[dev->scratch_taken + i] != GUARD_VALUE)
            emu_record("an operation has written behind the %zu bytes of its scratch memory", dev->scratch_taken);
}

static enum err grow_scratch(struct kern_dev *dev, size_t bytes)
{
    char *memory;
    TRY(mem_new(bytes + SCRATCH_ALIGN + GUARD, 1, "the emulated GPU's scratch memory", &memory));
    run_all(dev);
    look_behind_scratch(dev);
    mem_free(dev->scratch_memory);
    dev->scratch_memory = memory;
    dev->scratch = memory + (SCRATCH_ALIGN - (uintptr_t)memory % SCRATCH_ALIGN) % SCRATCH_ALIGN;
    dev->used += bytes - dev->scratch_bytes;
    dev->scratch_bytes = bytes;
    dev->scratch_taken = 0;
    memset(dev->scratch, GUARD_VALUE, bytes + GUARD);
    return ERR_OK;
}

struct taking {
    struct kern_dev *dev;
    size_t bytes;
};

static void take_scratch(void *context)
{
    const struct taking *taking = context;
    struct kern_dev *dev = taking->dev;
    look_behind_scratch(dev);
    memset(dev->scratch, 0xff, taking->bytes);
    memset(dev->scratch + taking->bytes, GUARD_VALUE, GUARD);
    dev->scratch_taken = taking->bytes;
    ASAN_POISON_MEMORY_REGION(dev->scratch + taking->bytes, dev->scratch_bytes + GUARD - taking->bytes);
}

void *cuda_scratch(struct kern_dev *dev, size_t bytes)
{
    if (bytes > dev->scratch_bytes) {
        emu_record("an operation takes %zu bytes of scratch memory, but %zu are reserved", bytes, dev->scratch_bytes);
        if (grow_scratch(dev, bytes) != ERR_OK)
            return NULL;
    }
    emu_queue(dev, take_scratch, &(struct taking){dev, bytes}, sizeof(struct taking));
    return dev->scratch;
}

static enum err emu_reserve(struct kern_dev *dev, int64_t R, int64_t C, int64_t L)
{
    size_t most = cuda_reserve_bytes(dev, R, C, L);
    return most > dev->scratch_bytes || !dev->scratch ? grow_scratch(dev, most) : ERR_OK;
}

/* ---- copies ---- */

struct zeroing {
    void *at;
    size_t bytes;
};

static void do_zero(void *context)
{
    const struct zeroing *zeroing = context;
    memset(zeroing->at, 0, zeroing->bytes);
}

static void emu_zero(struct kern_dev *dev, void *pointer, size_t bytes)
{
    size_t rest = 0;
    if (bytes == 0)
        return;
    if (!find(dev->memory, pointer, &rest) || rest < bytes)
        emu_record("zero: %zu bytes, but %zu are there", bytes, rest);
    else
        emu_queue(dev, do_zero, &(struct zeroing){pointer, bytes}, sizeof(struct zeroing));
}

enum side { DEVICE, PINNED, HOST, OUTSIDE };

/* Where memory is; what a copy takes must be all there. */
static enum side side_of(const struct kern_dev *dev, const void *at, size_t bytes)
{
    size_t rest;
    if (find(dev->memory, at, &rest)) {
        if (rest < bytes)
            emu_record("a copy of %zu bytes, but the device's array has %zu", bytes, rest);
        return rest < bytes ? OUTSIDE : DEVICE;
    }
    return find(dev->pinned, at, &rest) && rest >= bytes ? PINNED : HOST;
}

/* What is to be copied, packed, as it is now. */
static void *take(const struct rows *rows)
{
    char *taken;
    if (mem_new(rows->count, rows->bytes, "an emulated copy", &taken) != ERR_OK)
        return NULL;
    struct rows packed = *rows;
    packed.to = taken;
    packed.to_stride = rows->bytes;
    do_rows(&packed);
    return taken;
}

static void queue_rows(struct kern_dev *dev, enum kern_queue queue, struct rows rows)
{
    if (rows.count == 0 || rows.bytes == 0)
        return;
    enum side to = side_of(dev, rows.to, (rows.count - 1) * rows.to_stride + rows.bytes);
    enum side from = side_of(dev, rows.from, (rows.count - 1) * rows.from_stride + rows.bytes);
    if (to == OUTSIDE || from == OUTSIDE)
        return;
    /* Memory that is not pinned is copied from at once, and to before the call returns. */
    void *taken = to != HOST && from != DEVICE ? take(&rows) : NULL;
    struct item *item = taken || (to != HOST && from == DEVICE) ? append(dev, queue, COPY) : NULL;
    if (!item) {
        run(dev, queue, UINT64_MAX);
        do_rows(&rows);
        mem_free(taken);
        return;
    }
    item->kind = from == PINNED ? SERVED : COPY;
    item->rows = rows;
    item->taken = taken;
    if (from == HOST) {
        item->rows.from = taken;
        item->rows.from_stride = rows.bytes;
    }
    appended(dev, queue);
}

void cuda_copy(struct kern_dev *dev, enum kern_queue queue, void *to, const void *from, size_t bytes)
{
    queue_rows(dev, queue, (struct rows){.to = to, .from = from, .bytes = bytes, .count = 1});
}

static void emu_copy_rows(struct kern_dev *dev, enum kern_queue queue, void *to, size_t to_stride, const void *from,
                          size_t from_stride, size_t bytes, size_t rows)
{
    if (to_stride < bytes || from_stride < bytes)
        emu_record("copy_rows: rows of %zu bytes that overlap", bytes);
    queue_rows(
        dev, queue,
        (struct rows){
            .to = to, .from = from, .to_stride = to_stride, .from_stride = from_stride, .bytes = bytes, .count = rows});
}

/* ---- the device ---- */

void *cuda_main_stream(struct kern_dev *dev)
{
    return dev;
}

void cuda_allow_shared(struct kern_dev *dev, const void *kernel, size_t bytes)
{
    (void)dev, (void)kernel, (void)bytes;
}

void cuda_launched(struct kern_dev *dev, const char *operation)
{
    (void)dev, (void)operation; /* what went wrong is recorded, with the kernel's name */
}

int cuda_processors(const struct kern_dev *dev)
{
    (void)dev;
    return PROCESSORS;
}

static enum err emu_open(const struct kern_place *place, struct kern_dev **out)
{
    struct kern_dev *dev;
    if (place->device < 0 || place->device >= DEVICES)
        return err_set(ERR_NOTFOUND, "there is no GPU %d; the emulated ones are 0 to %d", place->device, DEVICES - 1);
    TRY(mem_new(1, sizeof *dev, "the emulated GPU", &dev));
    for (int queue = 0; queue < KERN_QUEUES; queue++) {
        dev->end[queue] = &dev->first[queue];
        dev->stream[queue] = (struct stream){{enqueue}, dev, (enum kern_queue)queue};
    }
    *out = dev;
    return ERR_OK;
}

static void emu_close(struct kern_dev *dev)
{
    size_t bytes;
    if (!dev)
        return;
    run_all(dev);
    look_behind_scratch(dev);
    mem_free(dev->scratch_memory);
    if (dev->pinned)
        emu_record("close: memory is still pinned");
    if (dev->memory)
        emu_record("close: %zu bytes are not freed", dev->used);
    while (dev->pinned)
        take_range(&dev->pinned, dev->pinned->at, &bytes);
    while (dev->memory) {
        void *at = dev->memory->at;
        take_range(&dev->memory, at, &bytes);
        mem_free(at);
    }
    mem_free(dev);
}

static void emu_describe(struct kern_dev *dev, char *text, size_t bytes)
{
    (void)dev;
    snprintf(text, bytes, "emulated");
}

static double emu_peak_flops(struct kern_dev *dev)
{
    (void)dev;
    return 0;
}

static void emu_attention_by(struct kern_dev *dev, const struct kern_attention *dims, bool backward, char *text,
                             size_t bytes)
{
    (void)dev;
    (void)dims;
    (void)backward;
    snprintf(text, bytes, "ours");
}

const struct kern kern_emu = {
    .name = "emu",
    .act_bytes = 2,
    .ahead = 1,
    .open = emu_open,
    .close = emu_close,
    .describe = emu_describe,
    .peak_flops = emu_peak_flops,
    .memory = emu_memory,
    .reserve = emu_reserve,
    .reserve_bytes = cuda_reserve_bytes,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .pin = emu_pin,
    .unpin = emu_unpin,
    .order = emu_order,
    .mark = emu_mark,
    .reached = emu_reached,
    .wait = emu_wait_mark,
    .sync = emu_sync,
    .fault = emu_fault,
    .stream = emu_stream,
    .zero = emu_zero,
    .copy = cuda_copy,
    .copy_rows = emu_copy_rows,
    .attention_scratch = cuda_attention_scratch,
    .attention_by = emu_attention_by,
    .attention_fwd = cuda_attention_fwd,
    .attention_bwd = cuda_attention_bwd,
    CUDA_OPERATIONS,
};
