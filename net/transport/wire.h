/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire: messages between islands as structs and as bytes, with every limit checked on the way in.
 *
 * A message is a header frame and a payload frame. The header carries magic, protocol version, type, and the run's tag,
 * so a stranger's message is refused before its payload is looked at. Control payloads are Protocol Buffers
 * (wire.proto); bulk payloads are a chunk header and bytes. Pure: no socket, no clock. Packing allocates inside
 * protobuf-c only; unpacking copies into the caller's struct. Input comes from strangers: no bytes reach an assert.
 */
#ifndef NET_TRANSPORT_WIRE_H
#define NET_TRANSPORT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "common/bitset.h"
#include "net/transport/member_word.h"

enum { WIRE_VERSION = 11 }; /* net/transport/wire.proto says what each one brought */
enum {
    WIRE_HEADER_BYTES = 16,
    WIRE_CHUNK_HEADER_BYTES = 60,
    WIRE_CHUNK_BYTES_MAX = 64 << 10,   /* of payload in one chunk */
    WIRE_CONTROL_BYTES_MAX = 64 << 10, /* of one control payload, but for */
    WIRE_PAXOS_BYTES_MAX = 1 << 20,    /* the epoch protocol's (net/membership/wire_paxos.h) */
    WIRE_NAME_BYTES = 64,
    WIRE_ADDRESS_BYTES = 256, /* with the zero at its end */
    WIRE_REASON_BYTES = 256,
    WIRE_FRAGMENTS_MAX = 256, /* in one heartbeat */
    WIRE_HELD_MAX = 512,      /* likewise, over all its fragments */
    WIRE_HELD_OF_ONE_MAX = 64,
    WIRE_MEMBERS_MAX = 1024,
    WIRE_PLAN_FRAGMENTS_MAX = 4096,
    WIRE_WINDOW_KIB_MIN = 64, /* of bulk data a receiver takes in unacknowledged */
    WIRE_WINDOW_KIB_MAX = 1 << 20,
    WIRE_NONCE_BYTES = 16, /* of a run */
    WIRE_SIGNATURE_BYTES = 64,
};

enum wire_type {
    WIRE_HELLO = 1,
    WIRE_HEARTBEAT = 2,
    WIRE_ACK = 3,
    WIRE_DONE = 4,
    WIRE_FETCH = 5,
    WIRE_BYE = 6,
    WIRE_CHUNK = 7,      /* bulk connection only */
    WIRE_BULK_HELLO = 8, /* empty: makes a bulk connection known */
    /* 9 to 17: enum wire_paxos_type */
    /* between a listener and a guest: net/transport/wire_join.h */
    WIRE_JOIN = 18,
    WIRE_JOINED = 19,
    WIRE_REFUSAL = 20,
    /* likewise, and between the inviter and an owner */
    WIRE_DIAL_REQUEST = 21,
    WIRE_DIAL_RESPONSE = 22,
};

/* Of the epoch protocol, with a limit and functions of their own (net/membership/wire_paxos.h). */
enum wire_paxos_type {
    WIRE_PREPARE = 9,
    WIRE_PROMISE = 10,
    WIRE_REJECT = 11,
    WIRE_ACCEPT = 12,
    WIRE_ACCEPTED = 13,
    WIRE_DECIDED = 14,
    WIRE_CONFIG_LOG = 15,
    WIRE_ORDER = 16,
    WIRE_EVIDENCE = 17,
};

/* STATE: a state's head; LEAVES: a range of leaves of its body (daemon/state/state_object.h). */
enum wire_kind { WIRE_CONTRIBUTION = 1, WIRE_RESULT = 2, WIRE_STATE = 3, WIRE_PLAN = 4, WIRE_LEAVES = 5, WIRE_KINDS };
enum { WIRE_LEAVES_MAX = 256 }; /* in a range: 16 MiB */

enum wire_done {
    WIRE_RECEIVED = 1,
    WIRE_NOT_NEEDED = 2,
    WIRE_NOT_YET = 3,
    WIRE_REFUSED = 4,
    WIRE_NOT_AVAILABLE = 5,
    WIRE_GONE = 6, /* the sender has stopped sending it */
};

/* What a receiver asks of who sends it an object. */
enum wire_ask {
    WIRE_ASK_NOTHING = 0,
    WIRE_ASK_GO_ON = 1, /* chunks were lost: go on from what it has */
    WIRE_ASK_STILL = 2, /* nothing came for long: are you still sending? */
    WIRE_ASKS
};

struct wire_key {
    uint32_t kind; /* enum wire_kind */
    uint32_t fragment;
    uint64_t version;
    uint64_t epoch;         /* contribution, result: in which it was made */
    uint32_t owner, island; /* owner: whose part it is of, or for; island: who made it, or holds it */
    uint32_t first, count;  /* leaves: the range */
};

struct wire_hello {
    struct digest run_id, plan_id;
    bool plan_known;
    uint64_t session;
    uint32_t island;
    char name[WIRE_NAME_BYTES], software[WIRE_NAME_BYTES];
    uint32_t window_kib;     /* WIRE_WINDOW_KIB_MIN to _MAX */
    struct member_word word; /* for the next configuration; its signature is not checked yet */
};

/* How a fragment stands on an island. */
struct wire_standing {
    uint64_t version, contributed, abstained;
    struct digest hash;
    bool hash_known;
    bool repairing; /* its state is being replaced: it has none to give */
    bool said;      /* that island has told us, since it came up */
};

struct wire_fragment {
    uint32_t fragment;
    struct wire_standing at;
    bool certified; /* there is a `signature`: the sender certifies that version and hash (net/config/certificate.h) */
    uint8_t signature[WIRE_SIGNATURE_BYTES];
    uint32_t held_first, held_count; /* in the heartbeat's `held`: results of version + 1 that are durable here */
};

/* A result that an island holds: whose part it is of, and the first bytes of its digest. */
enum { WIRE_TAG_BYTES = 16 };
struct wire_held {
    uint32_t owner;
    uint8_t tag[WIRE_TAG_BYTES];
};

enum wire_trainer {
    WIRE_TRAINER_NONE,
    WIRE_TRAINER_STARTING,
    WIRE_TRAINER_TRAINING,
    WIRE_TRAINER_FINISHING,
    WIRE_TRAINER_FINISHED,
    WIRE_TRAINER_FAILED,
    WIRE_TRAINER_STATES
};

struct wire_heartbeat {
    uint64_t sequence, echo, session;
    uint32_t echo_delay_ms;
    bool taking_part;
    uint64_t step, tokens;
    uint64_t trained; /* steps that its trainer has taken since it began: none that it left out */
    uint64_t loss;    /* 64 bits of IEEE 754; 0: not said */
    uint32_t tokens_per_s, trainer;
    uint64_t epoch, incarnation;
    bool in_doubt, disk_fails;
    bool undialled;  /* the sender dials the receiver in vain, and hears it by a connection that the receiver dialled */
    bool unfinished; /* its trainers have trained, and none has said that it has contributed all that it will */
    uint32_t fragments_count, held_count, silent_count;
    struct wire_fragment fragments[WIRE_FRAGMENTS_MAX];
    struct wire_held held[WIRE_HELD_MAX];
    uint32_t silent[WIRE_MEMBERS_MAX]; /* ids of members that take part and are not heard */
};

struct wire_ack {
    struct wire_key key;
    uint64_t have; /* bytes without a gap */
    enum wire_ask ask;
    uint8_t pass;      /* of the chunk it answers */
    uint32_t delay_us; /* of that chunk: when it came less its stamp, modulo 2^32 */
};

struct wire_message {
    enum wire_type type;
    union {
        struct wire_hello hello;
        struct wire_heartbeat heartbeat;
        struct wire_ack ack;
        struct {
            struct wire_key key;
            uint32_t status;
        } done;
        struct {
            struct wire_key key;
        } fetch;
        struct {
            char reason[WIRE_REASON_BYTES];
        } bye;
    };
};

struct wire_chunk {
    struct wire_key key;
    uint8_t pass;           /* how often its sender has gone back */
    uint32_t stamp_us;      /* sender's clock, modulo 2^32 */
    uint64_t total, offset; /* bytes of the object */
    const uint8_t *data;    /* borrowed from the frame */
    size_t bytes;           /* 0: it asks how far the receiver is */
};

/* ---- header ---- */

struct wire_header {
    uint32_t version; /* of the sender's protocol */
    uint32_t type;
    uint64_t run_tag; /* of the run's nonce and run spec: wire_run_tag() */
};

void wire_header_put(const struct wire_header *header, uint8_t *out);
/* ERR_PROTO: wrong length or magic. Version, tag and type are the caller's to judge, in that order. */
ERR_MUST_CHECK enum err wire_header_get(const void *frame, size_t bytes, struct wire_header *header);
/* What headers of a run's messages carry: the tag of the digest over nonce and run_id. */
uint64_t wire_run_tag(const uint8_t nonce[WIRE_NONCE_BYTES], const struct digest *run_id);

/* ---- control payloads ---- */

/* Packs into `out` (WIRE_CONTROL_BYTES_MAX); ERR_ARG if it would not fit. */
ERR_MUST_CHECK enum err wire_pack(const struct wire_message *message, uint8_t *out, size_t *bytes);
/* Unpacks a payload of type `type` and checks every field's limit. ERR_PROTO names the field. */
ERR_MUST_CHECK enum err wire_unpack(uint32_t type, const void *payload, size_t bytes, struct wire_message *message);

/* Whether it is an enum wire_paxos_type. */
bool wire_is_epoch(uint32_t type);
/* Whether it is about dialling a newcomer (net/transport/wire_join.h). */
bool wire_is_dial(uint32_t type);

/* ---- bulk payloads ---- */

/* The header alone; the chunk's bytes follow it. */
void wire_chunk_put(const struct wire_chunk *chunk, uint8_t *out);
ERR_MUST_CHECK enum err wire_chunk_get(const void *payload, size_t bytes, struct wire_chunk *chunk);

bool wire_key_equal(const struct wire_key *left, const struct wire_key *right);
/* "contribution of fragment 3, version 7, epoch 2, owner 1, island 0"; in a buffer of the thread, good until its next
 * call. */
const char *wire_key_text(const struct wire_key *key);
const char *wire_kind_name(uint32_t kind);
const char *wire_trainer_name(uint32_t trainer);

#endif
