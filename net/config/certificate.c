/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/certificate.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"

/* Voters of two configurations. */
enum { SIGNERS_MAX = 2 * CONFIG_VOTERS_MAX, ROOM_FIRST = 8 };

/* ---- one signature ---- */

static const char certificate_mark[] = "diloco version";
enum { MESSAGE_BYTES = sizeof certificate_mark - 1 + CONFIG_NONCE_BYTES + 4 + 8 + DIGEST_BYTES };

/* What is signed: mark, nonce, fragment, version, hash. */
static void message_of(const struct certificate_subject *subject, uint8_t out[MESSAGE_BYTES])
{
    struct bytes_writer writer = bytes_writer_init(out, MESSAGE_BYTES);
    bytes_put(&writer, certificate_mark, sizeof certificate_mark - 1);
    bytes_put(&writer, subject->nonce, CONFIG_NONCE_BYTES);
    bytes_put_u32(&writer, subject->fragment);
    bytes_put_u64(&writer, subject->version);
    bytes_put(&writer, subject->hash.byte, DIGEST_BYTES);
}

void certificate_row_sign(const struct ident *ident, const struct certificate_subject *subject,
                          uint8_t signature[IDENT_SIGNATURE_BYTES])
{
    uint8_t message[MESSAGE_BYTES];
    message_of(subject, message);
    ident_sign(ident, message, sizeof message, signature);
}

bool certificate_row_good(const uint8_t *key, const struct certificate_subject *subject,
                          const uint8_t signature[IDENT_SIGNATURE_BYTES])
{
    uint8_t message[MESSAGE_BYTES];
    message_of(subject, message);
    return ident_signed(key, message, sizeof message, signature);
}

/* ---- the signatures needed ---- */

static bool is_full(const struct config_member *member)
{
    return member->voter && member->role != CONFIG_WITNESS;
}

static void put_quorum(const struct config *config, const struct config *last, struct certificate_rule *rule)
{
    struct certificate_quorum *quorum = &rule->quorums[rule->count++];
    *quorum = (struct certificate_quorum){.needed = config_commit_quorum(config)};
    for (uint32_t i = 0; i < config->members_count && quorum->count < CONFIG_VOTERS_MAX; i++) {
        const struct config_member *member = &config->members[i];
        if (!is_full(member))
            continue;
        struct certificate_voter *voter = &quorum->voters[quorum->count++];
        const struct config_member *now = config_member(last, member->id);
        voter->id = member->id;
        memcpy(voter->key, member->key, sizeof voter->key);
        memcpy(voter->last, now != NULL ? now->key : member->key, sizeof voter->last);
    }
}

static bool is_of(const struct certificate_quorum *quorum, uint32_t id)
{
    for (uint32_t i = 0; i < quorum->count; i++)
        if (quorum->voters[i].id == id)
            return true;
    return false;
}

static void put_other(uint32_t id, const uint8_t *key, struct certificate_rule *rule)
{
    bool counts = false;
    for (uint32_t q = 0; q < rule->count; q++)
        counts |= is_of(&rule->quorums[q], id);
    if (!counts) /* nobody is to blame for a row that counts nowhere */
        return;
    rule->more_others |= rule->others_count == CERTIFICATE_OTHERS_MAX;
    if (rule->more_others)
        return;
    struct certificate_key *other = &rule->others[rule->others_count++];
    other->id = id;
    memcpy(other->key, key, sizeof other->key);
}

/* The first epoch in which a voter can have signed a version; 0 where that is not known. It is the version's own, or an
 * earlier one: a voter may be a version ahead of those that the next epoch starts from. */
static uint64_t signed_since(const struct config_log *config_log, uint32_t fragment, uint64_t version)
{
    uint64_t epoch;
    if (!config_log_epoch(config_log, fragment, version, &epoch))
        return 0;
    const struct config *config = config_log_at(config_log, epoch);
    while (config != NULL && config_start(config, fragment) + 1 == version)
        config = config->epoch > 0 ? config_log_at(config_log, config->epoch - 1) : NULL;
    return config != NULL ? config->epoch : 0;
}

/* Further keys that a voter can have signed with since then: those that it left, and the one that it states: its
 * signer, or who hands the signature on, may know a configuration that we do not, or lack one. */
static void put_others(const struct config *last, uint64_t since, struct certificate_rule *rule)
{
    for (uint32_t i = 0; i < last->retired_count; i++)
        if (last->retired[i].epoch > since)
            put_other(last->retired[i].id, last->retired[i].key, rule);
    rule->more_others |= last->retired_count == CONFIG_RETIRED_MAX && last->retired[0].epoch > since;
    for (uint32_t i = 0; i < last->members_count; i++) {
        const struct config_member *member = &last->members[i];
        if (config_has_next(member))
            put_other(member->id, member->next_key, rule);
    }
}

void certificate_rule_of(const struct config_log *config_log, uint32_t fragment, uint64_t version,
                         struct certificate_rule *out)
{
    const struct config *last = config_log_last(config_log);
    uint64_t epoch;
    out->count = out->others_count = 0;
    out->more_others = false;
    if (last == NULL)
        return;
    put_quorum(last, last, out);
    if (config_log_epoch(config_log, fragment, version, &epoch) && epoch != last->epoch)
        put_quorum(config_log_at(config_log, epoch), last, out);
    put_others(last, signed_since(config_log, fragment, version), out);
}

/* ---- a certificate ---- */

/* By its key in that configuration, or by the last one. What it left since is no key of the newest configuration:
 * whoever has stolen one does not get a vote there. */
static bool is_of_voter(const struct certificate_voter *voter, const struct certificate_subject *subject,
                        const uint8_t *signature)
{
    return certificate_row_good(voter->key, subject, signature) ||
           (memcmp(voter->key, voter->last, sizeof voter->key) != 0 &&
            certificate_row_good(voter->last, subject, signature));
}

static bool certificates_for(const struct certificate *certificate, const struct certificate_voter *voter,
                             const struct certificate_subject *subject)
{
    for (uint32_t i = 0; i < certificate->count; i++)
        if (certificate->rows[i].id == voter->id && is_of_voter(voter, subject, certificate->rows[i].signature))
            return true;
    return false;
}

/* Whether so many signatures are enough; `spared`: and one more that counts as given. An island that lost its disk
 * cannot say what it held. Without its signature two voters could never help each other again, for the other's alone is
 * no majority; but nobody takes its own silence for a signature. */
static bool enough(const struct certificate_quorum *quorum, uint32_t given, bool spared)
{
    return given > 0 && given + (spared ? 1 : 0) >= quorum->needed;
}

enum err certificate_check(const struct certificate_rule *rule, const struct certificate_subject *subject,
                           const struct certificate *certificate, uint32_t excused)
{
    uint32_t most = 0;
    for (uint32_t q = 0; q < rule->count; q++) {
        const struct certificate_quorum *quorum = &rule->quorums[q];
        uint32_t given = 0;
        bool spared = q == 0 && is_of(quorum, excused);
        for (uint32_t i = 0; i < quorum->count; i++) {
            if (!certificates_for(certificate, &quorum->voters[i], subject))
                continue;
            given++;
            spared = spared && quorum->voters[i].id != excused;
        }
        if (enough(quorum, given, spared))
            return ERR_OK;
        most = given > most ? given : most;
    }
    return err_set(ERR_PROTO,
                   "version %" PRIu64 " of fragment %" PRIu32 " is certified by %" PRIu32 " voters; %" PRIu32
                   " of %" PRIu32 " are needed",
                   subject->version, subject->fragment, most, rule->count > 0 ? rule->quorums[0].needed : 0,
                   rule->count > 0 ? rule->quorums[0].count : 0);
}

/* With any key with which it counts somewhere: as a voter of the version's epoch, if it is one, that is either of two.
 * `*known`: it is a voter of the rule. */
static bool row_good(const struct certificate_rule *rule, uint32_t id, const struct certificate_subject *subject,
                     const uint8_t *signature, bool *known)
{
    *known = false;
    for (uint32_t q = rule->count; q-- > 0;)
        for (uint32_t i = 0; i < rule->quorums[q].count; i++) {
            *known = rule->quorums[q].voters[i].id == id;
            if (*known)
                return is_of_voter(&rule->quorums[q].voters[i], subject, signature);
        }
    return false;
}

/* By another key that it may have signed the version with. */
static bool row_of_another(const struct certificate_rule *rule, const struct certificate_row *row,
                           const struct certificate_subject *subject)
{
    for (uint32_t i = 0; i < rule->others_count; i++)
        if (rule->others[i].id == row->id && certificate_row_good(rule->others[i].key, subject, row->signature))
            return true;
    return false;
}

bool certificate_forged(const struct certificate_rule *rule, const struct certificate_subject *subject,
                        const struct certificate *certificate)
{
    bool known;
    for (uint32_t k = 0; k < certificate->count && !rule->more_others; k++)
        if (!row_good(rule, certificate->rows[k].id, subject, certificate->rows[k].signature, &known) && known &&
            !row_of_another(rule, &certificate->rows[k], subject))
            return true;
    return false;
}

/* ---- its bytes: id u32, zero u32, signature 64 bytes, for each row ---- */

size_t certificate_bytes(uint32_t count)
{
    return (size_t)count * CERTIFICATE_ROW_BYTES;
}

void certificate_pack(const struct certificate *certificate, uint8_t *out)
{
    struct bytes_writer writer = bytes_writer_init(out, certificate_bytes(certificate->count));
    for (uint32_t i = 0; i < certificate->count; i++) {
        bytes_put_u32(&writer, certificate->rows[i].id);
        bytes_put_u32(&writer, 0);
        bytes_put(&writer, certificate->rows[i].signature, IDENT_SIGNATURE_BYTES);
    }
}

enum err certificate_unpack(const uint8_t *bytes, size_t bytes_count, struct certificate *certificate)
{
    struct bytes_reader reader = bytes_reader_init(bytes, bytes_count);
    certificate->count = 0;
    if (bytes_count % CERTIFICATE_ROW_BYTES != 0 || bytes_count / CERTIFICATE_ROW_BYTES > CONFIG_VOTERS_MAX)
        return err_set(ERR_PROTO, "a certificate of %zu bytes", bytes_count);
    for (size_t i = 0; i < bytes_count / CERTIFICATE_ROW_BYTES; i++) {
        struct certificate_row *row = &certificate->rows[i];
        row->id = bytes_get_u32(&reader);
        uint32_t zero = bytes_get_u32(&reader);
        memcpy(row->signature, bytes_get(&reader, IDENT_SIGNATURE_BYTES), IDENT_SIGNATURE_BYTES);
        if (zero != 0)
            return err_set(ERR_PROTO, "a certificate whose row %zu is none", i);
    }
    certificate->count = (uint32_t)(bytes_count / CERTIFICATE_ROW_BYTES);
    return ERR_OK;
}

/* ---- what was signed ---- */

struct heard {
    uint32_t id;
    bool checked;            /* it is good */
    uint64_t version, order; /* order: of arrival */
    struct digest hash;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
};
_Static_assert(sizeof(struct heard) <= 128, "as the header says");

/* Of one fragment. */
struct heard_list {
    struct heard *rows;
    uint32_t count, room;
};

/* Signatures that were none, and not taken yet; of the voters of the two newest configurations. */
struct false_ones {
    uint32_t id, count;
};
enum { FALSE_ONES_MAX = 2 * CONFIG_VOTERS_MAX };

struct certificates {
    struct certificates_conf conf;
    uint64_t order;
    struct heard_list *fragments;
    struct false_ones false_ones[FALSE_ONES_MAX];
};

enum err certificates_new(const struct certificates_conf *conf, struct certificates **out)
{
    struct certificates *certificates;
    *out = NULL;
    TRY(mem_new(1, sizeof *certificates, "signatures of versions", &certificates));
    certificates->conf = *conf;
    enum err err = mem_new(conf->fragments_count, sizeof *certificates->fragments, "signatures of versions",
                           &certificates->fragments);
    if (err != ERR_OK)
        mem_free(certificates);
    else
        *out = certificates;
    return err;
}

void certificates_free(struct certificates *certificates)
{
    if (certificates == NULL)
        return;
    for (uint32_t f = 0; f < certificates->conf.fragments_count; f++)
        mem_free(certificates->fragments[f].rows);
    mem_free(certificates->fragments);
    mem_free(certificates);
}

/* Those of the configuration before are asked, too: its versions are what the newest one starts from. */
static const struct config_member *signer(const struct certificates *certificates, uint32_t id)
{
    const struct config *config = config_log_last(certificates->conf.config_log);
    for (int back = 0; config != NULL && back < 2; back++) {
        const struct config_member *member = config_member(config, id);
        if (member != NULL && is_full(member))
            return member;
        config = config->epoch > 0 ? config_log_at(certificates->conf.config_log, config->epoch - 1) : NULL;
    }
    return NULL;
}

static void drop(struct heard_list *list, uint32_t i)
{
    list->rows[i] = list->rows[--list->count];
}

/* Whether the newest configuration gives a member another key than the one before. */
static bool is_rekeyed(const struct certificates *certificates, uint32_t id)
{
    const struct config *last = config_log_last(certificates->conf.config_log);
    bool rekeyed = false;
    for (uint32_t i = 0; i < last->orders_count; i++)
        rekeyed |= last->orders[i].kind == ORDER_REKEY && last->orders[i].subject == id;
    return rekeyed;
}

/* Our own are signed again by our new key, those of others come again. */
void certificates_begin_epoch(struct certificates *certificates)
{
    bool own = is_rekeyed(certificates, certificates->conf.id);
    for (uint32_t f = 0; f < certificates->conf.fragments_count; f++) {
        struct heard_list *list = &certificates->fragments[f];
        for (uint32_t i = list->count; i-- > 0;)
            if (signer(certificates, list->rows[i].id) == NULL || (own && list->rows[i].id == certificates->conf.id))
                drop(list, i);
    }
    for (uint32_t i = 0; i < FALSE_ONES_MAX; i++) /* else those who left would fill it */
        if (signer(certificates, certificates->false_ones[i].id) == NULL)
            certificates->false_ones[i].count = 0;
}

/* The place for a member's signature of a version: that of what it signed for it before, or of the oldest of those that
 * are kept of it, or a new one. NULL: no memory. */
static struct heard *place(struct heard_list *list, uint32_t id, uint64_t version)
{
    struct heard *oldest = NULL;
    uint32_t of_it = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        struct heard *row = &list->rows[i];
        if (row->id != id)
            continue;
        if (row->version == version)
            return row;
        of_it++;
        oldest = oldest == NULL || row->order < oldest->order ? row : oldest;
    }
    if (of_it >= CERTIFICATE_KEPT)
        return oldest;
    if (list->count == list->room) {
        uint32_t room = list->room > 0 ? 2 * list->room : ROOM_FIRST;
        enum err err = list->rows == NULL
                           ? mem_new(room, sizeof *list->rows, "signatures of versions", &list->rows)
                           : mem_grow(&list->rows, list->room, room, sizeof *list->rows, "signatures of versions");
        if (err != ERR_OK)
            return NULL;
        list->room = room;
    }
    return &list->rows[list->count++];
}

static struct heard *find(const struct certificates *certificates, uint32_t id,
                          const struct certificate_subject *subject)
{
    struct heard_list *list = &certificates->fragments[subject->fragment];
    for (uint32_t i = 0; i < list->count; i++)
        if (list->rows[i].id == id && list->rows[i].version == subject->version &&
            digest_equal(&list->rows[i].hash, &subject->hash))
            return &list->rows[i];
    return NULL;
}

static struct heard *keep(struct certificates *certificates, uint32_t id, const struct certificate_subject *subject,
                          const uint8_t *signature, bool checked)
{
    struct heard *row = place(&certificates->fragments[subject->fragment], id, subject->version);
    if (row == NULL)
        return NULL;
    *row = (struct heard){.id = id,
                          .checked = checked,
                          .version = subject->version,
                          .order = ++certificates->order,
                          .hash = subject->hash};
    memcpy(row->signature, signature, sizeof row->signature);
    return row;
}

void certificates_heard(struct certificates *certificates, uint32_t id, const struct certificate_subject *subject,
                        const uint8_t signature[IDENT_SIGNATURE_BYTES])
{
    if (subject->fragment >= certificates->conf.fragments_count || subject->version == 0 ||
        id == certificates->conf.id || signer(certificates, id) == NULL)
        return;
    const struct heard *there = find(certificates, id, subject);
    if (there == NULL || memcmp(there->signature, signature, sizeof there->signature) != 0)
        (void)keep(certificates, id, subject, signature, false);
}

bool certificates_own(struct certificates *certificates, uint32_t fragment, uint64_t version, const struct digest *hash,
                      uint8_t signature[IDENT_SIGNATURE_BYTES])
{
    const struct certificates_conf *conf = &certificates->conf;
    const struct certificate_subject subject = {
        .nonce = conf->nonce, .fragment = fragment, .version = version, .hash = *hash};
    if (version == 0 || fragment >= conf->fragments_count || signer(certificates, conf->id) == NULL)
        return false;
    const struct heard *row = find(certificates, conf->id, &subject);
    if (row == NULL) {
        certificate_row_sign(conf->ident, &subject, signature);
        row = keep(certificates, conf->id, &subject, signature, true);
    }
    if (row != NULL)
        memcpy(signature, row->signature, sizeof row->signature);
    return row != NULL;
}

/* Of a key that it had, or that a configuration which is not known here yet may have given it: it is to blame for none
 * of these. */
static bool is_of_other_key(const struct config *config, uint32_t id, const struct certificate_subject *subject,
                            const uint8_t *signature)
{
    const uint8_t *key;
    for (uint32_t k = 0; (key = config_other_key(config, id, k)) != NULL; k++)
        if (certificate_row_good(key, subject, signature))
            return true;
    return false;
}

static void note_false(struct certificates *certificates, const struct certificate_subject *subject,
                       const struct heard *row)
{
    struct false_ones *free = NULL;
    if (is_of_other_key(config_log_last(certificates->conf.config_log), row->id, subject, row->signature))
        return;
    for (uint32_t i = 0; i < FALSE_ONES_MAX; i++) {
        struct false_ones *of = &certificates->false_ones[i];
        if (of->count > 0 && of->id == row->id) {
            of->count++;
            return;
        }
        free = of->count == 0 ? of : free;
    }
    if (free != NULL)
        *free = (struct false_ones){.id = row->id, .count = 1};
}

uint32_t certificates_take_false(struct certificates *certificates, uint32_t id)
{
    uint32_t count = 0;
    for (uint32_t i = 0; certificates != NULL && i < FALSE_ONES_MAX; i++) {
        struct false_ones *of = &certificates->false_ones[i];
        if (of->id != id || of->count == 0)
            continue;
        count = of->count;
        of->count = 0;
    }
    return count;
}

/* What a voter signed of it, if it is good; one that is not is forgotten, and counted. */
static const struct heard *good_of(struct certificates *certificates, const struct certificate_rule *rule,
                                   const struct certificate_voter *voter, const struct certificate_subject *subject)
{
    struct heard_list *list = &certificates->fragments[subject->fragment];
    struct heard *row = find(certificates, voter->id, subject);
    if (row != NULL && !row->checked) {
        bool known;
        row->checked = row_good(rule, voter->id, subject, row->signature, &known);
        if (!row->checked) {
            note_false(certificates, subject, row);
            drop(list, (uint32_t)(row - list->rows));
        }
        row = row->checked ? row : NULL;
    }
    return row;
}

static bool has_row(const struct certificate *certificate, uint32_t id)
{
    for (uint32_t i = 0; i < certificate->count; i++)
        if (certificate->rows[i].id == id)
            return true;
    return false;
}

static void add_row(struct certificate *certificate, uint32_t id, const uint8_t *signature)
{
    struct certificate_row *row = &certificate->rows[certificate->count];
    if (certificate->count == CONFIG_VOTERS_MAX || has_row(certificate, id))
        return;
    row->id = id;
    memcpy(row->signature, signature, sizeof row->signature);
    certificate->count++;
}

void certificates_known(struct certificates *certificates, const struct certificate_subject *subject,
                        struct certificate *out)
{
    struct certificate_rule rule;
    certificate_rule_of(certificates->conf.config_log, subject->fragment, subject->version, &rule);
    out->count = 0;
    for (uint32_t q = 0; q < rule.count; q++)
        for (uint32_t i = 0; i < rule.quorums[q].count; i++) {
            const struct heard *row = good_of(certificates, &rule, &rule.quorums[q].voters[i], subject);
            if (row != NULL)
                add_row(out, row->id, row->signature);
        }
}

void certificates_complete(struct certificates *certificates, const struct certificate_subject *subject,
                           struct certificate *certificate)
{
    const struct certificate given = *certificate;
    certificates_known(certificates, subject, certificate);
    for (uint32_t i = 0; i < given.count; i++)
        add_row(certificate, given.rows[i].id, given.rows[i].signature);
}
