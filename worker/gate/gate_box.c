/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/gate/gate_box.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "common/mem.h"

struct gate_item {
    uint64_t number;
    bool sends;
    uint32_t tag;
    char *bytes;
    size_t count, got;
    atomic_size_t out; /* pieces that libzmq still has */
    struct gate_item *next;
};

struct gate_early {
    uint32_t tag;
    zmq_msg_t piece;
    struct gate_early *next;
};

void gate_box_deinit(struct gate_box *box)
{
    for (struct gate_item *item = box->items, *next; item != NULL; item = next) {
        next = item->next;
        mem_free(item);
    }
    for (struct gate_early *early = box->early, *next; early != NULL; early = next) {
        next = early->next;
        box->zmq->zmq_msg_close(&early->piece);
        mem_free(early);
    }
    box->items = NULL;
    box->early = NULL;
}

/* ---- frames ---- */

static enum err put_frame(struct gate_box *box, const void *bytes, size_t count, int flags)
{
    zmq_msg_t frame;
    if (box->zmq->zmq_msg_init_size(&frame, count) != 0)
        return gate_zmq_failed(box->zmq, ERR_NOMEM, "a message");
    if (count > 0)
        memcpy(box->zmq->zmq_msg_data(&frame), bytes, count);
    if (box->zmq->zmq_msg_send(&frame, box->socket, flags | ZMQ_DONTWAIT) >= 0)
        return ERR_OK;
    box->zmq->zmq_msg_close(&frame);
    return err_set(ERR_CLOSED, "nobody is there any more");
}

static enum err put_head(struct gate_box *box, enum gate_kind kind, uint32_t tag, uint64_t value)
{
    struct gate_head head = {
        .magic = GATE_MAGIC, .version = GATE_VERSION, .kind = (uint16_t)kind, .tag = tag, .value = value};
    if (box->route_bytes > 0)
        TRY(put_frame(box, box->route, box->route_bytes, ZMQ_SNDMORE));
    return put_frame(box, &head, sizeof head, ZMQ_SNDMORE);
}

enum err gate_box_say(struct gate_box *box, enum gate_kind kind, uint32_t tag, uint64_t value, const void *bytes,
                      size_t count)
{
    TRY(put_head(box, kind, tag, value));
    return put_frame(box, bytes, count, 0);
}

/* ---- sending ---- */

/* On libzmq's thread. */
static void piece_is_out(void *data, void *hint)
{
    (void)data;
    atomic_fetch_sub((atomic_size_t *)hint, 1);
}

static enum err put_piece(struct gate_box *box, struct gate_item *item, size_t at, size_t count)
{
    zmq_msg_t piece;
    TRY(put_head(box, GATE_PIECE, item->tag, item->count));
    if (box->zmq->zmq_msg_init_data(&piece, item->bytes + at, count, piece_is_out, &item->out) != 0)
        return gate_zmq_failed(box->zmq, ERR_NOMEM, "a message");
    atomic_fetch_add(&item->out, 1);
    if (box->zmq->zmq_msg_send(&piece, box->socket, ZMQ_DONTWAIT) >= 0)
        return ERR_OK;
    box->zmq->zmq_msg_close(&piece); /* says that it is out */
    return err_set(ERR_CLOSED, "nobody is there any more");
}

static struct gate_item *new_item(struct gate_box *box, bool sends, uint32_t tag, char *bytes, size_t count)
{
    struct gate_item *item, **at = &box->items;
    if (mem_new(1, sizeof *item, "what is on its way", &item) != ERR_OK)
        return NULL;
    item->number = ++box->number;
    item->sends = sends;
    item->tag = tag;
    item->bytes = bytes;
    item->count = count;
    while (*at != NULL)
        at = &(*at)->next;
    *at = item;
    return item;
}

uint64_t gate_box_send(struct gate_box *box, uint32_t tag, const void *bytes, size_t count)
{
    struct gate_item *item = new_item(box, true, tag, (char *)(uintptr_t)bytes, count);
    for (size_t at = 0, piece; item != NULL && at < count; at += piece) {
        piece = count - at < GATE_PIECE_BYTES ? count - at : GATE_PIECE_BYTES;
        if (put_piece(box, item, at, piece) != ERR_OK)
            return 0; /* libzmq may still have pieces of it: it stays */
    }
    return item != NULL ? item->number : 0;
}

/* ---- receiving ---- */

static void put_down(struct gate_box *box, struct gate_item *item, zmq_msg_t *piece)
{
    size_t bytes = box->zmq->zmq_msg_size(piece);
    memcpy(item->bytes + item->got, box->zmq->zmq_msg_data(piece), bytes);
    item->got += bytes;
    box->zmq->zmq_msg_close(piece);
}

static struct gate_item *wanted(struct gate_box *box, uint32_t tag)
{
    for (struct gate_item *item = box->items; item != NULL; item = item->next)
        if (!item->sends && item->tag == tag && item->got < item->count)
            return item;
    return NULL;
}

enum err gate_box_take(struct gate_box *box, uint32_t tag, zmq_msg_t *piece)
{
    struct gate_item *item = wanted(box, tag);
    if (item != NULL && box->zmq->zmq_msg_size(piece) > item->count - item->got)
        return err_set(ERR_PROTO, "more bytes of kind %u than were asked for", tag);
    if (item != NULL) {
        put_down(box, item, piece);
        return ERR_OK;
    }
    struct gate_early *early, **at = &box->early;
    TRY(mem_new(1, sizeof *early, "what came early", &early));
    early->tag = tag;
    box->zmq->zmq_msg_init(&early->piece);
    box->zmq->zmq_msg_move(&early->piece, piece);
    while (*at != NULL)
        at = &(*at)->next;
    *at = early;
    return ERR_OK;
}

uint64_t gate_box_receive(struct gate_box *box, uint32_t tag, void *bytes, size_t count)
{
    struct gate_item *item = new_item(box, false, tag, bytes, count);
    for (struct gate_early **at = &box->early, *early; item != NULL && (early = *at) != NULL && item->got < count;) {
        if (early->tag != tag) {
            at = &early->next;
            continue;
        }
        if (box->zmq->zmq_msg_size(&early->piece) > count - item->got)
            return 0;
        put_down(box, item, &early->piece);
        *at = early->next;
        mem_free(early);
    }
    return item != NULL ? item->number : 0;
}

int gate_box_arrived(struct gate_box *box, uint64_t number)
{
    for (struct gate_item **at = &box->items, *item; (item = *at) != NULL; at = &item->next) {
        if (item->number != number)
            continue;
        if (item->sends ? atomic_load(&item->out) > 0 : item->got < item->count)
            return 0;
        *at = item->next;
        mem_free(item);
        return 1;
    }
    return -1;
}
