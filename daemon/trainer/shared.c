/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/shared.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/rules.h"
#include "net/config/config.h"

/* Areas begin on pages, tables on cache lines. */
enum { PAGE_BYTES = 4096, LINE_BYTES = 64, AREAS = 2 };

/* Our own copy of what the shared memory says about places: the trainer can write there, so we do not ask it. */
struct shared_fragment {
    uint64_t values_count, area_offset[AREAS];
    uint64_t counted;   /* mask: shards of which an applied result counts us, and the trainer has not taken it in yet */
    bool void_work;     /* the snapshot was refused: the trainer's values are replaced by the next anchor */
    bool publish_waits; /* an anchor is to be given as soon as the trainer has finished what it is doing */
};

struct shared {
    struct shared_conf conf;
    int fd;
    struct ipc_shm *shm;
    uint64_t bytes, session, fragments_offset;
    struct shared_fragment *fragments;
    uint32_t pins;
};

static uint32_t fragments_of(const struct shared *shared)
{
    return shared->conf.plan->plan->fragments_count;
}

static struct ipc_fragment *ipc_at(const struct shared *shared, uint32_t f)
{
    char *table = (char *)shared->shm + shared->fragments_offset; /* not the shared memory's own word for it */
    return (struct ipc_fragment *)(void *)table + f;
}

static float *area_at(const struct shared *shared, uint32_t f, uint32_t index)
{
    return (float *)(void *)((char *)shared->shm + shared->fragments[f].area_offset[index & 1]);
}

float *shared_base(struct shared *shared, uint32_t f)
{
    return area_at(shared, f, ipc_at(shared, f)->base);
}

float *shared_area(struct shared *shared, uint32_t f)
{
    return area_at(shared, f, ipc_at(shared, f)->base ^ 1);
}

/* ---- making it ---- */

static uint64_t aligned(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

/* Places of everything, in order; returns the size. */
static uint64_t lay_out(const struct plan *plan, struct ipc_shm *head, struct shared_fragment *fragments)
{
    uint64_t at = aligned(sizeof *head, LINE_BYTES);
    head->fragments_offset = at;
    at = aligned(at + plan->fragments_count * sizeof(struct ipc_fragment), LINE_BYTES);
    head->places_offset = at;
    at = aligned(at + plan->tensors_count * sizeof(struct ipc_place), PAGE_BYTES);
    for (uint32_t f = 0; f < plan->fragments_count; f++) {
        fragments[f].values_count = plan->fragments[f].values_count;
        for (int area = 0; area < AREAS; area++) {
            fragments[f].area_offset[area] = at;
            at = aligned(at + fragments[f].values_count * sizeof(float), LINE_BYTES);
        }
    }
    return at;
}

_Static_assert((int)CONFIG_FRAGMENTS_MAX <= (int)IPC_FRAGMENTS_MAX, "trainers take as many as a run may have");

static struct ipc_shm head_of(const struct shared_conf *conf)
{
    const struct runspec *spec = conf->spec;
    struct rules_eager eager = rules_eager(spec);
    return (struct ipc_shm){.magic = IPC_MAGIC,
                            .version = IPC_VERSION,
                            .fragments_count = conf->plan->plan->fragments_count,
                            .tensors_count = conf->plan->tensors_count,
                            .late_wait = spec->late == RUNSPEC_WAIT,
                            .run_slack = rules_run_slack(spec),
                            .plan_tag = digest_tag(&conf->plan->plan->digest),
                            .overlap = (uint64_t)spec->overlap,
                            .steps = runspec_length(spec),
                            .mix = spec->mix,
                            .set_aside = rules_set_aside(spec),
                            .eager_fresh = eager.fresh,
                            .eager_past = eager.past,
                            .eager_decay = eager.decay};
}

static void fill_tables(struct shared *shared)
{
    const struct plan *plan = shared->conf.plan->plan;
    for (uint32_t f = 0; f < plan->fragments_count; f++) {
        struct ipc_fragment *fragment = ipc_at(shared, f);
        fragment->values_count = shared->fragments[f].values_count;
        fragment->area_offset[0] = shared->fragments[f].area_offset[0];
        fragment->area_offset[1] = shared->fragments[f].area_offset[1];
        fragment->due_step = UINT64_MAX;
        fragment->eager_share = 1.0 / view_islands(shared->conf.view, shared->conf.view->count);
    }
    struct ipc_place *places = ipc_places(shared->shm);
    for (uint32_t i = 0; i < plan->tensors_count; i++)
        places[i] = (struct ipc_place){
            .fragment = plan->tensors[i].fragment, .offset = plan->tensors[i].offset, .count = plan->tensors[i].count};
}

static enum err map_memory(struct shared *shared, uint64_t bytes)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd, 0);
    if (map == MAP_FAILED)
        return err_set_errno(ERR_NOMEM, "cannot map %" PRIu64 " bytes shared with the trainer", bytes);
    shared->shm = map;
    shared->bytes = bytes;
    return ERR_OK;
}

static enum err new_shared(const struct shared_conf *conf, int fd, struct shared **out)
{
    TRY(mem_new(1, sizeof **out, "the trainer's memory", out));
    (*out)->conf = *conf;
    (*out)->fd = fd;
    return mem_new(fragments_of(*out), sizeof *(*out)->fragments, "the trainer's fragments", &(*out)->fragments);
}

static enum err make(struct shared *shared)
{
    struct ipc_shm head = head_of(&shared->conf);
    head.bytes = lay_out(shared->conf.plan->plan, &head, shared->fragments);
    head.session = shared->session = env_random_u64() | 1;
    shared->fragments_offset = head.fragments_offset;
    shared->fd = memfd_create("diloco", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* The size is sealed: a trainer that shrinks it would make our next access a SIGBUS. */
    if (shared->fd < 0 || ftruncate(shared->fd, (off_t)head.bytes) != 0 ||
        fcntl(shared->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return err_set_errno(ERR_NOMEM, "cannot make %" PRIu64 " bytes of memory shared with the trainer", head.bytes);
    TRY(map_memory(shared, head.bytes));
    memcpy(shared->shm, &head, sizeof head);
    fill_tables(shared);
    return ERR_OK;
}

enum err shared_make(const struct shared_conf *conf, struct shared **out)
{
    struct shared *shared = NULL;
    *out = NULL;
    enum err err = new_shared(conf, -1, &shared);
    if (err == ERR_OK)
        err = make(shared);
    if (err != ERR_OK)
        shared_free(shared);
    else
        *out = shared;
    return err;
}

/* ---- taking it over ---- */

static bool same_run(const struct ipc_shm *shm, const struct ipc_shm *want)
{
    return shm->fragments_count == want->fragments_count && shm->tensors_count == want->tensors_count &&
           shm->plan_tag == want->plan_tag && shm->overlap == want->overlap && shm->mix == want->mix &&
           shm->late_wait == want->late_wait && shm->run_slack == want->run_slack &&
           shm->set_aside == want->set_aside && shm->eager_fresh == want->eager_fresh &&
           shm->eager_past == want->eager_past && shm->eager_decay == want->eager_decay;
}

static enum err check_adopted(const struct shared *shared, const struct ipc_shm *want, uint64_t session)
{
    const struct ipc_shm *shm = shared->shm;
    TRY(ipc_shm_check(shm, shared->bytes));
    if (shm->bytes != want->bytes || shm->fragments_offset != want->fragments_offset ||
        shm->places_offset != want->places_offset)
        return err_set(ERR_PROTO, "the trainer's shared memory has another layout");
    if (shm->session != session || !same_run(shm, want))
        return err_set(ERR_PROTO, "the trainer's shared memory is of another run or plan");
    for (uint32_t f = 0; f < fragments_of(shared); f++)
        if (ipc_at(shared, f)->values_count != shared->fragments[f].values_count ||
            ipc_at(shared, f)->area_offset[0] != shared->fragments[f].area_offset[0] ||
            ipc_at(shared, f)->area_offset[1] != shared->fragments[f].area_offset[1])
            return err_set(ERR_PROTO, "the trainer's shared memory has another layout");
    return ERR_OK;
}

static enum err adopt(struct shared *shared, uint64_t session)
{
    struct ipc_shm want = head_of(&shared->conf);
    struct stat status;
    int seals = fcntl(shared->fd, F_GET_SEALS);
    if (fstat(shared->fd, &status) != 0 || status.st_size < (off_t)sizeof want || seals < 0 ||
        (seals & F_SEAL_SHRINK) == 0)
        return err_set(ERR_PROTO, "the trainer passed no shared memory of ours");
    want.bytes = lay_out(shared->conf.plan->plan, &want, shared->fragments);
    shared->fragments_offset = want.fragments_offset;
    shared->session = session;
    if ((uint64_t)status.st_size != want.bytes)
        return err_set(ERR_PROTO, "the trainer's shared memory has another layout");
    TRY(map_memory(shared, want.bytes));
    return check_adopted(shared, &want, session);
}

enum err shared_adopt(const struct shared_conf *conf, int fd, uint64_t session, struct shared **out)
{
    struct shared *shared = NULL;
    *out = NULL;
    enum err err = new_shared(conf, fd, &shared);
    if (shared == NULL)
        close(fd);
    if (err == ERR_OK)
        err = adopt(shared, session);
    if (err != ERR_OK)
        shared_free(shared);
    else
        *out = shared;
    return err;
}

void shared_unmap(struct shared *shared)
{
    if (shared->shm != NULL)
        munmap(shared->shm, shared->bytes);
    if (shared->fd >= 0)
        close(shared->fd);
    shared->shm = NULL;
    shared->fd = -1;
}

void shared_free(struct shared *shared)
{
    if (shared == NULL)
        return;
    shared_unmap(shared);
    mem_free(shared->fragments);
    mem_free(shared);
}

int shared_fd(const struct shared *shared)
{
    return shared->fd;
}

uint64_t shared_session(const struct shared *shared)
{
    return shared->session;
}

uint64_t shared_bytes(const struct shared *shared)
{
    return shared->bytes;
}

void shared_pin(struct shared *shared)
{
    shared->pins++;
}

void shared_unpin(struct shared *shared)
{
    shared->pins--;
}

bool shared_pinned(const struct shared *shared)
{
    return shared->pins > 0;
}

/* Gives away a word that is ours. If it is not what we left there, somebody wrote into the memory. */
static enum err move_ours(struct shared *shared, uint32_t f, enum ipc_word from, enum ipc_word to)
{
    struct ipc_fragment *fragment = ipc_at(shared, f);
    if (ipc_move(fragment, IPC_DAEMON, from, to))
        return ERR_OK;
    return err_set(ERR_PROTO,
                   "fragment %" PRIu32
                   ": the trainer, or another process, wrote %s over the daemon's %s in the shared memory; "
                   "start this trainer anew",
                   f, ipc_word_name(ipc_word(fragment)), ipc_word_name(from));
}

/* ---- for all fragments ---- */

void shared_run_step(struct shared *shared, uint64_t step)
{
    atomic_store(&shared->shm->run_step, step);
}

void shared_run(struct shared *shared, bool paused)
{
    atomic_store(&shared->shm->steps, runspec_length(shared->conf.spec));
    atomic_store(&shared->shm->paused, paused);
}

void shared_deal(struct shared *shared, const struct deal *deal)
{
    ipc_deal_put(shared->shm, deal);
}

/* Steps are the trainer's word. No due step is looked for beyond the run, where growing intervals would be counted off
 * one by one. */
static uint64_t due_after(const struct shared *shared, uint32_t f, uint64_t step)
{
    struct schedule schedule = rules_schedule(shared->conf.spec, fragments_of(shared));
    uint64_t steps = runspec_length(shared->conf.spec);
    return schedule_next_due(&schedule, f, step < steps ? step : steps);
}

uint64_t shared_leave(struct shared *shared, uint64_t step)
{
    uint64_t last = step, steps = runspec_length(shared->conf.spec);
    for (uint32_t f = 0; f < fragments_of(shared); f++) {
        uint64_t due = due_after(shared, f, step);
        last = due > last ? due : last;
    }
    shared->shm->leave_step = last < steps ? last : steps;
    atomic_store(&shared->shm->leave, 1);
    return shared->shm->leave_step;
}

void shared_go(struct shared *shared, uint64_t step)
{
    for (uint32_t f = 0; f < fragments_of(shared); f++) {
        struct ipc_fragment *fragment = ipc_at(shared, f);
        uint64_t due = due_after(shared, f, step);
        /* One that kept work may have stopped before a snapshot that was due. */
        if (fragment->kept == IPC_KEPT_NOTHING || fragment->due_step > due)
            fragment->due_step = due;
    }
}

bool shared_kept(const struct shared *shared, uint32_t f, struct shared_keeps *out)
{
    const struct ipc_fragment *fragment = ipc_at(shared, f);
    uint32_t word = ipc_word(fragment), kept = fragment->kept;
    *out = (struct shared_keeps){
        .version = fragment->base_version, .on_its_way = word == IPC_SNAPSHOT, .lost = kept == IPC_KEPT_BUT_SNAPSHOT};
    return (kept == IPC_KEPT_ALL && (word == IPC_SNAPSHOT || word == IPC_FREE)) || (out->lost && out->on_its_way);
}

bool shared_mixes_later(const struct shared *shared, uint32_t f, uint64_t step)
{
    const struct ipc_fragment *fragment = ipc_at(shared, f);
    return ipc_word(fragment) == IPC_ANCHOR && fragment->mix_step > step;
}

void shared_drop_kept(struct shared *shared, uint32_t f, uint64_t tokens)
{
    struct ipc_fragment *fragment = ipc_at(shared, f);
    for (uint32_t s = 0; s < IPC_RANGES_MAX; s++)
        fragment->counted_tokens[s] = tokens;
    fragment->kept = IPC_KEPT_NOTHING;
    if (!ipc_move(fragment, IPC_DAEMON, IPC_SNAPSHOT, IPC_FREE) && ipc_word(fragment) != IPC_FREE)
        log_warn("fragment %" PRIu32 ": a trainer that begins has the word %s", f, ipc_word_name(ipc_word(fragment)));
}

void shared_based(struct shared *shared, uint32_t f, uint64_t version)
{
    ipc_at(shared, f)->base_version = version;
}

void shared_forget(struct shared *shared, uint32_t f)
{
    shared->fragments[f].counted = 0;
    shared->fragments[f].void_work = false;
}

/* ---- snapshots ---- */

static bool publish_waited(struct shared *shared, uint32_t f)
{
    bool waited = shared->fragments[f].publish_waits;
    shared->fragments[f].publish_waits = false;
    return waited;
}

enum shared_news shared_taken(struct shared *shared, uint32_t f)
{
    if (ipc_word(ipc_at(shared, f)) != IPC_SNAPSHOT)
        return SHARED_NOTHING; /* said again after attaching again, or not true */
    return publish_waited(shared, f) ? SHARED_PUBLISH : SHARED_SNAPSHOT;
}

void shared_snapshot(struct shared *shared, uint32_t f, struct replica_snapshot *out)
{
    const struct ipc_fragment *fragment = ipc_at(shared, f);
    _Static_assert(sizeof out->counted_tokens == sizeof fragment->counted_tokens, "a shard has a place in both");
    out->base = shared_base(shared, f);
    out->theta = shared_area(shared, f);
    uint64_t steps = runspec_length(shared->conf.spec);
    out->step = fragment->snapshot_step < steps ? fragment->snapshot_step : steps; /* others refuse one beyond */
    out->tokens = fragment->snapshot_tokens;
    memcpy(out->counted_tokens, fragment->counted_tokens, sizeof out->counted_tokens);
}

void shared_void(struct shared *shared, uint32_t f, bool is)
{
    shared->fragments[f].void_work = is;
}

/* The part of all parameters that a shard holds. */
static double part_of_all(const struct shared *shared, uint32_t f, uint32_t s)
{
    struct plan_shard shard = plan_shard(shared->conf.plan->plan, f, s);
    double all = 0;
    for (uint32_t k = 0; k < fragments_of(shared); k++)
        all += (double)shared->fragments[k].values_count;
    return (double)(shard.end - shard.begin) / all;
}

void shared_share(struct shared *shared, uint32_t f, double share)
{
    ipc_at(shared, f)->eager_share = share;
}

double shared_counted(struct shared *shared, uint32_t f, uint64_t shards)
{
    struct ipc_fragment *fragment = ipc_at(shared, f);
    double counted = 0;
    shared->fragments[f].counted |= shards;
    for (uint32_t s = 0; s < shared->conf.plan->plan->fragments[f].shards_count; s++) {
        /* Read once each: the trainer may write there meanwhile. */
        uint64_t tokens = fragment->snapshot_tokens, before = fragment->counted_tokens[s];
        if ((shards >> s & 1) == 0 || tokens <= before)
            continue;
        counted += (double)(tokens - before) * part_of_all(shared, f, s);
        fragment->counted_tokens[s] = tokens;
    }
    return counted;
}

enum err shared_release(struct shared *shared, uint32_t f, bool *wake)
{
    struct ipc_fragment *fragment = ipc_at(shared, f);
    *wake = ipc_word(fragment) == IPC_SNAPSHOT;
    if (!*wake)
        return ERR_OK;
    fragment->due_step = due_after(shared, f, fragment->snapshot_step);
    return move_ours(shared, f, IPC_SNAPSHOT, IPC_FREE);
}

/* ---- anchors ---- */

bool shared_publish(struct shared *shared, uint32_t f)
{
    struct ipc_fragment *fragment = ipc_at(shared, f);
    if (ipc_move(fragment, IPC_DAEMON, IPC_FREE, IPC_FILLING)) {
        fragment->mix_step = 0; /* nothing was sent: it is taken in at once */
    } else if (ipc_move(fragment, IPC_DAEMON, IPC_SNAPSHOT, IPC_FILLING)) {
        fragment->due_step = due_after(shared, f, fragment->snapshot_step);
    } else if (!ipc_move(fragment, IPC_DAEMON, IPC_ANCHOR, IPC_FILLING) && ipc_word(fragment) != IPC_FILLING) {
        shared->fragments[f].publish_waits = true; /* COPYING or MIXING: it says when it has finished */
        return false;
    }
    return true;
}

/* The count is ours until it is written: the trainer could move our writes through the one that is there. */
static void put_ranges(struct shared *shared, uint32_t f, struct ipc_fragment *fragment)
{
    const struct shared_fragment *own = &shared->fragments[f];
    uint32_t count = 0, last = 0; /* the last range's mode */
    for (uint32_t s = 0; s < shared->conf.plan->plan->fragments[f].shards_count; s++) {
        struct plan_shard shard = plan_shard(shared->conf.plan->plan, f, s);
        uint32_t mode = own->void_work ? IPC_RESET : (own->counted >> s & 1) != 0 ? IPC_MIX : IPC_SHIFT;
        if (shard.end == shard.begin)
            continue;
        if (count > 0 && mode == last) /* one run */
            fragment->ranges[count - 1].end = shard.end;
        else
            fragment->ranges[count++] = (struct ipc_range){.begin = shard.begin, .end = shard.end, .mode = mode};
        last = mode;
    }
    fragment->ranges_count = count;
}

enum err shared_published(struct shared *shared, uint32_t f, uint64_t version)
{
    struct ipc_fragment *fragment = ipc_at(shared, f);
    put_ranges(shared, f, fragment);
    fragment->anchor_version = version;
    return move_ours(shared, f, IPC_FILLING, IPC_ANCHOR);
}

bool shared_withdraw(struct shared *shared, uint32_t f)
{
    return ipc_move(ipc_at(shared, f), IPC_DAEMON, IPC_ANCHOR, IPC_FILLING);
}

enum shared_news shared_mixed(struct shared *shared, uint32_t f)
{
    uint32_t word = ipc_word(ipc_at(shared, f));
    if (word == IPC_ANCHOR || word == IPC_MIXING || word == IPC_FILLING)
        return SHARED_NOTHING; /* about an earlier anchor; this one's own word follows */
    shared_forget(shared, f);
    return publish_waited(shared, f) ? SHARED_PUBLISH : SHARED_MIXED;
}

bool shared_stands(const struct shared *shared, uint32_t f, uint64_t step)
{
    const struct ipc_fragment *fragment = ipc_at(shared, f);
    uint32_t word = ipc_word(fragment);
    bool ours = word == IPC_SNAPSHOT || word == IPC_FILLING;
    return shared->conf.spec->late == RUNSPEC_WAIT && ours && step >= fragment->mix_step;
}

/* ---- attaching again ---- */

static bool resets(const struct ipc_fragment *fragment)
{
    for (uint32_t r = 0; r < fragment->ranges_count && r < IPC_RANGES_MAX; r++)
        if (fragment->ranges[r].mode == IPC_RESET)
            return true;
    return false;
}

enum err shared_resume(struct shared *shared, uint32_t f, uint64_t version, struct shared_resumed *out)
{
    struct ipc_fragment *fragment = ipc_at(shared, f);
    uint64_t base_version = fragment->base_version;
    uint32_t word = ipc_word(fragment);
    bool up_to_date = base_version >= version;
    bool on_its_way = word == IPC_SNAPSHOT || word == IPC_FILLING || word == IPC_ANCHOR;
    shared->fragments[f].counted = 0;
    shared->fragments[f].void_work |= word == IPC_ANCHOR && resets(fragment);
    *out = (struct shared_resumed){.base_version = base_version,
                                   .in_flight = !up_to_date && on_its_way,
                                   .snapshot = word == IPC_SNAPSHOT && up_to_date};
    /* An anchor comes, by what is counted of the snapshot that is there now. Once the trainer may move words again it
     * could take the anchor of before in and leave the next snapshot there, which would be taken for the same. */
    if (!up_to_date)
        (void)shared_publish(shared, f);
    /* We died while writing an anchor of which the ledger knows nothing: the trainer takes its snapshot anew. */
    return word == IPC_FILLING && up_to_date ? move_ours(shared, f, IPC_FILLING, IPC_FREE) : ERR_OK;
}
