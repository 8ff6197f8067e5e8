/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/human.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/trainer/lines.h"

/* PIECE: read at a time. TICK: and in one tick. BACKLOG: if more waits, it is too much to be read, but for its TAIL. */
enum { PIECE_BYTES = 16384, TICK_BYTES = 1 << 20, BACKLOG_BYTES = 4 << 20, TAIL_BYTES = 64 << 10 };
/* A file that has grown so long, in zeroes, is made short again. */
enum { LONG_BYTES = 64 << 20, BLOCKS_BYTES = 1 << 20 };

struct spool {
    char *path;
    int fd; /* -1: there is no file yet */
    struct lines *lines;
    off_t at;     /* as far as it was read */
    off_t zeroed; /* and as far as nothing is left in it */
    bool cannot_punch;
    char piece[PIECE_BYTES];
};

static void say(void *user, enum log_level level, const char *text)
{
    (void)user;
    log_line(level, "trainer: %s", text);
}

/* Where what was not logged begins: behind the zeroes. */
static off_t find_begin(struct spool *spool)
{
    off_t at = lseek(spool->fd, 0, SEEK_DATA);
    if (at < 0)
        at = errno == ENXIO ? lseek(spool->fd, 0, SEEK_END) : 0; /* ENXIO: there is none */
    for (;;) {
        ssize_t got = pread(spool->fd, spool->piece, sizeof spool->piece, at);
        for (ssize_t i = 0; i < got; i++)
            if (spool->piece[i] != '\0')
                return at + i;
        if (got <= 0)
            return at;
        at += got;
    }
}

static void open_file(struct spool *spool, int flags)
{
    if (spool->fd >= 0)
        return;
    spool->fd = open(spool->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0640);
    if (spool->fd >= 0)
        spool->at = spool->zeroed = find_begin(spool);
}

enum err spool_new(const char *state_folder, struct spool **out)
{
    struct spool *spool;
    *out = NULL;
    TRY(mem_new(1, sizeof *spool, "the trainer's output", &spool));
    spool->fd = -1;
    enum err err = mem_printf(&spool->path, "%s/trainer.log", state_folder);
    if (err == ERR_OK)
        err = lines_new(say, spool, &spool->lines);
    if (err != ERR_OK) {
        spool_free(spool);
        return err;
    }
    open_file(spool, 0);
    *out = spool;
    return ERR_OK;
}

void spool_free(struct spool *spool)
{
    if (spool == NULL)
        return;
    if (spool->fd >= 0)
        close(spool->fd);
    lines_free(spool->lines);
    mem_free(spool->path);
    mem_free(spool);
}

int spool_open(struct spool *spool)
{
    open_file(spool, O_CREAT);
    int fd = spool->fd >= 0 ? open(spool->path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0)
        log_warn("%s: cannot open: %s; what the trainer prints stands in the log as it comes", spool->path,
                 strerror(errno));
    return fd;
}

/* ---- reading ---- */

/* Whoever prints as much as nobody reads is not read to the end either. */
static void skip_backlog(struct spool *spool, off_t end)
{
    char bytes[HUMAN_BYTES];
    if (end - spool->at <= BACKLOG_BYTES)
        return;
    log_warn("trainer: (%s are left out: it printed them faster than they can be logged)",
             human_bytes((double)(end - TAIL_BYTES - spool->at), bytes));
    spool->at = end - TAIL_BYTES;
    lines_skip(spool->lines);
}

/* Zeroes for what was logged. The trainer only appends, and nobody reads them. */
static void zero(struct spool *spool, off_t end)
{
    off_t bytes = end - spool->zeroed;
    if (bytes <= 0)
        return;
    if (!spool->cannot_punch &&
        fallocate(spool->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, spool->zeroed, bytes) != 0)
        spool->cannot_punch = true;
    memset(spool->piece, 0, sizeof spool->piece);
    while (spool->cannot_punch && spool->zeroed < end) {
        bytes = end - spool->zeroed < PIECE_BYTES ? end - spool->zeroed : PIECE_BYTES;
        ssize_t put = pwrite(spool->fd, spool->piece, (size_t)bytes, spool->zeroed);
        if (put <= 0)
            return; /* again next time */
        spool->zeroed += put;
    }
    spool->zeroed = end;
}

/* The zeroes at its beginning are taken out of a long file, which a trainer that appends does not notice; where that
 * cannot be, all of it, when all is read: what is printed in that very moment is lost then. */
static void shorten(struct spool *spool, off_t end)
{
    off_t whole = spool->zeroed / BLOCKS_BYTES * BLOCKS_BYTES;
    struct stat status;
    if (end < (spool->cannot_punch ? BACKLOG_BYTES : LONG_BYTES))
        return;
    if (whole > 0 && fallocate(spool->fd, FALLOC_FL_COLLAPSE_RANGE, 0, whole) == 0) {
        spool->at -= whole;
        spool->zeroed -= whole;
    } else if (fstat(spool->fd, &status) == 0 && status.st_size == spool->zeroed && ftruncate(spool->fd, 0) == 0) {
        spool->at = spool->zeroed = 0;
    }
}

static void read_on(struct spool *spool, off_t bytes_max, uint64_t now_ms)
{
    struct stat status;
    if (fstat(spool->fd, &status) != 0)
        return;
    if (status.st_size < spool->at) /* somebody has emptied it */
        spool->at = spool->zeroed = 0;
    skip_backlog(spool, status.st_size);
    off_t read_max = spool->at + bytes_max;
    while (spool->at < status.st_size && spool->at < read_max) {
        ssize_t got = pread(spool->fd, spool->piece, sizeof spool->piece, spool->at);
        if (got <= 0)
            break;
        lines_take(spool->lines, spool->piece, (size_t)got, now_ms);
        spool->at += got;
    }
    /* A line that is not at its end stays, for a daemon that comes after this one; one that never ends does not. */
    off_t unfinished = (off_t)lines_unfinished(spool->lines);
    zero(spool, spool->at - (unfinished < TAIL_BYTES ? unfinished : 0));
    shorten(spool, status.st_size);
}

void spool_tick(struct spool *spool, uint64_t now_ms)
{
    if (spool->fd >= 0)
        read_on(spool, TICK_BYTES, now_ms);
    lines_tick(spool->lines, now_ms);
}

const char *spool_last(const struct spool *spool)
{
    return lines_last(spool->lines);
}

void spool_end(struct spool *spool, uint64_t now_ms)
{
    if (spool->fd >= 0)
        read_on(spool, BACKLOG_BYTES + TICK_BYTES, now_ms);
    lines_end(spool->lines, now_ms);
    if (spool->fd >= 0)
        zero(spool, spool->at);
}
