/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/launch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env.h"
#include "common/mem.h"

enum { TICK_MS = 200 };
/* A rank notices by itself that another one is late; the launcher that a rank itself is stuck, a moment later. All are
 * to be gone 10 s after the first failure. */
static const double PATIENCE_S = 60, MARGIN_S = 1.5, GRACE_S = 8, AFTER_KILL_S = 5;

struct child {
    int pid, pidfd; /* 0: none, or it has ended */
    int socket[2];  /* rank 0's end, and its own */
    uint32_t beat;  /* of the last look, and for how long it has been the same */
    double still_s;
};

struct launch {
    const struct launch_conf *conf;
    double patience_s, grace_s;
    struct group_page page;
    struct child child[GROUP_RANKS_MAX];
    int signals; /* descriptor */
    sigset_t signals_before;
    struct sigaction child_before;
    int alive;
    bool failed, killed;
    double ending_s; /* since the first failure */
};

static const char *name_of(const struct launch *launch, int rank)
{
    return group_device(&launch->page, rank);
}

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- a rank's process ---- */

static void keep_what_is_its_own(struct launch *launch, int rank, struct group_seat *seat)
{
    for (int i = 0; i < GROUP_RANKS_MAX; i++) {
        struct child *child = &launch->child[i];
        seat->socket[i] = rank == 0 ? child->socket[0] : -1;
        if (rank != 0)
            shut(&child->socket[0]);
        if (rank != i)
            shut(&child->socket[1]);
        shut(&child->pidfd);
    }
    if (rank != 0)
        seat->socket[0] = launch->child[rank].socket[1];
    shut(&launch->signals);
}

static int device_of(const struct launch_conf *conf, int rank)
{
    return conf->number != NULL ? conf->number[rank] : 0;
}

static int count_devices(const struct launch_conf *conf)
{
    int count = 0;
    for (int i = 0; i < conf->ranks; i++) {
        int first = 0;
        while (device_of(conf, first) != device_of(conf, i))
            first++;
        count += first == i;
    }
    return count;
}

static enum err run_rank(struct launch *launch, int rank, launch_main *rank_main, void *user)
{
    struct group_page page;
    struct group_seat seat = {.page = &page, .rank = rank};
    keep_what_is_its_own(launch, rank, &seat);
    TRY(group_page_open(launch->page.fd, &page));
    const struct launch_rank given = {.rank = rank,
                                      .count = launch->conf->ranks,
                                      .device = device_of(launch->conf, rank),
                                      .devices = count_devices(launch->conf),
                                      .patience_s = launch->patience_s,
                                      .seat = &seat};
    enum err err = rank_main(user, &given);
    group_page_free(&page);
    return err;
}

static void be_rank(struct launch *launch, int rank, int parent, launch_main *rank_main, void *user)
{
    char text[GROUP_WHY_BYTES];
    /* One whose launcher ended before this call would not hear of it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(1);
    snprintf(text, sizeof text, "diloco-rank%d", rank);
    prctl(PR_SET_NAME, text);
    sigaction(SIGCHLD, &launch->child_before, NULL);
    enum err err = run_rank(launch, rank, rank_main, user);
    if (err != ERR_OK) {
        snprintf(text, sizeof text, "rank %d (%s): %s", rank, name_of(launch, rank), err_text());
        group_cancel(&launch->page, err, text);
    }
    fflush(NULL);
    _exit(err == ERR_OK ? 0 : 1);
}

/* ---- starting ---- */

static enum err start_rank(struct launch *launch, int rank, launch_main *rank_main, void *user)
{
    struct child *child = &launch->child[rank];
    int parent = getpid();
    int pid = fork();
    if (pid == 0)
        be_rank(launch, rank, parent, rank_main, user);
    if (pid < 0)
        return err_set_errno(ERR_NOMEM, "cannot start rank %d", rank);
    child->pid = pid;
    launch->alive++;
    child->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return child->pidfd >= 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot watch rank %d", rank);
}

static enum err open_sockets(struct launch *launch)
{
    for (int i = 1; i < launch->conf->ranks; i++)
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, launch->child[i].socket) != 0)
            return err_set_errno(ERR_IO, "cannot connect ranks");
    return ERR_OK;
}

static enum err take_signals(struct launch *launch)
{
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGINT);
    sigprocmask(SIG_BLOCK, &ours, &launch->signals_before);
    /* Where it is ignored, and whoever started us may have left it so, nobody learns how a child has ended. */
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &usual, &launch->child_before);
    launch->signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    return launch->signals >= 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot wait for signals");
}

static enum err make_page(struct launch *launch)
{
    char names[GROUP_RANKS_MAX][GROUP_NAME_BYTES];
    const char *name[GROUP_RANKS_MAX];
    const struct launch_conf *conf = launch->conf;
    if (conf->ranks < 1 || conf->ranks > GROUP_RANKS_MAX)
        return err_set(ERR_ARG, "%d ranks: there can be 1 to %d", conf->ranks, GROUP_RANKS_MAX);
    for (int i = 0; i < conf->ranks; i++) {
        if (conf->number != NULL)
            snprintf(names[i], sizeof names[i], "%.12s:%d", conf->device, conf->number[i]);
        else
            snprintf(names[i], sizeof names[i], "%s", conf->device);
        name[i] = names[i];
    }
    return group_page_new(conf->ranks, name, conf->stage_bytes, &launch->page);
}

static void signal_all(const struct launch *launch, int signal)
{
    for (int i = 0; i < launch->conf->ranks; i++)
        if (launch->child[i].pid > 0) /* not reaped yet, so the number is still its own */
            kill(launch->child[i].pid, signal);
}

static enum err start(struct launch *launch, launch_main *rank_main, void *user)
{
    TRY(make_page(launch));
    TRY(open_sockets(launch));
    fflush(NULL); /* what is waiting to be written is written once */
    for (int i = 0; i < launch->conf->ranks; i++)
        TRY(start_rank(launch, i, rank_main, user));
    for (int i = 0; i < launch->conf->ranks; i++) {
        shut(&launch->child[i].socket[0]);
        shut(&launch->child[i].socket[1]);
    }
    return ERR_OK;
}

/* ---- watching ---- */

/* " in all_reduce", or nothing. */
static void where(uint32_t op, char *text, size_t text_bytes)
{
    text[0] = '\0';
    if (op != GROUP_IDLE)
        snprintf(text, text_bytes, " in %s", group_op_name(op));
}

static void ended(struct launch *launch, int rank, bool known, int status)
{
    char in[64], text[GROUP_WHY_BYTES];
    const char *name = name_of(launch, rank);
    where(group_in(&launch->page, rank), in, sizeof in);
    if (!known)
        snprintf(text, sizeof text, "rank %d (%s) ended%s, and nobody knows how", rank, name, in);
    else if (WIFEXITED(status))
        snprintf(text, sizeof text, "rank %d (%s) ended with status %d%s", rank, name, WEXITSTATUS(status), in);
    else
        snprintf(text, sizeof text, "rank %d (%s) was killed by signal %d (%s)%s", rank, name, WTERMSIG(status),
                 strsignal(WTERMSIG(status)), in);
    if (!known || status != 0) {
        launch->failed = true;
        group_cancel(&launch->page, ERR_STATE, text);
    }
    atomic_store(&group_rank(&launch->page, rank)->left, 1);
}

static void reap(struct launch *launch)
{
    for (int i = 0; i < launch->conf->ranks; i++) {
        struct child *child = &launch->child[i];
        int status = 0;
        if (child->pid <= 0)
            continue;
        int got = waitpid(child->pid, &status, WNOHANG);
        if (got == 0 || (got < 0 && errno == EINTR))
            continue;
        child->pid = 0;
        shut(&child->pidfd);
        launch->alive--;
        ended(launch, i, got > 0, status);
    }
}

static void look_for_stuck(struct launch *launch, double passed_s)
{
    for (int i = 0; i < launch->conf->ranks; i++) {
        struct child *child = &launch->child[i];
        struct group_rank *rank = group_rank(&launch->page, i);
        uint32_t beat = atomic_load(&rank->beat);
        char in[64], text[GROUP_WHY_BYTES];
        where(atomic_load(&rank->op), in, sizeof in); /* whose device is stuck finds out by itself (nccl_watch.h) */
        bool still = child->pid > 0 && in[0] != '\0' && beat == child->beat && atomic_load(&rank->waits) == 0;
        child->still_s = still ? child->still_s + passed_s : 0;
        child->beat = beat;
        if (child->still_s < launch->patience_s + MARGIN_S)
            continue;
        snprintf(text, sizeof text, "rank %d (%s) has made no step%s for %.0f s", i, name_of(launch, i), in,
                 child->still_s);
        group_cancel(&launch->page, ERR_STATE, text);
    }
}

static void send_on_signals(const struct launch *launch)
{
    struct signalfd_siginfo got;
    while (read(launch->signals, &got, sizeof got) == sizeof got)
        signal_all(launch, (int)got.ssi_signo);
}

static void wait_a_tick(const struct launch *launch)
{
    struct pollfd look[GROUP_RANKS_MAX + 1] = {{.fd = launch->signals, .events = POLLIN}};
    for (int i = 0; i < launch->conf->ranks; i++)
        look[i + 1] = (struct pollfd){.fd = launch->child[i].pidfd, .events = POLLIN}; /* -1 is passed over */
    (void)poll(look, (nfds_t)launch->conf->ranks + 1, TICK_MS);
}

/* Until none is left, or one cannot even be killed: a driver may hold it. It dies when it can. */
static void watch(struct launch *launch)
{
    double last = env_mono_s();
    while (launch->alive > 0 && launch->ending_s < launch->grace_s + AFTER_KILL_S) {
        wait_a_tick(launch);
        send_on_signals(launch);
        reap(launch);
        /* Time in which this process itself stood still is nobody's fault. */
        double now = env_mono_s(), passed = now - last;
        last = now;
        passed = passed < 2e-3 * TICK_MS ? passed : 2e-3 * TICK_MS;
        look_for_stuck(launch, passed);
        if (!group_cancelled(&launch->page))
            continue;
        launch->ending_s += passed;
        if (launch->ending_s < launch->grace_s || launch->killed)
            continue;
        signal_all(launch, SIGKILL);
        launch->killed = true;
    }
}

/* ---- the end ---- */

static enum err result(const struct launch *launch)
{
    char why[GROUP_WHY_BYTES];
    if (!launch->failed && launch->alive == 0)
        return ERR_OK;
    enum err code = group_why(&launch->page, why, sizeof why);
    if (code == ERR_CLOSED)
        code = ERR_STATE; /* a rank's peer that is gone is not a peer of our caller's */
    err_set(code, "%s", why);
    for (int i = 0; i < launch->conf->ranks; i++)
        if (launch->child[i].pid > 0)
            err_suffix(code, "rank %d (%s, pid %d) does not end", i, name_of(launch, i), launch->child[i].pid);
    return code;
}

static void clean_up(struct launch *launch)
{
    for (int i = 0; i < GROUP_RANKS_MAX; i++) {
        shut(&launch->child[i].socket[0]);
        shut(&launch->child[i].socket[1]);
        shut(&launch->child[i].pidfd);
    }
    shut(&launch->signals);
    group_page_free(&launch->page);
    sigaction(SIGCHLD, &launch->child_before, NULL);
    sigprocmask(SIG_SETMASK, &launch->signals_before, NULL);
}

enum err launch_run(const struct launch_conf *conf, launch_main *rank_main, void *user)
{
    struct launch *launch;
    TRY(mem_new(1, sizeof *launch, "the ranks' launcher", &launch));
    launch->conf = conf;
    launch->patience_s = conf->patience_s > 0 ? conf->patience_s : PATIENCE_S;
    launch->grace_s = conf->grace_s > 0 ? conf->grace_s : GRACE_S;
    for (int i = 0; i < GROUP_RANKS_MAX; i++)
        launch->child[i] = (struct child){.pidfd = -1, .socket = {-1, -1}};
    enum err err = take_signals(launch);
    if (err == ERR_OK)
        err = start(launch, rank_main, user);
    if (err != ERR_OK && launch->alive > 0) {
        group_cancel(&launch->page, err, err_text());
        launch->failed = true;
        launch->grace_s = 0;
    }
    if (launch->alive > 0) {
        watch(launch);
        err = result(launch);
    }
    clean_up(launch);
    mem_free(launch);
    return err;
}
