/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/begun.h"

#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/membership/config_store.h"
#include "daemon/membership/vote.h"
#include "daemon/rules.h"
#include "net/config/config_deal.h"
#include "net/config/config_log.h"
#include "net/config/config_orders.h"
#include "net/config/config_proof.h"
#include "net/config/endorsement.h"
#include "net/config/owners.h"
#include "net/membership/wire_paxos.h"

enum { PATH_BYTES = 512 };
static const uint64_t ballot = (uint64_t)1 << 32; /* the founder's first */

/* ---- the two configurations ---- */

/* Its word on itself; the rest is set_roles()'s. */
static uint32_t units_of(const struct begun_island *island, const struct runspec *spec)
{
    return island->witness ? 0 : (uint32_t)(spec->batch * spec->accumulate);
}

static struct config_member member_of(const struct begun_island *island, uint32_t id, const struct runspec *spec)
{
    struct config_member member = {.id = id, .uplink = island->uplink, .units = units_of(island, spec)};
    snprintf(member.name, sizeof member.name, "%s", island->name);
    snprintf(member.address, sizeof member.address, "%s", island->address);
    memcpy(member.key, island->ident->key, sizeof member.key);
    return member;
}

static void set_roles(const struct begun_island *islands, struct config *config)
{
    struct shardmap_owner owners[CONFIG_OWNERS_MAX];
    uint32_t owners_count = 0;
    for (uint32_t i = 0; i < config->members_count; i++) {
        config->members[i].role = islands[i].witness ? CONFIG_WITNESS : CONFIG_OWNER;
        if (!islands[i].witness)
            owners[owners_count++] = (struct shardmap_owner){.id = i, .weight = islands[i].uplink};
    }
    for (uint32_t i = 0; i < config->members_count; i++)
        config->members[i].voter = !islands[i].witness || owners_count % 2 == 0;
    config->map = shardmap_empty();
    shardmap_assign(&config->map, owners, owners_count);
}

/* The first `count` of them; the first two are operators. */
static enum err make(const struct begun_island *islands, uint32_t count, const struct runspec *spec,
                     struct config *config)
{
    TRY(mem_new(count, sizeof *config->members, "a test's run", &config->members));
    config->members_count = config->next_id = count;
    for (uint32_t i = 0; i < count; i++) {
        config->members[i] = member_of(&islands[i], i, spec);
        config->members[i].operates = i < 2;
    }
    set_roles(islands, config);
    return ERR_OK;
}

/* The founder lets the others in. */
static enum err admit(const struct begun_island *islands, uint32_t count, const struct runspec *spec,
                      const struct config *founding, struct config *config)
{
    for (uint32_t i = 1; i < count; i++) {
        struct order order = {.kind = ORDER_ADMIT, .number = i};
        order.join = (struct wire_join){
            .witness = islands[i].witness,
            .word = {.number = 1, .uplink = islands[i].uplink, .units = units_of(&islands[i], spec)}};
        snprintf(order.join.name, sizeof order.join.name, "%s", islands[i].name);
        snprintf(order.join.word.address, sizeof order.join.word.address, "%s", islands[i].address);
        wire_join_sign(islands[i].ident, founding->nonce, &order.join);
        order_sign(islands[0].ident, founding->nonce, &order);
        TRY(config_order_apply(founding, config, &order));
    }
    return ERR_OK;
}

static enum err make_both(const struct begun_island *islands, uint32_t count, const struct runspec *spec,
                          const uint8_t *nonce, struct config *founding, struct config *config)
{
    uint64_t drawn[] = {env_random_u64(), env_random_u64()};
    _Static_assert(sizeof drawn == CONFIG_NONCE_BYTES, "a nonce");
    *founding =
        (struct config){.steps = (uint64_t)spec->steps, .deal = {.horizon = rules_horizon(spec), .start.step = 1}};
    memcpy(founding->nonce, nonce != NULL ? nonce : (const uint8_t *)drawn, CONFIG_NONCE_BYTES);
    TRY(make(islands, 1, spec, founding));
    TRY(config_copy(founding, config));
    config->epoch = 1;
    TRY(admit(islands, count, spec, founding, config));
    set_roles(islands, config);
    config_deal_next(founding, 0, config);
    return ERR_OK;
}

static enum err pack(const struct config *config, struct config_entry *entry, struct digest *digest)
{
    TRY(config_pack(config, &entry->bytes, &entry->bytes_count));
    *digest = config_digest(entry->bytes, entry->bytes_count);
    return ERR_OK;
}

/* The founder agrees that all others come. */
static enum err endorse(const struct begun_island *founder, const struct config *founding, struct config *config)
{
    config->ballot = ballot;
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i];
        struct config_endorsement one = {
            .member = member->id, .says = CONFIG_COMES, .incarnation = member->incarnation};
        if (!endorsement_needed(founding, config, member).comes)
            continue;
        endorsement_sign(founder->ident, config->nonce, config->epoch, ballot, &one);
        TRY(mem_grow(&config->endorsements, config->endorsements_count, (size_t)config->endorsements_count + 1,
                     sizeof one, "a test's run"));
        config->endorsements[config->endorsements_count++] = one;
    }
    return ERR_OK;
}

/* As the founder decides it, alone. */
static enum err decide(const struct begun_island *founder, const struct config *config, struct config_entry *entry)
{
    struct digest digest;
    TRY(mem_new(1, sizeof *entry->votes, "a test's run", &entry->votes));
    entry->votes_count = 1;
    entry->votes[0] = (struct config_vote){.id = 0, .ballot = ballot};
    TRY(pack(config, entry, &digest));
    config_vote_sign(founder->ident, config->nonce, config->epoch, ballot, &digest, entry->votes[0].signature);
    return ERR_OK;
}

/* ---- what lies where ---- */

/* A disk that has begun, which the configuration then names. */
static enum err make_disk(const struct begun_island *island, uint64_t *incarnation)
{
    char mark[PATH_BYTES];
    struct vote *vote;
    snprintf(mark, sizeof mark, "%s/vote.mark", island->sockets);
    struct vote_conf conf = {.folder = island->state, .mark = island->mark != NULL ? island->mark : mark};
    TRY(fsio_mkdirs(island->state, 0755));
    TRY(fsio_mkdirs(island->sockets, 0755));
    TRY(vote_open(&conf, 0, &vote));
    *incarnation = vote_incarnation(vote);
    enum err err = vote_settle(vote, vote_incarnation(vote), 0);
    vote_close(vote);
    return err;
}

/* What dilococtl join is told. */
static enum err write_joined(const char *path, const struct config_entry *entry)
{
    uint8_t *bytes;
    size_t count;
    struct paxos_message decided = {.type = WIRE_DECIDED};
    decided.bytes = entry->bytes;
    decided.bytes_count = entry->bytes_count;
    decided.votes = entry->votes;
    decided.votes_count = entry->votes_count;
    TRY(wire_paxos_pack(&decided, &bytes, &count));
    enum err err = fsio_replace(path, bytes, count, 0644);
    mem_free(bytes);
    return err;
}

static enum err put_down(const struct begun_island *islands, uint32_t count, const struct config_entry *founding,
                         const struct config_entry *config)
{
    TRY(config_store_save(islands[0].state, 0, founding));
    for (uint32_t i = 0; i < count; i++) {
        TRY(config_store_save(islands[i].state, 1, config));
        TRY(config_store_copy(islands[i].sockets, 1, config));
        if (islands[i].joined != NULL)
            TRY(write_joined(islands[i].joined, config));
    }
    return ERR_OK;
}

enum err begun_write(const struct begun_island *islands, uint32_t count, const struct runspec *spec,
                     const uint8_t *nonce)
{
    enum err err;
    struct config founding = {0}, config = {0};
    struct config_entry first = {0}, second = {0};
    TRY_OUT(make_both(islands, count, spec, nonce, &founding, &config));
    for (uint32_t i = 0; i < count; i++)
        TRY_OUT(make_disk(&islands[i], &config.members[i].incarnation));
    TRY_OUT(pack(&founding, &first, &config.previous));
    config.map = founding.map;
    owners_share_out(&config);
    TRY_OUT(endorse(&islands[0], &founding, &config));
    TRY_OUT(decide(&islands[0], &config, &second));
    TRY_OUT(put_down(islands, count, &first, &second));
out:
    config_deinit(&founding);
    config_deinit(&config);
    config_entry_free(&first);
    config_entry_free(&second);
    return err;
}

enum err begun_at_once(const struct begun_island *islands, uint32_t count, const struct runspec *spec,
                       const uint8_t *nonce)
{
    enum err err;
    struct config config = {.steps = (uint64_t)spec->steps};
    struct config_entry entry = {0};
    struct digest digest;
    memcpy(config.nonce, nonce, sizeof config.nonce);
    TRY_OUT(make(islands, count, spec, &config));
    for (uint32_t i = 0; i < count; i++)
        if (islands[i].sockets != NULL)
            TRY_OUT(make_disk(&islands[i], &config.members[i].incarnation));
    TRY_OUT(pack(&config, &entry, &digest));
    for (uint32_t i = 0; i < count; i++) {
        TRY_OUT(fsio_mkdirs(islands[i].state, 0755));
        TRY_OUT(config_store_save(islands[i].state, 0, &entry));
    }
out:
    config_deinit(&config);
    config_entry_free(&entry);
    return err;
}

/* ---- looking at it ---- */

enum err begun_view(const char *state, const uint8_t *key, struct view *view)
{
    static const uint8_t nobody[IDENT_KEY_BYTES];
    struct config_log *config_log;
    struct view_changes changes;
    *view = (struct view){0};
    TRY(config_log_new(&config_log));
    enum err err = config_store_load(state, NULL, false, config_log);
    if (err == ERR_OK)
        err = view_init(NULL, 0, view);
    if (err == ERR_OK)
        err = view_update(view, config_log_last(config_log), config_log_last_digest(config_log),
                          key != NULL ? key : nobody, &changes);
    config_log_free(config_log);
    if (err != ERR_OK)
        view_free(view);
    return err;
}
