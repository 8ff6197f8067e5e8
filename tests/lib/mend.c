#include "tests/lib/mend.h"

#include <string.h>

#include "common/digest.h"
#include "net/wire.h"
#include "outer_opt/codec.h"

void mend_frame(uint8_t *frame, size_t bytes)
{
    struct digest_state state;
    if (bytes < CODEC_HEADER_BYTES)
        return;
    digest_begin(&state);
    digest_add(&state, frame, 32);
    digest_add(&state, frame + CODEC_HEADER_BYTES, bytes - CODEC_HEADER_BYTES);
    struct digest digest = digest_end(&state);
    memcpy(frame + 32, digest.byte, 16);
}

void mend_object(uint8_t *object, size_t bytes)
{
    struct digest_state state;
    uint16_t meta_bytes;
    if (bytes < WIRE_OBJECT_HEADER_BYTES)
        return;
    memcpy(&meta_bytes, object + 6, sizeof meta_bytes);
    size_t frame_bytes = bytes - WIRE_OBJECT_HEADER_BYTES;
    frame_bytes -= meta_bytes < frame_bytes ? meta_bytes : frame_bytes;
    memcpy(object + 8, &(uint64_t){frame_bytes}, 8);
    mend_frame(object + WIRE_OBJECT_HEADER_BYTES, frame_bytes);
    digest_begin(&state);
    digest_add(&state, object, 16);
    digest_add(&state, object + WIRE_OBJECT_HEADER_BYTES, frame_bytes < 48 ? frame_bytes : 48);
    digest_add(&state, object + WIRE_OBJECT_HEADER_BYTES + frame_bytes, bytes - WIRE_OBJECT_HEADER_BYTES - frame_bytes);
    struct digest digest = digest_end(&state);
    memcpy(object + 16, digest.byte, DIGEST_BYTES);
}
