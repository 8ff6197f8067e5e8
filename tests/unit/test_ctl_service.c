/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_service: what systemd's programs are asked, by played ones. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/ctl/ctl_service.h"

static const char *folder;

static void play(const char *program, const char *script)
{
    const char *path =
        testlib_file(folder, program, "#!/bin/sh\necho \"%s $*\" >>%s/asked\n%s", program, folder, script);
    assert_int_equal(chmod(path, 0755), 0);
}

static void assert_asked(const char *want)
{
    char *text;
    size_t bytes;
    const char *path = testlib_path(folder, "asked");
    assert_ok(fsio_read(path, 1 << 16, &text, &bytes));
    assert_string_equal(text, want);
    mem_free(text);
    unlink(path);
}

static void without_systemd_the_remedy_is_named(void **state)
{
    (void)state;
    assert_fails(ERR_STATE, "--home DIR", ctl_service_start("no/such/folder", false));
    assert_fails(ERR_STATE, "--home DIR", ctl_service_stop("no/such/folder"));
    assert_fails(ERR_STATE, "--home DIR", ctl_service_logs("no/such/folder", false, false));
}

static void it_is_started_and_stopped_once(void **state)
{
    (void)state;
    play("systemctl", "[ $1 != is-active ] || { echo inactive; echo noise >&2; exit 3; }\n");
    assert_ok(ctl_service_start(folder, false));
    assert_asked("systemctl is-active dilocod\nsystemctl start dilocod\n");
    assert_ok(ctl_service_start(folder, true));
    assert_asked("systemctl is-active dilocod\nsystemctl enable --now dilocod\n");
    assert_ok(ctl_service_stop(folder));
    assert_asked("systemctl is-active dilocod\n");
    play("systemctl", "[ $1 != is-active ] || { echo noise >&2; echo active; }\n");
    assert_ok(ctl_service_start(folder, false));
    assert_asked("systemctl is-active dilocod\n");
    assert_ok(ctl_service_stop(folder));
    assert_asked("systemctl is-active dilocod\nsystemctl stop dilocod\n");
    play("systemctl", "[ $1 != is-active ] || { echo activating; exit 3; }\n"); /* again and again, it may be */
    assert_ok(ctl_service_stop(folder));
    assert_asked("systemctl is-active dilocod\nsystemctl stop dilocod\n");
}

static void a_service_that_does_not_start_is_an_error(void **state)
{
    (void)state;
    play("systemctl", "[ $1 = is-active ] && echo failed\nexit 1\n");
    assert_fails(ERR_STATE, "dilococtl logs", ctl_service_start(folder, false));
    unlink(testlib_path(folder, "asked"));
}

static void the_log_is_the_journal(void **state)
{
    (void)state;
    play("journalctl", "");
    assert_ok(ctl_service_logs(folder, false, false));
    assert_ok(ctl_service_logs(folder, true, false));
    assert_ok(ctl_service_logs(folder, true, true));
    assert_asked("journalctl -u dilocod\njournalctl -u dilocod -f\njournalctl -u dilocod -g ^trainer:  -f\n");
    play("journalctl", "exit 1\n");
    assert_fails(ERR_STATE, "sudo", ctl_service_logs(folder, false, false));
}

int main(void)
{
    char path[4096];
    folder = testlib_folder("ctl-service");
    snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    setenv("PATH", path, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_systemd_the_remedy_is_named),
        cmocka_unit_test(it_is_started_and_stopped_once),
        cmocka_unit_test(a_service_that_does_not_start_is_an_error),
        cmocka_unit_test(the_log_is_the_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
