/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kern_host: memory on the host for copies to and from a device: whole pages, pinned where the system lets us, so that
 * such copies do not wait. Made and freed by the thread that uses the device; its caller owns it, and frees it when no
 * copy is on its way any more.
 */
#ifndef KERNELS_KERN_HOST_H
#define KERNELS_KERN_HOST_H

#include "kernels/kern_table.h"

struct kern_host {
    void *bytes;  /* zeroed; NULL: none */
    void *memory; /* that it lies in */
    bool pinned;
};

/* ERR_NOMEM names `what`. That it could not be pinned is no failure. */
ERR_MUST_CHECK enum err kern_host_new(const struct kern *kern, struct kern_dev *dev, size_t bytes, const char *what,
                                      struct kern_host *out);
/* One of zeros is fine, and is one again. */
void kern_host_free(const struct kern *kern, struct kern_dev *dev, struct kern_host *host);

#endif
