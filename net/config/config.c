/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "net/transport/address.h"

_Static_assert((int)ORDER_APPROVALS_MAX == (int)CONFIG_VOTERS_MAX, "every voter may approve");
_Static_assert((int)CONFIG_OWNERS_MAX == (int)SHARDMAP_OWNERS_MAX, "owners of a configuration and of its map");

/* ---- life ---- */

void config_deinit(struct config *config)
{
    mem_free(config->members);
    mem_free(config->starts);
    mem_free(config->carried);
    mem_free(config->orders);
    mem_free(config->words);
    mem_free(config->marks);
    mem_free(config->retired);
    mem_free(config->endorsements);
    memset(config, 0, sizeof *config);
}

static enum err copy_array(const void *from, uint32_t count, size_t size, const char *what, void *out)
{
    void **array = out;
    *array = NULL;
    if (count == 0)
        return ERR_OK;
    TRY(mem_new(count, size, what, out));
    memcpy(*array, from, count * size);
    return ERR_OK;
}

enum err config_copy(const struct config *config, struct config *out)
{
    enum err err;
    *out = *config;
    out->members = NULL;
    out->starts = NULL;
    out->carried = NULL;
    out->orders = NULL;
    out->words = NULL;
    out->marks = NULL;
    out->retired = NULL;
    out->endorsements = NULL;
    TRY_OUT(copy_array(config->members, config->members_count, sizeof *config->members, "a configuration's members",
                       &out->members));
    TRY_OUT(copy_array(config->starts, config->starts_count, sizeof *config->starts, "a configuration's starts",
                       &out->starts));
    TRY_OUT(copy_array(config->carried, config->carried_count, sizeof *config->carried,
                       "a configuration's carried results", &out->carried));
    TRY_OUT(copy_array(config->orders, config->orders_count, sizeof *config->orders, "a configuration's orders",
                       &out->orders));
    TRY_OUT(
        copy_array(config->words, config->words_count, sizeof *config->words, "a configuration's words", &out->words));
    TRY_OUT(
        copy_array(config->marks, config->marks_count, sizeof *config->marks, "a configuration's marks", &out->marks));
    TRY_OUT(copy_array(config->retired, config->retired_count, sizeof *config->retired,
                       "a configuration's retired keys", &out->retired));
    TRY_OUT(copy_array(config->endorsements, config->endorsements_count, sizeof *config->endorsements,
                       "a configuration's endorsements", &out->endorsements));
out:
    if (err != ERR_OK)
        config_deinit(out);
    return err;
}

struct digest config_digest(const uint8_t *bytes, size_t bytes_count)
{
    return digest_of(bytes, bytes_count);
}

/* ---- looking up ---- */

const char *config_role_name(unsigned role)
{
    static const char *const names[CONFIG_ROLES] = {
        [CONFIG_OWNER] = "owner",     [CONFIG_CONTRIBUTOR] = "contributor", [CONFIG_OBSERVER] = "observer",
        [CONFIG_WITNESS] = "witness", [CONFIG_DRAINING] = "draining",       [CONFIG_AWAY] = "away",
    };
    return role < CONFIG_ROLES && names[role] != NULL ? names[role] : "unknown";
}

const struct config_member *config_member(const struct config *config, uint32_t id)
{
    uint32_t low = 0, high = config->members_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (config->members[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < config->members_count && config->members[low].id == id ? &config->members[low] : NULL;
}

const struct config_member *config_member_named(const struct config *config, const char *name)
{
    for (uint32_t i = 0; i < config->members_count; i++)
        if (strcmp(config->members[i].name, name) == 0)
            return &config->members[i];
    return NULL;
}

static uint64_t start_of(const uint64_t *starts, uint32_t starts_count, uint32_t fragment)
{
    return fragment < starts_count ? starts[fragment] : 0;
}

uint64_t config_start(const struct config *config, uint32_t fragment)
{
    return start_of(config->starts, config->starts_count, fragment);
}

const struct part_result *config_carried(const struct config *config, uint32_t fragment, uint32_t *count)
{
    uint32_t low = 0, high = config->carried_count;
    *count = 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (config->carried[middle].id.fragment < fragment)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + *count < config->carried_count && config->carried[low + *count].id.fragment == fragment)
        ++*count;
    return *count > 0 ? &config->carried[low] : NULL;
}

const struct config_member *config_witness(const struct config *config)
{
    for (uint32_t i = 0; i < config->members_count; i++)
        if (config->members[i].role == CONFIG_WITNESS)
            return &config->members[i];
    return NULL;
}

static uint32_t full_voters(const struct config *config)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->members_count; i++)
        count += config->members[i].voter && config->members[i].role != CONFIG_WITNESS;
    return count;
}

uint32_t config_voters(const struct config *config)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->members_count; i++)
        count += config->members[i].voter;
    return count;
}

uint32_t config_majority(const struct config *config)
{
    return config_voters(config) / 2 + 1;
}

uint32_t config_commit_quorum(const struct config *config)
{
    uint32_t majority = config_majority(config), keeping = full_voters(config);
    return majority < keeping ? majority : keeping;
}

/* ---- what makes sense by itself ---- */

bool config_says_same(const struct config_member *a, const struct config_member *b)
{
    return a->uplink == b->uplink && a->owner_choice == b->owner_choice && a->draining == b->draining &&
           a->units == b->units && strcmp(a->address, b->address) == 0 &&
           memcmp(a->next_key, b->next_key, sizeof a->next_key) == 0;
}

static bool same_member(const struct config_member *a, const struct config_member *b)
{
    return a->id == b->id && a->role == b->role && a->voter == b->voter && a->incarnation == b->incarnation &&
           config_says_same(a, b);
}

uint64_t config_word_number(const struct config_member *member)
{
    return member->word > 0 ? member->word : 1;
}

bool config_has_next(const struct config_member *member)
{
    static const uint8_t none[IDENT_KEY_BYTES];
    return memcmp(member->next_key, none, sizeof none) != 0;
}

const uint8_t *config_other_key(const struct config *config, uint32_t id, uint32_t k)
{
    const struct config_member *member = config_member(config, id);
    if (member != NULL && config_has_next(member) && k-- == 0)
        return member->next_key;
    for (uint32_t i = config->retired_count; k < CONFIG_LEFT_MAX && i-- > 0;)
        if (config->retired[i].id == id && k-- == 0)
            return config->retired[i].key;
    return NULL;
}

bool config_differs(const struct config *a, const struct config *b)
{
    bool same = a->members_count == b->members_count && b->orders_count == 0;
    for (uint32_t i = 0; same && i < a->members_count; i++)
        same = same_member(&a->members[i], &b->members[i]);
    return !same || memcmp(&a->map, &b->map, sizeof a->map) != 0;
}

bool config_name_good(const char *name)
{
    size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
    return good > 0 && name[good] == '\0' && good < WIRE_NAME_BYTES;
}

static bool vote_suits(const struct config_member *member)
{
    switch (member->role) {
    case CONFIG_OWNER: return member->voter;
    case CONFIG_CONTRIBUTOR:
    case CONFIG_OBSERVER: return !member->voter;
    default: return true;
    }
}

static enum err check_member(const struct config *config, const struct config_member *member)
{
    if (member->id >= config->next_id)
        return err_set(ERR_PROTO,
                       "a configuration with member %" PRIu32 " before that id was given (next: %" PRIu32 ")",
                       member->id, config->next_id);
    if (memchr(member->name, '\0', sizeof member->name) == NULL || !config_name_good(member->name))
        return err_set(ERR_PROTO,
                       "a configuration whose member %" PRIu32
                       " has a name that is not of 1 to %d letters, digits, '-' or "
                       "'_'",
                       member->id, WIRE_NAME_BYTES - 1);
    if (memchr(member->address, '\0', sizeof member->address) == NULL ||
        (member->address[0] != '\0' && !address_good(member->address)))
        return err_set(ERR_PROTO, "a configuration whose member %s has an address that is not host:port", member->name);
    if (member->role < CONFIG_OWNER || member->role >= CONFIG_ROLES || member->owner_choice >= CONFIG_OWNER_CHOICES)
        return err_set(ERR_PROTO, "a configuration whose member %s has role %u and owner choice %u", member->name,
                       (unsigned)member->role, (unsigned)member->owner_choice);
    if (member->word >= MEMBER_WORD_NUMBER_MAX)
        return err_set(ERR_PROTO, "a configuration whose member %s has a word of number %" PRIu64, member->name,
                       member->word);
    if (member->units > DEAL_UNITS_MAX)
        return err_set(ERR_PROTO, "a configuration whose member %s draws %" PRIu32 " units", member->name,
                       member->units);
    if (member->role == CONFIG_DRAINING && !member->draining)
        return err_set(ERR_PROTO, "a configuration whose member %s drains without having said so", member->name);
    if (member->losses > CONFIG_LOSSES_MAX)
        return err_set(ERR_PROTO, "a configuration whose member %s has %u losses", member->name,
                       (unsigned)member->losses);
    if (!vote_suits(member))
        return err_set(ERR_PROTO, "a configuration whose member %s has role %u and %s", member->name,
                       (unsigned)member->role, member->voter ? "votes" : "does not vote");
    return ERR_OK;
}

static int compare_names(const void *left, const void *right)
{
    const struct config_member *const *l = left, *const *r = right;
    return strcmp((*l)->name, (*r)->name);
}

static enum err check_names(const struct config *config)
{
    const struct config_member *sorted[CONFIG_MEMBERS_MAX];
    for (uint32_t i = 0; i < config->members_count; i++)
        sorted[i] = &config->members[i];
    qsort(sorted, config->members_count, sizeof sorted[0], compare_names);
    for (uint32_t i = 1; i < config->members_count; i++)
        if (compare_names(&sorted[i - 1], &sorted[i]) == 0)
            return err_set(ERR_PROTO, "a configuration whose members %" PRIu32 " and %" PRIu32 " have one name",
                           sorted[i - 1]->id, sorted[i]->id);
    return ERR_OK;
}

/* A key, and how it stands in a configuration; in this order where two are one. */
enum key_use { KEY_USED, KEY_REVOKED, KEY_STATED, KEY_LEFT };
struct key_row {
    const uint8_t *key;
    uint32_t id;
    enum key_use use;
};

static int compare_keys(const void *left, const void *right)
{
    const struct key_row *l = left, *r = right;
    int order = ident_compare(l->key, r->key);
    return order != 0 ? order : (int)l->use - (int)r->use;
}

/* A revoked key may be admitted anew; else a key stands once. */
static enum err check_keys(const struct config *config)
{
    struct key_row rows[2 * CONFIG_MEMBERS_MAX + CONFIG_RETIRED_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i];
        rows[count++] = (struct key_row){member->key, member->id, KEY_USED};
        if (config_has_next(member))
            rows[count++] = (struct key_row){member->next_key, member->id, KEY_STATED};
    }
    for (uint32_t i = 0; i < config->retired_count; i++)
        rows[count++] = (struct key_row){config->retired[i].key, config->retired[i].id,
                                         config->retired[i].revoked ? KEY_REVOKED : KEY_LEFT};
    qsort(rows, count, sizeof rows[0], compare_keys);
    for (uint32_t i = 1; i < count; i++)
        if (ident_compare(rows[i - 1].key, rows[i].key) == 0 &&
            !(rows[i - 1].use == KEY_USED && rows[i].use == KEY_REVOKED))
            return err_set(ERR_PROTO, "a configuration whose members %" PRIu32 " and %" PRIu32 " have%s one key",
                           rows[i - 1].id, rows[i].id, rows[i].use == KEY_USED ? "" : ", had or would have");
    return ERR_OK;
}

static enum err check_members(const struct config *config)
{
    uint32_t of_role[CONFIG_ROLES] = {0};
    for (uint32_t i = 0; i < config->members_count; i++) {
        TRY(check_member(config, &config->members[i]));
        of_role[config->members[i].role]++;
        if (i > 0 && config->members[i].id <= config->members[i - 1].id)
            return err_set(ERR_PROTO, "a configuration whose members are not in order of id");
    }
    TRY(check_names(config));
    TRY(check_keys(config));
    if (of_role[CONFIG_OWNER] > CONFIG_OWNERS_MAX || of_role[CONFIG_WITNESS] > 1)
        return err_set(ERR_PROTO, "a configuration with %" PRIu32 " owners and %" PRIu32 " witnesses",
                       of_role[CONFIG_OWNER], of_role[CONFIG_WITNESS]);
    if (full_voters(config) == 0)
        return err_set(ERR_PROTO, "a configuration without a full voter");
    if (config_voters(config) > CONFIG_VOTERS_MAX)
        return err_set(ERR_PROTO, "a configuration with %" PRIu32 " voters", config_voters(config));
    return ERR_OK;
}

static enum err check_map(const struct config *config)
{
    uint32_t free_slots = 0, owners = 0;
    for (uint32_t i = 0; i < config->members_count; i++)
        owners += config->members[i].role == CONFIG_OWNER;
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS; slot++) {
        uint32_t id = config->map.owner[slot];
        const struct config_member *member = config_member(config, id);
        if (id == SHARDMAP_NOBODY)
            free_slots++;
        else if (member == NULL || member->role != CONFIG_OWNER)
            return err_set(ERR_PROTO, "a configuration whose slot %" PRIu32 " belongs to %" PRIu32 ", who is no owner",
                           slot, id);
    }
    if (free_slots != 0 && (owners > 0 || free_slots != SHARDMAP_SLOTS))
        return err_set(ERR_PROTO, "a configuration with %" PRIu32 " owners and %" PRIu32 " slots of nobody", owners,
                       free_slots);
    return ERR_OK;
}

/* A word states a new key by two signatures. */
static enum err check_word(const struct config *config, uint32_t i)
{
    static const uint8_t none[IDENT_SIGNATURE_BYTES];
    const struct config_word *word = &config->words[i];
    const struct config_member *member = config_member(config, word->id);
    if (member == NULL || (i > 0 && word->id <= config->words[i - 1].id))
        return err_set(ERR_PROTO, "a configuration with a word of %" PRIu32 " that is out of place", word->id);
    if (config_has_next(member) != (memcmp(word->next_signature, none, sizeof none) != 0))
        return err_set(ERR_PROTO, "a configuration with a word of %s that states a new key by half", member->name);
    return ERR_OK;
}

/* Before anything is sorted. */
static enum err check_lengths(const struct config *config)
{
    if (config->orders_count > CONFIG_ORDERS_MAX || config->words_count > CONFIG_MEMBERS_MAX ||
        config->marks_count > CONFIG_MEMBERS_MAX || config->retired_count > CONFIG_RETIRED_MAX)
        return err_set(ERR_PROTO,
                       "a configuration with %" PRIu32 " orders, %" PRIu32 " words, %" PRIu32 " marks and %" PRIu32
                       " retired keys",
                       config->orders_count, config->words_count, config->marks_count, config->retired_count);
    return ERR_OK;
}

/* Lists of orders, retired keys, words and marks: their order. */
static enum err check_lists(const struct config *config)
{
    uint32_t approved = 0;
    for (uint32_t i = 0; i < config->orders_count; i++) {
        TRY(order_check(&config->orders[i]));
        approved += config->orders[i].approvals_count > 0;
        if (i > 0 && order_compare(&config->orders[i - 1], &config->orders[i]) >= 0)
            return err_set(ERR_PROTO, "a configuration whose orders are not in order");
    }
    if (approved > CONFIG_APPROVED_MAX)
        return err_set(ERR_PROTO, "a configuration with %" PRIu32 " orders that were approved", approved);
    for (uint32_t i = 0; i < config->retired_count; i++)
        if (config->retired[i].epoch == 0 || config->retired[i].epoch > config->epoch ||
            (i > 0 && config->retired[i].epoch < config->retired[i - 1].epoch))
            return err_set(ERR_PROTO, "a configuration whose retired keys are not in order of epoch");
    for (uint32_t i = 0; i < config->words_count; i++)
        TRY(check_word(config, i));
    for (uint32_t i = 0; i < config->marks_count; i++)
        if (config_member(config, config->marks[i].id) == NULL || config->marks[i].number == 0 ||
            config->marks[i].number >= ORDER_NUMBER_MAX || (i > 0 && config->marks[i].id <= config->marks[i - 1].id))
            return err_set(ERR_PROTO, "a configuration with a mark of %" PRIu32 " that is out of place",
                           config->marks[i].id);
    return ERR_OK;
}

int config_endorsement_order(const struct config_endorsement *left, const struct config_endorsement *right)
{
    if (left->member != right->member)
        return left->member < right->member ? -1 : 1;
    if (left->says != right->says)
        return left->says < right->says ? -1 : 1;
    return left->signer < right->signer ? -1 : left->signer > right->signer;
}

static enum err check_endorsements(const struct config *config)
{
    if (config->endorsements_count > CONFIG_ENDORSEMENTS_MAX ||
        (config->endorsements_count > 0) != (config->ballot != 0))
        return err_set(ERR_PROTO, "a configuration with %" PRIu32 " endorsements in ballot %" PRIu64,
                       config->endorsements_count, config->ballot);
    for (uint32_t i = 0; i < config->endorsements_count; i++) {
        const struct config_endorsement *one = &config->endorsements[i];
        bool known = one->says == CONFIG_COMES || (one->says == CONFIG_LEAVES && one->incarnation == 0);
        if (!known || (i > 0 && config_endorsement_order(&config->endorsements[i - 1], one) >= 0))
            return err_set(ERR_PROTO, "a configuration with an endorsement of %" PRIu32 " that is out of place",
                           one->member);
    }
    return ERR_OK;
}

uint64_t config_steps_most(const struct config *config)
{
    return config->steps_before > config->steps ? config->steps_before : config->steps;
}

/* Who grants is an operator. Only a founder of epoch 0 carries nothing out. */
static enum err check_run(const struct config *config)
{
    const struct config_member *founder = config_member(config, config->founder);
    if (config->founder != CONFIG_NOBODY && (founder == NULL || !founder->operates))
        return err_set(ERR_PROTO, "a configuration whose founder %" PRIu32 " is no operator", config->founder);
    if (config->epoch == 0 && config->orders_count + config->words_count + config->marks_count +
                                      config->endorsements_count + config->retired_count >
                                  0)
        return err_set(ERR_PROTO, "configuration 0 carries out orders");
    if (config->steps_before != 0 && config->steps_before <= config->steps)
        return err_set(ERR_PROTO, "a configuration with %" PRIu64 " steps, and %" PRIu64 " before", config->steps,
                       config->steps_before);
    uint64_t most = config_steps_most(config);
    return most < CONFIG_NUMBER_MAX ? ERR_OK : err_set(ERR_PROTO, "a configuration with %" PRIu64 " steps", most);
}

static enum err check_starts(const uint64_t *starts, uint32_t starts_count)
{
    if (starts_count > CONFIG_FRAGMENTS_MAX)
        return err_set(ERR_PROTO, "starts of %" PRIu32 " fragments", starts_count);
    for (uint32_t i = 0; i < starts_count; i++)
        if (starts[i] >= CONFIG_NUMBER_MAX)
            return err_set(ERR_PROTO, "fragment %" PRIu32 " starts from version %" PRIu64, i, starts[i]);
    return ERR_OK;
}

enum err config_carried_check(uint64_t epoch, const uint64_t *starts, uint32_t starts_count,
                              const struct part_result *carried, uint32_t carried_count)
{
    uint64_t seen = 0; /* shards of the fragment that is being looked at */
    TRY(check_starts(starts, starts_count));
    if (carried_count > CONFIG_CARRIED_MAX)
        return err_set(ERR_PROTO, "%" PRIu32 " carried results", carried_count);
    for (uint32_t i = 0; i < carried_count; i++) {
        const struct part_result *one = &carried[i];
        if (one->id.fragment >= CONFIG_FRAGMENTS_MAX ||
            one->id.version != start_of(starts, starts_count, one->id.fragment) + 1)
            return err_set(ERR_PROTO,
                           "a result carried for fragment %" PRIu32 ", version %" PRIu64 ", which is not the first one",
                           one->id.fragment, one->id.version);
        if (one->id.epoch >= epoch)
            return err_set(ERR_PROTO, "a result of epoch %" PRIu64 " carried into epoch %" PRIu64, one->id.epoch,
                           epoch);
        if (i > 0 && result_id_order(&carried[i - 1].id, &one->id) >= 0)
            return err_set(ERR_PROTO, "carried results that are not in order of fragment, owner and epoch");
        if (i == 0 || carried[i - 1].id.fragment != one->id.fragment)
            seen = 0;
        if (one->shards == 0 || (one->shards & seen) != 0)
            return err_set(ERR_PROTO, "a result of %" PRIu32 " carried for fragment %" PRIu32 " with %s", one->id.owner,
                           one->id.fragment, one->shards == 0 ? "no shards" : "shards of another one");
        seen |= one->shards;
    }
    return ERR_OK;
}

/* Whether it is the same key as before, or a public key. */
static bool key_good(const uint8_t *was, const uint8_t *key)
{
    uint8_t curve_key[IDENT_KEY_BYTES];
    return (was != NULL && memcmp(was, key, IDENT_KEY_BYTES) == 0) || ident_curve(key, curve_key) == ERR_OK;
}

enum err config_keys_check(const struct config *config, const struct config *known)
{
    for (uint32_t i = 0; i < config->members_count; i++) {
        const struct config_member *member = &config->members[i],
                                   *was = known != NULL ? config_member(known, member->id) : NULL;
        if (!key_good(was != NULL ? was->key : NULL, member->key) ||
            (config_has_next(member) && !key_good(was != NULL ? was->next_key : NULL, member->next_key)))
            return err_set(ERR_PROTO, "a configuration whose member %s has a key that is no public key", member->name);
    }
    return ERR_OK;
}

enum err config_check(const struct config *config)
{
    static const struct digest zero;
    if (config->epoch >= CONFIG_NUMBER_MAX)
        return err_set(ERR_PROTO, "a configuration of epoch %" PRIu64, config->epoch);
    if (config->epoch == 0 && !digest_equal(&config->previous, &zero))
        return err_set(ERR_PROTO, "configuration 0 names one before it");
    if (config->members_count > CONFIG_MEMBERS_MAX)
        return err_set(ERR_PROTO, "a configuration of %" PRIu32 " members", config->members_count);
    TRY(check_lengths(config));
    TRY(check_members(config));
    TRY(check_map(config));
    TRY(check_lists(config));
    TRY(check_endorsements(config));
    TRY(check_run(config));
    TRY(config_carried_check(config->epoch, config->starts, config->starts_count, config->carried,
                             config->carried_count));
    for (uint32_t i = 0; i < config->carried_count; i++)
        if (config->carried[i].id.owner >= config->next_id)
            return err_set(ERR_PROTO, "a configuration that carries a result of %" PRIu32 " before that id was given",
                           config->carried[i].id.owner);
    return ERR_OK;
}

/* ---- one after the other ---- */

/* The same key, or the one that the member stated and that an order gives it. */
static bool same_key(const struct config_member *old, const struct config_member *member, const struct config *next)
{
    bool ordered = false;
    if (memcmp(old->key, member->key, sizeof old->key) == 0)
        return true;
    for (uint32_t i = 0; i < next->orders_count; i++)
        ordered |= next->orders[i].kind == ORDER_REKEY && next->orders[i].subject == member->id &&
                   memcmp(next->orders[i].key, member->key, sizeof member->key) == 0;
    return ordered && memcmp(old->next_key, member->key, sizeof member->key) == 0;
}

/* An id is one member's for ever: the same ones are the same members, and new ones were not given before. */
static enum err check_ids(const struct config *previous, const struct config *next)
{
    if (next->next_id < previous->next_id)
        return err_set(ERR_PROTO, "configuration %" PRIu64 " gives ids a second time", next->epoch);
    for (uint32_t i = 0; i < next->members_count; i++) {
        const struct config_member *member = &next->members[i], *old = config_member(previous, member->id);
        bool same = old != NULL && strcmp(old->name, member->name) == 0 && same_key(old, member, next);
        if (!same && member->id < previous->next_id)
            return err_set(ERR_PROTO, "configuration %" PRIu64 " gives %s the id %" PRIu32 " of somebody else",
                           next->epoch, member->name, member->id);
        if (same && (old->role == CONFIG_WITNESS) != (member->role == CONFIG_WITNESS))
            return err_set(ERR_PROTO, "configuration %" PRIu64 " makes %s, who was %s witness, %s", next->epoch,
                           member->name, old->role == CONFIG_WITNESS ? "the" : "no", config_role_name(member->role));
    }
    return ERR_OK;
}

/* Whether a configuration carries exactly this result. */
static bool carries(const struct config *config, const struct part_result *carried)
{
    uint32_t count;
    const struct part_result *of = config_carried(config, carried->id.fragment, &count);
    for (uint32_t i = 0; i < count; i++)
        if (part_result_equal(&of[i], carried))
            return true;
    return false;
}

/* Results that the configuration before carried stand until their version is complete, which a higher start says. New
 * ones were made in the epoch before, by an owner. */
static enum err check_carried_on(const struct config *previous, const struct config *next)
{
    for (uint32_t i = 0; i < previous->carried_count; i++) {
        const struct part_result *old = &previous->carried[i];
        if (config_start(next, old->id.fragment) < old->id.version && !carries(next, old))
            return err_set(ERR_PROTO,
                           "configuration %" PRIu64 " drops the result of %" PRIu32 " for fragment %" PRIu32
                           ", version %" PRIu64 ", which the one before carried",
                           next->epoch, old->id.owner, old->id.fragment, old->id.version);
    }
    for (uint32_t i = 0; i < next->carried_count; i++) {
        const struct part_result *carried = &next->carried[i];
        const struct config_member *owner = config_member(previous, carried->id.owner);
        bool made = carried->id.epoch == previous->epoch && owner != NULL && owner->role == CONFIG_OWNER;
        if (!made && !carries(previous, carried))
            return err_set(ERR_PROTO,
                           "configuration %" PRIu64 " carries a result of %" PRIu32 " in epoch %" PRIu64
                           ", who was no owner of the epoch before, which did not carry it either",
                           next->epoch, carried->id.owner, carried->id.epoch);
    }
    return ERR_OK;
}

enum err config_follows(const struct config *previous, const struct digest *previous_digest, const struct config *next)
{
    uint32_t fragments = previous->starts_count > next->starts_count ? previous->starts_count : next->starts_count;
    if (next->epoch != previous->epoch + 1)
        return err_set(ERR_PROTO, "configuration %" PRIu64 " where %" PRIu64 " is due", next->epoch,
                       previous->epoch + 1);
    if (memcmp(next->nonce, previous->nonce, CONFIG_NONCE_BYTES) != 0)
        return err_set(ERR_PROTO, "configuration %" PRIu64 " is of another run", next->epoch);
    if (!digest_equal(&next->previous, previous_digest))
        return err_set(ERR_PROTO,
                       "configuration %" PRIu64 " follows another one than the configuration %" PRIu64 " known here",
                       next->epoch, previous->epoch);
    TRY(check_ids(previous, next));
    for (uint32_t f = 0; f < fragments; f++)
        if (config_start(next, f) < config_start(previous, f))
            return err_set(ERR_PROTO, "configuration %" PRIu64 " goes back to version %" PRIu64 " of fragment %" PRIu32,
                           next->epoch, config_start(next, f), f);
    return check_carried_on(previous, next);
}
