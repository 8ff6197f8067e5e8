#include "net/zap.h"

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
enum { ZAP_PARTS = 9 };

static const char endpoint[] = "inproc://zeromq.zap.01";
static const char domain[] = "diloco";

struct zap_entry {
    bool admitted;
    uint8_t key[IDENT_KEY_BYTES];
};

struct zap {
    void *socket;
    struct zap_entry *members;
    uint32_t members_count;
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

enum err zap_new(void *context, uint32_t members_count, struct zap **out)
{
    enum err err;
    struct zap *zap = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *zap, "links", &zap));
    zap->members_count = members_count;
    TRY_OUT(mem_new(members_count, sizeof *zap->members, "links", &zap->members));
    zap->socket = zmq_socket(context, ZMQ_ROUTER);
    if (zap->socket == NULL || zmq_bind(zap->socket, endpoint) != 0) {
        err = zmq_failed("cannot open the authentication socket");
        goto out;
    }
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

void zap_admit(struct zap *zap, uint32_t member, const uint8_t key[IDENT_KEY_BYTES])
{
    zap->members[member].admitted = true;
    memcpy(zap->members[member].key, key, IDENT_KEY_BYTES);
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

static uint32_t member_of_key(const struct zap *zap, const void *key)
{
    for (uint32_t i = 0; i < zap->members_count; i++)
        if (zap->members[i].admitted && memcmp(zap->members[i].key, key, IDENT_KEY_BYTES) == 0)
            return i;
    return UINT32_MAX;
}

static enum zap_outcome judge(const struct zap *zap, struct request *request, uint32_t *member)
{
    if (request->count != ZAP_PARTS || !part_is(&request->part[ZAP_MECHANISM], "CURVE") ||
        zmq_msg_size(&request->part[ZAP_KEY]) != IDENT_KEY_BYTES)
        return ZAP_UNUSABLE;
    *member = member_of_key(zap, zmq_msg_data(&request->part[ZAP_KEY]));
    return *member < zap->members_count ? ZAP_ADMITTED : ZAP_STRANGER;
}

static void describe(struct request *request, char *text, size_t text_bytes)
{
    char key[IDENT_TEXT_BYTES];
    ident_text(zmq_msg_data(&request->part[ZAP_KEY]), key);
    snprintf(text, text_bytes, "%s from %.*s", key, (int)zmq_msg_size(&request->part[ZAP_ADDRESS]),
             (const char *)zmq_msg_data(&request->part[ZAP_ADDRESS]));
}

/* Status 200 with the member's number as user id, or 400. */
static void answer(struct zap *zap, struct request *request, bool admitted, uint32_t member)
{
    static const char version[] = "1.0";
    const char *status = admitted ? "200" : "400";
    char user_id[16] = "";
    if (admitted)
        snprintf(user_id, sizeof user_id, "%" PRIu32, member);
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
    uint32_t member = UINT32_MAX;
    text[0] = '\0';
    if (!read_request(zap, &request))
        return ZAP_NOTHING;
    enum zap_outcome outcome = judge(zap, &request, &member);
    if (outcome == ZAP_STRANGER)
        describe(&request, text, text_bytes);
    if (request.count > ZAP_REQUEST)
        answer(zap, &request, outcome == ZAP_ADMITTED, member);
    close_request(&request);
    return outcome;
}

uint32_t zap_member(const struct zap *zap, const char *user_id)
{
    if (user_id == NULL || user_id[0] == '\0')
        return UINT32_MAX;
    unsigned long member = strtoul(user_id, NULL, 10);
    return member < zap->members_count ? (uint32_t)member : UINT32_MAX;
}
