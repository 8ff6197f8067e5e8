/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts spans into pieces for the optimizers' kernels; see cuda_spans.h. */
#include "kernels/cuda/cuda_spans.h"

#include "common/mem.h"
#include "kernels/cuda/cuda.h"

/* Where the piece that begins at `at` ends. */
static int64_t piece_end(const struct kern_span *span, int64_t at)
{
    int64_t end = (at / SPAN_PIECE + 1) * SPAN_PIECE;
    return end < span->begin + span->count ? end : span->begin + span->count;
}

/* The pieces of all spans, to `to` where that is not NULL; how many there are. */
static int64_t cut(const struct kern_span *spans, size_t count, struct span_piece *to)
{
    int64_t pieces = 0;
    for (size_t i = 0; i < count; i++)
        for (int64_t at = spans[i].begin, end; at < spans[i].begin + spans[i].count; at = end) {
            end = piece_end(&spans[i], at);
            if (to != NULL)
                to[pieces] = (struct span_piece){.begin = at, .count = (int32_t)(end - at), .decay = spans[i].decay};
            pieces++;
        }
    return pieces;
}

enum err cuda_spans_new(struct kern_dev *dev, const struct kern_span *spans, size_t count, struct kern_spans **out)
{
    enum err err = ERR_OK;
    struct kern_spans *made = NULL;
    void *pieces = NULL;
    TRY(mem_new(1, sizeof *made, "spans of weights", &made));
    made->count = cut(spans, count, NULL);
    if (made->count > 0) {
        size_t bytes = (size_t)made->count * sizeof *made->pieces;
        TRY_OUT(mem_new((size_t)made->count, sizeof *made->host, "spans of weights", &made->host));
        cut(spans, count, made->host);
        TRY_OUT(cuda_alloc(dev, bytes, "spans of weights", &pieces));
        made->pieces = pieces;
        cuda_copy(dev, KERN_MAIN, made->pieces, made->host, bytes);
    }
    *out = made;
    return ERR_OK;
out:
    cuda_spans_free(dev, made);
    return err;
}

void cuda_spans_free(struct kern_dev *dev, struct kern_spans *spans)
{
    if (spans == NULL)
        return;
    cuda_free(dev, spans->pieces); /* waits for the copy, too */
    mem_free(spans->host);
    mem_free(spans);
}
