/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event: the events that the daemon's parts post, in order.
 *
 * Parts post; only the engine takes out, steps the protocol's core, and calls parts with what follows. So no part calls
 * one that lies above it, nothing is entered twice, and a trace of a run is a list of events. The queue is bounded by
 * what one input can cause; overrunning it is our bug and asserts. It belongs to the loop's thread; job threads never
 * see it.
 */
#ifndef DAEMON_EVENT_H
#define DAEMON_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/sync/sync.h"

enum event_type {
    EVENT_SYNC,     /* sync: for the protocol's core */
    EVENT_ANNOUNCE, /* what other islands see of this one has changed */
    EVENT_FATAL,    /* the daemon cannot go on; events_fatal() has the text */
    /* of the trainer */
    EVENT_REGISTERED, /* all its tensors are announced: do they fit the run? */
    EVENT_START,      /* fragment, initial: bring the anchor to its base area, or take its initial tensors over */
    EVENT_READY,      /* every fragment was brought to it */
    EVENT_FILL,       /* fragment: its area is ours now; bring the anchor */
    EVENT_FINISHED,   /* its last contributions are counted */
    /* of the rounds' jobs */
    EVENT_ENCODED,   /* fragment, err: the snapshot is not read any more */
    EVENT_COUNTED,   /* fragment, shards: a mask; of these an applied result counts us */
    EVENT_PUBLISHED, /* fragment: answer to EVENT_FILL */
    EVENT_STARTED,   /* fragment, initial, hash: answer to EVENT_START */
    EVENT_UNREAD,    /* fragment: no job reads its anchor now, or works on the parts it is cut in; who waits goes on */
    EVENT_JUDGED,    /* member, key, done: what became of an object that came in */
    EVENT_STATE_SERVED, /* served, err: answer to EVENT_SERVE_STATE */
    EVENT_EQUIVOCATION, /* equivocation: an owner, by id, has signed two results of one part: both are in the ledger */
    EVENT_RECOVERED,    /* all fragments have been read from the disk */
    EVENT_ON_DISK,      /* fragment: what keep_now() was asked for is there, or the disk refuses */
    /* of the other islands */
    EVENT_OBJECT,      /* member, key, bytes: the whole object lies in its memory */
    EVENT_SERVE_STATE, /* served: copy the fragment's state there, for others */
    EVENT_KEPT,        /* a vote of ours, or a decided configuration, is durable: membership_host_kept() */
    EVENT_EPOCH,       /* the next configuration is decided: membership_take() */
    EVENT_TYPES
};

struct served_state;

struct event {
    enum event_type type;
    uint32_t fragment, member;
    uint64_t version; /* COUNTED: that the result made */
    double share;     /* COUNTED: of the mean of those shards that is ours, by weight; 0: not known */
    union {
        struct sync_event sync;
        uint64_t shards;
        struct {
            uint32_t owner;
            uint64_t version;
        } equivocation;
        enum err err;
        struct {
            struct served_state *served; /* state/state_object.h */
            enum err err;
        } server;
        struct {
            bool initial;
            struct digest hash;
        } start;
        struct {
            struct wire_key key;
            uint64_t bytes;
            enum wire_done done;
            bool excused; /* a state: proved without our signature, which was excused then (sync_excused()) */
        } object;
    };
};

struct events;

/* A queue with room for a run whose fragments are not known yet. ERR_NOMEM. */
ERR_MUST_CHECK enum err events_new(struct events **out);
void events_free(struct events *events);

/* Room for what one input can cause in a run of this size; queued events stay. ERR_NOMEM: the room is as before. */
ERR_MUST_CHECK enum err events_reserve(struct events *events, uint32_t fragments, uint32_t members);

/* Room for so many events besides, and for as many again: where one input tells of every part of a fragment, or of all
 * fragments. ERR_NOMEM: the room is as before. */
ERR_MUST_CHECK enum err events_more(struct events *events, uint32_t count);

void event_post(struct events *events, const struct event *event);
void event_post_sync(struct events *events, const struct sync_event *event);
/* The daemon cannot go on; the first text is copied, and kept. */
void event_post_fatal(struct events *events, const char *text);

/* The oldest event; false: none. */
bool event_take(struct events *events, struct event *out);

/* Why the daemon cannot go on; "" while it can. Borrowed until events_free(). */
const char *events_fatal(const struct events *events);

/* "registered", "fill", ...: for the log. */
const char *event_name(enum event_type type);

#endif
