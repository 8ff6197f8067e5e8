/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record: the view record: who takes part in epoch e, who votes, who owns which shard, and from where the epoch starts.
 *
 * Record e + 1 is decided by a majority of the voters of record e (net/membership/epoch.h) and names record e by its
 * digest, so the records are a chain that anyone can check from record 0 on. Voters sign the digest of the packed
 * bytes, so a record is kept and passed on as the bytes it was decided in. Pure. Bytes come from strangers.
 */
#ifndef NET_CONFIG_RECORD_H
#define NET_CONFIG_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "common/shardmap.h"
#include "net/transport/result_id.h"
#include "net/transport/ident.h"
#include "net/transport/wire.h"

enum {
    RECORD_NONCE_BYTES = 16,
    RECORD_ADDRESS_BYTES = 256,                           /* with the zero at its end */
    RECORD_BYTES_MAX = WIRE_EPOCH_BYTES_MAX - (64 << 10), /* packed; with its votes it is still one message */
    RECORD_MEMBERS_MAX = 1024,
    RECORD_OWNERS_MAX = SHARDMAP_OWNERS_MAX,
    RECORD_VOTERS_MAX = RECORD_OWNERS_MAX + 1, /* and the witness */
    RECORD_FRAGMENTS_MAX = WIRE_PLAN_FRAGMENTS_MAX,
    RECORD_CARRIED_MAX = 8192,
    RECORD_LOSSES_MAX = 6,
};
/* Epochs and versions are below it, so that one more is a number, too. */
#define RECORD_NUMBER_MAX ((uint64_t)1 << 63)

enum record_role {
    RECORD_OWNER = 1,       /* contributes, owns shards, votes */
    RECORD_CONTRIBUTOR = 2, /* contributes */
    RECORD_OBSERVER = 3,    /* catching up */
    RECORD_WITNESS = 4,     /* no trainer, no shard, no bytes; votes where that helps; stays one */
    RECORD_DRAINING = 5,    /* its last contribution is on its way; owns nothing; it may still vote */
    RECORD_AWAY = 6,        /* on the roster, and does not take part now; it may still vote */
    RECORD_ROLES
};

/* Whether a member is to own shards. DIALS: none can dial it, so it owns only beside a single other: two that cannot be
 * dialled would never meet. */
enum record_wish {
    RECORD_OWNER_AUTO = 0,
    RECORD_OWNER_YES = 1,
    RECORD_OWNER_NO = 2,
    RECORD_OWNER_DIALS = 3,
    RECORD_OWNER_WISHES
};

struct record_member {
    uint32_t id;
    char name[WIRE_NAME_BYTES];
    uint8_t key[IDENT_KEY_BYTES];
    char address[RECORD_ADDRESS_BYTES]; /* "host:port"; "": it dials the others */
    uint64_t uplink;                    /* bit/s */
    uint64_t incarnation;               /* of its disk: the one that may vote (docs/PROTOCOL.md, 9, rule 9) */
    uint8_t role;                       /* enum record_role */
    uint8_t owner_wish;                 /* enum record_wish */
    bool voter;
    uint8_t losses; /* how often records said lately that it is lost: one more each time, at most RECORD_LOSSES_MAX */
};

struct record {
    uint8_t nonce[RECORD_NONCE_BYTES]; /* of the run */
    uint64_t epoch;
    struct digest previous; /* of record epoch - 1; zero in record 0 */
    uint32_t next_id;       /* ids below were given */
    uint64_t steps;         /* of the run */
    bool paused;
    struct shardmap map;           /* owners by id; SHARDMAP_NOBODY only where there is no owner at all */
    struct record_member *members; /* in order of id: the whole roster */
    uint32_t members_count;
    uint64_t *starts; /* per fragment; of those beyond, and where there are none: 0 */
    uint32_t starts_count;
    /* Results of earlier epochs that stand, of version start + 1: they count in this epoch because the record names
     * them. In order of fragment, then owner, then epoch; each once. */
    struct part_result *carried;
    uint32_t carried_count;
};

/* Frees what the record points to and empties it; an empty one is fine. */
void record_deinit(struct record *record);
/* A deep copy. ERR_NOMEM: `*out` is empty. */
ERR_MUST_CHECK enum err record_copy(const struct record *record, struct record *out);

/* Whether what the record says makes sense by itself: limits, orders, unique ids, names and keys, roles that may vote,
 * at most one witness, owners that vote, a map of owners, masks of one fragment that are disjoint. ERR_PROTO names what
 * does not. A key of a member costs it about 50 µs. */
ERR_MUST_CHECK enum err record_check(const struct record *record);
/* The part of it about carried results in an epoch with these starts; also of a draft (net/membership/wire_epoch.h). */
ERR_MUST_CHECK enum err record_carried_check(uint64_t epoch, const uint64_t *starts, uint32_t starts_count,
                                             const struct part_result *carried, uint32_t carried_count);
/* Whether `b` says anything about members, who owns what, or the run, that `a` does not; where the epochs start and
 * what they carry is left out. */
bool record_differs(const struct record *a, const struct record *b);
/* 1 to WIRE_NAME_BYTES - 1 letters, digits, '-' or '_'. */
bool record_name_good(const char *name);

/* Packed bytes: mem_free() them. Equal records pack to equal bytes. Of the record's sense only the limits are checked:
 * ERR_ARG. (net/config/record_proto.c) */
ERR_MUST_CHECK enum err record_pack(const struct record *record, uint8_t **bytes, size_t *bytes_count);
/* Unpacks and checks (record_check()), and refuses bytes that record_pack() does not make of what they say: a record
 * has one digest. ERR_PROTO, ERR_NOMEM: `*out` is empty. (net/config/record_proto.c) */
ERR_MUST_CHECK enum err record_unpack(const uint8_t *bytes, size_t bytes_count, struct record *out);
struct digest record_digest(const uint8_t *bytes, size_t bytes_count);

/* Whether `next` may follow `previous`, of this digest, whoever decided it: epoch, nonce, digest; ids and starts that
 * never fall, an id that stays one member's; carried results that are kept as long as their version is not complete,
 * and new ones that are of an owner of `previous`. ERR_PROTO names what does not. */
ERR_MUST_CHECK enum err record_follows(const struct record *previous, const struct digest *previous_digest,
                                       const struct record *next);

/* "owner", "contributor", …; "unknown". */
const char *record_role_name(unsigned role);
/* The witness; NULL: there is none. */
const struct record_member *record_witness(const struct record *record);

/* NULL: nobody of that id. Borrowed. */
const struct record_member *record_member(const struct record *record, uint32_t id);
const struct record_member *record_member_named(const struct record *record, const char *name);
/* Version that the epoch starts from. */
uint64_t record_start(const struct record *record, uint32_t fragment);
/* The results carried for a fragment, `*count` of them, borrowed. */
const struct part_result *record_carried(const struct record *record, uint32_t fragment, uint32_t *count);
uint32_t record_voters(const struct record *record);   /* how many */
uint32_t record_majority(const struct record *record); /* of them */
/* At how many voters that keep bytes a result has to be durable (docs/PROTOCOL.md, 9, rule 3). */
uint32_t record_certifying(const struct record *record);

/* ---- votes: who accepted it ---- */

struct record_vote {
    uint32_t id;
    uint64_t ballot;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
};
/* Signs that `ident` accepts the record of this digest, which is that of `epoch`, in `ballot`. */
void record_vote_sign(const struct ident *ident, const uint8_t nonce[RECORD_NONCE_BYTES], uint64_t epoch,
                      uint64_t ballot, const struct digest *digest, uint8_t *signature);
bool record_vote_good(const uint8_t *key, const uint8_t nonce[RECORD_NONCE_BYTES], uint64_t epoch,
                      const struct digest *digest, const struct record_vote *vote);
/* A record as it was decided, kept and passed on; the first of a run has no votes. */
struct record_entry {
    uint8_t *bytes;
    size_t bytes_count;
    struct record_vote *votes;
    uint32_t votes_count;
};
/* Frees both and empties it; an empty one is fine. */
void record_entry_free(struct record_entry *entry);
/* ERR_NOMEM: `*out` is empty. */
ERR_MUST_CHECK enum err record_entry_copy(const struct record_entry *entry, struct record_entry *out);

/* Whether `votes` prove that `next`, of this digest, follows `previous`, of that: it may (record_follows()), and a
 * majority of the voters of `previous` accepted it in one ballot. Votes that count nowhere do no harm. ERR_PROTO says
 * what is missing. */
ERR_MUST_CHECK enum err record_proved(const struct record *previous, const struct digest *previous_digest,
                                      const struct record *next, const struct digest *next_digest,
                                      const struct record_vote *votes, uint32_t votes_count);

#endif
