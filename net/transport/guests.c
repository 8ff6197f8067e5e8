/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/guests.h"

#include <string.h>

#include "common/mem.h"

/* A guest repeats itself every 2 s, and each time costs signature checks and a long answer. What it says more often
 * takes the place of what waits. */
static const struct quota_rule guest_rule = {.every_ms = 500, .at_once = 4};

void guests_free(struct guests *guests)
{
    mem_free(guests->list);
    *guests = (struct guests){.list = NULL};
}

enum err guests_admit(struct guests *guests, struct zap *zap, const uint8_t key[IDENT_KEY_BYTES], uint64_t until_ms)
{
    uint32_t number;
    if (guests->list == NULL)
        TRY(mem_new(ZAP_GUESTS_MAX, sizeof *guests->list, "guests", &guests->list));
    TRY(zap_admit_guest(zap, key, &number));
    struct guest *guest = &guests->list[number];
    if (!guest->used) {
        *guest = (struct guest){.used = true, .fd = -1};
        memcpy(guest->key, key, sizeof guest->key);
        guests->count++;
    }
    guest->until_ms = until_ms;
    return ERR_OK;
}

int guests_dismiss(struct guests *guests, struct zap *zap, uint32_t number)
{
    if (guests->list == NULL || number >= ZAP_GUESTS_MAX || !guests->list[number].used)
        return -1;
    int fd = guests->list[number].fd;
    zap_dismiss_guest(zap, number);
    guests->list[number].used = false;
    guests->count--;
    return fd;
}

uint32_t guests_over(const struct guests *guests, uint64_t now_ms)
{
    for (uint32_t i = 0; i < ZAP_GUESTS_MAX && guests->count > 0; i++)
        if (guests->list[i].used && now_ms >= guests->list[i].until_ms)
            return i;
    return ZAP_NOBODY;
}

int guests_said(struct guests *guests, uint32_t number, const void *route, size_t route_bytes, int fd,
                enum wire_type type, const void *message, size_t bytes)
{
    struct guest *guest = &guests->list[number];
    bool same = guest->serial != 0 && guest->route_bytes == route_bytes && guest->fd == fd &&
                memcmp(guest->route, route, route_bytes) == 0;
    int other = same || guest->serial == 0 || guest->fd == fd ? -1 : guest->fd;
    if (!same) {
        guest->serial = ++guests->serial;
        guest->route_bytes = route_bytes;
        memcpy(guest->route, route, route_bytes);
        guest->fd = fd;
    }
    memcpy(guest->said, message, bytes);
    guest->type = type;
    guest->bytes = bytes;
    guest->waiting = true;
    return other;
}

const struct guest *guests_next(struct guests *guests, uint64_t now_ms)
{
    for (uint32_t k = 0; k < ZAP_GUESTS_MAX && guests->count > 0; k++) {
        struct guest *guest = &guests->list[(guests->turn + k) % ZAP_GUESTS_MAX];
        if (!guest->used || !guest->waiting || !quota_take(&guest->heard, guest_rule, now_ms))
            continue;
        guest->waiting = false;
        guests->turn = (guests->turn + k + 1) % ZAP_GUESTS_MAX;
        return guest;
    }
    return NULL;
}

const struct guest *guests_of(const struct guests *guests, uint64_t serial)
{
    for (uint32_t i = 0; i < ZAP_GUESTS_MAX && guests->count > 0; i++)
        if (guests->list[i].used && guests->list[i].serial == serial)
            return &guests->list[i];
    return NULL;
}
