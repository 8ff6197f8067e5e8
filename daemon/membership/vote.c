/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/vote.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"

/*
 * File "vote": magic u32 "DLV1", version u32, number u64, incarnation u64, epoch u64, promised u64, accepted u64, own
 * u64, digest of the accepted configuration 32 bytes, its length u64, the configuration; then 32 bytes BLAKE2b over all
 * before. Mark: magic u32 "DLM1", version u32, boot id 36 bytes, enum vote_doubt u32, number u64, incarnation u64,
 * ledger u64, named u64, trusted epoch u64; then 32 bytes BLAKE2b over all before.
 */
#define VOTE_MAGIC 0x31564c44u
#define MARK_MAGIC 0x314d4c44u
enum { VOTE_VERSION = 1, MARK_VERSION = 2, VOTE_HEAD_BYTES = 4 + 4 + 6 * 8 + DIGEST_BYTES + 8, BOOT_BYTES = 36 };
enum { MARK_BODY_BYTES = 4 + 4 + BOOT_BYTES + 4 + 5 * 8, MARK_BYTES = MARK_BODY_BYTES + DIGEST_BYTES };
static const char boot_path[] = "/proc/sys/kernel/random/boot_id";

struct vote {
    char *path, *mark_path;
    char boot[BOOT_BYTES + 1];
    uint64_t number;
    struct voting_disk disk; /* `doubt` is written by the loop's thread alone, which needs no lock to read it */
    pthread_mutex_t lock;    /* the mark, and what it says */
    int mark_fd;             /* -1: not open yet */
    bool mark_locked;
    uint64_t durable; /* number of the vote that is on disk */
    uint64_t ledger_at;
    bool exposed;
    const char *why;
    uint8_t *bytes; /* disk.vote.bytes */
};

struct mark {
    enum vote_doubt doubt;
    uint64_t number, incarnation, ledger_at, named, trusted_epoch;
};

/* ---- the mark ---- */

/* Without an id every start counts as one after a boot. */
static void read_boot(struct vote *vote)
{
    char text[BOOT_BYTES];
    int fd = open(boot_path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof text) == (ssize_t)sizeof text)
        memcpy(vote->boot, text, sizeof text);
    if (fd >= 0)
        close(fd);
}

/* False: there is none of this boot, or it is damaged. Takes no memory: to have none is no reason to doubt a disk. */
static bool read_mark(const struct vote *vote, struct mark *mark)
{
    uint8_t data[MARK_BYTES + 1];
    int fd = open(vote->mark_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool good = fd >= 0 && read(fd, data, sizeof data) == (ssize_t)MARK_BYTES;
    if (fd >= 0)
        close(fd);
    if (good) {
        struct bytes_reader reader = bytes_reader_init(data, MARK_BYTES);
        struct digest digest = digest_of(data, MARK_BODY_BYTES);
        good = bytes_get_u32(&reader) == MARK_MAGIC && bytes_get_u32(&reader) == MARK_VERSION &&
               memcmp(bytes_get(&reader, BOOT_BYTES), vote->boot, BOOT_BYTES) == 0 && vote->boot[0] != '\0';
        uint32_t doubt = bytes_get_u32(&reader);
        mark->doubt = doubt <= VOTE_DOUBT ? (enum vote_doubt)doubt : VOTE_DOUBT;
        mark->number = bytes_get_u64(&reader);
        mark->incarnation = bytes_get_u64(&reader);
        mark->ledger_at = bytes_get_u64(&reader);
        mark->named = bytes_get_u64(&reader);
        mark->trusted_epoch = bytes_get_u64(&reader);
        good = good && memcmp(bytes_get(&reader, DIGEST_BYTES), digest.byte, DIGEST_BYTES) == 0;
    }
    return good;
}

/* A copy of an island's folder beside the first one would find the mark of that one here, and be as sure of its disk:
 * so one daemon has the mark at a time. Where it cannot be made, nothing. */
static enum err open_mark(struct vote *vote)
{
    bool held;
    if (vote->mark_fd < 0)
        vote->mark_fd = open(vote->mark_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (vote->mark_fd < 0 || vote->mark_locked)
        return ERR_OK;
    TRY(fsio_lock(vote->mark_fd, vote->mark_path, &held));
    vote->mark_locked = held;
    return held
               ? ERR_OK
               : err_set(ERR_CONF,
                         "another dilocod is running with these sockets or, if this folder is a copy, with this "
                         "island's key: it has %s; stop it, or give this one sockets of its own ([island] sockets), or "
                         "join as another island (dilococtl join)",
                         vote->mark_path);
}

/* In place: a crash of the machine ends its worth anyway, and a crash of the daemon leaves what was written. With the
 * lock. */
static enum err write_mark(struct vote *vote)
{
    uint8_t data[MARK_BYTES];
    struct bytes_writer writer = bytes_writer_init(data, sizeof data);
    bytes_put_u32(&writer, MARK_MAGIC);
    bytes_put_u32(&writer, MARK_VERSION);
    bytes_put(&writer, vote->boot, BOOT_BYTES);
    bytes_put_u32(&writer, (uint32_t)vote->disk.doubt);
    bytes_put_u64(&writer, vote->durable);
    bytes_put_u64(&writer, vote->disk.incarnation);
    bytes_put_u64(&writer, vote->ledger_at);
    bytes_put_u64(&writer, vote->disk.named);
    bytes_put_u64(&writer, vote->disk.trusted_epoch);
    struct digest digest = digest_of(data, MARK_BODY_BYTES);
    bytes_put(&writer, digest.byte, DIGEST_BYTES);
    TRY(open_mark(vote));
    if (vote->mark_fd < 0)
        return fsio_failed(ERR_IO, "cannot create %s", vote->mark_path);
    if (pwrite(vote->mark_fd, data, sizeof data, 0) != (ssize_t)sizeof data)
        return fsio_failed(ERR_IO, "cannot write %s", vote->mark_path);
    return ERR_OK;
}

/* In doubt nothing rests on the mark: without it the next start is in doubt anew, by another incarnation. With the
 * lock. */
static enum err mark_if_can(struct vote *vote)
{
    enum err err = write_mark(vote);
    return vote->disk.doubt == VOTE_SURE ? err : ERR_OK;
}

/* ---- the file ---- */

static enum err damaged(const struct vote *vote)
{
    return err_set(ERR_CORRUPT,
                   "%s is damaged; move it away: this island then asks the others what it holds, before it "
                   "votes again",
                   vote->path);
}

static enum err parse(struct vote *vote, const char *data, size_t bytes)
{
    struct bytes_reader reader = bytes_reader_init(data, bytes);
    if (bytes < VOTE_HEAD_BYTES + DIGEST_BYTES)
        return damaged(vote);
    struct digest digest = digest_of(data, bytes - DIGEST_BYTES);
    if (memcmp(data + bytes - DIGEST_BYTES, digest.byte, DIGEST_BYTES) != 0 || bytes_get_u32(&reader) != VOTE_MAGIC ||
        bytes_get_u32(&reader) != VOTE_VERSION)
        return damaged(vote);
    vote->number = bytes_get_u64(&reader);
    vote->disk.incarnation = bytes_get_u64(&reader);
    vote->disk.vote.epoch = bytes_get_u64(&reader);
    vote->disk.vote.promised = bytes_get_u64(&reader);
    vote->disk.vote.accepted = bytes_get_u64(&reader);
    vote->disk.vote.own = bytes_get_u64(&reader);
    memcpy(vote->disk.vote.digest.byte, bytes_get(&reader, DIGEST_BYTES), DIGEST_BYTES);
    uint64_t count = bytes_get_u64(&reader);
    if (count != bytes - VOTE_HEAD_BYTES - DIGEST_BYTES)
        return damaged(vote);
    TRY(mem_new((size_t)count, 1, "the last vote", &vote->bytes));
    memcpy(vote->bytes, bytes_get(&reader, (size_t)count), (size_t)count);
    vote->disk.vote.bytes = vote->bytes;
    vote->disk.vote.bytes_count = (size_t)count;
    return ERR_OK;
}

void vote_file_deinit(struct vote_file *file)
{
    mem_free(file->bytes);
    *file = (struct vote_file){0};
}

enum err vote_pack(const struct vote *vote, struct vote_file *file)
{
    size_t bytes = VOTE_HEAD_BYTES + vote->disk.vote.bytes_count + DIGEST_BYTES;
    *file = (struct vote_file){.bytes_count = bytes, .number = vote->number};
    TRY(mem_new(bytes, 1, "the last vote", &file->bytes));
    struct bytes_writer writer = bytes_writer_init(file->bytes, bytes);
    bytes_put_u32(&writer, VOTE_MAGIC);
    bytes_put_u32(&writer, VOTE_VERSION);
    bytes_put_u64(&writer, vote->number);
    bytes_put_u64(&writer, vote->disk.incarnation);
    bytes_put_u64(&writer, vote->disk.vote.epoch);
    bytes_put_u64(&writer, vote->disk.vote.promised);
    bytes_put_u64(&writer, vote->disk.vote.accepted);
    bytes_put_u64(&writer, vote->disk.vote.own);
    bytes_put(&writer, vote->disk.vote.digest.byte, DIGEST_BYTES);
    bytes_put_u64(&writer, vote->disk.vote.bytes_count);
    bytes_put(&writer, vote->disk.vote.bytes, vote->disk.vote.bytes_count);
    struct digest digest = digest_of(file->bytes, bytes - DIGEST_BYTES);
    bytes_put(&writer, digest.byte, DIGEST_BYTES);
    return ERR_OK;
}

enum err vote_write(struct vote *vote, const struct vote_file *file)
{
    TRY(fsio_replace(vote->path, file->bytes, file->bytes_count, 0600));
    pthread_mutex_lock(&vote->lock);
    vote->durable = file->number;
    enum err err = mark_if_can(vote);
    pthread_mutex_unlock(&vote->lock);
    return err;
}

/* ---- life ---- */

static enum err load(struct vote *vote)
{
    char *data = NULL;
    size_t bytes;
    enum err err = fsio_read(vote->path, VOTE_HEAD_BYTES + CONFIG_BYTES_MAX + DIGEST_BYTES, &data, &bytes);
    if (err == ERR_NOTFOUND) {
        vote->disk.doubt = VOTE_FRESH;
        return ERR_OK;
    }
    if (err == ERR_OK)
        err = parse(vote, data, bytes);
    mem_free(data);
    return err;
}

/* As another disk, durably. */
static enum err begin_anew(struct vote *vote)
{
    struct vote_file file;
    vote->disk.incarnation = env_random_u64() | 1;
    vote->number++;
    TRY(vote_pack(vote, &file));
    enum err err = vote_write(vote, &file);
    vote_file_deinit(&file);
    return err;
}

/* A disk that may have forgotten something is another disk. One that was in doubt already, and has forgotten nothing
 * since, stays the same, so that a configuration may name it however often it is started. */
static enum err judge(struct vote *vote, uint64_t ledger_at)
{
    struct mark mark;
    vote->ledger_at = ledger_at;
    vote->durable = vote->number;
    bool marked = read_mark(vote, &mark);
    vote->why = "";
    if (vote->disk.doubt == VOTE_SURE && marked && mark.number == vote->number &&
        mark.incarnation == vote->disk.incarnation && ledger_at >= mark.ledger_at) {
        vote->disk.doubt = mark.doubt;
        vote->disk.named = mark.named;
        vote->disk.trusted_epoch = mark.trusted_epoch;
        vote->why = mark.doubt == VOTE_DOUBT ? "it was so before, and no configuration has named it since" : "";
        return ERR_OK;
    }
    if (vote->disk.doubt == VOTE_FRESH && marked) {
        vote->disk.doubt = VOTE_DOUBT;
        vote->why = "the state folder was emptied";
    } else if (vote->disk.doubt == VOTE_SURE && !marked) {
        vote->disk.doubt = VOTE_DOUBT;
        vote->why = "this machine was started again, or the state folder was moved here";
    } else if (vote->disk.doubt == VOTE_SURE &&
               (mark.number != vote->number || mark.incarnation != vote->disk.incarnation)) {
        vote->disk.doubt = VOTE_DOUBT;
        vote->why = "the state folder is older than it was: its last vote is missing";
    } else if (vote->disk.doubt == VOTE_SURE) {
        vote->disk.doubt = VOTE_DOUBT;
        vote->why = "the state folder is older than it was: the end of the ledger is missing";
    }
    return begin_anew(vote);
}

enum err vote_lost(struct vote *vote, const char *why)
{
    if (vote->disk.doubt != VOTE_SURE)
        return ERR_OK;
    vote->disk.doubt = VOTE_DOUBT;
    vote->why = why;
    return begin_anew(vote);
}

enum err vote_open(const struct vote_conf *conf, uint64_t ledger_at, struct vote **out)
{
    enum err err;
    struct vote *vote = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *vote, "the last vote", &vote));
    pthread_mutex_init(&vote->lock, NULL);
    vote->mark_fd = -1;
    vote->exposed = conf->exposed;
    TRY_OUT(mem_printf(&vote->path, "%s/vote", conf->folder));
    TRY_OUT(mem_strdup(conf->mark, &vote->mark_path));
    read_boot(vote);
    TRY_OUT(load(vote));
    TRY_OUT(open_mark(vote));
    TRY_OUT(judge(vote, ledger_at));
out:
    if (err != ERR_OK)
        vote_close(vote);
    else
        *out = vote;
    return err;
}

void vote_close(struct vote *vote)
{
    if (vote == NULL)
        return;
    if (vote->mark_fd >= 0)
        close(vote->mark_fd);
    pthread_mutex_destroy(&vote->lock);
    mem_free(vote->bytes);
    mem_free(vote->path);
    mem_free(vote->mark_path);
    mem_free(vote);
}

enum vote_doubt vote_doubt(const struct vote *vote)
{
    return vote->disk.doubt;
}

const char *vote_why(const struct vote *vote)
{
    return vote->why;
}

bool vote_exposed(const struct vote *vote)
{
    return vote->exposed;
}

uint64_t vote_incarnation(const struct vote *vote)
{
    return vote->disk.incarnation;
}

const struct voting_disk *vote_disk(const struct vote *vote)
{
    return &vote->disk;
}

const struct paxos_vote *vote_last(const struct vote *vote)
{
    return &vote->disk.vote;
}

enum err vote_take(struct vote *vote, const struct paxos_vote *last)
{
    uint8_t *bytes;
    TRY(mem_new(last->bytes_count, 1, "the last vote", &bytes));
    if (last->bytes_count > 0)
        memcpy(bytes, last->bytes, last->bytes_count);
    mem_free(vote->bytes);
    vote->bytes = bytes;
    vote->disk.vote = *last;
    vote->disk.vote.bytes = bytes;
    vote->number++;
    return ERR_OK;
}

enum err vote_mark(struct vote *vote, uint64_t ledger_at)
{
    pthread_mutex_lock(&vote->lock);
    vote->ledger_at = ledger_at;
    enum err err = mark_if_can(vote);
    pthread_mutex_unlock(&vote->lock);
    return err;
}

enum err vote_settle(struct vote *vote, uint64_t named, uint64_t trusted_epoch)
{
    pthread_mutex_lock(&vote->lock);
    struct voting_disk before = vote->disk;
    vote->disk.doubt = VOTE_SURE;
    vote->disk.named = named;
    vote->disk.trusted_epoch = trusted_epoch;
    enum err err = write_mark(vote); /* without one the next start would be in doubt again, after it has voted */
    if (err != ERR_OK)
        vote->disk = before;
    else
        vote->why = "";
    pthread_mutex_unlock(&vote->lock);
    return err;
}

void vote_distrust(struct vote *vote)
{
    pthread_mutex_lock(&vote->lock);
    vote->disk.doubt = VOTE_DOUBT;
    vote->why = "the newest configuration names another disk of this island: a copy of its folder runs elsewhere";
    (void)mark_if_can(vote);
    pthread_mutex_unlock(&vote->lock);
}
