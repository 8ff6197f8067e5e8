/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/vhash.h"

#include "common/bytes.h"

struct digest vhash_root(const struct vhash_subject *subject, const struct digest *tree)
{
    static const char domain[16] = "diloco vhash 1";
    uint8_t bytes[sizeof domain + 2 * sizeof(uint32_t) + 4 * sizeof(uint64_t) + DIGEST_BYTES];
    struct bytes_writer writer = bytes_writer_init(bytes, sizeof bytes);
    bytes_put(&writer, domain, sizeof domain);
    bytes_put_u32(&writer, subject->fragment);
    bytes_put_u32(&writer, subject->momentum);
    bytes_put_u64(&writer, subject->version);
    bytes_put_u64(&writer, subject->step);
    bytes_put_u64(&writer, subject->count);
    bytes_put_u64(&writer, subject->rows);
    bytes_put(&writer, tree->byte, DIGEST_BYTES);
    return digest_of(bytes, sizeof bytes);
}
