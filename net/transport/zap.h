/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zap: lets keys connect: answers ZeroMQ's authentication requests (ZAP, RFC 27) by a list of members' public keys, and
 * one of guests' one-time keys.
 *
 * Owns the socket on which ZeroMQ asks about each connection to the listeners of its context. A key of the lists is let
 * in, and every message of its connection then names whose it is (zap_who()); of any other no message is ever
 * delivered. A member that is dismissed, or gets another key, is not heard any more on its old connections. It answers
 * and never calls: what happened is told by zap_serve(). Requests are made by ZeroMQ's own threads, but their content
 * comes from strangers: no bytes reach an assert. It reads no clock.
 *
 * The thread that owns the context's sockets calls. Nothing blocks.
 */
#ifndef NET_TRANSPORT_ZAP_H
#define NET_TRANSPORT_ZAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/transport/ident.h"

enum { ZAP_GUESTS_MAX = 64 };
#define ZAP_NOBODY UINT32_MAX

struct zap;

/* One for each ZeroMQ context, before its first listener; nobody is admitted yet. ERR_IO: the context has one. Free it
 * before the context. */
ERR_MUST_CHECK enum err zap_new(void *context, struct zap **out);
/* NULL is fine. */
void zap_free(struct zap *zap);

/* Connections that prove this key are let in as the member of this slot, from now on no other (but for
 * zap_admit_next()). The key is copied; lists grow to the highest slot. ERR_STATE: another member has this key. */
ERR_MUST_CHECK enum err zap_admit(struct zap *zap, uint32_t member, const uint8_t key[IDENT_KEY_BYTES]);
/* The key that an admitted member would have next lets it in, too; NULL: none. What was let in by another next one is
 * heard no more, by its present key it goes on. ERR_STATE: another member has it. */
ERR_MUST_CHECK enum err zap_admit_next(struct zap *zap, uint32_t member, const uint8_t *key);
void zap_dismiss(struct zap *zap, uint32_t member);
/* Shuts the door to a member for a while, or opens it again: it stays on the list, and is no stranger. Its connections
 * are heard no more. */
void zap_shut(struct zap *zap, uint32_t member, bool shut);

/* Likewise as a guest, whose number (below ZAP_GUESTS_MAX) is returned; the same again for a key that is admitted. That
 * of a member stays the member's. ERR_STATE: there are as many as can be. */
ERR_MUST_CHECK enum err zap_admit_guest(struct zap *zap, const uint8_t key[IDENT_KEY_BYTES], uint32_t *guest);
void zap_dismiss_guest(struct zap *zap, uint32_t guest);
/* ZAP_NOBODY: the key is no guest's. */
uint32_t zap_guest(const struct zap *zap, const uint8_t key[IDENT_KEY_BYTES]);

/* Puts a listening socket under this guard, before it is bound. */
ERR_MUST_CHECK enum err zap_guard(const struct zap *zap, void *socket);

/* The socket to poll for requests; borrowed. */
void *zap_socket(const struct zap *zap);

enum zap_outcome {
    ZAP_NOTHING,  /* no request waited */
    ZAP_ADMITTED, /* a member's key, or a guest's */
    ZAP_STRANGER, /* a key that is not on the lists; refused */
    ZAP_SHUT,     /* that of a member to whom the door is shut; refused */
    ZAP_UNUSABLE, /* no CURVE request; refused */
};

/* Answers one waiting request. Of a stranger `text` says "KEY from ADDRESS", cut to `text_bytes`; else it is empty. To
 * be called until nothing waits. */
enum zap_outcome zap_serve(struct zap *zap, char *text, size_t text_bytes);

/* Whose connection brought a message. */
struct zap_who {
    uint32_t member, guest; /* ZAP_NOBODY but for at most one */
    bool by_next;           /* a member, let in by the key that it would have next */
};
/* By the message's property "User-Id" (NULL: it has none). Nobody's: also of a connection that was let in before its
 * key was dismissed or replaced. */
struct zap_who zap_who(const struct zap *zap, const char *user_id);

#endif
