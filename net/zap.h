/*
 * zap: who may connect: answers ZeroMQ's authentication requests (ZAP, RFC 27) by a list of members' public keys.
 *
 * Owns the socket on which ZeroMQ asks about each connection to the listeners of its context. A key of the list is let
 * in, and every message of its connection then names the member (zap_member()); of any other no message is ever
 * delivered. It answers and never calls: what happened is told by zap_serve(). Requests are made by ZeroMQ's own
 * threads, but their content comes from strangers: no bytes reach an assert.
 *
 * The thread that owns the context's sockets calls. Nothing blocks.
 */
#ifndef NET_ZAP_H
#define NET_ZAP_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/ident.h"

struct zap;

/* One for each ZeroMQ context, before its first listener; nobody is admitted yet. ERR_IO: the context has one. Free it
 * before the context. */
ERR_MUST_CHECK enum err zap_new(void *context, uint32_t members_count, struct zap **out);
/* NULL is fine. */
void zap_free(struct zap *zap);

/* Connections that prove this key are let in as the member, which is below members_count. The key is copied. */
void zap_admit(struct zap *zap, uint32_t member, const uint8_t key[IDENT_KEY_BYTES]);

/* Puts a listening socket under this guard, before it is bound. */
ERR_MUST_CHECK enum err zap_guard(const struct zap *zap, void *socket);

/* The socket to poll for requests; borrowed. */
void *zap_socket(const struct zap *zap);

enum zap_outcome {
    ZAP_NOTHING,  /* no request waited */
    ZAP_ADMITTED, /* a member's key */
    ZAP_STRANGER, /* a key that is not on the list; refused */
    ZAP_UNUSABLE, /* no CURVE request; refused */
};

/* Answers one waiting request. Of a stranger `text` says "KEY from ADDRESS", cut to `text_bytes`; else it is empty. To
 * be called until nothing waits. */
enum zap_outcome zap_serve(struct zap *zap, char *text, size_t text_bytes);

/* The member whose connection brought a message, by the message's property "User-Id" (NULL: it has none); UINT32_MAX if
 * it is nobody's. */
uint32_t zap_member(const struct zap *zap, const char *user_id);

#endif
