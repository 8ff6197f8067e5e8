#include "daemon/peers/seats.h"

#include "common/mem.h"

/* A disk that is in doubt for so long needs a record to name it: one that has just begun may find by itself that it
 * cannot have forgotten anything. */
enum { DOUBT_MS = 2000 };
/* Another disk costs an epoch: one that always has another one is heard of some of them only. */
static const struct quota_rule disks_rule = {.every_ms = 60000, .at_once = 4};

static const struct record *last(const struct seats *seats)
{
    return chain_last(seats->chain);
}

/* ---- life ---- */

enum err seats_init(const struct view *view, const struct chain *chain, const struct vote *vote, struct seats *seats)
{
    *seats = (struct seats){.view = view, .chain = chain, .vote = vote};
    return mem_new(VIEW_SLOTS_MAX, sizeof *seats->seat, "the council", &seats->seat);
}

void seats_deinit(struct seats *seats)
{
    mem_free(seats->seat);
    seats->seat = NULL;
}

void seats_begin(struct seats *seats, uint64_t now_ms)
{
    for (uint32_t i = 0; i < VIEW_SLOTS_MAX; i++) {
        const struct view_member *member = i < seats->view->count ? &seats->view->members[i] : NULL;
        bool used = member != NULL && member->used;
        struct seat *seat = &seats->seat[i];
        if (!used || !seat->used || seat->id != member->id)
            *seat = (struct seat){.used = used, .id = used ? member->id : 0};
    }
    seats->begun_ms = seats->now_ms = now_ms;
}

/* ---- what members say ---- */

void seats_heard(struct seats *seats, uint32_t member, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    struct seat *seat = &seats->seat[member];
    seat->epoch = beat->epoch;
    seat->holds |= beat->held_count > 0;
    if (beat->incarnation != seat->incarnation && quota_take(&seat->disks, disks_rule, now_ms))
        seat->incarnation = beat->incarnation;
    seat->doubt_ms = !beat->in_doubt ? 0 : seat->doubt_ms != 0 ? seat->doubt_ms : now_ms;
    seat->silent = (struct bitset){{0}};
    for (uint32_t i = 0; i < beat->silent_count; i++) {
        uint32_t slot = view_slot(seats->view, beat->silent[i]);
        if (slot != VIEW_NOBODY)
            bitset_add(&seat->silent, slot);
    }
}

void seats_tick(struct seats *seats, const struct bitset *silent, uint64_t now_ms)
{
    seats->silent = *silent;
    seats->now_ms = now_ms;
}

/* ---- who is there ---- */

bool seats_silent(const struct seats *seats, uint32_t member)
{
    const struct view *view = seats->view;
    uint32_t voters = 0, deaf = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *voter = &view->members[i];
        if (!voter->used || !voter->voter)
            continue;
        voters++;
        if (i == view->self)
            deaf += bitset_has(&seats->silent, member);
        else if (i != member && !bitset_has(&seats->silent, i))
            deaf += bitset_has(&seats->seat[i].silent, member);
    }
    return deaf > voters / 2;
}

uint32_t seats_voters_heard(const struct seats *seats)
{
    const struct view *view = seats->view;
    uint32_t here = 0;
    for (uint32_t i = 0; i < view->count; i++)
        here += view->members[i].used && view->members[i].voter && (i == view->self || seats->seat[i].up);
    return here;
}

bool seats_caught_up(const struct seats *seats, uint32_t member)
{
    bool self = member == seats->view->self;
    for (uint32_t f = 0; f < seats->fragments_count; f++) {
        struct sync_peer_fragment row = self ? sync_own(seats->sync, f) : sync_heard(seats->sync, member, f);
        bool known = self ? sync_known(seats->sync, f) : row.hash_known;
        if (!known || row.version + 1 < sync_version_max(seats->sync, f))
            return false;
    }
    return seats->sync != NULL;
}

/* ---- disks in doubt ---- */

bool seats_in_doubt(const struct seats *seats, uint32_t member)
{
    if (member == seats->view->self)
        return vote_doubt(seats->vote) != VOTE_SURE;
    uint64_t since_ms = seats->seat[member].doubt_ms;
    return since_ms != 0 && seats->now_ms >= since_ms + DOUBT_MS;
}

void seats_doubt_anew(struct seats *seats)
{
    for (uint32_t i = 0; i < seats->view->count; i++)
        if (seats->seat[i].doubt_ms != 0)
            seats->seat[i].doubt_ms = seats->now_ms;
}

uint64_t seats_incarnation(const struct seats *seats, uint32_t member)
{
    return member == seats->view->self ? vote_incarnation(seats->vote) : seats->seat[member].incarnation;
}

/* A version, or a result that may become one: we may have been asked to keep it, or have made it. */
static bool made_something(const struct seats *seats, uint32_t member)
{
    bool self = member == seats->view->self;
    if (seats->seat[member].holds)
        return true;
    for (uint32_t f = 0; f < seats->fragments_count; f++) {
        struct sync_peer_fragment row = self ? sync_own(seats->sync, f) : sync_heard(seats->sync, member, f);
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
    if (self->incarnation == vote_incarnation(seats->vote))
        return true;
    return vote_doubt(seats->vote) == VOTE_FRESH && last(seats)->epoch == 0 && self->incarnation == 0 &&
           nothing_made(seats);
}

/* Whether the member has said of every fragment what it holds; a witness holds none. */
static bool said_all(const struct seats *seats, uint32_t member)
{
    bool said = true;
    for (uint32_t f = 0; f < seats->fragments_count; f++)
        said = said && sync_heard(seats->sync, member, f).said;
    return said || seats->view->members[member].role == RECORD_WITNESS;
}

/* Whether more than half of all members that take part are here, us among them, and nobody knows a later record: a disk
 * that has forgotten the last records believes in voters who are none any more, and may be the only one of them. */
static bool nothing_newer(const struct seats *seats)
{
    const struct view *view = seats->view;
    uint32_t members = 0, here = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct seat *seat = &seats->seat[i];
        bool self = i == view->self, takes_part = view->members[i].role != RECORD_AWAY;
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
    if (seats->sync == NULL || !view->members[view->self].voter || !nothing_newer(seats))
        return false;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        if (!member->used || !member->voter || i == view->self)
            continue;
        if (!seats->seat[i].up || seats->seat[i].epoch != last(seats)->epoch || !said_all(seats, i))
            return false;
        sure += seats->seat[i].doubt_ms == 0;
    }
    return sure < record_majority(last(seats));
}
