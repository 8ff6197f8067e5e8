/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/begun.h"

#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/membership/config_store.h"
#include "daemon/membership/vote.h"
#include "net/config/chain.h"
#include "net/membership/wire_epoch.h"

enum { PATH_BYTES = 512 };
static const uint64_t ballot = (uint64_t)1 << 32; /* the founder's first */

/* ---- the two records ---- */

static enum err make(const struct begun_island *islands, uint32_t count, struct record *record)
{
    struct shardmap_owner owners[RECORD_OWNERS_MAX];
    uint32_t owners_count = 0;
    TRY(mem_new(count, sizeof *record->members, "a test's run", &record->members));
    record->members_count = record->next_id = count;
    for (uint32_t i = 0; i < count; i++) {
        struct record_member *member = &record->members[i];
        *member = (struct record_member){.id = i, .uplink = islands[i].uplink, .role = RECORD_OWNER, .voter = true};
        snprintf(member->name, sizeof member->name, "%s", islands[i].name);
        snprintf(member->address, sizeof member->address, "%s", islands[i].address);
        memcpy(member->key, islands[i].ident->key, sizeof member->key);
        if (islands[i].witness)
            member->role = RECORD_WITNESS;
        else
            owners[owners_count++] = (struct shardmap_owner){.id = i, .weight = islands[i].uplink};
    }
    for (uint32_t i = 0; i < count; i++)
        record->members[i].voter = !islands[i].witness || owners_count % 2 == 0;
    record->map = shardmap_empty();
    shardmap_assign(&record->map, owners, owners_count);
    return ERR_OK;
}

static enum err make_both(const struct begun_island *islands, uint32_t count, const struct runspec *spec,
                          const uint8_t *nonce, struct record *founding, struct record *record)
{
    uint64_t drawn[] = {env_random_u64(), env_random_u64()};
    _Static_assert(sizeof drawn == RECORD_NONCE_BYTES, "a nonce");
    *founding = (struct record){.steps = (uint64_t)spec->steps};
    *record = (struct record){.steps = (uint64_t)spec->steps, .epoch = 1};
    memcpy(founding->nonce, nonce != NULL ? nonce : (const uint8_t *)drawn, RECORD_NONCE_BYTES);
    memcpy(record->nonce, founding->nonce, RECORD_NONCE_BYTES);
    TRY(make(islands, 1, founding));
    return make(islands, count, record);
}

static enum err pack(const struct record *record, struct record_entry *entry, struct digest *digest)
{
    TRY(record_pack(record, &entry->bytes, &entry->bytes_count));
    *digest = record_digest(entry->bytes, entry->bytes_count);
    return ERR_OK;
}

/* As the founder decides it, alone. */
static enum err decide(const struct begun_island *founder, const struct record *record, struct record_entry *entry)
{
    struct digest digest;
    TRY(mem_new(1, sizeof *entry->votes, "a test's run", &entry->votes));
    entry->votes_count = 1;
    entry->votes[0] = (struct record_vote){.id = 0, .ballot = ballot};
    TRY(pack(record, entry, &digest));
    record_vote_sign(founder->ident, record->nonce, record->epoch, ballot, &digest, entry->votes[0].signature);
    return ERR_OK;
}

/* ---- what lies where ---- */

/* A disk that has begun, which the record then names. */
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
    enum err err = vote_settle(vote);
    vote_close(vote);
    return err;
}

/* What dilococtl join is told. */
static enum err write_joined(const char *path, const struct record_entry *entry)
{
    uint8_t *bytes;
    size_t count;
    struct epoch_message decided = {.type = WIRE_DECIDED};
    decided.bytes = entry->bytes;
    decided.bytes_count = entry->bytes_count;
    decided.votes = entry->votes;
    decided.votes_count = entry->votes_count;
    TRY(wire_epoch_pack(&decided, &bytes, &count));
    enum err err = fsio_replace(path, bytes, count, 0644);
    mem_free(bytes);
    return err;
}

static enum err put_down(const struct begun_island *islands, uint32_t count, const struct record_entry *founding,
                         const struct record_entry *record)
{
    TRY(config_store_save(islands[0].state, 0, founding));
    for (uint32_t i = 0; i < count; i++) {
        TRY(config_store_save(islands[i].state, 1, record));
        TRY(config_store_copy(islands[i].sockets, 1, record));
        if (islands[i].joined != NULL)
            TRY(write_joined(islands[i].joined, record));
    }
    return ERR_OK;
}

enum err begun_write(const struct begun_island *islands, uint32_t count, const struct runspec *spec,
                     const uint8_t *nonce)
{
    enum err err;
    struct record founding = {0}, record = {0};
    struct record_entry first = {0}, second = {0};
    TRY_OUT(make_both(islands, count, spec, nonce, &founding, &record));
    for (uint32_t i = 0; i < count; i++)
        TRY_OUT(make_disk(&islands[i], &record.members[i].incarnation));
    TRY_OUT(pack(&founding, &first, &record.previous));
    TRY_OUT(decide(&islands[0], &record, &second));
    TRY_OUT(put_down(islands, count, &first, &second));
out:
    record_deinit(&founding);
    record_deinit(&record);
    record_entry_free(&first);
    record_entry_free(&second);
    return err;
}

enum err begun_at_once(const struct begun_island *islands, uint32_t count, const struct runspec *spec,
                       const uint8_t *nonce)
{
    enum err err;
    struct record record = {.steps = (uint64_t)spec->steps};
    struct record_entry entry = {0};
    struct digest digest;
    memcpy(record.nonce, nonce, sizeof record.nonce);
    TRY_OUT(make(islands, count, &record));
    TRY_OUT(pack(&record, &entry, &digest));
    for (uint32_t i = 0; i < count; i++) {
        TRY_OUT(fsio_mkdirs(islands[i].state, 0755));
        TRY_OUT(config_store_save(islands[i].state, 0, &entry));
    }
out:
    record_deinit(&record);
    record_entry_free(&entry);
    return err;
}

/* ---- looking at it ---- */

enum err begun_view(const char *state, const uint8_t *key, struct view *view)
{
    static const uint8_t nobody[IDENT_KEY_BYTES];
    struct chain *chain;
    struct view_changes changes;
    *view = (struct view){0};
    TRY(chain_new(&chain));
    enum err err = config_store_load(state, NULL, false, chain);
    if (err == ERR_OK)
        err = view_init(NULL, 0, view);
    if (err == ERR_OK)
        err = view_update(view, chain_last(chain), chain_last_digest(chain), key != NULL ? key : nobody, &changes);
    chain_free(chain);
    if (err != ERR_OK)
        view_free(view);
    return err;
}
