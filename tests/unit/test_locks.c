/* SPDX-License-Identifier: Apache-2.0 */
/* Locks on file systems that keep none: told as what they are, never as another program that runs there. flock() and
 * fcntl() are the tests'. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/newfolder.h"
#include "daemon/home.h"
#include "tests/lib/ledgers.h"

static int refusal; /* errno; 0: locks work */

int flock(int fd, int operation)
{
    errno = refusal;
    return refusal != 0 ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    errno = refusal;
    return refusal != 0 && command == F_SETLK ? -1 : (int)syscall(SYS_fcntl, fd, command, argument);
}

int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));

static const char advice[] =
    "its file system keeps no locks (NFS without a lock service, Lustre without flock), and two "
    "programs could write there at once: use a folder on a disk of this machine";

static void assert_told(enum err err)
{
    assert_int_equal(err, ERR_CONF);
    assert_non_null(strstr(err_text(), strerror(refusal)));
    assert_non_null(strstr(err_text(), advice));
    assert_null(strstr(err_text(), "another"));
}

static void a_file_system_without_locks_is_told_as_that(void **state)
{
    (void)state;
    const char *folder = testlib_folder("locks");
    struct ledger_conf conf = ledgers_conf(folder);
    struct ledger *ledger;
    struct newfolder made;
    struct home home;
    bool held;
    int fd = open(folder, O_RDONLY | O_DIRECTORY), pid_fd;
    static const int refusals[] = {ENOLCK, ENOSYS, EOPNOTSUPP};
    assert_ok(home_find(folder, &home));
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        refusal = refusals[i];
        assert_told(fsio_lock(fd, folder, &held));
        assert_told(newfolder_begin(&made, testlib_path(folder, "made"), NULL, NULL));
        assert_told(home_lock(&home, &pid_fd));
        assert_int_equal(pid_fd, -1);
        assert_told(ledger_open(&conf, &ledger));
        assert_non_null(strstr(err_text(), "set [island] state, and sockets"));
    }
    refusal = EIO;
    assert_fails(ERR_IO, "the disk fails", fsio_lock(fd, folder, &held));
    refusal = 0;
    assert_ok(fsio_lock(fd, folder, &held));
    assert_true(held);
    int other = open(folder, O_RDONLY | O_DIRECTORY);
    assert_ok(fsio_lock(other, folder, &held));
    assert_false(held);
    close(other);
    close(fd);
    home_free(&home);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_system_without_locks_is_told_as_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
