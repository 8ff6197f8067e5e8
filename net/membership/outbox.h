/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outbox: what membership says: messages to members, of whom we may be one, and news to its host. Private to
 * net/membership/.
 *
 * A message to ourselves waits until what is under way is done, and is taken in then as one of anybody's. What finds no
 * room is as if it were lost: everything is repeated.
 */
#ifndef NET_MEMBERSHIP_OUTBOX_H
#define NET_MEMBERSHIP_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/view.h"
#include "net/membership/membership_io.h"
#include "net/membership/wire_paxos.h"

enum { OUTBOX_OWN_MAX = 32 };

/* All zero, but for what is borrowed, at first. */
struct outbox {
    const struct view *view; /* borrowed, as is the host */
    const struct membership_io *host;
    void *user; /* of its calls */
    struct own_message {
        uint32_t type;
        uint8_t *bytes; /* packed */
        size_t bytes_count;
    } own[OUTBOX_OWN_MAX]; /* to ourselves, in order */
    uint32_t own_count;
};

/* Forgets what waits. */
void outbox_deinit(struct outbox *outbox);

/* To the member of this id; nobody of that id: it is dropped. */
void outbox_send(struct outbox *outbox, uint32_t to, const struct paxos_message *message);
/* The next message to ourselves: the caller mem_free()s its bytes. There is one (`own_count`). */
struct own_message outbox_take_own(struct outbox *outbox);

void outbox_tell(const struct outbox *outbox, const struct membership_news *news);
/* News that are no more than their type. */
void outbox_tell_of(const struct outbox *outbox, enum membership_news_type type);
/* Tells of a failure, if it is one, of `what`; true: it is. */
bool outbox_failed(const struct outbox *outbox, enum err err, const char *what);

#endif
