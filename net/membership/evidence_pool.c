/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/evidence_pool.h"

#include <inttypes.h>

#include "common/mem.h"
#include "net/membership/evidence.h"

/* As long as one whose word is broken takes part, the others are told so often. */
enum { EVIDENCE_ALL_MS = 2000 };

/* Whether it proves that this member broke its word. */
static enum err check(const struct evidence_pool *pool, uint32_t slot, const uint8_t *evidence, size_t count,
                      struct wire_object *first)
{
    struct wire_object second;
    const struct view_member *member = &pool->progress->view->members[slot];
    TRY(evidence_open(evidence, count, first, &second));
    if (first->key.owner != member->as.id)
        return err_set(ERR_PROTO, "evidence about id %" PRIu32 ", which is not island %s", first->key.owner,
                       member->as.name);
    return evidence_check_of(first, &second, pool->progress->config_log);
}

static void mark_broken(const struct evidence_pool *pool, uint32_t slot, const struct wire_object *what)
{
    struct seat *seat = &pool->progress->seat[slot];
    if (seat->broke_word)
        return;
    seat->broke_word = seat->evidence = true;
    outbox_tell(pool->outbox, &(struct membership_news){.type = MEMBERSHIP_BROKE_WORD,
                                                        .member = slot,
                                                        .fragment = what->key.fragment,
                                                        .version = what->key.version});
}

/* Of one member, if there is one. */
static enum err load(const struct evidence_pool *pool, uint32_t slot)
{
    const struct view_member *member = &pool->progress->view->members[slot];
    struct wire_object what;
    uint8_t *evidence;
    size_t count;
    enum err err = pool->outbox->host->load_evidence(pool->outbox->user, member->as.id, &evidence, &count);
    if (err == ERR_NOTFOUND)
        return ERR_OK;
    if (err == ERR_OK)
        err = check(pool, slot, evidence, count, &what);
    if (err == ERR_OK)
        mark_broken(pool, slot, &what);
    else if (err != ERR_NOMEM)
        outbox_tell(pool->outbox, &(struct membership_news){.type = MEMBERSHIP_NO_EVIDENCE, .member = slot});
    mem_free(evidence);
    return err == ERR_NOMEM ? err : ERR_OK;
}

enum err evidence_pool_load(const struct evidence_pool *pool)
{
    for (uint32_t i = 0; i < pool->progress->view->count; i++)
        if (pool->progress->view->members[i].used && !pool->progress->seat[i].broke_word)
            TRY(load(pool, i));
    return ERR_OK;
}

/* Keeps evidence that somebody told, and marks its member. `*news`: it was not known. ERR_PROTO: it proves nothing. */
static enum err keep(const struct evidence_pool *pool, uint32_t id, const uint8_t *evidence, size_t evidence_bytes,
                     bool *news)
{
    uint32_t slot = view_slot(pool->progress->view, id);
    struct wire_object what;
    *news = false;
    if (slot == VIEW_NOBODY)
        return err_set(ERR_NOTFOUND, "no island of id %" PRIu32 " is on the roster", id);
    if (pool->progress->seat[slot].broke_word)
        return ERR_OK;
    TRY(check(pool, slot, evidence, evidence_bytes, &what));
    TRY(pool->outbox->host->save_evidence(pool->outbox->user, id, evidence,
                                          evidence_bytes)); /* it is told again where this fails */
    mark_broken(pool, slot, &what);
    *news = true;
    return ERR_OK;
}

/* The message that tells the evidence about the next marked member after slot `*slot` (VIEW_NOBODY: the first): the
 * caller frees `*evidence` after it. False: there are no more. */
static bool next_evidence(const struct evidence_pool *pool, uint32_t *slot, struct paxos_message *message,
                          uint8_t **evidence)
{
    for (uint32_t i = *slot == VIEW_NOBODY ? 0 : *slot + 1; i < pool->progress->view->count; i++) {
        uint32_t id = pool->progress->view->members[i].as.id;
        size_t count;
        if (!pool->progress->view->members[i].used || !pool->progress->seat[i].broke_word ||
            pool->outbox->host->load_evidence(pool->outbox->user, id, evidence, &count) != ERR_OK)
            continue;
        *slot = i;
        *message = (struct paxos_message){.type = WIRE_EVIDENCE, .id = id, .bytes = *evidence, .bytes_count = count};
        return true;
    }
    return false;
}

/* Whether a marked member still takes part, by the newest configuration. */
static bool broken_takes_part(const struct evidence_pool *pool)
{
    for (uint32_t i = 0; i < pool->progress->view->count; i++) {
        const struct view_member *member = &pool->progress->view->members[i];
        bool takes_part = member->as.role == CONFIG_WITNESS ? member->as.voter : member->as.role != CONFIG_AWAY;
        if (member->used && pool->progress->seat[i].broke_word && takes_part)
            return true;
    }
    return false;
}

void evidence_pool_tell(const struct evidence_pool *pool, uint32_t to)
{
    const struct view *view = pool->progress->view;
    struct paxos_message message;
    uint8_t *evidence;
    uint32_t slot = VIEW_NOBODY;
    while (next_evidence(pool, &slot, &message, &evidence)) {
        for (uint32_t i = 0; i < view->count; i++)
            if (i != view->self && pool->progress->seat[i].up && (to == VIEW_NOBODY || to == i))
                outbox_send(pool->outbox, view->members[i].as.id, &message);
        mem_free(evidence);
    }
}

enum err evidence_pool_take(const struct evidence_pool *pool, uint32_t id, const uint8_t *evidence,
                            size_t evidence_bytes)
{
    bool news;
    TRY(keep(pool, id, evidence, evidence_bytes, &news));
    if (news)
        evidence_pool_tell(pool, VIEW_NOBODY);
    return ERR_OK;
}

void evidence_pool_tick(struct evidence_pool *pool, uint64_t now_ms)
{
    if (now_ms < pool->all_ms || !broken_takes_part(pool))
        return;
    pool->all_ms = now_ms + EVIDENCE_ALL_MS;
    evidence_pool_tell(pool, VIEW_NOBODY);
}

void evidence_pool_equivocation(const struct evidence_pool *pool, uint32_t owner, uint32_t fragment, uint64_t version)
{
    uint32_t slot = view_slot(pool->progress->view, owner);
    if (slot == VIEW_NOBODY) /* it has gone since */
        return;
    if (evidence_pool_load(pool) == ERR_OK && pool->progress->seat[slot].broke_word) {
        evidence_pool_tell(pool, VIEW_NOBODY);
        return;
    }
    /* The evidence could not be kept. */
    outbox_tell(pool->outbox,
                &(struct membership_news){
                    .type = MEMBERSHIP_EVIDENCE_LOST, .member = slot, .fragment = fragment, .version = version});
    /* As long as this process lives. What nobody else has seen is no reason to put it out: people have to. */
    pool->progress->seat[slot].broke_word = true;
}
