/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transfer/state_server.h"

#include <inttypes.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "daemon/state/state_object.h"

struct reader {
    bool used;
    uint32_t peer;
    uint64_t heard_ms;
    uint8_t *head; /* that goes out, or went; NULL: not yet */
    uint64_t head_bytes;
};

struct served {
    bool used, made;
    struct served_state served; /* a job is at it until `made` */
    uint8_t *memory;            /* of `served`, or of the one before: pages that the kernel need not clear again */
    uint64_t memory_bytes, used_ms;
    struct reader readers[STATE_SERVER_READERS_MAX];
};

struct state_server {
    struct state_server_conf conf;
    struct served copies[MEMORY_STATES_SERVED];
};

enum err state_server_new(const struct state_server_conf *conf, struct state_server **out)
{
    TRY(mem_new(1, sizeof **out, "copies of states", out));
    (*out)->conf = *conf;
    return ERR_OK;
}

static void end_reader(struct state_server *server, struct reader *reader)
{
    if (reader->head != NULL)
        xfer_withdraw(server->conf.xfer, reader->head, reader->head_bytes);
    mem_free(reader->head);
    *reader = (struct reader){.used = false};
}

static void end_copy(struct state_server *server, struct served *copy)
{
    if (copy->used)
        log_debug("the copy of fragment %" PRIu32 ", version %" PRIu64 ", is let go", copy->served.f,
                  copy->served.state.version);
    for (uint32_t i = 0; i < STATE_SERVER_READERS_MAX; i++)
        end_reader(server, &copy->readers[i]);
    if (copy->served.object != NULL)
        xfer_withdraw(server->conf.xfer, copy->served.object, copy->served.bytes);
    mem_free(copy->served.leaves);
    *copy = (struct served){.memory = copy->memory, .memory_bytes = copy->memory_bytes, .used_ms = copy->used_ms};
}

static void free_memory(struct served *copy)
{
    mem_pages_free(copy->memory, (size_t)copy->memory_bytes, 1);
    copy->memory = NULL;
    copy->memory_bytes = 0;
}

void state_server_free(struct state_server *server)
{
    if (server == NULL)
        return;
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED; i++) {
        end_copy(server, &server->copies[i]);
        free_memory(&server->copies[i]);
    }
    mem_free(server);
}

/* ---- copies ---- */

static struct served *find_copy(struct state_server *server, uint32_t f, uint64_t version)
{
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED; i++) {
        struct served *copy = &server->copies[i];
        if (copy->used && copy->served.f == f && copy->served.state.version == version)
            return copy;
    }
    return NULL;
}

/* States differ in length by some rows: memory is made in steps. */
static enum err make_memory(struct served *copy, uint64_t bytes)
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
static struct served *new_copy(struct state_server *server, uint32_t f, uint64_t version)
{
    const struct state_server_conf *run = &server->conf;
    const struct store_fragment *state = rounds_state(run->rounds, f);
    enum sync_state doing = sync_state(run->sync, f);
    struct served *copy = NULL;
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED && copy == NULL; i++)
        if (!server->copies[i].used)
            copy = &server->copies[i];
    if (copy == NULL || doing == SYNC_APPLYING || doing == SYNC_REPAIR || !sync_known(run->sync, f) ||
        version != state->version)
        return NULL;
    struct served_state *served = &copy->served;
    *served = (struct served_state){.f = f, .state = *state, .bytes = state_object_bytes(run->replica, f)};
    if (make_memory(copy, served->bytes) != ERR_OK ||
        mem_new(state_object_leaves(served->bytes), sizeof *served->leaves, "a state to send", &served->leaves) !=
            ERR_OK) {
        log_error("%s", err_text());
        end_copy(server, copy);
        return NULL;
    }
    served->object = copy->memory;
    copy->used = true;
    event_post(server->conf.events,
               &(struct event){.type = EVENT_SERVE_STATE, .fragment = f, .server = {.served = served}});
    return copy;
}

static struct reader *find_reader(struct served *copy, uint32_t peer)
{
    for (uint32_t i = 0; i < STATE_SERVER_READERS_MAX; i++)
        if (copy->readers[i].used && copy->readers[i].peer == peer)
            return &copy->readers[i];
    return NULL;
}

static struct reader *new_reader(struct served *copy, uint32_t peer)
{
    for (uint32_t i = 0; i < STATE_SERVER_READERS_MAX; i++)
        if (!copy->readers[i].used) {
            copy->readers[i] = (struct reader){.used = true, .peer = peer};
            return &copy->readers[i];
        }
    return NULL;
}

static void end_if_unread(struct state_server *server, struct served *copy)
{
    bool read = !copy->made; /* a job is at it */
    for (uint32_t i = 0; i < STATE_SERVER_READERS_MAX; i++)
        read |= copy->readers[i].used;
    if (!read)
        end_copy(server, copy);
}

/* ---- going out ---- */

static struct wire_key head_key(const struct state_server *server, const struct served *copy)
{
    return (struct wire_key){.kind = WIRE_STATE,
                             .fragment = copy->served.f,
                             .version = copy->served.state.version,
                             .island = server->conf.view->members[server->conf.view->self].as.id};
}

/* What voters signed of it, as far as is known here: whether that is enough is for who asks to say, who may have heard
 * others. Nobody votes on initial tensors. */
static void certify(struct state_server *server, const struct served_state *served, struct certificate *out)
{
    const struct certificate_subject subject = {.nonce = server->conf.view->nonce,
                                                .fragment = served->f,
                                                .version = served->state.version,
                                                .hash = served->state.hash};
    out->count = 0;
    if (served->state.version > 0)
        certificates_known(server->conf.certificates, &subject, out);
}

static bool send(struct state_server *server, uint32_t peer, const struct wire_key *key, const uint8_t *data,
                 uint64_t bytes, bool ask_first, uint64_t now_ms)
{
    enum err err = xfer_send(server->conf.xfer, peer, key, data, bytes, ask_first, now_ms);
    if (err != ERR_OK)
        log_error("cannot send the %s: %s", wire_key_text(key), err_text());
    return err == ERR_OK;
}

/* A peer may have the head from another of us already, so it is asked before. */
static bool send_head(struct state_server *server, struct served *copy, struct reader *reader, uint64_t now_ms)
{
    const struct wire_key key = head_key(server, copy);
    struct certificate certificate;
    reader->heard_ms = now_ms;
    if (reader->head == NULL) {
        certify(server, &copy->served, &certificate);
        reader->head_bytes = state_head_bytes(copy->served.bytes, &certificate);
        if (mem_new((size_t)reader->head_bytes, 1, "a state to send", &reader->head) != ERR_OK)
            return false;
        state_head_make(copy->served.object, copy->served.bytes, copy->served.leaves, &certificate, reader->head);
    }
    return send(server, reader->peer, &key, reader->head, reader->head_bytes, true, now_ms);
}

static uint32_t copies_of(struct state_server *server, uint32_t peer)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED; i++)
        count += server->copies[i].used && find_reader(&server->copies[i], peer) != NULL;
    return count;
}

static bool head_asked(struct state_server *server, uint32_t peer, const struct wire_key *key, uint64_t now_ms)
{
    struct served *copy = find_copy(server, key->fragment, key->version);
    if (copy == NULL && copies_of(server, peer) < STATE_SERVER_OF_ONE)
        copy = new_copy(server, key->fragment, key->version);
    struct reader *reader = copy != NULL ? find_reader(copy, peer) : NULL;
    if (copy != NULL && reader == NULL)
        reader = new_reader(copy, peer);
    if (reader == NULL)
        return false;
    if (!copy->made || send_head(server, copy, reader, now_ms))
        return true;
    end_reader(server, reader);
    end_if_unread(server, copy);
    return false;
}

static bool leaves_asked(struct state_server *server, uint32_t peer, const struct wire_key *key, uint64_t now_ms)
{
    struct served *copy = find_copy(server, key->fragment, key->version);
    struct reader *reader = copy != NULL && copy->made ? find_reader(copy, peer) : NULL;
    if (reader == NULL || xfer_sending(server->conf.xfer, peer, WIRE_LEAVES) >= STATE_SERVER_RANGES_MAX ||
        (size_t)key->first + key->count > state_object_leaves(copy->served.bytes))
        return false;
    uint64_t first = (uint64_t)key->first * DIGEST_LEAF_BYTES, bytes = (uint64_t)key->count * DIGEST_LEAF_BYTES;
    uint64_t there = copy->served.bytes - STATE_HEADER_BYTES - first;
    reader->heard_ms = now_ms;
    return send(server, peer, key, copy->served.object + STATE_HEADER_BYTES + first, bytes < there ? bytes : there,
                false, now_ms);
}

void state_server_fetch(struct state_server *server, uint32_t peer, const struct wire_key *key, uint64_t now_ms)
{
    const struct view *view = server->conf.view;
    bool ours = key->island == view->members[view->self].as.id && key->fragment < server->conf.fragments_count;
    if (!ours || !(key->kind == WIRE_STATE ? head_asked : leaves_asked)(server, peer, key, now_ms))
        server->conf.not_available(server->conf.user, peer, key);
}

void state_server_made(struct state_server *server, const struct served_state *served, enum err err, uint64_t now_ms)
{
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED; i++) {
        struct served *copy = &server->copies[i];
        if (&copy->served != served)
            continue;
        copy->made = true;
        for (uint32_t r = 0; r < STATE_SERVER_READERS_MAX; r++) {
            struct reader *reader = &copy->readers[r];
            if (!reader->used || (err == ERR_OK && send_head(server, copy, reader, now_ms)))
                continue;
            const struct wire_key key = head_key(server, copy);
            server->conf.not_available(server->conf.user, reader->peer, &key);
            end_reader(server, reader);
        }
        end_if_unread(server, copy);
    }
}

void state_server_heard(struct state_server *server, uint32_t peer, const struct wire_key *key, bool ended,
                        uint64_t now_ms)
{
    struct served *copy = find_copy(server, key->fragment, key->version);
    struct reader *reader = copy != NULL ? find_reader(copy, peer) : NULL;
    if (reader == NULL)
        return;
    reader->heard_ms = now_ms;
    if (!ended)
        return;
    end_reader(server, reader);
    end_if_unread(server, copy);
}

void state_server_forget(struct state_server *server, uint32_t peer)
{
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED; i++) {
        struct served *copy = &server->copies[i];
        struct reader *reader = copy->used ? find_reader(copy, peer) : NULL;
        if (reader == NULL)
            continue;
        end_reader(server, reader);
        end_if_unread(server, copy);
    }
}

void state_server_tick(struct state_server *server, uint64_t now_ms)
{
    for (uint32_t i = 0; i < MEMORY_STATES_SERVED; i++) {
        struct served *copy = &server->copies[i];
        for (uint32_t r = 0; copy->made && r < STATE_SERVER_READERS_MAX; r++) {
            struct reader *reader = &copy->readers[r];
            if (reader->used && now_ms >= reader->heard_ms + STATE_SERVER_IDLE_MS)
                end_reader(server, reader);
        }
        if (copy->used) {
            copy->used_ms = now_ms;
            end_if_unread(server, copy);
        } else if (now_ms >= copy->used_ms + STATE_SERVER_IDLE_MS) {
            free_memory(copy);
        }
    }
}
