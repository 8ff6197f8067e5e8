/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/received_message.h"

#include <inttypes.h>
#include <string.h>

#include "common/log.h"
#include "net/config/config_proof.h"
#include "net/membership/endorse.h"
#include "net/membership/received_config.h"

/* Who has been sealed for so long refuses no configuration any more for a run step that it has applied: a majority may
 * have accepted it, and then nothing else can be decided, while one voter that goes on acknowledging results when it is
 * sealed has others commit and apply what does not count there. */
enum { YIELD_MS = 10000 };

static const struct config *last(const struct received_message_conf *conf)
{
    return config_log_last(conf->progress->config_log);
}

/* Whether the configuration follows ours: it is checked before it is accepted, or believed to be decided. */
static bool follows(const struct received_message_conf *conf, uint32_t member, const struct paxos_message *message,
                    uint64_t now_ms)
{
    struct next_config_base base = proposer_base(conf->proposer);
    if (*conf->sealed_ms != 0 && now_ms >= *conf->sealed_ms + YIELD_MS)
        base.applied_step = 0;
    enum err err = received_config_check(&base, message);
    if (err != ERR_OK)
        log_debug("a configuration of slot %" PRIu32 " is passed over: %s", member, err_text());
    if (err == ERR_PROTO && member_progress_misproposes(conf->progress, member))
        outbox_tell(conf->outbox,
                    &(struct membership_news){.type = MEMBERSHIP_CONFIG_REFUSED, .member = member, .text = err_text()});
    return err == ERR_OK;
}

static bool good_vote(const struct received_message_conf *conf, const struct config_member *as,
                      const struct paxos_message *message)
{
    struct config_vote vote = {.id = as->id, .ballot = message->ballot};
    memcpy(vote.signature, message->signature, sizeof vote.signature);
    return config_vote_good(as->key, last(conf)->nonce, message->epoch, &message->digest, &vote);
}

/* Whether it brings a configuration that is good only if it follows ours, or is proved. */
static bool brings_config(const struct paxos_message *message)
{
    return message->type == WIRE_ACCEPT || message->type == WIRE_DECIDED ||
           (message->type == WIRE_PROMISE && message->bytes_count > 0);
}

bool received_message_judge(const struct received_message_conf *conf, uint32_t member, struct paxos_message *message,
                            uint64_t now_ms, bool *good)
{
    struct member_progress *progress = conf->progress;
    const struct config_member *as = &progress->view->members[member].as;
    *good = paxos_matters(conf->paxos, as->id, message, now_ms);
    if (!*good)
        return message->type != WIRE_DECIDED;
    if (message->type == WIRE_ACCEPTED)
        *good = good_vote(conf, as, message);
    else if (brings_config(message))
        *good = follows(conf, member, message, now_ms);
    if (message->type == WIRE_PROMISE) {
        endorse_keep_signed(last(conf), as->id, promise_reports_of(conf->reports, as->id),
                            &progress->seat[member].endorsement_checks, now_ms, message);
        promise_reports_answer(conf->reports, progress->sync, as->id, message);
    }
    return *good || message->type != WIRE_DECIDED;
}
