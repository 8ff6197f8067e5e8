/* SPDX-License-Identifier: Apache-2.0 */
/*
 * played: another island as a test plays it: a link with that island's key, on which the test says what it likes, and
 * hears what an island with all its parts (tests/lib/isle.h) has to say.
 *
 * A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_PLAYED_H
#define TESTS_LIB_PLAYED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/transport/ident.h"
#include "net/transport/link.h"
#include "net/transport/wire.h"
#include "net/membership/wire_paxos.h"
#include "tests/lib/isle.h"

struct played {
    struct isle_run *run;
    uint32_t self;
    struct link *link;
    uint64_t session, sequence;
    struct wire_message out; /* being said */
    struct wire_message in;  /* the control message last heard */
    struct wire_chunk chunk; /* the chunk last heard; its data lies in `data` */
    uint8_t data[WIRE_CHUNK_BYTES_MAX];
    /* come in and not heard yet: one connection does not wait for the other */
    struct played_control *control;
    struct played_bulk *bulk;
    struct played_epoch *epoch;
    size_t epoch_count;
    size_t control_head, control_count, bulk_head, bulk_count;
};

/* Listens on a port that the run then knows. `run_tag`: 0 for the run's own; `as`: whose key, NULL for its own. */
struct played *played_open(struct isle_run *run, uint32_t self, uint64_t run_tag, const struct ident *as);
void played_close(struct played *played);
/* The key by which its connections are known, as text; good until the next call. */
const char *played_connection_key(const struct ident *ident);

/* Puts a good greeting, or heartbeat over all fragments, into `out`. */
struct wire_hello *played_hello(struct played *played);
struct wire_heartbeat *played_beat(struct played *played);
/* The island says in it that it holds a result of the version after its own. */
void played_holds(struct wire_heartbeat *beat, uint32_t f, uint32_t owner, const struct digest *digest);
/* Waits until that island says of each fragment what it holds of a version, and says that we hold the same. */
void played_hold_the_same(struct played *played, uint32_t to, uint32_t fragments, uint64_t version);
/* Says what is in `out`, or a message about an object; waits for a connection if there is none yet. */
void played_say(struct played *played, uint32_t to);
/* A message of the epoch protocol; and the next one that it hears, which is to be freed with wire_paxos_deinit(). */
void played_say_epoch(struct played *played, uint32_t to, const struct paxos_message *message);
bool played_heard_epoch(struct played *played, struct paxos_message *message);
void played_say_done(struct played *played, uint32_t to, const struct wire_key *key, enum wire_done status);
/* An ack for the pass of the chunk last heard; `resume`: something was lost. */
void played_say_ack(struct played *played, uint32_t to, const struct wire_key *key, uint64_t have, bool resume);
void played_say_fetch(struct played *played, uint32_t to, const struct wire_key *key);
/* Sends a whole object, chunk by chunk. */
void played_send(struct played *played, uint32_t to, const struct wire_key *key, const void *data, size_t bytes);
void played_send_chunk(struct played *played, uint32_t to, const struct wire_key *key, uint64_t total, uint64_t offset,
                       const void *data, size_t bytes);

/* Hears the next control message, if there is one. */
bool played_heard(struct played *played);
/* The next of a type, those before it on its connection being dropped; of WIRE_CHUNK the next chunk. */
bool played_heard_type(struct played *played, enum wire_type type);
/* The next heartbeat, which is waited for. */
const struct wire_heartbeat *played_next_beat(struct played *played);
/* The next word on this object: an answer, a question or a chunk. */
bool played_heard_of(struct played *played, enum wire_type type, const struct wire_key *key);

/* Until island `to`, by which it is greeted, has taken in what was said up to now; how many messages of a type it said
 * before it had. */
int played_settle(struct played *played, uint32_t to, enum wire_type type);
/* Greets island `to` and waits until it is up there. */
void played_greet(struct played *played, struct isle *to);

#endif
