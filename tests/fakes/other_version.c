/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for a libdiloco-cuda.so of another version: it has the entry, and nothing for who asks. */
#include "kernels/kern_services.h"

extern kern_library_entry diloco_cuda_table;

__attribute__((visibility("default"))) const struct kern *diloco_cuda_table(const struct kern_services *services,
                                                                            unsigned version)
{
    (void)services, (void)version;
    return NULL;
}
