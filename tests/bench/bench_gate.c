/* SPDX-License-Identifier: Apache-2.0 */
/* What a gateway carries to and from a rank on loopback, against a plain TCP connection whose bytes are sealed by the
 * cipher of our links. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env.h"
#include "tests/bench/bench.h"
#include "tests/lib/proc.h"
#include "worker/gate/gate_door.h"
#include "worker/gate/gate_key_pair.h"
#include "worker/gate/gate_link.h"

enum { BYTES = 512 << 20, TAG_UP = 1, TAG_DOWN = 2, ROUNDS = 3, WAIT_MS = 10000 };
static const char key_path[] = "build/bench/gateway.key", site_path[] = "build/bench/site.key";

/* In a process of its own: gives the bytes up, and takes them again, as often as the other end does. */
static int be_rank(const char *address, char *bytes)
{
    struct gate_link *link;
    struct gate_link_conf conf = {.address = address,
                                  .key_path = site_path,
                                  .build = "bench",
                                  .name = "a rank",
                                  .group = 1,
                                  .count = 1,
                                  .wait_ms = WAIT_MS};
    if (gate_link_open(&conf, &link) != ERR_OK)
        return 1;
    bool good = true;
    for (int i = 0; good && i < ROUNDS; i++) {
        uint64_t up = gate_link_send(link, TAG_UP, bytes, BYTES);
        good = gate_link_arrived(link, up, true) == 1;
        uint64_t down = gate_link_receive(link, TAG_DOWN, bytes, BYTES);
        good = good && gate_link_arrived(link, down, true) == 1 && gate_link_meet(link);
    }
    gate_link_close(link);
    return good ? 0 : 1;
}

static bool measure(struct gate_door *door, char *bytes, double up_s[ROUNDS], double down_s[ROUNDS])
{
    while (gate_door_count(door) == 0 && gate_door_lost(door) == NULL)
        gate_door_turn(door, 10);
    for (int i = 0; i < ROUNDS; i++) {
        double begin_s = env_mono_s();
        uint64_t number = gate_door_receive(door, 0, TAG_UP, bytes, BYTES);
        if (number == 0 || gate_door_arrived(door, number, true) != 1)
            return false;
        up_s[i] = env_mono_s() - begin_s;
        begin_s = env_mono_s();
        number = gate_door_send(door, 0, TAG_DOWN, bytes, BYTES);
        /* The rank comes when it has them. */
        if (number == 0 || !gate_door_meet(door, 1) || gate_door_arrived(door, number, true) != 1)
            return false;
        down_s[i] = env_mono_s() - begin_s;
    }
    return true;
}

void bench_gate(json_t *summary)
{
    const struct gate_zmq *zmq;
    struct gate_key key;
    struct gate_door *door = NULL;
    char listen[64], address[64], *bytes = malloc(BYTES);
    double up_s[ROUNDS], down_s[ROUNDS];
    unsigned port = proc_free_port();
    snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%u", port);
    if (bytes == NULL || gate_zmq_open(&zmq) != ERR_OK ||
        gate_key_of_gateway(zmq, key_path, site_path, &key) != ERR_OK) {
        printf("gate      skipped: %s\n", err_text());
        free(bytes);
        return;
    }
    memset(bytes, 1, BYTES);
    pid_t rank = fork();
    if (rank == 0)
        _exit(be_rank(address, bytes));
    bool good =
        gate_door_open(zmq, listen, "bench", &key, WAIT_MS, &door) == ERR_OK && measure(door, bytes, up_s, down_s);
    int status = 1;
    gate_door_close(door);
    waitpid(rank, &status, 0);
    free(bytes);
    double plain = bench_plain_tcp(0, "127.0.0.1", BYTES);
    if (!good || status != 0 || plain <= 0) {
        printf("gate      failed\n");
        return;
    }
    double up = BYTES / bench_median(up_s, ROUNDS), down = BYTES / bench_median(down_s, ROUNDS);
    printf("gate      from a rank %.2f Gbit/s, to it %.2f, of a plain sealed connection %.0f and %.0f %%\n", up * 8e-9,
           down * 8e-9, 100 * up / plain, 100 * down / plain);
    json_object_set_new(summary, "gate",
                        json_pack("{s:f, s:f, s:f, s:f, s:f}", "up_bytes_s", up, "down_bytes_s", down, "plain_bytes_s",
                                  plain, "up_of_plain", up / plain, "down_of_plain", down / plain));
}
