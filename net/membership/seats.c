/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/seats.h"

#include <stdio.h>

#include "common/mem.h"

/* A disk that is in doubt for so long needs a record to name it: one that has just begun may find by itself that it
 * cannot have forgotten anything. */
enum { DOUBT_MS = 2000 };
/* One of a member's losses is forgotten after so long, then the next. */
enum { FORGIVE_MS = 20 * 60 * 1000 };
/* APART: two who have not heard each other for so long since one of them first said so are not about to be told lost:
 * the others, whose heartbeats may be a second apart from both of theirs, would have said so by now. LOOK: how often it
 * is looked who that is. YIELDS: so long after a line is back others may still say that they do not hear us. */
enum { APART_MS = 3000, LOOK_MS = 250, YIELDS_MS = 3000 };
/* Who was as far as most so lately soon is again, once rounds stand still. */
enum { CAUGHT_UP_MS = 1000 };
/* So many slots are looked at for them with one heartbeat: with many members there are as many heartbeats. */
enum { LOOK_SLOTS = 64 };
/* Whose trainer does not move is kept out so long after somebody put it out; it may wait for what cannot come. STANDS:
 * what its heartbeats say so soon after may be of before. */
enum { KEPT_OUT_MS = 10 * 60 * 1000, STANDS_MS = 5000 };
/* Another disk costs an epoch: one that always has another one is heard of some of them only. */
static const struct quota_rule disks_rule = {.every_ms = 60000, .at_once = 4};

static const struct record *last(const struct seats *seats)
{
    return chain_last(seats->chain);
}

/* ---- life ---- */

enum err seats_init(const struct view *view, const struct chain *chain, const struct voting_disk *disk,
                    struct seats *seats)
{
    *seats = (struct seats){.view = view, .chain = chain, .disk = disk};
    TRY(mem_new(VIEW_SLOTS_MAX, sizeof *seats->hearing, "membership", &seats->hearing));
    enum err err = mem_new(VIEW_SLOTS_MAX, sizeof *seats->seat, "membership", &seats->seat);
    if (err != ERR_OK)
        seats_deinit(seats);
    return err;
}

void seats_deinit(struct seats *seats)
{
    mem_free(seats->seat);
    mem_free(seats->hearing);
    mem_free(seats->reached);
    seats->seat = NULL;
    seats->reached = NULL;
    seats->hearing = NULL;
}

static void look_how_far_most_are(struct seats *seats)
{
    for (uint32_t f = 0; f < seats->fragments_count; f++)
        seats->reached[f] = sync_version_max(seats->sync, f);
}

enum err seats_plan_known(struct seats *seats, struct sync *sync, uint32_t fragments_count)
{
    uint64_t *reached;
    TRY(mem_new(fragments_count, sizeof *reached, "membership", &reached));
    mem_free(seats->reached);
    seats->reached = reached;
    seats->sync = sync;
    seats->fragments_count = fragments_count;
    look_how_far_most_are(seats);
    return ERR_OK;
}

static uint8_t losses_of(const struct seats *seats, uint32_t member)
{
    const struct record_member *named = record_member(last(seats), seats->view->members[member].as.id);
    return named != NULL ? named->losses : 0;
}

void seats_begin(struct seats *seats, uint64_t now_ms)
{
    for (uint32_t i = 0; i < VIEW_SLOTS_MAX; i++) {
        const struct view_member *member = i < seats->view->count ? &seats->view->members[i] : NULL;
        bool used = member != NULL && member->used;
        struct seat *seat = &seats->seat[i];
        if (!used || !seat->used || seat->id != member->as.id) {
            *seat = (struct seat){.used = used, .id = used ? member->as.id : 0};
            bitset_remove(&seats->lost, i);
        }
        uint8_t losses = used ? losses_of(seats, i) : 0;
        seat->losses_ms = losses != seat->losses || seat->losses_ms == 0 ? now_ms : seat->losses_ms;
        seat->losses = losses;
    }
    seats->begun_ms = seats->now_ms = now_ms;
}

/* ---- what members say ---- */

/* By hash: whose state of our version is another one has to take over ours, or we its, before it is of use. */
static bool as_far_as_most(const struct seats *seats, uint32_t member)
{
    bool self = member == seats->view->self;
    for (uint32_t f = 0; f < seats->fragments_count; f++) {
        struct wire_standing row = self ? sync_own(seats->sync, f) : sync_heard(seats->sync, member, f);
        bool known = self ? sync_known(seats->sync, f) : row.hash_known;
        if (!known || row.version + 1 < seats->reached[f] ||
            (!self && !sync_base_agrees(seats->sync, f, row.version + 1, &row.hash)))
            return false;
    }
    return seats->sync != NULL;
}

/* Where one copy certifies, who comes is a version behind what is on its way half of the time, and in step with it: so
 * it is not looked at in step with our ticks. */
static void look_at_comers(struct seats *seats, uint64_t now_ms)
{
    uint32_t many = seats->view->count < LOOK_SLOTS ? seats->view->count : LOOK_SLOTS;
    for (uint32_t k = 0; k < many; k++) {
        uint32_t i = seats->next_comer++ % seats->view->count;
        const struct view_member *member = &seats->view->members[i];
        bool comes = member->used && (member->as.role == RECORD_OBSERVER || member->as.role == RECORD_AWAY);
        if (comes && seats->seat[i].up && as_far_as_most(seats, i))
            seats->seat[i].caught_up_ms = now_ms;
    }
}

static void look_at_trainer(struct seat *seat, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    seat->trains = beat->taking_part;
    seat->step = beat->step;
    if (seat->out_ms != 0 && now_ms < seat->out_ms + STANDS_MS)
        seat->out_step = seat->step;
    else if (seat->step != seat->out_step)
        seat->out_ms = 0;
}

void seats_said(struct seats *seats, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    if (seats->view->self == VIEW_NOBODY)
        return;
    look_at_trainer(&seats->seat[seats->view->self], beat, now_ms);
    seats->seat[seats->view->self].disk_fails = beat->disk_fails;
}

void seats_heard(struct seats *seats, uint32_t member, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    struct seat *seat = &seats->seat[member];
    seat->epoch = beat->epoch;
    look_at_trainer(seat, beat, now_ms);
    seat->holds |= beat->held_count > 0;
    seat->disk_fails = beat->disk_fails;
    if (beat->incarnation != seat->incarnation && quota_take(&seat->disks, disks_rule, now_ms))
        seat->incarnation = beat->incarnation;
    seat->doubt_ms = !beat->in_doubt ? 0 : seat->doubt_ms != 0 ? seat->doubt_ms : now_ms;
    seat->silent = (struct bitset){{0}};
    for (uint32_t i = 0; i < beat->silent_count; i++) {
        uint32_t slot = view_slot(seats->view, beat->silent[i]);
        if (slot != VIEW_NOBODY)
            bitset_add(&seat->silent, slot);
    }
    look_at_comers(seats, now_ms);
}

/* Whom everybody says that it does not hear; what one says whom we do not hear ourselves is out of date. */
static void listen(struct seats *seats)
{
    const struct view *view = seats->view;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        bool owner = member->as.role == RECORD_OWNER;
        seats->hearing[i] = (struct hearing){.used = member->used,
                                             .voter = member->as.voter,
                                             .owner = owner,
                                             .candidate = !owner && member->as.role != RECORD_WITNESS &&
                                                          member->as.role != RECORD_DRAINING,
                                             .id = member->as.id,
                                             .uplink = member->as.uplink,
                                             .silent = i == view->self     ? &seats->silent
                                                       : seats->seat[i].up ? &seats->seat[i].silent
                                                                           : NULL};
    }
}

static void look_who_stands_back(struct seats *seats)
{
    struct bitset apart = hearing_apart(seats->hearing, seats->view->count);
    seats->looked_ms = seats->now_ms;
    for (uint32_t i = 0; i < seats->view->count; i++) {
        uint64_t *since_ms = &seats->seat[i].apart_ms;
        *since_ms = !bitset_has(&apart, i) ? 0 : *since_ms != 0 ? *since_ms : seats->now_ms;
    }
}

static void look_whether_we_yield(struct seats *seats)
{
    bool yields =
        seats->view->self != VIEW_NOBODY && hearing_yields(seats->hearing, seats->view->count, seats->view->self);
    seats->yields_ms = !yields ? 0 : seats->yields_ms != 0 ? seats->yields_ms : seats->now_ms;
}

void seats_tick(struct seats *seats, const struct bitset *silent, uint64_t now_ms)
{
    seats->silent = *silent;
    seats->now_ms = now_ms;
    listen(seats);
    look_how_far_most_are(seats);
    struct bitset before = seats->lost;
    seats->lost = hearing_lost(seats->hearing, seats->view->count);
    seats->hears_owners = hearing_all_owners(seats->hearing, seats->view->count);
    look_whether_we_yield(seats);
    /* Nobody stands back for one that is just lost: with both out nobody would own anything. */
    if (now_ms >= seats->looked_ms + LOOK_MS || !bitset_within(&seats->lost, &before))
        look_who_stands_back(seats);
}

/* ---- who is there ---- */

bool seats_silent(const struct seats *seats, uint32_t member)
{
    return bitset_has(&seats->lost, member);
}

static bool apart_lasts(const struct seats *seats, uint32_t member)
{
    uint64_t since_ms = seats->seat[member].apart_ms;
    return since_ms != 0 && seats->now_ms >= since_ms + APART_MS;
}

bool seats_apart(const struct seats *seats, uint32_t member)
{
    bool owner = seats->view->members[member].as.role == RECORD_OWNER;
    return owner ? apart_lasts(seats, member) : seats->seat[member].apart_ms != 0;
}

bool seats_yields(const struct seats *seats)
{
    return seats->yields_ms != 0 && seats->now_ms >= seats->yields_ms + YIELDS_MS;
}

bool seats_hear_owners(const struct seats *seats)
{
    return seats->hears_owners;
}

uint32_t seats_apart_from(const struct seats *seats, uint32_t member)
{
    for (uint32_t i = 0; apart_lasts(seats, member) && i < seats->view->count; i++)
        if (seats->hearing[i].used && seats->hearing[i].owner && hearing_cut(seats->hearing, member, i))
            return i;
    return VIEW_NOBODY;
}

static bool says_silent(const struct seats *seats, uint32_t member, uint32_t of)
{
    const struct bitset *silent = seats->hearing[member].silent;
    return silent != NULL && bitset_has(silent, of);
}

bool seats_apart_text(const struct seats *seats, uint32_t member, uint32_t owner, char *text, size_t text_bytes)
{
    const struct view *view = seats->view;
    bool mutual = says_silent(seats, member, owner) && says_silent(seats, owner, member);
    uint32_t who = says_silent(seats, member, owner) ? member : owner, of = who == member ? owner : member;
    if (mutual) {
        snprintf(text, text_bytes, "islands %s and %s do not hear each other", view->members[member].as.name,
                 view->members[owner].as.name);
        return true;
    }
    /* Who makes no result is as if it were not heard (peers_tick()); of others it is not known which they mean. */
    if (who == view->self && seats->seat[of].up) {
        snprintf(text, text_bytes, "island %s is heard, and makes no result of its shards", view->members[of].as.name);
        return false;
    }
    snprintf(text, text_bytes, "island %s does not hear island %s%s", view->members[who].as.name,
             view->members[of].as.name, who == view->self ? "" : ", or gets no result of it");
    return true;
}

bool seats_disk_fails(const struct seats *seats, uint32_t member)
{
    return seats->seat[member].disk_fails;
}

static uint32_t voters_here(const struct seats *seats, bool able)
{
    const struct view *view = seats->view;
    uint32_t here = 0;
    for (uint32_t i = 0; i < view->count; i++)
        here += view->members[i].used && view->members[i].as.voter && (i == view->self || seats->seat[i].up) &&
                !(able && seats->seat[i].disk_fails);
    return here;
}

uint32_t seats_voters_heard(const struct seats *seats)
{
    return voters_here(seats, false);
}

uint32_t seats_voters_able(const struct seats *seats)
{
    return voters_here(seats, true);
}

void seats_put_out(struct seats *seats, uint32_t member)
{
    seats->seat[member].out_ms = seats->now_ms;
    seats->seat[member].out_step = seats->seat[member].step;
}

bool seats_kept_out(const struct seats *seats, uint32_t member)
{
    const struct seat *seat = &seats->seat[member];
    return seat->out_ms != 0 && seat->trains && seats->now_ms < seat->out_ms + KEPT_OUT_MS;
}

bool seats_caught_up(const struct seats *seats, uint32_t member)
{
    uint64_t last_ms = seats->seat[member].caught_up_ms;
    return as_far_as_most(seats, member) || (last_ms != 0 && seats->now_ms < last_ms + CAUGHT_UP_MS);
}

/* ---- disks in doubt ---- */

bool seats_in_doubt(const struct seats *seats, uint32_t member)
{
    if (member == seats->view->self)
        return seats->disk->doubt != VOTE_SURE;
    uint64_t since_ms = seats->seat[member].doubt_ms;
    return since_ms != 0 && seats->now_ms >= since_ms + DOUBT_MS;
}

void seats_doubt_anew(struct seats *seats)
{
    for (uint32_t i = 0; i < seats->view->count; i++)
        if (seats->seat[i].doubt_ms != 0)
            seats->seat[i].doubt_ms = seats->now_ms;
}

uint8_t seats_losses(const struct seats *seats, uint32_t member)
{
    const struct seat *seat = &seats->seat[member];
    uint64_t forgiven = (seats->now_ms - seat->losses_ms) / FORGIVE_MS;
    return forgiven < seat->losses ? (uint8_t)(seat->losses - forgiven) : 0;
}

uint64_t seats_incarnation(const struct seats *seats, uint32_t member)
{
    return member == seats->view->self ? seats->disk->incarnation : seats->seat[member].incarnation;
}

/* A version, or a result that may become one: we may have been asked to keep it, or have made it. */
static bool made_something(const struct seats *seats, uint32_t member)
{
    bool self = member == seats->view->self;
    if (seats->view->members[member].as.role == RECORD_WITNESS) /* nobody asks it to keep any */
        return false;
    if (seats->seat[member].holds)
        return true;
    for (uint32_t f = 0; f < seats->fragments_count; f++) {
        struct wire_standing row = self ? sync_own(seats->sync, f) : sync_heard(seats->sync, member, f);
        if (row.version > 0 || (!self && !row.said))
            return true;
    }
    return false;
}

/* Whether all voters are here, and none of those who are here has made anything: then nothing was ever acknowledged
 * that we could have forgotten. Of a majority that would not be known: with what we said and one who is not here now, a
 * result may have counted there. */
static bool nothing_made(const struct seats *seats)
{
    const struct view *view = seats->view;
    if (seats->sync == NULL || seats_voters_heard(seats) < record_voters(last(seats)))
        return false;
    for (uint32_t i = 0; i < view->count; i++)
        if (view->members[i].used && (i == view->self || seats->seat[i].up) && made_something(seats, i))
            return false;
    return true;
}

bool seats_doubt_is_over(const struct seats *seats)
{
    const struct view_member *self = &seats->view->members[seats->view->self];
    if (self->as.incarnation == seats->disk->incarnation)
        return true;
    return seats->disk->doubt == VOTE_FRESH && last(seats)->epoch == 0 && self->as.incarnation == 0 &&
           nothing_made(seats);
}

/* Whether the member has said of every fragment what it holds; a witness holds none. */
static bool said_all(const struct seats *seats, uint32_t member)
{
    bool said = true;
    for (uint32_t f = 0; f < seats->fragments_count; f++)
        said = said && sync_heard(seats->sync, member, f).said;
    return said || seats->view->members[member].as.role == RECORD_WITNESS;
}

/* Whether more than half of all members that take part are here, us among them, and nobody knows a later record: a disk
 * that has forgotten the last records believes in voters who are none any more, and may be the only one of them. */
static bool nothing_newer(const struct seats *seats)
{
    const struct view *view = seats->view;
    uint32_t members = 0, here = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct seat *seat = &seats->seat[i];
        bool self = i == view->self, takes_part = view->members[i].as.role != RECORD_AWAY;
        if (!view->members[i].used)
            continue;
        if (!self && seat->up && seat->epoch > last(seats)->epoch)
            return false;
        members += takes_part;
        here += takes_part && (self || (seat->up && seat->incarnation != 0));
    }
    return 2 * here > members;
}

bool seats_majority_in_doubt(const struct seats *seats)
{
    const struct view *view = seats->view;
    uint32_t sure = 0;
    if (seats->sync == NULL || !view->members[view->self].as.voter || !nothing_newer(seats))
        return false;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        if (!member->used || !member->as.voter || i == view->self)
            continue;
        if (!seats->seat[i].up || seats->seat[i].epoch != last(seats)->epoch || !said_all(seats, i))
            return false;
        sure += seats->seat[i].doubt_ms == 0;
    }
    return sure < record_majority(last(seats));
}
