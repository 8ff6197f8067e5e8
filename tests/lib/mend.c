/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/mend.h"

#include <string.h>

#include "common/digest.h"
#include "net/transport/wire_object.h"
#include "outer_opt/codec.h"

void mend_frame(uint8_t *frame, size_t bytes)
{
    struct digest_state state;
    if (bytes < CODEC_HEADER_BYTES)
        return;
    struct digest payload = digest_tree(frame + CODEC_HEADER_BYTES, bytes - CODEC_HEADER_BYTES);
    digest_begin(&state);
    digest_add(&state, frame, 32);
    digest_add(&state, payload.byte, DIGEST_BYTES);
    struct digest digest = digest_end(&state);
    memcpy(frame + 32, digest.byte, DIGEST_BYTES);
}

void mend_object(uint8_t *object, size_t bytes)
{
    struct digest_state state;
    uint32_t meta_bytes;
    if (bytes < WIRE_OBJECT_HEADER_BYTES)
        return;
    memcpy(&meta_bytes, object + 8, sizeof meta_bytes);
    size_t frame_bytes = bytes - WIRE_OBJECT_HEADER_BYTES;
    frame_bytes -= meta_bytes < frame_bytes ? meta_bytes : frame_bytes;
    memcpy(object + 16, &(uint64_t){frame_bytes}, 8);
    mend_frame(object + WIRE_OBJECT_HEADER_BYTES, frame_bytes);
    digest_begin(&state);
    digest_add(&state, object, 72);
    digest_add(&state, object + WIRE_OBJECT_HEADER_BYTES, frame_bytes < 64 ? frame_bytes : 64);
    digest_add(&state, object + WIRE_OBJECT_HEADER_BYTES + frame_bytes, bytes - WIRE_OBJECT_HEADER_BYTES - frame_bytes);
    struct digest digest = digest_end(&state);
    memcpy(object + 72, digest.byte, DIGEST_BYTES);
}
