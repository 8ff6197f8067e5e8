/* SPDX-License-Identifier: Apache-2.0 */
/* What comes of ranks that end well, fail, are killed, are stuck, or lose their launcher. */
#include "tests/lib/testlib.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/kern.h"
#include "tests/lib/ranks.h"

static const int numbers[] = {4, 5, 6};

static struct launch_conf conf_of(int ranks)
{
    return (struct launch_conf){
        .ranks = ranks, .device = "cuda", .number = numbers, .stage_bytes = GROUP_STAGE_MIN, .grace_s = 4};
}

/* Descriptors of this process; those that are sockets. */
static void count_files(int *all, int *sockets)
{
    DIR *dir = opendir("/proc/self/fd");
    struct stat status;
    *all = *sockets = 0;
    for (struct dirent *item; dir != NULL && (item = readdir(dir)) != NULL;) {
        int fd = (int)strtol(item->d_name, NULL, 10);
        if (item->d_name[0] == '.' || fd == dirfd(dir) || fstat(fd, &status) != 0)
            continue;
        ++*all;
        *sockets += S_ISSOCK(status.st_mode);
    }
    closedir(dir);
}

struct before {
    int files, sockets;
};

/* ---- well ---- */

static enum err looks_around(void *user, const struct launch_rank *rank)
{
    const struct before *before = user;
    int files, sockets, signal = 0;
    char name[16];
    sigset_t blocked;
    CHECK(rank->count == 3 && rank->device == 4 + rank->rank && rank->patience_s == 60 && rank->devices == 3);
    CHECK(prctl(PR_GET_NAME, name) == 0 && strncmp(name, "diloco-rank", 11) == 0 && name[11] == '0' + rank->rank);
    CHECK(prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == SIGKILL);
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    CHECK(sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGINT) == 1);
    count_files(&files, &sockets);
    CHECK(sockets - before->sockets == (rank->rank == 0 ? 2 : 1));
    CHECK(files - before->files == 2 + sockets - before->sockets); /* the page: the launcher's and its own */
    return ERR_OK;
}

static void ranks_get_what_is_theirs(void **state)
{
    struct launch_conf conf = conf_of(3);
    struct before before, after;
    sigset_t mask;
    (void)state;
    count_files(&before.files, &before.sockets);
    assert_ok(launch_run(&conf, looks_around, &before));
    count_files(&after.files, &after.sockets);
    assert_int_equal(before.files, after.files);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGTERM), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

static enum err counts_devices(void *user, const struct launch_rank *rank)
{
    const int *devices = user;
    CHECK(rank->devices == *devices);
    return ERR_OK;
}

/* What ranks that have one device can do together is what it can do. */
static void ranks_know_how_many_devices_they_have(void **state)
{
    static const int two[] = {7, 3, 7, 3}, one[] = {2, 2, 2, 2};
    static const struct {
        const int *number;
        int devices;
    } rows[] = {{two, 2}, {one, 1}, {NULL, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct launch_conf conf = conf_of(4);
        int devices = rows[i].devices;
        conf.number = rows[i].number;
        assert_ok(launch_run(&conf, counts_devices, &devices));
    }
}

static void a_number_of_ranks_that_cannot_be(void **state)
{
    struct launch_conf conf = conf_of(0);
    (void)state;
    assert_fails(ERR_ARG, "0 ranks", launch_run(&conf, looks_around, NULL));
    conf.ranks = 65;
    assert_fails(ERR_ARG, "65 ranks", launch_run(&conf, looks_around, NULL));
}

/* ---- signals ---- */

static enum err waits_for_a_signal(void *user, const struct launch_rank *rank)
{
    const struct timespec limit = {.tv_sec = 20};
    sigset_t set;
    (void)user;
    if (rank->rank == 1)
        kill(getppid(), SIGTERM);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    CHECK(sigtimedwait(&set, NULL, &limit) == SIGTERM);
    return ERR_OK;
}

static void a_signal_goes_to_all(void **state)
{
    struct launch_conf conf = conf_of(3);
    (void)state;
    assert_ok(launch_run(&conf, waits_for_a_signal, NULL));
}

static void an_ignored_child_is_still_heard(void **state)
{
    struct launch_conf conf = conf_of(2);
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    assert_ok(launch_run(&conf, waits_for_a_signal, NULL));
    assert_true(signal(SIGCHLD, SIG_DFL) == SIG_IGN);
}

/* ---- badly ---- */

static void wait_for_ever(void)
{
    for (;;)
        pause();
}

static enum err fails(void *user, const struct launch_rank *rank)
{
    (void)user;
    if (rank->rank == 1)
        return err_set(ERR_CONF, "no such thing");
    wait_for_ever();
    return ERR_OK;
}

static void a_failure_is_told_and_the_others_are_killed(void **state)
{
    struct launch_conf conf = conf_of(3);
    (void)state;
    conf.grace_s = .3;
    assert_fails(ERR_CONF, "rank 1 (cuda:5): no such thing", launch_run(&conf, fails, NULL));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static enum err ends_by_itself(void *user, const struct launch_rank *rank)
{
    int how = *(int *)user;
    if (rank->rank == 0 && how < 0)
        kill(getpid(), -how);
    if (rank->rank == 0)
        _exit(how);
    return ERR_OK;
}

static void an_end_without_a_word_is_told(void **state)
{
    struct launch_conf conf = conf_of(2);
    int how = 3;
    (void)state;
    assert_fails(ERR_STATE, "rank 0 (cuda:4) ended with status 3", launch_run(&conf, ends_by_itself, &how));
    how = -SIGKILL;
    assert_fails(ERR_STATE, "rank 0 (cuda:4) was killed by signal 9 (Killed)", launch_run(&conf, ends_by_itself, &how));
    assert_null(strstr(err_text(), " in "));
}

static enum err leaves_early(void *user, const struct launch_rank *rank)
{
    const struct kern *kern;
    struct ranks ranks;
    (void)user;
    TRY(kern_find("cpu", &kern));
    TRY(ranks_open(rank, kern, &ranks));
    TRY(ranks.comm->calls->barrier(ranks.comm));
    return rank->rank == 1 ? ERR_OK : ranks.comm->calls->barrier(ranks.comm);
}

static void one_that_ended_well_is_not_waited_for(void **state)
{
    struct launch_conf conf = conf_of(2);
    double begin = env_mono_s();
    (void)state;
    assert_fails(ERR_STATE, "rank 1 (cuda:5) ended before barrier, where rank 0 (cuda:4) waits",
                 launch_run(&conf, leaves_early, NULL));
    assert_true(env_mono_s() - begin < 30);
}

/* As in a driver that does not come back. */
static enum err gets_stuck(void *user, const struct launch_rank *rank)
{
    (void)user;
    if (rank->rank == 1)
        atomic_store(&group_rank(rank->seat->page, 1)->op, GROUP_ALL_GATHER);
    wait_for_ever();
    return ERR_OK;
}

static void a_rank_that_makes_no_step_is_found(void **state)
{
    struct launch_conf conf = conf_of(2);
    (void)state;
    conf.patience_s = .2;
    conf.grace_s = .2;
    assert_fails(ERR_STATE, "rank 1 (cuda:5) has made no step in all_gather for 2 s",
                 launch_run(&conf, gets_stuck, NULL));
}

/* ---- the launcher's end ---- */

static enum err says_its_number(void *user, const struct launch_rank *rank)
{
    _Atomic int *pid = user;
    atomic_store(&pid[rank->rank], getpid());
    wait_for_ever();
    return ERR_OK;
}

static void be_launcher(_Atomic int *pid)
{
    struct launch_conf conf = conf_of(3);
    _exit(launch_run(&conf, says_its_number, pid) == ERR_OK ? 0 : 1);
}

static void no_rank_outlives_its_launcher(void **state)
{
    enum { RANKS = 3, LIMIT_MS = 10000 };
    int fd[RANKS], gone = 0;
    (void)state;
    _Atomic int *pid = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(pid != MAP_FAILED);
    int launcher = fork();
    if (launcher == 0)
        be_launcher(pid);
    for (int i = 0; i < RANKS; i++) {
        for (int tries = 0; tries < 1000 && atomic_load(&pid[i]) == 0; tries++)
            usleep(10000);
        fd[i] = (int)syscall(SYS_pidfd_open, atomic_load(&pid[i]), 0);
        assert_true(fd[i] >= 0);
    }
    kill(launcher, SIGKILL);
    waitpid(launcher, NULL, 0);
    for (int i = 0; i < RANKS; i++) {
        struct pollfd look = {.fd = fd[i], .events = POLLIN};
        gone += poll(&look, 1, gone == i ? LIMIT_MS : 0) == 1;
        syscall(SYS_pidfd_send_signal, fd[i], SIGKILL, NULL, 0);
        close(fd[i]);
    }
    munmap((void *)pid, 4096);
    assert_int_equal(gone, RANKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_get_what_is_theirs),
        cmocka_unit_test(ranks_know_how_many_devices_they_have),
        cmocka_unit_test(a_number_of_ranks_that_cannot_be),
        cmocka_unit_test(a_signal_goes_to_all),
        cmocka_unit_test(an_ignored_child_is_still_heard),
        cmocka_unit_test(a_failure_is_told_and_the_others_are_killed),
        cmocka_unit_test(an_end_without_a_word_is_told),
        cmocka_unit_test(one_that_ended_well_is_not_waited_for),
        cmocka_unit_test(a_rank_that_makes_no_step_is_found),
        cmocka_unit_test(no_rank_outlives_its_launcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
