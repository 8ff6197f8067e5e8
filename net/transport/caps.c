/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/caps.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/transport/socket.h"

enum { US = 1000000, BITS = 8, MIB = 1 << 20, MBIT = 1000000, PATH_BYTES = 256 };
/* BUFFER_PARTS: of a buffer one part holds bytes. ENOUGH: percent of the line that need no remedy. */
enum { BUFFER_PARTS = 2, ENOUGH = 90 };
/* NEAR: a round trip inside a site. LOSS: what a connection has under way where losing one segment of 10 000 makes any
 * other congestion control than bbr the slower one: 122 segments of 1448 bytes. */
enum { NEAR_US = 2000, LOSS_BYTES = 122 * 1448 };

/* ---- the system ---- */

/* The first line of a setting; false: it is not there. */
static bool read_line(const char *folder, const char *name, char *text, size_t text_bytes)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    bool good = file != NULL && fgets(text, (int)text_bytes, file) != NULL;
    if (file != NULL)
        fclose(file);
    if (!good)
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return good;
}

/* least, default, most: the first two to `first`. */
static uint64_t read_memory(const char *folder, const char *name, uint64_t first[2])
{
    char text[96];
    uint64_t most = 0;
    first[0] = first[1] = 0;
    if (!read_line(folder, name, text, sizeof text) ||
        sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &first[0], &first[1], &most) != 3)
        return 0;
    return most;
}

/* What a socket of ours may have is found out with one that is never connected. */
static void try_socket(struct caps *caps)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    caps->bbr_error = socket_set_congestion(fd, "bbr");
    if (caps->send_bytes > 0) {
        uint64_t most = socket_make_room(fd, SOCKET_ROOM_MAX, 0);
        caps->send_bytes = most > caps->send_bytes ? most : caps->send_bytes;
    }
    close(fd);
}

void caps_read(const char *folder, struct caps *out)
{
    *out = (struct caps){0};
    out->grows_bytes = out->send_bytes = read_memory(folder, "ipv4/tcp_wmem", out->wmem);
    out->receive_bytes = read_memory(folder, "ipv4/tcp_rmem", out->rmem);
    (void)read_line(folder, "ipv4/tcp_congestion_control", out->congestion, sizeof out->congestion);
    (void)read_line(folder, "ipv4/tcp_allowed_congestion_control", out->allowed, sizeof out->allowed);
    try_socket(out);
}

/* ---- a line ---- */

/* Bytes under way when the line is full. */
static uint64_t content(uint64_t bits_per_s, uint64_t us)
{
    return (uint64_t)((unsigned __int128)bits_per_s * us / BITS / US);
}

/* Megabits per second, with so many bytes in each round trip. */
static uint64_t mbit(uint64_t bytes, uint64_t rtt_us)
{
    return bytes * BITS / rtt_us;
}

bool caps_is_near(const struct caps_line *line)
{
    return line->rtt_us < NEAR_US;
}

static void add(char *text, const char *part)
{
    size_t at = strlen(text);
    snprintf(text + at, CAPS_TEXT_BYTES - at, "%s%s", at > 0 ? "; " : "", part);
}

static void tell_bbr(const struct caps *caps, const struct caps_line *line, char *text)
{
    char part[300];
    if (caps->bbr_error == 0 || content(line->up_bits, line->rtt_us) <= LOSS_BYTES)
        return;
    const char *used = caps->congestion[0] != '\0' ? caps->congestion : "the congestion control here";
    if (caps->bbr_error == EPERM)
        snprintf(part, sizeof part,
                 "%s takes every loss for a queue, and bbr, which does not, is not allowed: sysctl -w "
                 "net.ipv4.tcp_allowed_congestion_control=\"%s bbr\"",
                 used, caps->allowed);
    else
        snprintf(part, sizeof part,
                 "%s takes every loss for a queue, and bbr, which does not, is not loaded: modprobe tcp_bbr", used);
    add(text, part);
}

/* `most` bytes of each connection's buffer, against a line of so many bits per second. */
static void tell_buffer(uint64_t most, const uint64_t first[2], const char *setting, const char *verb, uint64_t bits,
                        const struct caps_line *line, char *text)
{
    char part[300];
    uint64_t needed = content(bits, line->rtt_us), held = most / BUFFER_PARTS * line->connections;
    if (most == 0 || held >= needed / 100 * ENOUGH)
        return;
    uint64_t each = (needed * BUFFER_PARTS / line->connections / MIB + 1) * MIB;
    snprintf(part, sizeof part,
             "its buffers let %u connection%s %s %" PRIu64 " of %" PRIu64 " Mbit/s: sysctl -w net.ipv4.%s=\"%" PRIu64
             " %" PRIu64 " %" PRIu64 "\"",
             line->connections, line->connections > 1 ? "s" : "", verb, mbit(held, line->rtt_us), bits / MBIT, setting,
             first[0], first[1], each);
    add(text, part);
}

static void tell_window(uint64_t window, const char *whose, uint64_t bits, const struct caps_line *line, char *text)
{
    char part[200];
    uint64_t needed = content(bits, line->rtt_us);
    if (window == 0 || window >= needed / 100 * ENOUGH)
        return;
    snprintf(part, sizeof part,
             "[net] window lets it carry %" PRIu64 " of %" PRIu64 " Mbit/s: window = %" PRIu64 "MiB %s",
             mbit(window, line->rtt_us), bits / MBIT, needed / MIB + 1, whose);
    add(text, part);
}

bool caps_tell(const struct caps *caps, const struct caps_line *line, char text[CAPS_TEXT_BYTES])
{
    char parts[CAPS_TEXT_BYTES] = "", there[96];
    text[0] = '\0';
    if (caps_is_near(line))
        return false;
    snprintf(there, sizeof there, "on %s", line->island);
    tell_bbr(caps, line, parts);
    tell_buffer(caps->send_bytes, caps->wmem, "tcp_wmem", "send", line->up_bits, line, parts);
    tell_buffer(caps->receive_bytes, caps->rmem, "tcp_rmem", "take in", line->down_bits, line, parts);
    tell_window(line->window_out, there, line->up_bits, line, parts);
    tell_window(line->window_in, "here", line->down_bits, line, parts);
    if (parts[0] == '\0')
        return false;
    snprintf(text, CAPS_TEXT_BYTES, "the line to %s (%" PRIu64 " ms) may carry more: %s", line->island,
             line->rtt_us / 1000, parts);
    return true;
}
