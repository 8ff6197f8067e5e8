/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/rivals.h"

#include "daemon/state/results.h"
#include "net/membership/proof.h"

static bool is_signed(struct ledger *ledger, const struct result_id *key, const uint8_t *owner_key)
{
    struct result result;
    if (result_open(ledger, key, &result) != ERR_OK)
        return false;
    bool good = wire_object_signed(&result.what, owner_key) == ERR_OK;
    result_close(&result);
    return good;
}

bool rivals_of(struct ledger *ledger, const struct result_id *key, const uint8_t *owner_key, struct result_id *other)
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

enum err rivals_proof(struct ledger *ledger, const struct result_id *first, const struct result_id *second,
                      uint8_t **bytes, size_t *count)
{
    struct result a, b;
    *bytes = NULL;
    TRY(result_open(ledger, first, &a));
    enum err err = result_open(ledger, second, &b);
    if (err == ERR_OK) {
        err = proof_make(a.map.object, a.map.bytes, b.map.object, b.map.bytes, bytes, count);
        result_close(&b);
    }
    result_close(&a);
    return err;
}
