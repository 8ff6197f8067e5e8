/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/zap.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "common/mem.h"

/* A request has a routing id, an empty part, then: version, request id, domain, address, identity, mechanism, and for
 * CURVE the client's 32-byte key. */
enum { ZAP_ROUTE, ZAP_EMPTY, ZAP_VERSION, ZAP_REQUEST, ZAP_DOMAIN, ZAP_ADDRESS, ZAP_IDENTITY, ZAP_MECHANISM, ZAP_KEY };
enum { ZAP_PARTS = 9, USER_ID_BYTES = 40 };

static const char endpoint[] = "inproc://zeromq.zap.01";
static const char domain[] = "diloco";

/* Of a place in a list. Either serial is new whenever its key is put there: what was let in under another one is known
 * by it. */
struct zap_entry {
    bool admitted, shut;
    uint64_t serial, next_serial;
    uint8_t key[IDENT_KEY_BYTES], next[IDENT_KEY_BYTES]; /* next: zeros: none */
};

struct zap {
    void *socket;
    struct zap_entry *members;
    uint32_t members_count;
    struct zap_entry guests[ZAP_GUESTS_MAX];
    uint64_t serial; /* last given */
};

struct request {
    zmq_msg_t part[ZAP_PARTS];
    int count; /* parts that it had; those beyond ZAP_PARTS are not kept */
};

static enum err zmq_failed(const char *what)
{
    return err_set(ERR_IO, "%s: %s", what, zmq_strerror(zmq_errno()));
}

/* ---- life ---- */

enum err zap_new(void *context, struct zap **out)
{
    enum err err;
    struct zap *zap = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *zap, "links", &zap));
    zap->socket = zmq_socket(context, ZMQ_ROUTER);
    if (zap->socket == NULL || zmq_bind(zap->socket, endpoint) != 0)
        err = zmq_failed("cannot open the authentication socket");
out:
    if (err != ERR_OK)
        zap_free(zap);
    else
        *out = zap;
    return err;
}

void zap_free(struct zap *zap)
{
    if (zap == NULL)
        return;
    if (zap->socket != NULL)
        zmq_close(zap->socket);
    mem_free(zap->members);
    mem_free(zap);
}

/* ---- who may ---- */

static bool has_next(const struct zap_entry *entry)
{
    static const uint8_t none[IDENT_KEY_BYTES];
    return memcmp(entry->next, none, sizeof none) != 0;
}

static uint32_t find(const struct zap_entry *list, uint32_t count, const void *key)
{
    for (uint32_t i = 0; i < count; i++)
        if (list[i].admitted && (memcmp(list[i].key, key, IDENT_KEY_BYTES) == 0 ||
                                 (has_next(&list[i]) && memcmp(list[i].next, key, IDENT_KEY_BYTES) == 0)))
            return i;
    return ZAP_NOBODY;
}

static void put_key(struct zap *zap, struct zap_entry *entry, const uint8_t *key)
{
    *entry = (struct zap_entry){.admitted = true, .serial = ++zap->serial};
    memcpy(entry->key, key, IDENT_KEY_BYTES);
}

enum err zap_admit(struct zap *zap, uint32_t member, const uint8_t key[IDENT_KEY_BYTES])
{
    uint32_t holder = find(zap->members, zap->members_count, key);
    if (holder == member && memcmp(zap->members[member].key, key, IDENT_KEY_BYTES) == 0)
        return ERR_OK;
    if (holder != ZAP_NOBODY && holder != member)
        return err_set(ERR_STATE, "two members have the same key");
    if (member >= zap->members_count) {
        TRY(mem_grow(&zap->members, zap->members_count, (size_t)member + 1, sizeof *zap->members, "links"));
        zap->members_count = member + 1;
    }
    put_key(zap, &zap->members[member], key);
    return ERR_OK;
}

enum err zap_admit_next(struct zap *zap, uint32_t member, const uint8_t *key)
{
    struct zap_entry *entry = member < zap->members_count ? &zap->members[member] : NULL;
    uint32_t holder = key != NULL ? find(zap->members, zap->members_count, key) : ZAP_NOBODY;
    if (holder != ZAP_NOBODY && holder != member)
        return err_set(ERR_STATE, "two members have the same key");
    if (entry == NULL || !entry->admitted)
        return ERR_OK;
    if (key != NULL && has_next(entry) && memcmp(entry->next, key, IDENT_KEY_BYTES) == 0)
        return ERR_OK;
    entry->next_serial = ++zap->serial; /* what came in by another one is heard no more */
    memset(entry->next, 0, sizeof entry->next);
    if (key != NULL)
        memcpy(entry->next, key, sizeof entry->next);
    return ERR_OK;
}

void zap_dismiss(struct zap *zap, uint32_t member)
{
    if (member < zap->members_count)
        zap->members[member] = (struct zap_entry){.admitted = false};
}

void zap_shut(struct zap *zap, uint32_t member, bool shut)
{
    if (member >= zap->members_count)
        return;
    zap->members[member].shut = shut;
    if (shut) /* what its old connections still bring is not heard later, either */
        zap->members[member].serial = zap->members[member].next_serial = ++zap->serial;
}

uint32_t zap_guest(const struct zap *zap, const uint8_t key[IDENT_KEY_BYTES])
{
    return find(zap->guests, ZAP_GUESTS_MAX, key);
}

enum err zap_admit_guest(struct zap *zap, const uint8_t key[IDENT_KEY_BYTES], uint32_t *guest)
{
    *guest = zap_guest(zap, key);
    if (*guest != ZAP_NOBODY)
        return ERR_OK;
    for (uint32_t i = 0; i < ZAP_GUESTS_MAX && *guest == ZAP_NOBODY; i++)
        if (!zap->guests[i].admitted)
            *guest = i;
    if (*guest == ZAP_NOBODY)
        return err_set(ERR_STATE, "%d guests are admitted, and no more can be; revoke invitations", ZAP_GUESTS_MAX);
    put_key(zap, &zap->guests[*guest], key);
    return ERR_OK;
}

void zap_dismiss_guest(struct zap *zap, uint32_t guest)
{
    if (guest < ZAP_GUESTS_MAX)
        zap->guests[guest] = (struct zap_entry){.admitted = false};
}

enum err zap_guard(const struct zap *zap, void *socket)
{
    (void)zap; /* ZeroMQ finds it by the context */
    if (zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, domain, strlen(domain)) != 0)
        return zmq_failed("cannot set the authentication domain");
    return ERR_OK;
}

void *zap_socket(const struct zap *zap)
{
    return zap->socket;
}

/* ---- requests ---- */

/* False: none waits. */
static bool read_request(struct zap *zap, struct request *request)
{
    bool more = true;
    for (request->count = 0; more; request->count++) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        if (zmq_msg_recv(&part, zap->socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&part);
            break; /* before the first part only: ZeroMQ delivers messages whole */
        }
        more = zmq_msg_more(&part) != 0;
        if (request->count < ZAP_PARTS) {
            zmq_msg_init(&request->part[request->count]);
            zmq_msg_move(&request->part[request->count], &part);
        }
        zmq_msg_close(&part);
    }
    return request->count > 0;
}

static void close_request(struct request *request)
{
    for (int i = 0; i < request->count && i < ZAP_PARTS; i++)
        zmq_msg_close(&request->part[i]);
}

static bool part_is(zmq_msg_t *part, const char *text)
{
    return zmq_msg_size(part) == strlen(text) && memcmp(zmq_msg_data(part), text, strlen(text)) == 0;
}

/* A member's key is a member's, whatever else it is. */
static enum zap_outcome judge(const struct zap *zap, struct request *request, struct zap_who *who)
{
    *who = (struct zap_who){.member = ZAP_NOBODY, .guest = ZAP_NOBODY};
    if (request->count != ZAP_PARTS || !part_is(&request->part[ZAP_MECHANISM], "CURVE") ||
        zmq_msg_size(&request->part[ZAP_KEY]) != IDENT_KEY_BYTES)
        return ZAP_UNUSABLE;
    const void *key = zmq_msg_data(&request->part[ZAP_KEY]);
    who->member = find(zap->members, zap->members_count, key);
    if (who->member != ZAP_NOBODY && zap->members[who->member].shut)
        return ZAP_SHUT;
    if (who->member != ZAP_NOBODY)
        who->by_next = memcmp(zap->members[who->member].key, key, IDENT_KEY_BYTES) != 0;
    else
        who->guest = zap_guest(zap, key);
    return who->member != ZAP_NOBODY || who->guest != ZAP_NOBODY ? ZAP_ADMITTED : ZAP_STRANGER;
}

static void describe(struct request *request, char *text, size_t text_bytes)
{
    char key[IDENT_TEXT_BYTES];
    ident_text(zmq_msg_data(&request->part[ZAP_KEY]), key);
    snprintf(text, text_bytes, "%s from %.*s", key, (int)zmq_msg_size(&request->part[ZAP_ADDRESS]),
             (const char *)zmq_msg_data(&request->part[ZAP_ADDRESS]));
}

/* "m3.17": member 3, by the 17th key; "g0.18": a guest. */
static void write_user_id(const struct zap *zap, struct zap_who who, char *text, size_t text_bytes)
{
    bool is_member = who.member != ZAP_NOBODY;
    uint32_t number = is_member ? who.member : who.guest;
    const struct zap_entry *entry = is_member ? &zap->members[number] : &zap->guests[number];
    snprintf(text, text_bytes, "%c%" PRIu32 ".%" PRIu64, is_member ? 'm' : 'g', number,
             who.by_next ? entry->next_serial : entry->serial);
}

/* Status 200 with a user id, or 400. (300, "not now", would let ZeroMQ dial again by itself, but only after the whole
 * time that a handshake may take.) */
static void answer(struct zap *zap, struct request *request, bool admitted, struct zap_who who)
{
    static const char version[] = "1.0";
    const char *status = admitted ? "200" : "400";
    char user_id[USER_ID_BYTES] = "";
    if (admitted)
        write_user_id(zap, who, user_id, sizeof user_id);
    zmq_msg_send(&request->part[ZAP_ROUTE], zap->socket, ZMQ_SNDMORE);
    zmq_send(zap->socket, "", 0, ZMQ_SNDMORE);
    zmq_send(zap->socket, version, strlen(version), ZMQ_SNDMORE);
    zmq_msg_send(&request->part[ZAP_REQUEST], zap->socket, ZMQ_SNDMORE);
    zmq_send(zap->socket, status, strlen(status), ZMQ_SNDMORE);
    zmq_send(zap->socket, "", 0, ZMQ_SNDMORE); /* status text */
    zmq_send(zap->socket, user_id, strlen(user_id), ZMQ_SNDMORE);
    zmq_send(zap->socket, "", 0, 0); /* metadata */
}

enum zap_outcome zap_serve(struct zap *zap, char *text, size_t text_bytes)
{
    struct request request;
    struct zap_who who;
    text[0] = '\0';
    if (!read_request(zap, &request))
        return ZAP_NOTHING;
    enum zap_outcome outcome = judge(zap, &request, &who);
    if (outcome == ZAP_STRANGER)
        describe(&request, text, text_bytes);
    if (request.count > ZAP_REQUEST)
        answer(zap, &request, outcome == ZAP_ADMITTED, who);
    close_request(&request);
    return outcome;
}

struct zap_who zap_who(const struct zap *zap, const char *user_id)
{
    const struct zap_who nobody = {.member = ZAP_NOBODY, .guest = ZAP_NOBODY};
    uint32_t number;
    uint64_t serial;
    char list = '\0', end = '\0';
    if (user_id == NULL || sscanf(user_id, "%c%" SCNu32 ".%" SCNu64 "%c", &list, &number, &serial, &end) != 3)
        return nobody;
    bool is_member = list == 'm';
    if ((!is_member && list != 'g') || number >= (is_member ? zap->members_count : ZAP_GUESTS_MAX))
        return nobody;
    const struct zap_entry *entry = is_member ? &zap->members[number] : &zap->guests[number];
    bool by_next = has_next(entry) && entry->next_serial == serial;
    if (!entry->admitted || entry->shut || (entry->serial != serial && !by_next))
        return nobody;
    return is_member ? (struct zap_who){.member = number, .guest = ZAP_NOBODY, .by_next = by_next}
                     : (struct zap_who){.member = ZAP_NOBODY, .guest = number};
}
