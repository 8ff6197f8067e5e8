/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transfer/catchup.h"

#include <inttypes.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "daemon/rounds/desk.h"
#include "daemon/rounds/rounds.h"
#include "daemon/state/state_object.h"
#include "daemon/trainer/attachment.h"
#include "net/transfer/gather.h"
#include "net/config/vouch.h"

/*
 * AGAIN: before a member is asked for a head again; SOON: if it said that it has the leaves no more. ANSWER: for the
 * first head to come, which may have to wait for a copy. HEAD: for one to be whole, as long as there are others; more
 * each time. ALONE: until nobody has it any more.
 */
enum { AGAIN_MS = 2000, SOON_MS = 200, ANSWER_MS = 20000, HEAD_MS = 10000, ALONE_MS = 5000 };
/* Of one fragment, while our disk keeps nothing: one state in so long. */
enum { PACED_MS = 30000 };

/* One fragment's. */
struct chase {
    bool on;     /* the core wants it */
    bool asking; /* it is its turn */
    bool handed; /* all of it is there, and being taken over */
    struct wire_key key;
    uint32_t member; /* whom the core heard it of */
    struct digest hash;
    struct bitset asked, refused, bad, slow; /* for the head; who does not have it, whose was none, whose took long */
    struct bitset offered;                   /* who has it, while another's is on its way */
    uint64_t again_ms, alone_ms, head_ms;    /* head_ms: when the one on its way takes long */
    uint64_t patience_ms;
    uint8_t *head; /* the one that is here, or on its way from `head_from` */
    uint64_t head_bytes;
    uint32_t head_from;
    struct state_head opened;
    struct gather *gather; /* NULL: the head is not here */
    uint64_t begin_ms;
};

struct catchup {
    struct catchup_conf conf;
    struct chase *chases; /* [fragments] */
    uint64_t *paced_ms;   /* [fragments]: not before then, while our disk keeps nothing */
    uint32_t fragments;
    struct bitset liars; /* for status */
    uint64_t now_ms, moved_ms;
};

enum err catchup_new(const struct catchup_conf *conf, struct catchup **out)
{
    struct catchup *catchup;
    *out = NULL;
    TRY(mem_new(1, sizeof *catchup, "states on their way in", &catchup));
    catchup->conf = *conf;
    catchup->fragments = conf->plan->fragments_count;
    enum err err = mem_new(catchup->fragments, sizeof *catchup->chases, "states on their way in", &catchup->chases);
    if (err == ERR_OK)
        err = mem_new(catchup->fragments, sizeof *catchup->paced_ms, "states on their way in", &catchup->paced_ms);
    if (err != ERR_OK)
        catchup_free(catchup);
    else
        *out = catchup;
    return err;
}

static const char *name_of(const struct catchup *catchup, uint32_t peer)
{
    return catchup->conf.view->members[peer].as.name;
}

static uint32_t id_of(const struct catchup *catchup, uint32_t peer)
{
    return catchup->conf.view->members[peer].as.id;
}

/* ---- an end ---- */

static struct wire_key head_key(const struct catchup *catchup, const struct chase *chase, uint32_t peer)
{
    struct wire_key key = chase->key;
    key.island = id_of(catchup, peer);
    return key;
}

static struct wire_key leaves_key(const struct catchup *catchup, const struct chase *chase,
                                  const struct gather_range *range)
{
    struct wire_key key = head_key(catchup, chase, range->peer);
    key.kind = WIRE_LEAVES;
    key.first = range->first;
    key.count = range->count;
    return key;
}

static void drop_head(struct catchup *catchup, struct chase *chase, enum wire_done status)
{
    const struct wire_key key = head_key(catchup, chase, chase->head_from);
    xfer_finish(catchup->conf.xfer, chase->head_from, &key, status);
    mem_free(chase->head);
    chase->head = NULL;
}

static void ask_ranges(struct catchup *catchup, struct chase *chase)
{
    enum gather_do what;
    struct gather_range range;
    while (chase->gather != NULL && gather_next(chase->gather, catchup->now_ms, &what, &range)) {
        const struct wire_key key = leaves_key(catchup, chase, &range);
        log_debug("%s island %s for the %s, from %" PRIu32 ", %" PRIu32,
                  what == GATHER_DROP        ? "not asking"
                  : what == GATHER_ASK_AGAIN ? "asking again"
                                             : "asking",
                  name_of(catchup, range.peer), wire_key_text(&key), range.first, range.count);
        if (what == GATHER_DROP)
            xfer_finish(catchup->conf.xfer, range.peer, &key, WIRE_NOT_NEEDED);
        else
            catchup->conf.fetch(catchup->conf.user, range.peer, &key);
    }
}

/* Nothing is written any more, and whoever keeps a copy for us need not. */
static void end_chase(struct catchup *catchup, struct chase *chase, bool keep_memory)
{
    uint32_t f = (uint32_t)(chase - catchup->chases);
    if (chase->head != NULL && chase->gather == NULL)
        drop_head(catchup, chase, WIRE_NOT_NEEDED);
    for (uint32_t i = 0; i < catchup->conf.view->count; i++) {
        if (!bitset_has(&chase->asked, i))
            continue;
        if (chase->gather != NULL)
            gather_lose(chase->gather, i);
        ask_ranges(catchup, chase);
        const struct wire_key key = head_key(catchup, chase, i);
        xfer_finish(catchup->conf.xfer, i, &key, WIRE_NOT_NEEDED);
    }
    gather_free(chase->gather);
    mem_free(chase->head);
    if (!keep_memory)
        slots_free_state(catchup->conf.slots, f);
    *chase = (struct chase){.on = false};
}

void catchup_free(struct catchup *catchup)
{
    if (catchup == NULL)
        return;
    for (uint32_t f = 0; catchup->chases != NULL && f < catchup->fragments; f++) {
        gather_free(catchup->chases[f].gather);
        mem_free(catchup->chases[f].head);
    }
    mem_free(catchup->paced_ms);
    mem_free(catchup->chases);
    mem_free(catchup);
}

/* The core asks for another state, or again. */
static void give_up(struct catchup *catchup, struct chase *chase)
{
    const struct sync_event event = {
        .type = SYNC_EV_NOT_AVAILABLE, .member = chase->member, .key = chase->key, .fragment = chase->key.fragment};
    if (chase->gather != NULL)
        log_warn("fragment %" PRIu32 ": nobody has version %" PRIu64 " any more, of which %" PRIu64 " of %" PRIu64
                 " bytes are here; another one is fetched",
                 chase->key.fragment, chase->key.version, gather_bytes(chase->gather), chase->opened.body_bytes);
    end_chase(catchup, chase, false);
    event_post_sync(catchup->conf.events, &event);
}

/* ---- a beginning ---- */

void catchup_want(struct catchup *catchup, const struct wire_key *key, uint32_t member)
{
    struct chase *chase = &catchup->chases[key->fragment];
    const struct wire_standing said = sync_heard(catchup->conf.sync, member, key->fragment);
    if (chase->handed)
        return;
    if (chase->on && chase->key.version == key->version && digest_equal(&chase->hash, &said.hash)) {
        chase->key = *key;
        chase->member = member;
        return;
    }
    if (chase->on)
        end_chase(catchup, chase, false);
    *chase = (struct chase){.on = true, .key = *key, .member = member, .hash = said.hash, .patience_ms = HEAD_MS};
}

bool catchup_has_begun(const struct catchup *catchup, const struct wire_key *key)
{
    const struct chase *chase = &catchup->chases[key->fragment];
    return chase->on && chase->key.version == key->version;
}

/* ---- whom to ask ---- */

/* Whether a member says that it holds the state. */
static bool announces(const struct catchup *catchup, const struct chase *chase, uint32_t peer)
{
    const struct wire_standing said = sync_heard(catchup->conf.sync, peer, chase->key.fragment);
    return said.hash_known && said.version == chase->key.version && digest_equal(&said.hash, &chase->hash);
}

/* All who may have it and do not bring it yet. Who was asked may still have it, whatever it announces now. */
static void ask_for_heads(struct catchup *catchup, struct chase *chase)
{
    uint32_t asked = 0;
    chase->again_ms = catchup->now_ms + AGAIN_MS;
    for (uint32_t i = 0; i < catchup->conf.view->count && asked < GATHER_SOURCES_MAX; i++) {
        bool may = announces(catchup, chase, i) || (chase->gather != NULL && bitset_has(&chase->asked, i));
        if (!may || !sync_up(catchup->conf.sync, i) || bitset_has(&chase->bad, i) ||
            (chase->gather != NULL && gather_has(chase->gather, i)))
            continue;
        const struct wire_key key = head_key(catchup, chase, i);
        bitset_add(&chase->asked, i);
        bitset_remove(&chase->refused, i);
        bitset_remove(&chase->offered, i);
        asked++;
        catchup->conf.fetch(catchup->conf.user, i, &key);
    }
}

static bool wanted(const struct catchup *catchup, uint32_t f)
{
    struct wire_key key;
    return sync_fetching_state(catchup->conf.sync, f, &key) && key.kind == WIRE_STATE &&
           key.version == catchup->chases[f].key.version;
}

/* Whether a head may still come from anyone but those in `but`. */
static bool may_come(const struct catchup *catchup, const struct chase *chase, const struct bitset *but)
{
    for (uint32_t i = 0; i < catchup->conf.view->count; i++)
        if (bitset_has(&chase->asked, i) && !bitset_has(&chase->refused, i) && !bitset_has(&chase->bad, i) &&
            !bitset_has(but, i) && sync_up(catchup->conf.sync, i))
            return true;
    return false;
}

/* A head that stands still, or takes long, makes room for another's. */
static void look_at_head(struct catchup *catchup, struct chase *chase)
{
    const struct wire_key key = head_key(catchup, chase, chase->head_from);
    struct bitset slow = chase->slow;
    bitset_add(&slow, chase->head_from);
    if (!xfer_receiving(catchup->conf.xfer, &key)) {
        drop_head(catchup, chase, WIRE_NOT_NEEDED);
    } else if (catchup->now_ms >= chase->head_ms && may_come(catchup, chase, &slow)) {
        chase->slow = slow;
        drop_head(catchup, chase, WIRE_NOT_YET);
    }
}

/* At first who has moved on is not waited for: the core asks for what they have now. */
static bool lost(const struct catchup *catchup, const struct chase *chase)
{
    static const struct bitset nobody;
    bool late = catchup->now_ms >= chase->alone_ms;
    return chase->gather != NULL ? late : late || !may_come(catchup, chase, &nobody);
}

static void run_one(struct catchup *catchup, struct chase *chase)
{
    if (chase->handed)
        return;
    if (!wanted(catchup, chase->key.fragment)) {
        end_chase(catchup, chase, false);
        return;
    }
    for (uint32_t i = 0; chase->gather != NULL && i < catchup->conf.view->count; i++)
        if (bitset_has(&chase->asked, i) && !sync_up(catchup->conf.sync, i))
            gather_lose(chase->gather, i);
    if (chase->head != NULL && chase->gather == NULL)
        look_at_head(catchup, chase);
    if (catchup->now_ms >= chase->again_ms)
        ask_for_heads(catchup, chase);
    ask_ranges(catchup, chase);
    if (chase->gather != NULL ? gather_sources(chase->gather) > 0 : chase->head != NULL)
        chase->alone_ms = catchup->now_ms + ALONE_MS;
    else if (lost(catchup, chase))
        give_up(catchup, chase);
}

/* Without a disk no result can be kept, so that states alone would come, each soon too old: a few do. */
static bool rests(const struct catchup *catchup, uint32_t f)
{
    const struct rounds *rounds = catchup->conf.rounds;
    return catchup->now_ms < catchup->paced_ms[f] && rounds != NULL && desk_refuses(rounds->desk);
}

/* Whose turn it is: the one with the most values, so that none comes alone at the end. */
static struct chase *next_to_ask(struct catchup *catchup)
{
    const struct plan *plan = catchup->conf.plan;
    struct chase *next = NULL;
    for (uint32_t f = 0; f < catchup->fragments; f++) {
        struct chase *chase = &catchup->chases[f];
        if (!chase->on || chase->asking || rests(catchup, f) || !wanted(catchup, f))
            continue;
        if (next == NULL || plan->fragments[f].values_count > plan->fragments[next - catchup->chases].values_count)
            next = chase;
    }
    return next;
}

static void begin_asking(struct catchup *catchup)
{
    uint32_t asking = 0;
    for (uint32_t f = 0; f < catchup->fragments; f++)
        asking += catchup->chases[f].on && catchup->chases[f].asking;
    for (struct chase *chase; asking < CATCHUP_AT_ONCE && (chase = next_to_ask(catchup)) != NULL; asking++) {
        chase->asking = true;
        catchup->paced_ms[chase - catchup->chases] = catchup->now_ms + PACED_MS;
        chase->begin_ms = catchup->now_ms;
        chase->alone_ms = catchup->now_ms + ANSWER_MS;
    }
}

void catchup_run(struct catchup *catchup, uint64_t now_ms)
{
    bool any = false;
    catchup->now_ms = now_ms;
    begin_asking(catchup);
    for (uint32_t f = 0; f < catchup->fragments; f++) {
        struct chase *chase = &catchup->chases[f];
        if (chase->on && chase->asking)
            run_one(catchup, chase);
        else if (chase->on && !wanted(catchup, f))
            end_chase(catchup, chase, false);
        any |= chase->on;
    }
    if (!any && catchup->conf.slots != NULL) /* a witness has none */
        slots_drop_spares(catchup->conf.slots);
}

/* ---- coming in ---- */

/* The chase that a name belongs to, if what it names was asked of this member. */
static struct chase *chase_of(struct catchup *catchup, uint32_t peer, const struct wire_key *key)
{
    if (key->fragment >= catchup->fragments)
        return NULL;
    struct chase *chase = &catchup->chases[key->fragment];
    bool ours = chase->on && chase->asking && !chase->handed && chase->key.version == key->version &&
                key->island == id_of(catchup, peer) && bitset_has(&chase->asked, peer);
    return ours ? chase : NULL;
}

static struct gather_range range_of(uint32_t peer, const struct wire_key *key)
{
    return (struct gather_range){.peer = peer, .first = key->first, .count = key->count};
}

static void lied(struct catchup *catchup, const struct chase *chase, uint32_t peer, const char *how)
{
    bitset_add(&catchup->liars, peer);
    log_error("island %s sent %s of the state of fragment %" PRIu32 ", version %" PRIu64
              "; it is not asked for this state again",
              name_of(catchup, peer), how, chase->key.fragment, chase->key.version);
}

static enum xfer_verdict offer_head(struct catchup *catchup, struct chase *chase, uint32_t peer, uint64_t total,
                                    struct xfer_offer *offer)
{
    uint64_t most = state_head_bytes_max(catchup->conf.replica, chase->key.fragment, catchup->conf.view->count);
    if (chase->gather != NULL) {
        offer->answer = gather_add(chase->gather, peer, catchup->now_ms) ? WIRE_RECEIVED : WIRE_NOT_NEEDED;
        return XFER_ANSWER;
    }
    if (bitset_has(&chase->bad, peer) || total > most)
        return XFER_ANSWER;
    offer->answer = WIRE_NOT_YET;
    bitset_add(&chase->offered, peer);
    if (chase->head != NULL || attachment_initialising(catchup->conf.trainer->attachment))
        return XFER_ANSWER;
    if (bitset_has(&chase->slow, peer)) {
        if (may_come(catchup, chase, &chase->slow))
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
    chase->head_ms = catchup->now_ms + chase->patience_ms;
    offer->buffer = chase->head;
    offer->bytes_max = total;
    return XFER_TAKE;
}

enum xfer_verdict catchup_offered(struct catchup *catchup, uint32_t peer, const struct wire_key *key, uint64_t total,
                                  struct xfer_offer *offer)
{
    struct chase *chase = chase_of(catchup, peer, key);
    const struct gather_range range = range_of(peer, key);
    offer->answer = WIRE_NOT_NEEDED;
    if (chase == NULL)
        return XFER_ANSWER;
    if (key->kind == WIRE_STATE)
        return offer_head(catchup, chase, peer, total, offer);
    if (chase->gather == NULL || !gather_place(chase->gather, &range, &offer->buffer, &offer->bytes_max))
        return XFER_ANSWER;
    if (total == offer->bytes_max)
        return XFER_TAKE;
    gather_condemn(chase->gather, peer);
    lied(catchup, chase, peer, "a range of another length than its leaves have");
    return XFER_ANSWER;
}

static struct state_expected expected_of(const struct catchup *catchup, const struct chase *chase,
                                         struct vouch_rule *rule)
{
    const struct catchup_conf *conf = &catchup->conf;
    uint32_t f = chase->key.fragment, self = conf->view->self;
    bool excused = sync_excused(conf->sync, f, chase->key.version, self);
    vouch_rule_of(conf->chain, f, chase->key.version, rule);
    return (struct state_expected){.version = chase->key.version,
                                   .steps = (uint64_t)conf->spec->steps,
                                   .nonce = conf->view->nonce,
                                   .rule = rule,
                                   .excused = excused ? id_of(catchup, self) : VOUCH_NOBODY,
                                   .heard = conf->vouches,
                                   .hash = &chase->hash};
}

static enum err open_head(struct catchup *catchup, struct chase *chase)
{
    const struct catchup_conf *run = &catchup->conf;
    struct vouch_rule rule;
    uint8_t *object;
    const struct state_expected expected = expected_of(catchup, chase, &rule);
    TRY(state_head_open(run->replica, run->plan, chase->key.fragment, &expected, catchup->conf.view->count, chase->head,
                        chase->head_bytes, &chase->opened));
    TRY(slots_take_state(run->slots, chase->key.fragment, chase->opened.object_bytes, &object));
    state_head_begin(chase->head, &chase->opened, object);
    const struct gather_conf conf = {.digests = chase->opened.leaves,
                                     .leaves_count = (uint32_t)chase->opened.leaves_count,
                                     .bytes = chase->opened.body_bytes,
                                     .body = object + STATE_HEADER_BYTES};
    return gather_new(&conf, &chase->gather);
}

static void head_in(struct catchup *catchup, struct chase *chase, uint32_t peer)
{
    const struct wire_key key = head_key(catchup, chase, peer);
    enum err err = open_head(catchup, chase);
    if (err == ERR_AGAIN) { /* as one that does not have it yet: signatures are on their way */
        log_debug("the state of fragment %" PRIu32 " from island %s: %s", chase->key.fragment, name_of(catchup, peer),
                  err_text());
        bitset_add(&chase->refused, peer);
        drop_head(catchup, chase, WIRE_NOT_NEEDED);
        return;
    }
    if (err != ERR_OK) {
        log_error("the head of the state of fragment %" PRIu32 " from island %s cannot be used: %s; asking others",
                  chase->key.fragment, name_of(catchup, peer), err_text());
        bitset_add(&chase->bad, peer);
        drop_head(catchup, chase, WIRE_REFUSED);
        return;
    }
    chase->hash = chase->opened.hash;
    xfer_finish(catchup->conf.xfer, peer, &key, WIRE_RECEIVED);
    for (uint32_t i = 0; i < catchup->conf.view->count; i++)
        if (bitset_has(&chase->offered, i) && !bitset_has(&chase->refused, i) && !bitset_has(&chase->bad, i))
            (void)gather_add(chase->gather, i, catchup->now_ms);
}

static void hand_on(struct catchup *catchup, struct chase *chase)
{
    uint64_t here = gather_bytes(chase->gather), again = gather_received(chase->gather) - here;
    log_info("fragment %" PRIu32 ": all of version %" PRIu64 " is here after %.1f s: %" PRIu64 " bytes from %" PRIu32
             " islands, and %" PRIu64 " bytes that had to come again",
             chase->key.fragment, chase->key.version, (double)(catchup->now_ms - chase->begin_ms) / 1000, here,
             gather_givers(chase->gather), again);
    chase->handed = true;
    event_post(catchup->conf.events,
               &(struct event){.type = EVENT_OBJECT,
                               .fragment = chase->key.fragment,
                               .member = chase->member,
                               .object = {.key = chase->key, .bytes = chase->opened.object_bytes}});
}

static void leaves_in(struct catchup *catchup, struct chase *chase, uint32_t peer, const struct wire_key *key,
                      uint64_t have, bool whole)
{
    const struct gather_range range = range_of(peer, key);
    uint8_t *to;
    uint64_t bytes;
    if (!gather_place(chase->gather, &range, &to, &bytes)) { /* it is another's by now */
        xfer_finish(catchup->conf.xfer, peer, key, WIRE_NOT_NEEDED);
        return;
    }
    bool good = gather_in(chase->gather, &range, have, catchup->now_ms);
    if (!good)
        lied(catchup, chase, peer, "what is no part");
    if (whole)
        xfer_finish(catchup->conf.xfer, peer, key, good ? WIRE_RECEIVED : WIRE_REFUSED);
    if (gather_whole(chase->gather))
        hand_on(catchup, chase);
    else
        ask_ranges(catchup, chase);
}

void catchup_in(struct catchup *catchup, uint32_t peer, const struct wire_key *key, uint64_t have, bool whole,
                uint64_t now_ms)
{
    struct chase *chase = chase_of(catchup, peer, key);
    catchup->now_ms = catchup->moved_ms = now_ms;
    if (chase == NULL || (key->kind == WIRE_LEAVES && chase->gather == NULL)) {
        if (whole)
            xfer_finish(catchup->conf.xfer, peer, key, WIRE_NOT_NEEDED);
        return;
    }
    if (key->kind == WIRE_LEAVES)
        leaves_in(catchup, chase, peer, key, have, whole);
    else if (whole)
        head_in(catchup, chase, peer);
    if (whole)
        run_one(catchup, chase);
}

void catchup_not_available(struct catchup *catchup, uint32_t peer, const struct wire_key *key)
{
    struct chase *chase = chase_of(catchup, peer, key);
    if (chase == NULL)
        return;
    if (key->kind == WIRE_LEAVES && chase->gather != NULL && gather_has(chase->gather, peer)) {
        gather_lose(chase->gather, peer);
        if (catchup->now_ms + SOON_MS < chase->again_ms)
            chase->again_ms = catchup->now_ms + SOON_MS;
    }
    if (key->kind != WIRE_STATE)
        return;
    bitset_add(&chase->refused, peer);
    if (chase->head != NULL && chase->gather == NULL && chase->head_from == peer)
        drop_head(catchup, chase, WIRE_NOT_NEEDED);
}

void catchup_judged(struct catchup *catchup, const struct wire_key *key)
{
    struct chase *chase = &catchup->chases[key->fragment];
    if (chase->handed)
        end_chase(catchup, chase, true);
}

void catchup_forget(struct catchup *catchup, uint32_t peer, bool gone)
{
    if (gone)
        bitset_remove(&catchup->liars, peer);
    for (uint32_t f = 0; f < catchup->fragments; f++) {
        struct chase *chase = &catchup->chases[f];
        if (!chase->on || chase->handed || !bitset_has(&chase->asked, peer))
            continue;
        if (chase->gather != NULL)
            gather_lose(chase->gather, peer);
        if (chase->head != NULL && chase->gather == NULL && chase->head_from == peer)
            drop_head(catchup, chase, WIRE_NOT_NEEDED);
        bitset_add(&chase->refused, peer);
        chase->again_ms = 0;
    }
}

uint64_t catchup_bytes(const struct catchup *catchup, uint32_t f)
{
    const struct chase *chase = &catchup->chases[f];
    return chase->gather != NULL ? gather_bytes(chase->gather) : 0;
}

uint64_t catchup_moved_ms(const struct catchup *catchup)
{
    return catchup->moved_ms;
}

bool catchup_lied(const struct catchup *catchup, uint32_t peer)
{
    return bitset_has(&catchup->liars, peer);
}
