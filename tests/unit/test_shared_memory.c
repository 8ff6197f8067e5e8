/* SPDX-License-Identifier: Apache-2.0 */
/* shared: how the memory between daemon and trainer lies, and whose of another time is taken over. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mem.h"
#include "daemon/trainer/shared.h"
#include "tests/lib/trainerrun.h"

enum { F = 0, THIN = 1 }; /* fragments */

static struct trainerrun run;
static struct shared *shared;
static struct ipc_shm *shm; /* as the trainer sees it */

static struct shared *make_shared(const struct trainerrun *of)
{
    struct shared_conf conf = trainerrun_shared_conf(of);
    struct shared *made;
    assert_ok(shared_make(&conf, &made));
    return made;
}

static int begin(void **state)
{
    (void)state;
    shared = make_shared(&run);
    shm = trainerrun_map(shared_fd(shared));
    return 0;
}

static int end(void **state)
{
    (void)state;
    munmap(shm, shared_bytes(shared));
    shared_free(shared);
    return 0;
}

/* ---- how it lies ---- */

static void every_area_has_room_of_its_own_and_every_tensor_its_place(void **state)
{
    (void)state;
    const struct plan *plan = run.plan->plan;
    const char *begin_at[2 * TRAINERRUN_FRAGMENTS], *end_at[2 * TRAINERRUN_FRAGMENTS];
    struct stat status;
    assert_ok(ipc_shm_check(shm, shared_bytes(shared)));
    assert_int_equal(fstat(shared_fd(shared), &status), 0);
    assert_int_equal(status.st_size, shared_bytes(shared));
    assert_int_equal(shm->fragments_count, TRAINERRUN_FRAGMENTS);
    assert_int_equal(shm->tensors_count, TRAINERRUN_TENSORS);
    const char *tables_end = (const char *)(ipc_places(shm) + TRAINERRUN_TENSORS);
    assert_true((const char *)ipc_places(shm) >= (const char *)ipc_fragment(shm, TRAINERRUN_FRAGMENTS));
    for (uint32_t i = 0; i < 2 * TRAINERRUN_FRAGMENTS; i++) {
        struct ipc_fragment *fragment = ipc_fragment(shm, i / 2);
        const float *area = i % 2 == 0 ? ipc_base(shm, fragment) : ipc_area(shm, fragment);
        assert_int_equal(fragment->values_count, plan->fragments[i / 2].values_count);
        assert_int_equal((uintptr_t)area % IPC_ALIGN, 0);
        begin_at[i] = (const char *)area;
        end_at[i] = (const char *)(area + fragment->values_count);
        assert_true(begin_at[i] >= tables_end && end_at[i] <= (const char *)shm + shm->bytes);
        for (uint32_t j = 0; j < i; j++)
            assert_true(begin_at[i] >= end_at[j] || begin_at[j] >= end_at[i]);
        assert_int_equal(ipc_word(fragment), IPC_FREE);
        assert_true(fragment->due_step == UINT64_MAX); /* before it is told to go */
    }
    for (uint32_t i = 0; i < TRAINERRUN_TENSORS; i++) {
        struct ipc_place place = ipc_places(shm)[i];
        assert_int_equal(place.fragment, plan->tensors[i].fragment);
        assert_int_equal(place.offset, plan->tensors[i].offset);
        assert_int_equal(place.count, plan->tensors[i].count);
    }
}

static void its_size_cannot_be_changed(void **state)
{
    (void)state;
    assert_int_not_equal(ftruncate(shared_fd(shared), 4096), 0);
    assert_int_not_equal(ftruncate(shared_fd(shared), (off_t)shared_bytes(shared) * 2), 0);
}

static void two_memories_are_two_sessions(void **state)
{
    (void)state;
    struct shared *other = make_shared(&run);
    assert_true(shared_session(shared) != 0 && shared_session(other) != 0);
    assert_true(shared_session(shared) != shared_session(other));
    assert_true(shm->session == shared_session(shared));
    shared_free(other);
}

static void what_the_run_spec_says_stands_in_it(void **state)
{
    (void)state;
    static const struct {
        const char *lines;
        struct ipc_shm want;
    } cases[] = {
        {"overlap = 2\nmix = 0.25\n", {.overlap = 2, .mix = 0.25, .run_slack = 2}},
        {"late = wait\n", {.overlap = 1, .mix = 0.5, .late_wait = 1, .run_slack = IPC_LOCKSTEP}},
        {"pace = lockstep\n", {.overlap = 1, .mix = 0.5, .run_slack = IPC_LOCKSTEP}},
        {"overlap = 6\n", {.overlap = 6, .mix = 0.5, .set_aside = 1, .run_slack = 2}},
        /* nesterov with lr 0.6 and momentum 0.5: lr (1 + mu), lr mu^2, mu; of which each of 3 islands has a third */
        {"overlap = 6\nmix = 0\neager = yes\n[outer]\nlr = 0.6\nmomentum = 0.5\n",
         {.overlap = 6, .set_aside = 1, .run_slack = 2, .eager_fresh = 0.9, .eager_past = 0.15, .eager_decay = 0.5}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trainerrun other;
        trainerrun_open(&other, testlib_folder("shared-spec"), TRAINERRUN_ISLANDS, cases[i].lines);
        struct shared *made = make_shared(&other);
        struct ipc_shm *map = trainerrun_map(shared_fd(made));
        const struct ipc_shm *want = &cases[i].want;
        assert_int_equal(map->steps, TRAINERRUN_STEPS);
        assert_int_equal(map->overlap, want->overlap);
        assert_int_equal(map->late_wait, want->late_wait);
        assert_int_equal(map->set_aside, want->set_aside);
        assert_true(map->run_slack == want->run_slack && map->mix == want->mix);
        assert_true(fabs(map->eager_fresh - want->eager_fresh) < 1e-9);
        assert_true(fabs(map->eager_past - want->eager_past) < 1e-9);
        assert_true(map->eager_decay == want->eager_decay);
        assert_true(fabs(ipc_fragment(map, 0)->eager_share - 1.0 / TRAINERRUN_ISLANDS) < 1e-9);
        shared_share(made, 0, 0.4);
        assert_true(ipc_fragment(map, 0)->eager_share == 0.4);
        munmap(map, shared_bytes(made));
        shared_free(made);
        trainerrun_close(&other);
    }
}

static void the_base_is_where_the_trainer_says_but_inside(void **state)
{
    (void)state;
    struct ipc_fragment *fragment = ipc_fragment(shm, F);
    shared_base(shared, F)[3] = 1;
    shared_area(shared, F)[3] = 2;
    assert_true(ipc_base(shm, fragment)[3] == 1 && ipc_area(shm, fragment)[3] == 2);
    fragment->base = 1;
    assert_true(shared_base(shared, F)[3] == 2 && shared_area(shared, F)[3] == 1);
    fragment->base = 0xfffffff6; /* not a number of an area */
    assert_true(shared_base(shared, F)[3] == 1 && shared_area(shared, F)[3] == 2);
    /* What it writes about places is not believed either. */
    fragment->area_offset[0] = fragment->area_offset[1] = shm->fragments_offset = UINT64_MAX / 2;
    assert_true(shared_base(shared, F)[3] == 1 && shared_area(shared, F)[3] == 2);
}

/* ---- taking over ---- */

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) != -1;
}

static void a_memory_of_before_is_taken_over(void **state)
{
    (void)state;
    struct shared_conf conf = trainerrun_shared_conf(&run);
    struct shared *again;
    int fd = dup(shared_fd(shared));
    shared_base(shared, F)[5] = 42;
    assert_ok(shared_adopt(&conf, fd, shared_session(shared), &again));
    assert_int_equal(shared_fd(again), fd);
    assert_int_equal(shared_bytes(again), shared_bytes(shared));
    assert_true(shared_session(again) == shared_session(shared));
    assert_true(shared_base(again, F)[5] == 42);
    shared_area(again, THIN)[0] = 43;
    assert_true(shared_area(shared, THIN)[0] == 43);
    assert_false(shared_pinned(again));
    shared_free(again);
    assert_false(is_open(fd));
}

static void assert_refused(int fd, uint64_t session, const char *part)
{
    struct shared_conf conf = trainerrun_shared_conf(&run);
    struct shared *again = (struct shared *)(void *)&conf;
    assert_true(fd >= 0);
    assert_fails(ERR_PROTO, part, shared_adopt(&conf, fd, session, &again));
    assert_null(again);
    assert_false(is_open(fd));
}

/* A change in the memory, and a look at it by the next daemon. */
#define REFUSED_WITH(field, value, part)                              \
    do {                                                              \
        __typeof__(field) saved_ = (field);                           \
        (field) = (value);                                            \
        assert_refused(dup(shared_fd(shared)), shm->session, (part)); \
        (field) = saved_;                                             \
    } while (0)

/* By order, whoever made the memory: it is the same run. */
static void the_runs_length_and_its_pause_are_said_in_it(void **state)
{
    (void)state;
    run.spec.length = TRAINERRUN_STEPS + 60;
    shared_run(shared, true);
    assert_int_equal(shm->steps, TRAINERRUN_STEPS + 60);
    assert_int_equal(shm->paused, 1);
    run.spec.length = 0;
    struct shared *taken = NULL;
    struct shared_conf conf = trainerrun_shared_conf(&run);
    assert_ok(shared_adopt(&conf, dup(shared_fd(shared)), shared_session(shared), &taken));
    shared_run(taken, false);
    assert_int_equal(shm->steps, TRAINERRUN_STEPS);
    assert_int_equal(shm->paused, 0);
    shared_free(taken);
}

static void a_memory_of_another_run_is_not_taken_over(void **state)
{
    (void)state;
    static const char of_another_run[] = "of another run or plan";
    assert_refused(dup(shared_fd(shared)), shared_session(shared) + 2, of_another_run);
    REFUSED_WITH(shm->plan_tag, shm->plan_tag ^ 1, of_another_run);
    REFUSED_WITH(shm->overlap, 2, of_another_run);
    REFUSED_WITH(shm->mix, 0.25, of_another_run);
    REFUSED_WITH(shm->late_wait, 1, of_another_run);
    REFUSED_WITH(shm->run_slack, IPC_LOCKSTEP, of_another_run);
    REFUSED_WITH(shm->set_aside, 1, of_another_run);
    REFUSED_WITH(shm->eager_fresh, 0.1, of_another_run);
    REFUSED_WITH(shm->eager_past, 0.1, of_another_run);
    REFUSED_WITH(shm->eager_decay, 0.1, of_another_run);
    REFUSED_WITH(shm->tensors_count, TRAINERRUN_TENSORS - 1, of_another_run);
    REFUSED_WITH(shm->fragments_count, TRAINERRUN_FRAGMENTS - 1, "");
    REFUSED_WITH(shm->magic, shm->magic + 1, "not of version");
    REFUSED_WITH(shm->version, IPC_VERSION - 1, "not of version");
    struct shared_conf conf = trainerrun_shared_conf(&run);
    struct shared *again;
    assert_ok(shared_adopt(&conf, dup(shared_fd(shared)), shm->session, &again)); /* everything is as it was */
    shared_free(again);
}

static void a_memory_with_another_layout_is_not_taken_over(void **state)
{
    (void)state;
    struct ipc_fragment *fragment = ipc_fragment(shm, 2);
    REFUSED_WITH(ipc_fragment(shm, 1)->values_count, 512, "another layout");
    REFUSED_WITH(fragment->area_offset[0], fragment->area_offset[1], "another layout");
    REFUSED_WITH(fragment->area_offset[1], fragment->area_offset[1] - 64, "another layout");
    REFUSED_WITH(fragment->area_offset[1], shm->bytes, "leaves the shared memory");
    REFUSED_WITH(shm->bytes, shm->bytes - 64, "not of version");
    REFUSED_WITH(fragment->base, 2, "leaves the shared memory");
    atomic_store(&fragment->word, IPC_WORDS);
    assert_refused(dup(shared_fd(shared)), shm->session, "unknown word");
    atomic_store(&fragment->word, IPC_FREE);
    /* The tables at another place, where they would do as well. */
    char *elsewhere = (char *)ipc_area(shm, ipc_fragment(shm, F));
    assert_true(sizeof(struct ipc_fragment[TRAINERRUN_FRAGMENTS]) <= run.plan->plan->values_count_max * sizeof(float));
    memcpy(elsewhere, ipc_places(shm), sizeof(struct ipc_place[TRAINERRUN_TENSORS]));
    REFUSED_WITH(shm->places_offset, (uint64_t)(elsewhere - (char *)shm), "another layout");
    memcpy(elsewhere, ipc_fragment(shm, 0), sizeof(struct ipc_fragment[TRAINERRUN_FRAGMENTS]));
    REFUSED_WITH(shm->fragments_offset, (uint64_t)(elsewhere - (char *)shm), "another layout");
}

/* A memory with the same bytes in it, as far as they go; sealed against these. */
static int copy_of_memory(uint64_t bytes, int seals)
{
    int fd = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    uint64_t most = shared_bytes(shared) < bytes ? shared_bytes(shared) : bytes;
    assert_int_equal(write(fd, shm, most), most);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    if (seals != 0)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void a_memory_that_could_shrink_or_has_another_size_is_not_taken_over(void **state)
{
    (void)state;
    static const char not_ours[] = "no shared memory of ours";
    enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW };
    uint64_t bytes = shared_bytes(shared), session = shared_session(shared);
    struct shared_conf conf = trainerrun_shared_conf(&run);
    struct shared *copy;
    assert_ok(shared_adopt(&conf, copy_of_memory(bytes, SEALS), session, &copy)); /* the size alone is wrong below */
    shared_free(copy);
    assert_refused(copy_of_memory(bytes, 0), session, not_ours);
    assert_refused(copy_of_memory(bytes, F_SEAL_GROW), session, not_ours);
    assert_refused(copy_of_memory(0, SEALS), session, not_ours);
    assert_refused(copy_of_memory(sizeof *shm - 1, SEALS), session, not_ours);
    assert_refused(copy_of_memory(sizeof *shm, SEALS), session, "another layout");
    assert_refused(copy_of_memory(bytes - 4096, SEALS), session, "another layout");
    assert_refused(copy_of_memory(bytes + 4096, SEALS), session, "another layout");
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_refused(fds[0], session, not_ours);
    close(fds[1]);
    assert_refused(open("tests/unit/test_shared.c", O_RDONLY | O_CLOEXEC), session, not_ours);
    /* Read-only, it is no use. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", shared_fd(shared));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_not_equal(shared_adopt(&conf, fd, session, &copy), ERR_OK);
    assert_false(is_open(fd));
}

/* A whole one, as the daemon of that run made it: the same model, so the same size. */
static void the_memory_of_another_daemon_is_not_taken_over(void **state)
{
    (void)state;
    struct trainerrun other;
    trainerrun_open(&other, testlib_folder("shared-other"), 1, "mix = 0.125\n");
    struct shared *foreign = make_shared(&other);
    assert_int_equal(shared_bytes(foreign), shared_bytes(shared));
    assert_refused(dup(shared_fd(foreign)), shared_session(foreign), "of another run or plan");
    shared_free(foreign);
    trainerrun_close(&other);
}

static void out_of_memory_leaves_nothing_open(void **state)
{
    (void)state;
    struct shared_conf conf = trainerrun_shared_conf(&run);
    struct shared *made = NULL;
    long n = 0;
    enum err err;
    do {
        mem_fail_after(n++);
        err = shared_make(&conf, &made);
        mem_fail_after(-1);
        assert_true(err == ERR_OK ? made != NULL : err == ERR_NOMEM && made == NULL);
    } while (err != ERR_OK);
    shared_free(made);
    assert_true(n > 2);
    n = 0;
    do {
        int fd = dup(shared_fd(shared));
        mem_fail_after(n++);
        err = shared_adopt(&conf, fd, shared_session(shared), &made);
        mem_fail_after(-1);
        assert_true(err == ERR_OK ? made != NULL : err == ERR_NOMEM && made == NULL);
        assert_true(is_open(fd) == (err == ERR_OK));
    } while (err != ERR_OK);
    shared_free(made);
    assert_true(n > 2);
    shared_free(NULL);
}

static void as_many_pins_as_jobs_hold_it(void **state)
{
    (void)state;
    assert_false(shared_pinned(shared));
    shared_pin(shared);
    shared_pin(shared);
    shared_unpin(shared);
    assert_true(shared_pinned(shared));
    shared_unpin(shared);
    assert_false(shared_pinned(shared));
}

#define with_memory(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_memory(every_area_has_room_of_its_own_and_every_tensor_its_place),
        with_memory(its_size_cannot_be_changed),
        with_memory(two_memories_are_two_sessions),
        cmocka_unit_test(what_the_run_spec_says_stands_in_it),
        with_memory(the_base_is_where_the_trainer_says_but_inside),
        with_memory(a_memory_of_before_is_taken_over),
        with_memory(the_runs_length_and_its_pause_are_said_in_it),
        with_memory(a_memory_of_another_run_is_not_taken_over),
        with_memory(a_memory_with_another_layout_is_not_taken_over),
        with_memory(a_memory_that_could_shrink_or_has_another_size_is_not_taken_over),
        with_memory(the_memory_of_another_daemon_is_not_taken_over),
        with_memory(out_of_memory_leaves_nothing_open),
        with_memory(as_many_pins_as_jobs_hold_it),
    };
    trainerrun_open(&run, testlib_folder("shared-memory"), TRAINERRUN_ISLANDS, "");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trainerrun_close(&run);
    return failed;
}
