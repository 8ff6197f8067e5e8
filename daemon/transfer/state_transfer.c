/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transfer/state_transfer.h"

#include <inttypes.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "common/quota.h"
#include "daemon/rounds/round_context.h"
#include "daemon/rounds/rounds.h"
#include "daemon/state/state_object.h"
#include "daemon/transfer/state_server.h"
#include "daemon/trainer/attachment.h"
#include "net/transfer/piece_picker.h"
#include "net/config/certificate.h"

/*
 * AGAIN: before a member is asked for a head again; SOON: if it said that it has the leaves no more. ANSWER: for the
 * first head to come, which may have to wait for a copy. HEAD: for one to be whole, as long as there are others; more
 * each time. ALONE: until nobody has it any more, but for those whose line is cut: STATE_SERVER_IDLE_MS, for so long
 * they keep their copy. SILENT: so much longer where one that was asked has not answered: behind a cut TCP may try
 * again after many seconds only.
 */
enum {
    AGAIN_MS = 2000,
    SOON_MS = 200,
    ANSWER_MS = 20000,
    HEAD_MS = 10000,
    ALONE_MS = 5000,
    SILENT_MS = ANSWER_MS - ALONE_MS
};
/* Of one fragment, while our disk keeps nothing: one state in so long. */
enum { PACED_MS = 30000 };

/* One fragment's. */
struct chase {
    bool on;     /* the core wants it */
    bool asking; /* it is its turn */
    bool handed; /* all of it is there, and being taken over */
    struct wire_key key;
    bool excused;    /* the head was proved without our signature: all of it is judged as the head was */
    uint32_t member; /* whom the core heard it of */
    struct digest hash;
    struct bitset asked, refused, bad, slow; /* for the head; who does not have it, whose was none, whose took long */
    struct bitset offered;                   /* who has it, while another's is on its way */
    uint64_t again_ms, alone_ms, head_ms;    /* head_ms: when the one on its way takes long */
    uint64_t cut_ms;                         /* until then who is cut off keeps its copy */
    uint64_t patience_ms;
    uint8_t *head; /* the one that is here, or on its way from `head_from` */
    uint64_t head_bytes;
    uint32_t head_from;
    struct state_head opened;
    struct piece_picker *picker; /* NULL: the head is not here */
    uint64_t begin_ms;
};

struct state_transfer {
    struct state_transfer_conf conf;
    struct chase *chases; /* [fragments] */
    uint64_t *paced_ms;   /* [fragments]: not before then, while our disk keeps nothing */
    uint32_t fragments;
    struct bitset liars;                /* for status */
    struct quota lines[VIEW_SLOTS_MAX]; /* in the log, about what a member sends */
    uint64_t now_ms, moved_ms;
};

enum err state_transfer_new(const struct state_transfer_conf *conf, struct state_transfer **out)
{
    struct state_transfer *state_transfer;
    *out = NULL;
    TRY(mem_new(1, sizeof *state_transfer, "states on their way in", &state_transfer));
    state_transfer->conf = *conf;
    state_transfer->fragments = conf->plan->fragments_count;
    enum err err = mem_new(state_transfer->fragments, sizeof *state_transfer->chases, "states on their way in",
                           &state_transfer->chases);
    if (err == ERR_OK)
        err = mem_new(state_transfer->fragments, sizeof *state_transfer->paced_ms, "states on their way in",
                      &state_transfer->paced_ms);
    if (err != ERR_OK)
        state_transfer_free(state_transfer);
    else
        *out = state_transfer;
    return err;
}

static const char *name_of(const struct state_transfer *state_transfer, uint32_t peer)
{
    return state_transfer->conf.view->members[peer].as.name;
}

static uint32_t id_of(const struct state_transfer *state_transfer, uint32_t peer)
{
    return state_transfer->conf.view->members[peer].as.id;
}

/* ---- an end ---- */

static struct wire_key head_key(const struct state_transfer *state_transfer, const struct chase *chase, uint32_t peer)
{
    struct wire_key key = chase->key;
    key.island = id_of(state_transfer, peer);
    return key;
}

static struct wire_key leaves_key(const struct state_transfer *state_transfer, const struct chase *chase,
                                  const struct piece_range *range)
{
    struct wire_key key = head_key(state_transfer, chase, range->peer);
    key.kind = WIRE_LEAVES;
    key.first = range->first;
    key.count = range->count;
    return key;
}

static void drop_head(struct state_transfer *state_transfer, struct chase *chase, enum wire_done status)
{
    const struct wire_key key = head_key(state_transfer, chase, chase->head_from);
    xfer_finish(state_transfer->conf.xfer, chase->head_from, &key, status);
    mem_free(chase->head);
    chase->head = NULL;
}

static void ask_ranges(struct state_transfer *state_transfer, struct chase *chase)
{
    enum piece_picker_do what;
    struct piece_range range;
    while (chase->picker != NULL && piece_picker_next(chase->picker, state_transfer->now_ms, &what, &range)) {
        const struct wire_key key = leaves_key(state_transfer, chase, &range);
        log_debug("%s island %s for the %s, from %" PRIu32 ", %" PRIu32,
                  what == PIECE_PICKER_DROP        ? "not asking"
                  : what == PIECE_PICKER_ASK_AGAIN ? "asking again"
                                                   : "asking",
                  name_of(state_transfer, range.peer), wire_key_text(&key), range.first, range.count);
        if (what == PIECE_PICKER_DROP)
            xfer_finish(state_transfer->conf.xfer, range.peer, &key, WIRE_NOT_NEEDED);
        else
            state_transfer->conf.fetch(state_transfer->conf.user, range.peer, &key);
    }
}

/* Nothing is written any more, and whoever keeps a copy for us need not. */
static void end_chase(struct state_transfer *state_transfer, struct chase *chase, bool keep_memory)
{
    uint32_t f = (uint32_t)(chase - state_transfer->chases);
    if (chase->head != NULL && chase->picker == NULL)
        drop_head(state_transfer, chase, WIRE_NOT_NEEDED);
    for (uint32_t i = 0; i < state_transfer->conf.view->count; i++) {
        if (!bitset_has(&chase->asked, i))
            continue;
        if (chase->picker != NULL)
            piece_picker_lose(chase->picker, i);
        ask_ranges(state_transfer, chase);
        const struct wire_key key = head_key(state_transfer, chase, i);
        xfer_finish(state_transfer->conf.xfer, i, &key, WIRE_NOT_NEEDED);
    }
    piece_picker_free(chase->picker);
    mem_free(chase->head);
    if (!keep_memory)
        slots_free_state(state_transfer->conf.slots, f);
    *chase = (struct chase){.on = false};
}

void state_transfer_free(struct state_transfer *state_transfer)
{
    if (state_transfer == NULL)
        return;
    for (uint32_t f = 0; state_transfer->chases != NULL && f < state_transfer->fragments; f++) {
        piece_picker_free(state_transfer->chases[f].picker);
        mem_free(state_transfer->chases[f].head);
    }
    mem_free(state_transfer->paced_ms);
    mem_free(state_transfer->chases);
    mem_free(state_transfer);
}

/* The core asks for another state, or again. */
static void give_up(struct state_transfer *state_transfer, struct chase *chase)
{
    const struct sync_event event = {
        .type = SYNC_EV_NOT_AVAILABLE, .member = chase->member, .key = chase->key, .fragment = chase->key.fragment};
    if (chase->picker != NULL)
        log_warn("fragment %" PRIu32 ": nobody has version %" PRIu64 " any more, of which %" PRIu64 " of %" PRIu64
                 " bytes are here; another one is fetched",
                 chase->key.fragment, chase->key.version, piece_picker_bytes(chase->picker), chase->opened.body_bytes);
    end_chase(state_transfer, chase, false);
    event_post_sync(state_transfer->conf.events, &event);
}

/* ---- a beginning ---- */

void state_transfer_want(struct state_transfer *state_transfer, const struct wire_key *key, uint32_t member)
{
    struct chase *chase = &state_transfer->chases[key->fragment];
    const struct wire_standing said = sync_heard(state_transfer->conf.sync, member, key->fragment);
    if (chase->handed)
        return;
    if (chase->on && chase->key.version == key->version && digest_equal(&chase->hash, &said.hash)) {
        chase->key = *key;
        chase->member = member;
        return;
    }
    if (chase->picker != NULL)
        log_warn("fragment %" PRIu32 ": version %" PRIu64 " is fetched now, and not version %" PRIu64
                 ", of which %" PRIu64 " of %" PRIu64 " bytes are here",
                 key->fragment, key->version, chase->key.version, piece_picker_bytes(chase->picker),
                 chase->opened.body_bytes);
    if (chase->on)
        end_chase(state_transfer, chase, false);
    *chase = (struct chase){.on = true, .key = *key, .member = member, .hash = said.hash, .patience_ms = HEAD_MS};
}

bool state_transfer_has_begun(const struct state_transfer *state_transfer, const struct wire_key *key)
{
    const struct chase *chase = &state_transfer->chases[key->fragment];
    return chase->on && chase->key.version == key->version;
}

bool state_transfer_comes(const struct state_transfer *state_transfer, const struct wire_key *key)
{
    return state_transfer_has_begun(state_transfer, key) && state_transfer->chases[key->fragment].picker != NULL;
}

/* ---- whom to ask ---- */

/* Whether a member says that it holds the state. */
static bool announces(const struct state_transfer *state_transfer, const struct chase *chase, uint32_t peer)
{
    const struct wire_standing said = sync_heard(state_transfer->conf.sync, peer, chase->key.fragment);
    return said.hash_known && said.version == chase->key.version && digest_equal(&said.hash, &chase->hash);
}

/* All who may have it and do not bring it yet. Who was asked may still have it, whatever it announces now. */
static void ask_for_heads(struct state_transfer *state_transfer, struct chase *chase)
{
    uint32_t asked = 0;
    chase->again_ms = state_transfer->now_ms + AGAIN_MS;
    for (uint32_t i = 0; i < state_transfer->conf.view->count && asked < PIECE_PICKER_SOURCES_MAX; i++) {
        bool may = announces(state_transfer, chase, i) || (chase->picker != NULL && bitset_has(&chase->asked, i));
        if (!may || !sync_up(state_transfer->conf.sync, i) || bitset_has(&chase->bad, i) ||
            (chase->picker != NULL && piece_picker_has(chase->picker, i)))
            continue;
        const struct wire_key key = head_key(state_transfer, chase, i);
        bitset_add(&chase->asked, i);
        bitset_remove(&chase->refused, i);
        bitset_remove(&chase->offered, i);
        asked++;
        log_debug("asking island %s for the head of the %s", name_of(state_transfer, i), wire_key_text(&key));
        state_transfer->conf.fetch(state_transfer->conf.user, i, &key);
    }
}

static bool wanted(const struct state_transfer *state_transfer, uint32_t f)
{
    struct wire_key key;
    return sync_fetching_state(state_transfer->conf.sync, f, &key) && key.kind == WIRE_STATE &&
           key.version == state_transfer->chases[f].key.version;
}

/* Whether a head may still come from anyone but those in `but`. */
static bool may_come(const struct state_transfer *state_transfer, const struct chase *chase, const struct bitset *but)
{
    for (uint32_t i = 0; i < state_transfer->conf.view->count; i++)
        if (bitset_has(&chase->asked, i) && !bitset_has(&chase->refused, i) && !bitset_has(&chase->bad, i) &&
            !bitset_has(but, i) && sync_up(state_transfer->conf.sync, i))
            return true;
    return false;
}

/* A head that stands still, or takes long, makes room for another's. */
static void look_at_head(struct state_transfer *state_transfer, struct chase *chase)
{
    const struct wire_key key = head_key(state_transfer, chase, chase->head_from);
    struct bitset slow = chase->slow;
    bitset_add(&slow, chase->head_from);
    if (!xfer_receiving(state_transfer->conf.xfer, &key)) {
        drop_head(state_transfer, chase, WIRE_NOT_NEEDED);
    } else if (state_transfer->now_ms >= chase->head_ms && may_come(state_transfer, chase, &slow)) {
        chase->slow = slow;
        drop_head(state_transfer, chase, WIRE_NOT_YET);
    }
}

/* A line was cut in the middle of it: who has the copy may be back at any moment. */
static bool is_cut_off(const struct state_transfer *state_transfer, const struct chase *chase)
{
    for (uint32_t i = 0; chase->picker != NULL && i < state_transfer->conf.view->count; i++)
        if (!sync_up(state_transfer->conf.sync, i) && bitset_has(&chase->asked, i) && !bitset_has(&chase->refused, i) &&
            !bitset_has(&chase->bad, i))
            return state_transfer->now_ms < chase->cut_ms;
    return false;
}

/* At first who has moved on is not waited for: the core asks for what they have now. */
static bool lost(const struct state_transfer *state_transfer, const struct chase *chase)
{
    static const struct bitset nobody;
    bool late = state_transfer->now_ms >= chase->alone_ms;
    bool may = may_come(state_transfer, chase, &nobody);
    if (chase->picker == NULL)
        return late || !may;
    return late && (!may || state_transfer->now_ms >= chase->alone_ms + SILENT_MS);
}

static void run_one(struct state_transfer *state_transfer, struct chase *chase)
{
    if (chase->handed)
        return;
    if (!wanted(state_transfer, chase->key.fragment)) {
        end_chase(state_transfer, chase, false);
        return;
    }
    for (uint32_t i = 0; chase->picker != NULL && i < state_transfer->conf.view->count; i++)
        if (bitset_has(&chase->asked, i) && !sync_up(state_transfer->conf.sync, i))
            piece_picker_lose(chase->picker, i);
    if (chase->head != NULL && chase->picker == NULL)
        look_at_head(state_transfer, chase);
    if (state_transfer->now_ms >= chase->again_ms)
        ask_for_heads(state_transfer, chase);
    ask_ranges(state_transfer, chase);
    bool comes = chase->picker != NULL ? piece_picker_sources(chase->picker) > 0 : chase->head != NULL;
    if (comes) {
        chase->alone_ms = state_transfer->now_ms + ALONE_MS;
        chase->cut_ms = state_transfer->now_ms + STATE_SERVER_IDLE_MS;
    } else if (is_cut_off(state_transfer, chase)) {
        chase->alone_ms = state_transfer->now_ms + ALONE_MS; /* when it is back it may take a moment */
    } else if (lost(state_transfer, chase)) {
        give_up(state_transfer, chase);
    }
}

/* Without a disk no result can be kept, so that states alone would come, each soon too old: a few do. */
static bool rests(const struct state_transfer *state_transfer, uint32_t f)
{
    const struct rounds *rounds = state_transfer->conf.rounds;
    return state_transfer->now_ms < state_transfer->paced_ms[f] && rounds != NULL &&
           round_context_refuses(rounds->context);
}

/* Whose turn it is: the one with the most values, so that none comes alone at the end. */
static struct chase *next_to_ask(struct state_transfer *state_transfer)
{
    const struct plan *plan = state_transfer->conf.plan;
    struct chase *next = NULL;
    for (uint32_t f = 0; f < state_transfer->fragments; f++) {
        struct chase *chase = &state_transfer->chases[f];
        if (!chase->on || chase->asking || rests(state_transfer, f) || !wanted(state_transfer, f))
            continue;
        if (next == NULL ||
            plan->fragments[f].values_count > plan->fragments[next - state_transfer->chases].values_count)
            next = chase;
    }
    return next;
}

static void begin_asking(struct state_transfer *state_transfer)
{
    uint32_t asking = 0;
    for (uint32_t f = 0; f < state_transfer->fragments; f++)
        asking += state_transfer->chases[f].on && state_transfer->chases[f].asking;
    for (struct chase *chase; asking < STATE_TRANSFER_AT_ONCE && (chase = next_to_ask(state_transfer)) != NULL;
         asking++) {
        chase->asking = true;
        state_transfer->paced_ms[chase - state_transfer->chases] = state_transfer->now_ms + PACED_MS;
        chase->begin_ms = state_transfer->now_ms;
        chase->alone_ms = state_transfer->now_ms + ANSWER_MS;
    }
}

void state_transfer_run(struct state_transfer *state_transfer, uint64_t now_ms)
{
    bool any = false;
    state_transfer->now_ms = now_ms;
    begin_asking(state_transfer);
    for (uint32_t f = 0; f < state_transfer->fragments; f++) {
        struct chase *chase = &state_transfer->chases[f];
        if (chase->on && chase->asking)
            run_one(state_transfer, chase);
        else if (chase->on && !wanted(state_transfer, f))
            end_chase(state_transfer, chase, false);
        any |= chase->on;
    }
    if (!any && state_transfer->conf.slots != NULL) /* a witness has none */
        slots_drop_spares(state_transfer->conf.slots);
}

/* ---- coming in ---- */

/* The chase that a name belongs to, if what it names was asked of this member. */
static struct chase *chase_of(struct state_transfer *state_transfer, uint32_t peer, const struct wire_key *key)
{
    if (key->fragment >= state_transfer->fragments)
        return NULL;
    struct chase *chase = &state_transfer->chases[key->fragment];
    bool ours = chase->on && chase->asking && !chase->handed && chase->key.version == key->version &&
                key->island == id_of(state_transfer, peer) && bitset_has(&chase->asked, peer);
    return ours ? chase : NULL;
}

static struct piece_range range_of(uint32_t peer, const struct wire_key *key)
{
    return (struct piece_range){.peer = peer, .first = key->first, .count = key->count};
}

static void lied(struct state_transfer *state_transfer, const struct chase *chase, uint32_t peer, const char *how)
{
    bitset_add(&state_transfer->liars, peer);
    if (log_line_of_one(&state_transfer->lines[peer], state_transfer->now_ms))
        log_error("island %s sent %s of the state of fragment %" PRIu32 ", version %" PRIu64
                  "; it is not asked for this state again",
                  name_of(state_transfer, peer), how, chase->key.fragment, chase->key.version);
}

static enum xfer_verdict offer_head(struct state_transfer *state_transfer, struct chase *chase, uint32_t peer,
                                    uint64_t total, struct xfer_offer *offer)
{
    uint64_t most =
        state_head_bytes_max(state_transfer->conf.replica, chase->key.fragment, state_transfer->conf.view->count);
    if (chase->picker != NULL) {
        offer->answer = piece_picker_add(chase->picker, peer, state_transfer->now_ms) ? WIRE_RECEIVED : WIRE_NOT_NEEDED;
        log_debug("island %s brings fragment %" PRIu32 ", version %" PRIu64 ", too", name_of(state_transfer, peer),
                  chase->key.fragment, chase->key.version);
        return XFER_ANSWER;
    }
    if (bitset_has(&chase->bad, peer) || total > most)
        return XFER_ANSWER;
    offer->answer = WIRE_NOT_YET;
    bitset_add(&chase->offered, peer);
    if (chase->head != NULL || attachment_initialising(state_transfer->conf.trainer->attachment))
        return XFER_ANSWER;
    if (bitset_has(&chase->slow, peer)) {
        if (may_come(state_transfer, chase, &chase->slow))
            return XFER_ANSWER;
        chase->slow = (struct bitset){{0}}; /* so are all */
        chase->patience_ms *= 2;
    }
    if (mem_new((size_t)total, 1, "the head of a state", &chase->head) != ERR_OK) {
        log_error("%s", err_text());
        return XFER_ANSWER;
    }
    chase->head_bytes = total;
    chase->head_from = peer;
    chase->head_ms = state_transfer->now_ms + chase->patience_ms;
    offer->buffer = chase->head;
    offer->bytes_max = total;
    return XFER_TAKE;
}

enum xfer_verdict state_transfer_offered(struct state_transfer *state_transfer, uint32_t peer,
                                         const struct wire_key *key, uint64_t total, struct xfer_offer *offer)
{
    struct chase *chase = chase_of(state_transfer, peer, key);
    const struct piece_range range = range_of(peer, key);
    offer->answer = WIRE_NOT_NEEDED;
    if (chase == NULL)
        return XFER_ANSWER;
    if (key->kind == WIRE_STATE)
        return offer_head(state_transfer, chase, peer, total, offer);
    if (chase->picker == NULL || !piece_picker_place(chase->picker, &range, &offer->buffer, &offer->bytes_max))
        return XFER_ANSWER;
    if (total == offer->bytes_max)
        return XFER_TAKE;
    piece_picker_condemn(chase->picker, peer);
    lied(state_transfer, chase, peer, "a range of another length than its leaves have");
    return XFER_ANSWER;
}

static struct state_expected expected_of(const struct state_transfer *state_transfer, struct chase *chase,
                                         struct certificate_rule *rule)
{
    const struct state_transfer_conf *conf = &state_transfer->conf;
    uint32_t f = chase->key.fragment, self = conf->view->self;
    bool excused = sync_excused(conf->sync, f, chase->key.version, self);
    chase->excused = excused;
    certificate_rule_of(conf->config_log, f, chase->key.version, rule);
    return (struct state_expected){.version = chase->key.version,
                                   .steps = config_steps_most(config_log_last(conf->config_log)),
                                   .nonce = conf->view->nonce,
                                   .rule = rule,
                                   .excused = excused ? id_of(state_transfer, self) : CERTIFICATE_NOBODY,
                                   .heard = conf->certificates,
                                   .hash = &chase->hash};
}

static enum err open_head(struct state_transfer *state_transfer, struct chase *chase)
{
    const struct state_transfer_conf *run = &state_transfer->conf;
    struct certificate_rule rule;
    uint8_t *object;
    const struct state_expected expected = expected_of(state_transfer, chase, &rule);
    TRY(state_head_open(run->replica, run->plan, chase->key.fragment, &expected, state_transfer->conf.view->count,
                        chase->head, chase->head_bytes, &chase->opened));
    TRY(slots_take_state(run->slots, chase->key.fragment, chase->opened.object_bytes, &object));
    state_head_begin(chase->head, &chase->opened, object);
    const struct piece_picker_conf conf = {.digests = chase->opened.leaves,
                                           .leaves_count = (uint32_t)chase->opened.leaves_count,
                                           .bytes = chase->opened.body_bytes,
                                           .body = object + STATE_HEADER_BYTES};
    return piece_picker_new(&conf, &chase->picker);
}

static void head_in(struct state_transfer *state_transfer, struct chase *chase, uint32_t peer)
{
    const struct wire_key key = head_key(state_transfer, chase, peer);
    enum err err = open_head(state_transfer, chase);
    if (err == ERR_AGAIN) { /* as one that does not have it yet: signatures are on their way */
        log_debug("the state of fragment %" PRIu32 " from island %s: %s", chase->key.fragment,
                  name_of(state_transfer, peer), err_text());
        bitset_add(&chase->refused, peer);
        drop_head(state_transfer, chase, WIRE_NOT_NEEDED);
        return;
    }
    if (err != ERR_OK) {
        if (log_line_of_one(&state_transfer->lines[peer], state_transfer->now_ms))
            log_error("the head of the state of fragment %" PRIu32 " from island %s cannot be used: %s; asking others",
                      chase->key.fragment, name_of(state_transfer, peer), err_text());
        bitset_add(&chase->bad, peer);
        drop_head(state_transfer, chase, WIRE_REFUSED);
        return;
    }
    chase->hash = chase->opened.hash;
    xfer_finish(state_transfer->conf.xfer, peer, &key, WIRE_RECEIVED);
    for (uint32_t i = 0; i < state_transfer->conf.view->count; i++)
        if (bitset_has(&chase->offered, i) && !bitset_has(&chase->refused, i) && !bitset_has(&chase->bad, i))
            (void)piece_picker_add(chase->picker, i, state_transfer->now_ms);
}

static void hand_on(struct state_transfer *state_transfer, struct chase *chase)
{
    uint64_t here = piece_picker_bytes(chase->picker), again = piece_picker_received(chase->picker) - here;
    log_info("fragment %" PRIu32 ": all of version %" PRIu64 " is here after %.1f s: %" PRIu64 " bytes from %" PRIu32
             " islands, and %" PRIu64 " bytes that had to come again",
             chase->key.fragment, chase->key.version, (double)(state_transfer->now_ms - chase->begin_ms) / 1000, here,
             piece_picker_givers(chase->picker), again);
    chase->handed = true;
    event_post(
        state_transfer->conf.events,
        &(struct event){.type = EVENT_OBJECT,
                        .fragment = chase->key.fragment,
                        .member = chase->member,
                        .object = {.key = chase->key, .bytes = chase->opened.object_bytes, .excused = chase->excused}});
}

static void leaves_in(struct state_transfer *state_transfer, struct chase *chase, uint32_t peer,
                      const struct wire_key *key, uint64_t have, bool whole)
{
    const struct piece_range range = range_of(peer, key);
    uint8_t *to;
    uint64_t bytes;
    if (!piece_picker_place(chase->picker, &range, &to, &bytes)) { /* it is another's by now */
        xfer_finish(state_transfer->conf.xfer, peer, key, WIRE_NOT_NEEDED);
        return;
    }
    bool good = piece_picker_in(chase->picker, &range, have, state_transfer->now_ms);
    if (!good)
        lied(state_transfer, chase, peer, "what is no part");
    if (whole)
        xfer_finish(state_transfer->conf.xfer, peer, key, good ? WIRE_RECEIVED : WIRE_REFUSED);
    if (piece_picker_whole(chase->picker))
        hand_on(state_transfer, chase);
    else
        ask_ranges(state_transfer, chase);
}

void state_transfer_in(struct state_transfer *state_transfer, uint32_t peer, const struct wire_key *key, uint64_t have,
                       bool whole, uint64_t now_ms)
{
    struct chase *chase = chase_of(state_transfer, peer, key);
    state_transfer->now_ms = state_transfer->moved_ms = now_ms;
    if (chase == NULL || (key->kind == WIRE_LEAVES && chase->picker == NULL)) {
        if (whole)
            xfer_finish(state_transfer->conf.xfer, peer, key, WIRE_NOT_NEEDED);
        return;
    }
    if (key->kind == WIRE_LEAVES)
        leaves_in(state_transfer, chase, peer, key, have, whole);
    else if (whole)
        head_in(state_transfer, chase, peer);
    if (whole)
        run_one(state_transfer, chase);
}

void state_transfer_not_available(struct state_transfer *state_transfer, uint32_t peer, const struct wire_key *key)
{
    struct chase *chase = chase_of(state_transfer, peer, key);
    log_debug("island %s has not the %s%s", name_of(state_transfer, peer), wire_key_text(key),
              chase == NULL ? ", which is not asked of it any more" : "");
    if (chase == NULL)
        return;
    if (key->kind == WIRE_LEAVES && chase->picker != NULL && piece_picker_has(chase->picker, peer)) {
        piece_picker_lose(chase->picker, peer);
        if (state_transfer->now_ms + SOON_MS < chase->again_ms)
            chase->again_ms = state_transfer->now_ms + SOON_MS;
    }
    if (key->kind != WIRE_STATE)
        return;
    bitset_add(&chase->refused, peer);
    if (chase->head != NULL && chase->picker == NULL && chase->head_from == peer)
        drop_head(state_transfer, chase, WIRE_NOT_NEEDED);
}

void state_transfer_judged(struct state_transfer *state_transfer, const struct wire_key *key)
{
    struct chase *chase = &state_transfer->chases[key->fragment];
    if (chase->handed)
        end_chase(state_transfer, chase, true);
}

void state_transfer_forget(struct state_transfer *state_transfer, uint32_t peer, bool gone)
{
    if (gone)
        bitset_remove(&state_transfer->liars, peer);
    for (uint32_t f = 0; f < state_transfer->fragments; f++) {
        struct chase *chase = &state_transfer->chases[f];
        if (!chase->on || chase->handed || !bitset_has(&chase->asked, peer))
            continue;
        if (chase->picker != NULL)
            piece_picker_lose(chase->picker, peer);
        if (chase->head != NULL && chase->picker == NULL && chase->head_from == peer)
            drop_head(state_transfer, chase, WIRE_NOT_NEEDED);
        bitset_add(&chase->refused, peer);
        chase->again_ms = 0;
    }
}

uint64_t state_transfer_bytes(const struct state_transfer *state_transfer, uint32_t f)
{
    const struct chase *chase = &state_transfer->chases[f];
    return chase->picker != NULL ? piece_picker_bytes(chase->picker) : 0;
}

uint64_t state_transfer_moved_ms(const struct state_transfer *state_transfer)
{
    return state_transfer->moved_ms;
}

bool state_transfer_lied(const struct state_transfer *state_transfer, uint32_t peer)
{
    return bitset_has(&state_transfer->liars, peer);
}
