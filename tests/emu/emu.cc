/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu.cc: the threads of emulated blocks, as fibers; see emu.h for what a test sees and emu.cuh for what a kernel does.
 *
 * A fiber is switched to by hand (no system call). A thread that waits chooses who goes on: each round lets every
 * thread that can go on do so once, in an order drawn anew. What the threads of a warp do together is done by the last
 * to arrive, for all, while the others' operands lie on their stacks.
 *
 * For the thread sanitizer each fiber is a thread of its own, and switching orders nothing. Barriers do, by releases
 * and acquires that the last to arrive makes in every thread's name before any goes on: made by each as it comes by,
 * they would hide races of the next interval. Making the sanitizer's fibers is slow, so they are used again; by then
 * they know what their block did, so blocks take turns with several sets of fibers, each with stacks and shared memory
 * of its own: blocks of different sets are unordered. Nothing in this file is instrumented, or the scheduler's own
 * state would be the race.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include "tests/emu/emu_inside.cuh"

extern "C" {
#include "common/mem.h"
}

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __SANITIZE_THREAD__
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
}
enum { SETS = 2 };
#define tsan_acquire(address) __tsan_acquire(address)
#define tsan_release(address) __tsan_release(address)
#else
enum { SETS = 1 };
#define tsan_acquire(address) ((void)(address))
#define tsan_release(address) ((void)(address))
#endif

enum {
    WARPS = EMU_THREADS_MAX / WARP_LANES,
    PAGE = 4096,
    STACK = 256 * 1024, /* of a fiber, with a page below it that nobody may touch */
    COPIES_MAX = 256,   /* asynchronous ones of a thread */
    PLACES_MAX = 64,    /* of shared arrays in a kernel */
    ARENA = 512 * 1024, /* for shared memory and what lies between arrays */
    ALIGN = 128,        /* of dynamic memory */
    GAP = 64,           /* bytes, at least, between arrays */
    NOBODYS = 0xa5,     /* what the gaps hold */
    NO_SYNC = 1         /* the sanitizer's flag: a switch orders nothing */
};

struct fiber {
    void *sp;
    char *stack;
    void *tsan, *fake_stack;
    uint3 at;
    bool done;
    struct emu_op *waits; /* NULL: can go on */
    struct emu_copy copies[COPIES_MAX];
    unsigned group_of[COPIES_MAX], groups; /* the number of a copy's group; of the one that is open */
    unsigned copy_first, copy_end;
};

/* What blocks use that are ordered after each other; see the top. */
struct set {
    struct fiber *fibers[EMU_THREADS_MAX];
    char *arena;
    char ended, barrier, warp[WARPS][WARP_LANES]; /* their addresses name them to the sanitizer */
};

struct place {
    const void *key;
    const char *name;
    size_t at, bytes;
};

static struct {
    pthread_mutex_t lock;
    char error[512];
    uint64_t random;
    bool ordered; /* by `random`, not ascending */
    bool by_warp; /* a warp goes on as long as it can, ahead of the others */
    struct set sets[SETS];

    /* the launch */
    const char *kernel;
    void (*call)(void *);
    void *context;
    unsigned threads;
    bool failed;
    struct place places[PLACES_MAX];
    unsigned place_count;
    size_t arena_used, shared_bytes;
    char begun; /* its address names the launch's begin to the sanitizer */

    /* the block */
    struct set *set;
    struct fiber *self;
    unsigned running, at_barrier;
    struct emu_op *barrier_op; /* of one that waits at the barrier */
    unsigned short order[EMU_THREADS_MAX];
    unsigned turn;
    bool went; /* somebody, in this round */

    /* who launched */
    void *sp, *tsan, *fake_stack;
    const void *stack_bottom;
    size_t stack_bytes;
} emu = {};

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

/* ---- the switch ---- */

/* Goes on with `to`, or with who launched (NULL); comes back when somebody switches to the caller. */
QUIET static void go_on_with(struct fiber *to)
{
    struct fiber *from = emu.self;
    emu.self = to;
    if (to)
        threadIdx = to->at;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(from == NULL ? &emu.fake_stack
                                   : from->done ? NULL
                                                : &from->fake_stack,
                                   to ? to->stack : emu.stack_bottom, to ? (size_t)STACK : emu.stack_bytes);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(to ? to->tsan : emu.tsan, NO_SYNC);
#endif
    emu_switch(from ? &from->sp : &emu.sp, to ? to->sp : emu.sp);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from ? from->fake_stack : emu.fake_stack, NULL, NULL);
#endif
}

/* ---- faults ---- */

QUIET void emu_record(const char *format, ...)
{
    if (emu.error[0] != '\0')
        return;
    int used = emu.kernel ? snprintf(emu.error, sizeof(emu.error), "%s: ", emu.kernel) : 0;
    va_list args;
    va_start(args, format);
    vsnprintf(emu.error + used, sizeof(emu.error) - (size_t)used, format, args);
    va_end(args);
}

const char *emu_error(void)
{
    return emu.error;
}

void emu_clear(void)
{
    emu.error[0] = '\0';
}

QUIET void emu_misaligned(uintptr_t address, const char *what)
{
    emu_record("%s at %#zx is not aligned to its size", what, (size_t)address);
}

/* Ends the launch; never comes back where a thread calls it. */
QUIET static void give_up(void)
{
    emu.failed = true;
    go_on_with(NULL);
}

QUIET static unsigned number_of(const struct fiber *f)
{
    return f->at.x + blockDim.x * (f->at.y + blockDim.y * f->at.z);
}

/* ---- order ---- */

/* splitmix64, as in Steele, Lea and Flood 2014 */
QUIET static uint64_t draw(void)
{
    uint64_t z = emu.random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

QUIET static void draw_round(void)
{
    emu.turn = 0;
    emu.went = false;
    const unsigned unit = emu.by_warp ? WARP_LANES : 1;
    for (unsigned i = 1; emu.ordered && i < emu.threads / unit; i++) {
        unsigned j = (unsigned)((draw() >> 32) * (i + 1) >> 32);
        for (unsigned k = 0; k < unit; k++) { /* by hand: a function of the library's would be instrumented */
            unsigned short swap = emu.order[i * unit + k];
            emu.order[i * unit + k] = emu.order[j * unit + k];
            emu.order[j * unit + k] = swap;
        }
    }
}

/* Who has the next turn; NULL if nobody can go on. */
QUIET static struct fiber *next_ready(void)
{
    for (;;) {
        if (emu.turn == emu.threads) {
            if (!emu.went)
                return NULL;
            draw_round();
        }
        unsigned at = emu.turn++;
        struct fiber *f = emu.set->fibers[emu.order[at]];
        if (!f->done && !f->waits) {
            emu.went = true;
            emu.turn = emu.by_warp ? at - at % WARP_LANES : emu.turn;
            return f;
        }
    }
}

QUIET static void stuck(void)
{
    for (unsigned i = 0; i < emu.threads; i++) {
        const struct fiber *f = emu.set->fibers[i];
        if (!f->done && f->waits)
            emu_record("no thread can go on; thread %u of block (%u,%u,%u) waits at %s:%d with mask %#x", i, blockIdx.x,
                       blockIdx.y, blockIdx.z, f->waits->file, f->waits->line, f->waits->mask);
    }
    give_up();
}

/* Lets others go on until this thread may. */
QUIET static void yield_until_ready(void)
{
    struct fiber *self = emu.self;
    do {
        struct fiber *next = next_ready();
        if (!next)
            stuck();
        if (next != self)
            go_on_with(next);
    } while (self->waits);
}

/* ---- what threads do together ---- */

QUIET static unsigned lanes_of_warp(unsigned warp)
{
    unsigned count = emu.threads - warp * WARP_LANES;
    return count < WARP_LANES ? count : (unsigned)WARP_LANES;
}

/* Whether all lanes of the mask are there; what can never come right ends the launch. */
QUIET static bool all_are_there(struct fiber *const *lanes, unsigned count, unsigned lane, const struct emu_op *op)
{
    bool all = true;
    if (!(op->mask >> lane & 1)) {
        emu_record("%s:%d: lane %u is not in mask %#x", op->file, op->line, lane, op->mask);
        give_up();
    }
    for (unsigned l = 0; l < WARP_LANES; l++) {
        if (!(op->mask >> l & 1) || l == lane)
            continue;
        if (l >= count || lanes[l]->done) {
            emu_record("%s:%d: mask %#x names lane %u, which has left", op->file, op->line, op->mask, l);
            give_up();
        }
        const struct emu_op *other = lanes[l]->waits;
        bool same = other && other->kind == op->kind && other->mask == op->mask;
        if (other && !same && (other->kind == EMU_SYNCTHREADS || (other->mask >> lane & 1))) {
            emu_record("lane %u at %s:%d with mask %#x waits for lane %u, which is at %s:%d with mask %#x", lane,
                       op->file, op->line, op->mask, l, other->file, other->line, other->mask);
            give_up();
        }
        all = all && same;
    }
    return all;
}

/* What these threads did comes before what they do from now on, of each and for each. Done for all at once, so that
 * nothing of what follows is among it. The object knows only what all of them have known. */
QUIET static void meet(struct fiber *const *fibers, unsigned count, uint32_t mask, char *object)
{
#ifdef __SANITIZE_THREAD__
    for (unsigned i = 0; i < 2 * count; i++) {
        if (!(mask >> (i % count % WARP_LANES) & 1))
            continue;
        __tsan_switch_to_fiber(fibers[i % count]->tsan, NO_SYNC);
        if (i < count)
            __tsan_release(object);
        else
            __tsan_acquire(object);
    }
    __tsan_switch_to_fiber(emu.self->tsan, NO_SYNC);
#else
    (void)fibers, (void)count, (void)mask, (void)object;
#endif
}

QUIET static void wait_warp(struct emu_op *op)
{
    struct fiber *self = emu.self;
    unsigned number = number_of(self), warp = number / WARP_LANES, count = lanes_of_warp(warp);
    struct fiber *const *lanes = &emu.set->fibers[warp * WARP_LANES];
    bool all = all_are_there(lanes, count, number % WARP_LANES, op);
    self->waits = op;
    if (!all) {
        yield_until_ready();
        return;
    }
    struct emu_op *ops[WARP_LANES];
    for (unsigned l = 0; l < WARP_LANES; l++)
        ops[l] = l < count ? lanes[l]->waits : NULL;
    emu_together(ops, op);
    if (op->kind == EMU_SYNCWARP)
        meet(lanes, count, op->mask, &emu.set->warp[warp][__builtin_ctz(op->mask)]);
    for (unsigned l = 0; l < WARP_LANES; l++)
        if (op->mask >> l & 1)
            lanes[l]->waits = NULL;
}

QUIET static void wait_block(struct emu_op *op)
{
    struct fiber *self = emu.self;
    unsigned number = number_of(self), warp = number / WARP_LANES, lane = number % WARP_LANES;
    if (emu.running < emu.threads) {
        emu_record("thread %u waits at %s:%d, but others of its block have returned", number, op->file, op->line);
        give_up();
    }
    if (emu.at_barrier > 0 && (emu.barrier_op->line != op->line || strcmp(emu.barrier_op->file, op->file) != 0)) {
        emu_record("threads of a block wait at different barriers: %s:%d and %s:%d", emu.barrier_op->file,
                   emu.barrier_op->line, op->file, op->line);
        give_up();
    }
    for (unsigned l = 0; l < lanes_of_warp(warp); l++) {
        const struct emu_op *other = emu.set->fibers[warp * WARP_LANES + l]->waits;
        if (other && other->kind != EMU_SYNCTHREADS && (other->mask >> lane & 1)) {
            emu_record("lane %u waits at %s:%d for lane %u, which is at the barrier of %s:%d", l, other->file,
                       other->line, lane, op->file, op->line);
            give_up();
        }
    }
    self->waits = op;
    emu.barrier_op = op;
    if (++emu.at_barrier < emu.threads) {
        yield_until_ready();
        return;
    }
    emu.at_barrier = 0;
    meet(emu.set->fibers, emu.threads, ~0u, &emu.set->barrier);
    for (unsigned i = 0; i < emu.threads; i++)
        emu.set->fibers[i]->waits = NULL;
}

QUIET void emu_wait(struct emu_op *op)
{
    if (op->kind == EMU_SYNCTHREADS)
        wait_block(op);
    else
        wait_warp(op);
}

/* ---- asynchronous copies ---- */

QUIET void emu_copy_issue(struct emu_copy copy)
{
    struct fiber *self = emu.self;
    if (self->copy_end - self->copy_first == COPIES_MAX) {
        emu_record("more than %d asynchronous copies of one thread are on their way", COPIES_MAX);
        give_up();
    }
    unsigned i = self->copy_end++ % COPIES_MAX;
    self->copies[i] = copy;
    self->group_of[i] = self->groups;
}

QUIET void emu_copy_commit(void)
{
    emu.self->groups++;
}

QUIET bool emu_copy_next(int pending, struct emu_copy *copy)
{
    struct fiber *self = emu.self;
    unsigned i = self->copy_first % COPIES_MAX;
    if (self->copy_first == self->copy_end || self->group_of[i] + (unsigned)pending >= self->groups)
        return false;
    *copy = self->copies[i];
    self->copy_first++;
    return true;
}

/* ---- shared memory ---- */

/* By stores that no compiler makes a call of, since calls are looked at. */
QUIET static void fill(char *at, size_t bytes, unsigned char value)
{
    while (bytes > 0 && (uintptr_t)at % 8 != 0) {
        *(volatile unsigned char *)at++ = value;
        bytes--;
    }
    for (; bytes >= 8; bytes -= 8, at += 8)
        *(volatile uint64_t *)at = 0x0101010101010101u * value;
    for (; bytes > 0; bytes--)
        *(volatile unsigned char *)at++ = value;
}

/* The address sanitizer's view of bytes of the arenas. */
QUIET static void allow(size_t at, size_t bytes, bool allowed)
{
#ifdef __SANITIZE_ADDRESS__
    for (int i = 0; i < SETS; i++) {
        if (allowed)
            __asan_unpoison_memory_region(emu.sets[i].arena + at, bytes);
        else
            __asan_poison_memory_region(emu.sets[i].arena + at, bytes);
    }
#else
    (void)at, (void)bytes, (void)allowed;
#endif
}

/* Arrays begin where 16 bytes divide the address and 32 do not; dynamic memory (no key) where ALIGN does. NULL: full.
 */
QUIET static struct place *add_place(const void *key, size_t bytes, const char *name)
{
    if (emu.place_count == PLACES_MAX || emu.shared_bytes + bytes > EMU_SHARED_MAX) {
        emu_record("a block takes more than %d bytes of shared memory, or more than %d arrays", EMU_SHARED_MAX,
                   PLACES_MAX);
        return NULL;
    }
    struct place *place = &emu.places[emu.place_count++];
    place->key = key;
    place->name = name;
    place->at = (emu.arena_used + GAP + ALIGN - 1) / ALIGN * ALIGN + (key ? 16 : 0);
    place->bytes = bytes;
    for (int s = 0; s < SETS; s++) {
        fill(emu.sets[s].arena + emu.arena_used, place->at - emu.arena_used, NOBODYS);
        fill(emu.sets[s].arena + place->at + bytes, GAP, NOBODYS);
    }
    emu.shared_bytes += bytes;
    emu.arena_used = place->at + bytes;
    allow(place->at, bytes, true);
    return place;
}

QUIET void *emu_shared(const void *key, size_t bytes, const char *name)
{
    struct place *place = NULL;
    for (unsigned i = 0; i < emu.place_count && !place; i++)
        if (emu.places[i].key == key)
            place = &emu.places[i];
    if (!place) {
        place = add_place(key, bytes, name);
        if (!place)
            give_up();
        fill(emu.set->arena + place->at, bytes, 0xff);
    }
    return emu.set->arena + place->at;
}

QUIET void *emu_shared_dynamic(void)
{
    return emu.set->arena + emu.places[0].at;
}

/* Before a block: arrays hold NaN. After it: nobody has written between them. */
QUIET static void poison_arrays(void)
{
    for (unsigned i = 0; i < emu.place_count; i++)
        fill(emu.set->arena + emu.places[i].at, emu.places[i].bytes, 0xff);
}

QUIET static void look_between_arrays(void)
{
    for (unsigned i = 0; i < emu.place_count; i++) {
        struct place *place = &emu.places[i];
        volatile unsigned char *array = (unsigned char *)emu.set->arena + place->at;
        for (size_t b = 0; b < GAP; b++) {
            volatile unsigned char *before = array - 1 - b, *after = array + place->bytes + b;
            if (*before == NOBODYS && *after == NOBODYS)
                continue;
            emu_record("shared memory is written out of bounds, %d bytes %s %s (%zu bytes)", (int)b + 1,
                       *after != NOBODYS ? "after" : "before", place->name, place->bytes);
            *before = *after = NOBODYS;
        }
    }
}

/* ---- launches ---- */

/* A fiber's first and last function. */
extern "C" QUIET __attribute__((noreturn, used)) void emu_begin(void)
{
    struct fiber *self = emu.self;
#ifdef __SANITIZE_ADDRESS__
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &bytes);
    if (!emu.stack_bottom) {
        emu.stack_bottom = bottom;
        emu.stack_bytes = bytes;
    }
#endif
    emu.call(emu.context);
    self->done = true;
    if (emu.at_barrier > 0) {
        emu_record("thread %u has returned while others of its block wait at %s:%d", number_of(self),
                   emu.barrier_op->file, emu.barrier_op->line);
        give_up();
    }
    unsigned number = number_of(self), first = number / WARP_LANES * WARP_LANES;
    for (unsigned i = first; i < first + lanes_of_warp(number / WARP_LANES); i++) {
        const struct emu_op *other = emu.set->fibers[i]->waits;
        if (other && (other->mask >> number % WARP_LANES & 1)) {
            emu_record("%s:%d: mask %#x names lane %u, which has left", other->file, other->line, other->mask,
                       number % WARP_LANES);
            give_up();
        }
    }
    tsan_release(&emu.set->ended);
    struct fiber *next = --emu.running > 0 ? next_ready() : NULL;
    if (emu.running > 0 && !next)
        stuck();
    go_on_with(next);
    __builtin_trap();
}

/* Makes a fiber ready to begin. */
QUIET static void wind(struct fiber *f, unsigned number)
{
    void **sp = (void **)(f->stack + STACK) - SAVED - 2;
    for (int i = 0; i < SAVED + 2; i++)
        sp[i] = NULL;
    sp[RETURN] = (void *)emu_begin;
    f->sp = sp;
    f->at = uint3{number % blockDim.x, number / blockDim.x % blockDim.y, number / blockDim.x / blockDim.y};
    f->done = false;
    f->waits = NULL;
    f->copy_first = f->copy_end = f->groups = 0;
    emu.order[number] = (unsigned short)number;
}

QUIET static bool make_fiber(struct fiber **out)
{
    struct fiber *f = NULL;
    if (mem_new(1, sizeof(*f), "an emulated thread", &f) != ERR_OK)
        return false;
    char *stack = (char *)mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, PAGE, PROT_NONE) != 0) {
        mem_free(f);
        return false;
    }
    f->stack = stack + PAGE;
#ifdef __SANITIZE_THREAD__
    f->tsan = __tsan_create_fiber(0);
#endif
    *out = f;
    return true;
}

QUIET static bool make_sets(void)
{
    for (int s = 0; s < SETS; s++) {
        struct set *set = &emu.sets[s];
        if (!set->arena && mem_new(1, ARENA + ALIGN, "emulated shared memory", &set->arena) != ERR_OK)
            return false;
        set->arena += (ALIGN - (uintptr_t)set->arena % ALIGN) % ALIGN;
        for (unsigned i = 0; i < emu.threads; i++)
            if (!set->fibers[i] && !make_fiber(&set->fibers[i]))
                return false;
    }
    return true;
}

/* What fibers of a block that was given up have on their stacks is left there: they begin anew. */
QUIET static void abandon(void)
{
    for (unsigned i = 0; i < emu.threads; i++) {
        struct fiber *f = emu.set->fibers[i];
#ifdef __SANITIZE_ADDRESS__
        __asan_unpoison_memory_region(f->stack, STACK);
#endif
#ifdef __SANITIZE_THREAD__
        /* What it did comes before what follows the launch; the calls it is in are forgotten with it. */
        __tsan_switch_to_fiber(f->tsan, NO_SYNC);
        __tsan_release(&emu.set->ended);
        __tsan_switch_to_fiber(emu.tsan, NO_SYNC);
        __tsan_destroy_fiber(f->tsan);
        f->tsan = __tsan_create_fiber(0);
#endif
        f->done = true;
    }
}

/* What was before the launch, and in blocks before of this set, comes before all of this block. */
QUIET static void order_block(void)
{
#ifdef __SANITIZE_THREAD__
    for (unsigned i = 0; i < emu.threads; i++) {
        __tsan_switch_to_fiber(emu.set->fibers[i]->tsan, NO_SYNC);
        __tsan_acquire(&emu.begun);
        __tsan_acquire(&emu.set->ended);
    }
    __tsan_switch_to_fiber(emu.tsan, NO_SYNC);
#endif
}

QUIET static void run_block(uint64_t number, uint64_t turn)
{
    blockIdx = uint3{(unsigned)(number % gridDim.x), (unsigned)(number / gridDim.x % gridDim.y),
                     (unsigned)(number / gridDim.x / gridDim.y)};
    emu.set = &emu.sets[turn % SETS];
    for (unsigned i = 0; i < emu.threads; i++)
        wind(emu.set->fibers[i], i);
    poison_arrays();
    order_block();
    emu.running = emu.threads;
    emu.at_barrier = 0;
    draw_round();
    go_on_with(next_ready());
    if (emu.failed)
        abandon();
    look_between_arrays();
}

QUIET static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* All blocks, in a drawn order: number i is first + i * step, modulo their count. */
QUIET static void run_grid(uint64_t blocks)
{
    uint64_t first = emu.ordered ? draw() % blocks : 0, step = 1;
    while (emu.ordered && blocks > 2 && (step <= 1 || common_divisor(step, blocks) != 1))
        step = draw() % blocks;
    for (uint64_t i = 0; i < blocks && !emu.failed; i++)
        run_block((first + i % blocks * step) % blocks, i);
}

QUIET static bool can_launch(dim3 grid, dim3 block, size_t shared)
{
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    bool ok = threads >= 1 && threads <= EMU_THREADS_MAX && block.x <= EMU_THREADS_MAX && block.y <= EMU_THREADS_MAX &&
              block.z <= 64 && grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7fffffff && grid.y <= 65535 &&
              grid.z <= 65535 && shared <= EMU_SHARED_MAX;
    if (!ok)
        emu_record("no GPU launches (%u,%u,%u) blocks of (%u,%u,%u) threads with %zu bytes", grid.x, grid.y, grid.z,
                   block.x, block.y, block.z, shared);
    emu.threads = ok ? (unsigned)threads : 0;
    return ok;
}

QUIET void emu_run(const char *kernel, dim3 grid, dim3 block, size_t shared, void (*call)(void *), void *context)
{
    pthread_mutex_lock(&emu.lock);
    emu.kernel = kernel;
    emu.call = call;
    emu.context = context;
    emu.failed = false;
    emu.place_count = 0;
    emu.arena_used = emu.shared_bytes = 0;
    emu.stack_bottom = NULL;
    if (can_launch(grid, block, shared)) {
        gridDim = grid;
        blockDim = block;
        if (make_sets()) {
#ifdef __SANITIZE_THREAD__
            emu.tsan = __tsan_get_current_fiber();
#endif
            allow(0, ARENA, false);
            add_place(NULL, shared, "the dynamic memory");
            tsan_release(&emu.begun);
            run_grid((uint64_t)grid.x * grid.y * grid.z);
            for (int s = 0; s < SETS; s++)
                tsan_acquire(&emu.sets[s].ended);
        } else {
            emu_record("no memory for %u threads", emu.threads);
        }
    }
    emu.kernel = NULL;
    pthread_mutex_unlock(&emu.lock);
}

void emu_set_order(uint64_t seed)
{
    pthread_mutex_lock(&emu.lock);
    emu.random = seed;
    emu.ordered = seed != 0;
    emu.by_warp = seed % 2 == 1;
    pthread_mutex_unlock(&emu.lock);
}
