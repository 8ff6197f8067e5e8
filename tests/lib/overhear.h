/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overhear: what this process logs, for tests of what people are told. One listener at a time; what was heard is said
 * again on standard error, so that no log has a hole.
 */
#ifndef TESTS_LIB_OVERHEAR_H
#define TESTS_LIB_OVERHEAR_H

void overhear_begin(void);
/* All that was logged since; valid until the next overhear_begin(). */
const char *overhear_end(void);
/* How often `part` stands in what was logged. */
unsigned overhear_count(const char *logged, const char *part);
/* Fails the test unless `part` stands in what was logged, and once. */
void overhear_assert_once(const char *logged, const char *part);

#endif
