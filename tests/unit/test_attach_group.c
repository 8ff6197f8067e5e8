/* SPDX-License-Identifier: Apache-2.0 */
/* libdiloco with several processes that hold a tensor in parts (here: threads): whatever the parts, the daemon gets
 * what one process alone gives it, and the parts are what one process alone ends with. */
#include "tests/lib/testlib.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "tests/lib/counterpart.h"
#include "tests/lib/late.h"
#include "worker/libdiloco/attach_group.h"

/* WAYS that ranks may be near or far: nobody asks; all near; all far but rank 0; the last one far. */
enum { WAYS = 4 };
enum { ROWS = 25, WIDTH = 20, RANKS_MAX = 4 };

/* ---- the ranks ---- */

enum command { STEP, SETTLE, KEEP, FINISH, QUIT };

static struct rank {
    struct diloco_group group;
    struct diloco_part part;
    struct diloco_device device;
    struct late late;
    float values[COUNT]; /* rank 0 has `tensor` */
    struct diloco *d;
    struct diloco_start start;
    int result;
    uint64_t steps; /* at the end */
    uint64_t seed;
    uint64_t changes; /* steps that changed the tensor */
    _Atomic int kept; /* so often */
    bool other_model;
    char name[32];
    char error[2 * IPC_TEXT_BYTES]; /* the text of its failure */
    pthread_t thread;
} ranks[RANKS_MAX];

static int ranks_count;
static bool far[RANKS_MAX];       /* gets no descriptor */
static bool late_devices, speaks; /* the group has send and receive */
static bool unsettled;            /* steps do not wait for what is on its way */
static pthread_barrier_t meeting, told;
static enum command command;
static char passed[SHM_BYTES];
static int passed_fd;
static int steps;                 /* of rank 0, in this story */
static double heard_s, longest_s; /* when the others last heard of rank 0; how long they ever heard nothing */

static int meet(void *user)
{
    (void)user;
    pthread_barrier_wait(&meeting);
    return 0;
}

static int broadcast(void *user, void *bytes, size_t count, int *fd)
{
    const struct rank *rank = user;
    assert_true(count <= sizeof passed);
    if (rank->group.rank == 0) {
        memcpy(passed, bytes, count);
        passed_fd = *fd;
        longest_s = env_mono_s() - heard_s > longest_s ? env_mono_s() - heard_s : longest_s;
        heard_s = env_mono_s();
    }
    meet(NULL);
    if (rank->group.rank > 0) {
        memcpy(bytes, passed, count);
        *fd = passed_fd >= 0 && !far[rank->group.rank] ? dup(passed_fd) : -1;
    }
    return meet(NULL);
}

/* ---- what far ranks and those that serve them send each other ---- */

enum { POSTS_MAX = 256, LOOKS = 3 };

/* One end of a message; both ends are there before its bytes are moved, and they are late. */
static struct post {
    bool used, sends, met;
    int from, to, looks;
    uint32_t tag;
    uint64_t order;
    void *bytes;
    size_t count;
} posts[POSTS_MAX];

static pthread_mutex_t posts_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t posts_met = PTHREAD_COND_INITIALIZER;
static uint64_t posts_order;
static int lost_rank = -1; /* nothing arrives from or at it any more */

static struct post *oldest(const struct post *like, bool sends)
{
    struct post *found = NULL;
    for (int i = 0; i < POSTS_MAX; i++) {
        struct post *one = &posts[i];
        if (one->used && !one->met && one->sends == sends && one->from == like->from && one->to == like->to &&
            one->tag == like->tag && (found == NULL || one->order < found->order))
            found = one;
    }
    return found;
}

static uint64_t post(int from, int to, uint32_t tag, void *bytes, size_t count, bool sends)
{
    pthread_mutex_lock(&posts_lock);
    struct post *one = posts;
    while (one->used)
        one++;
    assert_true(one < posts + POSTS_MAX);
    *one = (struct post){.used = true,
                         .sends = sends,
                         .from = from,
                         .to = to,
                         .tag = tag,
                         .order = posts_order++,
                         .bytes = bytes,
                         .count = count};
    struct post *sent = oldest(one, true), *received = oldest(one, false);
    if (sent != NULL && received != NULL) {
        if (sent->count != received->count)
            fail_msg("of %zu bytes %zu are waited for", sent->count, received->count);
        sent->met = received->met = true;
        sent->looks = received->looks = sent->count > sizeof(uint32_t) ? LOOKS : 0; /* a word overtakes values */
        memcpy(received->bytes, sent->bytes, sent->count);
        pthread_cond_broadcast(&posts_met);
    }
    uint64_t number = (uint64_t)(one - posts) + 1;
    pthread_mutex_unlock(&posts_lock);
    return number;
}

static uint64_t send_to(void *user, int rank, uint32_t tag, const void *bytes, size_t count)
{
    void *out;
    memcpy(&out, &bytes, sizeof out);
    return post(((struct rank *)user)->group.rank, rank, tag, out, count, true);
}

static uint64_t receive_from(void *user, int rank, uint32_t tag, void *bytes, size_t count)
{
    return post(rank, ((struct rank *)user)->group.rank, tag, bytes, count, false);
}

static int has_arrived(void *user, uint64_t number, int wait)
{
    (void)user;
    pthread_mutex_lock(&posts_lock);
    struct post *one = &posts[number - 1];
    assert_true(one->used);
    bool gone = lost_rank >= 0 && (one->from == lost_rank || one->to == lost_rank);
    while (wait && !one->met && !gone)
        pthread_cond_wait(&posts_met, &posts_lock);
    int result = gone ? -1 : one->met && (wait || one->looks-- <= 0);
    one->used = result == 0;
    pthread_mutex_unlock(&posts_lock);
    return result;
}

static float *values_of(struct rank *rank)
{
    return rank == ranks ? tensor : rank->values;
}

static void add_half(struct rank *rank)
{
    for (uint64_t i = 0; i < rank->part.count; i++)
        values_of(rank)[i] += 0.5f;
}

/* Value i of a part, in the whole tensor. */
static uint64_t place(const struct diloco_part *part, uint64_t i)
{
    uint64_t at = part->first + i;
    return at / part->columns * WIDTH + part->column0 + at % part->columns;
}

static float apart[DILOCO_KEPT_KINDS][COUNT]; /* as the ranks keep it, each its own part */

/* The daemon takes the snapshot back while rank 1 has not read it. */
static bool taken_meanwhile;

static int keep_apart(struct rank *rank, struct diloco *handle)
{
    char rest[4096], again[4096];
    float own[COUNT];
    int result = diloco_keep_begin(handle);
    for (enum diloco_kept kind = 0; result == DILOCO_OK && kind < DILOCO_KEPT_KINDS; kind++) {
        if (diloco_keep_values(handle, 0, kind, NULL, 0) != 1)
            continue;
        if (taken_meanwhile && rank == &ranks[1] && kind == DILOCO_KEPT_SENT) {
            usleep(200000);
            daemon_moves(IPC_SNAPSHOT, IPC_FREE);
        }
        result = diloco_keep_values(handle, 0, kind, own, rank->part.count);
        for (uint64_t i = 0; i < rank->part.count; i++)
            apart[kind][place(&rank->part, i)] = own[i];
    }
    if (result != DILOCO_OK)
        return result;
    size_t bytes = diloco_keep_rest(handle, rest, sizeof rest);
    if (taken_meanwhile && (bytes != diloco_keep_rest(handle, again, sizeof again) || memcmp(rest, again, bytes) != 0))
        return DILOCO_ERROR;
    return (bytes > 0) == (rank == ranks) ? DILOCO_OK : DILOCO_ERROR;
}

static void *follow(void *user)
{
    struct rank *rank = user;
    struct diloco_options options = {.size = sizeof options,
                                     .socket_path = "nobody listens here",
                                     .device = late_devices ? &rank->device : NULL,
                                     .group = &rank->group};
    struct diloco_tensor own = announced;
    own.data = rank->values;
    own.part = rank->part;
    own.name = rank->other_model ? "another" : own.name;
    rank->start.size = sizeof rank->start;
    rank->result = diloco_attach(&options, &rank->d);
    if (rank->result == DILOCO_OK)
        rank->result = diloco_register(rank->d, &own);
    if (rank->result == DILOCO_OK)
        rank->result = diloco_begin(rank->d, &rank->start);
    rank->seed = diloco_seed(rank->d, 5);
    while (rank->result == DILOCO_OK) {
        pthread_barrier_wait(&told);
        enum command now = command; /* rank 0 comes to the next one while we are at this one */
        if (now == QUIT)
            break;
        if (now == STEP)
            add_half(rank);
        if (now == STEP)
            rank->result = diloco_step(rank->d, &(struct diloco_report){.size = sizeof(struct diloco_report)});
        if (now == STEP)
            rank->changes += (uint64_t)diloco_changed(rank->d, 0);
        if (now == SETTLE)
            rank->result = diloco_keep_begin(rank->d);
        if (now == KEEP)
            rank->result = diloco_keep(rank->d, NULL, 0) == 0 ? keep_apart(rank, rank->d) : DILOCO_ERROR;
        if (now == KEEP)
            atomic_fetch_add(&rank->kept, 1);
        if (now == FINISH)
            rank->result = diloco_finish(rank->d);
    }
    snprintf(rank->error, sizeof rank->error, "%s", diloco_error(rank->d));
    rank->steps = diloco_run_step(rank->d);
    diloco_detach(rank->d);
    return NULL;
}

static void make_groups(void)
{
    pthread_barrier_init(&meeting, NULL, (unsigned)ranks_count);
    pthread_barrier_init(&told, NULL, (unsigned)ranks_count);
    for (int r = 0; r < ranks_count; r++) {
        struct rank *rank = &ranks[r];
        rank->group = (struct diloco_group){.size = sizeof rank->group,
                                            .rank = r,
                                            .count = ranks_count,
                                            .user = rank,
                                            .broadcast = broadcast,
                                            .barrier = meet};
        if (speaks) {
            rank->group.send = send_to;
            rank->group.receive = receive_from;
            rank->group.arrived = has_arrived;
            snprintf(rank->name, sizeof rank->name, "rank %d on a %s one", r, far[r] ? "far" : "near");
            rank->group.name = rank->name;
        }
        rank->device = late_device(&rank->late, true);
        rank->d = NULL;
        rank->changes = 0;
        rank->kept = 0;
    }
}

static void start_ranks(void)
{
    make_groups();
    group = ranks_count > 1 ? ranks[0].group : (struct diloco_group){0};
    device = late_devices ? ranks[0].device : (struct diloco_device){0};
    announced.dims = 2;
    announced.shape[0] = ROWS;
    announced.shape[1] = WIDTH;
    announced.part = ranks[0].part;
    for (int r = 1; r < ranks_count; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, follow, &ranks[r]), 0);
    begin();
}

static void say(enum command what)
{
    command = what;
    if (ranks_count > 1)
        pthread_barrier_wait(&told);
}

static void stop_ranks(void)
{
    say(QUIT);
    for (int r = 1; r < ranks_count; r++) {
        pthread_join(ranks[r].thread, NULL);
        assert_int_equal(ranks[r].result, DILOCO_OK);
        assert_int_equal(ranks[r].steps, steps);
        assert_true(ranks[r].seed == diloco_seed(d, 5) && ranks[r].seed != 0);
        assert_int_equal(ranks[r].changes, ranks[0].changes); /* also of one that has no values */
    }
    end();
    for (int i = 0; i < POSTS_MAX; i++)
        assert_false(posts[i].used); /* nothing moves into memory that is no more */
    for (int r = 0; r < ranks_count; r++) {
        assert_true(ranks[r].late.memory == 0 && ranks[r].late.pins == 0 && !ranks[r].late.broken);
        assert_true(!late_devices || ranks[r].part.count == 0 || ranks[r].late.moves > 0);
        late_end(&ranks[r].late);
    }
    group = (struct diloco_group){0};
    device = (struct diloco_device){0};
    pthread_barrier_destroy(&meeting);
    pthread_barrier_destroy(&told);
}

static void step(void)
{
    for (int r = 0; late_devices && steps % 2 == 1 && r < ranks_count; r++)
        ranks[r].late.refuse = r % 2; /* some are later than others, in every other step */
    steps++;
    say(STEP);
    add_half(&ranks[0]);
    assert_int_equal(diloco_step(d, &(struct diloco_report){.size = sizeof(struct diloco_report), .tokens = 10}),
                     DILOCO_OK);
    ranks[0].changes += (uint64_t)diloco_changed(d, 0);
    if (!speaks || ranks_count == 1 || unsettled)
        return;
    say(SETTLE); /* what is on its way arrives before the next step, so that all is done at the same ones */
    assert_int_equal(diloco_keep_begin(d), DILOCO_OK);
}

/* ---- what comes of a story ---- */

struct outcome {
    float sent[2][COUNT]; /* snapshots */
    float under_way[COUNT], tensor[COUNT], last[COUNT];
    size_t kept_bytes;
    char *kept;
    float apart[DILOCO_KEPT_KINDS][COUNT]; /* what is kept a tensor at a time, of all ranks */
    float later[DILOCO_KEPT_KINDS][COUNT]; /* the same once an anchor was taken in */
};

static void gather(float *to)
{
    memset(to, 0, COUNT * sizeof *to);
    for (int r = 0; r < ranks_count; r++)
        for (uint64_t i = 0; i < ranks[r].part.count; i++) {
            assert_true(to[place(&ranks[r].part, i)] == 0);
            to[place(&ranks[r].part, i)] = values_of(&ranks[r])[i];
        }
}

static void keep_of_all(float (*to)[COUNT])
{
    say(KEEP);
    size_t bytes = diloco_keep_bytes(d);
    char *whole = calloc(1, bytes);
    assert_true(diloco_keep(d, whole, bytes) > 0);
    free(whole);
    assert_int_equal(keep_apart(&ranks[0], d), DILOCO_OK);
    memcpy(to, apart, sizeof apart);
    memset(apart, 0, sizeof apart);
}

static void keep(struct outcome *out)
{
    out->kept_bytes = diloco_keep_bytes(d);
    out->kept = calloc(1, out->kept_bytes);
    say(KEEP);
    out->kept_bytes = diloco_keep(d, out->kept, out->kept_bytes);
    assert_true(out->kept_bytes > 0);
    assert_int_equal(keep_apart(&ranks[0], d), DILOCO_OK);
    memcpy(out->apart, apart, sizeof apart);
    memset(apart, 0, sizeof apart);
}

static int answer(int slice)
{
    static const struct ipc_range all = {0, VALUES, IPC_MIX, 0};
    if (ipc_word(fragment) == IPC_SNAPSHOT) {
        bring_anchor(2, 7, &all, 1);
        say_end(true, "");
    }
    return slice > 400;
}

/* Always the same number of steps, whenever devices have come so far. */
static struct outcome story(void)
{
    static const struct ipc_range ranges[] = {
        {0, 110, IPC_MIX, 0}, {110, 333, IPC_SHIFT, 0}, {333, VALUES, IPC_RESET, 0}};
    struct outcome out;
    start_ranks();
    steps = 0;
    fragment->due_step = 2;
    fragment->eager_share = 0.5;
    for (int i = 0; i < 4; i++)
        step();
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    memcpy(out.sent[0], ipc_area(shm, fragment), sizeof out.sent[0]);
    keep(&out);
    gather(out.under_way); /* with an estimate of what comes, where ranks are eager */
    fragment->due_step = 8;
    fragment->mix_step = 6; /* it is there before that */
    bring_anchor(1, 1000, ranges, 3);
    for (int i = 0; i < 6; i++)
        step();
    assert_int_equal(fragment->base_version, 1);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    memcpy(out.sent[1], ipc_area(shm, fragment), sizeof out.sent[1]);
    daemon_moves(IPC_SNAPSHOT, IPC_FREE); /* refused: what was set aside comes back */
    fragment->due_step = UINT64_MAX;
    for (int i = 0; i < 2; i++)
        step();
    keep_of_all(out.later);
    gather(out.tensor);
    while_waiting = answer;
    slices = 0;
    say(FINISH);
    assert_int_equal(diloco_finish(d), DILOCO_OK);
    while_waiting = NULL;
    gather(out.last);
    stop_ranks();
    return out;
}

static void what_is_taken_back_while_a_rank_saves_is_not_kept(void **state)
{
    (void)state;
    struct outcome out;
    ranks_count = 2;
    ranks[0].part = (struct diloco_part){.columns = WIDTH, .first = 0, .count = 111};
    ranks[1].part = (struct diloco_part){.columns = WIDTH, .first = 111, .count = COUNT - 111};
    start_ranks();
    steps = 0;
    fragment->due_step = 1;
    step();
    fragment->due_step = UINT64_MAX;
    taken_meanwhile = true;
    keep(&out);
    taken_meanwhile = false;
    free(out.kept);
    stop_ranks();
}

/* As data-parallel ranks with copies of it all: who saves in rank 0 alone waits for no other. */
static void rank_0_saves_alone_what_it_has_alone(void **state)
{
    (void)state;
    size_t bytes;
    ranks_count = 2;
    ranks[0].part = (struct diloco_part){.columns = WIDTH, .count = COUNT};
    ranks[1].part = (struct diloco_part){.columns = WIDTH, .first = COUNT, .count = 0};
    start_ranks();
    steps = 0;
    fragment->due_step = 1;
    step();
    fragment->due_step = UINT64_MAX;
    assert_int_equal(diloco_keep_ranks(d), 1);
    assert_int_equal(keep_apart(&ranks[0], d), DILOCO_OK); /* nobody else does anything */
    for (int i = 0; i < COUNT; i++)
        assert_true(apart[DILOCO_KEPT_SENT][i] == (float)i + 0.5f);
    bytes = diloco_keep_bytes(d);
    char *kept = calloc(1, bytes);
    assert_true(diloco_keep(d, kept, bytes) > 0);
    free(kept);
    say(KEEP); /* the other one does; this one does not, and goes on when that has come back */
    while (atomic_load(&ranks[1].kept) == 0)
        usleep(1000);
    bring_anchor(1, 1000, &(struct ipc_range){0, VALUES, IPC_MIX, 0}, 1);
    step();
    assert_true(tensor[3] == 0.25f * 4 + 0.75f * 1000);
    stop_ranks();
}

static void all_of_it(void)
{
    ranks_count = 1;
    ranks[0].part = (struct diloco_part){.columns = WIDTH, .count = COUNT};
}

/* As data-parallel ranks divide a tensor: any pieces of it, one of them nothing. */
static void pieces(void)
{
    ranks_count = 3;
    ranks[0].part = (struct diloco_part){.columns = WIDTH, .first = 0, .count = 111};
    ranks[1].part = (struct diloco_part){.columns = WIDTH, .first = 111, .count = COUNT - 111};
    ranks[2].part = (struct diloco_part){.columns = WIDTH, .first = COUNT, .count = 0};
}

/* As tensor-parallel ranks do. */
static void columns(void)
{
    ranks_count = 3;
    ranks[0].part = (struct diloco_part){.column0 = 0, .columns = 7, .count = 7 * ROWS};
    ranks[1].part = (struct diloco_part){.column0 = 7, .columns = 1, .count = ROWS};
    ranks[2].part = (struct diloco_part){.column0 = 8, .columns = 12, .count = 12 * ROWS};
}

/* As both do. */
static void pieces_of_columns(void)
{
    ranks_count = 4;
    ranks[0].part = (struct diloco_part){.column0 = 0, .columns = 9, .first = 0, .count = 100};
    ranks[1].part = (struct diloco_part){.column0 = 0, .columns = 9, .first = 100, .count = 125};
    ranks[2].part = (struct diloco_part){.column0 = 9, .columns = 11, .first = 0, .count = 4};
    ranks[3].part = (struct diloco_part){.column0 = 9, .columns = 11, .first = 4, .count = 271};
}

static void parts_are_the_whole(struct ipc_shm conf)
{
    static void (*const divide[])(void) = {all_of_it, pieces, columns, pieces_of_columns};
    make_conf = conf;
    late_devices = false;
    all_of_it();
    struct outcome want = story();
    for (int which = 0; which < 2 * WAYS; which++)
        for (size_t i = 0; i < 4; i++) {
            late_devices = which % 2 == 1;
            speaks = which / 2 > 0;
            divide[i]();
            for (int r = 0; r < ranks_count; r++)
                far[r] = (which / 2 == 2 && r > 0) || (which / 2 == 3 && r == ranks_count - 1 && r > 0);
            struct outcome got = story();
            assert_memory_equal(got.sent, want.sent, sizeof got.sent);
            assert_memory_equal(got.under_way, want.under_way, sizeof got.under_way);
            assert_memory_equal(got.tensor, want.tensor, sizeof got.tensor);
            assert_memory_equal(got.last, want.last, sizeof got.last);
            assert_int_equal(got.kept_bytes, want.kept_bytes);
            assert_memory_equal(got.kept, want.kept, want.kept_bytes);
            assert_memory_equal(got.apart, want.apart, sizeof want.apart);
            assert_memory_equal(got.later, want.later, sizeof want.later);
            free(got.kept);
        }
    free(want.kept);
    make_conf = (struct ipc_shm){.overlap = 1, .mix = 0.25};
    speaks = late_devices = false;
    memset(far, 0, sizeof far);
}

static void ranks_stream(void **state)
{
    (void)state;
    parts_are_the_whole((struct ipc_shm){.overlap = 1, .mix = 0.25});
}

static void ranks_set_work_aside(void **state)
{
    (void)state;
    parts_are_the_whole((struct ipc_shm){.overlap = 2, .set_aside = 1, .mix = 0.25});
}

static void ranks_are_eager(void **state)
{
    (void)state;
    parts_are_the_whole(
        (struct ipc_shm){.overlap = 2, .set_aside = 1, .eager_fresh = 0.5, .eager_past = 0.25, .eager_decay = 0.5});
}

static double began_s;

static int answer_late(int slice)
{
    static const struct ipc_range all = {0, VALUES, IPC_MIX, 0};
    if (ipc_word(fragment) == IPC_SNAPSHOT && env_mono_s() - began_s > 2.5) {
        fragment->due_step = UINT64_MAX; /* ranks that are fast would take another one in this step */
        bring_anchor(fragment->base_version + 1, 7, &all, 1);
        if (command == FINISH)
            say_end(true, "");
    }
    return slice > 100000;
}

/* The others wait for rank 0, and none of them may take it for dead because it waits for the daemon. */
static void who_waits_is_known_to_live(void **state)
{
    (void)state;
    make_conf = (struct ipc_shm){.overlap = 0, .late_wait = 1, .mix = 0.25};
    late_devices = false;
    pieces();
    start_ranks();
    steps = 0;
    fragment->due_step = 2;
    while_waiting = answer_late;
    step();
    longest_s = 0;
    heard_s = began_s = env_mono_s();
    step(); /* stands still */
    assert_true(env_mono_s() - began_s > 2.5 && longest_s < 2);
    fragment->due_step = UINT64_MAX;
    step();
    assert_int_equal(fragment->base_version, 1);
    longest_s = 0;
    heard_s = began_s = env_mono_s();
    slices = 0;
    say(FINISH);
    assert_int_equal(diloco_finish(d), DILOCO_OK);
    assert_true(env_mono_s() - began_s > 2.5 && longest_s < 2);
    while_waiting = NULL;
    stop_ranks();
    make_conf = (struct ipc_shm){.overlap = 1, .mix = 0.25};
}

/* ---- far ranks ---- */

static void two_of_which_one_is_far(void)
{
    late_devices = false;
    speaks = true;
    pieces();
    ranks_count = 2;
    far[1] = true;
}

static void all_near_again(void)
{
    speaks = false;
    memset(far, 0, sizeof far);
    begins = DILOCO_OK;
    lost_rank = -1;
    ranks[1].other_model = false;
}

/* What the daemon took back is on its way by then; the newer one is what all take in, at the step that it is due at. */
static void of_an_anchor_that_is_taken_back_the_next_is_taken_in_by_all(void **state)
{
    (void)state;
    static const struct ipc_range all = {0, VALUES, IPC_MIX, 0};
    two_of_which_one_is_far();
    start_ranks();
    steps = 0;
    fragment->due_step = 1;
    step();
    step();
    fragment->due_step = UINT64_MAX;
    fragment->mix_step = 6;
    bring_anchor(1, 1000, &all, 1);
    say(STEP);
    steps++;
    add_half(&ranks[0]);
    assert_int_equal(diloco_step(d, &(struct diloco_report){.size = sizeof(struct diloco_report)}), DILOCO_OK);
    daemon_moves(IPC_ANCHOR, IPC_FILLING);
    for (int i = 0; i < COUNT; i++)
        ipc_area(shm, fragment)[i] = 3000;
    fragment->anchor_version = 2;
    daemon_moves(IPC_FILLING, IPC_ANCHOR);
    for (int i = 0; i < 3; i++)
        step();
    assert_int_equal(fragment->base_version, 2);
    for (uint64_t i = 0; i < ranks[0].part.count; i++)
        assert_true(tensor[i] == 0.25f * ((float)i + 3) + 0.75f * 3000);
    for (uint64_t i = 0; i < ranks[1].part.count; i++)
        assert_true(ranks[1].values[i] == 0.25f * ((float)(i + ranks[1].part.first) + 3) + 0.75f * 3000);
    stop_ranks();
    all_near_again();
}

/* Steps until the word is that, which is long before so many. */
static void step_until(enum ipc_word word)
{
    for (int i = 0; i < 100 && ipc_word(fragment) != word; i++)
        step();
    assert_int_equal(ipc_word(fragment), word);
}

/* What all ranks have, apart from what values were different at first. */
static void assert_alike(const struct rank *rank, const float *values, float by)
{
    for (uint64_t i = 0; i < rank->part.count; i++)
        assert_true(values[i] - by * (float)(i + rank->part.first) == tensor[0]);
}

/* Nobody waits: values come later than the word of the rank that sent them, and the anchor is due before far ranks have
 * got it. */
static void whoever_is_far_is_done_when_its_values_are_there(void **state)
{
    (void)state;
    static const struct ipc_range all = {0, VALUES, IPC_MIX, 0};
    two_of_which_one_is_far();
    unsettled = true;
    start_ranks();
    steps = 0;
    fragment->due_step = 1;
    step_until(IPC_SNAPSHOT);
    for (int i = 0; i < COUNT; i++)
        assert_true(ipc_area(shm, fragment)[i] == (float)i + 0.5f);
    fragment->due_step = UINT64_MAX;
    bring_anchor(1, 1024, &all, 1);
    step_until(IPC_FREE);
    assert_int_equal(fragment->base_version, 1);
    assert_true(tensor[0] > 700);
    assert_alike(&ranks[0], tensor, 0.25f);
    stop_ranks();
    assert_alike(&ranks[1], ranks[1].values, 0.25f);
    unsettled = false;
    all_near_again();
}

static void begin_in_vain(void)
{
    begins = DILOCO_ERROR;
    start_ranks();
    pthread_join(ranks[1].thread, NULL);
    assert_int_equal(ranks[1].result, DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d),
                           "rank 1 on a far one attaches another model than rank 0 on a near one: 1 tensors of 500"));
    assert_string_equal(ranks[1].error, diloco_error(d)); /* it may be that one's screen that is looked at */
    end();
    group = (struct diloco_group){0};
}

/* What any build says first, and hears. */
struct greeting {
    char version[32], name[ATTACH_NAME_BYTES];
    uint32_t ipc_version, order_bytes;
};
struct verdict {
    int32_t result;
    char text[2 * IPC_TEXT_BYTES];
};
enum { TAG_GREET = DILOCO_TAGS - 1 };

static void *greet_as_another_build(void *user)
{
    struct rank *rank = user;
    struct greeting own = {.version = "9.9.9",
                           .name = "rank 1 on a far one",
                           .ipc_version = IPC_VERSION,
                           .order_bytes = sizeof(struct attach_order)};
    struct verdict verdict;
    int fd;
    assert_int_equal(has_arrived(rank, send_to(rank, 0, TAG_GREET, &own, sizeof own), 1), 1);
    assert_int_equal(broadcast(rank, &verdict, sizeof verdict, &fd), 0);
    rank->result = verdict.result;
    snprintf(rank->error, sizeof rank->error, "%s", verdict.text);
    return NULL;
}

static void a_rank_of_another_build_is_named_before_anything_is_attached(void **state)
{
    (void)state;
    two_of_which_one_is_far();
    make_groups();
    assert_int_equal(pthread_create(&ranks[1].thread, NULL, greet_as_another_build, &ranks[1]), 0);
    struct diloco_options options = {.size = sizeof options, .socket_path = "nobody", .group = &ranks[0].group};
    assert_int_equal(diloco_attach(&options, &d), DILOCO_ERROR);
    pthread_join(ranks[1].thread, NULL);
    assert_null(d);
    assert_int_equal(ranks[1].result, DILOCO_ERROR);
    assert_string_equal(ranks[1].error, diloco_error(NULL));
    assert_non_null(strstr(ranks[1].error, "rank 1 on a far one has libdiloco 9.9.9 ("));
    assert_non_null(strstr(ranks[1].error, "install the same package on all machines of an island"));
    all_near_again();
}

static void a_rank_with_another_model_is_named_by_all(void **state)
{
    (void)state;
    two_of_which_one_is_far();
    ranks[1].other_model = true;
    begin_in_vain();
    all_near_again();
}

static void a_part_that_is_none_is_refused(void **state)
{
    (void)state;
    static const struct diloco_part wrong[] = {{.column0 = 10, .columns = 11, .count = 1},
                                               {.columns = 21, .count = 1},
                                               {.columns = 20, .first = 400, .count = 101},
                                               {.columns = 20, .first = UINT64_MAX, .count = 2}};
    all_of_it();
    late_devices = false;
    begin();
    end();
    for (size_t i = 0; i < 4; i++) {
        const char *path = listen_here();
        struct diloco_options options = {.size = sizeof options, .socket_path = path, .wait_ms = 2000};
        struct diloco_tensor own = announced;
        own.part = wrong[i];
        assert_int_equal(diloco_attach(&options, &d), DILOCO_OK);
        assert_int_equal(diloco_register(d, &own), DILOCO_ERROR);
        assert_non_null(strstr(diloco_error(d), "its part does not lie in it"));
        diloco_detach(d);
        close(listener);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_saves_alone_what_it_has_alone),
        cmocka_unit_test(what_is_taken_back_while_a_rank_saves_is_not_kept),
        cmocka_unit_test(ranks_stream),
        cmocka_unit_test(ranks_set_work_aside),
        cmocka_unit_test(ranks_are_eager),
        cmocka_unit_test(who_waits_is_known_to_live),
        cmocka_unit_test(whoever_is_far_is_done_when_its_values_are_there),
        cmocka_unit_test(of_an_anchor_that_is_taken_back_the_next_is_taken_in_by_all),
        cmocka_unit_test(a_rank_of_another_build_is_named_before_anything_is_attached),
        cmocka_unit_test(a_rank_with_another_model_is_named_by_all),
        cmocka_unit_test(a_part_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
