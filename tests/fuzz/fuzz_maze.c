/* SPDX-License-Identifier: Apache-2.0 */
/* A planted fault that only guidance finds (tests/lib/maze.h). Plain `make check` shows that chance does not find it,
 * tests/fuzz/guided.sh that libFuzzer does, and only with the counters that `make fuzz` builds our archives with. */
#include <stdlib.h>

#include "common/digest.h"
#include "tests/lib/fuzz.h"
#include "tests/lib/maze.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (maze_walk(data, bytes) == MAZE_END)
        abort();
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    if (digest_init() != ERR_OK)
        return 1;
    return fuzz_replay("maze", LLVMFuzzerTestOneInput, 500000);
}
#endif
