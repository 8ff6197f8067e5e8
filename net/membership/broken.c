/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/broken.h"

#include <inttypes.h>

#include "common/mem.h"
#include "net/membership/proof.h"

/* Whether it proves that this member broke its word. */
static enum err check(const struct seats *seats, uint32_t slot, const uint8_t *proof, size_t count,
                      struct wire_object *first)
{
    struct wire_object second;
    const struct view_member *member = &seats->view->members[slot];
    TRY(proof_open(proof, count, first, &second));
    if (first->key.owner != member->id)
        return err_set(ERR_PROTO, "a proof about id %" PRIu32 ", which is not island %s", first->key.owner,
                       member->name);
    return proof_check(first, &second, seats->view->nonce, member->key);
}

static void mark(struct seats *seats, uint32_t slot, const struct wire_object *what)
{
    struct seat *seat = &seats->seat[slot];
    if (seat->broke_word)
        return;
    seat->broke_word = true;
    seat->evict = slot != seats->view->self; /* of ourselves the others will see to it */
    seats->host->tell(seats->user, &(struct membership_news){.type = MEMBERSHIP_BROKE_WORD,
                                                             .member = slot,
                                                             .fragment = what->key.fragment,
                                                             .version = what->key.version});
}

/* Of one member, if there is one. */
static enum err load(struct seats *seats, uint32_t slot)
{
    const struct view_member *member = &seats->view->members[slot];
    struct wire_object what;
    uint8_t *proof;
    size_t count;
    enum err err = seats->host->load_proof(seats->user, member->id, &proof, &count);
    if (err == ERR_NOTFOUND)
        return ERR_OK;
    if (err == ERR_OK)
        err = check(seats, slot, proof, count, &what);
    if (err == ERR_OK)
        mark(seats, slot, &what);
    else if (err != ERR_NOMEM)
        seats->host->tell(seats->user, &(struct membership_news){.type = MEMBERSHIP_NO_PROOF, .member = slot});
    mem_free(proof);
    return err == ERR_NOMEM ? err : ERR_OK;
}

enum err broken_load(struct seats *seats)
{
    for (uint32_t i = 0; i < seats->view->count; i++)
        if (seats->view->members[i].used && !seats->seat[i].broke_word)
            TRY(load(seats, i));
    return ERR_OK;
}

enum err broken_take(struct seats *seats, uint32_t id, const uint8_t *proof, size_t proof_bytes, bool *news)
{
    uint32_t slot = view_slot(seats->view, id);
    struct wire_object what;
    *news = false;
    if (slot == VIEW_NOBODY)
        return err_set(ERR_NOTFOUND, "no island of id %" PRIu32 " is on the roster", id);
    if (seats->seat[slot].broke_word)
        return ERR_OK;
    TRY(check(seats, slot, proof, proof_bytes, &what));
    TRY(seats->host->save_proof(seats->user, id, proof, proof_bytes)); /* it is told again where this fails */
    mark(seats, slot, &what);
    *news = true;
    return ERR_OK;
}

bool broken_next(const struct seats *seats, uint32_t *slot, struct epoch_message *wish, uint8_t **proof)
{
    for (uint32_t i = *slot == VIEW_NOBODY ? 0 : *slot + 1; i < seats->view->count; i++) {
        uint32_t id = seats->view->members[i].id;
        size_t count;
        if (!seats->view->members[i].used || !seats->seat[i].broke_word ||
            seats->host->load_proof(seats->user, id, proof, &count) != ERR_OK)
            continue;
        *slot = i;
        *wish = (struct epoch_message){.type = WIRE_WISH, .wish = {.kind = WIRE_WISH_EVICT, .id = id}};
        wish->wish.proof = *proof;
        wish->wish.proof_bytes = count;
        return true;
    }
    return false;
}

bool broken_pending(const struct seats *seats)
{
    for (uint32_t i = 0; i < seats->view->count; i++) {
        const struct view_member *member = &seats->view->members[i];
        bool takes_part = member->role == RECORD_WITNESS ? member->voter : member->role != RECORD_AWAY;
        if (member->used && seats->seat[i].broke_word && takes_part)
            return true;
    }
    return false;
}
