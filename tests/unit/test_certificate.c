/* SPDX-License-Identifier: Apache-2.0 */
/* certificate: what voters sign of a version, who has to, what a certificate proves, and what is kept of what is heard.
 */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "net/config/certificate.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/sample_configs.h"

enum { F = 1, FRAGMENTS = 3, VERSION = 9, SELF = 0 };

static struct config_log *config_log;

static void add(struct config config)
{
    struct digest digest = configs_digest(&config);
    assert_ok(config_log_add(config_log, &config, &digest));
}

/* One epoch of so many owners. */
static void begin(uint32_t owners, bool witness)
{
    assert_ok(config_log_new(&config_log));
    add(configs_first(owners, witness));
}

/* The next epoch, from this version of F, with these owners; who is none does not vote. */
static void next(uint64_t start, const uint32_t *ids, uint32_t count)
{
    struct config config = configs_next(config_log_last(config_log));
    configs_map(&config, ids, count);
    configs_start(&config, F, start);
    add(config);
}

static int end(void **state)
{
    (void)state;
    config_log_free(config_log);
    config_log = NULL;
    return 0;
}

static struct certificate_subject subject_of(uint64_t version, char hash)
{
    return (struct certificate_subject){
        .nonce = config_log_last(config_log)->nonce, .fragment = F, .version = version, .hash = digest_of(&hash, 1)};
}

static void put(struct certificate *certificate, uint32_t id, const struct certificate_subject *subject)
{
    struct certificate_row *row = &certificate->rows[certificate->count++];
    row->id = id;
    certificate_row_sign(configs_ident(id), subject, row->signature);
}

/* Signatures of these for the subject. */
static struct certificate of(const struct certificate_subject *subject, const uint32_t *ids, uint32_t count)
{
    struct certificate certificate = {.count = 0};
    for (uint32_t i = 0; i < count; i++)
        put(&certificate, ids[i], subject);
    return certificate;
}
#define OF(subject, ...) \
    of(subject, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static enum err check(const struct certificate_subject *subject, const struct certificate *certificate,
                      uint32_t excused)
{
    struct certificate_rule rule;
    certificate_rule_of(config_log, subject->fragment, subject->version, &rule);
    return certificate_check(&rule, subject, certificate, excused);
}

static void assert_proves(const struct certificate_subject *subject, struct certificate certificate)
{
    assert_ok(check(subject, &certificate, CERTIFICATE_NOBODY));
}

static void assert_proves_nothing(const struct certificate_subject *subject, struct certificate certificate)
{
    assert_fails(ERR_PROTO, "certified by", check(subject, &certificate, CERTIFICATE_NOBODY));
}

/* ---- one signature ---- */

static void a_signature_is_of_one_run_fragment_version_and_hash(void **state)
{
    (void)state;
    begin(3, false);
    const struct certificate_subject subject = subject_of(VERSION, 'a');
    uint8_t signature[IDENT_SIGNATURE_BYTES];
    certificate_row_sign(configs_ident(1), &subject, signature);
    assert_true(certificate_row_good(configs_ident(1)->key, &subject, signature));
    assert_false(certificate_row_good(configs_ident(2)->key, &subject, signature));
    struct certificate_subject other = subject;
    other.nonce = (const uint8_t *)"another nonce .";
    assert_false(certificate_row_good(configs_ident(1)->key, &other, signature));
    other = subject;
    other.fragment++;
    assert_false(certificate_row_good(configs_ident(1)->key, &other, signature));
    other = subject;
    other.version++;
    assert_false(certificate_row_good(configs_ident(1)->key, &other, signature));
    other = subject;
    other.hash.byte[31] ^= 1;
    assert_false(certificate_row_good(configs_ident(1)->key, &other, signature));
    signature[3] ^= 1;
    assert_false(certificate_row_good(configs_ident(1)->key, &subject, signature));
}

/* docs/PROTOCOL.md, 4: another implementation signs the same bytes. */
static void what_is_signed_is_as_documented(void **state)
{
    (void)state;
    begin(1, false);
    struct certificate_subject subject = subject_of(0x0102030405060708, 'a');
    uint8_t message[14 + 16 + 4 + 8 + 32] = "diloco version", signature[IDENT_SIGNATURE_BYTES];
    memcpy(message + 14, subject.nonce, 16);
    memcpy(message + 30, (const uint8_t[]){F, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1}, 12);
    memcpy(message + 42, subject.hash.byte, 32);
    certificate_row_sign(configs_ident(0), &subject, signature);
    assert_true(ident_signed(configs_ident(0)->key, message, sizeof message, signature));
}

/* ---- a certificate ---- */

static void a_majority_of_the_voters_proves_a_hash(void **state)
{
    (void)state;
    begin(5, false);
    const struct certificate_subject subject = subject_of(VERSION, 'a');
    assert_proves(&subject, OF(&subject, 0, 1, 2));
    assert_proves(&subject, OF(&subject, 4, 2, 1, 0, 3));
    assert_proves_nothing(&subject, OF(&subject, 1, 2));
    assert_proves_nothing(&subject, (struct certificate){.count = 0});
}

static void what_a_liar_puts_in_counts_nowhere(void **state)
{
    (void)state;
    begin(3, false);
    const struct certificate_subject subject = subject_of(VERSION, 'a'), other = subject_of(VERSION + 1, 'a'),
                                     different = subject_of(VERSION, 'b');
    /* The same voter again. */
    assert_proves_nothing(&subject, OF(&subject, 1, 1, 1));
    /* Of another version, and of another hash. */
    struct certificate certificate = OF(&subject, 1);
    put(&certificate, 2, &other);
    put(&certificate, 2, &different);
    assert_proves_nothing(&subject, certificate);
    /* In somebody else's name. */
    certificate = OF(&subject, 1, 1, 1);
    certificate.rows[1].id = 2;
    certificate.rows[2].id = 0;
    assert_proves_nothing(&subject, certificate);
    /* Of nobody, and of one who does not vote. */
    assert_proves_nothing(&subject, OF(&subject, 1, 7));
    /* None of it does harm. */
    certificate = OF(&different, 2);
    put(&certificate, 7, &subject);
    put(&certificate, 1, &subject);
    put(&certificate, 1, &subject);
    put(&certificate, 2, &subject);
    assert_proves(&subject, certificate);
}

static void who_does_not_vote_or_keeps_no_bytes_counts_nowhere(void **state)
{
    (void)state;
    static const uint32_t two[] = {0, 1};
    begin(2, true);
    struct certificate_subject subject = subject_of(VERSION, 'a');
    assert_proves(&subject, OF(&subject, 0, 1));
    assert_proves_nothing(&subject, OF(&subject, 0, 2)); /* the witness */
    end(NULL);
    begin(3, false);
    next(VERSION - 1, two, 2);
    subject = subject_of(VERSION, 'a');
    assert_proves(&subject, OF(&subject, 0, 1));
    assert_proves_nothing(&subject, OF(&subject, 0, 2)); /* a contributor now */
}

/* A witness keeps none: then the one voter that does is enough, as it is for a result. */
static void beside_a_witness_one_is_enough(void **state)
{
    (void)state;
    static const uint32_t one[] = {0};
    begin(2, true);
    next(VERSION - 1, one, 1);
    const struct certificate_subject subject = subject_of(VERSION, 'a');
    assert_proves(&subject, OF(&subject, 0));
    assert_proves_nothing(&subject, OF(&subject, 1));
    assert_proves_nothing(&subject, OF(&subject, 2));
}

static void voters_of_the_versions_epoch_or_of_the_newest_do(void **state)
{
    (void)state;
    static const uint32_t others[] = {3, 4, 5}, old[] = {0, 1, 2};
    begin(6, false);
    next(2, old, 3);
    next(VERSION, others, 3);
    struct certificate_subject subject = subject_of(VERSION, 'a'); /* the last version of epoch 1 */
    assert_proves(&subject, OF(&subject, 0, 1));
    assert_proves(&subject, OF(&subject, 3, 5));
    assert_proves_nothing(&subject, OF(&subject, 0, 3)); /* a majority of neither */
    subject = subject_of(VERSION + 1, 'a');
    assert_proves(&subject, OF(&subject, 3, 5));
    assert_proves_nothing(&subject, OF(&subject, 0, 1, 2));
    config_log_forget(config_log, 2);
    subject = subject_of(VERSION, 'a'); /* whose epoch is not known any more */
    assert_proves(&subject, OF(&subject, 3, 5));
    assert_proves_nothing(&subject, OF(&subject, 0, 1, 2));
}

static void an_excused_voice_stands_in_for_one_and_never_alone(void **state)
{
    (void)state;
    static const uint32_t one[] = {0};
    begin(2, false);
    struct certificate_subject subject = subject_of(VERSION, 'a');
    struct certificate certificate = OF(&subject, 0), nothing = {.count = 0}, two;
    assert_fails(ERR_PROTO, "1 voters; 2 of 2", check(&subject, &certificate, CERTIFICATE_NOBODY));
    assert_ok(check(&subject, &certificate, 1));
    assert_fails(ERR_PROTO, "certified", check(&subject, &certificate, 0)); /* it has spoken: not twice */
    assert_fails(ERR_PROTO, "certified", check(&subject, &certificate, 7)); /* is nobody */
    assert_fails(ERR_PROTO, "certified", check(&subject, &nothing, 1));
    end(NULL);
    begin(5, false);
    subject = subject_of(VERSION, 'a');
    certificate = OF(&subject, 1);
    two = OF(&subject, 1, 2);
    assert_fails(ERR_PROTO, "certified", check(&subject, &certificate, 0));
    assert_ok(check(&subject, &two, 0));
    end(NULL);
    begin(2, true); /* one whose voice alone would be enough */
    next(VERSION - 1, one, 1);
    subject = subject_of(VERSION, 'a');
    assert_fails(ERR_PROTO, "certified", check(&subject, &nothing, 0));
}

static void a_certificate_comes_back_from_its_bytes(void **state)
{
    (void)state;
    begin(3, false);
    const struct certificate_subject subject = subject_of(VERSION, 'a');
    const struct certificate certificate = OF(&subject, 2, 0);
    uint8_t bytes[CERTIFICATE_ROW_BYTES * (CONFIG_VOTERS_MAX + 1)] = {0};
    struct certificate back;
    assert_int_equal(certificate_bytes(certificate.count), 2 * CERTIFICATE_ROW_BYTES);
    certificate_pack(&certificate, bytes);
    assert_ok(certificate_unpack(bytes, certificate_bytes(2), &back));
    assert_int_equal(back.count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(back.rows[i].id, certificate.rows[i].id);
        assert_memory_equal(back.rows[i].signature, certificate.rows[i].signature, IDENT_SIGNATURE_BYTES);
    }
    assert_ok(certificate_unpack(bytes, 0, &back));
    assert_int_equal(back.count, 0);
    assert_fails(ERR_PROTO, "certificate", certificate_unpack(bytes, certificate_bytes(2) - 1, &back));
    assert_fails(ERR_PROTO, "certificate", certificate_unpack(bytes, sizeof bytes, &back));
    bytes[4] = 1;
    assert_fails(ERR_PROTO, "row 0", certificate_unpack(bytes, certificate_bytes(2), &back));
    assert_int_equal(back.count, 0);
}

/* ---- what is heard ---- */

static struct certificates *new_certificates(void)
{
    struct certificates_conf conf = {.config_log = config_log,
                                     .ident = configs_ident(SELF),
                                     .nonce = config_log_last(config_log)->nonce,
                                     .id = SELF,
                                     .fragments_count = FRAGMENTS};
    struct certificates *certificates;
    assert_ok(certificates_new(&conf, &certificates));
    return certificates;
}

static void hear(struct certificates *certificates, uint32_t id, const struct certificate_subject *subject)
{
    uint8_t signature[IDENT_SIGNATURE_BYTES];
    certificate_row_sign(configs_ident(id), subject, signature);
    certificates_heard(certificates, id, subject, signature);
}

static bool sign(struct certificates *certificates, const struct certificate_subject *subject)
{
    uint8_t signature[IDENT_SIGNATURE_BYTES];
    return certificates_own(certificates, F, subject->version, &subject->hash, signature) &&
           certificate_row_good(configs_ident(SELF)->key, subject, signature);
}

/* Whether those that are known prove it. */
static bool enough(struct certificates *certificates, const struct certificate_subject *subject, uint32_t excused)
{
    struct certificate certificate;
    certificates_known(certificates, subject, &certificate);
    return check(subject, &certificate, excused) == ERR_OK;
}

static void a_certificate_is_there_once_a_majority_was_heard(void **state)
{
    (void)state;
    begin(5, false);
    struct certificates *certificates = new_certificates();
    const struct certificate_subject subject = subject_of(VERSION, 'a'), different = subject_of(VERSION, 'b');
    assert_false(enough(certificates, &subject, CERTIFICATE_NOBODY));
    assert_true(sign(certificates, &subject));
    hear(certificates, 1, &subject);
    hear(certificates, 1, &subject);
    hear(certificates, 2, &different);
    assert_false(enough(certificates, &subject, CERTIFICATE_NOBODY));
    assert_true(enough(certificates, &subject, 4));
    assert_false(enough(certificates, &subject, 1));
    hear(certificates, 2, &subject); /* it was mended */
    assert_true(enough(certificates, &subject, CERTIFICATE_NOBODY));
    assert_false(enough(certificates, &different, CERTIFICATE_NOBODY));
    certificates_free(certificates);
    certificates_free(NULL);
}

static struct certificate_row row_of(uint32_t id, const struct certificate_subject *subject)
{
    struct certificate_row row = {.id = id};
    certificate_row_sign(configs_ident(id), subject, row.signature);
    return row;
}

/* Who sends a state may not hear a voter whom the receiver hears; and may have filled its list with what proves
 * nothing.
 */
static void what_is_known_here_completes_a_certificate(void **state)
{
    (void)state;
    begin(5, false);
    struct certificates *certificates = new_certificates();
    const struct certificate_subject subject = subject_of(VERSION, 'a'), other = subject_of(VERSION, 'b');
    struct certificate certificate = {.count = 2, .rows = {row_of(1, &subject), row_of(2, &subject)}};
    assert_fails(ERR_PROTO, "3 of 5 are needed", check(&subject, &certificate, CERTIFICATE_NOBODY));
    hear(certificates, 3, &subject);
    hear(certificates, 4, &other);
    certificates_complete(certificates, &subject, &certificate);
    assert_int_equal(certificate.count, 3);
    assert_ok(check(&subject, &certificate, CERTIFICATE_NOBODY));
    /* One that both have is there once, and ours stands where the sender's is none. */
    certificate = (struct certificate){.count = 2, .rows = {row_of(3, &other), row_of(1, &subject)}};
    hear(certificates, 2, &subject);
    certificates_complete(certificates, &subject, &certificate);
    assert_int_equal(certificate.count, 3);
    assert_ok(check(&subject, &certificate, CERTIFICATE_NOBODY));
    certificate.count = CONFIG_VOTERS_MAX;
    for (uint32_t i = 0; i < certificate.count; i++)
        certificate.rows[i] = (struct certificate_row){.id = 100 + i};
    hear(certificates, 1, &subject);
    certificates_complete(certificates, &subject, &certificate);
    assert_int_equal(certificate.count, CONFIG_VOTERS_MAX);
    assert_ok(check(&subject, &certificate, CERTIFICATE_NOBODY));
    certificates_free(certificates);
}

static void a_forged_signature_is_dropped_and_heard_anew(void **state)
{
    (void)state;
    begin(3, false);
    struct certificates *certificates = new_certificates();
    const struct certificate_subject subject = subject_of(VERSION, 'a');
    struct certificate known;
    uint8_t forged[IDENT_SIGNATURE_BYTES];
    assert_true(sign(certificates, &subject));
    certificate_row_sign(configs_ident(1), &subject, forged);
    certificates_heard(certificates, 2, &subject, forged);
    certificates_heard(certificates, SELF, &subject, forged); /* as if it were ours */
    certificates_known(certificates, &subject, &known);       /* whoever gets one that is forged refuses all */
    assert_int_equal(known.count, 1);
    assert_false(enough(certificates, &subject, CERTIFICATE_NOBODY));
    assert_false(enough(certificates, &subject, CERTIFICATE_NOBODY));
    hear(certificates, 2, &subject);
    assert_true(enough(certificates, &subject, CERTIFICATE_NOBODY));
    certificates_heard(certificates, 2, &subject, forged); /* its own, if it says so now */
    assert_false(enough(certificates, &subject, CERTIFICATE_NOBODY));
    certificates_free(certificates);
}

static void the_last_few_versions_of_each_voter_are_kept(void **state)
{
    (void)state;
    begin(2, false);
    struct certificates *certificates = new_certificates();
    struct certificate_subject subject;
    for (uint64_t version = 1; version <= 3 * CERTIFICATE_KEPT; version++) {
        subject = subject_of(version, 'a');
        assert_true(sign(certificates, &subject));
        hear(certificates, 1, &subject);
        assert_true(enough(certificates, &subject, CERTIFICATE_NOBODY));
    }
    for (uint64_t version = 1; version <= 3 * CERTIFICATE_KEPT; version++) {
        subject = subject_of(version, 'a');
        assert_int_equal(enough(certificates, &subject, CERTIFICATE_NOBODY), version > 2 * CERTIFICATE_KEPT);
    }
    /* One that names versions far ahead pushes out nothing but its own. */
    for (uint64_t version = 100; version < 100 + CERTIFICATE_KEPT; version++) {
        subject = subject_of(version, 'a');
        hear(certificates, 1, &subject);
    }
    subject = subject_of(3 * CERTIFICATE_KEPT, 'a');
    assert_false(enough(certificates, &subject, CERTIFICATE_NOBODY));
    hear(certificates, 1, &subject);
    assert_true(enough(certificates, &subject, CERTIFICATE_NOBODY));
    certificates_free(certificates);
}

static void of_who_is_no_voter_nothing_is_kept(void **state)
{
    (void)state;
    static const uint32_t two[] = {0, 1}, others[] = {0, 4};
    struct certificate certificate;
    uint8_t signature[IDENT_SIGNATURE_BYTES] = {0};
    begin(5, false);
    struct certificates *certificates = new_certificates();
    const struct certificate_subject subject = subject_of(VERSION, 'a');
    struct certificate_subject beyond = subject, initial = subject_of(0, 'a');
    beyond.fragment = FRAGMENTS;
    hear(certificates, 9, &subject);
    hear(certificates, 1, &beyond);
    hear(certificates, 1, &initial);
    assert_false(certificates_own(certificates, F, 0, &subject.hash, signature));
    assert_false(certificates_own(certificates, FRAGMENTS, 1, &subject.hash, signature));
    for (uint32_t id = 1; id < 4; id++)
        hear(certificates, id, &subject);
    next(VERSION, two, 2);
    certificates_begin_epoch(certificates);
    certificates_known(certificates, &subject, &certificate);
    assert_ok(check(&subject, &certificate, CERTIFICATE_NOBODY)); /* of the epoch before */
    assert_int_equal(certificate.count, 3);
    next(VERSION, others, 2);
    certificates_begin_epoch(certificates);
    assert_true(sign(certificates, &subject));
    assert_false(enough(certificates, &subject, CERTIFICATE_NOBODY)); /* 2 and 3 vote in neither of the last two */
    hear(certificates, 2, &subject);
    assert_false(enough(certificates, &subject, CERTIFICATE_NOBODY));
    hear(certificates, 4, &subject);
    assert_true(enough(certificates, &subject, CERTIFICATE_NOBODY));
    certificates_free(certificates);
}

/* Nobody takes that count any more; kept for ever, those who left would leave no place for those who are there. */
static void with_a_voter_goes_the_count_of_what_it_forged(void **state)
{
    (void)state;
    static const uint32_t two[] = {0, 1};
    struct certificate known;
    uint8_t forged[IDENT_SIGNATURE_BYTES];
    begin(4, false);
    struct certificates *certificates = new_certificates();
    const struct certificate_subject subject = subject_of(VERSION, 'a');
    certificate_row_sign(configs_ident(9), &subject, forged);
    for (uint32_t id = 1; id < 4; id++)
        certificates_heard(certificates, id, &subject, forged);
    certificates_known(certificates, &subject, &known);
    next(VERSION, two, 2);
    certificates_begin_epoch(certificates);
    assert_int_equal(certificates_take_false(certificates, 2), 1); /* a voter of the configuration before */
    next(VERSION, two, 2);
    certificates_begin_epoch(certificates);
    assert_int_equal(certificates_take_false(certificates, 3), 0);
    assert_int_equal(certificates_take_false(certificates, 1), 1);
    certificates_free(certificates);
}

static void who_does_not_vote_does_not_sign(void **state)
{
    (void)state;
    static const uint32_t others[] = {1, 2};
    uint8_t signature[IDENT_SIGNATURE_BYTES];
    begin(3, false);
    next(1, others, 2);
    struct certificates *certificates = new_certificates();
    const struct certificate_subject subject = subject_of(VERSION, 'a');
    assert_true(sign(certificates, &subject)); /* it did, in the configuration before */
    next(2, others, 2);
    certificates_begin_epoch(certificates);
    assert_false(certificates_own(certificates, F, VERSION, &subject.hash, signature));
    hear(certificates, 1, &subject);
    hear(certificates, 2, &subject);
    assert_true(enough(certificates, &subject, CERTIFICATE_NOBODY)); /* and passes others' on */
    certificates_free(certificates);
}

static enum err once(void *user)
{
    struct certificates_conf conf = {.config_log = config_log,
                                     .ident = configs_ident(SELF),
                                     .nonce = config_log_last(config_log)->nonce,
                                     .id = SELF,
                                     .fragments_count = FRAGMENTS};
    const struct certificate_subject subject = subject_of(VERSION, 'a');
    struct certificates *certificates;
    (void)user;
    TRY(certificates_new(&conf, &certificates));
    bool signed_it = sign(certificates, &subject);
    certificates_free(certificates);
    return signed_it ? ERR_OK : ERR_NOMEM;
}

static void without_memory_nothing_is_kept(void **state)
{
    (void)state;
    begin(1, false);
    assert_true(outofmem_walk(once, NULL) > 0);
}

#define CASE(name) cmocka_unit_test_teardown(name, end)
int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        CASE(a_signature_is_of_one_run_fragment_version_and_hash),
        CASE(what_is_signed_is_as_documented),
        CASE(a_majority_of_the_voters_proves_a_hash),
        CASE(what_a_liar_puts_in_counts_nowhere),
        CASE(who_does_not_vote_or_keeps_no_bytes_counts_nowhere),
        CASE(beside_a_witness_one_is_enough),
        CASE(voters_of_the_versions_epoch_or_of_the_newest_do),
        CASE(an_excused_voice_stands_in_for_one_and_never_alone),
        CASE(a_certificate_comes_back_from_its_bytes),
        CASE(a_certificate_is_there_once_a_majority_was_heard),
        CASE(what_is_known_here_completes_a_certificate),
        CASE(a_forged_signature_is_dropped_and_heard_anew),
        CASE(the_last_few_versions_of_each_voter_are_kept),
        CASE(of_who_is_no_voter_nothing_is_kept),
        CASE(with_a_voter_goes_the_count_of_what_it_forged),
        CASE(who_does_not_vote_does_not_sign),
        CASE(without_memory_nothing_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
