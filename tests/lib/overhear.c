/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/overhear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/testlib.h"

static int before = -1, heard = -1;
static char text[64 << 10];

/* A test that failed while it listened: what was heard has the reason in it. */
static void end_open(void)
{
    if (before >= 0)
        overhear_end();
}

__attribute__((constructor)) static void end_at_exit(void)
{
    atexit(end_open);
}

void overhear_begin(void)
{
    end_open();
    heard = memfd_create("overheard", MFD_CLOEXEC);
    before = dup(STDERR_FILENO);
    assert_true(heard >= 0 && before >= 0);
    assert_int_equal(dup2(heard, STDERR_FILENO), STDERR_FILENO);
}

const char *overhear_end(void)
{
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    ssize_t bytes = pread(heard, text, sizeof text - 1, 0);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    close(before);
    close(heard);
    before = -1;
    fputs(text, stderr);
    return text;
}

unsigned overhear_count(const char *logged, const char *part)
{
    unsigned count = 0;
    for (const char *at = strstr(logged, part); at != NULL; at = strstr(at + 1, part))
        count++;
    return count;
}

void overhear_assert_once(const char *logged, const char *part)
{
    assert_int_equal(overhear_count(logged, part), 1);
}
