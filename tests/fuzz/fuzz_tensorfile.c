/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor files: checkpoints and foreign safetensors. */
#include <stdio.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/tensorfile.h"
#include "tests/lib/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    struct tensorfile *file;
    snprintf(path, sizeof path, "%s/diloco-fuzz-%d", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "build",
             (int)getpid());
    FILE *out = fopen(path, "we");
    if (out == NULL)
        return 0;
    fwrite(data, 1, bytes, out);
    fclose(out);
    if (tensorfile_open(path, false, &file) == ERR_OK) {
        volatile float sum = 0;
        for (size_t i = 0; i < tensorfile_count(file); i++) {
            struct tensorfile_tensor tensor = tensorfile_at(file, i);
            uint64_t count = 1;
            const float *values;
            float value;
            for (uint32_t d = 0; d < tensor.dims; d++)
                count *= tensor.shape[d];
            if (tensorfile_values(file, tensor.name, count, &values) == ERR_OK && count > 0)
                sum = sum + values[0] + values[count - 1];
            if (count > 0 && tensorfile_read(file, i, count - 1, 1, &value) == ERR_OK)
                sum = sum + value;
        }
        tensorfile_close(file);
    }
    unlink(path);
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    if (digest_init() != ERR_OK)
        return 1;
    return fuzz_replay("tensorfile", LLVMFuzzerTestOneInput, 2000);
}
#endif
