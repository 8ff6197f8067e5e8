/* SPDX-License-Identifier: Apache-2.0 */
/*
 * council_wire: the messages of net/membership/epoch as they travel, and back: signatures put in and checked, records
 * that may not follow ours told from those that may, and what is held added and kept. Private to peers/.
 *
 * It sends nothing and decides nothing. Only the loop's thread.
 */
#ifndef DAEMON_PEERS_COUNCIL_WIRE_H
#define DAEMON_PEERS_COUNCIL_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/peers/holdings.h"
#include "daemon/peers/seats.h"
#include "net/membership/compose.h"
#include "net/membership/epoch.h"
#include "net/transport/ident.h"
#include "net/membership/wire_epoch.h"

/* All borrowed. */
struct council_wire {
    const struct ident *ident;
    const struct seats *seats; /* with view, chain and vote */
    struct holdings *holdings;
    const uint32_t *shards_counts; /* per fragment; NULL before the plan is known */
};

/* What net/membership/compose starts from. */
struct compose_base council_wire_base(const struct council_wire *wire);

/* What net/membership/epoch wants to say; it points to what `from` does, and into the holdings, until those are asked
 * again. */
void council_wire_out(const struct council_wire *wire, const struct epoch_message *from, struct wire_epoch *out);
/* What a member said, by slot, as net/membership/epoch wants to hear it; its bytes stay those of `in`, but what a
 * promise says that the member holds is taken over. `*good`: as in struct epoch_event. False: it is of no use. */
bool council_wire_in(const struct council_wire *wire, uint32_t member, struct wire_epoch *in, struct epoch_message *out,
                     bool *good);

#endif
