/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/news.h"

#include <stdio.h>

bool news_full(const struct news *news)
{
    return news->count == NEWS_MAX;
}

void news_put(struct news *news, const struct link_event *event)
{
    if (!news_full(news))
        news->events[(news->head + news->count++) % NEWS_MAX] = *event;
}

void news_tell(struct news *news, enum link_event_type type, uint32_t peer, const char *text)
{
    struct link_event event = {.type = type, .peer = peer};
    snprintf(event.text, sizeof event.text, "%s", text);
    news_put(news, &event);
}

bool news_take(struct news *news, struct link_event *event)
{
    if (news->count == 0)
        return false;
    *event = news->events[news->head];
    news->head = (news->head + 1) % NEWS_MAX;
    news->count--;
    return true;
}

void news_drop(struct news *news, uint32_t peer)
{
    size_t count = news->count;
    news->count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct link_event *event = &news->events[(news->head + i) % NEWS_MAX];
        if (event->peer != peer)
            news->events[(news->head + news->count++) % NEWS_MAX] = *event;
    }
}
