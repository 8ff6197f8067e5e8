/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/comm/group_page.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/env.h"

enum { NOT_CANCELLED, BEING_CANCELLED, CANCELLED };
enum { ALIGN = 65536, STAGE_ALIGN = 128 }; /* bytes: a page of any machine; two halves of whole cache lines */
enum { TEXT_PATIENCE_MS = 200 };           /* for a failure's text that somebody is just writing */

static const char *const op_names[GROUP_OPS] = {"no collective",  "all_reduce", "reduce_scatter",
                                                "all_gather",     "broadcast",  "barrier",
                                                "host_broadcast", "split",      "the start of NCCL"};

const char *group_op_name(uint32_t op)
{
    return op < GROUP_OPS ? op_names[op] : "?";
}
_Static_assert(GROUP_OPS <= 1 << GROUP_OP_BITS, "an operation fits below its number");

enum group_op group_in(const struct group_page *page, int rank)
{
    const struct group_rank *row = group_rank(page, rank);
    uint32_t op = atomic_load(&row->op);
    for (int slot = 0; op == GROUP_IDLE && slot < GROUP_SLOTS; slot++) {
        uint32_t begun = atomic_load(&row->slot[slot].begun);
        if (begun != atomic_load(&row->slot[slot].done))
            op = begun & ((1u << GROUP_OP_BITS) - 1);
    }
    return (enum group_op)op;
}

/* ---- making and opening it ---- */

static uint64_t check_of(const struct group_fixed *fixed)
{
    uint64_t check = GROUP_VERSION;
    for (size_t at = 0; at + sizeof check <= sizeof *fixed; at += sizeof check) {
        uint64_t part;
        memcpy(&part, (const char *)fixed + at, sizeof part);
        check = env_mix64(check ^ part) + at;
    }
    return check;
}
_Static_assert(sizeof(struct group_fixed) % sizeof(uint64_t) == 0, "all of it is checked");

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static enum err make_memory(struct group_page *page, uint64_t bytes)
{
    page->fd = memfd_create("diloco-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (page->fd < 0)
        return err_set_errno(ERR_IO, "cannot make the memory that ranks share");
    if (ftruncate(page->fd, (off_t)bytes) != 0 || fallocate(page->fd, 0, 0, (off_t)bytes) != 0)
        return err_set_errno(ERR_NOMEM, "no %llu bytes of memory that ranks share", (unsigned long long)bytes);
    /* A file that shrinks would kill whoever reads it. */
    if (fcntl(page->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return err_set_errno(ERR_IO, "cannot seal the memory that ranks share");
    return ERR_OK;
}

static enum err map(struct group_page *page, uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, page->fd, 0);
    if (at == MAP_FAILED)
        return err_set_errno(ERR_NOMEM, "cannot map the memory that ranks share");
    page->shared = at;
    page->fixed.bytes = bytes;
    return ERR_OK;
}

static enum err fill(struct group_page *page, int ranks, const char *const *device, uint64_t stage)
{
    struct group_fixed *fixed = &page->fixed;
    *fixed = (struct group_fixed){.magic = GROUP_MAGIC,
                                  .version = GROUP_VERSION,
                                  .ranks = (uint32_t)ranks,
                                  .nonce = env_random_u64(),
                                  .stage_offset = round_up(sizeof(struct group_shared), ALIGN),
                                  .stage_bytes = stage};
    for (int i = 0; i < ranks; i++)
        snprintf(fixed->device[i], GROUP_NAME_BYTES, "%s", device[i]);
    uint64_t bytes = round_up(fixed->stage_offset + (uint64_t)ranks * stage, ALIGN);
    TRY(make_memory(page, bytes));
    TRY(map(page, bytes));
    page->shared->fixed = *fixed;
    page->shared->check = check_of(fixed);
    return ERR_OK;
}

enum err group_page_new(int ranks, const char *const *device, size_t stage_bytes, struct group_page *out)
{
    *out = (struct group_page){.fd = -1};
    if (ranks < 1 || ranks > GROUP_RANKS_MAX)
        return err_set(ERR_ARG, "%d ranks: there can be 1 to %d", ranks, GROUP_RANKS_MAX);
    if (stage_bytes == 0)
        stage_bytes = GROUP_STAGE_USUAL;
    if (stage_bytes < GROUP_STAGE_MIN || stage_bytes > (size_t)1 << 32)
        return err_set(ERR_ARG, "%zu bytes of staging for a rank: there can be %d to 2^32", stage_bytes,
                       GROUP_STAGE_MIN);
    enum err err = fill(out, ranks, device, round_up(stage_bytes, STAGE_ALIGN));
    if (err != ERR_OK)
        group_page_free(out);
    return err;
}

static enum err damaged(const char *what)
{
    return err_set(ERR_CORRUPT,
                   "the memory that the ranks share is damaged: %s; one of them has written where it must not: start "
                   "the trainer again; if it comes back, run it with one rank, or with another driver",
                   what);
}

/* Nothing is read at a place that the header names before all of this holds. */
static enum err look_at(const struct group_fixed *fixed, uint64_t check, uint64_t bytes)
{
    if (fixed->magic != GROUP_MAGIC)
        return damaged("it does not begin as it should");
    if (fixed->version != GROUP_VERSION)
        return damaged("it is of another version");
    if (check != check_of(fixed))
        return damaged("its header does not fit its checksum");
    if (fixed->bytes != bytes || fixed->ranks < 1 || fixed->ranks > GROUP_RANKS_MAX ||
        fixed->stage_bytes < GROUP_STAGE_MIN || fixed->stage_bytes % STAGE_ALIGN != 0 ||
        fixed->stage_offset < sizeof(struct group_shared) || fixed->stage_offset > bytes ||
        fixed->stage_offset % ALIGN != 0 || fixed->stage_bytes > (bytes - fixed->stage_offset) / fixed->ranks)
        return damaged("the ranks' areas leave it");
    for (int i = 0; i < GROUP_RANKS_MAX; i++)
        if (memchr(fixed->device[i], '\0', GROUP_NAME_BYTES) == NULL)
            return damaged("a device's name has no end");
    return ERR_OK;
}

enum err group_page_open(int fd, struct group_page *out)
{
    struct stat status;
    *out = (struct group_page){.fd = -1};
    if (fstat(fd, &status) != 0)
        return err_set_errno(ERR_IO, "cannot look at the memory that ranks share");
    if (status.st_size < (off_t)sizeof(struct group_shared))
        return damaged("it is too small");
    out->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (out->fd < 0)
        return err_set_errno(ERR_IO, "cannot keep the memory that ranks share");
    enum err err = map(out, (uint64_t)status.st_size);
    if (err == ERR_OK) {
        struct group_fixed fixed = out->shared->fixed;
        err = look_at(&fixed, out->shared->check, (uint64_t)status.st_size);
        if (err == ERR_OK)
            out->fixed = fixed;
    }
    if (err != ERR_OK)
        group_page_free(out);
    return err;
}

void group_page_free(struct group_page *page)
{
    if (page->shared != NULL)
        munmap(page->shared, page->fixed.bytes);
    if (page->fd > 0)
        close(page->fd);
    *page = (struct group_page){.fd = -1};
}

enum err group_page_check(const struct group_page *page)
{
    if (memcmp(&page->shared->fixed, &page->fixed, sizeof page->fixed) != 0)
        return damaged("its header has changed");
    return ERR_OK;
}

char *group_stage(const struct group_page *page, int rank)
{
    return (char *)page->shared + page->fixed.stage_offset + (uint64_t)rank * page->fixed.stage_bytes;
}

struct group_rank *group_rank(const struct group_page *page, int rank)
{
    return &page->shared->rank[rank];
}

const char *group_device(const struct group_page *page, int rank)
{
    return page->fixed.device[rank];
}

/* ---- the first failure ---- */

void group_cancel(const struct group_page *page, enum err code, const char *text)
{
    struct group_shared *shared = page->shared;
    uint32_t seen = NOT_CANCELLED;
    if (atomic_compare_exchange_strong(&shared->cancelled, &seen, BEING_CANCELLED)) {
        size_t bytes = strlen(text);
        bytes = bytes < GROUP_WHY_BYTES ? bytes : GROUP_WHY_BYTES - 1;
        memcpy(shared->why, text, bytes);
        shared->why[bytes] = '\0';
        atomic_store(&shared->code, (uint32_t)code);
        atomic_store(&shared->cancelled, CANCELLED);
    }
    group_wake(&shared->cancelled);
    for (uint32_t i = 0; i < page->fixed.ranks; i++)
        for (int slot = 0; slot < GROUP_SLOTS; slot++)
            group_wake(&shared->rank[i].slot[slot].came);
}

bool group_cancelled(const struct group_page *page)
{
    return atomic_load(&page->shared->cancelled) != NOT_CANCELLED;
}

enum err group_why(const struct group_page *page, char *text, size_t text_bytes)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    struct group_shared *shared = page->shared;
    for (int i = 0; i < TEXT_PATIENCE_MS && atomic_load(&shared->cancelled) == BEING_CANCELLED; i++)
        nanosleep(&moment, NULL);
    if (atomic_load(&shared->cancelled) != CANCELLED) {
        snprintf(text, text_bytes, "a rank ended while it was saying why");
        return ERR_STATE;
    }
    char why[GROUP_WHY_BYTES];
    memcpy(why, shared->why, sizeof why);
    why[sizeof why - 1] = '\0';
    for (char *c = why; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    snprintf(text, text_bytes, "%s", why);
    uint32_t code = atomic_load(&shared->code);
    return code > ERR_OK && code < ERR_COUNT ? (enum err)code : ERR_STATE;
}

enum err group_closed(const struct group_page *page)
{
    char why[GROUP_WHY_BYTES];
    (void)group_why(page, why, sizeof why);
    return err_set(ERR_CLOSED, "%s", why);
}

enum err group_fail(const struct group_page *page, int rank, enum group_op op, enum err err)
{
    char why[GROUP_WHY_BYTES];
    if (err == ERR_OK || group_cancelled(page))
        return err;
    err_prefix(err, "rank %d (%s), %s", rank, group_device(page, rank), group_op_name(op));
    snprintf(why, sizeof why, "%s", err_text());
    group_cancel(page, err, why);
    return err;
}

/* ---- waiting ---- */

void group_sleep(_Atomic uint32_t *word, uint32_t seen, double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, NULL, 0);
}

void group_wake(_Atomic uint32_t *word)
{
    int kept = errno; /* it may be a signal handler that calls */
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = kept;
}
