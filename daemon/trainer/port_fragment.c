#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mem.h"
#include "daemon/trainer/port_parts.h"

struct ipc_fragment *port_ipc(struct port *port, uint32_t f)
{
    char *table = (char *)port->shm + port->fragments_offset; /* not the shared memory's own word for it */
    return (struct ipc_fragment *)(void *)table + f;
}

/* Gives away a word that is ours. If it is not what we left there, somebody wrote into the memory: nothing in it can
 * be believed, so the trainer is told to begin anew, and its attachment ends as if it had died. */
static void word_give(struct port *port, uint32_t f, enum ipc_word from, enum ipc_word to)
{
    struct ipc_fragment *fragment = port_ipc(port, f);
    struct ipc_message refusal = {.type = IPC_REFUSED};
    if (ipc_move(fragment, IPC_DAEMON, from, to))
        return;
    snprintf(refusal.text, sizeof refusal.text,
             "fragment %" PRIu32
             ": the trainer, or another process, wrote %s over the daemon's %s in the shared memory; "
             "start this trainer anew",
             f, ipc_word_name(ipc_word(fragment)), ipc_word_name(from));
    log_error("the trainer is refused: %s", refusal.text);
    if (ipc_send(port->socket, &refusal, -1) != ERR_OK)
        log_debug("the trainer was not told: %s", err_text());
    shutdown(port->socket, SHUT_RDWR);
}

static float *area_at(struct port *port, uint32_t f, uint32_t index)
{
    return (float *)(void *)((char *)port->shm + port->fragments[f].area_offset[index & 1]);
}

float *port_base(struct port *port, uint32_t f)
{
    return area_at(port, f, port_ipc(port, f)->base);
}

float *port_area(struct port *port, uint32_t f)
{
    return area_at(port, f, port_ipc(port, f)->base ^ 1);
}

/* ---- the shared memory ---- */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Places of everything, in order; returns the size. */
static uint64_t lay_out(const struct engine *engine, struct ipc_shm *head, struct port_fragment *fragments)
{
    const struct plan *plan = engine->plan->plan;
    uint64_t at = aligned(sizeof *head);
    head->fragments_offset = at;
    at = aligned(at + plan->fragments_count * sizeof(struct ipc_fragment));
    head->places_offset = at;
    at = aligned(at + plan->tensors_count * sizeof(struct ipc_place));
    at = (at + 4095) / 4096 * 4096;
    for (uint32_t f = 0; f < plan->fragments_count; f++) {
        fragments[f].values_count = plan->fragments[f].values_count;
        for (int area = 0; area < 2; area++) {
            fragments[f].area_offset[area] = at;
            at = aligned(at + fragments[f].values_count * sizeof(float));
        }
    }
    return at;
}

static struct ipc_shm head_of(const struct engine *engine)
{
    struct rules_eager eager = rules_eager(&engine->spec, engine->view.count);
    return (struct ipc_shm){.magic = IPC_MAGIC,
                            .version = IPC_VERSION,
                            .fragments_count = engine_fragments(engine),
                            .tensors_count = engine->plan->tensors_count,
                            .late_wait = engine->spec.late == RUNSPEC_WAIT,
                            .run_slack = rules_run_slack(&engine->spec),
                            .plan_tag = digest_tag(&engine->plan->plan->digest),
                            .overlap = (uint64_t)engine->spec.overlap,
                            .steps = (uint64_t)engine->spec.steps,
                            .mix = engine->spec.mix,
                            .set_aside = rules_set_aside(&engine->spec),
                            .eager_fresh = eager.fresh,
                            .eager_past = eager.past,
                            .eager_decay = eager.decay};
}

static void fill_tables(struct engine *engine)
{
    struct port *port = engine->port;
    const struct plan *plan = engine->plan->plan;
    for (uint32_t f = 0; f < plan->fragments_count; f++) {
        struct ipc_fragment *fragment = port_ipc(port, f);
        fragment->values_count = port->fragments[f].values_count;
        fragment->area_offset[0] = port->fragments[f].area_offset[0];
        fragment->area_offset[1] = port->fragments[f].area_offset[1];
        fragment->due_step = UINT64_MAX;
    }
    struct ipc_place *places = ipc_places(port->shm);
    for (uint32_t i = 0; i < plan->tensors_count; i++)
        places[i] = (struct ipc_place){
            .fragment = plan->tensors[i].fragment, .offset = plan->tensors[i].offset, .count = plan->tensors[i].count};
}

static enum err map_memfd(struct port *port, int fd, uint64_t bytes)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_set_errno(ERR_NOMEM, "cannot map %" PRIu64 " bytes shared with the trainer", bytes);
    port->memfd = fd;
    port->shm = map;
    port->shm_bytes = bytes;
    return ERR_OK;
}

enum err port_make_shm(struct engine *engine)
{
    struct port *port = engine->port;
    struct ipc_shm head = head_of(engine);
    TRY(mem_new(engine_fragments(engine), sizeof *port->fragments, "the trainer's fragments", &port->fragments));
    head.bytes = lay_out(engine, &head, port->fragments);
    head.session = port->session = env_random_u64() | 1;
    port->fragments_offset = head.fragments_offset;
    int fd = memfd_create("diloco", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* The size is sealed: a trainer that shrinks it would make our next access a SIGBUS. */
    if (fd < 0 || ftruncate(fd, (off_t)head.bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        enum err err =
            err_set_errno(ERR_NOMEM, "cannot make %" PRIu64 " bytes of memory shared with the trainer", head.bytes);
        if (fd >= 0)
            close(fd);
        return err;
    }
    enum err err = map_memfd(port, fd, head.bytes);
    if (err != ERR_OK) {
        close(fd);
        return err;
    }
    memcpy(port->shm, &head, sizeof head);
    fill_tables(engine);
    return ERR_OK;
}

static enum err check_adopted(const struct engine *engine, struct port *port, const struct ipc_shm *want)
{
    const struct ipc_shm *shm = port->shm;
    TRY(ipc_shm_check(shm, port->shm_bytes));
    if (shm->bytes != want->bytes || shm->fragments_offset != want->fragments_offset ||
        shm->places_offset != want->places_offset)
        return err_set(ERR_PROTO, "the trainer's shared memory has another layout");
    if (shm->session != port->hello.session || shm->fragments_count != want->fragments_count ||
        shm->tensors_count != want->tensors_count || shm->plan_tag != want->plan_tag || shm->overlap != want->overlap ||
        shm->steps != want->steps || shm->mix != want->mix || shm->late_wait != want->late_wait ||
        shm->run_slack != want->run_slack || shm->set_aside != want->set_aside ||
        shm->eager_fresh != want->eager_fresh || shm->eager_past != want->eager_past ||
        shm->eager_decay != want->eager_decay)
        return err_set(ERR_PROTO, "the trainer's shared memory is of another run or plan");
    for (uint32_t f = 0; f < engine_fragments(engine); f++)
        if (port_ipc(port, f)->values_count != port->fragments[f].values_count ||
            port_ipc(port, f)->area_offset[0] != port->fragments[f].area_offset[0] ||
            port_ipc(port, f)->area_offset[1] != port->fragments[f].area_offset[1])
            return err_set(ERR_PROTO, "the trainer's shared memory has another layout");
    return ERR_OK;
}

enum err port_adopt_shm(struct engine *engine, int fd)
{
    struct port *port = engine->port;
    struct ipc_shm want = head_of(engine);
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &status) != 0 || status.st_size < (off_t)sizeof want || seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return err_set(ERR_PROTO, "the trainer passed no shared memory of ours");
    TRY(mem_new(engine_fragments(engine), sizeof *port->fragments, "the trainer's fragments", &port->fragments));
    want.bytes = lay_out(engine, &want, port->fragments);
    port->fragments_offset = want.fragments_offset;
    TRY(map_memfd(port, fd, (uint64_t)status.st_size));
    port->session = port->hello.session;
    return check_adopted(engine, port, &want);
}

void port_drop_shm(struct engine *engine)
{
    struct port *port = engine->port;
    if (port->shm != NULL)
        munmap(port->shm, port->shm_bytes);
    if (port->memfd >= 0)
        close(port->memfd);
    mem_free(port->fragments);
    port->fragments = NULL;
    port->shm = NULL;
    port->memfd = -1;
    port->session = 0;
}

void port_pin(struct engine *engine)
{
    engine->port->pins++;
}

void port_unpin(struct engine *engine)
{
    engine->port->pins--;
}

/* ---- snapshots ---- */

bool port_snapshot(struct engine *engine, uint32_t f, struct port_snapshot *out)
{
    struct port *port = engine->port;
    if (port->shm == NULL)
        return false;
    const struct ipc_fragment *fragment = port_ipc(port, f);
    out->base = port_base(port, f);
    out->theta = port_area(port, f);
    out->step = fragment->snapshot_step;
    out->tokens = fragment->snapshot_tokens;
    memcpy(out->counted_tokens, fragment->counted_tokens, sizeof out->counted_tokens);
    return true;
}

void port_counted(struct engine *engine, uint32_t f, uint64_t shards)
{
    struct port *port = engine->port;
    if (port->shm == NULL || port->closing || !port->fragments[f].up)
        return; /* whose work it was is gone */
    engine->fragments[f].mixed_shards |= shards;
    struct ipc_fragment *fragment = port_ipc(port, f);
    for (uint32_t s = 0; s < engine->view.count; s++)
        if ((shards >> s & 1) != 0 && fragment->snapshot_tokens > fragment->counted_tokens[s])
            fragment->counted_tokens[s] = fragment->snapshot_tokens;
}

void port_run_step(struct engine *engine, uint64_t step)
{
    struct port *port = engine->port;
    if (port->shm != NULL && !port->closing)
        atomic_store(&port->shm->run_step, step);
}

static uint64_t due_after(const struct engine *engine, uint32_t f, uint64_t step)
{
    struct schedule schedule = rules_schedule(&engine->spec, engine_fragments(engine));
    return schedule_next_due(&schedule, f, step);
}

void port_taken(struct engine *engine, uint32_t f)
{
    struct port *port = engine->port;
    if (ipc_word(port_ipc(port, f)) != IPC_SNAPSHOT)
        return; /* said again after attaching again, or not true */
    if (port->fragments[f].give_waits) {
        port->fragments[f].give_waits = false;
        port_give(engine, f);
    } else if (port->fragments[f].up) {
        engine_event(engine, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
    }
}

void port_release(struct engine *engine, uint32_t f)
{
    struct port *port = engine->port;
    if (port->shm == NULL || port->closing)
        return;
    struct ipc_fragment *fragment = port_ipc(port, f);
    if (ipc_word(fragment) != IPC_SNAPSHOT)
        return;
    fragment->due_step = due_after(engine, f, fragment->snapshot_step);
    word_give(port, f, IPC_SNAPSHOT, IPC_FREE);
    port_wake(port, f);
}

/* ---- anchors ---- */

void port_give(struct engine *engine, uint32_t f)
{
    struct port *port = engine->port;
    if (port->shm == NULL || port->closing)
        return;
    struct ipc_fragment *fragment = port_ipc(port, f);
    if (ipc_move(fragment, IPC_DAEMON, IPC_FREE, IPC_FILLING)) {
        fragment->mix_step = 0; /* nothing was sent: it is taken in at once */
    } else if (ipc_move(fragment, IPC_DAEMON, IPC_SNAPSHOT, IPC_FILLING)) {
        fragment->due_step = due_after(engine, f, fragment->snapshot_step);
    } else if (ipc_word(fragment) == IPC_ANCHOR && fragment->anchor_version == engine->fragments[f].state.version) {
        port_wake(port, f); /* given before we were restarted */
        return;
    } else if (!ipc_move(fragment, IPC_DAEMON, IPC_ANCHOR, IPC_FILLING) && ipc_word(fragment) != IPC_FILLING) {
        port->fragments[f].give_waits = true; /* COPYING or MIXING: it says when it has finished */
        return;
    }
    rounds_give(engine, f, port_area(port, f));
}

static void put_ranges(struct engine *engine, uint32_t f, struct ipc_fragment *fragment)
{
    struct engine_fragment *own = &engine->fragments[f];
    fragment->ranges_count = 0;
    for (uint32_t s = 0; s < engine->view.count; s++) {
        struct plan_shard shard = replica_shard(engine->replica, f, s);
        if (shard.end == shard.begin)
            continue;
        uint32_t mode = own->void_work ? IPC_RESET : (own->mixed_shards >> s & 1) != 0 ? IPC_MIX : IPC_SHIFT;
        fragment->ranges[fragment->ranges_count++] =
            (struct ipc_range){.begin = shard.begin, .end = shard.end, .mode = mode};
    }
}

void port_given(struct engine *engine, uint32_t f)
{
    struct port *port = engine->port;
    if (port->shm == NULL || port->closing)
        return;
    struct ipc_fragment *fragment = port_ipc(port, f);
    put_ranges(engine, f, fragment);
    fragment->anchor_version = engine->fragments[f].state.version;
    word_give(port, f, IPC_FILLING, IPC_ANCHOR);
    port_wake(port, f);
}

void port_take_back(struct engine *engine, uint32_t f)
{
    struct port *port = engine->port;
    if (port->shm != NULL && !port->closing && ipc_move(port_ipc(port, f), IPC_DAEMON, IPC_ANCHOR, IPC_FILLING))
        engine_event(engine, &(struct sync_event){.type = SYNC_EV_TAKEN_BACK, .fragment = f});
}

void port_mixed(struct engine *engine, uint32_t f)
{
    struct port *port = engine->port;
    struct engine_fragment *own = &engine->fragments[f];
    uint32_t word = ipc_word(port_ipc(port, f));
    if (word == IPC_ANCHOR || word == IPC_MIXING || word == IPC_FILLING)
        return; /* about an earlier anchor; this one's own word follows */
    own->mixed_shards = 0;
    own->void_work = false;
    if (port->fragments[f].give_waits) {
        port->fragments[f].give_waits = false;
        port_give(engine, f);
        return;
    }
    engine_event(engine, &(struct sync_event){.type = SYNC_EV_MIXED, .fragment = f});
}

/* ---- attaching again ---- */

void port_resume_fragment(struct engine *engine, uint32_t f)
{
    struct port *port = engine->port;
    struct engine_fragment *own = &engine->fragments[f];
    struct ipc_fragment *fragment = port_ipc(port, f);
    uint64_t base_version = fragment->base_version;
    uint32_t word = ipc_word(fragment);
    own->mixed_shards = 0;
    port->fragments[f].up = true;
    /* Its snapshot may have been counted by the round that closed while we were away. */
    bool in_flight = word == IPC_SNAPSHOT || word == IPC_FILLING || word == IPC_ANCHOR;
    if (base_version < own->state.version && in_flight)
        port_counted(engine, f, rounds_included(engine, f, base_version + 1));
    if (word == IPC_ANCHOR)
        for (uint32_t r = 0; r < fragment->ranges_count && r < IPC_RANGES_MAX; r++)
            own->void_work |= fragment->ranges[r].mode == IPC_RESET;
    /* We died while writing an anchor of which the ledger knows nothing: the trainer takes its snapshot anew. */
    if (word == IPC_FILLING && base_version >= own->state.version)
        word_give(port, f, IPC_FILLING, IPC_FREE);
    engine_event(engine, &(struct sync_event){.type = SYNC_EV_TRAINER_UP, .fragment = f, .version = base_version});
    if (word == IPC_SNAPSHOT && base_version >= own->state.version)
        engine_event(engine, &(struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = f});
    port_wake(port, f);
}
