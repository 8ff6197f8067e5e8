#include "daemon/state/results.h"

enum err result_open(struct ledger *ledger, const struct ledger_key *key, struct result *out)
{
    *out = (struct result){.frame = NULL};
    TRY(ledger_map(ledger, key, &out->map));
    enum err err =
        wire_object_open(out->map.object, out->map.bytes, &out->what, &out->meta, &out->frame, &out->frame_bytes);
    /* The ledger looked at its name when it took it; the disk may have changed it since. */
    if (err == ERR_OK && !digest_equal(&out->what.digest, &key->digest))
        err = err_set(ERR_PROTO, "another object than the ledger took");
    if (err != ERR_OK)
        result_close(out);
    return err;
}

void result_close(struct result *result)
{
    ledger_unmap(&result->map);
}

struct ledger_key result_key(const struct wire_object *what)
{
    return (struct ledger_key){.fragment = what->key.fragment,
                               .owner = what->key.owner,
                               .version = what->key.version,
                               .epoch = what->key.epoch,
                               .digest = what->digest};
}

bool result_counts(const struct wire_meta *meta, uint32_t id, const struct digest *contribution)
{
    struct wire_contributor counted;
    return wire_meta_find(meta, id, &counted) && (contribution == NULL || digest_equal(&counted.digest, contribution));
}

bool results_find(struct ledger *ledger, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                  struct ledger_key *out)
{
    struct ledger_key keys[LEDGER_RESULTS_MAX];
    size_t count = ledger_list(ledger, f, version, keys, LEDGER_RESULTS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (keys[i].owner != owner || keys[i].epoch != epoch)
            continue;
        *out = keys[i];
        return true;
    }
    return false;
}

uint64_t results_counting(struct ledger *ledger, uint32_t f, uint64_t version, uint64_t shards, uint32_t id,
                          bool lost_counts)
{
    struct ledger_commit commit;
    uint64_t counting = 0, seen = 0;
    if (ledger_commit_of(ledger, f, version, &commit) != ERR_OK)
        return lost_counts ? shards : 0;
    for (uint32_t p = 0; p < commit.parts_count; p++) {
        struct ledger_key key = {.fragment = f,
                                 .owner = commit.parts[p].owner,
                                 .version = version,
                                 .epoch = commit.parts[p].epoch,
                                 .digest = commit.parts[p].digest};
        struct result result;
        if (result_open(ledger, &key, &result) != ERR_OK)
            continue;
        seen |= result.what.shards;
        if (result_counts(&result.meta, id, NULL))
            counting |= result.what.shards;
        result_close(&result);
    }
    return (counting | (lost_counts ? ~seen : 0)) & shards;
}
