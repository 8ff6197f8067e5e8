/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench: how far we are from what the machine can do. Every figure is taken next to the machine's own limit in the same
 * run, because machines are shared and drift; the ratio is what counts. Nothing here passes or fails on time.
 */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include <jansson.h>

/* Median of an array, which is sorted in place. */
double bench_median(double *values, int count);

/* A training step against the peak of sgemm. */
void bench_train(json_t *summary);
/* The codec against memcpy, on one core. */
void bench_codec(json_t *summary);
/* A whole model between daemons on loopback: wall time, and the daemons' processor time by what they did. `only`: the
 * cases, as in "fp32 64 2", whose name contains this; NULL: all. */
void bench_exchange(json_t *summary, const char *programs, const char *only);
/* A run with an island four times slower against the islands' own speeds. */
void bench_unequal(json_t *summary);
/* Lines of 1 Mbit/s to 1 Gbit/s, near and far. `only`: those whose name contains this; NULL: all. */
void bench_line(json_t *summary, const char *only);
/* The peak of what an island sends against its mean. */
void bench_even(json_t *summary);
/* A PyTorch training loop attached to a daemon against the same loop alone; null where there is no PyTorch. */
void bench_attached(json_t *summary);
/* libdiloco under models of 85M and 256M values: attaching, and its calls against memcpy. */
void bench_library(json_t *summary, const char *programs);

#endif
