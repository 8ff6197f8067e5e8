/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rogue: a member of a cluster's run that a test plays among real daemons (tests/lib/cluster.h): it has the key of one
 * of them, which is not started, and says what the test likes. It hears what the others say, so that it knows how far
 * they are, and makes the results of its own parts where it is told to.
 *
 * A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_ROGUE_H
#define TESTS_LIB_ROGUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/runspec.h"
#include "common/shardmap.h"
#include "daemon/dconf.h"
#include "daemon/state/model_plan.h"
#include "net/transport/link.h"
#include "net/config/config.h"
#include "net/config/view.h"
#include "net/transport/wire.h"
#include "net/membership/wire_paxos.h"
#include "tests/lib/cluster.h"

enum {
    ROGUE_FRAGMENTS_MAX = 4,
    ROGUE_HELD_MAX = 8,
    ROGUE_VERSIONS = 4096,
    ROGUE_OBJECT_BYTES = 1 << 16,
    ROGUE_TAPE = 512
};

/* A control message that was heard, as it came. */
struct rogue_taped {
    uint32_t type;
    size_t bytes;
    uint8_t *payload;
};

/* The last contribution to a part: of this version, in this epoch. */
struct rogue_contributed {
    uint64_t version, epoch;
    uint64_t again_ms; /* its owner has said "not yet"; 0: it has not */
};

struct rogue {
    struct cluster *cluster;
    struct dconf conf;
    struct view view;
    struct ident ident;
    struct runspec spec;
    struct link *link;
    struct model_plan *plan; /* NULL: not known yet */
    struct shardmap map;     /* who owns what, by the configuration of */
    uint64_t map_epoch;      /* this epoch */
    uint32_t self, fragments;
    uint64_t session, sequence, epoch, beat_ms;
    bool connected[CLUSTER_MAX];
    struct wire_fragment heard[CLUSTER_MAX][ROGUE_FRAGMENTS_MAX]; /* of each island, as it last said */
    uint64_t heard_epoch[CLUSTER_MAX], heard_session[CLUSTER_MAX], heard_step[CLUSTER_MAX], heard_trained[CLUSTER_MAX];
    struct wire_held held[ROGUE_FRAGMENTS_MAX][ROGUE_HELD_MAX]; /* as the first island last said */
    uint32_t held_count[ROGUE_FRAGMENTS_MAX];
    struct digest hash[ROGUE_FRAGMENTS_MAX][ROGUE_VERSIONS]; /* of each version, as the first one said; */
    bool hash_known[ROGUE_FRAGMENTS_MAX][ROGUE_VERSIONS];    /* all others have to say the same */
    uint32_t done_status;                                    /* of the last DONE that it got */
    uint64_t pause_ms;                                       /* between its heartbeats */
    /* what it does */
    bool works;                         /* it makes the results of its parts, of nothing */
    uint64_t made[ROGUE_FRAGMENTS_MAX]; /* so far */
    /* What it contributes to a version: every value of its outer gradient, and how many tokens it claims. False:
     * nothing, though it says that it does. NULL: it takes no part. */
    bool (*contributes)(struct rogue *rogue, uint32_t f, uint64_t version, float *value, uint64_t *tokens);
    struct rogue_contributed contributed[ROGUE_FRAGMENTS_MAX][CLUSTER_MAX]; /* to each owner's part */
    void (*result)(struct rogue *rogue, uint32_t to, uint64_t version, float *values, size_t count); /* other ones */
    void (*beat)(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat);                     /* other words */
    void (*fetched)(struct rogue *rogue, uint32_t from, const struct wire_key *key);
    void (*epoch_in)(struct rogue *rogue, uint32_t from, struct paxos_message *message);
    bool taping;
    struct rogue_taped tape[ROGUE_TAPE];
    size_t taped;
};

/* Island `self` of the cluster, whose other islands run. */
struct rogue *rogue_open(struct cluster *cluster, uint32_t self, uint32_t fragments);
void rogue_close(struct rogue *rogue);
/* Its beats say that it has come as far as `to` has. */
void rogue_as_far(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat);
/* The newest configuration, as another island keeps it; config_deinit() it. */
struct config rogue_config(struct rogue *rogue);
/* Closes it and ends the whole run, in which no daemon has said that it is broken. */
void rogue_end(struct rogue *rogue);

/* Time goes by: it hears, answers, and says its heartbeats. */
void rogue_pass(struct rogue *rogue, unsigned ms);
/* Until all others have made so many more versions of every fragment, each with one hash everywhere; fails, with the
 * logs, if that takes longer. Prints how long it took. */
void rogue_moves(struct rogue *rogue, uint64_t versions, double seconds, const char *what);

/* To one island, or to all (CLUSTER_MAX). */
void rogue_say(struct rogue *rogue, uint32_t to, const struct wire_message *message);
void rogue_say_paxos(struct rogue *rogue, uint32_t to, const struct paxos_message *message);
void rogue_say_raw(struct rogue *rogue, uint32_t to, uint32_t type, const void *payload, size_t bytes);
/* A whole object of one chunk at most, or the first chunk of one that is said to be longer. */
void rogue_send(struct rogue *rogue, uint32_t to, const struct wire_key *key, uint64_t total, const uint8_t *data,
                size_t bytes);
/* A result of these values for the part of an owner, signed with the rogue's key, in `object`, ROGUE_OBJECT_BYTES. */
size_t rogue_result(struct rogue *rogue, const struct wire_key *key, const float *values, uint8_t *object);
/* How many values the part of an owner has, by the newest configuration. */
size_t rogue_part_values(const struct rogue *rogue, uint32_t f, uint32_t owner, uint64_t *shards);
/* Of a daemon's memory, in KiB. */
long rogue_memory_kib(const struct cluster *cluster, uint32_t i);
/* Whether status of an island says this of a fault; waits up to `seconds`, while the rogue goes on. */
bool rogue_named(struct rogue *rogue, uint32_t by, const char *words, double seconds);
/* Whether it stands in an island's log; likewise. */
bool rogue_logged(struct rogue *rogue, uint32_t by, const char *words, double seconds);

#endif
