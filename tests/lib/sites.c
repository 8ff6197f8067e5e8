/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/sites.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/lib/proc.h"

#define HOST "10.78.0."
enum { PATIENCE_S = 20, COMMAND_BYTES = 600 };

static struct {
    int count, holder[SITES_MAX];
    const char *log;
} sites;

int sites_space(int site)
{
    return sites.holder[site];
}

const char *sites_host(int site)
{
    static char host[SITES_MAX][24];
    snprintf(host[site], sizeof host[site], HOST "%d", site + 1);
    return host[site];
}

/* In the site's namespaces; -1: in ours. */
static bool run_in(int site, const char *command)
{
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    int pid = proc_start_in(site >= 0 ? sites.holder[site] : 0, argv, sites.log);
    return pid > 0 && proc_wait(pid, PATIENCE_S) == 0;
}

static bool go_apart(const char *folder)
{
    return unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("site", folder, "tmpfs", 0, "mode=0755") == 0;
}

/* A process that does nothing but hold its namespaces. */
static int hold(const char *folder)
{
    int fds[2];
    char byte = 0;
    if (pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    int pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!go_apart(folder) || write(fds[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(fds[1]);
    bool good = pid > 0 && read(fds[0], &byte, 1) == 1;
    close(fds[0]);
    return good ? pid : -1;
}

static bool join(int site, uint64_t rate_bits)
{
    char command[COMMAND_BYTES], shape[160];
    uint64_t burst = rate_bits / 8 / 500; /* 2 ms */
    snprintf(shape, sizeof shape, "root tbf rate %" PRIu64 "bit burst %" PRIu64 " latency 100ms", rate_bits,
             burst > 3200 ? burst : 3200);
    snprintf(command, sizeof command,
             "ip link add site%d type veth peer name line netns %d && ip link set site%d master bridge && "
             "ip link set site%d up && tc qdisc add dev site%d %s",
             site, sites.holder[site], site, site, site, shape);
    if (!run_in(-1, command))
        return false;
    snprintf(command, sizeof command,
             "ip link set lo up && ip addr add %s/24 dev line && ip link set line up && tc qdisc add dev line %s",
             sites_host(site), shape);
    return run_in(site, command);
}

bool sites_begin(int count, uint64_t rate_bits, const char *folder, const char *log, char *why, size_t why_bytes)
{
    sites.log = log;
    if (!run_in(-1, "ip link add bridge type bridge && ip link set bridge up")) {
        snprintf(why, why_bytes, "cannot make a bridge; %s", log);
        return false;
    }
    for (int i = 0; i < count; i++) {
        sites.holder[i] = hold(folder);
        sites.count = i + 1;
        if (sites.holder[i] > 0 && join(i, rate_bits))
            continue;
        snprintf(why, why_bytes, "cannot make namespaces of a site's own; %s", log);
        sites_end();
        return false;
    }
    return true;
}

bool sites_cut(int site, bool cut)
{
    char command[64];
    snprintf(command, sizeof command, "ip link set site%d %s", site, cut ? "down" : "up");
    return run_in(-1, command);
}

void sites_end(void)
{
    for (int i = 0; i < sites.count; i++) {
        if (sites.holder[i] <= 0)
            continue;
        kill(sites.holder[i], SIGKILL);
        (void)proc_wait(sites.holder[i], PATIENCE_S);
    }
    sites.count = 0;
}
