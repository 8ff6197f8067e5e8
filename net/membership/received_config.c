/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/received_config.h"

#include <inttypes.h>

#include "net/config/config_proof.h"
#include "net/config/endorsement.h"

/* What is decided needs no judgement of ours: its votes say that a majority has accepted it. It is told more than once,
 * so that it comes late, too. */
static enum err check(const struct next_config_base *base, const struct paxos_message *message,
                      const struct config *config)
{
    if (message->type == WIRE_DECIDED && config->epoch != base->config->epoch + 1)
        return err_set(ERR_STATE, "configuration %" PRIu64 " is not the next one", config->epoch);
    if (message->type == WIRE_DECIDED)
        return config_proved(base->config, base->digest, config, &message->digest, message->votes,
                             message->votes_count);
    TRY(next_config_follows(base, config));
    return endorsements_follow(base->config, config);
}

enum err received_config_check(const struct next_config_base *base, const struct paxos_message *message)
{
    struct config config;
    TRY(config_read(message->bytes, message->bytes_count, &config));
    enum err err = check(base, message, &config);
    config_deinit(&config);
    return err;
}
