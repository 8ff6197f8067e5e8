/* SPDX-License-Identifier: Apache-2.0 */
/* Objects from peers and from the ledger: contribution and result metadata around a frame, and the frame itself. */
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "net/transport/wire_object.h"
#include "outer_opt/codec.h"
#include "tests/lib/fuzz.h"
#include "tests/lib/mend.h"

enum { VALUES = 2048 };

static void decode(struct codec *codec, const uint8_t *frame, size_t bytes)
{
    static float values[VALUES];
    (void)!codec_check(frame, bytes, VALUES);
    (void)!codec_decode_add(codec, frame, bytes, 1.5f, values, VALUES);
    if (codec_decode(codec, frame, bytes, values, VALUES) != codec_decodable(codec, frame, bytes, VALUES))
        abort();
}

static void open_object(struct codec *codec, const uint8_t *object, size_t bytes)
{
    struct wire_object what;
    struct wire_meta meta;
    const uint8_t *frame;
    size_t frame_bytes;
    (void)!wire_object_peek(object, bytes, &what);
    if (wire_object_open(object, bytes, &what, &meta, &frame, &frame_bytes) != ERR_OK)
        return;
    for (uint32_t i = 0; i < meta.contributors_count; i++)
        if (!wire_meta_find(&meta, wire_meta_contributor(&meta, i).id, NULL))
            abort();
    for (uint32_t s = 0; meta.spans_count > 0 && s < WIRE_SHARDS_MAX; s++) {
        struct wire_span span;
        uint32_t id = what.key.kind == WIRE_CONTRIBUTION ? what.key.island : wire_meta_contributor(&meta, 0).id;
        if (wire_meta_span(&meta, id, s, &span) && (span.shards & ~what.shards) != 0)
            abort();
    }
    (void)!wire_object_signed(&what, what.digest.byte);
    decode(codec, frame, frame_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct codec *codec;
    if (codec == NULL && codec_new(0, &codec) != ERR_OK)
        return 0;
    open_object(codec, data, bytes);
    decode(codec, data, bytes);
    /* Exactly as large, so that a sanitizer sees the first byte read behind it. */
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy == NULL)
        return 0;
    memcpy(copy, data, bytes);
    mend_frame(copy, bytes);
    decode(codec, copy, bytes);
    memcpy(copy, data, bytes);
    mend_object(copy, bytes);
    open_object(codec, copy, bytes);
    free(copy);
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    if (digest_init() != ERR_OK)
        return 1;
    return fuzz_replay("object", LLVMFuzzerTestOneInput, 20000);
}
#endif
