/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isle: one island's parts, from events to peers, put together in the test's own process as the engine does it, with
 * the engine left to the test. On loopback, with keys and files of its own.
 *
 * Time is the test's: parts are told isle->now_ms, and nothing here waits but for descriptors. A helper that fails
 * fails the running test.
 */
#ifndef TESTS_LIB_ISLE_H
#define TESTS_LIB_ISLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/env.h"
#include "daemon/control/status_types.h"
#include "daemon/dconf.h"
#include "daemon/event.h"
#include "daemon/jobs.h"
#include "daemon/membership/config_store.h"
#include "daemon/membership/vote.h"
#include "daemon/peers/peers.h"
#include "daemon/rounds/rounds.h"
#include "daemon/state/ledger.h"
#include "daemon/state/model_plan.h"
#include "daemon/state/replica.h"
#include "daemon/state/slots.h"
#include "daemon/trainer/trainer.h"
#include "net/transport/link.h"
#include "tests/lib/patience.h"

/* A model of one large fragment and many small ones: more than a heartbeat repeats at a time. */
enum { ISLE_MAX = 4, ISLE_LAYERS = 40, ISLE_FRAGMENTS = 1 + ISLE_LAYERS };
enum { ISLE_LARGE_VALUES = 1 << 19, ISLE_SMALL_VALUES = 1024 };
enum { ISLE_SEEN_MAX = 1024, ISLE_BEATS_MAX = 32, ISLE_PATIENCE_MS = 20000 };

/* ---- what all islands of a run have alike ---- */

struct isle_run {
    const char *folder, *path; /* of everything; of the run spec */
    uint32_t count;
    struct runspec spec;
    struct ident idents[ISLE_MAX]; /* of islands a, b, c, d */
    char addresses[ISLE_MAX][32];  /* where each listens; "": it dials out */
    uint64_t uplinks[ISLE_MAX];    /* bit/s */
    uint8_t nonce[CONFIG_NONCE_BYTES];
    bool begun;                /* its configurations are on disk: from the first isle_conf() on */
    bool doubt;                /* disks are as vote_open() finds them; else none is in doubt */
    bool disks_named;          /* by configuration 0, which it is written with: so daemons of several vote at once */
    bool witness;              /* the last one is, and so has no more than a core */
    uint32_t opened[ISLE_MAX]; /* how often an island was */
};

/* `sync`: lines of the run spec's [sync] and after. */
struct isle_run *isle_run_new(const char *name, uint32_t count, const char *sync);
/* Its islands are closed before. */
void isle_run_free(struct isle_run *run);
extern const char *const isle_names[ISLE_MAX];
/* What headers carry. */
uint64_t isle_run_tag(const struct isle_run *run);
/* Gives island i a free port of its own to listen on. */
void isle_listen(struct isle_run *run, uint32_t i);
/* Writes island i's configuration and key, without a trainer of its own; the path stays valid. The first time it puts
 * the run down, with all of it as members (tests/lib/begun.h). */
const char *isle_conf(struct isle_run *run, uint32_t i);

/* ---- an island with all its parts ---- */

struct isle {
    struct isle_run *run;
    uint32_t self;
    uint64_t now_ms;
    uint64_t uplink_bits; /* what its line is measured to carry, per second */
    bool engine; /* the core is stepped with what is posted for it, its orders are carried out, and epochs begin */
    struct dconf conf;
    struct keyring keyring;
    struct config_store configs;
    struct events *events;
    struct jobs *jobs;
    struct ledger *ledger;
    struct vote *vote;
    struct trainer *trainer;
    struct link *link;
    struct objects *objects;
    struct membership_host *host;
    struct membership *membership; /* of the host */
    struct peers *peers;
    /* NULL before isle_know_plan() */
    struct model_plan *plan;
    uint32_t shards_counts[ISLE_FRAGMENTS];
    struct parts parts;
    struct replica *replica;
    struct slots *slots;
    struct sync *sync;
    struct rounds *rounds;
    struct certificates *certificates;
    /* what was posted and not looked at yet; heartbeats are copied */
    struct event *seen;
    size_t seen_head, seen_count;
    struct wire_heartbeat *beats;
    size_t beats_count;
};

struct isle *isle_open(struct isle_run *run, uint32_t self, const struct conf_override *overrides,
                       size_t overrides_count);
void isle_close(struct isle *isle);

/* Opens all that has to do with other islands, and closes it; what fails is closed. For tests that fail it. */
ERR_MUST_CHECK enum err isle_open_islands(struct isle *isle, uint64_t session);
void isle_close_islands(struct isle *isle);
/* What status_take() looks at. */
struct status_conf isle_status_conf(const struct isle *isle);
struct model_plan *isle_model_plan(const struct isle_run *run);
/* Makes everything that a plan needs; isle_tell_plan() tells transfer, membership and peers of it; isle_know_plan()
 * does both, and tells the trainer, too. */
void isle_make_plan(struct isle *isle);
ERR_MUST_CHECK enum err isle_tell_plan(struct isle *isle);
void isle_know_plan(struct isle *isle);

/* The configuration that follows the island's newest and says the same; the test changes it, and hands it to
 * isle_adopt(). */
struct config isle_next_config(const struct isle *isle);
/* Makes `count` members, by slot, the owners, with equal parts; the others of role CONFIG_OWNER get `role` and no vote.
 */
void isle_set_owners(struct config *config, const uint32_t *ids, uint32_t count, enum config_role role);
/* A new epoch begins, as the engine sees to it; the configuration is taken over. Its membership is as if it had been
 * decided. */
void isle_adopt(struct isle *isle, struct config *config);

/* Takes in what is there and sends what may go; what is posted meanwhile is kept. */
void isle_turn(struct isle *isle);
/* One turn of the parts that have ticks, too. */
void isle_tick(struct isle *isle);
/* A turn of every island; waits a little for something to read. */
void isle_turn_all(void);
#define isle_wait(condition)                                                    \
    do {                                                                        \
        struct patience patience_ = {0};                                        \
        while (!(condition)) {                                                  \
            if (patience_over(&patience_, ISLE_PATIENCE_MS))                    \
                fail_msg("%s:%d: in vain: %s", __FILE__, __LINE__, #condition); \
            isle_turn_all();                                                    \
        }                                                                       \
    } while (0)

/* A link of the test's own is looked after while it waits. */
void isle_watch(struct link *link);
void isle_unwatch(struct link *link);

/* The next event of a type, the ones before it being dropped; false: none was posted. */
bool isle_took(struct isle *isle, enum event_type type, struct event *out);
bool isle_took_sync(struct isle *isle, enum sync_event_type type, struct event *out);
/* Steps the core, and carries out what it orders of peers. */
void isle_step(struct isle *isle, const struct sync_event *event);

#endif
