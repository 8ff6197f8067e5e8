/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/own_answer.h"

#include "net/membership/endorse.h"

/* What we hold, as it is now. */
static void add_promise_reports(const struct own_answer *answer, struct paxos_message *out)
{
    const struct member_progress *progress = answer->progress;
    /* A disk that is not in doubt is the one that the configuration names: the founder's first one, 0. */
    bool sure = progress->disk->doubt == VOTE_SURE;
    out->incarnation =
        sure ? progress->view->members[progress->view->self].as.incarnation : progress->disk->incarnation;
    promise_reports_own(answer->reports, progress->sync, &out->rows, &out->rows_count);
    out->step = progress->sync != NULL ? sync_steps(progress->sync).durable : 0;
}

/* What we agree to now; without it nothing that the others do not want anyhow comes to pass. */
static void add_endorsements(struct own_answer *answer, struct paxos_message *out)
{
    if (!out->sealed || answer->progress->sync == NULL)
        return;
    enum err err = endorse_own(answer->requests, answer->progress, answer->orders, answer->ident, out->ballot,
                               answer->endorsements, &out->endorsements_count);
    if (!outbox_failed(answer->outbox, err == ERR_STATE ? ERR_OK : err, "what this island agrees to"))
        out->endorsements = answer->endorsements;
}

void own_answer_complete(struct own_answer *answer, struct paxos_message *message)
{
    if (message->type == WIRE_PROMISE) {
        add_promise_reports(answer, message);
        add_endorsements(answer, message);
    } else if (message->type == WIRE_ACCEPTED)
        config_vote_sign(answer->ident, config_log_last(answer->progress->config_log)->nonce, message->epoch,
                         message->ballot, &message->digest, message->signature);
}
