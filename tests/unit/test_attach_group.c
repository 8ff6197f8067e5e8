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

enum { ROWS = 25, WIDTH = 20, RANKS_MAX = 4 };

/* ---- the ranks ---- */

enum command { STEP, KEEP, FINISH, QUIT };

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
    pthread_t thread;
} ranks[RANKS_MAX];

static int ranks_count;
static bool late_devices;
static pthread_barrier_t meeting, told;
static enum command command;
static char passed[8192];
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
        *fd = passed_fd >= 0 ? dup(passed_fd) : -1;
    }
    return meet(NULL);
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
        if (now == KEEP)
            rank->result = diloco_keep(rank->d, NULL, 0) == 0 ? keep_apart(rank, rank->d) : DILOCO_ERROR;
        if (now == KEEP)
            atomic_fetch_add(&rank->kept, 1);
        if (now == FINISH)
            rank->result = diloco_finish(rank->d);
    }
    rank->steps = diloco_run_step(rank->d);
    diloco_detach(rank->d);
    return NULL;
}

static void start_ranks(void)
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
        rank->device = late_device(&rank->late, true);
        rank->d = NULL;
        rank->changes = 0;
        rank->kept = 0;
    }
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
}

/* ---- what comes of a story ---- */

struct outcome {
    float sent[2][COUNT]; /* snapshots */
    float tensor[COUNT], last[COUNT];
    size_t kept_bytes;
    char *kept;
    float apart[DILOCO_KEPT_KINDS][COUNT]; /* what is kept a tensor at a time, of all ranks */
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
    for (int i = 0; i < 4; i++)
        step();
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    memcpy(out.sent[0], ipc_area(shm, fragment), sizeof out.sent[0]);
    keep(&out);
    fragment->due_step = 8;
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
    for (int late = 0; late < 2; late++)
        for (size_t i = late == 0 ? 1 : 0; i < 4; i++) {
            late_devices = late == 1;
            divide[i]();
            struct outcome got = story();
            assert_memory_equal(got.sent, want.sent, sizeof got.sent);
            assert_memory_equal(got.tensor, want.tensor, sizeof got.tensor);
            assert_memory_equal(got.last, want.last, sizeof got.last);
            assert_int_equal(got.kept_bytes, want.kept_bytes);
            assert_memory_equal(got.kept, want.kept, want.kept_bytes);
            assert_memory_equal(got.apart, want.apart, sizeof want.apart);
            free(got.kept);
        }
    free(want.kept);
    make_conf = (struct ipc_shm){.overlap = 1, .mix = 0.25};
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
        cmocka_unit_test(a_part_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
