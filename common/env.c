/* SPDX-License-Identifier: Apache-2.0 */
#include "common/env.h"

#include <math.h>
#include <string.h>
#include <time.h>

static double clock_s(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t env_mono_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t env_mono_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

double env_mono_s(void)
{
    return clock_s(CLOCK_MONOTONIC);
}

uint64_t env_thread_cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t env_process_cpu_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t env_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t env_mix64(uint64_t value)
{
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

struct env_rng env_rng_init(uint64_t seed, uint64_t stream)
{
    return (struct env_rng){.state = env_mix64(seed ^ env_mix64(stream + 0x9e3779b97f4a7c15u))};
}

uint64_t env_rng_u64(struct env_rng *rng)
{
    rng->state += 0x9e3779b97f4a7c15u;
    return env_mix64(rng->state);
}

uint64_t env_rng_below(struct env_rng *rng, uint64_t bound)
{
    /* Values below 2^64 mod bound would make small results likelier; draw again. */
    uint64_t reject_below = (0 - bound) % bound;
    uint64_t value;
    do
        value = env_rng_u64(rng);
    while (value < reject_below);
    return value % bound;
}

double env_rng_uniform(struct env_rng *rng)
{
    return ((double)(env_rng_u64(rng) >> 11) + 0.5) * 0x1p-53;
}

/* Natural logarithm from IEEE basic operations alone: libm's log() may differ in the last bit between machines.
 * x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m-1)/(m+1)), |argument| < .1716, series to 2e-17. */
static double log_exact_order(double x)
{
    uint64_t raw;
    memcpy(&raw, &x, sizeof raw);
    int exponent = (int)(raw >> 52) - 1023;
    raw = (raw & 0xfffffffffffffu) | 0x3ff0000000000000u;
    double mantissa;
    memcpy(&mantissa, &raw, sizeof mantissa);
    if (mantissa > 1.4142135623730951) {
        mantissa *= 0.5;
        exponent++;
    }
    double z = (mantissa - 1) / (mantissa + 1);
    double z2 = z * z;
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2)
        sum = sum * z2 + 1.0 / k;
    return 2 * z * sum + exponent * 0.6931471805599453;
}

static double ratio(const double num[8], const double den[8], double x)
{
    double n = num[7];
    double d = den[7];
    for (int i = 6; i >= 0; i--) {
        n = n * x + num[i];
        d = d * x + den[i];
    }
    return n / d;
}

double env_rng_normal(struct env_rng *rng)
{
    static const double a[8] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                3.3430575583588128105e+4, 2.5090809287301226727e+3};
    static const double b[8] = {1.0,
                                4.2313330701600911252e+1,
                                6.8718700749205790830e+2,
                                5.3941960214247511077e+3,
                                2.1213794301586595867e+4,
                                3.9307895800092710610e+4,
                                2.8729085735721942674e+4,
                                5.2264952788528545610e+3};
    static const double c[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double d[8] = {1.0,
                                2.05319162663775882187e0,
                                1.67638483018380384940e0,
                                6.89767334985100004550e-1,
                                1.48103976427480074590e-1,
                                1.51986665636164571966e-2,
                                5.47593808499534494600e-4,
                                1.05075007164441684324e-9};
    static const double e[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double f[8] = {1.0,
                                5.99832206555887937690e-1,
                                1.36929880922735805310e-1,
                                1.48753612908506148525e-2,
                                7.86869131145613259100e-4,
                                1.84631831751005468180e-5,
                                1.42151175831644588870e-7,
                                2.04426310338993978564e-15};
    double p = env_rng_uniform(rng);
    double q = p - 0.5;
    if (q >= -0.425 && q <= 0.425)
        return q * ratio(a, b, 0.180625 - q * q);
    double tail = sqrt(-log_exact_order(q < 0 ? p : 1 - p));
    double x = tail <= 5 ? ratio(c, d, tail - 1.6) : ratio(e, f, tail - 5);
    return q < 0 ? -x : x;
}
