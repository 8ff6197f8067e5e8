/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/proofs.h"

#include <inttypes.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "net/membership/proof.h"

static enum err path_of(const char *folder, uint32_t id, char **path)
{
    return mem_printf(path, "%s/proof-%010" PRIu32, folder, id);
}

enum err proofs_save(const char *folder, uint32_t id, const uint8_t *bytes, size_t count)
{
    char *path;
    TRY(path_of(folder, id, &path));
    enum err err = fsio_replace(path, bytes, count, 0644);
    mem_free(path);
    return err;
}

enum err proofs_load(const char *folder, uint32_t id, uint8_t **bytes, size_t *count)
{
    char *path, *data = NULL;
    *bytes = NULL;
    TRY(path_of(folder, id, &path));
    enum err err = fsio_read(path, PROOF_BYTES_MAX, &data, count);
    mem_free(path);
    if (err == ERR_OK)
        *bytes = (uint8_t *)data;
    return err;
}
