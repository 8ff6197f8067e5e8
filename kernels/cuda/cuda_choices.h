/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_choices: which algorithm each product of matrices goes by, kept in a file from one process to the next.
 *
 * Algorithms are chosen by trials, and trials come out one way today and another way tomorrow. Another algorithm adds
 * up in another order, so that a run that goes on from a checkpoint would differ in its last bits from one that was
 * never stopped. A file is text: a line that says for which GPU and library it holds, and one line a product. One that
 * holds for others is begun anew; a damaged line is passed over. Where it cannot be read or written, choices are made
 * again each time, and nothing fails. No file of it is shared by processes at a time. Nothing here knows CUDA. Private
 * to this folder; the thread that uses the device calls.
 */
#ifndef KERNELS_CUDA_CUDA_CHOICES_H
#define KERNELS_CUDA_CUDA_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

enum { CUDA_CHOICE_KEYS = 10, CUDA_CHOICE_BYTES = 64 };

struct cuda_choices;

/* `path` NULL: none is kept. `identity`: one line, without its end. Both are copied; the file is read, or begun, when
 * it is first asked. ERR_NOMEM. */
ERR_MUST_CHECK enum err cuda_choices_open(const char *path, const char *identity, struct cuda_choices **out);
/* NULL is fine. */
void cuda_choices_close(struct cuda_choices *choices);

/* What was chosen for a key, in algorithm[CUDA_CHOICE_BYTES]; false: nothing. */
bool cuda_choices_find(struct cuda_choices *choices, const int64_t key[CUDA_CHOICE_KEYS], unsigned char *algorithm);
/* Keeps a choice for a key that had none, or another. */
void cuda_choices_add(struct cuda_choices *choices, const int64_t key[CUDA_CHOICE_KEYS],
                      const unsigned char *algorithm);

#endif
