/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/event.h"

#include <assert.h>
#include <stdio.h>

#include "common/mem.h"

/* One input touches every fragment at most: a trainer that goes, comes back or starts says something of each, and so
 * does what the core orders for it in turn. PER_FRAGMENT leaves room for that several times over. */
enum { PER_FRAGMENT = 8, PER_MEMBER = 4, ROOM_MIN = 64, FATAL_BYTES = 320 };

struct events {
    struct event *ring;
    size_t room, head, count;
    char fatal[FATAL_BYTES];
};

static enum err make_room(struct events *events, size_t room)
{
    struct event *ring;
    TRY(mem_new(room, sizeof *ring, "the event queue", &ring));
    for (size_t i = 0; i < events->count; i++)
        ring[i] = events->ring[(events->head + i) % events->room];
    mem_free(events->ring);
    events->ring = ring;
    events->room = room;
    events->head = 0;
    return ERR_OK;
}

enum err events_new(struct events **out)
{
    *out = NULL;
    TRY(mem_new(1, sizeof **out, "the event queue", out));
    enum err err = make_room(*out, ROOM_MIN);
    if (err != ERR_OK) {
        events_free(*out);
        *out = NULL;
    }
    return err;
}

void events_free(struct events *events)
{
    if (events == NULL)
        return;
    mem_free(events->ring);
    mem_free(events);
}

enum err events_reserve(struct events *events, uint32_t fragments, uint32_t members)
{
    size_t room = ROOM_MIN + (size_t)PER_FRAGMENT * fragments + (size_t)PER_MEMBER * members;
    return room > events->room ? make_room(events, room) : ERR_OK;
}

enum err events_more(struct events *events, uint32_t count)
{
    size_t room = 2 * (events->count + count);
    return room > events->room ? make_room(events, 2 * room) : ERR_OK;
}

void event_post(struct events *events, const struct event *event)
{
    assert(events->count < events->room);
    events->ring[(events->head + events->count++) % events->room] = *event;
}

void event_post_sync(struct events *events, const struct sync_event *event)
{
    event_post(events, &(struct event){.type = EVENT_SYNC, .fragment = event->fragment, .sync = *event});
}

void event_post_fatal(struct events *events, const char *text)
{
    if (events->fatal[0] != '\0')
        return;
    snprintf(events->fatal, sizeof events->fatal, "%s", text);
    event_post(events, &(struct event){.type = EVENT_FATAL});
}

bool event_take(struct events *events, struct event *out)
{
    if (events->count == 0)
        return false;
    *out = events->ring[events->head];
    events->head = (events->head + 1) % events->room;
    events->count--;
    return true;
}

const char *events_fatal(const struct events *events)
{
    return events->fatal;
}

const char *event_name(enum event_type type)
{
    static const char *const names[EVENT_TYPES] = {
        [EVENT_SYNC] = "sync",
        [EVENT_ANNOUNCE] = "announce",
        [EVENT_FATAL] = "fatal",
        [EVENT_REGISTERED] = "registered",
        [EVENT_START] = "start",
        [EVENT_READY] = "ready",
        [EVENT_FILL] = "fill",
        [EVENT_FINISHED] = "finished",
        [EVENT_ENCODED] = "encoded",
        [EVENT_COUNTED] = "counted",
        [EVENT_PUBLISHED] = "published",
        [EVENT_STARTED] = "started",
        [EVENT_UNREAD] = "unread",
        [EVENT_JUDGED] = "judged",
        [EVENT_OBJECT] = "object",
        [EVENT_EPOCH] = "epoch",
        [EVENT_EQUIVOCATION] = "equivocation",
        [EVENT_SERVE_STATE] = "serve-state",
        [EVENT_STATE_SERVED] = "state-served",
        [EVENT_RECOVERED] = "recovered",
        [EVENT_ON_DISK] = "on-disk",
        [EVENT_KEPT] = "kept",
    };
    return (unsigned)type < EVENT_TYPES ? names[type] : "unknown";
}
