/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/machine.h"

#include <stddef.h>
#include <string.h>

struct diloco_machine machine_of(const struct machine_conf *conf, char name[MACHINE_NAME_BYTES])
{
    size_t free_bytes, total = 0;
    conf->kern->describe(conf->dev, name, MACHINE_NAME_BYTES);
    name[strcspn(name, ",")] = '\0';
    if (conf->kern->memory(conf->dev, &free_bytes, &total) != ERR_OK)
        total = 0;
    /* All are taken to be alike. */
    return (struct diloco_machine){.size = sizeof(struct diloco_machine),
                                   .device = name,
                                   .ranks = conf->ranks,
                                   .tensor_parallel = conf->tensor_parallel,
                                   .memory_bytes = conf->memory_bytes,
                                   .memory_total_bytes = total,
                                   .flops_per_token = conf->flops_per_token,
                                   .peak_flops = conf->devices * conf->kern->peak_flops(conf->dev)};
}
