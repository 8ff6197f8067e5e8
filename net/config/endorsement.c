/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/endorsement.h"

#include <inttypes.h>

#include "common/bytes.h"
#include "net/config/owners.h"

static const char endorsement_mark[] = "diloco endorsement"; /* with its zero */
enum { MESSAGE_BYTES = sizeof endorsement_mark + CONFIG_NONCE_BYTES + 8 + 8 + 4 + 4 + 8 };

/* What is signed: mark, nonce, epoch, ballot, member, what is said, incarnation. */
static void message_of(const uint8_t nonce[CONFIG_NONCE_BYTES], uint64_t epoch, uint64_t ballot,
                       const struct config_endorsement *endorsement, uint8_t out[MESSAGE_BYTES])
{
    struct bytes_writer writer = bytes_writer_init(out, MESSAGE_BYTES);
    bytes_put(&writer, endorsement_mark, sizeof endorsement_mark);
    bytes_put(&writer, nonce, CONFIG_NONCE_BYTES);
    bytes_put_u64(&writer, epoch);
    bytes_put_u64(&writer, ballot);
    bytes_put_u32(&writer, endorsement->member);
    bytes_put_u32(&writer, endorsement->says);
    bytes_put_u64(&writer, endorsement->incarnation);
}

void endorsement_sign(const struct ident *ident, const uint8_t nonce[CONFIG_NONCE_BYTES], uint64_t epoch,
                      uint64_t ballot, struct config_endorsement *endorsement)
{
    uint8_t message[MESSAGE_BYTES];
    message_of(nonce, epoch, ballot, endorsement, message);
    ident_sign(ident, message, sizeof message, endorsement->signature);
}

bool endorsement_signed(const uint8_t *key, const uint8_t nonce[CONFIG_NONCE_BYTES], uint64_t epoch, uint64_t ballot,
                        const struct config_endorsement *endorsement)
{
    uint8_t message[MESSAGE_BYTES];
    message_of(nonce, epoch, ballot, endorsement, message);
    return ident_signed(key, message, sizeof message, endorsement->signature);
}

static bool is_evicted(const struct config *next, const struct config_member *member)
{
    bool evicted = false;
    for (uint32_t i = 0; i < next->orders_count; i++)
        evicted |= next->orders[i].kind == ORDER_EVICT && next->orders[i].subject == member->id;
    return evicted;
}

/* Whether vote and shards go because of what it said itself, or of an order: this configuration's, or one that stands.
 */
static bool is_sent_away(const struct config *next, const struct config_member *member)
{
    return is_evicted(next, member) || member->draining || member->contributor;
}

struct endorsement_need endorsement_needed(const struct config *previous, const struct config *next,
                                           const struct config_member *member)
{
    const struct config_member *was = config_member(previous, member->id);
    bool voted = was != NULL && was->voter, owned = was != NULL && was->role == CONFIG_OWNER;
    bool put_out = was != NULL && was->role == CONFIG_CONTRIBUTOR &&
                   (member->role == CONFIG_AWAY || member->role == CONFIG_OBSERVER);
    bool loses = (voted && !member->voter) || (owned && member->role != CONFIG_OWNER);
    bool other_disk = voted && member->voter && was->incarnation != member->incarnation;
    return (struct endorsement_need){
        .leaves = (loses && !is_sent_away(next, member)) || (put_out && !is_evicted(next, member)),
        .comes = (!voted && member->voter) || (!owned && member->role == CONFIG_OWNER) || other_disk,
    };
}

bool endorsement_counts(const struct config *previous, const struct config *next, uint32_t signer, uint32_t member,
                        enum config_endorsed says)
{
    const struct config_member *row = config_member(next, signer);
    bool mute = true;
    if (says == CONFIG_COMES || signer == member || row == NULL || !endorsement_needed(previous, next, row).leaves)
        return true;
    for (uint32_t i = 0; i < next->endorsements_count; i++) {
        const struct config_endorsement *one = &next->endorsements[i];
        mute &= one->signer != member || one->says != CONFIG_LEAVES || one->member == member;
    }
    return mute;
}

uint32_t endorsement_quorum(const struct config *previous, enum config_endorsed says)
{
    return says == CONFIG_COMES ? config_commit_quorum(previous) : config_majority(previous);
}

/* ---- does it follow? ---- */

static const char *name_of(const struct config *config, uint32_t id)
{
    const struct config_member *member = config_member(config, id);
    return member != NULL ? member->name : "nobody";
}

static enum err check_signature(const struct config *previous, const struct config *next,
                                const struct config_endorsement *endorsement)
{
    const struct config_member *member = config_member(next, endorsement->member);
    const struct config_member *signer = config_member(previous, endorsement->signer);
    if (member == NULL || signer == NULL || !signer->voter)
        return err_set(ERR_PROTO, "an endorsement of member %" PRIu32 " by %s, who does not vote", endorsement->member,
                       name_of(previous, endorsement->signer));
    struct endorsement_need need = endorsement_needed(previous, next, member);
    bool comes = endorsement->says == CONFIG_COMES;
    if (!(comes ? need.comes : need.leaves) || endorsement->incarnation != (comes ? member->incarnation : 0))
        return err_set(ERR_PROTO, "an endorsement that %s %s, for which there is no need", member->name,
                       comes ? "comes" : "goes");
    if (!endorsement_signed(signer->key, previous->nonce, next->epoch, next->ballot, endorsement))
        return err_set(ERR_PROTO, "an endorsement of %s that %s did not sign", member->name, signer->name);
    return ERR_OK;
}

static uint32_t count_of(const struct config *previous, const struct config *next, uint32_t member,
                         enum config_endorsed says)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < next->endorsements_count; i++)
        count += next->endorsements[i].member == member && next->endorsements[i].says == says &&
                 endorsement_counts(previous, next, next->endorsements[i].signer, member, says);
    return count;
}

static enum err check_member(const struct config *previous, const struct config *next,
                             const struct config_member *member)
{
    const struct config_member *was = config_member(previous, member->id);
    struct endorsement_need need = endorsement_needed(previous, next, member);
    uint32_t left = need.leaves ? count_of(previous, next, member->id, CONFIG_LEAVES) : 0;
    uint32_t came = need.comes ? count_of(previous, next, member->id, CONFIG_COMES) : 0;
    if ((need.leaves && left < endorsement_quorum(previous, CONFIG_LEAVES)) ||
        (need.comes && came < endorsement_quorum(previous, CONFIG_COMES)))
        return err_set(ERR_PROTO, "configuration %" PRIu64 " %s %s, and no majority of the voters agreed", next->epoch,
                       need.leaves ? "takes vote, shards or part from" : "gives a vote or shards to", member->name);
    bool goes = was != NULL && was->role != CONFIG_AWAY && member->role == CONFIG_AWAY;
    if (member->losses > (was != NULL ? was->losses : 0) + goes)
        return err_set(ERR_PROTO, "configuration %" PRIu64 " counts losses of %s that there were not", next->epoch,
                       member->name);
    return ERR_OK;
}

static uint32_t majority_of(uint32_t voters)
{
    return voters / 2 + 1;
}

/* Rule 5, for those whom an order sends away, too: fewer voters where that makes nothing easier only bring the run
 * nearer to its end. */
static enum err check_voters(const struct config *previous, const struct config *next)
{
    uint32_t left = 0, added = 0, voters = config_voters(next);
    bool witness = false;
    for (uint32_t i = 0; i < next->members_count; i++) {
        const struct config_member *member = &next->members[i], *was = config_member(previous, member->id);
        bool voted = was != NULL && was->voter;
        left += voted && !member->voter;
        added += !voted && member->voter;
        witness |= member->role == CONFIG_WITNESS && (voted || member->voter);
    }
    uint32_t before = voters - added + left; /* without those who are off the roster */
    if (witness || left <= added || majority_of(voters) < majority_of(before))
        return ERR_OK;
    return err_set(ERR_PROTO,
                   "configuration %" PRIu64 " takes the votes of %" PRIu32 " of %" PRIu32
                   ", which lowers no majority (rule 5)",
                   next->epoch, left, before);
}

enum err endorsements_follow(const struct config *previous, const struct config *next)
{
    for (uint32_t i = 0; i < next->members_count; i++)
        TRY(check_member(previous, next, &next->members[i]));
    TRY(check_voters(previous, next));
    TRY(owners_follow(previous, next));
    for (uint32_t i = 0; i < next->endorsements_count; i++) /* last: it costs most */
        TRY(check_signature(previous, next, &next->endorsements[i]));
    return ERR_OK;
}
