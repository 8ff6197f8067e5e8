/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/doorway.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/as_typed.h"
#include "daemon/membership/config_store.h"
#include "net/membership/wire_epoch.h"
#include "net/transport/wire_enrol.h"

/* AGAIN: what the voters were told they are told again. */
enum { AGAIN_MS = 1000, ORDERS_MAX = 64, ID_DIGITS_MIN = 4 };
enum { ORDER_MS = 10 * 60 * 1000, GUEST_MS = 10 * 60 * 1000 }; /* so long each stands */

/* Who was let in, and waits for the record that says so. */
struct arrival {
    bool used;
    uint64_t connection;
    struct digest invitation;
    struct record_member as;
    uint64_t told_ms, asked_ms; /* the voters; by the guest */
};

struct order {
    uint32_t kind, id;
    uint64_t epoch; /* in which it was told last */
    uint64_t since_ms, told_ms;
};

struct doorway {
    struct doorway_conf conf;
    char *path;
    char *run_text;
    struct invites invites;
    struct arrival arrivals[INVITES_MAX];
    struct order orders[ORDERS_MAX];
    uint32_t orders_count;
};

static const struct record *last(const struct doorway *doorway)
{
    return chain_last(doorway->conf.chain);
}

static const struct record_member *by_key(const struct record *record, const uint8_t key[IDENT_KEY_BYTES])
{
    for (uint32_t i = 0; i < record->members_count; i++)
        if (memcmp(record->members[i].key, key, IDENT_KEY_BYTES) == 0)
            return &record->members[i];
    return NULL;
}

/* ---- the table ---- */

static enum err save(const struct doorway *doorway)
{
    uint8_t bytes[INVITES_BYTES_MAX];
    size_t count = invites_pack(&doorway->invites, bytes);
    return fsio_replace(doorway->path, bytes, count, 0600);
}

static enum err put_aside(const struct doorway *doorway)
{
    char *aside;
    TRY(mem_printf(&aside, "%s.damaged", doorway->path));
    log_error("%s: %s", doorway->path, err_text());
    enum err err =
        rename(doorway->path, aside) == 0 ? ERR_OK : err_set_errno(ERR_IO, "%s: cannot rename", doorway->path);
    mem_free(aside);
    return err;
}

static enum err load(struct doorway *doorway)
{
    char *data = NULL;
    size_t bytes;
    enum err err = fsio_read(doorway->path, INVITES_BYTES_MAX, &data, &bytes);
    if (err == ERR_NOTFOUND)
        return ERR_OK;
    if (err == ERR_OK)
        err = invites_unpack(data, bytes, &doorway->invites);
    mem_free(data);
    return err == ERR_CORRUPT ? put_aside(doorway) : err;
}

static enum err admit(struct doorway *doorway, const struct invite_row *row, uint64_t now_ms, uint64_t wall_s)
{
    uint64_t left_s = row->expiry_s > wall_s ? row->expiry_s - wall_s : 0;
    return link_admit(doorway->conf.link, row->curve_key, now_ms + left_s * 1000);
}

/* ---- life ---- */

enum err doorway_new(const struct doorway_conf *conf, uint64_t now_ms, uint64_t wall_s, struct doorway **out)
{
    enum err err;
    struct doorway *doorway = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *doorway, "invitations", &doorway));
    doorway->conf = *conf;
    TRY_OUT(mem_printf(&doorway->path, "%s/invites", conf->folder));
    TRY_OUT(runspec_text(conf->spec, &doorway->run_text));
    TRY_OUT(load(doorway));
    for (uint32_t i = 0; i < doorway->invites.count; i++)
        TRY_OUT(admit(doorway, &doorway->invites.rows[i], now_ms, wall_s));
out:
    if (err != ERR_OK)
        doorway_free(doorway);
    else
        *out = doorway;
    return err;
}

void doorway_free(struct doorway *doorway)
{
    if (doorway == NULL)
        return;
    mem_free(doorway->path);
    mem_free(doorway->run_text);
    mem_free(doorway);
}

/* ---- what people ask ---- */

static void forget(struct doorway *doorway, const struct invite_row *row)
{
    link_unadmit(doorway->conf.link, row->curve_key);
    for (uint32_t k = 0; k < INVITES_MAX; k++)
        if (digest_equal(&doorway->arrivals[k].invitation, &row->id))
            doorway->arrivals[k].used = false;
}

/* Takes out the one for this island that nobody has redeemed; false: there is none. */
static bool replace(struct invites *invites, const char *island, struct invite_row *row)
{
    for (uint32_t i = 0; island[0] != '\0' && i < invites->count; i++) {
        const struct invite_row *old = &invites->rows[i];
        if (!old->redeemed && strcmp(old->island, island) == 0)
            return invites_revoke(invites, &old->id, row) == ERR_OK;
    }
    return false;
}

/* Durable, or all is as before. */
static enum err add(struct doorway *doorway, const struct invite *invite, const struct doorway_ask *ask)
{
    struct invites before = doorway->invites;
    struct invite_row old;
    bool replaced = replace(&doorway->invites, ask->island, &old);
    enum err err = invites_add(&doorway->invites, invite, ask->island, ask->note);
    if (err == ERR_OK)
        err = save(doorway);
    if (err != ERR_OK)
        doorway->invites = before;
    else if (replaced)
        forget(doorway, &old);
    return err;
}

enum err doorway_invite(struct doorway *doorway, const struct doorway_ask *ask, uint64_t now_ms, uint64_t wall_s,
                        char *text, struct digest *id)
{
    struct invite invite = {.addresses_count = ask->addresses_count,
                            .run_id = doorway->conf.spec->digest,
                            .expiry_s = wall_s + ask->seconds};
    memcpy(invite.addresses, ask->addresses, sizeof invite.addresses);
    memcpy(invite.inviter, doorway->conf.ident->key, sizeof invite.inviter);
    memcpy(invite.nonce, last(doorway)->nonce, sizeof invite.nonce);
    for (size_t at = 0; at < sizeof invite.seed; at += sizeof(uint64_t)) {
        uint64_t word = env_random_u64();
        memcpy(invite.seed + at, &word, sizeof word);
    }
    *id = invite_id(&invite);
    TRY(invite_text(&invite, text));
    enum err err = add(doorway, &invite, ask);
    if (err == ERR_OK)
        err = admit(doorway, invites_find(&doorway->invites, id), now_ms, wall_s);
    if (err != ERR_OK) {
        (void)!invites_revoke(&doorway->invites, id, NULL);
        memset(text, 0, INVITE_TEXT_BYTES);
    }
    return err;
}

enum err doorway_revoke(struct doorway *doorway, const char *id_begin)
{
    char hex[DIGEST_HEX_BYTES];
    const struct invite_row *found = NULL;
    size_t digits = strlen(id_begin);
    for (uint32_t i = 0; i < doorway->invites.count; i++) {
        const struct invite_row *row = &doorway->invites.rows[i];
        if (digits < ID_DIGITS_MIN || strncmp(digest_hex(&row->id, hex), id_begin, digits) != 0)
            continue;
        if (found != NULL)
            return err_set(ERR_ARG, "two invitations begin with %.80s; give more of it", id_begin);
        found = row;
    }
    if (found == NULL)
        return err_set(ERR_NOTFOUND, "no invitation %.80s is open here; list them with: %s invite --list", id_begin,
                       as_typed());
    struct invite_row row = *found;
    struct invites before = doorway->invites;
    TRY(invites_revoke(&doorway->invites, &row.id, NULL));
    enum err err = save(doorway);
    if (err != ERR_OK) /* after the next start it would be open again */
        doorway->invites = before;
    else
        forget(doorway, &row);
    return err;
}

const struct invites *doorway_invites(const struct doorway *doorway)
{
    return &doorway->invites;
}

static enum err tell(struct doorway *doorway, struct order *order, uint64_t now_ms)
{
    order->told_ms = now_ms;
    order->epoch = last(doorway)->epoch;
    return doorway->conf.wish(doorway->conf.user, order->kind, order->id, order->epoch);
}

enum err doorway_order(struct doorway *doorway, uint32_t kind, uint32_t id, uint64_t now_ms)
{
    struct order order = {.kind = kind, .id = id, .since_ms = now_ms};
    if (kind != WIRE_WISH_EVICT && kind != WIRE_WISH_REVOKE)
        return err_set(ERR_ARG, "an order of kind %" PRIu32, kind);
    if (doorway->orders_count == ORDERS_MAX)
        return err_set(ERR_STATE, "%d orders about members wait to be decided; no more can", ORDERS_MAX);
    TRY(doorway->conf.decidable(doorway->conf.user));
    TRY(tell(doorway, &order, now_ms));
    for (uint32_t k = 0; k < doorway->orders_count; k++)
        if (doorway->orders[k].kind == kind && doorway->orders[k].id == id) {
            doorway->orders[k] = order;
            return ERR_OK;
        }
    doorway->orders[doorway->orders_count++] = order;
    return ERR_OK;
}

/* ---- answers ---- */

static void refuse(struct doorway *doorway, uint64_t connection, const char *name, const char *reason)
{
    uint8_t bytes[WIRE_ENROL_BYTES_MAX];
    log_warn("guest %s is refused: %s", name, reason);
    size_t count = wire_refusal_pack(reason, bytes);
    if (link_guest_send(doorway->conf.link, connection, WIRE_REFUSAL, bytes, count) != ERR_OK)
        log_debug("a guest is gone: %s", err_text()); /* it asks again */
}

/* The newest record as it was decided. */
static enum err pack_record(const struct doorway *doorway, uint8_t **bytes, size_t *bytes_count)
{
    struct record_entry entry;
    struct epoch_message out = {.type = WIRE_DECIDED};
    TRY(config_store_read(doorway->conf.folder, last(doorway)->epoch, &entry));
    out.bytes = entry.bytes;
    out.bytes_count = entry.bytes_count;
    out.votes = entry.votes;
    out.votes_count = entry.votes_count;
    enum err err = wire_epoch_pack(&out, bytes, bytes_count);
    record_entry_free(&entry);
    return err;
}

static void welcome(struct doorway *doorway, uint64_t connection, const struct record_member *member)
{
    struct wire_enrolled enrolled = {.id = member->id, .run_spec = doorway->run_text};
    uint8_t *bytes = NULL;
    size_t count;
    enum err err = pack_record(doorway, &enrolled.records, &enrolled.records_bytes);
    if (err == ERR_OK)
        err = wire_enrolled_pack(&enrolled, &bytes, &count);
    if (err == ERR_OK)
        err = link_guest_send(doorway->conf.link, connection, WIRE_ENROLLED, bytes, count);
    if (err != ERR_OK && err != ERR_CLOSED)
        log_error("island %s is on the roster, and cannot be told: %s", member->name, err_text());
    mem_free(enrolled.records);
    mem_free(bytes);
}

/* ---- guests ---- */

static enum err one_witness(const struct record *record)
{
    const struct record_member *witness = record_witness(record);
    if (witness == NULL)
        return ERR_OK;
    return err_set(ERR_STATE,
                   "%s is the run's witness already, and there is at most one: join as an island that trains, or take "
                   "that one off the roster first, with: dilococtl revoke %s",
                   witness->name, witness->name);
}

/* Whether what it says is its own, by the invitation it holds, and something that a record may say. */
static enum err judge(const struct doorway *doorway, const struct link_guest *guest, const struct wire_enrol *enrol)
{
    const struct invite_row *row = invites_of(&doorway->invites, guest->key);
    if (row == NULL || !digest_equal(&row->id, &enrol->invitation))
        return err_set(ERR_STATE, "the token is not the one by which this connection was made; ask for another");
    if (row->island[0] != '\0' && strcmp(row->island, enrol->name) != 0)
        return err_set(ERR_STATE, "the token is for island %s; join by that name, or ask for another token",
                       row->island);
    if (!wire_enrol_signed(enrol, last(doorway)->nonce, &doorway->conf.spec->digest))
        return err_set(ERR_STATE, "the signature is not of the key that is to be enrolled, or of another run");
    const struct record_member *same = record_member_named(last(doorway), enrol->name);
    const struct record_member *is = by_key(last(doorway), enrol->key);
    if (is != NULL && is != same)
        return err_set(ERR_STATE, "that key is on the roster already, as island %s; join by that name", is->name);
    if (is == NULL && same != NULL)
        return err_set(ERR_STATE,
                       "an island called %s is on the roster already; take another name; if this is it on a new disk, "
                       "free it: dilococtl revoke %s elsewhere",
                       enrol->name, enrol->name);
    if (is != NULL && (is->role == RECORD_WITNESS) != enrol->witness)
        return err_set(ERR_STATE, "island %s is on the roster as %s, and stays that; join %s --witness", is->name,
                       enrol->witness ? "one that trains" : "the witness", enrol->witness ? "without" : "with");
    return is == NULL && enrol->witness ? one_witness(last(doorway)) : ERR_OK;
}

/* From now on no other key redeems it, whatever happens to this process. */
static enum err redeem(struct doorway *doorway, const struct wire_enrol *enrol, uint64_t wall_s)
{
    bool again;
    TRY(invites_redeem(&doorway->invites, &enrol->invitation, enrol->key, wall_s, &again));
    if (again)
        return ERR_OK;
    enum err err = save(doorway);
    if (err != ERR_OK)
        invites_reopen(&doorway->invites, &enrol->invitation);
    return err;
}

static void reopen(struct doorway *doorway, const struct digest *invitation)
{
    invites_reopen(&doorway->invites, invitation);
    if (save(doorway) != ERR_OK)
        log_error("an invitation that was not used stays closed: %s", err_text());
}

static struct record_member member_of(const struct wire_enrol *enrol)
{
    struct record_member as = {.uplink = enrol->uplink, .role = RECORD_OBSERVER, .owner_wish = enrol->owner_wish};
    if (enrol->witness)
        as.role = RECORD_WITNESS;
    memcpy(as.name, enrol->name, sizeof as.name);
    memcpy(as.address, enrol->address, sizeof as.address);
    memcpy(as.key, enrol->key, sizeof as.key);
    return as;
}

/* There is one for each invitation. */
static struct arrival *arrival_of(struct doorway *doorway, const struct digest *invitation)
{
    struct arrival *free = NULL;
    for (uint32_t k = 0; k < INVITES_MAX; k++) {
        struct arrival *arrival = &doorway->arrivals[k];
        if (arrival->used && digest_equal(&arrival->invitation, invitation))
            return arrival;
        if (!arrival->used)
            free = arrival;
    }
    return free;
}

static enum err let_in(struct doorway *doorway, const struct link_guest *guest, const struct wire_enrol *enrol,
                       uint64_t now_ms, uint64_t wall_s)
{
    TRY(doorway->conf.open(doorway->conf.user, invites_of(&doorway->invites, guest->key)->redeemed));
    TRY(redeem(doorway, enrol, wall_s));
    const struct record_member *is = by_key(last(doorway), enrol->key);
    if (is != NULL) {
        welcome(doorway, guest->connection, is);
        return ERR_OK;
    }
    struct record_member as = member_of(enrol);
    enum err err = doorway->conf.enrol(doorway->conf.user, &as);
    if (err != ERR_OK) {
        reopen(doorway, &enrol->invitation);
        return err;
    }
    struct arrival *arrival = arrival_of(doorway, &enrol->invitation);
    if (!arrival->used)
        log_info("guest %s has redeemed an invitation; the voters are asked to put it on the roster", as.name);
    *arrival = (struct arrival){.used = true,
                                .connection = guest->connection,
                                .invitation = enrol->invitation,
                                .as = as,
                                .told_ms = now_ms,
                                .asked_ms = now_ms};
    return ERR_OK;
}

static void guest_in(struct doorway *doorway, const struct link_guest *guest, uint64_t now_ms, uint64_t wall_s)
{
    struct wire_enrol enrol;
    enum err err = wire_enrol_unpack(guest->payload, guest->bytes, &enrol);
    const char *name = err == ERR_OK ? enrol.name : "(unnamed)";
    if (err == ERR_OK)
        err = judge(doorway, guest, &enrol);
    if (err == ERR_OK)
        err = let_in(doorway, guest, &enrol, now_ms, wall_s);
    if (err != ERR_OK)
        refuse(doorway, guest->connection, name, err_text());
}

void doorway_look(struct doorway *doorway, uint64_t now_ms, uint64_t wall_s)
{
    struct link_guest guest;
    while (link_guest_recv(doorway->conf.link, &guest))
        guest_in(doorway, &guest, now_ms, wall_s);
}

/* ---- what the record says ---- */

static void settle(struct doorway *doorway, struct arrival *arrival)
{
    const struct record_member *is = by_key(last(doorway), arrival->as.key);
    const struct record_member *same = record_member_named(last(doorway), arrival->as.name);
    if (is != NULL) {
        welcome(doorway, arrival->connection, is);
        arrival->used = false;
    } else if (same != NULL) {
        refuse(doorway, arrival->connection, arrival->as.name, "another island has come by that name; take another");
        reopen(doorway, &arrival->invitation);
        arrival->used = false;
    } else if (arrival->as.role == RECORD_WITNESS && one_witness(last(doorway)) != ERR_OK) {
        refuse(doorway, arrival->connection, arrival->as.name, err_text());
        reopen(doorway, &arrival->invitation);
        arrival->used = false;
    }
}

static bool fulfilled(const struct doorway *doorway, const struct order *order)
{
    const struct record_member *member = record_member(last(doorway), order->id);
    if (order->kind == WIRE_WISH_EVICT && last(doorway)->epoch > order->epoch && member != NULL)
        return member->role == RECORD_AWAY;
    return member == NULL;
}

void doorway_begin(struct doorway *doorway)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < INVITES_MAX; k++)
        if (doorway->arrivals[k].used)
            settle(doorway, &doorway->arrivals[k]);
    for (uint32_t k = 0; k < doorway->orders_count; k++)
        if (!fulfilled(doorway, &doorway->orders[k]))
            doorway->orders[kept++] = doorway->orders[k];
    doorway->orders_count = kept;
}

static void tell_arrivals(struct doorway *doorway, uint64_t now_ms)
{
    for (uint32_t k = 0; k < INVITES_MAX; k++) {
        struct arrival *arrival = &doorway->arrivals[k];
        if (!arrival->used || now_ms < arrival->told_ms + AGAIN_MS)
            continue;
        if (now_ms > arrival->asked_ms + GUEST_MS) {
            log_info("guest %s has not asked for %d minutes, and is put forward no more; its token stays good for it",
                     arrival->as.name, GUEST_MS / 60000);
            arrival->used = false;
            continue;
        }
        arrival->told_ms = now_ms;
        if (doorway->conf.enrol(doorway->conf.user, &arrival->as) != ERR_OK)
            log_debug("island %s is not enrolled yet: %s", arrival->as.name, err_text());
    }
}

/* Whether it stands no more, which is said. */
static bool has_ended(const struct doorway *doorway, const struct order *order, uint64_t now_ms)
{
    const struct record_member *member = record_member(last(doorway), order->id);
    const char *what = order->kind == WIRE_WISH_EVICT ? "evict" : "revoke", *whom = member != NULL ? member->name : "?";
    if (now_ms > order->since_ms + ORDER_MS)
        log_warn("to %s %s was not decided within %d minutes, and is asked no more", what, whom, ORDER_MS / 60000);
    else if (doorway->conf.decidable(doorway->conf.user) != ERR_OK)
        log_warn("to %s %s was not decided, and is asked no more: %s", what, whom, err_text());
    else
        return false;
    return true;
}

static void tell_orders(struct doorway *doorway, uint64_t now_ms)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < doorway->orders_count; k++) {
        struct order *order = &doorway->orders[k];
        if (has_ended(doorway, order, now_ms))
            continue;
        if (now_ms >= order->told_ms + AGAIN_MS && tell(doorway, order, now_ms) != ERR_OK)
            log_debug("an order about a member is not carried out yet: %s", err_text());
        doorway->orders[kept++] = *order;
    }
    doorway->orders_count = kept;
}

void doorway_tick(struct doorway *doorway, uint64_t now_ms, uint64_t wall_s)
{
    struct invite_row row;
    bool changed = false;
    while (invites_expire(&doorway->invites, wall_s, &row)) {
        forget(doorway, &row);
        changed = true;
    }
    if (changed && save(doorway) != ERR_OK)
        log_error("expired invitations stay listed: %s", err_text());
    tell_arrivals(doorway, now_ms);
    tell_orders(doorway, now_ms);
}
