/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transfer/lend.h"

#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "daemon/state/memory.h"
#include "daemon/state/state_object.h"

struct reader {
    bool used;
    uint32_t peer;
    uint64_t heard_ms;
    uint8_t *head; /* that goes out, or went; NULL: not yet */
    uint64_t head_bytes;
};

struct lent {
    bool used, made;
    struct state_loan loan; /* a job is at it until `made` */
    uint8_t *memory;        /* of `loan`, or of the one before: pages that the kernel need not clear again */
    uint64_t memory_bytes, used_ms;
    struct reader readers[LEND_READERS_MAX];
};

struct lend {
    struct lend_conf conf;
    struct lent copies[MEMORY_STATES_SERVED];
};

enum err lend_new(const struct lend_conf *conf, struct lend **out)
{
    TRY(mem_new(1, sizeof **out, "copies of states", out));
    (*out)->conf = *conf;
    return ERR_OK;
}

static void end_reader(struct lend *lend, struct reader *reader)
{
    if (reader->head != NULL)
        xfer_withdraw(lend->conf.xfer, reader->head, reader->head_bytes);
    mem_free(reader->head);
    *reader = (struct reader){.used = false};
}

static void end_copy(struct lend *lend, struct lent *copy)
{
    for (uint32_t i = 0; i < LEND_READERS_MAX; i++)
        end_reader(lend, &copy->readers[i]);
    if (copy->loan.object != NULL)
        xfer_withdraw(lend->conf.xfer, copy->loan.object, copy->loan.bytes);
    mem_free(copy->loan.leaves);
    *copy = (struct lent){.memory = copy->memory, .memory_bytes = copy->memory_bytes, .used_ms = copy->used_ms};
}

static void free_memory(struct lent *copy)
{
    mem_pages_free(copy->memory, (size_t)copy->memory_bytes, 1);
    copy->memory = NULL;
    copy->memory_bytes = 0;
}

void lend_free(struct lend *lend)
{
    if (lend == NULL)
        return;
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED; i++) {
        end_copy(lend, &lend->copies[i]);
        free_memory(&lend->copies[i]);
    }
    mem_free(lend);
}

/* ---- copies ---- */

static struct lent *find_copy(struct lend *lend, uint32_t f, uint64_t version)
{
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED; i++) {
        struct lent *copy = &lend->copies[i];
        if (copy->used && copy->loan.f == f && copy->loan.state.version == version)
            return copy;
    }
    return NULL;
}

/* States differ in length by some rows: memory is made in steps. */
static enum err make_memory(struct lent *copy, uint64_t bytes)
{
    enum { STEP = 4 << 10 };
    if (copy->memory_bytes >= bytes && copy->memory_bytes / 2 <= bytes)
        return ERR_OK;
    free_memory(copy);
    uint64_t room = (bytes + STEP - 1) / STEP * STEP;
    TRY(mem_pages_new((size_t)room, 1, "a state to send", &copy->memory));
    copy->memory_bytes = room;
    return ERR_OK;
}

/* Begins one of our present state; NULL: we are not at that version, or it is changing, or there is no room. */
static struct lent *new_copy(struct lend *lend, uint32_t f, uint64_t version)
{
    const struct lend_conf *run = &lend->conf;
    const struct store_fragment *state = rounds_state(run->rounds, f);
    enum sync_state doing = sync_state(run->sync, f);
    struct lent *copy = NULL;
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED && copy == NULL; i++)
        if (!lend->copies[i].used)
            copy = &lend->copies[i];
    if (copy == NULL || doing == SYNC_APPLYING || doing == SYNC_REPAIR || !sync_known(run->sync, f) ||
        version != state->version)
        return NULL;
    struct state_loan *loan = &copy->loan;
    *loan = (struct state_loan){.f = f, .state = *state, .bytes = state_object_bytes(run->replica, f)};
    if (make_memory(copy, loan->bytes) != ERR_OK ||
        mem_new(state_object_leaves(loan->bytes), sizeof *loan->leaves, "a state to send", &loan->leaves) != ERR_OK) {
        log_error("%s", err_text());
        end_copy(lend, copy);
        return NULL;
    }
    loan->object = copy->memory;
    copy->used = true;
    event_post(lend->conf.events, &(struct event){.type = EVENT_LEND, .fragment = f, .lend = {.loan = loan}});
    return copy;
}

static struct reader *find_reader(struct lent *copy, uint32_t peer)
{
    for (uint32_t i = 0; i < LEND_READERS_MAX; i++)
        if (copy->readers[i].used && copy->readers[i].peer == peer)
            return &copy->readers[i];
    return NULL;
}

static struct reader *new_reader(struct lent *copy, uint32_t peer)
{
    for (uint32_t i = 0; i < LEND_READERS_MAX; i++)
        if (!copy->readers[i].used) {
            copy->readers[i] = (struct reader){.used = true, .peer = peer};
            return &copy->readers[i];
        }
    return NULL;
}

static void end_if_unread(struct lend *lend, struct lent *copy)
{
    bool read = !copy->made; /* a job is at it */
    for (uint32_t i = 0; i < LEND_READERS_MAX; i++)
        read |= copy->readers[i].used;
    if (!read)
        end_copy(lend, copy);
}

/* ---- going out ---- */

static struct wire_key head_key(const struct lend *lend, const struct lent *copy)
{
    return (struct wire_key){.kind = WIRE_STATE,
                             .fragment = copy->loan.f,
                             .version = copy->loan.state.version,
                             .island = lend->conf.view->members[lend->conf.view->self].as.id};
}

/* What voters signed of it, as far as is known here: whether that is enough is for who asks to say, who may have heard
 * others. Nobody votes on initial tensors. */
static void certify(struct lend *lend, const struct state_loan *loan, struct vouch_certificate *out)
{
    const struct vouch_subject subject = {
        .nonce = lend->conf.view->nonce, .fragment = loan->f, .version = loan->state.version, .hash = loan->state.hash};
    out->count = 0;
    if (loan->state.version > 0)
        vouches_known(lend->conf.vouches, &subject, out);
}

static bool send(struct lend *lend, uint32_t peer, const struct wire_key *key, const uint8_t *data, uint64_t bytes,
                 bool ask_first, uint64_t now_ms)
{
    enum err err = xfer_send(lend->conf.xfer, peer, key, data, bytes, ask_first, now_ms);
    if (err != ERR_OK)
        log_error("cannot send the %s: %s", wire_key_text(key), err_text());
    return err == ERR_OK;
}

/* A peer may have the head from another of us already, so it is asked before. */
static bool send_head(struct lend *lend, struct lent *copy, struct reader *reader, uint64_t now_ms)
{
    const struct wire_key key = head_key(lend, copy);
    struct vouch_certificate certificate;
    reader->heard_ms = now_ms;
    if (reader->head == NULL) {
        certify(lend, &copy->loan, &certificate);
        reader->head_bytes = state_head_bytes(copy->loan.bytes, &certificate);
        if (mem_new((size_t)reader->head_bytes, 1, "a state to send", &reader->head) != ERR_OK)
            return false;
        state_head_make(copy->loan.object, copy->loan.bytes, copy->loan.leaves, &certificate, reader->head);
    }
    return send(lend, reader->peer, &key, reader->head, reader->head_bytes, true, now_ms);
}

static bool head_asked(struct lend *lend, uint32_t peer, const struct wire_key *key, uint64_t now_ms)
{
    struct lent *copy = find_copy(lend, key->fragment, key->version);
    if (copy == NULL)
        copy = new_copy(lend, key->fragment, key->version);
    struct reader *reader = copy != NULL ? find_reader(copy, peer) : NULL;
    if (copy != NULL && reader == NULL)
        reader = new_reader(copy, peer);
    if (reader == NULL)
        return false;
    if (!copy->made || send_head(lend, copy, reader, now_ms))
        return true;
    end_reader(lend, reader);
    end_if_unread(lend, copy);
    return false;
}

static bool leaves_asked(struct lend *lend, uint32_t peer, const struct wire_key *key, uint64_t now_ms)
{
    struct lent *copy = find_copy(lend, key->fragment, key->version);
    struct reader *reader = copy != NULL && copy->made ? find_reader(copy, peer) : NULL;
    if (reader == NULL || xfer_sending(lend->conf.xfer, peer, WIRE_LEAVES) >= LEND_RANGES_MAX ||
        (size_t)key->first + key->count > state_object_leaves(copy->loan.bytes))
        return false;
    uint64_t first = (uint64_t)key->first * DIGEST_LEAF_BYTES, bytes = (uint64_t)key->count * DIGEST_LEAF_BYTES;
    uint64_t there = copy->loan.bytes - STATE_HEADER_BYTES - first;
    reader->heard_ms = now_ms;
    return send(lend, peer, key, copy->loan.object + STATE_HEADER_BYTES + first, bytes < there ? bytes : there, false,
                now_ms);
}

void lend_fetch(struct lend *lend, uint32_t peer, const struct wire_key *key, uint64_t now_ms)
{
    const struct view *view = lend->conf.view;
    bool ours = key->island == view->members[view->self].as.id && key->fragment < lend->conf.fragments_count;
    if (!ours || !(key->kind == WIRE_STATE ? head_asked : leaves_asked)(lend, peer, key, now_ms))
        lend->conf.not_available(lend->conf.user, peer, key);
}

void lend_made(struct lend *lend, const struct state_loan *loan, enum err err, uint64_t now_ms)
{
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED; i++) {
        struct lent *copy = &lend->copies[i];
        if (&copy->loan != loan)
            continue;
        copy->made = true;
        for (uint32_t r = 0; r < LEND_READERS_MAX; r++) {
            struct reader *reader = &copy->readers[r];
            if (!reader->used || (err == ERR_OK && send_head(lend, copy, reader, now_ms)))
                continue;
            const struct wire_key key = head_key(lend, copy);
            lend->conf.not_available(lend->conf.user, reader->peer, &key);
            end_reader(lend, reader);
        }
        end_if_unread(lend, copy);
    }
}

void lend_heard(struct lend *lend, uint32_t peer, const struct wire_key *key, bool ended, uint64_t now_ms)
{
    struct lent *copy = find_copy(lend, key->fragment, key->version);
    struct reader *reader = copy != NULL ? find_reader(copy, peer) : NULL;
    if (reader == NULL)
        return;
    reader->heard_ms = now_ms;
    if (!ended)
        return;
    end_reader(lend, reader);
    end_if_unread(lend, copy);
}

void lend_forget(struct lend *lend, uint32_t peer)
{
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED; i++) {
        struct lent *copy = &lend->copies[i];
        struct reader *reader = copy->used ? find_reader(copy, peer) : NULL;
        if (reader == NULL)
            continue;
        end_reader(lend, reader);
        end_if_unread(lend, copy);
    }
}

void lend_tick(struct lend *lend, uint64_t now_ms)
{
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED; i++) {
        struct lent *copy = &lend->copies[i];
        for (uint32_t r = 0; copy->made && r < LEND_READERS_MAX; r++) {
            struct reader *reader = &copy->readers[r];
            if (reader->used && now_ms >= reader->heard_ms + LEND_IDLE_MS)
                end_reader(lend, reader);
        }
        if (copy->used) {
            copy->used_ms = now_ms;
            end_if_unread(lend, copy);
        } else if (now_ms >= copy->used_ms + LEND_IDLE_MS) {
            free_memory(copy);
        }
    }
}
