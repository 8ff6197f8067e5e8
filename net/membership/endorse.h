/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endorse: which changes of members' votes and shards this voter agrees to, and to which of a draft's a majority does
 * (net/config/endorsement.h). Private to net/membership/.
 *
 * A voter signs what it knows itself: whom it does not hear, or takes for lost, and who has come, as it would make the
 * next configuration. It signs no draft: so whoever proposes may lie about nobody, and needs nobody's leave for the
 * rest.
 */
#ifndef NET_MEMBERSHIP_ENDORSE_H
#define NET_MEMBERSHIP_ENDORSE_H

#include <stdint.h>

#include "common/err.h"
#include "common/quota.h"
#include "net/membership/change_requests.h"
#include "net/membership/member_progress.h"
#include "net/membership/order_pool.h"
#include "net/membership/wire_paxos.h"
#include "net/transport/ident.h"

/* What we agree to about the next configuration, signed for this ballot, in order; `*count` of them. ERR_NOMEM. */
ERR_MUST_CHECK enum err endorse_own(const struct change_requests *requests, const struct member_progress *progress,
                                    const struct order_pool *pool, const struct ident *ident, uint64_t ballot,
                                    struct config_endorsement out[WIRE_ENDORSEMENTS_MAX], uint32_t *count);

/* Leaves in a promise of this member, for the configuration after `last`, those endorsements that it has signed, if it
 * votes: as soon as they come, so that what is bad is charged to who sent it. A check takes about 50 µs: those that
 * `kept`, its last promise so treated (NULL: there is none), has in this ballot are not checked again, and of others no
 * more than `checks` allows: beyond that they are as if they had not come. */
enum { ENDORSE_CHECKS = 2 * WIRE_ENDORSEMENTS_MAX, ENDORSE_CHECK_MS = 20 };
void endorse_keep_signed(const struct config *last, uint32_t id, const struct paxos_message *kept, struct quota *checks,
                         uint64_t now_ms, struct paxos_message *promise);

/* Gives the draft of `out`, made of `base` in this ballot, the signatures that it needs, of those who answered.
 * `*agreed`: it has them. Where it has not, and nothing `waits` for more of them, the draft is made anew without what
 * no majority agrees to (`held`), at last with nothing but what orders say (`by_order`); `out->ask` as of
 * next_config(). ERR_NOMEM; ERR_STATE. */
ERR_MUST_CHECK enum err endorse_agree(struct next_config_base *base, uint64_t ballot, bool waits,
                                      const struct next_config_answer *answers, uint32_t answers_count,
                                      struct change_request *requests, uint32_t requests_count,
                                      struct next_config_out *out, bool *agreed);

#endif
