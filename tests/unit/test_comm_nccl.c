/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives through NCCL, which is played (tests/fakes/fake_nccl.h), between real processes, on the CPU's arrays and
 * on those of a device whose queues are threads: the right bits, and an end to all waiting. */
#include "tests/lib/testlib.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/mem.h"
#include "kernels/kern.h"
#include "tests/lib/ranks.h"
#include "tests/lib/streams.h"
#include "worker/comm/comm_nccl.h"
#include "worker/comm/comm_open.h"

enum { STAGE = 8192, COUNT = 3000 };

static const int numbers[] = {0, 1, 2, 3};

static const char *fakes(const char *folder)
{
    const char *build = getenv("BUILD");
    return testlib_path(testlib_path(build != NULL ? build : "build/gcc", "tests/fakes"), folder);
}

static const struct kern *cpu_table(void)
{
    const struct kern *kern = NULL;
    return kern_find("cpu", &kern) == ERR_OK ? kern : NULL;
}

/* As ranks_open(), through the played NCCL. */
static enum err open_nccl(const struct launch_rank *rank, const struct kern *kern, struct ranks *out)
{
    struct nccl_api api;
    struct comm *host;
    *out = (struct ranks){.kern = kern};
    TRY(nccl_api_open_in(fakes("nccl"), false, &api));
    TRY(kern->open(&(struct kern_place){.threads = 1}, &out->dev));
    TRY(comm_shm_new(rank->seat, kern, out->dev, rank->patience_s, &host));
    return comm_nccl_new(&api, host, kern, out->dev, rank->patience_s, &out->comm);
}

/* `wrong`: what FAKE_NCCL says. */
static enum err launch(int ranks, double patience_s, const char *wrong, launch_main *rank_main, const void *user)
{
    const struct launch_conf conf = {
        .ranks = ranks, .device = "cuda", .number = numbers, .stage_bytes = STAGE, .patience_s = patience_s};
    setenv("FAKE_NCCL", wrong, 1);
    enum err err = launch_run(&conf, rank_main, (void *)user);
    unsetenv("FAKE_NCCL");
    return err;
}

/* ---- the library ---- */

static void assert_remedy(void)
{
    assert_null(strchr(err_text(), '\n'));
    assert_non_null(strstr(err_text(), "install libnccl2"));
    assert_non_null(strstr(err_text(), "--ranks on one GPU"));
}

static void a_library_that_is_not_there_is_told_with_the_remedy(void **state)
{
    struct nccl_api api;
    (void)state;
    assert_fails(ERR_NOTFOUND, "libnccl.so.2 not found", nccl_api_open_in("", false, &api));
    assert_remedy();
    assert_fails(ERR_NOTFOUND, "not found", nccl_api_open_in("/no/such::/nor/such", false, &api));
    const char *folder = testlib_folder("damaged_nccl");
    testlib_file(folder, "libnccl.so.2", "not a library\n");
    assert_fails(ERR_NOTFOUND, "does not load", nccl_api_open_in(folder, false, &api));
    assert_remedy();
}

static void another_version_is_told_with_what_is_wanted(void **state)
{
    static const struct {
        const char *wrong, *text;
    } cases[] = {{"version 1304 0", "is NCCL 1.3.4, and version 2 is needed, of 2.14 or later"},
                 {"version 2708 0", "is NCCL 2.7.8, and"},
                 {"version 21300 0", "is NCCL 2.13.0, and"},
                 {"version 30102 0", "is NCCL 3.1.2, and"}};
    struct nccl_api api;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv("FAKE_NCCL", cases[i].wrong, 1);
        assert_fails(ERR_NOTFOUND, cases[i].text, nccl_api_open_in(fakes("nccl"), false, &api));
        assert_remedy();
    }
    setenv("FAKE_NCCL", "version 21400 0", 1);
    assert_ok(nccl_api_open_in(fakes("nccl"), false, &api));
    unsetenv("FAKE_NCCL");
    assert_fails(ERR_NOTFOUND, "has no ncclCommFinalize", nccl_api_open_in(fakes("nccl_lacking"), false, &api));
    assert_remedy();
}

/* ---- sums and copies ---- */

static enum err all_of_them(void *user, const struct launch_rank *rank)
{
    static const int64_t counts[] = {0, 1, 3, 127, 1025, 4999};
    const struct kern *kern = user;
    struct ranks ranks;
    TRY(open_nccl(rank, kern, &ranks));
    for (int queue = KERN_MAIN; queue < KERN_QUEUES; queue++)
        TRY(ranks_check_all(&ranks, (enum kern_queue)queue, counts, queue == KERN_COMM ? 6 : 3));
    TRY(ranks.comm->calls->check(ranks.comm));
    TRY(ranks.comm->calls->barrier(ranks.comm));
    ranks_close(&ranks);
    return ERR_OK;
}

static void every_collective_gives_the_same_bits_everywhere(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        assert_ok(launch(ranks, 0, "", all_of_them, cpu_table()));
}

static void collectives_are_done_in_the_order_of_their_queue(void **state)
{
    (void)state;
    assert_ok(launch(2, 0, "", all_of_them, streams_table()));
    assert_ok(launch(4, 0, "", all_of_them, streams_table()));
}

/* Where the system does not pin memory it all works; only a device that hangs is not noticed. */
static enum err without_pins(void *user, const struct launch_rank *rank)
{
    streams_refuse_pins(true);
    return all_of_them(user, rank);
}

static void it_works_without_pinned_memory(void **state)
{
    (void)state;
    assert_ok(launch(2, 0, "", without_pins, streams_table()));
}

/* More collectives than there are numbers in the words that the device writes. */
static enum err very_many(void *user, const struct launch_rank *rank)
{
    struct ranks ranks;
    float *array, got = 0;
    TRY(open_nccl(rank, user, &ranks));
    TRY(ranks.kern->alloc(ranks.dev, sizeof got, "a test's array", (void **)&array));
    for (int i = 0; i < 1100; i++)
        TRY(ranks.comm->calls->broadcast(ranks.comm, KERN_COMM, array, 1, COMM_F32, i % 2));
    TRY(ranks.kern->sync(ranks.dev));
    TRY(ranks.comm->calls->check(ranks.comm));
    CHECK(group_in(rank->seat->page, rank->rank) == GROUP_IDLE);
    ranks.kern->free(ranks.dev, array);
    ranks_close(&ranks);
    return ERR_OK;
}

static void numbers_of_collectives_begin_again(void **state)
{
    (void)state;
    assert_ok(launch(2, 0, "", very_many, streams_table()));
}

/* ---- groups of a group ---- */

static enum err sum_of(struct comm *group, const struct kern *kern, struct kern_dev *dev, float own, float want)
{
    float *array, got = 0;
    TRY(kern->alloc(dev, sizeof own, "a test's array", (void **)&array));
    kern->copy(dev, KERN_COMM, array, &own, sizeof own);
    TRY(group->calls->all_reduce(group, KERN_COMM, array, 1, COMM_F32));
    kern->copy(dev, KERN_COMM, &got, array, sizeof got);
    TRY(kern->sync(dev));
    TRY(group->calls->check(group));
    kern->free(dev, array);
    return got == want ? ERR_OK : err_set(ERR_STATE, "a sum of %g, not %g", (double)got, (double)want);
}

static enum err two_by_two(void *user, const struct launch_rank *rank)
{
    const struct kern *kern = user;
    struct ranks ranks;
    struct comm *rows, *columns, *alone;
    int me = rank->rank;
    TRY(open_nccl(rank, kern, &ranks));
    TRY(ranks.comm->calls->split(ranks.comm, me / 2, me, &rows));
    TRY(ranks.comm->calls->split(ranks.comm, me % 2, -me, &columns));
    CHECK(rows->count == 2 && rows->rank == me % 2);
    CHECK(columns->count == 2 && columns->rank == 1 - me / 2);
    for (int i = 0; i < 3; i++) {
        TRY(sum_of(rows, kern, ranks.dev, (float)(1 << me), (float)(me < 2 ? 3 : 12)));
        TRY(sum_of(columns, kern, ranks.dev, (float)(1 << me), (float)(me % 2 == 0 ? 5 : 10)));
        TRY(sum_of(ranks.comm, kern, ranks.dev, (float)(1 << me), 15));
    }
    TRY(rows->calls->split(rows, me, 0, &alone));
    TRY(sum_of(alone, kern, ranks.dev, 7, 7));
    rows->calls->free(rows);
    alone->calls->free(alone);
    columns->calls->free(columns);
    ranks_close(&ranks);
    return ERR_OK;
}

static void groups_are_nccl_s_too(void **state)
{
    (void)state;
    assert_ok(launch(4, 0, "", two_by_two, cpu_table()));
    assert_ok(launch(4, 0, "", two_by_two, streams_table()));
}

/* ---- what goes wrong ---- */

/* Sums until it fails, as a training loop does: waits for the device now and then, and asks whether that counts. */
static int counted;

static enum err sum_for_ever(const struct ranks *ranks)
{
    static float values[COUNT];
    float *array;
    TRY(ranks->kern->alloc(ranks->dev, sizeof values, "a test's array", (void **)&array));
    for (;;) {
        TRY(ranks->comm->calls->all_reduce(ranks->comm, KERN_COMM, array, COUNT, COMM_F32));
        TRY(ranks->kern->wait(ranks->dev, ranks->kern->mark(ranks->dev, KERN_COMM)));
        TRY(ranks->comm->calls->check(ranks->comm));
        counted++;
    }
}

/* What a rank does that fails: it tells, and takes down what it has. */
static enum err sum_and_close(void *user, const struct launch_rank *rank)
{
    char text[GROUP_WHY_BYTES];
    struct ranks ranks;
    TRY(open_nccl(rank, user, &ranks));
    enum err err = sum_for_ever(&ranks);
    snprintf(text, sizeof text, "%s", err_text());
    ranks.comm->calls->free(ranks.comm);
    CHECK(strcmp(text, err_text()) == 0);
    return err;
}

static void assert_ends_within(double limit_s, double begin_s)
{
    double took = env_mono_s() - begin_s;
    if (took > limit_s)
        fail_msg("it took %.1f s, not %.1f", took, limit_s);
}

static void both_tables(int ranks, double patience_s, const char *wrong, launch_main *rank_main, const char *text)
{
    const struct kern *tables[] = {cpu_table(), streams_table()};
    for (int i = 0; i < 2; i++) {
        double begin = env_mono_s();
        assert_fails(ERR_STATE, text, launch(ranks, patience_s, wrong, rank_main, tables[i]));
        assert_null(strchr(err_text(), '\n'));
        assert_ends_within(7, begin); /* nobody waited until the launcher kills, after 8 s */
    }
}

static void what_nccl_says_of_a_failure_is_told(void **state)
{
    (void)state;
    both_tables(3, 0, "error 1 5", sum_and_close,
                "rank 1 (cuda:1), all_reduce: NCCL: remote process exited or there was a network error "
                "(played: connection closed by peer)");
    both_tables(3, 0, "refuse 1", sum_and_close,
                "rank 1 (cuda:1), the start of NCCL: NCCL: unhandled cuda error (played: no device)");
}

static void a_device_that_hangs_ends_all(void **state)
{
    (void)state;
    both_tables(2, 1.5, "hang 1 4", sum_and_close, "has made no step in all_reduce for 1.5 s");
}

/* Rank 1 has something else to do. */
static enum err one_does_not_come(void *user, const struct launch_rank *rank)
{
    struct ranks ranks;
    if (rank->rank != 1)
        return sum_and_close(user, rank);
    TRY(open_nccl(rank, user, &ranks));
    while (!group_cancelled(rank->seat->page))
        usleep(10000);
    ranks_close(&ranks);
    return ERR_OK;
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    const struct kern *tables[] = {cpu_table(), streams_table()};
    (void)state;
    for (int i = 0; i < 2; i++) {
        double begin = env_mono_s();
        assert_fails(ERR_STATE, "rank 1 (cuda:1) has not come in 1.5 s to all_reduce, where rank ",
                     launch(3, 1.5, "", one_does_not_come, tables[i]));
        assert_ends_within(6, begin);
    }
}

static void *kill_later(void *user)
{
    (void)user;
    usleep(300000);
    raise(SIGKILL);
    return NULL;
}

static enum err killed_in_the_midst(void *user, const struct launch_rank *rank)
{
    pthread_t thread;
    if (rank->rank == 1)
        CHECK(pthread_create(&thread, NULL, kill_later, NULL) == 0);
    return sum_and_close(user, rank);
}

static void a_killed_rank_ends_all(void **state)
{
    (void)state;
    both_tables(3, 0, "hang 1 4", killed_in_the_midst, "rank 1 (cuda:1) was killed by signal 9 (Killed) in all_reduce");
}

/* All devices wait, and with them all hosts, as those of rank 1 hangs; another thread of rank 0 gives up. */
static void *cancel_later(void *user)
{
    struct comm *comm = user;
    usleep(300000);
    comm->calls->cancel(comm);
    return NULL;
}

static enum err cancelled_from_another_thread(void *user, const struct launch_rank *rank)
{
    pthread_t thread;
    struct ranks ranks;
    TRY(open_nccl(rank, user, &ranks));
    if (rank->rank == 0)
        CHECK(pthread_create(&thread, NULL, cancel_later, ranks.comm) == 0);
    CHECK(sum_for_ever(&ranks) == ERR_CLOSED);
    CHECK(counted == 3); /* the wait for the fourth ended, too */
    CHECK(strcmp(err_text(), "rank 0 (cuda:0) has given up") == 0);
    if (rank->rank == 0)
        pthread_join(thread, NULL);
    CHECK(ranks.comm->calls->barrier(ranks.comm) == ERR_CLOSED);
    CHECK(ranks.comm->calls->broadcast(ranks.comm, KERN_MAIN, NULL, 0, COMM_F32, 0) == ERR_CLOSED);
    ranks_close(&ranks);
    return ERR_OK;
}

static void cancel_ends_what_waits_on_the_device(void **state)
{
    const struct kern *tables[] = {cpu_table(), streams_table()};
    (void)state;
    for (int i = 0; i < 2; i++) {
        double begin = env_mono_s();
        assert_ok(launch(3, 0, "hang 1 4", cancelled_from_another_thread, tables[i]));
        assert_ends_within(6, begin);
    }
}

/* What one has queued stands behind what hangs in the other one: the end of neither can wait for that of the other. */
static enum err two_that_hang(void *user, const struct launch_rank *rank)
{
    pthread_t thread;
    struct ranks ranks;
    struct comm *again;
    float *array;
    TRY(open_nccl(rank, user, &ranks));
    TRY(ranks.comm->calls->split(ranks.comm, 0, 0, &again));
    if (rank->rank == 0)
        CHECK(pthread_create(&thread, NULL, cancel_later, ranks.comm) == 0);
    TRY(ranks.kern->alloc(ranks.dev, 2 * sizeof *array, "a test's array", (void **)&array));
    TRY(ranks.comm->calls->all_reduce(ranks.comm, KERN_COMM, array, 1, COMM_F32));
    TRY(again->calls->all_reduce(again, KERN_COMM, array + 1, 1, COMM_F32));
    TRY(ranks.kern->wait(ranks.dev, ranks.kern->mark(ranks.dev, KERN_COMM)));
    CHECK(again->calls->check(again) == ERR_CLOSED);
    if (rank->rank == 0)
        pthread_join(thread, NULL);
    again->calls->free(again);
    ranks.comm->calls->free(ranks.comm);
    ranks.kern->free(ranks.dev, array);
    ranks.kern->close(ranks.dev);
    return ERR_OK;
}

static void communicators_are_ended_together(void **state)
{
    double begin = env_mono_s();
    (void)state;
    assert_ok(launch(2, 0, "hang 1 1", two_that_hang, streams_table()));
    assert_ends_within(6, begin);
}

/* ---- one rank, here ---- */

static void try_alone(struct comm *comm)
{
    float x[2] = {1, 2}, y[2] = {0, 0};
    assert_ok(comm->calls->reduce_scatter(comm, KERN_MAIN, y, x, 2, COMM_F32));
    assert_true(y[0] == 1 && y[1] == 2);
    assert_fails(ERR_ARG, "broadcast of 1 values", comm->calls->broadcast(comm, KERN_COMM, x, 1, COMM_BF16, 1));
    assert_fails(ERR_ARG, "values", comm->calls->all_reduce(comm, KERN_MAIN, x, -1, COMM_F32));
    assert_fails(ERR_ARG, "type", comm->calls->all_reduce(comm, KERN_MAIN, x, 1, (enum comm_type)9));
    assert_ok(comm->calls->check(comm));
    comm->calls->cancel(comm);
    assert_fails(ERR_CLOSED, "given up", comm->calls->all_reduce(comm, KERN_MAIN, x, 2, COMM_F32));
    assert_fails(ERR_CLOSED, "given up", comm->calls->check(comm));
}

static void one_rank_alone(void **state)
{
    const struct kern *tables[] = {cpu_table(), streams_table()};
    const char *device[] = {"cuda:0"};
    struct nccl_api api;
    (void)state;
    assert_ok(nccl_api_open_in(fakes("nccl"), false, &api));
    for (int t = 0; t < 2; t++) {
        struct kern_dev *dev;
        struct comm *host, *comm = NULL;
        struct group_page page;
        assert_ok(tables[t]->open(&(struct kern_place){.threads = 1}, &dev));
        assert_ok(group_page_new(1, device, STAGE, &page));
        struct group_seat seat = {.page = &page};
        enum err err = ERR_NOMEM;
        for (int i = 0; err != ERR_OK; i++) {
            assert_ok(comm_shm_new(&seat, tables[t], dev, 0, &host));
            mem_fail_after(i);
            err = comm_nccl_new(&api, host, tables[t], dev, 0, &comm);
            mem_fail_after(-1);
            assert_true(err == ERR_OK || err == ERR_NOMEM);
            assert_true((comm == NULL) == (err != ERR_OK) && i < 9);
            assert_false(group_cancelled(&page));
        }
        if (t == 0)
            try_alone(comm);
        comm->calls->free(comm);
        group_page_free(&page);
        tables[t]->close(dev);
    }
}

/* ---- which kind ---- */

static void the_kind_goes_by_the_devices(void **state)
{
    static const struct {
        const char *device[4];
        int ranks;
        enum comm_kind kind;
    } cases[] = {
        {{"cuda:0"}, 1, COMM_SHM},
        {{"cpu", "cpu"}, 2, COMM_SHM},
        {{"cuda:1", "cuda:1", "cuda:1"}, 3, COMM_SHM},
        {{"cuda:0", "cuda:1"}, 2, COMM_NCCL},
        {{"cuda:3", "cuda:0", "cuda:2", "cuda:1"}, 4, COMM_NCCL},
        {{"cuda:0", "cuda:1", "cuda:1"}, 3, COMM_SHM_MIXED},
        {{"cuda:0", "cuda:1", "cuda:0"}, 3, COMM_SHM_MIXED},
        {{"cuda:0", "cuda:0", "cuda:0", "cuda:1"}, 4, COMM_SHM_MIXED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct group_page page;
        assert_ok(group_page_new(cases[i].ranks, cases[i].device, STAGE, &page));
        assert_int_equal(comm_kind_of(&page), cases[i].kind);
        group_page_free(&page);
    }
}

/* A library that is there is found by its name, wherever the loader would look; a collective of NCCL's does not wait.
 */
static enum err opened(void *user, const struct launch_rank *rank)
{
    struct nccl_api api;
    const struct kern *kern = user;
    struct kern_dev *dev;
    struct comm *comm;
    TRY(nccl_api_open_in(fakes("nccl"), false, &api));
    TRY(kern->open(&(struct kern_place){.threads = 1}, &dev));
    TRY(comm_open(rank->seat, kern, dev, rank->patience_s, &comm));
    bool nccl = (group_rank(rank->seat->page, rank->rank)->slot[0].called >> GROUP_OP_BITS) == 1;
    CHECK(nccl == (rank->count == 2 && !kern->on_host));
    TRY(sum_of(comm, kern, dev, 2, (float)(2 * rank->count)));
    comm->calls->free(comm);
    kern->close(dev);
    return ERR_OK;
}

static void it_is_opened_for_ranks_on_different_gpus(void **state)
{
    static const int mixed[] = {0, 1, 0};
    const struct launch_conf conf = {.ranks = 3, .device = "cuda", .number = mixed, .stage_bytes = STAGE};
    (void)state;
    assert_ok(launch(2, 0, "", opened, streams_table()));
    assert_ok(launch(2, 0, "", opened, cpu_table()));
    assert_ok(launch_run(&conf, opened, (void *)streams_table()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_is_not_there_is_told_with_the_remedy),
        cmocka_unit_test(another_version_is_told_with_what_is_wanted),
        cmocka_unit_test(every_collective_gives_the_same_bits_everywhere),
        cmocka_unit_test(collectives_are_done_in_the_order_of_their_queue),
        cmocka_unit_test(it_works_without_pinned_memory),
        cmocka_unit_test(numbers_of_collectives_begin_again),
        cmocka_unit_test(groups_are_nccl_s_too),
        cmocka_unit_test(what_nccl_says_of_a_failure_is_told),
        cmocka_unit_test(a_device_that_hangs_ends_all),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(a_killed_rank_ends_all),
        cmocka_unit_test(cancel_ends_what_waits_on_the_device),
        cmocka_unit_test(communicators_are_ended_together),
        cmocka_unit_test(one_rank_alone),
        cmocka_unit_test(the_kind_goes_by_the_devices),
        cmocka_unit_test(it_is_opened_for_ranks_on_different_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
