#include "daemon/peers/rows.h"

#include <string.h>

/* Rows that are repeated though nothing changed, so that a lost heartbeat does not matter for long. */
enum { REFRESH = 16 };

static bool row_differs(const struct wire_fragment *a, const struct wire_fragment *b)
{
    return a->version != b->version || a->contributed != b->contributed || a->abstained != b->abstained ||
           memcmp(&a->results, &b->results, sizeof a->results) != 0 || a->hash_known != b->hash_known ||
           !digest_equal(&a->hash, &b->hash);
}

static struct wire_fragment own_row(const struct sync *sync, uint32_t f)
{
    struct sync_peer_fragment own = sync_own(sync, f);
    return (struct wire_fragment){.fragment = f,
                                  .version = own.version,
                                  .contributed = own.contributed,
                                  .abstained = own.abstained,
                                  .results = own.results,
                                  .hash = own.hash,
                                  .hash_known = own.hash_known};
}

void rows_fill(const struct sync *sync, uint32_t fragments, struct wire_fragment *said, uint32_t *refresh,
               struct wire_heartbeat *beat)
{
    for (uint32_t f = 0; f < fragments && beat->fragments_count + REFRESH < WIRE_FRAGMENTS_MAX; f++) {
        struct wire_fragment row = own_row(sync, f);
        if (!row_differs(&row, &said[f]))
            continue;
        beat->fragments[beat->fragments_count++] = row;
        said[f] = row;
    }
    uint32_t changed = beat->fragments_count;
    for (uint32_t k = 0; k < REFRESH && k < fragments; k++) {
        uint32_t f = (*refresh)++ % fragments;
        bool there = false;
        for (uint32_t i = 0; i < changed && !there; i++)
            there = beat->fragments[i].fragment == f;
        if (there)
            continue;
        beat->fragments[beat->fragments_count++] = own_row(sync, f);
        said[f] = beat->fragments[beat->fragments_count - 1];
    }
}
