/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives between real processes: the right bits on every rank, and an end to all waiting. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/mem.h"
#include "kernels/kern.h"
#include "tests/lib/ranks.h"
#include "worker/comm/comm_sum.h"

enum { STAGE = 8192 };

static enum err open_cpu(const struct launch_rank *rank, struct ranks *ranks)
{
    const struct kern *kern;
    TRY(kern_find("cpu", &kern));
    return ranks_open(rank, kern, ranks);
}

static enum err launch(int ranks, launch_main *rank_main)
{
    const struct launch_conf conf = {.ranks = ranks, .device = "cpu", .stage_bytes = STAGE};
    return launch_run(&conf, rank_main, NULL);
}

/* ---- sums and copies ---- */

static enum err all_of_them(void *user, const struct launch_rank *rank)
{
    /* None, one, fewer than ranks, odd, a piece and one, several pieces and an odd rest. */
    static const int64_t counts[] = {0, 1, 3, 127, 1025, 4999};
    struct ranks ranks;
    (void)user;
    TRY(open_cpu(rank, &ranks));
    TRY(ranks_check_all(&ranks, KERN_COMM, counts, 6));
    ranks_close(&ranks);
    return ERR_OK;
}

static void every_collective_gives_the_same_bits_everywhere(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        assert_ok(launch(ranks, all_of_them));
}

static void the_order_of_a_sum_can_be_seen(void **state)
{
    static const enum comm_type types[] = {COMM_F32, COMM_BF16};
    static const int up[] = {0, 1, 2}, down[] = {2, 1, 0};
    uint32_t in_order[64], reversed[64];
    (void)state;
    for (int t = 0; t < 2; t++) {
        ranks_sum(types[t], in_order, 64, 1, up, 3);
        ranks_sum(types[t], reversed, 64, 1, down, 3);
        assert_memory_not_equal(in_order, reversed, (size_t)ranks_bytes(types[t], 64));
    }
}

/* Sums that are hard to round: ties, the largest, Inf, NaN, zeros with a sign. */
static void a_sum_rounds_bf16_once_and_to_even(void **state)
{
    static const struct {
        uint16_t a, b, c, want;
    } cases[] = {
        {0x3f80, 0x3b80, 0x0000, 0x3f80}, /* 1 + 2^-8: a tie, 1 is even */
        {0x3f81, 0x3b80, 0x0000, 0x3f82}, /* a tie, up to even */
        {0x3f80, 0x3b80, 0x3b80, 0x3f81}, /* rounded after each step it would stay 1 */
        {0x7f7f, 0x7f7f, 0x0000, 0x7f80}, /* past the largest */
        {0x7f80, 0xff80, 0x0000, 0xffc0}, /* Inf - Inf, as x86 has it; any NaN will do */
        {0x8000, 0x8000, 0x8000, 0x8000}, /* -0 */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint16_t out;
        comm_sum(COMM_BF16, &out, (const void *const[]){&cases[i].a, &cases[i].b, &cases[i].c}, 3, 1);
        if ((cases[i].want & 0x7fff) > 0x7f80)
            assert_true((out & 0x7fff) > 0x7f80);
        else
            assert_int_equal(out, cases[i].want);
    }
}

/* ---- groups of a group ---- */

static enum err sums_of_group(struct comm *group, const int *member, int rank, int rounds)
{
    enum { COUNT = 1500 };
    static float array[COUNT], want[COUNT];
    for (int i = 0; i < rounds; i++) {
        ranks_fill(COMM_F32, array, COUNT, (uint64_t)i, rank);
        TRY(group->calls->all_reduce(group, KERN_MAIN, array, COUNT, COMM_F32));
        ranks_sum(COMM_F32, want, COUNT, (uint64_t)i, member, group->count);
        CHECK(memcmp(array, want, sizeof want) == 0);
    }
    return ERR_OK;
}

/* Groups of different colors work at the same time, each as long as it likes. */
static enum err two_by_two(void *user, const struct launch_rank *rank)
{
    struct ranks ranks;
    struct comm *rows, *columns, *alone, *again;
    int me = rank->rank;
    (void)user;
    TRY(open_cpu(rank, &ranks));
    TRY(ranks.comm->calls->split(ranks.comm, me / 2, me, &rows));
    if (me / 2 == 0) { /* some are in more groups than others */
        TRY(rows->calls->split(rows, 0, 0, &again));
        TRY(again->calls->barrier(again));
        again->calls->free(again);
    }
    TRY(ranks.comm->calls->split(ranks.comm, me % 2, -me, &columns));
    CHECK(rows->count == 2 && rows->rank == me % 2);
    CHECK(columns->count == 2 && columns->rank == 1 - me / 2);
    const int row[] = {me / 2 * 2, me / 2 * 2 + 1}, column[] = {me % 2 + 2, me % 2};
    for (int i = 0; i < 5; i++) {
        TRY(sums_of_group(rows, row, me, me / 2 == 0 ? 12 : 2));
        TRY(sums_of_group(columns, column, me, me % 2 == 0 ? 1 : 7));
    }
    TRY(rows->calls->split(rows, me, 0, &alone));
    CHECK(alone->count == 1 && alone->rank == 0);
    TRY(sums_of_group(alone, &me, me, 1));
    TRY(rows->calls->barrier(rows));
    rows->calls->free(rows);
    ranks_close(&ranks);
    columns->calls->free(columns);
    alone->calls->free(alone);
    return ERR_OK;
}

static void groups_of_different_colors_work_at_the_same_time(void **state)
{
    (void)state;
    assert_ok(launch(4, two_by_two));
}

static enum err split_for_ever(void *user, const struct launch_rank *rank)
{
    struct ranks ranks;
    struct comm *group;
    (void)user;
    TRY(open_cpu(rank, &ranks));
    for (int i = 0; i < GROUP_SLOTS - 1; i++) {
        TRY(ranks.comm->calls->split(ranks.comm, 0, 0, &group));
        TRY(group->calls->barrier(group));
        group->calls->free(group);
    }
    return ranks.comm->calls->split(ranks.comm, 0, 0, &group);
}

static void splits_have_a_limit(void **state)
{
    (void)state;
    assert_fails(ERR_STATE, "more than 16 communicators", launch(2, split_for_ever));
}

/* ---- between hosts ---- */

static enum err write_into(int fd, int rank)
{
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(shared != MAP_FAILED);
    shared[rank] = 100 + rank;
    munmap(shared, 4096);
    return ERR_OK;
}

static enum err hand_a_descriptor_round(void *user, const struct launch_rank *rank)
{
    static char text[3 * STAGE];
    struct ranks ranks;
    int fd = -1, none = 7, *shared;
    (void)user;
    TRY(open_cpu(rank, &ranks));
    struct comm *comm = ranks.comm;
    if (comm->rank == 0) {
        fd = memfd_create("test", MFD_CLOEXEC);
        CHECK(ftruncate(fd, 4096) == 0);
        memset(text, 'x', sizeof text);
        none = -1;
    }
    for (int i = 0; i < 3; i++) {
        int one = comm->rank == 0 ? fd : -1;
        TRY(comm->calls->host_broadcast(comm, text, sizeof text, &one, 0));
        CHECK(one >= 0 && text[sizeof text - 1] == 'x');
        if (comm->rank > 0)
            TRY(write_into(one, comm->rank));
        if (comm->rank > 0)
            close(one);
    }
    TRY(comm->calls->host_broadcast(comm, NULL, 0, &none, 0));
    CHECK(none == -1);
    if (comm->rank == 0) {
        shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        for (int i = 1; i < comm->count; i++)
            CHECK(shared[i] == 100 + i);
        munmap(shared, 4096);
        close(fd);
    }
    /* Without one, from anybody. */
    memset(text, '0' + comm->rank, 10);
    TRY(comm->calls->host_broadcast(comm, text, 10, NULL, 1));
    CHECK(text[0] == '1' && text[9] == '1' && text[10] == 'x');
    CHECK(comm->calls->host_broadcast(comm, text, 10, &fd, 1) == ERR_ARG);
    CHECK(comm->calls->host_broadcast(comm, text, 10, NULL, comm->count) == ERR_ARG);
    TRY(comm->calls->barrier(comm));
    ranks_close(&ranks);
    return ERR_OK;
}

static void a_descriptor_goes_to_all(void **state)
{
    (void)state;
    assert_ok(launch(3, hand_a_descriptor_round));
}

/* ---- what goes wrong ---- */

/* Rank 1 stays until the others have come out: its end would wake them, too. */
static enum err cancelled_by_rank_1(void *user, const struct launch_rank *rank)
{
    _Atomic int *out = user;
    struct ranks ranks;
    float x = 1;
    TRY(open_cpu(rank, &ranks));
    struct comm *comm = ranks.comm;
    TRY(comm->calls->barrier(comm));
    if (comm->rank == 1) {
        usleep(50000);
        comm->calls->cancel(comm);
    }
    CHECK(comm->calls->all_reduce(comm, KERN_MAIN, &x, 1, COMM_F32) == ERR_CLOSED);
    CHECK(strcmp(err_text(), "rank 1 (cpu) has given up") == 0);
    CHECK(comm->calls->barrier(comm) == ERR_CLOSED);
    atomic_fetch_add(out, 1);
    for (int tries = 0; tries < 1000 && comm->rank == 1 && atomic_load(out) < 3; tries++)
        usleep(10000);
    CHECK(comm->rank != 1 || atomic_load(out) == 3);
    ranks_close(&ranks);
    return ERR_OK;
}

static void cancel_wakes_all(void **state)
{
    const struct launch_conf conf = {.ranks = 3, .device = "cpu", .stage_bytes = STAGE, .grace_s = 40};
    _Atomic int *out = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_true(out != MAP_FAILED);
    assert_ok(launch_run(&conf, cancelled_by_rank_1, (void *)out));
    munmap((void *)out, 4096);
}

static enum err different_things(void *user, const struct launch_rank *rank)
{
    struct ranks ranks;
    float x[2] = {1, 1};
    (void)user;
    TRY(open_cpu(rank, &ranks));
    return ranks.comm->calls->all_reduce(ranks.comm, KERN_MAIN, x, rank->rank == 0 ? 1 : 2, COMM_F32);
}

static void ranks_that_come_apart_are_told(void **state)
{
    (void)state;
    assert_fails(ERR_STATE, "all_reduce: rank", launch(2, different_things));
    assert_non_null(strstr(err_text(), "something else"));
}

/* A device that ends or stops its rank inside a collective. */
static struct kern deadly;
static enum err (*usual_wait)(struct kern_dev *dev, uint64_t mark);
static int deadly_signal, deadly_after;

static enum err deadly_wait(struct kern_dev *dev, uint64_t mark)
{
    if (deadly_after-- == 0)
        raise(deadly_signal);
    return usual_wait(dev, mark);
}

static enum err struck(void *user, const struct launch_rank *rank)
{
    static float array[5000];
    const struct kern *kern;
    struct ranks ranks;
    (void)user;
    TRY(kern_find("cpu", &kern));
    deadly = *kern;
    usual_wait = kern->wait;
    deadly_after = 7; /* in the midst of the pieces of the second one */
    if (rank->rank == 1)
        deadly.wait = deadly_wait;
    TRY(ranks_open(rank, &deadly, &ranks));
    for (int i = 0; i < 100; i++)
        TRY(ranks.comm->calls->all_reduce(ranks.comm, KERN_MAIN, array, 5000, COMM_F32));
    return ERR_OK;
}

static void a_killed_rank_ends_all(void **state)
{
    double begin = env_mono_s();
    (void)state;
    deadly_signal = SIGKILL;
    assert_fails(ERR_STATE, "rank 1 (cpu) was killed by signal 9 (Killed) in all_reduce", launch(3, struck));
    /* They were told: nobody waited until the launcher kills, after 8 s. */
    assert_true(env_mono_s() - begin < 7);
}

static void a_stopped_rank_ends_all(void **state)
{
    const struct launch_conf conf = {
        .ranks = 2, .device = "cpu", .stage_bytes = STAGE, .patience_s = 1.5, .grace_s = .5};
    double begin = env_mono_s();
    (void)state;
    deadly_signal = SIGSTOP;
    assert_fails(ERR_STATE, "rank 1 (cpu) has not come in 1.5 s to all_reduce, where rank 0 (cpu) waits",
                 launch_run(&conf, struck, NULL));
    assert_true(env_mono_s() - begin < 30);
}

/* ---- the page ---- */

static void flip(int fd, off_t at)
{
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static void a_damaged_page_is_refused(void **state)
{
    const char *device[] = {"cpu", "cuda:a name that is longer than there is room for"};
    struct group_page page, other;
    (void)state;
    assert_ok(group_page_new(2, device, STAGE, &page));
    assert_int_equal(strlen(group_device(&page, 1)), GROUP_NAME_BYTES - 1);
    for (size_t at = 0; at <= offsetof(struct group_shared, check); at++) {
        flip(page.fd, (off_t)at);
        assert_fails(ERR_CORRUPT, "start the trainer again", group_page_open(page.fd, &other));
        if (at < offsetof(struct group_shared, check))
            assert_fails(ERR_CORRUPT, "its header has changed", group_page_check(&page));
        flip(page.fd, (off_t)at);
    }
    assert_ok(group_page_open(page.fd, &other));
    group_page_free(&other);
    group_page_free(&page);
    int small = memfd_create("test", MFD_CLOEXEC);
    assert_fails(ERR_CORRUPT, "too small", group_page_open(small, &other));
    close(small);
    assert_fails(ERR_ARG, "1 to 64", group_page_new(65, device, STAGE, &page));
    assert_fails(ERR_ARG, "staging", group_page_new(2, device, 100, &page));
}

static void a_first_failure_stays_and_is_one_line(void **state)
{
    const char *device[] = {"cpu"};
    struct group_page page;
    char text[GROUP_WHY_BYTES];
    (void)state;
    assert_ok(group_page_new(1, device, STAGE, &page));
    group_cancel(&page, ERR_CONF, "two\nlines");
    group_cancel(&page, ERR_IO, "another");
    assert_int_equal(group_why(&page, text, sizeof text), ERR_CONF);
    assert_string_equal(text, "two?lines");
    /* Whatever somebody has written there. */
    memset(page.shared->why, 0xff, sizeof page.shared->why);
    atomic_store(&page.shared->code, 12345);
    assert_int_equal(group_why(&page, text, sizeof text), ERR_STATE);
    assert_int_equal(strlen(text), GROUP_WHY_BYTES - 1);
    atomic_store(&page.shared->cancelled, 1);
    assert_int_equal(group_why(&page, text, sizeof text), ERR_STATE);
    group_page_free(&page);
}

static enum err damages(void *user, const struct launch_rank *rank)
{
    struct ranks ranks;
    (void)user;
    TRY(open_cpu(rank, &ranks));
    TRY(ranks.comm->calls->barrier(ranks.comm));
    if (rank->rank == 1)
        rank->seat->page->shared->fixed.stage_bytes = (uint64_t)1 << 40;
    for (int i = 0; i < 2; i++)
        TRY(ranks.comm->calls->barrier(ranks.comm));
    return ERR_OK;
}

static void damage_on_the_way_ends_all(void **state)
{
    (void)state;
    assert_fails(ERR_CORRUPT, "the memory that the ranks share is damaged: its header has changed", launch(3, damages));
}

/* ---- one rank, here ---- */

static void try_alone(struct comm *comm, const struct kern *kern, struct kern_dev *dev)
{
    float x[2] = {1, 2}, y[2] = {0, 0};
    int fd = 5;
    struct comm *again;
    assert_ok(comm->calls->all_reduce(comm, KERN_MAIN, x, 2, COMM_F32));
    assert_ok(comm->calls->reduce_scatter(comm, KERN_MAIN, y, x, 2, COMM_F32));
    assert_true(y[0] == 1 && y[1] == 2);
    assert_ok(comm->calls->all_gather(comm, KERN_COMM, x, y, 1, COMM_I32));
    assert_ok(comm->calls->broadcast(comm, KERN_COMM, x, 1, COMM_BF16, 0));
    assert_fails(ERR_ARG, "rank 1", comm->calls->broadcast(comm, KERN_COMM, x, 1, COMM_BF16, 1));
    assert_fails(ERR_ARG, "values", comm->calls->all_reduce(comm, KERN_MAIN, x, -1, COMM_F32));
    assert_fails(ERR_ARG, "type", comm->calls->all_reduce(comm, KERN_MAIN, x, 1, (enum comm_type)9));
    assert_ok(comm->calls->barrier(comm));
    assert_ok(comm->calls->host_broadcast(comm, x, sizeof x, &fd, 0));
    assert_true(fd == 5 && x[1] == 2);
    assert_ok(comm->calls->split(comm, 3, 1, &again));
    assert_true(again->count == 1 && again->rank == 0);
    again->calls->free(again);
    comm->calls->cancel(comm);
    assert_fails(ERR_CLOSED, "given up", comm->calls->barrier(comm));
    assert_fails(ERR_CLOSED, "given up", comm->calls->all_reduce(comm, KERN_MAIN, x, 2, COMM_F32));
    comm->calls->free(comm);
    assert_ok(kern->sync(dev));
}

static void one_rank_alone(void **state)
{
    const char *device[] = {"cpu"};
    const struct kern *kern;
    struct kern_dev *dev;
    struct comm *comm;
    struct group_page page;
    (void)state;
    assert_ok(kern_find("cpu", &kern));
    assert_ok(kern->open(&(struct kern_place){.threads = 1}, &dev));
    assert_ok(comm_self_new(kern, dev, &comm));
    try_alone(comm, kern, dev);
    assert_ok(group_page_new(1, device, STAGE, &page));
    struct group_seat seat = {.page = &page};
    for (int i = 0; i < 2; i++) {
        mem_fail_after(i);
        assert_fails(ERR_NOMEM, "communicator", comm_shm_new(&seat, kern, dev, 0, &comm));
        mem_fail_after(-1);
    }
    assert_ok(comm_shm_new(&seat, kern, dev, 0, &comm));
    try_alone(comm, kern, dev);
    seat.rank = 1;
    assert_fails(ERR_ARG, "rank 1 of 1", comm_shm_new(&seat, kern, dev, 0, &comm));
    group_page_free(&page);
    kern->close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_gives_the_same_bits_everywhere),
        cmocka_unit_test(the_order_of_a_sum_can_be_seen),
        cmocka_unit_test(a_sum_rounds_bf16_once_and_to_even),
        cmocka_unit_test(groups_of_different_colors_work_at_the_same_time),
        cmocka_unit_test(splits_have_a_limit),
        cmocka_unit_test(a_descriptor_goes_to_all),
        cmocka_unit_test(cancel_wakes_all),
        cmocka_unit_test(ranks_that_come_apart_are_told),
        cmocka_unit_test(a_killed_rank_ends_all),
        cmocka_unit_test(a_stopped_rank_ends_all),
        cmocka_unit_test(a_damaged_page_is_refused),
        cmocka_unit_test(a_first_failure_stays_and_is_one_line),
        cmocka_unit_test(damage_on_the_way_ends_all),
        cmocka_unit_test(one_rank_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
