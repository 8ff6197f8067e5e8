/* Objects from peers and from the ledger: contribution and result metadata around a frame, and the frame itself. */
#include "common/digest.h"
#include "common/mem.h"
#include "net/wire.h"
#include "outer_opt/codec.h"
#include "tests/lib/fuzz.h"

enum { VALUES = 2048 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct codec *codec;
    static float values[VALUES];
    struct wire_meta meta;
    const uint8_t *frame;
    size_t frame_bytes;
    struct codec_conf conf = {.id = CODEC_E3M0};
    if (codec == NULL && codec_new(&conf, &codec) != ERR_OK)
        return 0;
    (void)!wire_object_open(WIRE_CONTRIBUTION, data, bytes, &meta, &frame, &frame_bytes);
    (void)!wire_object_open(WIRE_RESULT, data, bytes, &meta, &frame, &frame_bytes);
    /* Behind the digests too: a peer can make them right. */
    if (bytes > WIRE_OBJECT_HEADER_BYTES) {
        frame = data + WIRE_OBJECT_HEADER_BYTES;
        frame_bytes = bytes - WIRE_OBJECT_HEADER_BYTES;
        (void)!codec_check(frame, frame_bytes, VALUES);
        for (size_t cut = 0; cut < 3; cut++)
            (void)!codec_decode_add(codec, frame, frame_bytes - (cut < frame_bytes ? cut * 7 % frame_bytes : 0), 1.5f,
                                    values, VALUES);
    }
    (void)!codec_decode(codec, data, bytes, values, VALUES);
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
