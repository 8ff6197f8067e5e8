/* SPDX-License-Identifier: Apache-2.0 */
/* Whether there is a GPU to test on: exit status 0, saying which; 77 if there is none; 1 if there is, and it cannot be
 * used. tests/gpu/run.sh asks before it begins. */
#include "tests/gpu/gpu.h"

int main(void)
{
    const struct kern *table;
    struct kern_dev *device;
    int status = gpu_open(&table, &device);
    if (status == 0)
        table->close(device);
    return status;
}
