/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config: a configuration: the members of epoch e, its voters, the owner of each shard, and the versions that the epoch
 * starts from.
 *
 * Configuration e + 1 is decided by a majority of the voters of configuration e (net/membership/paxos.h) and names
 * configuration e by its digest, so the configurations are a log that anyone can check from configuration 0 on. Voters
 * sign the digest of the packed bytes, so a configuration is kept and passed on as the bytes it was decided in. Pure.
 * Bytes come from strangers.
 */
#ifndef NET_CONFIG_CONFIG_H
#define NET_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/deal.h"
#include "common/digest.h"
#include "common/err.h"
#include "common/shardmap.h"
#include "net/config/order.h"
#include "net/transport/result_id.h"
#include "net/transport/ident.h"
#include "net/transport/wire.h"

enum {
    CONFIG_NONCE_BYTES = 16,
    CONFIG_ADDRESS_BYTES = 256,                           /* with the zero at its end */
    CONFIG_BYTES_MAX = WIRE_PAXOS_BYTES_MAX - (64 << 10), /* packed; with its votes it is still one message */
    CONFIG_MEMBERS_MAX = 1024,
    CONFIG_OWNERS_MAX = SHARDMAP_OWNERS_MAX,
    CONFIG_VOTERS_MAX = CONFIG_OWNERS_MAX + 1, /* and the witness */
    CONFIG_FRAGMENTS_MAX = WIRE_PLAN_FRAGMENTS_MAX,
    CONFIG_CARRIED_MAX = 8192,
    CONFIG_LOSSES_MAX = 6,
    CONFIG_ORDERS_MAX = 64,  /* carried out by one configuration */
    CONFIG_APPROVED_MAX = 4, /* of them, that have approvals */
    CONFIG_RETIRED_MAX = 256,
    CONFIG_LEFT_MAX = 4,            /* retired keys of one member that a signature is tried with */
    CONFIG_ENDORSEMENTS_MAX = 4352, /* each of 65 voters leaves, or of 64 owners comes, by a majority's word */
    CONFIG_ENDORSEMENT_BYTES = 92,  /* packed, at most */
};
#define CONFIG_NOBODY UINT32_MAX /* no member's id */
/* Epochs and versions are below it, so that one more is a number, too. */
#define CONFIG_NUMBER_MAX ((uint64_t)1 << 63)

enum config_role {
    CONFIG_OWNER = 1,       /* contributes, owns shards, votes */
    CONFIG_CONTRIBUTOR = 2, /* contributes */
    CONFIG_OBSERVER = 3,    /* catching up */
    CONFIG_WITNESS = 4,     /* no trainer, no shard, no bytes; votes where that helps; stays one */
    CONFIG_DRAINING = 5,    /* its last contribution is on its way; owns nothing; it may still vote */
    CONFIG_AWAY = 6,        /* on the roster, and does not take part now; it may still vote */
    CONFIG_ROLES
};

/* Whether a member is to own shards. DIALS: none can dial it, so it owns only beside a single other: two that cannot be
 * dialled would never meet. NO_DIALS: nor would it. */
enum config_owner_choice {
    CONFIG_OWNER_AUTO = 0,
    CONFIG_OWNER_YES = 1,
    CONFIG_OWNER_NO = 2,
    CONFIG_OWNER_DIALS = 3,
    CONFIG_OWNER_NO_DIALS = 4,
    CONFIG_OWNER_CHOICES
};
/* The choice of a member that cannot be dialled. */
static inline uint8_t config_owner_undialled(uint8_t choice)
{
    bool no = choice == CONFIG_OWNER_NO || choice == CONFIG_OWNER_NO_DIALS;
    return no ? CONFIG_OWNER_NO_DIALS : CONFIG_OWNER_DIALS;
}

struct config_member {
    uint32_t id;
    char name[WIRE_NAME_BYTES];
    uint8_t key[IDENT_KEY_BYTES];
    /* Its own word (net/transport/member_word.h); number 0: it has said none yet. */
    uint64_t word;                      /* number */
    char address[CONFIG_ADDRESS_BYTES]; /* "host:port"; "": it dials the others */
    uint64_t uplink;                    /* bit/s */
    uint8_t owner_choice;               /* enum config_owner_choice */
    bool draining;
    uint32_t units;
    uint8_t next_key[IDENT_KEY_BYTES]; /* that it would have instead of `key`; zeros: none */
    /* By order (net/config/order.h). */
    bool contributor;     /* it is to own no shards, and to become no voter */
    bool operates;        /* it may sign orders */
    uint64_t incarnation; /* of its disk: the one that may vote (docs/PROTOCOL.md, 9, rule 9) */
    uint8_t role;         /* enum config_role */
    bool voter;
    uint8_t losses; /* how often configurations said lately that it is lost: one more each time, at most
                       CONFIG_LOSSES_MAX */
};

/* A member's word that is new in a configuration: what it says stands in the member's row. */
struct config_word {
    uint32_t id;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
    uint8_t next_signature[IDENT_SIGNATURE_BYTES]; /* zeros where it states no new key */
};

/* A key that was a member's: of one that has another key now it is nobody's ever again; one that was revoked an order
 * may admit anew, and nobody takes it for a new key of its own. */
struct config_retired {
    uint32_t id;    /* whose it was */
    uint64_t epoch; /* of the configuration from which on it is nobody's */
    bool revoked;
    uint8_t key[IDENT_KEY_BYTES];
};

/* What a voter of the epoch before signed of a member (net/config/endorsement.h). */
enum config_endorsed {
    CONFIG_LEAVES = 1, /* it may lose its vote, its shards, or its part in the run */
    CONFIG_COMES = 2,  /* it may have a vote and shards, with the disk of this incarnation */
};
struct config_endorsement {
    uint32_t member, signer; /* ids */
    uint32_t says;           /* enum config_endorsed */
    uint64_t incarnation;    /* COMES; else 0 */
    uint8_t signature[IDENT_SIGNATURE_BYTES];
};

/* Which orders of a member were carried out: `number`, and number - 1 - k where bit k of `below` is set. */
struct config_mark {
    uint32_t id;
    uint64_t number, below;
};

/* How the data that all islands share is dealt (common/deal.h); to whom the members' rows say. */
struct config_deal {
    uint64_t horizon;      /* in steps; the same in all configurations */
    uint64_t counted_step; /* never falls */
    struct deal_start start;
};

struct config {
    uint8_t nonce[CONFIG_NONCE_BYTES]; /* of the run */
    uint64_t epoch;
    struct digest previous; /* of configuration epoch - 1; zero in configuration 0 */
    uint32_t next_id;       /* ids below were given */
    uint64_t steps;         /* of the run */
    uint64_t steps_before;  /* the most that it had before, where that is more; else 0 */
    bool paused;
    uint32_t founder;              /* id of the operator that grants; CONFIG_NOBODY */
    struct shardmap map;           /* owners by id; SHARDMAP_NOBODY only where there is no owner at all */
    struct config_member *members; /* in order of id: the whole roster */
    uint32_t members_count;
    uint64_t *starts; /* per fragment; of those beyond, and where there are none: 0 */
    uint32_t starts_count;
    /* Results of earlier epochs that stand, of version start + 1: they count in this epoch because the configuration
     * names them. In order of fragment, then owner, then epoch; each once. */
    struct part_result *carried;
    uint32_t carried_count;
    struct order *orders; /* that it carries out: in order of signer, then number */
    uint32_t orders_count;
    struct config_word *words; /* in order of id; a newcomer's stands in the order that admits it */
    uint32_t words_count;
    struct config_mark *marks; /* in order of id: of members on the roster */
    uint32_t marks_count;
    struct config_retired *retired; /* each key once; the last ones, in the order in which they were retired */
    uint32_t retired_count;
    uint64_t ballot;                         /* in which these were signed; 0: there are none */
    struct config_endorsement *endorsements; /* in order of member, what it says, signer */
    uint32_t endorsements_count;
    struct config_deal deal;
};

/* Frees what the configuration points to and empties it; an empty one is fine. */
void config_deinit(struct config *config);
/* A deep copy. ERR_NOMEM: `*out` is empty. */
ERR_MUST_CHECK enum err config_copy(const struct config *config, struct config *out);

/* Whether what the configuration says makes sense by itself, but for the keys: limits, orders, unique ids, names and
 * keys (those that members state among them, and none that was left for another), roles that may vote, at most one
 * witness, owners that vote, a map of owners, masks of one fragment that are disjoint, orders. ERR_PROTO names what
 * does not. */
ERR_MUST_CHECK enum err config_check(const struct config *config);
/* Whether members' keys are public keys, but for those that `known` (NULL: none) has of the same members. ERR_PROTO
 * names whose is not. About 35 µs for each key: of a stranger's bytes, after all that is cheaper. */
ERR_MUST_CHECK enum err config_keys_check(const struct config *config, const struct config *known);
/* The part of it about carried results in an epoch with these starts; also of a draft (net/membership/wire_paxos.h). */
ERR_MUST_CHECK enum err config_carried_check(uint64_t epoch, const uint64_t *starts, uint32_t starts_count,
                                             const struct part_result *carried, uint32_t carried_count);
/* In order of member, then of what is said, then of signer. */
int config_endorsement_order(const struct config_endorsement *left, const struct config_endorsement *right);
/* Whether `b` says anything about members, who owns what, or the run, that `a` does not, or carries out an order; where
 * the epochs start and what they carry is left out. */
bool config_differs(const struct config *a, const struct config *b);
/* The number of the word that the member's row rests on: 1 where the member has said none yet. By that number it says
 * what stands there anyhow, as the founder does, and no configuration takes that in. */
uint64_t config_word_number(const struct config_member *member);
/* Whether two rows of a member rest on words that say the same, whatever their numbers. */
bool config_says_same(const struct config_member *a, const struct config_member *b);
/* Whether the member states a new key. */
bool config_has_next(const struct config_member *member);
/* The `k`-th key of a member beside its present one: the one that it states, then the last CONFIG_LEFT_MAX that it
 * left, from the last one back. NULL: there are no more. Borrowed. */
const uint8_t *config_other_key(const struct config *config, uint32_t id, uint32_t k);
/* 1 to WIRE_NAME_BYTES - 1 letters, digits, '-' or '_'. */
bool config_name_good(const char *name);

/* Packed bytes: mem_free() them. Equal configurations pack to equal bytes. Of the configuration's sense only the limits
 * are checked: ERR_ARG. (net/config/config_proto.c) */
ERR_MUST_CHECK enum err config_pack(const struct config *config, uint8_t **bytes, size_t *bytes_count);
/* How many bytes those would be, also where they are too many. ERR_ARG; ERR_NOMEM. */
ERR_MUST_CHECK enum err config_packed_bytes(const struct config *config, size_t *bytes_count);
/* Unpacks and checks (config_check()), and refuses bytes that config_pack() does not make of what they say: a
 * configuration has one digest. Keys are not looked at: that is for who finds that it follows another (config_proved(),
 * next_config_follows()). ERR_PROTO, ERR_NOMEM: `*out` is empty. (net/config/config_proto.c) */
ERR_MUST_CHECK enum err config_read(const uint8_t *bytes, size_t bytes_count, struct config *out);
/* The same, and its keys are good: of one that stands by itself. */
ERR_MUST_CHECK enum err config_unpack(const uint8_t *bytes, size_t bytes_count, struct config *out);
struct digest config_digest(const uint8_t *bytes, size_t bytes_count);

/* Whether `next` may follow `previous`, of this digest, whoever decided it: epoch, nonce, digest; ids and starts that
 * never fall, an id that stays one member's; carried results that are kept as long as their version is not complete,
 * and new ones that are of an owner of `previous`. ERR_PROTO names what does not. */
ERR_MUST_CHECK enum err config_follows(const struct config *previous, const struct digest *previous_digest,
                                       const struct config *next);

/* "owner", "contributor", …; "unknown". */
const char *config_role_name(unsigned role);
/* The witness; NULL: there is none. */
const struct config_member *config_witness(const struct config *config);

/* The run's length, or the greatest that it had before: no result of any epoch up to this one names a later step. */
uint64_t config_steps_most(const struct config *config);
/* NULL: nobody of that id. Borrowed. */
const struct config_member *config_member(const struct config *config, uint32_t id);
const struct config_member *config_member_named(const struct config *config, const char *name);
/* Version that the epoch starts from. */
uint64_t config_start(const struct config *config, uint32_t fragment);
/* The results carried for a fragment, `*count` of them, borrowed. */
const struct part_result *config_carried(const struct config *config, uint32_t fragment, uint32_t *count);
uint32_t config_voters(const struct config *config);   /* how many */
uint32_t config_majority(const struct config *config); /* of them */
/* At how many full voters a result has to be durable (docs/PROTOCOL.md, 9, rule 3). */
uint32_t config_commit_quorum(const struct config *config);

#endif
