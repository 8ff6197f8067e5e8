/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/config_proof.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "net/config/config_orders.h"
#include "net/config/config_deal.h"
#include "net/config/endorsement.h"

static const char vote_mark[] = "diloco record vote";
enum { VOTE_BYTES = sizeof vote_mark - 1 + CONFIG_NONCE_BYTES + 8 + 8 + DIGEST_BYTES };

/* What is signed: mark, nonce, epoch, ballot, digest. */
static void vote_message(const uint8_t nonce[CONFIG_NONCE_BYTES], uint64_t epoch, uint64_t ballot,
                         const struct digest *digest, uint8_t out[VOTE_BYTES])
{
    struct bytes_writer writer = bytes_writer_init(out, VOTE_BYTES);
    bytes_put(&writer, vote_mark, sizeof vote_mark - 1);
    bytes_put(&writer, nonce, CONFIG_NONCE_BYTES);
    bytes_put_u64(&writer, epoch);
    bytes_put_u64(&writer, ballot);
    bytes_put(&writer, digest->byte, DIGEST_BYTES);
}

void config_vote_sign(const struct ident *ident, const uint8_t nonce[CONFIG_NONCE_BYTES], uint64_t epoch,
                      uint64_t ballot, const struct digest *digest, uint8_t *signature)
{
    uint8_t message[VOTE_BYTES];
    vote_message(nonce, epoch, ballot, digest, message);
    ident_sign(ident, message, sizeof message, signature);
}

bool config_vote_good(const uint8_t *key, const uint8_t nonce[CONFIG_NONCE_BYTES], uint64_t epoch,
                      const struct digest *digest, const struct config_vote *vote)
{
    uint8_t message[VOTE_BYTES];
    vote_message(nonce, epoch, vote->ballot, digest, message);
    return ident_signed(key, message, sizeof message, vote->signature);
}

/* Whether it is a voter's first vote in its ballot. */
static bool is_first(const struct config *previous, const struct config_vote *votes, uint32_t i)
{
    const struct config_member *member = config_member(previous, votes[i].id);
    if (member == NULL || !member->voter)
        return false;
    for (uint32_t k = 0; k < i; k++)
        if (votes[k].id == votes[i].id && votes[k].ballot == votes[i].ballot)
            return false;
    return true;
}

/* The ballot that most are of, the one named first where several are; `*most`: how many. 0 is none. */
static uint64_t ballot_of_most(const uint64_t *ballots, uint32_t count, uint32_t *most)
{
    uint64_t ballot = 0;
    *most = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t same = 0;
        for (uint32_t k = 0; k < count; k++)
            same += ballots[i] != 0 && ballots[k] == ballots[i];
        if (same > *most) {
            *most = same;
            ballot = ballots[i];
        }
    }
    return ballot;
}

/* How many voters accepted it in one ballot, as far as it takes to know whether these are `needed`. Only votes of the
 * ballot in which most are said to have voted are checked: so it takes at most one signature check a voter, whatever a
 * message says, and one that proves nothing takes still fewer. */
static uint32_t accepted_by(const struct config *previous, const struct config *next, const struct digest *next_digest,
                            const struct config_vote *votes, uint32_t votes_count, uint32_t needed)
{
    uint64_t ballots[CONFIG_VOTERS_MAX];
    uint32_t left, good = 0;
    for (uint32_t i = 0; i < votes_count; i++)
        ballots[i] = is_first(previous, votes, i) ? votes[i].ballot : 0;
    uint64_t ballot = ballot_of_most(ballots, votes_count, &left);
    for (uint32_t i = 0; i < votes_count && good < needed && good + left >= needed; i++) {
        if (ballots[i] != ballot)
            continue;
        left--;
        good += config_vote_good(config_member(previous, votes[i].id)->key, previous->nonce, next->epoch, next_digest,
                                 &votes[i]);
    }
    return good >= needed ? needed : good + left;
}

void config_entry_free(struct config_entry *entry)
{
    mem_free(entry->bytes);
    mem_free(entry->votes);
    *entry = (struct config_entry){0};
}

enum err config_entry_copy(const struct config_entry *entry, struct config_entry *out)
{
    enum err err;
    *out = (struct config_entry){.bytes_count = entry->bytes_count, .votes_count = entry->votes_count};
    TRY_OUT(mem_new(entry->bytes_count, 1, "a configuration", &out->bytes));
    TRY_OUT(mem_new(entry->votes_count, sizeof *out->votes, "a configuration", &out->votes));
    memcpy(out->bytes, entry->bytes, entry->bytes_count);
    if (entry->votes_count > 0)
        memcpy(out->votes, entry->votes, entry->votes_count * sizeof *out->votes);
out:
    if (err != ERR_OK)
        config_entry_free(out);
    return err;
}

enum err config_proved(const struct config *previous, const struct digest *previous_digest, const struct config *next,
                       const struct digest *next_digest, const struct config_vote *votes, uint32_t votes_count)
{
    uint32_t needed = config_majority(previous);
    TRY(config_follows(previous, previous_digest, next));
    TRY(config_deal_follows(previous, next));
    if (votes_count > CONFIG_VOTERS_MAX)
        return err_set(ERR_PROTO, "configuration %" PRIu64 " with %" PRIu32 " votes", next->epoch, votes_count);
    uint32_t accepted = accepted_by(previous, next, next_digest, votes, votes_count, needed);
    if (accepted < needed)
        return err_set(ERR_PROTO,
                       "configuration %" PRIu64 " has the votes of %" PRIu32 " of the %" PRIu32
                       " voters before it in one ballot; %" PRIu32 " are needed",
                       next->epoch, accepted, config_voters(previous), needed);
    TRY(config_orders_follow(previous, next)); /* after the votes: these take more signature checks */
    TRY(endorsements_follow(previous, next));
    return config_keys_check(next, previous);
}
