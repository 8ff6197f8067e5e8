/* SPDX-License-Identifier: Apache-2.0 */
/* For programs without kern_emu, which has an emu_queue() of its own: launches are done when they return. */
#include "tests/emu/emu.h"

__attribute__((weak)) void emu_queue(struct kern_dev *dev, void (*work)(void *context), void *context, size_t bytes)
{
    (void)dev, (void)bytes;
    work(context);
}
