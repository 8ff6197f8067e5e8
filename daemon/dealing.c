/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dealing.h"

#include "net/config/config_deal.h"

static enum err add(struct dealing *dealing, const struct config *config, uint32_t id)
{
    struct deal_share shares[DEAL_MEMBERS_MAX];
    struct deal_list list = config_deal_list(config, shares);
    if (!dealing->begun)
        dealing->deal = deal_of(id, config->deal.horizon);
    dealing->begun = true;
    return deal_add(&dealing->deal, &list);
}

enum err dealing_follow(struct dealing *dealing, const struct config_log *config_log, uint32_t id,
                        uint64_t applied_step)
{
    uint64_t last = config_log_last(config_log)->epoch;
    uint64_t epoch = last < DEAL_LISTS || dealing->begun ? dealing->next_epoch : last - DEAL_LISTS;
    for (; epoch <= last; epoch++) {
        const struct config *config = config_log_at(config_log, epoch);
        if (config != NULL) /* else it was forgotten */
            TRY(add(dealing, config, id));
    }
    dealing->next_epoch = last + 1;
    deal_counted(&dealing->deal, applied_step);
    return ERR_OK;
}
