/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/endorsed.h"
#include "tests/lib/testlib.h"

#include "common/mem.h"
#include "net/config/endorsement.h"

enum { BALLOT = 1 };

void endorsed_by(struct config *config, uint32_t signer, const struct ident *ident, uint32_t member,
                 enum config_endorsed says, uint64_t incarnation)
{
    struct config_endorsement one = {.member = member, .signer = signer, .says = says, .incarnation = incarnation};
    uint32_t at = config->endorsements_count++;
    config->ballot = config->ballot != 0 ? config->ballot : BALLOT;
    endorsement_sign(ident, config->nonce, config->epoch, config->ballot, &one);
    assert_ok(mem_grow(&config->endorsements, at, at + 1, sizeof one, "endorsements"));
    for (; at > 0 && config_endorsement_order(&config->endorsements[at - 1], &one) > 0; at--)
        config->endorsements[at] = config->endorsements[at - 1];
    config->endorsements[at] = one;
}

void endorsed(const struct config *previous, struct config *next, const uint32_t *ids,
              const struct ident *const *idents, uint32_t count)
{
    next->endorsements_count = 0;
    next->ballot = 0;
    for (uint32_t i = 0; i < next->members_count; i++) {
        const struct config_member *member = &next->members[i];
        struct endorsement_need need = endorsement_needed(previous, next, member);
        for (uint32_t k = 0; k < count; k++) {
            if (need.leaves)
                endorsed_by(next, ids[k], idents[k], member->id, CONFIG_LEAVES, 0);
            if (need.comes)
                endorsed_by(next, ids[k], idents[k], member->id, CONFIG_COMES, member->incarnation);
        }
    }
}
