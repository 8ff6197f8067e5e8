/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/maze.h"

#include <string.h>

/* Not a loop over a table: a counter of its turns would tell four right ones from five no better than not at all. */
unsigned maze_walk(const uint8_t *data, size_t bytes)
{
    uint32_t number;
    if (bytes < MAZE_BYTES)
        return 0;
    if (data[3] != 0x6d)
        return 0;
    if (data[9] != 0x80)
        return 1;
    if (data[0] != data[3] + 5)
        return 2;
    if ((data[10] ^ data[9]) != 0x31)
        return 3;
    if (data[2] != 0xa9)
        return 4;
    memcpy(&number, data + 4, sizeof number);
    return number == 0x31524c44u ? MAZE_END : 5;
}
