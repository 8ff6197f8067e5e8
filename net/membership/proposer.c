/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/proposer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "net/config/config_orders.h"
#include "net/config/endorsement.h"
#include "net/membership/endorse.h"

/* ASKED: so long those who might join are waited for, once enough voters have sealed. OVERDUE: so long what only a few
 * of them show may take to be fetched. AGREED: so long what no majority agrees to is waited for, before the next
 * configuration does without. */
enum { ASKED_MS = 700, OVERDUE_MS = 4000, AGREED_MS = 2000 };

static const struct config *last(const struct proposer *proposer)
{
    return config_log_last(proposer->progress->config_log);
}

void proposer_begin(struct proposer *proposer)
{
    proposer->asked_ms = 0;
    proposer->asked = (struct bitset){{0}};
    proposer->lacking_count = 0;
}

/* `wanted`: NULL for judging a configuration of another member. */
static struct next_config_base base_of(const struct proposer *proposer, const struct wanted_changes *wanted)
{
    const struct sync *sync = proposer->progress->sync;
    return (struct next_config_base){.config = last(proposer),
                                     .digest = config_log_last_digest(proposer->progress->config_log),
                                     .shards = proposer->shards_counts,
                                     .fragments_count = proposer->progress->fragments_count,
                                     .applied_step = sync != NULL ? sync_steps(sync).applied : 0,
                                     .orders = wanted != NULL ? wanted->orders : NULL,
                                     .orders_count = wanted != NULL ? wanted->orders_count : 0,
                                     .words = wanted != NULL ? wanted->words : NULL,
                                     .words_count = wanted != NULL ? wanted->words_count : 0};
}

struct next_config_base proposer_base(const struct proposer *proposer)
{
    return base_of(proposer, NULL);
}

static enum err propose(struct proposer *proposer, const struct config *draft, bool safe, const uint32_t *asked,
                        uint32_t asked_count, uint64_t now_ms)
{
    uint8_t *bytes;
    size_t count;
    enum err err;
    TRY(config_check(draft)); /* nobody would accept it: say so instead of proposing it */
    TRY(config_keys_check(draft, last(proposer)));
    TRY(config_orders_follow(last(proposer), draft));
    if (safe)
        TRY(endorsements_follow(last(proposer), draft));
    TRY(config_pack(draft, &bytes, &count));
    struct digest digest = config_digest(bytes, count);
    if (safe)
        change_requests_proposed(proposer->requests, &digest);
    if (safe)
        err = paxos_propose(proposer->paxos, bytes, count, &digest, now_ms);
    else
        err = paxos_draft(proposer->paxos, bytes, count, asked, asked_count, now_ms);
    mem_free(bytes);
    return err;
}

enum err proposer_compose(struct proposer *proposer, uint64_t now_ms)
{
    enum err err;
    struct change_request *requests = NULL;
    struct next_config_out out = {0};
    struct wanted_changes *wanted = NULL;
    struct next_config_base base;
    bool agreed;
    uint32_t count, answers_count, asked[PAXOS_ASKED_MAX];
    const struct next_config_answer *answers =
        promise_reports_answered(proposer->reports, proposer->paxos, &answers_count);
    uint32_t asked_count = change_requests_whom_to_ask(proposer->progress, &proposer->asked, asked);
    TRY_OUT(mem_new_unset(1, sizeof *wanted, "changes", &wanted));
    TRY_OUT(change_requests_wanted(proposer->progress, proposer->orders, WANTED_COMPOSE, wanted));
    base = base_of(proposer, wanted);
    proposer->asked_ms = proposer->asked_ballot == paxos_ballot(proposer->paxos) ? proposer->asked_ms : 0;
    proposer->asked_ballot = paxos_ballot(proposer->paxos);
    base.overdue = proposer->asked_ms != 0 && now_ms >= proposer->asked_ms + OVERDUE_MS;
    TRY_OUT(change_requests_gather(proposer->requests, proposer->progress, wanted, &requests, &count));
    TRY_OUT(next_config(&base, answers, answers_count, requests, count, &out));
    if (!out.ask && proposer->asked_ms == 0)
        proposer->asked_ms = now_ms;
    if (!out.ask)
        TRY_OUT(endorse_agree(&base, paxos_ballot(proposer->paxos), now_ms < proposer->asked_ms + AGREED_MS, answers,
                              answers_count, requests, count, &out, &agreed));
    if (out.ask) {
        log_debug("next configuration: %" PRIu32 " answers do not suffice", answers_count);
        TRY_OUT(paxos_draft(proposer->paxos, NULL, 0, asked, asked_count, now_ms));
        goto out;
    }
    bool waits =
        now_ms < proposer->asked_ms + ASKED_MS && !change_requests_all_there(requests, count, asked, asked_count);
    bool safe =
        next_config_safe(&out.draft, &base, answers, answers_count, proposer->lacking, &proposer->lacking_count);
    log_debug("next configuration: %s%s, %" PRIu32 " answers, %" PRIu32 " lack something of it%s",
              safe ? "safe" : "not safe yet", agreed ? "" : ", not agreed to yet", answers_count,
              proposer->lacking_count, waits ? "; those who might join are waited for" : "");
    TRY_OUT(propose(proposer, &out.draft, safe && agreed && !waits, asked, asked_count, now_ms));
    for (uint32_t i = 0; i < out.suspects_count; i++)
        outbox_tell(proposer->outbox, &(struct membership_news){.type = MEMBERSHIP_SUSPECT, .id = out.suspects[i]});
out:
    config_deinit(&out.draft);
    mem_free(requests);
    mem_free(wanted);
    return err;
}

/* Appends the names of voters: of others who have not promised yet, or of those who lack something. */
static void add_names(const struct proposer *proposer, bool lacking, char *text, size_t text_bytes)
{
    const struct view *view = proposer->progress->view;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        bool asked = member->used && member->as.voter && i != view->self;
        bool named = !lacking && asked && !paxos_promised(proposer->paxos, member->as.id);
        for (uint32_t k = 0; lacking && member->used && k < proposer->lacking_count; k++)
            named |= proposer->lacking[k] == member->as.id;
        size_t at = strlen(text);
        if (named)
            snprintf(text + at, text_bytes - at, " %s", member->as.name);
    }
}

bool proposer_waits(const struct proposer *proposer, char *text, size_t text_bytes)
{
    text[0] = '\0';
    switch (paxos_state(proposer->paxos)) {
    case PAXOS_PREPARING:
        snprintf(text, text_bytes, "an answer of");
        add_names(proposer, false, text, text_bytes);
        return true;
    case PAXOS_COMPOSING:
        snprintf(text, text_bytes,
                 proposer->lacking_count > 0 ? "what the next configuration rests on to be fetched by"
                                             : "what those hold who might take part");
        add_names(proposer, true, text, text_bytes);
        return true;
    case PAXOS_ACCEPTING: snprintf(text, text_bytes, "a majority to accept the next configuration"); return true;
    default: return false;
    }
}
