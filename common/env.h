/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env: time and randomness, the two things a simulation replaces.
 *
 * State machines take the time as an argument and never call env_*_ms(). The random generator is counter-based on a
 * 64-bit state (SplitMix64, Steele et al. 2014) and its normal deviates use only IEEE +, -, x, / and sqrt in double,
 * so one seed gives the same bits on every machine, compiler and libm.
 */
#ifndef COMMON_ENV_H
#define COMMON_ENV_H

#include <stdint.h>

/* Monotonic milliseconds; the origin is arbitrary. */
uint64_t env_mono_ms(void);
/* The same in nanoseconds. */
uint64_t env_mono_ns(void);
/* Monotonic seconds with fraction, for measuring. */
double env_mono_s(void);
/* Processor time taken by the calling thread, and by all threads of the process that ever were; nanoseconds. */
uint64_t env_thread_cpu_ns(void);
uint64_t env_process_cpu_ns(void);
/* Milliseconds since 1970-01-01 UTC. */
uint64_t env_wall_ms(void);

struct env_rng {
    uint64_t state;
};

/* Streams of different (seed, stream) pairs are independent for all practical purposes. */
struct env_rng env_rng_init(uint64_t seed, uint64_t stream);
uint64_t env_rng_u64(struct env_rng *rng);
/* Uniform in [0, bound) without bias; bound > 0. */
uint64_t env_rng_below(struct env_rng *rng, uint64_t bound);
/* Uniform in (0, 1): never 0, never 1. */
double env_rng_uniform(struct env_rng *rng);
/* Standard normal, by inverting the distribution function (Wichura 1988, AS 241, about 1e-15). */
double env_rng_normal(struct env_rng *rng);

/* 64 bits of the system's randomness: for what must differ between processes that start alike. Never in a computation
 * that islands must agree on. */
uint64_t env_random_u64(void);

/* One round of SplitMix64's output function: a good 64-bit mixer for hashing small keys. */
uint64_t env_mix64(uint64_t value);

#endif
