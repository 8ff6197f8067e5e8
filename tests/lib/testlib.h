/* SPDX-License-Identifier: Apache-2.0 */
/*
 * testlib: what several tests need: cmocka's includes, temporary folders, JSON vectors, random arrays.
 * A failure in a helper fails the running test.
 */
#ifndef TESTS_LIB_TESTLIB_H
#define TESTS_LIB_TESTLIB_H

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/conf.h"
#include "common/env.h"
#include "common/err.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1 /* gcc's name for it */
#endif
#endif

/* Asserts success and prints the recorded error otherwise. */
#define assert_ok(expression)                                                       \
    do {                                                                            \
        enum err assert_ok_ = (expression);                                         \
        if (assert_ok_ != ERR_OK)                                                   \
            fail_msg("%s: %s (%s)", #expression, err_text(), err_name(assert_ok_)); \
    } while (0)

/* Asserts that it fails with this code and that the error text contains `part`. */
#define assert_fails(code, part, expression) testlib_assert_fails((code), (part), (expression), #expression)
void testlib_assert_fails(enum err want, const char *part, enum err got, const char *expression);

/* Says why and skips the running cmocka case. */
#define skip_because(reason)                 \
    do {                                     \
        print_message("skip: %s\n", reason); \
        skip();                              \
    } while (0)

/* A new empty folder under the build folder; the path stays valid for the process. */
const char *testlib_folder(const char *name);
/* Removes the files in it. */
void testlib_clear(const char *folder);
/* printf into a new file; returns its path (valid for the process). */
const char *testlib_file(const char *folder, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "folder/name", valid for the process. */
const char *testlib_path(const char *folder, const char *name);
/* Changes one bit of the byte at `at` of a file; once more, and it is as it was. */
void testlib_damage(const char *path, off_t at);
off_t testlib_file_bytes(const char *path);

/* Fails unless the file, after the comment at its top, is word for word what conf_print() documents: a sample that is
 * the manual. */
void testlib_assert_manual(const struct conf_schema *schema, const void *conf, const char *path);

/* The "cases" array of tests/vectors/NAME.json; borrowed for the process. */
json_t *testlib_cases(const char *name);
/* An array of 8-digit hexadecimal float patterns, or of numbers; returns the count. */
size_t testlib_hex_floats(const json_t *array, float *out, size_t out_max);

float testlib_bits_float(uint32_t bits);
uint32_t testlib_float_bits(float value);

void testlib_fill_normal(struct env_rng *rng, float *out, size_t count, double sigma);
/* Two-sided exponential of unit variance. */
void testlib_fill_laplace(struct env_rng *rng, float *out, size_t count, double sigma);

/* ||a - b|| / ||b|| */
double testlib_relative_error(const float *a, const float *b, size_t count);

/* How many seeds to try of what runs in one thread: `initial`; a quarter of it where every access is looked up, which
 * takes several times as long; a twentieth where it is looked up for races, of which there can be none; at least one.
 * The environment variable TEST_SEEDS overrides all. */
unsigned testlib_seeds(unsigned initial);

/* Waits for a semaphore; false: nobody posted it in time. */
bool testlib_sem_wait(sem_t *sem, int seconds);

#endif
