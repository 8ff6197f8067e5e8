/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/join_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/as_typed.h"
#include "daemon/membership/config_store.h"
#include "net/config/config_proof.h"
#include "net/membership/wire_paxos.h"
#include "net/transport/wire_join.h"

/* AGAIN: membership is told after this that a guest still waits; GUEST: for so long without its asking. CONTRIBUTORS:
 * where so many own, newcomers contribute if nothing else was said. */
enum { SAID_MS = 60000, AGAIN_MS = 1000, GUEST_MS = 10 * 60 * 1000, ID_DIGITS_MIN = 4, CONTRIBUTORS_OWNERS = 5 };

/* Who was let in, and waits for the configuration that says so. */
struct arrival {
    bool used;
    uint64_t connection;
    struct wire_join join; /* as it signed it */
    bool contributor;
    uint64_t told_ms, asked_ms; /* membership; by the guest */
};

struct join_server {
    struct join_server_conf conf;
    char *path;
    char *run_text;
    struct invites invites;
    struct arrival arrivals[INVITES_MAX];
    struct log_limit put_off_said;
    struct quota refusals[INVITES_MAX]; /* lines in the log about one guest; two may share them */
};

/* Who was refused tries again with something else; who goes on for ever fills no disk. */
static const struct quota_rule refusals_rule = {.every_ms = SAID_MS, .at_once = 4};

static const struct config *last(const struct join_server *join_server)
{
    return config_log_last(join_server->conf.config_log);
}

static const struct config_member *by_key(const struct config *config, const uint8_t key[IDENT_KEY_BYTES])
{
    for (uint32_t i = 0; i < config->members_count; i++)
        if (memcmp(config->members[i].key, key, IDENT_KEY_BYTES) == 0)
            return &config->members[i];
    return NULL;
}

/* Who has the key of which this is the mirror image: their connections would have one key. */
static const struct config_member *by_mirrored_key(const struct config *config, const uint8_t key[IDENT_KEY_BYTES])
{
    for (uint32_t i = 0; i < config->members_count; i++)
        if (ident_compare(config->members[i].key, key) == 0)
            return memcmp(config->members[i].key, key, IDENT_KEY_BYTES) != 0 ? &config->members[i] : NULL;
    return NULL;
}

/* ---- the table ---- */

static enum err save(const struct join_server *join_server)
{
    uint8_t bytes[INVITES_BYTES_MAX];
    size_t count = invites_pack(&join_server->invites, bytes);
    return fsio_replace(join_server->path, bytes, count, 0600);
}

static enum err put_aside(const struct join_server *join_server)
{
    char *aside;
    TRY(mem_printf(&aside, "%s.damaged", join_server->path));
    log_error("%s: %s", join_server->path, err_text());
    enum err err =
        rename(join_server->path, aside) == 0 ? ERR_OK : err_set_errno(ERR_IO, "%s: cannot rename", join_server->path);
    mem_free(aside);
    return err;
}

static enum err load(struct join_server *join_server)
{
    char *data = NULL;
    size_t bytes;
    enum err err = fsio_read(join_server->path, INVITES_BYTES_MAX, &data, &bytes);
    if (err == ERR_NOTFOUND)
        return ERR_OK;
    if (err == ERR_OK)
        err = invites_unpack(data, bytes, &join_server->invites);
    mem_free(data);
    return err == ERR_CORRUPT ? put_aside(join_server) : err;
}

static enum err admit(struct join_server *join_server, const struct invite_row *row, uint64_t now_ms, uint64_t wall_s)
{
    uint64_t left_s = row->expiry_s > wall_s ? row->expiry_s - wall_s : 0;
    return link_admit(join_server->conf.link, row->curve_key, now_ms + left_s * 1000);
}

/* ---- life ---- */

/* A token names the key of who gave it out, and its holder talks to nobody else: with another key those before are
 * worth nothing. */
static bool of_another_key(const struct join_server *join_server)
{
    return memcmp(join_server->invites.inviter, join_server->conf.ident->key, IDENT_KEY_BYTES) != 0;
}

static void empty(struct join_server *join_server)
{
    uint32_t count = join_server->invites.count;
    join_server->invites = (struct invites){.count = 0};
    memcpy(join_server->invites.inviter, join_server->conf.ident->key, IDENT_KEY_BYTES);
    if (count == 0)
        return;
    log_info("invitations that this island gave out with the key before are worth nothing now: %" PRIu32, count);
    if (save(join_server) != ERR_OK)
        log_error("they are forgotten again with the next start: %s", err_text());
}

enum err join_server_new(const struct join_server_conf *conf, uint64_t now_ms, uint64_t wall_s,
                         struct join_server **out)
{
    enum err err;
    struct join_server *join_server = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *join_server, "invitations", &join_server));
    join_server->conf = *conf;
    TRY_OUT(mem_printf(&join_server->path, "%s/invites", conf->folder));
    TRY_OUT(runspec_text(conf->spec, &join_server->run_text));
    TRY_OUT(load(join_server));
    if (of_another_key(join_server))
        empty(join_server);
    for (uint32_t i = 0; i < join_server->invites.count; i++)
        TRY_OUT(admit(join_server, &join_server->invites.rows[i], now_ms, wall_s));
out:
    if (err != ERR_OK)
        join_server_free(join_server);
    else
        *out = join_server;
    return err;
}

void join_server_free(struct join_server *join_server)
{
    if (join_server == NULL)
        return;
    mem_free(join_server->path);
    mem_free(join_server->run_text);
    mem_free(join_server);
}

/* ---- what people ask ---- */

static void forget(struct join_server *join_server, const struct invite_row *row)
{
    link_unadmit(join_server->conf.link, row->curve_key);
    dial_server_forget(join_server->conf.dials, &row->id);
    join_server->conf.shut_out(join_server->conf.user, &row->id);
    for (uint32_t k = 0; k < INVITES_MAX; k++)
        if (digest_equal(&join_server->arrivals[k].join.invitation, &row->id))
            join_server->arrivals[k].used = false;
}

/* This island may have another key now. */
static void follow_key(struct join_server *join_server)
{
    if (!of_another_key(join_server))
        return;
    for (uint32_t i = 0; i < join_server->invites.count; i++)
        forget(join_server, &join_server->invites.rows[i]);
    empty(join_server);
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
static enum err add(struct join_server *join_server, const struct invite *invite, const struct join_server_ask *ask)
{
    struct invites before = join_server->invites;
    struct invite_row old;
    bool replaced = replace(&join_server->invites, ask->island, &old);
    enum err err = invites_add(&join_server->invites, invite, ask->as, ask->island, ask->note);
    if (err == ERR_OK)
        err = save(join_server);
    if (err != ERR_OK)
        join_server->invites = before;
    else if (replaced)
        forget(join_server, &old);
    return err;
}

enum err join_server_invite(struct join_server *join_server, const struct join_server_ask *ask, uint64_t now_ms,
                            uint64_t wall_s, char *text, struct digest *id)
{
    struct invite invite = {.addresses_count = ask->addresses_count,
                            .run_id = join_server->conf.spec->digest,
                            .expiry_s = wall_s + ask->seconds};
    TRY(join_server->conf.may_invite(join_server->conf.user));
    follow_key(join_server);
    memcpy(invite.addresses, ask->addresses, sizeof invite.addresses);
    memcpy(invite.inviter, join_server->conf.ident->key, sizeof invite.inviter);
    memcpy(invite.nonce, last(join_server)->nonce, sizeof invite.nonce);
    for (size_t at = 0; at < sizeof invite.seed; at += sizeof(uint64_t)) {
        uint64_t word = env_random_u64();
        memcpy(invite.seed + at, &word, sizeof word);
    }
    *id = invite_id(&invite);
    TRY(invite_text(&invite, text));
    enum err err = add(join_server, &invite, ask);
    if (err == ERR_OK)
        err = admit(join_server, invites_find(&join_server->invites, id), now_ms, wall_s);
    if (err != ERR_OK) {
        (void)!invites_revoke(&join_server->invites, id, NULL);
        memset(text, 0, INVITE_TEXT_BYTES);
    }
    return err;
}

enum err join_server_revoke(struct join_server *join_server, const char *id_begin)
{
    char hex[DIGEST_HEX_BYTES];
    const struct invite_row *found = NULL;
    size_t digits = strlen(id_begin);
    for (uint32_t i = 0; i < join_server->invites.count; i++) {
        const struct invite_row *row = &join_server->invites.rows[i];
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
    struct invites before = join_server->invites;
    TRY(invites_revoke(&join_server->invites, &row.id, NULL));
    enum err err = save(join_server);
    if (err != ERR_OK) /* after the next start it would be open again */
        join_server->invites = before;
    else
        forget(join_server, &row);
    return err;
}

const struct invites *join_server_invites(const struct join_server *join_server)
{
    return &join_server->invites;
}

/* ---- answers ---- */

static void answer_no(struct join_server *join_server, uint64_t connection, const char *reason, bool later)
{
    uint8_t bytes[WIRE_JOIN_BYTES_MAX];
    size_t count = wire_refusal_pack(reason, later, bytes);
    if (link_guest_send(join_server->conf.link, connection, WIRE_REFUSAL, bytes, count) != ERR_OK)
        log_debug("a guest is gone: %s", err_text()); /* it asks again */
}

static void refuse(struct join_server *join_server, uint64_t connection, const char *name, const char *reason)
{
    log_warn("guest %s is refused: %s", name, reason);
    answer_no(join_server, connection, reason, false);
}

/* Its token stays its own. */
static void put_off(struct join_server *join_server, uint64_t connection, const char *name, const char *reason,
                    uint64_t now_ms)
{
    if (log_limit_pass(&join_server->put_off_said, now_ms, SAID_MS))
        log_info("guest %s has to wait: %s", name, reason);
    answer_no(join_server, connection, reason, true);
}

/* The newest configuration as it was decided. */
static enum err pack_config(const struct join_server *join_server, uint8_t **bytes, size_t *bytes_count)
{
    struct config_entry entry;
    struct paxos_message out = {.type = WIRE_DECIDED};
    TRY(config_store_read(join_server->conf.folder, last(join_server)->epoch, &entry));
    out.bytes = entry.bytes;
    out.bytes_count = entry.bytes_count;
    out.votes = entry.votes;
    out.votes_count = entry.votes_count;
    enum err err = wire_paxos_pack(&out, bytes, bytes_count);
    config_entry_free(&entry);
    return err;
}

static void welcome(struct join_server *join_server, uint64_t connection, const struct config_member *member)
{
    struct wire_joined joined = {.id = member->id, .run_spec = join_server->run_text};
    uint8_t *bytes = NULL;
    size_t count;
    enum err err = pack_config(join_server, &joined.configs, &joined.configs_bytes);
    if (err == ERR_OK)
        err = wire_joined_pack(&joined, &bytes, &count);
    if (err == ERR_OK)
        err = link_guest_send(join_server->conf.link, connection, WIRE_JOINED, bytes, count);
    if (err != ERR_OK && err != ERR_CLOSED)
        log_error("island %s is on the roster, and cannot be told: %s", member->name, err_text());
    mem_free(joined.configs);
    mem_free(bytes);
}

/* ---- guests ---- */

static enum err one_witness(const struct config *config)
{
    const struct config_member *witness = config_witness(config);
    if (witness == NULL)
        return ERR_OK;
    return err_set(ERR_STATE,
                   "%s is the run's witness already, and there is at most one: join as an island that trains, or take "
                   "that one off the roster first, with: dilococtl revoke %s",
                   witness->name, witness->name);
}

/* Whether the guest signed this itself, holds that invitation, and asks for a member that a configuration may have. */
static enum err judge(const struct join_server *join_server, const struct link_guest *guest,
                      const struct wire_join *join)
{
    const struct invite_row *row = invites_of(&join_server->invites, guest->key);
    if (row == NULL || !digest_equal(&row->id, &join->invitation))
        return err_set(ERR_STATE, "the token is not the one by which this connection was made; ask for another");
    if (row->island[0] != '\0' && strcmp(row->island, join->name) != 0)
        return err_set(ERR_STATE, "the token is for island %s; join by that name, or ask for another token",
                       row->island);
    const struct config_member *mirrored = by_mirrored_key(last(join_server), join->key);
    if (mirrored != NULL)
        return err_set(ERR_STATE,
                       "that key is the mirror image of island %s's, and stands for the same one; make another",
                       mirrored->name);
    bool asks = guest->type == WIRE_DIAL_REQUEST;
    if (asks ? !wire_dial_request_signed(join, last(join_server)->nonce)
             : !wire_join_signed(join, last(join_server)->nonce))
        return err_set(ERR_STATE, "the signature is not of the key that is to be admitted, or of another run");
    const struct config_member *same = config_member_named(last(join_server), join->name);
    const struct config_member *is = by_key(last(join_server), join->key);
    if (is != NULL && is != same)
        return err_set(ERR_STATE, "that key is on the roster already, as island %s; join by that name", is->name);
    if (is == NULL && same != NULL)
        return err_set(ERR_STATE,
                       "an island called %s is on the roster already; take another name; if this is it on a new disk, "
                       "free it: dilococtl revoke %s elsewhere",
                       join->name, join->name);
    if (is != NULL && (is->role == CONFIG_WITNESS) != join->witness)
        return err_set(ERR_STATE, "island %s is on the roster as %s, and stays that; join %s --witness", is->name,
                       join->witness ? "one that trains" : "the witness", join->witness ? "without" : "with");
    return is == NULL && join->witness ? one_witness(last(join_server)) : ERR_OK;
}

/* From now on no other key redeems it, whatever happens to this process. */
static enum err redeem(struct join_server *join_server, const struct wire_join *join, uint64_t wall_s)
{
    bool again;
    TRY(invites_redeem(&join_server->invites, &join->invitation, join->key, wall_s, &again));
    if (again)
        return ERR_OK;
    enum err err = save(join_server);
    if (err != ERR_OK)
        invites_reopen(&join_server->invites, &join->invitation);
    return err;
}

static void reopen(struct join_server *join_server, const struct digest *invitation)
{
    invites_reopen(&join_server->invites, invitation);
    if (save(join_server) != ERR_OK)
        log_error("an invitation that was not used stays closed: %s", err_text());
}

/* By what was said with the invitation, or else by how many own: in a large run one more owner is one more that all
 * others wait for, and trust. */
static bool as_contributor(const struct join_server *join_server, const struct wire_join *join)
{
    const struct invite_row *row = invites_find(&join_server->invites, &join->invitation);
    uint32_t owners = 0;
    if (join->witness || row == NULL || row->as == INVITE_OWNER)
        return false;
    for (uint32_t i = 0; i < last(join_server)->members_count; i++)
        owners += last(join_server)->members[i].role == CONFIG_OWNER;
    return row->as == INVITE_CONTRIBUTOR || owners >= CONTRIBUTORS_OWNERS;
}

/* There is one for each invitation. */
static struct arrival *arrival_of(struct join_server *join_server, const struct digest *invitation)
{
    struct arrival *free = NULL;
    for (uint32_t k = 0; k < INVITES_MAX; k++) {
        struct arrival *arrival = &join_server->arrivals[k];
        if (arrival->used && digest_equal(&arrival->join.invitation, invitation))
            return arrival;
        if (!arrival->used)
            free = arrival;
    }
    return free;
}

/* Else it can be asked again: too many wait, or our disk is full. */
static bool is_final(enum err err)
{
    return err != ERR_AGAIN && err != ERR_IO && err != ERR_NOSPACE && err != ERR_NOMEM;
}

static enum err let_in(struct join_server *join_server, const struct link_guest *guest, const struct wire_join *join,
                       uint64_t now_ms, uint64_t wall_s)
{
    TRY(join_server->conf.open(join_server->conf.user, invites_of(&join_server->invites, guest->key)->redeemed));
    TRY(redeem(join_server, join, wall_s));
    const struct config_member *is = by_key(last(join_server), join->key);
    if (is != NULL) {
        welcome(join_server, guest->connection, is);
        return ERR_OK;
    }
    struct arrival *arrival = arrival_of(join_server, &join->invitation);
    bool contributor = arrival->used ? arrival->contributor : as_contributor(join_server, join);
    enum err err = join_server->conf.join(join_server->conf.user, join, contributor);
    if (err != ERR_OK) {
        if (is_final(err))
            reopen(join_server, &join->invitation);
        return err;
    }
    if (!arrival->used)
        log_info("guest %s has redeemed an invitation; the voters are asked to put it on the roster", join->name);
    *arrival = (struct arrival){.used = true,
                                .connection = guest->connection,
                                .join = *join,
                                .contributor = contributor,
                                .told_ms = now_ms,
                                .asked_ms = now_ms};
    return ERR_OK;
}

static void guest_in(struct join_server *join_server, const struct link_guest *guest, uint64_t now_ms, uint64_t wall_s)
{
    struct wire_join join;
    enum err err = wire_join_unpack(guest->payload, guest->bytes, &join);
    const char *name = err == ERR_OK ? join.name : "(unnamed)";
    if (err == ERR_OK)
        err = judge(join_server, guest, &join);
    if (err == ERR_OK && guest->type == WIRE_DIAL_REQUEST)
        dial_server_ask(join_server->conf.dials, &join, guest->connection, now_ms);
    else if (err == ERR_OK)
        err = let_in(join_server, guest, &join, now_ms, wall_s);
    struct quota *refusals = &join_server->refusals[guest->key[0] % INVITES_MAX]; /* keys are drawn by the inviter */
    if (err != ERR_OK && is_final(err) && quota_take(refusals, refusals_rule, now_ms))
        refuse(join_server, guest->connection, name, err_text());
    else if (err != ERR_OK && is_final(err))
        answer_no(join_server, guest->connection, err_text(), false);
    else if (err != ERR_OK)
        put_off(join_server, guest->connection, name, err_text(), now_ms);
}

void join_server_look(struct join_server *join_server, uint64_t now_ms, uint64_t wall_s)
{
    struct link_guest guest;
    while (link_guest_recv(join_server->conf.link, &guest))
        guest_in(join_server, &guest, now_ms, wall_s);
}

/* ---- what the configuration says ---- */

static void settle(struct join_server *join_server, struct arrival *arrival)
{
    const struct config_member *is = by_key(last(join_server), arrival->join.key);
    const struct config_member *same = config_member_named(last(join_server), arrival->join.name);
    if (is != NULL) {
        welcome(join_server, arrival->connection, is);
        arrival->used = false;
    } else if (same != NULL) {
        refuse(join_server, arrival->connection, arrival->join.name,
               "another island has come by that name; take another");
        reopen(join_server, &arrival->join.invitation);
        arrival->used = false;
    } else if (arrival->join.witness && one_witness(last(join_server)) != ERR_OK) {
        refuse(join_server, arrival->connection, arrival->join.name, err_text());
        reopen(join_server, &arrival->join.invitation);
        arrival->used = false;
    }
}

void join_server_begin(struct join_server *join_server)
{
    for (uint32_t k = 0; k < INVITES_MAX; k++)
        if (join_server->arrivals[k].used)
            settle(join_server, &join_server->arrivals[k]);
    follow_key(join_server); /* when those that came were told */
}

static void tell_arrivals(struct join_server *join_server, uint64_t now_ms)
{
    for (uint32_t k = 0; k < INVITES_MAX; k++) {
        struct arrival *arrival = &join_server->arrivals[k];
        if (!arrival->used || now_ms < arrival->told_ms + AGAIN_MS)
            continue;
        if (now_ms > arrival->asked_ms + GUEST_MS) {
            log_info("guest %s has not asked for %d minutes, and is put forward no more; its token stays good for it",
                     arrival->join.name, GUEST_MS / 60000);
            arrival->used = false;
            continue;
        }
        arrival->told_ms = now_ms;
        if (join_server->conf.join(join_server->conf.user, &arrival->join, arrival->contributor) != ERR_OK)
            log_debug("island %s is not admitted yet: %s", arrival->join.name, err_text());
    }
}

void join_server_tick(struct join_server *join_server, uint64_t now_ms, uint64_t wall_s)
{
    struct invite_row row;
    bool changed = false;
    while (invites_expire(&join_server->invites, wall_s, &row)) {
        forget(join_server, &row);
        changed = true;
    }
    if (changed && save(join_server) != ERR_OK)
        log_error("expired invitations stay listed: %s", err_text());
    tell_arrivals(join_server, now_ms);
}
