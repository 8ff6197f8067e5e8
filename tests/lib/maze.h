/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maze: a fault that no luck finds, for the proof that fuzzing is guided (tests/fuzz/guided.sh).
 *
 * Its way is a row of comparisons with single bytes and with one number, each in a branch of its own. Who changes
 * inputs at random has to hit all at once; who sees which branches an input took finds them one by one.
 */
#ifndef TESTS_LIB_MAZE_H
#define TESTS_LIB_MAZE_H

#include <stddef.h>
#include <stdint.h>

enum { MAZE_END = 6, MAZE_BYTES = 16 };

/* How many turns in a row are right; MAZE_END: the planted fault. Pure. */
unsigned maze_walk(const uint8_t *data, size_t bytes);

#endif
