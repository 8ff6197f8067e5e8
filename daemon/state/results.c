/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/results.h"

#include "net/membership/evidence.h"
#include "outer_opt/fbits.h"

enum err result_open(struct ledger *ledger, const struct result_id *key, struct result *out)
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

bool result_counts(const struct wire_meta *meta, uint32_t id, const struct digest *contribution)
{
    struct wire_contributor counted;
    return wire_meta_find(meta, id, &counted) && (contribution == NULL || digest_equal(&counted.digest, contribution));
}

double result_share(const struct wire_meta *meta, uint32_t id, bool alike)
{
    double own = 0, all = 0;
    for (uint32_t i = 0; i < meta->contributors_count; i++) {
        struct wire_contributor contributor = wire_meta_contributor(meta, i);
        double weight = contributor.factor > 0 ? (double)bits_float(contributor.weight) : 0;
        weight = alike ? 1 : weight;
        all += weight;
        own = contributor.id == id ? weight : own;
    }
    return all > 0 ? own / all : 0;
}

bool results_find(struct ledger *ledger, const struct result_id *like, struct result_id *out)
{
    struct result_id keys[LEDGER_RESULTS_MAX];
    size_t count = ledger_list(ledger, like->fragment, like->version, keys, LEDGER_RESULTS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (!result_id_same_part(&keys[i], like))
            continue;
        *out = keys[i];
        return true;
    }
    return false;
}

/* ---- two results of one part ---- */

static bool is_signed(struct ledger *ledger, const struct result_id *key, const uint8_t *owner_key)
{
    struct result result;
    if (result_open(ledger, key, &result) != ERR_OK)
        return false;
    bool good = wire_object_signed(&result.what, owner_key) == ERR_OK;
    result_close(&result);
    return good;
}

bool results_equivocation(struct ledger *ledger, const struct result_id *key, const uint8_t *owner_key,
                          struct result_id *other)
{
    struct result_id keys[LEDGER_RESULTS_MAX];
    size_t count = ledger_list(ledger, key->fragment, key->version, keys, LEDGER_RESULTS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (!result_id_same_part(&keys[i], key) || digest_equal(&keys[i].digest, &key->digest) ||
            !is_signed(ledger, &keys[i], owner_key))
            continue;
        *other = keys[i];
        return is_signed(ledger, key, owner_key);
    }
    return false;
}

enum err results_evidence(struct ledger *ledger, const struct result_id *first, const struct result_id *second,
                          uint8_t **bytes, size_t *count)
{
    struct result a, b;
    *bytes = NULL;
    TRY(result_open(ledger, first, &a));
    enum err err = result_open(ledger, second, &b);
    if (err == ERR_OK) {
        err = evidence_make(a.map.object, a.map.bytes, b.map.object, b.map.bytes, bytes, count);
        result_close(&b);
    }
    result_close(&a);
    return err;
}
