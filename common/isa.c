/* SPDX-License-Identifier: Apache-2.0 */
#include "common/isa.h"

size_t isa_levels(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return ISA_LEVEL_BASE + 1;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return ISA_LEVEL_AVX2 + 1;
    return ISA_LEVEL_AVX512 + 1;
#else
    return ISA_LEVEL_BASE + 1;
#endif
}
