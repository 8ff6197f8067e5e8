/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/sniff.h"

#include <stdio.h>
#include <string.h>

#include "common/bytes.h"

/* Zero bytes are counted in three stretches: a file may begin or end with text. Text has none at all; what mixes a few
 * into it may mean them. */
enum { STRETCH_BYTES = 64 << 10, STRETCHES = 3 };
static const double ZEROS_MIN = 0.01;

/* A header of safetensors is not longer. */
enum { SAFETENSORS_HEADER_MAX = 100 << 20, SAFETENSORS_LENGTH_BYTES = 8 };

#define MAGIC(at, text) (at), sizeof(text) - 1, (text)
static const struct kind {
    size_t at, bytes;
    const char *magic, *what;
} kinds[] = {
    {MAGIC(0, "\x1f\x8b"), "gzip data"},
    {MAGIC(0, "\x28\xb5\x2f\xfd"), "zstd data"},
    {MAGIC(0, "\xfd\x37zXZ\0"), "xz data"},
    {MAGIC(4, "1AY&SY"), "bzip2 data"},
    {MAGIC(0, "\x04\x22\x4d\x18"), "lz4 data"},
    {MAGIC(0, "PK\x03\x04"), "a zip archive"},
    {MAGIC(0, "7z\xbc\xaf\x27\x1c"), "a 7z archive"},
    {MAGIC(257, "ustar"), "a tar archive"},
    {MAGIC(0, "PAR1"), "a Parquet file"},
    {MAGIC(0, "ARROW1"), "an Arrow file"},
    {MAGIC(0, "\x93NUMPY"), "a NumPy array"},
    {MAGIC(0, "\x89HDF\r\n"), "an HDF5 file"},
    {MAGIC(0, "SQLite format 3"), "an SQLite database"},
    {MAGIC(0, "GGUF"), "a GGUF model"},
    {MAGIC(0, "\x7f\x45LF"), "a program (ELF)"},
    {MAGIC(0, "%PDF-"), "a PDF document"},
    {MAGIC(0, "\x89PNG"), "a PNG image"},
    {MAGIC(0, "\xff\xd8\xff"), "a JPEG image"},
    {MAGIC(0, "\x88\xd8\x34\x01\x01\0\0\0"), "a shard of GPT-2 tokens, for [data] format = tokens"},
    {MAGIC(0, "\xa1\xd9\x34\x01\x07\0\0\0"), "a shard of Llama-3 tokens, for [data] format = tokens"},
};

static bool is_safetensors(const uint8_t *bytes, size_t count)
{
    struct bytes_reader reader = bytes_reader_init(bytes, count);
    uint64_t header = bytes_get_u64(&reader);
    return count > SAFETENSORS_LENGTH_BYTES + 1 && header <= SAFETENSORS_HEADER_MAX &&
           header <= count - SAFETENSORS_LENGTH_BYTES && memcmp(bytes + SAFETENSORS_LENGTH_BYTES, "{\"", 2) == 0;
}

static double share_of_zeros(const uint8_t *bytes, size_t count)
{
    size_t zeros = 0, looked = 0;
    size_t stretch = count < STRETCH_BYTES ? count : STRETCH_BYTES;
    for (size_t s = 0; s < STRETCHES; s++) {
        const uint8_t *from = bytes + (count - stretch) / (STRETCHES - 1) * s;
        looked += stretch;
        for (size_t i = 0; i < stretch; i++)
            zeros += from[i] == 0;
    }
    return looked > 0 ? (double)zeros / (double)looked : 0;
}

bool sniff(const uint8_t *bytes, size_t count, bool is_text, char what[SNIFF_TEXT_BYTES])
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const struct kind *kind = &kinds[i];
        if (count < kind->at + kind->bytes || memcmp(bytes + kind->at, kind->magic, kind->bytes) != 0)
            continue;
        snprintf(what, SNIFF_TEXT_BYTES, "%s", kind->what);
        return true;
    }
    if (is_safetensors(bytes, count)) {
        snprintf(what, SNIFF_TEXT_BYTES, "a safetensors file");
        return true;
    }
    if (!is_text)
        return false;
    if (count >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0)) {
        snprintf(what, SNIFF_TEXT_BYTES, "text in UTF-16, of which this is to be UTF-8");
        return true;
    }
    double zeros = share_of_zeros(bytes, count);
    if (zeros < ZEROS_MIN)
        return false;
    snprintf(what, SNIFF_TEXT_BYTES, "binary: %.0f %% of its bytes are 0", 100 * zeros);
    return true;
}
