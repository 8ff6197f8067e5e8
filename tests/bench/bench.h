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

/* Of a process: seconds of processor time so far, and the most memory that it had; 0: not known. */
double bench_cpu_s(int pid);
double bench_peak_bytes(int pid);

/* Bytes a second that a plain TCP connection carries, sealed by the cipher of our links in pieces of our chunks'
 * length, from a process in the network namespace of `space` (0: ours) to `host`, an address of ours; 0: it cannot be
 * measured, and why is said. */
double bench_plain_tcp(int space, const char *host, double bytes);

/* The line of JSON that a script of ours prints, run by a Python that has PyTorch; the caller's. NULL: `why` there is
 * none, valid until the next call. `log`: the file for what it says else. */
json_t *bench_python(const char *script, const char *log, const char **why);

/* A training step against the peak of sgemm. */
void bench_train(json_t *summary);
/* The codec against memcpy, on one core. */
void bench_codec(json_t *summary);
/* A whole model between daemons on loopback: wall time, and the daemons' processor time by what they did. `only`: the
 * cases, as in "fp32 64 2", whose name contains this; NULL: all. */
void bench_exchange(json_t *summary, const char *programs, const char *only);
/* Models of 16M to 256M parameters: a newcomer's way in, over lines and loopback, exchange, stop, restart, the loop's
 * lag and memory; how each grows with the model. `only`: the cases, as in "64M 2 100 Mbit/s", whose name contains this.
 */
void bench_sizes(json_t *summary, const char *programs, const char *only);
/* A run with an island four times slower against the islands' own speeds. */
void bench_unequal(json_t *summary);
/* Lines of 1 Mbit/s to 1 Gbit/s, near and far. `only`: those whose name contains this; NULL: all. */
void bench_line(json_t *summary, const char *only);
/* What membership takes of a core in idle runs of up to 1,024 members. */
void bench_members(json_t *summary);
/* The peak of what an island sends against its mean. */
void bench_even(json_t *summary);
/* A PyTorch training loop attached to a daemon against the same loop alone; null where there is no PyTorch. */
void bench_attached(json_t *summary);
/* An island's ranks on one machine and on two, joined by a line of 1 Gbit/s; null where there is no PyTorch or no root.
 */
void bench_nodes(json_t *summary);
/* What a gateway carries to and from a rank, against a plain TCP connection. */
void bench_gate(json_t *summary);
/* libdiloco under models of 85M and 256M values: attaching, and its calls against memcpy. */
void bench_library(json_t *summary, const char *programs);

#endif
