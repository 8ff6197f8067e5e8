/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/made.h"

#include "daemon/state/results.h"
#include "tests/lib/mend.h"
#include "tests/lib/testlib.h"

struct result_id made_result(uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner, uint8_t *object,
                             size_t bytes)
{
    static struct ident ident;
    uint8_t contributors[WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.step = version, .contributors_count = 1, .contributors = contributors};
    struct wire_object what = {.shards = (uint64_t)1 << owner % 64};
    size_t sealed;
    assert_in_range(bytes, MADE_BYTES_MIN, SIZE_MAX);
    size_t frame_bytes = bytes - wire_object_bytes_max(0, 1, 1);
    if (ident.public_text[0] == '\0')
        assert_ok(ident_generate(&ident));
    what.key = (struct wire_key){
        .kind = WIRE_RESULT, .fragment = f, .version = version, .epoch = epoch, .owner = owner, .island = owner};
    wire_contributor_put(contributors, 0, &(struct wire_contributor){.tokens = 1});
    mend_frame(wire_object_frame(object), frame_bytes);
    assert_ok(wire_object_seal(&what, &meta, &ident, object, frame_bytes, &sealed, &what.digest));
    assert_int_equal(sealed, bytes);
    return wire_object_result(&what);
}

struct result_id made_append(struct ledger *ledger, uint32_t f, uint64_t version, uint32_t owner, uint8_t *object,
                             size_t bytes)
{
    struct result_id key = made_result(f, version, 0, owner, object, bytes);
    assert_ok(ledger_append(ledger, &key, object, bytes));
    return key;
}
