/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/squat.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/env.h"

/* No tick of the listener's comes in between: it looks all the time. */
enum { WAIT_MS = 2000 };

static struct {
    unsigned port;
    int fd;
    pthread_t thread;
} squat;

static void *wait_for_it(void *unused)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)squat.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int on = 1;
    uint64_t until_ms = env_mono_ms() + WAIT_MS;
    squat.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(squat.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool got = false;
    while (!got && env_mono_ms() < until_ms)
        got = bind(squat.fd, (const struct sockaddr *)(const void *)&address, sizeof address) == 0 &&
              listen(squat.fd, 1) == 0;
    if (!got) {
        close(squat.fd);
        squat.fd = -1;
    }
    return unused;
}

void squat_begin(unsigned port)
{
    squat.port = port;
    squat.fd = -1;
    if (pthread_create(&squat.thread, NULL, wait_for_it, NULL) != 0)
        squat.thread = pthread_self();
}

bool squat_got(void)
{
    if (!pthread_equal(squat.thread, pthread_self()))
        pthread_join(squat.thread, NULL);
    return squat.fd >= 0;
}

void squat_end(void)
{
    close(squat.fd);
    squat.fd = -1;
}
