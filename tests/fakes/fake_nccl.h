/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nccl: what the played libnccl.so.2 (fake_nccl.c) and tests that use it agree on.
 *
 * It plays NCCL between processes of one machine, on arrays in the host's memory, with sums in order of rank. Without a
 * stream, a collective goes on whenever somebody asks how far it is, and is in progress until all ranks have come. With
 * one (struct fake_stream) it is queued there, and done by whoever empties the stream.
 *
 * The environment variable FAKE_NCCL says what goes wrong; it is looked at when something happens:
 *   version N      it is of that version
 *   error R N      on rank R, collective N (from 1) of a communicator fails, a moment later
 *   hang R N       on rank R, collective N does not end until it is aborted
 *   refuse R       on rank R, communicators cannot be made
 */
#ifndef TESTS_FAKES_FAKE_NCCL_H
#define TESTS_FAKES_FAKE_NCCL_H

#include <stdbool.h>

/* What kern->stream() has to give. */
struct fake_stream {
    /* Calls job(arg) until it returns true, when all that was queued before is done. */
    void (*enqueue)(struct fake_stream *stream, bool (*job)(void *arg), void *arg);
};

#endif
