/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/vouch.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"

/* Voters of two records. */
enum { SIGNERS_MAX = 2 * RECORD_VOTERS_MAX, ROOM_FIRST = 8 };

/* ---- one signature ---- */

static const char vouch_mark[] = "diloco version";
enum { MESSAGE_BYTES = sizeof vouch_mark - 1 + RECORD_NONCE_BYTES + 4 + 8 + DIGEST_BYTES };

/* What is signed: mark, nonce, fragment, version, hash. */
static void message_of(const struct vouch_subject *subject, uint8_t out[MESSAGE_BYTES])
{
    struct bytes_writer writer = bytes_writer_init(out, MESSAGE_BYTES);
    bytes_put(&writer, vouch_mark, sizeof vouch_mark - 1);
    bytes_put(&writer, subject->nonce, RECORD_NONCE_BYTES);
    bytes_put_u32(&writer, subject->fragment);
    bytes_put_u64(&writer, subject->version);
    bytes_put(&writer, subject->hash.byte, DIGEST_BYTES);
}

void vouch_sign(const struct ident *ident, const struct vouch_subject *subject,
                uint8_t signature[IDENT_SIGNATURE_BYTES])
{
    uint8_t message[MESSAGE_BYTES];
    message_of(subject, message);
    ident_sign(ident, message, sizeof message, signature);
}

bool vouch_good(const uint8_t *key, const struct vouch_subject *subject, const uint8_t signature[IDENT_SIGNATURE_BYTES])
{
    uint8_t message[MESSAGE_BYTES];
    message_of(subject, message);
    return ident_signed(key, message, sizeof message, signature);
}

/* ---- who has to vouch ---- */

static bool keeps_bytes(const struct record_member *member)
{
    return member->voter && member->role != RECORD_WITNESS;
}

static void put_quorum(const struct record *record, struct vouch_rule *rule)
{
    struct vouch_quorum *quorum = &rule->quorums[rule->count++];
    *quorum = (struct vouch_quorum){.needed = record_certifying(record)};
    for (uint32_t i = 0; i < record->members_count && quorum->count < RECORD_VOTERS_MAX; i++) {
        const struct record_member *member = &record->members[i];
        if (!keeps_bytes(member))
            continue;
        struct vouch_voter *voter = &quorum->voters[quorum->count++];
        voter->id = member->id;
        memcpy(voter->key, member->key, sizeof voter->key);
    }
}

void vouch_rule_of(const struct chain *chain, uint32_t fragment, uint64_t version, struct vouch_rule *out)
{
    const struct record *last = chain_last(chain);
    uint64_t epoch;
    out->count = 0;
    if (last == NULL)
        return;
    put_quorum(last, out);
    if (chain_epoch(chain, fragment, version, &epoch) && epoch != last->epoch)
        put_quorum(chain_at(chain, epoch), out);
}

static bool is_of(const struct vouch_quorum *quorum, uint32_t id)
{
    for (uint32_t i = 0; i < quorum->count; i++)
        if (quorum->voters[i].id == id)
            return true;
    return false;
}

/* ---- a certificate ---- */

static bool vouches_for(const struct vouch_certificate *certificate, const struct vouch_voter *voter,
                        const struct vouch_subject *subject)
{
    for (uint32_t i = 0; i < certificate->count; i++)
        if (certificate->rows[i].id == voter->id && vouch_good(voter->key, subject, certificate->rows[i].signature))
            return true;
    return false;
}

/* Whether so many voices are enough; `spared`: and one more that is taken for given. An island that lost its disk
 * cannot say what it held. Without its voice two voters could never help each other again, for the other's alone is
 * no majority; but nobody takes his own silence for a proof. */
static bool enough(const struct vouch_quorum *quorum, uint32_t given, bool spared)
{
    return given > 0 && given + (spared ? 1 : 0) >= quorum->needed;
}

enum err vouch_check(const struct vouch_rule *rule, const struct vouch_subject *subject,
                     const struct vouch_certificate *certificate, uint32_t excused)
{
    uint32_t most = 0;
    for (uint32_t q = 0; q < rule->count; q++) {
        const struct vouch_quorum *quorum = &rule->quorums[q];
        uint32_t given = 0;
        bool spared = q == 0 && is_of(quorum, excused);
        for (uint32_t i = 0; i < quorum->count; i++) {
            if (!vouches_for(certificate, &quorum->voters[i], subject))
                continue;
            given++;
            spared = spared && quorum->voters[i].id != excused;
        }
        if (enough(quorum, given, spared))
            return ERR_OK;
        most = given > most ? given : most;
    }
    return err_set(ERR_PROTO,
                   "version %" PRIu64 " of fragment %" PRIu32 " is vouched for by %" PRIu32 " voters; %" PRIu32
                   " of %" PRIu32 " are needed",
                   subject->version, subject->fragment, most, rule->count > 0 ? rule->quorums[0].needed : 0,
                   rule->count > 0 ? rule->quorums[0].count : 0);
}

bool vouch_forged(const struct vouch_rule *rule, const struct vouch_subject *subject,
                  const struct vouch_certificate *certificate)
{
    for (uint32_t q = 0; q < rule->count; q++)
        for (uint32_t i = 0; i < rule->quorums[q].count; i++) {
            const struct vouch_voter *voter = &rule->quorums[q].voters[i];
            for (uint32_t k = 0; k < certificate->count; k++)
                if (certificate->rows[k].id == voter->id &&
                    !vouch_good(voter->key, subject, certificate->rows[k].signature))
                    return true;
        }
    return false;
}

/* ---- its bytes: id u32, zero u32, signature 64 bytes, for each row ---- */

size_t vouch_bytes(uint32_t count)
{
    return (size_t)count * VOUCH_ROW_BYTES;
}

void vouch_pack(const struct vouch_certificate *certificate, uint8_t *out)
{
    struct bytes_writer writer = bytes_writer_init(out, vouch_bytes(certificate->count));
    for (uint32_t i = 0; i < certificate->count; i++) {
        bytes_put_u32(&writer, certificate->rows[i].id);
        bytes_put_u32(&writer, 0);
        bytes_put(&writer, certificate->rows[i].signature, IDENT_SIGNATURE_BYTES);
    }
}

enum err vouch_unpack(const uint8_t *bytes, size_t bytes_count, struct vouch_certificate *certificate)
{
    struct bytes_reader reader = bytes_reader_init(bytes, bytes_count);
    certificate->count = 0;
    if (bytes_count % VOUCH_ROW_BYTES != 0 || bytes_count / VOUCH_ROW_BYTES > RECORD_VOTERS_MAX)
        return err_set(ERR_PROTO, "a certificate of %zu bytes", bytes_count);
    for (size_t i = 0; i < bytes_count / VOUCH_ROW_BYTES; i++) {
        struct vouch *row = &certificate->rows[i];
        row->id = bytes_get_u32(&reader);
        uint32_t zero = bytes_get_u32(&reader);
        memcpy(row->signature, bytes_get(&reader, IDENT_SIGNATURE_BYTES), IDENT_SIGNATURE_BYTES);
        if (zero != 0)
            return err_set(ERR_PROTO, "a certificate whose row %zu is none", i);
    }
    certificate->count = (uint32_t)(bytes_count / VOUCH_ROW_BYTES);
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

struct vouches {
    struct vouches_conf conf;
    uint64_t order;
    struct heard_list *fragments;
};

enum err vouches_new(const struct vouches_conf *conf, struct vouches **out)
{
    struct vouches *vouches;
    *out = NULL;
    TRY(mem_new(1, sizeof *vouches, "signatures of versions", &vouches));
    vouches->conf = *conf;
    enum err err =
        mem_new(conf->fragments_count, sizeof *vouches->fragments, "signatures of versions", &vouches->fragments);
    if (err != ERR_OK)
        mem_free(vouches);
    else
        *out = vouches;
    return err;
}

void vouches_free(struct vouches *vouches)
{
    if (vouches == NULL)
        return;
    for (uint32_t f = 0; f < vouches->conf.fragments_count; f++)
        mem_free(vouches->fragments[f].rows);
    mem_free(vouches->fragments);
    mem_free(vouches);
}

/* Those of the record before are asked, too: its versions are what the newest one starts from. */
static const struct record_member *signer(const struct vouches *vouches, uint32_t id)
{
    const struct record *record = chain_last(vouches->conf.chain);
    for (int back = 0; record != NULL && back < 2; back++) {
        const struct record_member *member = record_member(record, id);
        if (member != NULL && keeps_bytes(member))
            return member;
        record = record->epoch > 0 ? chain_at(vouches->conf.chain, record->epoch - 1) : NULL;
    }
    return NULL;
}

static void drop(struct heard_list *list, uint32_t i)
{
    list->rows[i] = list->rows[--list->count];
}

void vouches_begin_epoch(struct vouches *vouches)
{
    for (uint32_t f = 0; f < vouches->conf.fragments_count; f++) {
        struct heard_list *list = &vouches->fragments[f];
        for (uint32_t i = list->count; i-- > 0;)
            if (signer(vouches, list->rows[i].id) == NULL)
                drop(list, i);
    }
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
    if (of_it >= VOUCH_KEPT)
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

static struct heard *find(const struct vouches *vouches, uint32_t id, const struct vouch_subject *subject)
{
    struct heard_list *list = &vouches->fragments[subject->fragment];
    for (uint32_t i = 0; i < list->count; i++)
        if (list->rows[i].id == id && list->rows[i].version == subject->version &&
            digest_equal(&list->rows[i].hash, &subject->hash))
            return &list->rows[i];
    return NULL;
}

static struct heard *keep(struct vouches *vouches, uint32_t id, const struct vouch_subject *subject,
                          const uint8_t *signature, bool checked)
{
    struct heard *row = place(&vouches->fragments[subject->fragment], id, subject->version);
    if (row == NULL)
        return NULL;
    *row = (struct heard){
        .id = id, .checked = checked, .version = subject->version, .order = ++vouches->order, .hash = subject->hash};
    memcpy(row->signature, signature, sizeof row->signature);
    return row;
}

void vouches_heard(struct vouches *vouches, uint32_t id, const struct vouch_subject *subject,
                   const uint8_t signature[IDENT_SIGNATURE_BYTES])
{
    if (subject->fragment >= vouches->conf.fragments_count || subject->version == 0 || id == vouches->conf.id ||
        signer(vouches, id) == NULL)
        return;
    const struct heard *there = find(vouches, id, subject);
    if (there == NULL || memcmp(there->signature, signature, sizeof there->signature) != 0)
        (void)keep(vouches, id, subject, signature, false);
}

bool vouches_own(struct vouches *vouches, uint32_t fragment, uint64_t version, const struct digest *hash,
                 uint8_t signature[IDENT_SIGNATURE_BYTES])
{
    const struct vouches_conf *conf = &vouches->conf;
    const struct vouch_subject subject = {
        .nonce = conf->nonce, .fragment = fragment, .version = version, .hash = *hash};
    if (version == 0 || fragment >= conf->fragments_count || signer(vouches, conf->id) == NULL)
        return false;
    const struct heard *row = find(vouches, conf->id, &subject);
    if (row == NULL) {
        vouch_sign(conf->ident, &subject, signature);
        row = keep(vouches, conf->id, &subject, signature, true);
    }
    if (row != NULL)
        memcpy(signature, row->signature, sizeof row->signature);
    return row != NULL;
}

/* What a voter signed of it, if it is good; one that is not is forgotten. */
static const struct heard *good_of(struct vouches *vouches, const struct vouch_voter *voter,
                                   const struct vouch_subject *subject)
{
    struct heard_list *list = &vouches->fragments[subject->fragment];
    struct heard *row = find(vouches, voter->id, subject);
    if (row != NULL && !row->checked) {
        row->checked = vouch_good(voter->key, subject, row->signature);
        if (!row->checked)
            drop(list, (uint32_t)(row - list->rows));
        row = row->checked ? row : NULL;
    }
    return row;
}

static bool has_row(const struct vouch_certificate *certificate, uint32_t id)
{
    for (uint32_t i = 0; i < certificate->count; i++)
        if (certificate->rows[i].id == id)
            return true;
    return false;
}

static void add_row(struct vouch_certificate *certificate, uint32_t id, const uint8_t *signature)
{
    struct vouch *row = &certificate->rows[certificate->count];
    if (certificate->count == RECORD_VOTERS_MAX || has_row(certificate, id))
        return;
    row->id = id;
    memcpy(row->signature, signature, sizeof row->signature);
    certificate->count++;
}

void vouches_known(struct vouches *vouches, const struct vouch_subject *subject, struct vouch_certificate *out)
{
    struct vouch_rule rule;
    vouch_rule_of(vouches->conf.chain, subject->fragment, subject->version, &rule);
    out->count = 0;
    for (uint32_t q = 0; q < rule.count; q++)
        for (uint32_t i = 0; i < rule.quorums[q].count; i++) {
            const struct heard *row = good_of(vouches, &rule.quorums[q].voters[i], subject);
            if (row != NULL)
                add_row(out, row->id, row->signature);
        }
}

void vouches_complete(struct vouches *vouches, const struct vouch_subject *subject,
                      struct vouch_certificate *certificate)
{
    const struct vouch_certificate given = *certificate;
    vouches_known(vouches, subject, certificate);
    for (uint32_t i = 0; i < given.count; i++)
        add_row(certificate, given.rows[i].id, given.rows[i].signature);
}
