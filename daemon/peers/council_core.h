/* SPDX-License-Identifier: Apache-2.0 */
/*
 * council_core: what the council remembers. Private to daemon/peers/council*.c.
 *
 * council.c writes it; council_look.c answers questions about it.
 */
#ifndef DAEMON_PEERS_COUNCIL_CORE_H
#define DAEMON_PEERS_COUNCIL_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/digest.h"
#include "common/log.h"
#include "daemon/peers/council_keep.h"
#include "daemon/peers/council_wire.h"
#include "daemon/peers/holdings.h"
#include "daemon/peers/peers_types.h"
#include "daemon/peers/seats.h"
#include "daemon/peers/wishes.h"
#include "net/membership/epoch.h"
#include "net/transport/link.h"
#include "net/config/record.h"

/* A message to ourselves, packed. */
struct own_message {
    uint32_t type;
    uint8_t *bytes;
    size_t bytes_count;
};
enum { OWN_MAX = 32 };

struct council {
    struct peers_conf conf;
    struct link *link;
    struct council_plan plan; /* .sync NULL: not known yet */
    struct epoch *epoch;
    struct holdings *holdings; /* what members answered in our ballot */
    struct seats seats;
    struct wishes wishes;
    struct council_wire wire;
    struct own_message own[OWN_MAX];
    uint32_t own_count;
    struct council_keep keep;
    uint64_t saved;                          /* number of a vote that is durable, to be told; 0: none */
    bool compose;                            /* ordered */
    bool take_over;                          /* ordered: what all voters hold together is to be here */
    uint32_t lacking[RECORD_OWNERS_MAX + 1]; /* of the last draft, by id: who lacks some of what it rests on */
    uint32_t lacking_count;
    uint64_t sealed_ms; /* since when we are sealed; 0: we are not */
    uint64_t wished_ms; /* since when another record would say something else; 0: it would not */
    uint64_t asked_ms;  /* since when those who might join are asked; 0: they are not */
    uint64_t proofs_ms; /* when proofs are told again */
    struct bitset asked;
    bool taken; /* `record` is decided and waits for the engine */
    struct record record;
    struct digest digest;
    struct log_limit failed_said;
};

#endif
