/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_deal: how a configuration deals the data that all islands share (docs/PROTOCOL.md, "Dealing of data"): its
 * list, which the members' rows say, and where that starts, which follows from the configuration before (common/deal.h
 * has the rules, and why they hold). Pure.
 */
#ifndef NET_CONFIG_CONFIG_DEAL_H
#define NET_CONFIG_CONFIG_DEAL_H

#include <stdint.h>

#include "common/deal.h"
#include "common/err.h"
#include "net/config/config.h"

/* Fills `shares` with those who are dealt to: owners, contributors and observers, within the limits of deal_limit().
 * Returns the list, which borrows them. */
struct deal_list config_deal_list(const struct config *config, struct deal_share shares[DEAL_MEMBERS_MAX]);
/* The dealing of `next`, which is complete but for this. `counted_step`: deal_counted_step(). */
void config_deal_next(const struct config *previous, uint64_t counted_step, struct config *next);

/* Beside config_check(), of bytes that are unpacked; and beside config_follows(), of what is accepted or was decided.
 * ERR_PROTO. */
ERR_MUST_CHECK enum err config_deal_check(const struct config *config);
ERR_MUST_CHECK enum err config_deal_follows(const struct config *previous, const struct config *next);

#endif
