/* SPDX-License-Identifier: Apache-2.0 */
/* wire: what a heartbeat says of fragments: signatures of versions there and back, and the most that fits. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "net/transport/wire.h"
#include "net/transport/wire.pb-c.h"

static uint8_t raw[WIRE_CONTROL_BYTES_MAX];
static struct wire_message there, back;

static struct wire_fragment row_of(uint32_t f, bool certified)
{
    struct wire_fragment row = {.fragment = f,
                                .at.version = ((uint64_t)1 << 63) - 1,
                                .at.contributed = ((uint64_t)1 << 63) - 1,
                                .at.abstained = UINT64_MAX,
                                .at.hash = digest_of(&f, sizeof f),
                                .at.hash_known = true,
                                .certified = certified};
    for (size_t i = 0; certified && i < sizeof row.signature; i++)
        row.signature[i] = (uint8_t)(f + i);
    return row;
}

static void signatures_come_back(void **state)
{
    (void)state;
    size_t bytes;
    there = (struct wire_message){.type = WIRE_HEARTBEAT};
    there.heartbeat.fragments_count = 2;
    there.heartbeat.fragments[0] = row_of(7, true);
    there.heartbeat.fragments[1] = row_of(8, false);
    memset(&back, 0xff, sizeof back);
    assert_ok(wire_pack(&there, raw, &bytes));
    assert_ok(wire_unpack(WIRE_HEARTBEAT, raw, bytes, &back));
    for (uint32_t i = 0; i < 2; i++) {
        const struct wire_fragment *row = &back.heartbeat.fragments[i], *want = &there.heartbeat.fragments[i];
        assert_int_equal(row->certified, want->certified);
        assert_memory_equal(row->signature, want->signature, sizeof row->signature);
        assert_true(digest_equal(&row->at.hash, &want->at.hash));
    }
}

/* Larger than anyone would send, and still one message. */
static void the_largest_heartbeat_fits(void **state)
{
    (void)state;
    size_t bytes;
    there = (struct wire_message){.type = WIRE_HEARTBEAT};
    struct wire_heartbeat *beat = &there.heartbeat;
    *beat = (struct wire_heartbeat){.sequence = UINT64_MAX,
                                    .echo = UINT64_MAX,
                                    .session = UINT64_MAX,
                                    .echo_delay_ms = UINT32_MAX,
                                    .taking_part = true,
                                    .step = UINT64_MAX,
                                    .tokens = UINT64_MAX,
                                    .loss = UINT64_MAX,
                                    .tokens_per_s = UINT32_MAX,
                                    .trainer = WIRE_TRAINER_FAILED,
                                    .epoch = UINT64_MAX,
                                    .incarnation = UINT64_MAX,
                                    .in_doubt = true,
                                    .disk_fails = true,
                                    .fragments_count = WIRE_FRAGMENTS_MAX,
                                    .held_count = WIRE_HELD_MAX,
                                    .silent_count = WIRE_MEMBERS_MAX};
    for (uint32_t f = 0; f < WIRE_FRAGMENTS_MAX; f++) {
        beat->fragments[f] = row_of(f + WIRE_PLAN_FRAGMENTS_MAX - WIRE_FRAGMENTS_MAX, true);
        beat->fragments[f].held_first = f * (WIRE_HELD_MAX / WIRE_FRAGMENTS_MAX);
        beat->fragments[f].held_count = WIRE_HELD_MAX / WIRE_FRAGMENTS_MAX;
    }
    for (uint32_t i = 0; i < WIRE_HELD_MAX; i++)
        beat->held[i].owner = UINT32_MAX;
    for (uint32_t i = 0; i < WIRE_MEMBERS_MAX; i++)
        beat->silent[i] = UINT32_MAX - i;
    assert_ok(wire_pack(&there, raw, &bytes));
    print_message("the largest heartbeat has %zu bytes\n", bytes);
    assert_ok(wire_unpack(WIRE_HEARTBEAT, raw, bytes, &back));
    assert_int_equal(back.heartbeat.fragments_count, WIRE_FRAGMENTS_MAX);
    assert_true(back.heartbeat.fragments[WIRE_FRAGMENTS_MAX - 1].certified);
}

static void a_signature_is_whole_and_of_something(void **state)
{
    (void)state;
    uint8_t hash[DIGEST_BYTES] = {1}, signature[WIRE_SIGNATURE_BYTES + 1] = {1};
    Diloco__FragmentState row = DILOCO__FRAGMENT_STATE__INIT, *rows[] = {&row};
    Diloco__Heartbeat beat = DILOCO__HEARTBEAT__INIT;
    beat.fragments = rows;
    beat.n_fragments = 1;
    row.hash = (ProtobufCBinaryData){.len = sizeof hash, .data = hash};
    row.signature.data = signature;
    for (size_t bytes = 0; bytes <= sizeof signature; bytes++) {
        row.signature.len = bytes;
        size_t packed = diloco__heartbeat__pack(&beat, raw);
        if (bytes == 0 || bytes == WIRE_SIGNATURE_BYTES)
            assert_ok(wire_unpack(WIRE_HEARTBEAT, raw, packed, &back));
        else
            assert_fails(ERR_PROTO, "certifies fragment 0", wire_unpack(WIRE_HEARTBEAT, raw, packed, &back));
    }
    row.hash.len = 0;
    row.signature.len = WIRE_SIGNATURE_BYTES;
    assert_fails(ERR_PROTO, "without a hash",
                 wire_unpack(WIRE_HEARTBEAT, raw, diloco__heartbeat__pack(&beat, raw), &back));
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_come_back),
        cmocka_unit_test(the_largest_heartbeat_fits),
        cmocka_unit_test(a_signature_is_whole_and_of_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
