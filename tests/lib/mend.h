/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mend: makes the digests of changed bytes right again, so that fuzzing comes to what lies behind them.
 *
 * Who wants to harm us can make digests right, too. docs/FORMATS.md, 2 and 3, has the places; bytes that are too short
 * to have one stay as they are. Pure.
 */
#ifndef TESTS_LIB_MEND_H
#define TESTS_LIB_MEND_H

#include <stddef.h>
#include <stdint.h>

/* A codec frame. */
void mend_frame(uint8_t *frame, size_t bytes);
/* A contribution or a result, and the frame in it; its length of the frame, too. A signature stays as it is. */
void mend_object(uint8_t *object, size_t bytes);

#endif
