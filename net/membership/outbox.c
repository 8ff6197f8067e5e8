/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/outbox.h"

#include <inttypes.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"

void outbox_deinit(struct outbox *outbox)
{
    for (uint32_t i = 0; i < outbox->own_count; i++)
        mem_free(outbox->own[i].bytes);
    outbox->own_count = 0;
}

static void say_own(struct outbox *outbox, uint32_t type, uint8_t *bytes, size_t bytes_count)
{
    if (outbox->own_count == OUTBOX_OWN_MAX) {
        mem_free(bytes);
        return;
    }
    outbox->own[outbox->own_count++] = (struct own_message){type, bytes, bytes_count};
}

void outbox_send(struct outbox *outbox, uint32_t to, const struct paxos_message *message)
{
    uint8_t *bytes;
    size_t count;
    uint32_t slot = view_slot(outbox->view, to);
    log_debug("epoch message %d, ballot %" PRIx64 ", to id %" PRIu32, (int)message->type, message->ballot, to);
    if (slot == VIEW_NOBODY)
        return;
    if (outbox_failed(outbox, wire_paxos_pack(message, &bytes, &count), "a message of the next epoch"))
        return;
    if (slot == outbox->view->self) {
        say_own(outbox, message->type, bytes, count);
        return;
    }
    outbox->host->send(outbox->user, slot, message->type, bytes, count);
    mem_free(bytes);
}

struct own_message outbox_take_own(struct outbox *outbox)
{
    struct own_message own = outbox->own[0];
    memmove(outbox->own, outbox->own + 1, --outbox->own_count * sizeof own);
    return own;
}

void outbox_tell(const struct outbox *outbox, const struct membership_news *news)
{
    outbox->host->tell(outbox->user, news);
}

void outbox_tell_of(const struct outbox *outbox, enum membership_news_type type)
{
    outbox_tell(outbox, &(struct membership_news){.type = type});
}

bool outbox_failed(const struct outbox *outbox, enum err err, const char *what)
{
    if (err == ERR_OK)
        return false;
    outbox_tell(outbox, &(struct membership_news){.type = MEMBERSHIP_FAILED, .err = err, .text = what});
    return true;
}
