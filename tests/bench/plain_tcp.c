/* SPDX-License-Identifier: Apache-2.0 */
/* What a line carries without us: one TCP connection, its bytes sealed and opened as those of our links are. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env.h"
#include "net/transport/wire.h"
#include "tests/bench/bench.h"

enum { PIECE = WIRE_CHUNK_BYTES_MAX, SEALED = PIECE + crypto_secretbox_MACBYTES };

static const uint8_t key[crypto_secretbox_KEYBYTES], nonce[crypto_secretbox_NONCEBYTES];
static uint8_t plain[PIECE], sealed[SEALED];

static bool enter_network(int space)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/net", space);
    int fd = space > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    bool good = space == 0 || (fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
    if (fd >= 0)
        close(fd);
    return good;
}

static int send_pieces(int space, const struct sockaddr_in *to, long pieces)
{
    int fd = enter_network(space) ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof *to) != 0)
        return 1;
    for (long i = 0; i < pieces; i++) {
        crypto_secretbox_easy(sealed, plain, PIECE, nonce, key);
        for (size_t at = 0; at < SEALED;) {
            ssize_t sent = send(fd, sealed + at, SEALED - at, MSG_NOSIGNAL);
            if (sent <= 0)
                return 1;
            at += (size_t)sent;
        }
    }
    close(fd);
    return 0;
}

/* Seconds from the first byte to the last; 0: not all came. */
static double take_pieces(int fd, long pieces)
{
    double begin_s = 0;
    for (long i = 0; i < pieces; i++) {
        for (size_t at = 0; at < SEALED;) {
            ssize_t got = recv(fd, sealed + at, SEALED - at, 0);
            if (got <= 0)
                return 0;
            begin_s = begin_s == 0 ? env_mono_s() : begin_s;
            at += (size_t)got;
        }
        if (crypto_secretbox_open_easy(plain, sealed, SEALED, nonce, key) != 0)
            return 0;
    }
    return env_mono_s() - begin_s;
}

double bench_plain_tcp(int space, const char *host, double bytes)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t at_bytes = sizeof at;
    long pieces = (long)(bytes / PIECE) + 1;
    double took_s = 0;
    int status = 0, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = -1;
    bool good = listener >= 0 && inet_pton(AF_INET, host, &at.sin_addr) == 1 &&
                bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0 &&
                getsockname(listener, (struct sockaddr *)&at, &at_bytes) == 0;
    fflush(stdout);
    int pid = good ? fork() : -1;
    if (pid == 0)
        _exit(send_pieces(space, &at, pieces));
    if (pid > 0) {
        const struct timeval patience = {.tv_sec = 20};
        (void)setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        fd = accept(listener, NULL, NULL);
        took_s = fd >= 0 ? take_pieces(fd, pieces) : 0;
        if (took_s == 0)
            kill(pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
    }
    if (took_s == 0)
        fprintf(stderr, "bench: a plain TCP connection to %s brings nothing\n", host);
    if (fd >= 0)
        close(fd);
    if (listener >= 0)
        close(listener);
    return took_s > 0 ? (double)pieces * PIECE / took_s : 0;
}
