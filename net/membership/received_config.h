/* SPDX-License-Identifier: Apache-2.0 */
/*
 * received_config: whether the configuration that another member's message brings may follow ours, and whose fault it
 * is that it may not. Private to net/membership/.
 *
 * Pure; the bytes come from strangers.
 */
#ifndef NET_MEMBERSHIP_RECEIVED_CONFIG_H
#define NET_MEMBERSHIP_RECEIVED_CONFIG_H

#include "common/err.h"
#include "net/membership/next_config.h"
#include "net/membership/wire_paxos.h"

/* Of an ACCEPT, a PROMISE or a DECIDED; `base`: ours, without orders and words. ERR_PROTO: no member that keeps the
 * rules says so; the reason is fit for people. ERR_STATE: it rests on what we cannot judge, or only we hold, so it is
 * not accepted and nobody is blamed. ERR_NOMEM. */
ERR_MUST_CHECK enum err received_config_check(const struct next_config_base *base, const struct paxos_message *message);

#endif
