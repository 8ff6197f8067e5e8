/* SPDX-License-Identifier: Apache-2.0 */
/* Apart from env.c, so that who needs the time alone, as libdiloco does, links no libsodium. */
#include "common/env.h"

#include <sodium.h>

uint64_t env_random_u64(void)
{
    uint64_t value;
    randombytes_buf(&value, sizeof value);
    return value;
}
