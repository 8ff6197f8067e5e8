/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cuda_dnn.h"

#include <stdio.h>

#include "kernels/cuda/cuda_library.h"

/* From this version on: before it, backward attention reads beyond sequences that are no multiple of 128 unless it is
 * told their lengths. */
enum { VERSION_LEAST = 91501 };

#define LIBRARY "libcudnn.so.9"

bool cuda_dnn_load(struct cuda_dnn_calls *calls, size_t *version, char *why, size_t bytes)
{
    const struct cuda_symbol wanted[] = {
        {"cudnnGetVersion", &calls->version},
        {"cudnnGetErrorString", &calls->error_string},
        {"cudnnGetLastErrorString", &calls->last_error},
        {"cudnnCreate", &calls->create},
        {"cudnnDestroy", &calls->destroy},
        {"cudnnSetStream", &calls->set_stream},
        {"cudnnBackendCreateDescriptor", &calls->descriptor_new},
        {"cudnnBackendDestroyDescriptor", &calls->descriptor_free},
        {"cudnnBackendFinalize", &calls->finalize},
        {"cudnnBackendSetAttribute", &calls->set},
        {"cudnnBackendGetAttribute", &calls->get},
        {"cudnnBackendExecute", &calls->execute},
    };
    const char *lacks = NULL;
    void *library = cuda_library_open(LIBRARY);
    *version = 0;
    why[0] = '\0';
    if (library == NULL)
        snprintf(why, bytes,
                 LIBRARY
                 " not found; install cuDNN 9 or pip's nvidia-cudnn-cu13, and add its folder to LD_LIBRARY_PATH");
    else if ((lacks = cuda_library_lacks(library, wanted, sizeof wanted / sizeof wanted[0])) != NULL)
        snprintf(why, bytes, LIBRARY " has no %s; install cuDNN again", lacks);
    else if ((*version = calls->version()) < VERSION_LEAST)
        snprintf(why, bytes, LIBRARY " is version %zu.%zu.%zu, and 9.15.1 or newer is needed", *version / 10000,
                 *version / 100 % 100, *version % 100);
    return why[0] == '\0';
}
