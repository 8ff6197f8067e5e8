/*
 * news: what a link has to tell, in order, until it is asked. Private to link.
 *
 * Bounded: a flood of strangers costs no more than this; who may wait asks news_full() first.
 */
#ifndef NET_NEWS_H
#define NET_NEWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/link.h"

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
/* What was to be told of this peer is of nobody now. */
void news_drop(struct news *news, uint32_t peer);

#endif
