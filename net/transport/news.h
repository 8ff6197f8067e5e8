/* SPDX-License-Identifier: Apache-2.0 */
/*
 * news: what a link has to tell, and its keeping in order until it is asked. The ring is private to link.
 *
 * Bounded: a flood of strangers costs no more than this; who may wait asks news_full() first.
 */
#ifndef NET_TRANSPORT_NEWS_H
#define NET_TRANSPORT_NEWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/transport/wire.h"

enum link_event_type {
    LINK_CONNECTED,    /* peer, bulk: a dialled connection is through; if it is control, greet the peer */
    LINK_DISCONNECTED, /* peer, bulk: a dialled connection broke */
    LINK_STRANGER,     /* text: an unknown key knocked and was refused */
    LINK_NOT_ADMITTED, /* peer: it does not know our key, or is not the one we think */
    LINK_NO_ANSWER,    /* peer: it takes connections, and says nothing */
    LINK_MISMATCH,     /* peer (UINT32_MAX: a newcomer with a token), text: another protocol version or run */
    LINK_MALFORMED,    /* peer (UINT32_MAX: not known whose), text: bytes that are no message */
};

struct link_event {
    enum link_event_type type;
    uint32_t peer;
    bool bulk;                    /* which of its two connections */
    char text[WIRE_REASON_BYTES]; /* for people */
};

enum { NEWS_MAX = 64 };

struct news {
    struct link_event events[NEWS_MAX]; /* ring */
    size_t head, count;
};

bool news_full(const struct news *news);
/* Dropped where there is no room. */
void news_put(struct news *news, const struct link_event *event);
void news_tell(struct news *news, enum link_event_type type, uint32_t peer, const char *text);
/* False: there is none. */
bool news_take(struct news *news, struct link_event *event);
/* News that wait of this peer are of nobody now. */
void news_drop(struct news *news, uint32_t peer);

#endif
