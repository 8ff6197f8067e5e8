/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/wan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/env.h"
#include "common/mem.h"
#include "common/program.h"
#include "tests/lib/proc.h"

enum { PATIENCE_S = 20, LINES_MAX = 16 };

/* The lines of this process. A failed test never reaches wan_end(): the next line of that number ends its line. */
static struct wan standing[LINES_MAX];

/* A line's device, at either end, and its network. */
#define DEVICE "wan%u"
#define NETWORK "10.77.%u."

const char *wan_line_host(const struct wan *wan, int end)
{
    static char text[2][24];
    snprintf(text[end], sizeof text[end], NETWORK "%d", wan->number, end + 1);
    return text[end];
}

const char *wan_host(int end)
{
    return wan_line_host(&(struct wan){.number = 0}, end);
}

static bool failed(char *why, size_t why_bytes, const char *what)
{
    snprintf(why, why_bytes, "%s: %s", what, strerror(errno));
    return false;
}

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return good;
}

/* Runs a command line in the namespace of `space` (0: ours). */
static bool run_in(int space, const char *log, const char *command, char *why, size_t why_bytes)
{
    const char *argv[] = {"/bin/sh", "-c", command, NULL};
    int pid = proc_start_in(space, argv, log);
    if (pid > 0 && proc_wait(pid, PATIENCE_S) == 0)
        return true;
    snprintf(why, why_bytes, "`%s` failed; %s", command, log);
    return false;
}

/* Without `ip`, which a machine may not have. */
static bool loopback_up(void)
{
    struct ifreq lo = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &lo) == 0;
    lo.ifr_flags |= IFF_UP;
    good = good && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
    if (fd >= 0)
        close(fd);
    return good;
}

/* `errno` says what is refused. */
static bool enter(void)
{
    char map[64];
    bool root = geteuid() == 0;
    unsigned uid = geteuid(), gid = getegid();
    if (unshare(CLONE_NEWNET | (root ? 0 : CLONE_NEWUSER)) != 0)
        return false;
    if (!root) {
        snprintf(map, sizeof map, "0 %u 1", uid);
        bool mapped = write_text("/proc/self/uid_map", map) && write_text("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %u 1", gid);
        if (!mapped || !write_text("/proc/self/gid_map", map))
            return false;
    }
    return loopback_up();
}

/* There is no way back out of a namespace that is half made, so a child goes first. */
static bool child_enters(void)
{
    int pid = fork();
    if (pid == 0)
        _exit(enter() ? 0 : errno);
    errno = pid < 0 ? errno : proc_wait(pid, PATIENCE_S);
    return errno == 0;
}

bool wan_enter(char *why, size_t why_bytes)
{
    static const char *const tools[] = {"ip", "tc"};
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++) {
        char *path;
        if (program_find(tools[i], &path) != ERR_OK) {
            snprintf(why, why_bytes, "lines need `%s`, which is not here: apt-get install iproute2", tools[i]);
            return false;
        }
        mem_free(path);
    }
    return (child_enters() && enter()) || failed(why, why_bytes, "cannot make a network namespace");
}

/* A process that does nothing but hold a namespace of its own. */
static int hold(void)
{
    int fds[2];
    char byte = 0;
    if (pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    int pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET) != 0 || write(fds[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(fds[1]);
    bool good = pid > 0 && read(fds[0], &byte, 1) == 1;
    close(fds[0]);
    return good ? pid : -1;
}

/* ---- slow: the kernel's token bucket ---- */

/* `how`: add, or change. */
static bool set_rate(const struct wan *wan, const char *how, const struct wan_conf *conf, char *why, size_t why_bytes)
{
    char command[256];
    uint64_t burst = conf->rate_bits / 8 / 500; /* 2 ms */
    snprintf(command, sizeof command,
             "tc qdisc %s dev " DEVICE " root tbf rate %" PRIu64 "bit burst %" PRIu64 " latency %ums", how, wan->number,
             conf->rate_bits, burst > 3200 ? burst : 3200, conf->queue_ms);
    return run_in(0, wan->log, command, why, why_bytes) && run_in(wan->far, wan->log, command, why, why_bytes);
}

static bool begin_slow(const struct wan_conf *conf, struct wan *wan, char *why, size_t why_bytes)
{
    char command[512];
    snprintf(command, sizeof command, "ip link add " DEVICE " type veth peer name " DEVICE " netns %d", wan->number,
             wan->number, wan->far);
    if (!run_in(0, wan->log, command, why, why_bytes))
        return false;
    for (int end = 0; end < 2; end++) {
        snprintf(command, sizeof command,
                 "ip link set lo up && ip addr add %s/24 dev " DEVICE " && ip link set " DEVICE " up",
                 wan_line_host(wan, end), wan->number, wan->number);
        if (!run_in(end == 0 ? 0 : wan->far, wan->log, command, why, why_bytes))
            return false;
    }
    snprintf(command, sizeof command, "ip route add 10.77.0.0/16 via %s", wan_line_host(wan, 0));
    return set_rate(wan, "add", conf, why, why_bytes) && run_in(wan->far, wan->log, command, why, why_bytes) &&
           run_in(0, wan->log, "echo 1 >/proc/sys/net/ipv4/ip_forward", why, why_bytes);
}

/* ---- far and lossy: our own ---- */

enum { PACKET_MAX = 2048, PACKETS = 65536, US = 1000000 };

struct packet {
    uint64_t at_us;
    uint16_t bytes;
    uint8_t data[PACKET_MAX];
};

/* One direction. */
struct way {
    int from, to;
    uint64_t free_us; /* when what was taken in has left */
    struct packet *ring;
    size_t head, count;
};

static uint64_t now_us(void)
{
    return (uint64_t)(env_mono_s() * 1e6);
}

static void take_in(const struct wan_conf *conf, struct way *way, struct env_rng *rng)
{
    for (;;) {
        struct packet *packet = &way->ring[(way->head + way->count) % PACKETS];
        ssize_t bytes = read(way->from, packet->data, sizeof packet->data);
        if (bytes <= 0)
            return;
        uint64_t at_us = now_us();
        uint64_t begin_us = way->free_us > at_us ? way->free_us : at_us;
        bool full = way->count == PACKETS - 1 || begin_us - at_us > (uint64_t)conf->queue_ms * 1000;
        if (full)
            continue;
        way->free_us = begin_us + (uint64_t)bytes * 8 * US / conf->rate_bits;
        if (env_rng_below(rng, US) < conf->loss_ppm)
            continue; /* it has used the line all the same */
        packet->at_us = way->free_us + (uint64_t)conf->delay_ms * 1000;
        packet->bytes = (uint16_t)bytes;
        way->count++;
    }
}

/* Hands on what is due; returns when the next is, 0 if there is none. */
static uint64_t hand_on(struct way *way)
{
    while (way->count > 0 && way->ring[way->head].at_us <= now_us()) {
        const struct packet *packet = &way->ring[way->head];
        (void)!write(way->to, packet->data, packet->bytes);
        way->head = (way->head + 1) % PACKETS;
        way->count--;
    }
    return way->count > 0 ? way->ring[way->head].at_us : 0;
}

static void pass_packets(const struct wan_conf *conf, int near, int far)
{
    struct way ways[2] = {{.from = near, .to = far}, {.from = far, .to = near}};
    struct env_rng rng = env_rng_init(1, 1);
    for (int i = 0; i < 2; i++)
        if ((ways[i].ring = calloc(PACKETS, sizeof *ways[i].ring)) == NULL)
            _exit(1);
    for (;;) {
        uint64_t next_us = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            take_in(conf, &ways[i], &rng);
            uint64_t due_us = hand_on(&ways[i]);
            next_us = due_us != 0 && due_us < next_us ? due_us : next_us;
        }
        uint64_t at_us = now_us(), wait_us = next_us == UINT64_MAX ? US : next_us > at_us ? next_us - at_us : 0;
        struct timespec wait = {.tv_sec = (time_t)(wait_us / US), .tv_nsec = (long)(wait_us % US * 1000)};
        struct pollfd fds[2] = {{.fd = near, .events = POLLIN}, {.fd = far, .events = POLLIN}};
        ppoll(fds, 2, &wait, NULL);
    }
}

/* A TUN device of the namespace we are in. */
static int open_tun(unsigned number)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(request.ifr_name, sizeof request.ifr_name, DEVICE, number);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0)
        return -1;
    return fd;
}

/* Becomes the process in the middle; says when both devices are there. */
static void be_middle(const struct wan_conf *conf, int far_space, int ready)
{
    char path[64], byte = 0;
    snprintf(path, sizeof path, "/proc/%d/ns/net", far_space);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int near = open_tun(conf->number);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (near < 0 || space < 0 || setns(space, CLONE_NEWNET) != 0)
        _exit(1);
    int far = open_tun(conf->number);
    if (far < 0 || write(ready, &byte, 1) != 1)
        _exit(1);
    pass_packets(conf, near, far);
}

static bool begin_far(const struct wan_conf *conf, struct wan *wan, char *why, size_t why_bytes)
{
    char command[512], byte;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return failed(why, why_bytes, "no pipe");
    wan->middle = fork();
    if (wan->middle == 0)
        be_middle(conf, wan->far, fds[1]);
    close(fds[1]);
    bool ready = wan->middle > 0 && read(fds[0], &byte, 1) == 1;
    close(fds[0]);
    if (!ready) {
        snprintf(why, why_bytes, "no TUN devices here (/dev/net/tun)");
        return false;
    }
    for (int end = 0; end < 2; end++) {
        snprintf(command, sizeof command,
                 "ip link set lo up && ip addr add %s peer %s dev " DEVICE " && ip link set " DEVICE
                 " txqueuelen 10000 up",
                 wan_line_host(wan, end), wan_line_host(wan, 1 - end), wan->number, wan->number);
        if (!run_in(end == 0 ? 0 : wan->far, wan->log, command, why, why_bytes))
            return false;
    }
    return true;
}

/* ---- both ---- */

bool wan_begin(const struct wan_conf *conf, const char *log, struct wan *wan, char *why, size_t why_bytes)
{
    if (conf->number >= LINES_MAX) {
        *wan = (struct wan){0};
        snprintf(why, why_bytes, "line %u: there are %d", conf->number, LINES_MAX);
        return false;
    }
    struct wan old = standing[conf->number];
    if (old.far > 0)
        wan_end(&old);
    *wan = (struct wan){.far = hold(), .number = conf->number};
    snprintf(wan->log, sizeof wan->log, "%s", log);
    if (wan->far < 0) {
        *wan = (struct wan){0};
        return failed(why, why_bytes, "cannot make another network namespace");
    }
    bool emulate = conf->delay_ms > 0 || conf->loss_ppm > 0;
    bool good = emulate ? begin_far(conf, wan, why, why_bytes) : begin_slow(conf, wan, why, why_bytes);
    if (good)
        standing[conf->number] = *wan;
    else
        wan_end(wan);
    return good;
}

static void end_process(int pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    (void)proc_wait(pid, 5);
}

void wan_end(struct wan *wan)
{
    if (wan->middle == 0 && wan->far > 0) {
        char command[64];
        snprintf(command, sizeof command, "ip link del " DEVICE, wan->number);
        const char *argv[] = {"/bin/sh", "-c", command, NULL};
        int pid = proc_start(argv, wan->log);
        if (pid > 0)
            (void)proc_wait(pid, 5);
    }
    end_process(wan->middle);
    end_process(wan->far);
    standing[wan->number] = (struct wan){0};
    *wan = (struct wan){0};
}

bool wan_cut(const struct wan *wan, bool cut)
{
    char command[64], why[300];
    snprintf(command, sizeof command, "ip link set " DEVICE " %s", wan->number, cut ? "down" : "up");
    return wan->middle == 0 && run_in(wan->far, wan->log, command, why, sizeof why);
}

bool wan_set_rate(const struct wan *wan, const struct wan_conf *conf)
{
    char why[300];
    return wan->middle == 0 && set_rate(wan, "change", conf, why, sizeof why);
}

uint64_t wan_sent_bytes(const struct wan *wan, int end)
{
    char path[64], line[512], device[24];
    uint64_t sent = 0;
    snprintf(device, sizeof device, DEVICE ":", wan->number);
    snprintf(path, sizeof path, "/proc/%d/net/dev", end == 0 ? (int)getpid() : wan->far);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, device);
        if (at != NULL)
            (void)sscanf(at + strlen(device), "%*u %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &sent);
    }
    if (file != NULL)
        fclose(file);
    return sent;
}
