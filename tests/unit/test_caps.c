/* SPDX-License-Identifier: Apache-2.0 */
/* caps: what a line stands still for is told with the setting to change, where it matters, and nowhere else. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "net/transport/caps.h"

enum { MBIT = 1000000, MIB = 1 << 20 };

/* Linux's own values, and a kernel that has bbr. */
static const struct caps usual = {.grows_bytes = 4 * MIB,
                                  .send_bytes = 4 * MIB,
                                  .receive_bytes = 6 * MIB,
                                  .wmem = {4096, 16384},
                                  .rmem = {4096, 131072},
                                  .congestion = "cubic",
                                  .allowed = "reno cubic"};

static struct caps_line line_of(uint64_t mbit, unsigned rtt_ms, unsigned connections)
{
    return (struct caps_line){.island = "paris",
                              .rtt_us = rtt_ms * 1000,
                              .up_bits = mbit * MBIT,
                              .down_bits = mbit * MBIT,
                              .window_out = 1024 * MIB,
                              .window_in = 1024 * MIB,
                              .connections = connections};
}

static void assert_tells(const struct caps *caps, const struct caps_line *line, const char *part)
{
    char text[CAPS_TEXT_BYTES];
    if (!caps_tell(caps, line, text) || strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say: %s", text, part);
}

static void assert_quiet(const struct caps *caps, const struct caps_line *line)
{
    char text[CAPS_TEXT_BYTES] = "what was there";
    if (caps_tell(caps, line, text) || text[0] != '\0')
        fail_msg("it says: %s", text);
}

static void a_buffer_that_caps_the_line_is_told_with_the_value_to_set(void **state)
{
    (void)state;
    /* 1 Gbit/s at 80 ms is 10 MB, of which one connection may keep 2 MiB, and take in 3 MiB. */
    struct caps_line line = line_of(1000, 80, 1);
    assert_tells(&usual, &line, "the line to paris (80 ms)");
    assert_tells(&usual, &line, "1 connection send 209 of 1000 Mbit/s: sysctl -w net.ipv4.tcp_wmem=\"4096 16384 ");
    assert_tells(&usual, &line, "take in 314 of 1000 Mbit/s: sysctl -w net.ipv4.tcp_rmem=\"4096 131072 ");
    /* What it says to set is enough. */
    char text[CAPS_TEXT_BYTES];
    struct caps set = usual;
    unsigned long long wmem = 0, rmem = 0;
    assert_true(caps_tell(&usual, &line, text));
    assert_int_equal(sscanf(strstr(text, "tcp_wmem="), "tcp_wmem=\"4096 16384 %llu\"", &wmem), 1);
    assert_int_equal(sscanf(strstr(text, "tcp_rmem="), "tcp_rmem=\"4096 131072 %llu\"", &rmem), 1);
    set.send_bytes = wmem;
    set.receive_bytes = rmem;
    assert_quiet(&set, &line);
    assert_in_range(wmem, 2 * 10000000, 2 * 10000000 + MIB);
    /* Eight carry it as it is. */
    line.connections = 8;
    assert_quiet(&usual, &line);
    line = line_of(10000, 80, 8);
    assert_tells(&usual, &line, "8 connections send 1677 of 10000 Mbit/s");
}

static void bbr_is_missed_where_a_loss_would_cost_much(void **state)
{
    (void)state;
    struct caps caps = usual;
    struct caps_line far = line_of(20, 80, 8), slow = line_of(1, 80, 8);
    assert_quiet(&caps, &far);
    caps.bbr_error = ENOENT;
    assert_tells(&caps, &far, "cubic takes every loss for a queue");
    assert_tells(&caps, &far, "modprobe tcp_bbr");
    assert_quiet(&caps, &slow);
    caps.bbr_error = EPERM;
    assert_tells(&caps, &far, "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno cubic bbr\"");
}

static void a_window_is_told_where_it_is_set(void **state)
{
    (void)state;
    struct caps_line line = line_of(1000, 80, 8);
    line.window_out = 4 * MIB;
    assert_tells(&usual, &line, "[net] window lets it carry 419 of 1000 Mbit/s: window = 10MiB on paris");
    line.window_out = 1024 * MIB;
    line.window_in = 4 * MIB;
    assert_tells(&usual, &line, "window = 10MiB here");
}

/* On one machine and in a house nothing is far enough to matter, whatever the settings. */
static void near_lines_are_never_told_of(void **state)
{
    (void)state;
    struct caps caps = usual;
    struct caps_line line = line_of(100000, 1, 1);
    caps.bbr_error = ENOENT;
    assert_quiet(&caps, &line);
    line.rtt_us = 0; /* not known */
    assert_quiet(&caps, &line);
    line = line_of(100000, 2, 1);
    assert_tells(&caps, &line, "modprobe");
}

static void what_is_not_known_is_not_told(void **state)
{
    (void)state;
    struct caps_line line = line_of(100000, 80, 1);
    struct caps nothing = {0};
    line.window_in = line.window_out = 0;
    assert_quiet(&nothing, &line);
    line = line_of(0, 80, 1);
    assert_quiet(&usual, &line);
}

/* Read from a folder like the kernel's; what a socket may be set to is the kernel's to say. */
static void settings_are_read(void **state)
{
    (void)state;
    struct caps caps;
    const char *folder = testlib_folder("caps");
    caps_read(folder, &caps);
    assert_int_equal(caps.send_bytes, 0);
    assert_int_equal(caps.receive_bytes, 0);
    assert_string_equal(caps.congestion, "");
    assert_int_equal(mkdir(testlib_path(folder, "ipv4"), 0755), 0);
    (void)testlib_file(folder, "ipv4/tcp_wmem", "%s", "4096\t16384\t1234567890\n");
    (void)testlib_file(folder, "ipv4/tcp_rmem", "%s", "4096\t131072\t6291456\n");
    (void)testlib_file(folder, "ipv4/tcp_congestion_control", "%s", "reno\n");
    (void)testlib_file(folder, "ipv4/tcp_allowed_congestion_control", "%s", "reno cubic\n");
    caps_read(folder, &caps);
    assert_int_equal(caps.grows_bytes, 1234567890);
    assert_int_equal(caps.send_bytes, 1234567890);
    assert_int_equal(caps.receive_bytes, 6291456);
    assert_int_equal(caps.wmem[1], 16384);
    assert_int_equal(caps.rmem[1], 131072);
    assert_string_equal(caps.congestion, "reno");
    assert_string_equal(caps.allowed, "reno cubic");
    (void)testlib_file(folder, "ipv4/tcp_wmem", "%s", "nonsense\n");
    caps_read(folder, &caps);
    assert_int_equal(caps.send_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_that_caps_the_line_is_told_with_the_value_to_set),
        cmocka_unit_test(bbr_is_missed_where_a_loss_would_cost_much),
        cmocka_unit_test(a_window_is_told_where_it_is_set),
        cmocka_unit_test(near_lines_are_never_told_of),
        cmocka_unit_test(what_is_not_known_is_not_told),
        cmocka_unit_test(settings_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
