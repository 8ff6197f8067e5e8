/* SPDX-License-Identifier: Apache-2.0 */
/* invite: a token comes back whole or says what is wrong with it; what was given out is redeemed by one key. */
#include "tests/lib/testlib.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/transport/invite.h"

enum { NOW = 1700000000, HOUR = 3600 };

static struct ident anna, bert;

/* As an island with these keys would give it out; `n` makes it another. */
static struct invite invitation(uint8_t n)
{
    struct invite invite = {.addresses_count = 2, .expiry_s = NOW + HOUR, .nonce = {1, 2, 3}, .run_id = {{4, 5}}};
    strcpy(invite.addresses[0], "oslo.example.org:7600");
    strcpy(invite.addresses[1], "[2001:db8::1]:7600");
    memcpy(invite.inviter, anna.key, sizeof invite.inviter);
    memset(invite.seed, n, sizeof invite.seed);
    return invite;
}

static void a_token_comes_back(void **state)
{
    (void)state;
    static struct invite in, out;
    static char text[INVITE_TEXT_BYTES];
    for (uint32_t count = 1; count <= INVITE_ADDRESSES_MAX; count++) {
        in = invitation(9);
        in.addresses_count = count;
        for (uint32_t i = 0; i < count; i++) {
            size_t length = WIRE_ADDRESS_BYTES - 6 - i; /* the longest first */
            memset(in.addresses[i], 0, sizeof in.addresses[i]);
            memset(in.addresses[i], 'a' + (int)i, length);
            for (size_t at = 60; at < length - 1; at += 60)
                in.addresses[i][at] = '.'; /* of labels */
            memcpy(in.addresses[i] + length, ":7600", 5);
        }
        for (uint32_t i = count; i < INVITE_ADDRESSES_MAX; i++)
            memset(in.addresses[i], 0, sizeof in.addresses[i]);
        assert_ok(invite_text(&in, text));
        assert_true(strncmp(text, "dlc1.", 5) == 0 && strspn(text + 5, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnop"
                                                                       "qrstuvwxyz0123456789-_") == strlen(text) - 5);
        assert_ok(invite_parse(text, &out));
        assert_memory_equal(&in, &out, sizeof in);
    }
    in.addresses_count = 0;
    assert_fails(ERR_ARG, "1 to 4 addresses", invite_text(&in, text));
    in = invitation(9);
    strcpy(in.addresses[1], "no port");
    assert_fails(ERR_ARG, "is not host:port", invite_text(&in, text));
}

/* docs/PROTOCOL.md gives the bytes; another implementation must come to the same. */
static void a_token_is_what_the_protocol_says(void **state)
{
    (void)state;
    struct invite in = invitation(9);
    char text[INVITE_TEXT_BYTES], want[INVITE_TEXT_BYTES] = "dlc1.";
    uint8_t raw[512] = {0}, *at = raw + 2;
    *at++ = 1;
    *at++ = 2;
    for (int i = 0; i < 8; i++)
        *at++ = (uint8_t)(in.expiry_s >> 8 * i);
    memcpy(at, in.inviter, 32);
    memcpy(at + 32, in.nonce, 16);
    memcpy(at + 48, in.run_id.byte, 32);
    memcpy(at + 80, in.seed, 32);
    at += 112;
    for (int i = 0; i < 2; i++) {
        *at++ = (uint8_t)strlen(in.addresses[i]);
        memcpy(at, in.addresses[i], strlen(in.addresses[i]));
        at += strlen(in.addresses[i]);
    }
    size_t bytes = (size_t)(at - raw);
    raw[0] = (uint8_t)(bytes + 4);
    struct digest sum = digest_of(raw, bytes);
    memcpy(at, sum.byte, 4);
    sodium_bin2base64(want + 5, sizeof want - 5, raw, bytes + 4, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    assert_ok(invite_text(&in, text));
    assert_string_equal(text, want);
    uint8_t key[IDENT_KEY_BYTES], secret[IDENT_KEY_BYTES], seed[50] = "diloco invite key";
    memcpy(seed + 18, in.seed, 32);
    struct digest digest = digest_of(seed, 50);
    invite_curve(&in, key, secret);
    assert_memory_equal(secret, digest.byte, sizeof secret);
    uint8_t follows[IDENT_KEY_BYTES];
    crypto_scalarmult_base(follows, secret);
    assert_memory_equal(key, follows, sizeof key);
    memcpy(seed, "diloco invite id", 17);
    memcpy(seed + 17, in.seed, 32);
    digest = digest_of(seed, 49);
    struct digest id = invite_id(&in);
    assert_true(digest_equal(&id, &digest));
}

/* As it is copied from a letter. */
static void blanks_around_a_token_do_not_matter(void **state)
{
    (void)state;
    struct invite in = invitation(2), out;
    char text[INVITE_TEXT_BYTES], around[INVITE_TEXT_BYTES + 16];
    assert_ok(invite_text(&in, text));
    snprintf(around, sizeof around, "\r\n \t%s \n\r\n", text);
    assert_ok(invite_parse(around, &out));
    assert_int_equal(out.addresses_count, 2);
    assert_fails(ERR_CONF, "that is no token", invite_parse(" \n", &out));
    around[strlen(text)] = ' ';
    around[strlen(text) + 1] = '\0';
    assert_fails(ERR_CONF, "cut short", invite_parse(around, &out));
}

static void each_fault_of_a_token_is_named(void **state)
{
    (void)state;
    struct invite in = invitation(9), out;
    char text[INVITE_TEXT_BYTES], bad[INVITE_TEXT_BYTES];
    assert_ok(invite_text(&in, text));
    size_t length = strlen(text);
    assert_fails(ERR_CONF, "that is no token", invite_parse("", &out));
    assert_fails(ERR_CONF, "that is no token", invite_parse("hello", &out));
    assert_fails(ERR_CONF, "that is no token", invite_parse(text + 1, &out));
    for (size_t cut = 5; cut < length; cut++) {
        memcpy(bad, text, cut);
        bad[cut] = '\0';
        assert_fails(ERR_CONF, "cut short", invite_parse(bad, &out));
        assert_int_equal(out.addresses_count, 0);
    }
    snprintf(bad, sizeof bad, "%sA", text);
    assert_fails(ERR_CONF, "typed wrong", invite_parse(bad, &out));
    for (size_t i = 8; i < length; i++) { /* the first three are the length */
        strcpy(bad, text);
        bad[i] = bad[i] == 'A' ? 'B' : 'A';
        assert_fails(ERR_CONF, "typed wrong", invite_parse(bad, &out));
        bad[i] = ' '; /* at its end, that is one less */
        assert_fails(ERR_CONF, i + 1 < length ? "typed wrong" : "cut short", invite_parse(bad, &out));
    }
    for (size_t i = 5; i + 1 < length; i++) { /* two changed places, anywhere */
        if (text[i] == text[i + 1])
            continue;
        strcpy(bad, text);
        bad[i] = text[i + 1];
        bad[i + 1] = text[i];
        assert_int_equal(invite_parse(bad, &out), ERR_CONF);
    }
}

/* A sum proves nothing: what has a good one, and no sense, is refused as well. */
static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    struct invite in = invitation(9), out;
    char text[INVITE_TEXT_BYTES];
    uint8_t raw[512];
    size_t bytes;
    assert_ok(invite_text(&in, text));
    static const struct {
        size_t at;
        uint8_t value;
        const char *says;
    } rows[] = {{2, 2, "of version 2"},     {130, 0, "makes no sense"},  {3, 0, "makes no sense"},
                {3, 5, "makes no sense"},   {3, 1, "makes no sense"},    {124, 255, "makes no sense"},
                {124, 3, "makes no sense"}, {125, ' ', "makes no sense"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(sodium_base642bin(raw, sizeof raw, text + 5, strlen(text) - 5, NULL, &bytes, NULL,
                                           sodium_base64_VARIANT_URLSAFE_NO_PADDING),
                         0);
        raw[rows[i].at] = rows[i].value;
        struct digest sum = digest_of(raw, bytes - 4);
        memcpy(raw + bytes - 4, sum.byte, 4);
        char changed[INVITE_TEXT_BYTES] = "dlc1.";
        sodium_bin2base64(changed + 5, sizeof changed - 5, raw, bytes, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
        assert_fails(ERR_CONF, rows[i].says, invite_parse(changed, &out));
    }
    memset(in.inviter, 0, sizeof in.inviter); /* no key */
    assert_ok(invite_text(&in, text));
    assert_fails(ERR_CONF, "makes no sense", invite_parse(text, &out));
}

/* ---- those that were given out ---- */

static void one_key_redeems_it_once_and_hears_the_same_again(void **state)
{
    (void)state;
    static struct invites invites;
    struct invite in = invitation(1), other = invitation(2);
    struct digest id = invite_id(&in), unknown = invite_id(&other);
    uint8_t curve[IDENT_KEY_BYTES];
    bool again;
    invites = (struct invites){.count = 0};
    assert_ok(invites_add(&invites, &in, INVITE_CONTRIBUTOR, "bert", "for b\033ert"));
    assert_fails(ERR_STATE, "open already", invites_add(&invites, &in, INVITE_AUTO, "", ""));
    assert_string_equal(invites.rows[0].note, "for b?ert");
    assert_string_equal(invites.rows[0].island, "bert");
    invite_curve(&in, curve, NULL);
    assert_ptr_equal(invites_of(&invites, curve), &invites.rows[0]);
    assert_ptr_equal(invites_find(&invites, &id), &invites.rows[0]);
    assert_null(invites_of(&invites, bert.key));
    assert_fails(ERR_NOTFOUND, "not known here", invites_redeem(&invites, &unknown, bert.key, NOW, &again));
    assert_ok(invites_redeem(&invites, &id, bert.key, NOW, &again));
    assert_false(again);
    assert_ok(invites_redeem(&invites, &id, bert.key, NOW + 1, &again));
    assert_true(again);
    assert_fails(ERR_STATE, "redeemed by another", invites_redeem(&invites, &id, anna.key, NOW + 2, &again));
    assert_memory_equal(invites.rows[0].by, bert.key, sizeof bert.key);
    invites_reopen(&invites, &unknown);
    invites_reopen(&invites, &id);
    assert_ok(invites_redeem(&invites, &id, anna.key, NOW + 3, &again));
    assert_false(again);
}

static void past_its_time_or_revoked_it_is_worth_nothing(void **state)
{
    (void)state;
    static struct invites invites;
    struct invite_row row;
    bool again;
    invites = (struct invites){.count = 0};
    for (uint8_t n = 0; n < 3; n++) {
        struct invite in = invitation(n);
        in.expiry_s = NOW + 10 * n;
        assert_ok(invites_add(&invites, &in, INVITE_AUTO, "", "x"));
    }
    struct invite in[3] = {invitation(0), invitation(1), invitation(2)};
    struct digest id[3] = {invite_id(&in[0]), invite_id(&in[1]), invite_id(&in[2])};
    assert_fails(ERR_STATE, "has expired", invites_redeem(&invites, &id[0], bert.key, NOW, &again));
    assert_ok(invites_redeem(&invites, &id[1], bert.key, NOW + 9, &again));
    assert_fails(ERR_STATE, "has expired", invites_redeem(&invites, &id[1], bert.key, NOW + 10, &again));
    assert_false(invites_expire(&invites, NOW - 1, &row));
    assert_true(invites_expire(&invites, NOW, &row));
    assert_true(digest_equal(&row.id, &id[0]));
    assert_false(invites_expire(&invites, NOW, NULL));
    assert_ok(invites_revoke(&invites, &id[1], &row));
    assert_true(digest_equal(&row.id, &id[1]) && invites.count == 1);
    assert_fails(ERR_NOTFOUND, "no such invitation", invites_revoke(&invites, &id[1], NULL));
    assert_fails(ERR_NOTFOUND, "was revoked", invites_redeem(&invites, &id[1], bert.key, NOW, &again));
    assert_ptr_equal(invites_find(&invites, &id[2]), &invites.rows[0]);
}

static void the_list_comes_back_from_its_file_or_is_refused(void **state)
{
    (void)state;
    static struct invites in, out;
    static uint8_t bytes[INVITES_BYTES_MAX + 1], bad[INVITES_BYTES_MAX + 1];
    in = (struct invites){.inviter = {3, [IDENT_KEY_BYTES - 1] = 9}};
    for (uint32_t n = 0; n < INVITES_MAX; n++) {
        struct invite invite = invitation((uint8_t)n);
        char note[200];
        memset(note, 'n', sizeof note);
        note[n % 100] = '\0';
        bool again;
        assert_ok(invites_add(&in, &invite, (enum invite_as)(n % INVITE_AS), note, note));
        struct digest id = invite_id(&invite);
        if (n % 2 == 0)
            assert_ok(invites_redeem(&in, &id, bert.key, NOW, &again));
        if (n % 16 != 0)
            continue;
        size_t count = invites_pack(&in, bytes);
        assert_ok(invites_unpack(bytes, count, &out));
        assert_memory_equal(&in, &out, sizeof in);
    }
    struct invite more = invitation(200);
    assert_fails(ERR_STATE, "revoke some", invites_add(&in, &more, INVITE_AUTO, "", ""));
    size_t count = invites_pack(&in, bytes);
    assert_int_equal(count, INVITES_BYTES_MAX);
    for (size_t i = 0; i < count; i += 7) {
        memcpy(bad, bytes, count);
        bad[i] ^= 4;
        assert_fails(ERR_CORRUPT, "is damaged", invites_unpack(bad, count, &out));
        assert_fails(ERR_CORRUPT, "is damaged", invites_unpack(bytes, i, &out));
        assert_int_equal(out.count, 0);
    }
    assert_fails(ERR_CORRUPT, "is damaged", invites_unpack(bytes, count + 1, &out));
}

/* ---- the messages ---- */

static const uint8_t join_nonce[WIRE_NONCE_BYTES] = {7};

static struct wire_join admission(void)
{
    struct wire_join join = {
        .invitation = {{8}}, .witness = true, .word = {.number = 3, .uplink = 5000, .owner_choice = 2}};
    strcpy(join.name, "bert-1_x");
    strcpy(join.word.address, "b.example.org:7600");
    wire_join_sign(&bert, join_nonce, &join);
    return join;
}

static void what_a_guest_says_is_signed_for_one_run(void **state)
{
    (void)state;
    uint8_t bytes[WIRE_JOIN_BYTES_MAX], nonce[WIRE_NONCE_BYTES] = {7};
    struct wire_join in = admission(), out;
    assert_ok(wire_join_unpack(bytes, wire_join_pack(&in, bytes), &out));
    assert_memory_equal(&in, &out, sizeof in);
    assert_true(wire_join_signed(&out, nonce));
    for (int k = 0; k < 11; k++) {
        out = in;
        out.invitation.byte[31] ^= k == 0;
        out.name[0] = k == 1 ? 'c' : 'b';
        if (k == 2)
            memcpy(out.key, anna.key, sizeof out.key);
        out.word.address[0] = k == 3 ? 'c' : 'b';
        out.word.uplink += k == 4;
        out.word.owner_choice -= k == 5;
        out.witness ^= k == 6;
        nonce[15] ^= k == 7;
        out.word.number += k == 8;
        out.word.draining ^= k == 9;
        out.word.units += k == 10;
        assert_false(wire_join_signed(&out, nonce));
        nonce[15] ^= k == 7;
    }
    /* Another word of the same island makes it another question. */
    struct member_word word = in.word;
    word.number = 4;
    member_word_sign(&bert, nonce, MEMBER_WORD_NEWCOMER, &word);
    assert_true(member_word_signed(bert.key, nonce, MEMBER_WORD_NEWCOMER, &word));
    out = in;
    out.word = word;
    assert_false(wire_join_signed(&out, nonce));
    /* To be let in is one thing, to be dialled another. */
    assert_false(wire_dial_request_signed(&in, nonce));
    wire_dial_request_sign(&bert, nonce, &in);
    assert_true(wire_dial_request_signed(&in, nonce));
    assert_false(wire_join_signed(&in, nonce));
}

static void what_is_no_admission_is_refused(void **state)
{
    (void)state;
    static uint8_t bytes[WIRE_JOIN_BYTES_MAX + 1];
    struct wire_join out;
    static const struct {
        const char *name, *address;
        uint64_t uplink;
        uint8_t request;
        const char *says;
    } rows[] = {{"", "b:1", 1, 0, "a name"},          {"a b", "b:1", 1, 0, "a name"},
                {"b", "b", 1, 0, "an address"},       {"b", "b:0", 1, 0, "an address"},
                {"b", "b:70000", 1, 0, "an address"}, {"b", "b\n:1", 1, 0, "an address"},
                {"b", ":1", 1, 0, "an address"},      {"b", "b:1x", 1, 0, "an address"},
                {"b", "b:1", 0, 0, "an uplink"},      {"b", "b:1", 1, 5, "owner choice 5"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wire_join in = admission();
        strcpy(in.name, rows[i].name);
        strcpy(in.word.address, rows[i].address);
        in.word.uplink = rows[i].uplink;
        in.word.owner_choice = rows[i].request;
        assert_fails(ERR_PROTO, rows[i].says, wire_join_unpack(bytes, wire_join_pack(&in, bytes), &out));
    }
    struct wire_join in = admission();
    in.word.number = 0;
    assert_fails(ERR_PROTO, "number 0", wire_join_unpack(bytes, wire_join_pack(&in, bytes), &out));
    in.word.number = MEMBER_WORD_NUMBER_MAX;
    assert_fails(ERR_PROTO, "number 9223372036854775808", wire_join_unpack(bytes, wire_join_pack(&in, bytes), &out));
    in = admission();
    memset(in.key, 0, sizeof in.key);
    assert_fails(ERR_PROTO, "a key that is none", wire_join_unpack(bytes, wire_join_pack(&in, bytes), &out));
    assert_fails(ERR_PROTO, "4097 bytes", wire_join_unpack(bytes, sizeof bytes, &out));
    assert_fails(ERR_PROTO, "invitation of 0 bytes", wire_join_unpack(bytes, 0, &out));
    for (size_t i = 0; i < sizeof bytes - 1; i += 2) { /* an empty field again and again */
        bytes[i] = 15 << 3 | 2;
        bytes[i + 1] = 0;
    }
    assert_int_equal(wire_join_unpack(bytes, sizeof bytes - 1, &out), ERR_PROTO);
}

static void answers_come_back(void **state)
{
    (void)state;
    static uint8_t configs[WIRE_JOINED_BYTES_MAX];
    struct wire_joined in = {.id = 70000, .configs = configs, .configs_bytes = 1 << 20, .run_spec = "[run]\n"}, out;
    uint8_t *bytes, small[WIRE_JOIN_BYTES_MAX];
    char reason[WIRE_REASON_BYTES], longer[600];
    size_t count;
    configs[12345] = 9;
    assert_ok(wire_joined_pack(&in, &bytes, &count));
    assert_ok(wire_joined_unpack(bytes, count, &out));
    assert_true(out.id == 70000 && out.configs_bytes == in.configs_bytes);
    assert_memory_equal(out.configs, configs, in.configs_bytes);
    assert_string_equal(out.run_spec, "[run]\n");
    wire_joined_deinit(&out);
    assert_null(out.configs);
    assert_int_equal(wire_joined_unpack(bytes, count - 1, &out), ERR_PROTO);
    assert_int_equal(wire_joined_unpack(bytes, 0, &out), ERR_PROTO);
    for (long n = 0; n < 6; n++) {
        mem_fail_after(n);
        enum err err = wire_joined_unpack(bytes, count, &out);
        mem_fail_after(-1);
        assert_true(err == ERR_NOMEM || err == ERR_PROTO || err == ERR_OK);
        assert_true(err == ERR_OK || (out.configs == NULL && out.run_spec == NULL));
        wire_joined_deinit(&out);
    }
    mem_free(bytes);
    in.configs_bytes = WIRE_JOINED_BYTES_MAX;
    assert_fails(ERR_ARG, "a guest takes", wire_joined_pack(&in, &bytes, &count));
    bool later;
    assert_ok(wire_refusal_unpack(small, wire_refusal_pack("no\x1b[0m", true, small), reason, &later));
    assert_true(later);
    assert_string_equal(reason, "no?[0m");
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_ok(wire_refusal_unpack(small, wire_refusal_pack(longer, false, small), reason, &later));
    assert_int_equal(strlen(reason), WIRE_REASON_BYTES - 1);
    assert_false(later);
    assert_int_equal(wire_refusal_unpack("\xff", 1, reason, &later), ERR_PROTO);
}

static size_t pack_response(struct wire_dial_response *response, uint8_t *bytes)
{
    *response = (struct wire_dial_response){.request = {1, 2, 3}, .reports_count = 2};
    response->reports[0] = (struct wire_dial_report){.island = "anna", .outcome = WIRE_DIAL_NO_NAME, .took_ms = 600000};
    response->reports[1] = (struct wire_dial_report){.island = "", .outcome = WIRE_DIAL_UNTESTED};
    return wire_dial_response_pack(response, bytes);
}

static void an_answer_about_dialling_comes_back_whole_or_not_at_all(void **state)
{
    (void)state;
    uint8_t bytes[WIRE_JOIN_BYTES_MAX + 1] = {0};
    struct wire_dial_response in, out;
    struct wire_join join = admission();
    size_t count = pack_response(&in, bytes);
    assert_ok(wire_dial_response_unpack(bytes, count, &out));
    assert_memory_equal(&in, &out, sizeof in);
    for (size_t cut = 0; cut < count; cut++)
        (void)!wire_dial_response_unpack(bytes, cut, &out);
    assert_fails(ERR_PROTO, "of 4097 bytes", wire_dial_response_unpack(bytes, sizeof bytes, &out));
    assert_fails(ERR_PROTO, "damaged", wire_dial_response_unpack("nonsense", 8, &out));
    assert_fails(ERR_PROTO, "by 0 bytes", wire_dial_response_unpack("", 0, &out));
    in.reports_count = 0;
    count = wire_dial_response_pack(&in, bytes);
    assert_fails(ERR_PROTO, "0 reports", wire_dial_response_unpack(bytes, count, &out));
    pack_response(&in, bytes);
    in.reports[1].outcome = WIRE_DIAL_OUTCOMES;
    count = wire_dial_response_pack(&in, bytes);
    assert_fails(ERR_PROTO, "outcome 7", wire_dial_response_unpack(bytes, count, &out));
    pack_response(&in, bytes);
    in.reports[0].took_ms++;
    count = wire_dial_response_pack(&in, bytes);
    assert_fails(ERR_PROTO, "600001 ms", wire_dial_response_unpack(bytes, count, &out));
    pack_response(&in, bytes);
    strcpy(in.reports[0].island, "a\033b"); /* it goes to a terminal */
    count = wire_dial_response_pack(&in, bytes);
    assert_fails(ERR_PROTO, "whose name is none", wire_dial_response_unpack(bytes, count, &out));
    wire_dial_tag(&join, out.request);
    assert_memory_equal(out.request, join.signature, WIRE_DIAL_TAG_BYTES);
}

int main(void)
{
    assert_ok(digest_init());
    assert_ok(ident_generate(&anna));
    assert_ok(ident_generate(&bert));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_about_dialling_comes_back_whole_or_not_at_all),
        cmocka_unit_test(a_token_comes_back),
        cmocka_unit_test(a_token_is_what_the_protocol_says),
        cmocka_unit_test(blanks_around_a_token_do_not_matter),
        cmocka_unit_test(each_fault_of_a_token_is_named),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(one_key_redeems_it_once_and_hears_the_same_again),
        cmocka_unit_test(past_its_time_or_revoked_it_is_worth_nothing),
        cmocka_unit_test(the_list_comes_back_from_its_file_or_is_refused),
        cmocka_unit_test(what_a_guest_says_is_signed_for_one_run),
        cmocka_unit_test(what_is_no_admission_is_refused),
        cmocka_unit_test(answers_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
