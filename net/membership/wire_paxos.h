/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_paxos: the messages of the epoch protocol, types WIRE_PREPARE to WIRE_EVIDENCE, as structs and as bytes.
 *
 * They are larger than other control messages (WIRE_PAXOS_BYTES_MAX) and of variable size. wire_paxos_unpack() fills it
 * with pointers into memory of the message, which wire_paxos_deinit() frees. A message to be packed may point anywhere:
 * that memory stays the caller's. Configurations travel as packed bytes; whoever unpacks them (net/config/config.h)
 * checks them. Pure. Input comes from strangers: no bytes reach an assert, and memory is bounded whatever they say.
 */
#ifndef NET_MEMBERSHIP_WIRE_PAXOS_H
#define NET_MEMBERSHIP_WIRE_PAXOS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/config/config_proof.h"
#include "net/transport/ident.h"
#include "net/config/config.h"
#include "net/transport/wire.h"

enum {
    WIRE_RESULTS_MAX = CONFIG_CARRIED_MAX, /* in one message, for all fragments */
    /* In one message: each voter and owner, and as many who come. */
    WIRE_ENDORSEMENTS_MAX = 2 * (CONFIG_VOTERS_MAX + CONFIG_OWNERS_MAX),
};

/* A member's holding of a fragment: its state, and results that are durable there, acknowledged or only fetched. */
struct holding {
    uint32_t fragment;
    uint64_t version;
    struct digest hash;
    bool hash_known;
    const struct part_result *held; /* of the version after it; in order of owner, then epoch; each once */
    uint32_t held_count;
    /* Above `version`: every result up to this one is here, too, and not applied (sync_reach()); else 0. */
    uint64_t reach;
    const struct part_result *beyond; /* of the version after `reach`; likewise */
    uint32_t beyond_count;
};

/* A message of net/membership/paxos. Of the fields after `ballot` a type uses those that name it. */
struct paxos_message {
    enum wire_paxos_type type;
    uint64_t epoch;  /* of the configuration to be decided, from 1; CONFIG_LOG: of the newest one known; DECIDED, ORDER,
                        EVIDENCE: unused */
    uint64_t ballot; /* from 1; REJECT: the one that was promised; DECIDED, CONFIG_LOG, ORDER, EVIDENCE: unused */
    /* A packed configuration. PREPARE: the draft whose start and carried results are to be fetched, if any. PROMISE:
     * the accepted one, if there is one. ACCEPT, DECIDED. EVIDENCE: as in net/membership/evidence.h, not checked. */
    const uint8_t *bytes;
    size_t bytes_count;
    struct digest
        digest;        /* ACCEPTED: of the configuration. PROMISE, ACCEPT, DECIDED: of `bytes`, computed by unpacking */
    bool recover;      /* PREPARE: its disk is in doubt, and all voters answer, whatever theirs (rule 9) */
    uint64_t accepted; /* PROMISE: the ballot in which `bytes` was; 0: nothing was */
    bool sealed;       /* PROMISE: it is the seal; false: its sender does not vote, and only reports its holdings */
    uint64_t incarnation;       /* PROMISE */
    uint64_t step;              /* PROMISE: the largest that a result names which is applied or durable there */
    const struct holding *rows; /* PROMISE: in order of fragment, each once */
    uint32_t rows_count;
    struct config_endorsement *endorsements; /* PROMISE: in order of member, then of what they say */
    uint32_t endorsements_count;
    uint8_t signature[IDENT_SIGNATURE_BYTES]; /* ACCEPTED: config_vote_sign() */
    const struct config_vote *votes;          /* DECIDED */
    uint32_t votes_count;
    const struct order *order; /* ORDER; limits checked (order_check()), signatures not */
    uint32_t id;               /* EVIDENCE: the member that it is about */
    void *memory[4];           /* what wire_paxos_unpack() took */
};

/* mem_free() the bytes. ERR_ARG: it would be over a limit. ERR_NOMEM. */
ERR_MUST_CHECK enum err wire_paxos_pack(const struct paxos_message *message, uint8_t **bytes, size_t *bytes_count);
/* Checks every field's limit; ERR_PROTO names the field. ERR_NOMEM. After a failure there is nothing to free. */
ERR_MUST_CHECK enum err wire_paxos_unpack(uint32_t type, const void *payload, size_t bytes_count,
                                          struct paxos_message *message);
/* Frees the memory that wire_paxos_unpack() took; of another message nothing. */
void wire_paxos_deinit(struct paxos_message *message);

#endif
