/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cuda_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 256 };

void *cuda_library_open(const char *name)
{
    /* Where the toolkit puts it, for machines on which nobody has told the loader. */
    static const char *const folders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib",
                                          "/usr/local/cuda/targets/sbsa-linux/lib", "/opt/cuda/lib64",
                                          "/usr/lib/cuda/lib64"};
    char path[PATH_BYTES];
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library == NULL && i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

const char *cuda_library_lacks(void *library, const struct cuda_symbol *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *at = dlsym(library, wanted[i].name);
        if (at == NULL)
            return wanted[i].name;
        memcpy(wanted[i].function, &at, sizeof at);
    }
    return NULL;
}
