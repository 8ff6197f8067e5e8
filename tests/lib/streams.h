/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams: a table of operations whose queues are threads, as a GPU's streams are beside their host: what is queued is
 * done in the order of its queue, and later than the call. Memory, and all that is not a copy, is the CPU table's. Its
 * streams are those that the played NCCL (tests/fakes/fake_nccl.h) queues collectives in. A word is copied at once.
 *
 * One device at a time in a process; one thread calls. Reading, writing or freeing too early is seen by the thread
 * sanitizer, or as a wrong value.
 */
#ifndef TESTS_LIB_STREAMS_H
#define TESTS_LIB_STREAMS_H

#include <stdbool.h>

#include "kernels/kern_table.h"

/* The table, complete after the first call. */
const struct kern *streams_table(void);

/* Whether pin() refuses from now on. */
void streams_refuse_pins(bool refuse);

#endif
