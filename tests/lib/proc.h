/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc: starting and ending programs, and free ports; for tests, demo and benchmarks. No cmocka here.
 */
#ifndef TESTS_LIB_PROC_H
#define TESTS_LIB_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROC_ARGS_MAX = 32 };

/* Starts argv[0] with its output appended to `log` (NULL: ours), in a process group of its own, told to end when we
 * end. Returns its number, or -1. */
int proc_start(const char *const *argv, const char *log);

/* The same in the network and mount namespaces of process `space`; 0: in ours. `log` is a path there. */
int proc_start_in(int space, const char *const *argv, const char *log);

/* Exit status, or 128 + signal; -1 if it is still running after `seconds`. */
int proc_wait(int pid, double seconds);

/* Whether a thread of this process waits for something to come, and not for a processor. */
bool proc_thread_rests(int tid);

/* Runs a program to its end; its standard output goes into `out` (cut to fit). Returns as proc_wait(). */
int proc_run(const char *const *argv, const char *log, char *out, size_t out_bytes);
int proc_run_in(int space, const char *const *argv, const char *log, char *out, size_t out_bytes);

/* A TCP port on loopback nobody uses, and no other test will until this process ends; 0 if there is none. */
unsigned proc_free_port(void);

void proc_sleep_ms(long ms);

/* Kills the trainer whose number an island's state folder holds; for clean-up after a daemon was killed. */
void proc_kill_trainer(const char *state_folder);

#endif
