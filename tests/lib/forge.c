/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/forge.h"

#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/tensorfile.h"
#include "daemon/state/dedup.h"
#include "outer_opt/vhash.h"

void forge_checkpoint(const char *state_folder)
{
    char path[600];
    struct tensorfile *file;
    struct tensorfile_writer *writer;
    snprintf(path, sizeof path, "%s/fragment-0001.safetensors", state_folder);
    assert_ok(tensorfile_open(path, true, &file));
    size_t count = tensorfile_count(file);
    enum { TENSORS_MAX = 8 };
    struct tensorfile_tensor tensors[TENSORS_MAX];
    const float *values[TENSORS_MAX];
    const void *rows = NULL;
    size_t rows_bytes = 0;
    assert_in_range(count, 3, TENSORS_MAX);
    for (size_t i = 0; i < count; i++) {
        tensors[i] = tensorfile_at(file, i);
        assert_ok(tensorfile_values(file, tensors[i].name, tensors[i].shape[0], &values[i]));
        if (strcmp(tensors[i].name, "counted") != 0)
            continue;
        rows = values[i];
        rows_bytes = tensors[i].shape[0] * sizeof(float);
    }
    size_t n = tensors[0].shape[0];
    float *forged = malloc(n * sizeof *forged);
    memcpy(forged, values[0], n * sizeof *forged);
    forged[5] += 0.25f;
    struct vhash_subject subject = {.fragment = 1, .momentum = true, .count = n, .rows = rows_bytes / DEDUP_ROW_BYTES};
    assert_ok(tensorfile_meta_u64(file, "version", &subject.version));
    assert_ok(tensorfile_meta_u64(file, "step", &subject.step));
    struct digest_tree_state tree;
    digest_tree_begin(&tree);
    digest_tree_add(&tree, forged, n * sizeof *forged);
    digest_tree_add(&tree, values[1], n * sizeof *forged);
    digest_tree_add(&tree, rows, rows_bytes);
    struct digest root = digest_tree_end(&tree), hash = vhash_root(&subject, &root);
    char hex[DIGEST_HEX_BYTES];
    const char *keys[] = {"format",   "version", "step",         "hash",         "run_id",
                          "nonce_id", "plan_id", "owner_shards", "counted_rows", "certified_bytes"};
    enum { KEYS = sizeof keys / sizeof keys[0] };
    struct tensorfile_meta meta[KEYS];
    for (size_t i = 0; i < KEYS; i++)
        meta[i] = (struct tensorfile_meta){keys[i], tensorfile_meta(file, keys[i])};
    meta[3].value = digest_hex(&hash, hex);
    assert_string_equal(tensors[1].name, "momentum");
    assert_ok(tensorfile_create(path, tensors, count, meta, KEYS, &writer));
    for (size_t i = 0; i < count; i++)
        assert_ok(tensorfile_write(writer, i == 0 ? forged : values[i], tensors[i].shape[0]));
    assert_ok(tensorfile_commit(writer));
    tensorfile_close(file);
    free(forged);
}
