/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/member_progress.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "net/config/config_orders.h"

/* A disk that is in doubt for so long needs a configuration to name it: one that has just begun may find by itself that
 * it cannot have forgotten anything. */
enum { DOUBT_MS = 2000 };
/* Who votes alone and is in doubt waits so long for the others: daemons find each other sooner. TICK: of the time
 * between two ticks no more counts, for a machine that slept has asked nobody meanwhile. */
enum { ALONE_MS = 30 * 1000, ALONE_TICK_MS = 1000 };
/* One of a member's losses is forgotten after so long, then the next. */
enum { FORGIVE_MS = 20 * 60 * 1000 };
/* PARTITIONED: two who have not heard each other for so long since one of them first said so are not about to be told
 * lost: the others, whose heartbeats may be a second apart from both of theirs, would have said so by now. LOOK: how
 * often it is looked who that is. YIELDS: so long after a line is back others may still say that they do not hear us.
 */
enum { PARTITIONED_MS = 3000, LOOK_MS = 250, YIELDS_MS = 3000 };
/* Who was as far as most so lately soon is again, once rounds stand still. */
enum { CAUGHT_UP_MS = 1000 };
/* So many slots are looked at for them with one heartbeat: with many members there are as many heartbeats. */
enum { LOOK_SLOTS = 64 };
/* Whose trainer does not move, though the run is not paused, is kept out so long after somebody put it out; it may wait
 * for what cannot come. STANDS: what its heartbeats say so soon after may be of before. */
enum { KEPT_OUT_MS = 10 * 60 * 1000, STANDS_MS = 5000 };
/* Each reads the disk: so often, beside 10 at once, who asks gets an answer, and who only speaks of an older epoch one
 * that it did not ask for, but for the first in each epoch. */
static const struct quota_rule logs_rule = {.every_ms = 100, .at_once = 10};
enum { CONFIG_LOG_UNASKED_MS = 60000 };
/* That a member has brought a configuration that may not follow is told people so often, and remembered so long. */
enum { MISPROPOSED_SAID_MS = 10000, MISPROPOSED_MS = 60000 };
/* Another disk costs an epoch: one that always has another one is heard of some of them only. */
static const struct quota_rule disks_rule = {.every_ms = 60000, .at_once = 4};
/* So does one that keeps nothing, and does again: at once the first time, and then more and more seldom. */
static const struct quota_rule mended_rule = {.every_ms = 600000, .at_once = 4};

static const struct config *last(const struct member_progress *progress)
{
    return config_log_last(progress->config_log);
}

/* ---- life ---- */

enum err member_progress_init(const struct view *view, const struct config_log *config_log,
                              const struct voting_disk *disk, struct member_progress *progress)
{
    *progress = (struct member_progress){.view = view, .config_log = config_log, .disk = disk};
    TRY(mem_new(VIEW_SLOTS_MAX, sizeof *progress->hearing, "membership", &progress->hearing));
    enum err err = mem_new(VIEW_SLOTS_MAX, sizeof *progress->seat, "membership", &progress->seat);
    if (err != ERR_OK)
        member_progress_deinit(progress);
    return err;
}

void member_progress_deinit(struct member_progress *progress)
{
    mem_free(progress->seat);
    mem_free(progress->hearing);
    mem_free(progress->reached);
    progress->seat = NULL;
    progress->reached = NULL;
    progress->hearing = NULL;
}

static void look_how_far_most_are(struct member_progress *progress)
{
    for (uint32_t f = 0; f < progress->fragments_count; f++)
        progress->reached[f] = sync_version_max(progress->sync, f);
}

enum err member_progress_plan_known(struct member_progress *progress, struct sync *sync, uint32_t fragments_count)
{
    uint64_t *reached;
    TRY(mem_new(fragments_count, sizeof *reached, "membership", &reached));
    mem_free(progress->reached);
    progress->reached = reached;
    progress->sync = sync;
    progress->fragments_count = fragments_count;
    look_how_far_most_are(progress);
    return ERR_OK;
}

static uint8_t losses_of(const struct member_progress *progress, uint32_t member)
{
    const struct config_member *named = config_member(last(progress), progress->view->members[member].as.id);
    return named != NULL ? named->losses : 0;
}

bool member_progress_cuts_off(const struct member_progress *progress, const struct config *config)
{
    for (uint32_t i = 0; i < progress->view->count; i++) {
        const struct view_member *member = &progress->view->members[i];
        if (!member->used || (!progress->seat[i].up && i != progress->view->self))
            continue;
        const struct config_member *next = config_member(config, member->as.id);
        if (next == NULL ? i != progress->view->self : memcmp(next->key, member->as.key, sizeof next->key) != 0)
            return true;
    }
    return false;
}

void member_progress_begin(struct member_progress *progress, uint64_t now_ms)
{
    for (uint32_t i = 0; i < VIEW_SLOTS_MAX; i++) {
        const struct view_member *member = i < progress->view->count ? &progress->view->members[i] : NULL;
        bool used = member != NULL && member->used;
        struct seat *seat = &progress->seat[i];
        if (!used || !seat->used || seat->id != member->as.id) {
            *seat = (struct seat){.used = used, .id = used ? member->as.id : 0};
            bitset_remove(&progress->lost, i);
        }
        if (used && memcmp(seat->key, member->as.key, sizeof seat->key) != 0) {
            memcpy(seat->key, member->as.key, sizeof seat->key);
            seat->said = false; /* it was signed by the key before, and may be said again by the same number */
        }
        uint8_t losses = used ? losses_of(progress, i) : 0;
        seat->losses_ms = losses != seat->losses || seat->losses_ms == 0 ? now_ms : seat->losses_ms;
        seat->losses = losses;
    }
    progress->begun_ms = progress->now_ms = now_ms;
    progress->awake_ms = 0;
}

/* ---- what members say ---- */

/* By hash: whose state of our version is another one has to take over ours, or we its, before it is of use. */
static bool as_far_as_most(const struct member_progress *progress, uint32_t member)
{
    bool self = member == progress->view->self;
    for (uint32_t f = 0; f < progress->fragments_count; f++) {
        struct wire_standing row = self ? sync_own(progress->sync, f) : sync_heard(progress->sync, member, f);
        bool known = self ? sync_known(progress->sync, f) : row.hash_known;
        if (!known || row.version + 1 < progress->reached[f] ||
            (!self && !sync_base_agrees(progress->sync, f, row.version + 1, &row.hash)))
            return false;
    }
    return progress->sync != NULL;
}

/* Where one copy commits, who comes is a version behind what is on its way half of the time, and in step with it: so
 * it is not looked at in step with our ticks. */
static void look_at_comers(struct member_progress *progress, uint64_t now_ms)
{
    uint32_t many = progress->view->count < LOOK_SLOTS ? progress->view->count : LOOK_SLOTS;
    for (uint32_t k = 0; k < many; k++) {
        uint32_t i = progress->next_comer++ % progress->view->count;
        const struct view_member *member = &progress->view->members[i];
        bool comes = member->used && (member->as.role == CONFIG_OBSERVER || member->as.role == CONFIG_AWAY);
        if (comes && progress->seat[i].up && as_far_as_most(progress, i))
            progress->seat[i].caught_up_ms = now_ms;
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

static void look_at_disk(struct seat *seat, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    if (beat->disk_fails || (seat->disk_fails && quota_take(&seat->mended, mended_rule, now_ms)))
        seat->disk_fails = beat->disk_fails;
}

void member_progress_said(struct member_progress *progress, const struct wire_heartbeat *beat, uint64_t now_ms)
{
    if (progress->view->self == VIEW_NOBODY)
        return;
    look_at_trainer(&progress->seat[progress->view->self], beat, now_ms);
    look_at_disk(&progress->seat[progress->view->self], beat, now_ms);
}

enum err member_progress_word(struct member_progress *progress, uint32_t member, const struct member_word *word)
{
    struct seat *seat = &progress->seat[member];
    const struct view_member *as = &progress->view->members[member];
    if (seat->said && memcmp(seat->word.signature, word->signature, sizeof word->signature) == 0 &&
        seat->word.number == word->number && member_word_same(&seat->word, word))
        return ERR_OK;
    TRY(member_word_check(word));
    if (!member_word_signed(as->as.key, last(progress)->nonce, as->as.id, word))
        return config_word_of_other_key(last(progress), as->as.id, word)
                   ? ERR_OK
                   : err_set(ERR_PROTO, "a word of island %s that it did not sign", as->as.name);
    if (seat->said && seat->word.number >= word->number) /* it has said another since */
        return ERR_OK;
    seat->said = true;
    seat->word = *word;
    return ERR_OK;
}

void member_progress_up(struct member_progress *progress, uint32_t member, bool up)
{
    progress->seat[member].up = up;
    progress->seat[member].heard = progress->seat[member].heard && up;
}

void member_progress_heard(struct member_progress *progress, uint32_t member, const struct wire_heartbeat *beat,
                           uint64_t now_ms)
{
    struct seat *seat = &progress->seat[member];
    seat->heard = true;
    seat->epoch = beat->epoch;
    look_at_trainer(seat, beat, now_ms);
    look_at_disk(seat, beat, now_ms);
    if (beat->incarnation != seat->incarnation && quota_take(&seat->disks, disks_rule, now_ms))
        seat->incarnation = beat->incarnation;
    seat->doubt_ms = !beat->in_doubt ? 0 : seat->doubt_ms != 0 ? seat->doubt_ms : now_ms;
    seat->silent = (struct bitset){{0}};
    for (uint32_t i = 0; i < beat->silent_count; i++) {
        uint32_t slot = view_slot(progress->view, beat->silent[i]);
        if (slot != VIEW_NOBODY)
            bitset_add(&seat->silent, slot);
    }
    look_at_comers(progress, now_ms);
}

/* Whom everybody says that it does not hear; what one says whom we do not hear ourselves is out of date. */
static void listen(struct member_progress *progress)
{
    const struct view *view = progress->view;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        bool owner = member->as.role == CONFIG_OWNER;
        progress->hearing[i] = (struct hearing){.used = member->used,
                                                .voter = member->as.voter,
                                                .owner = owner,
                                                .candidate = !owner && member->as.role != CONFIG_WITNESS &&
                                                             member->as.role != CONFIG_DRAINING,
                                                .id = member->as.id,
                                                .silent = i == view->self        ? &progress->silent
                                                          : progress->seat[i].up ? &progress->seat[i].silent
                                                                                 : NULL};
    }
}

static void look_who_stands_back(struct member_progress *progress)
{
    struct bitset partitioned = hearing_partitioned(progress->hearing, progress->view->count);
    progress->looked_ms = progress->now_ms;
    for (uint32_t i = 0; i < progress->view->count; i++) {
        uint64_t *since_ms = &progress->seat[i].partitioned_ms;
        *since_ms = !bitset_has(&partitioned, i) ? 0 : *since_ms != 0 ? *since_ms : progress->now_ms;
    }
}

static void look_whether_we_yield(struct member_progress *progress)
{
    bool yields = progress->view->self != VIEW_NOBODY &&
                  hearing_yields(progress->hearing, progress->view->count, progress->view->self);
    progress->yields_ms = !yields ? 0 : progress->yields_ms != 0 ? progress->yields_ms : progress->now_ms;
}

void member_progress_tick(struct member_progress *progress, const struct bitset *silent, uint64_t now_ms)
{
    uint64_t passed_ms = now_ms - progress->now_ms;
    progress->silent = *silent;
    progress->now_ms = now_ms;
    progress->awake_ms += passed_ms < ALONE_TICK_MS ? passed_ms : ALONE_TICK_MS;
    listen(progress);
    look_how_far_most_are(progress);
    struct bitset before = progress->lost;
    progress->lost = hearing_lost(progress->hearing, progress->view->count);
    progress->hears_owners = hearing_all_owners(progress->hearing, progress->view->count);
    look_whether_we_yield(progress);
    /* Nobody stands back for one that is just lost: with both out nobody would own anything. */
    if (now_ms >= progress->looked_ms + LOOK_MS || !bitset_within(&progress->lost, &before))
        look_who_stands_back(progress);
}

/* ---- who is there ---- */

bool member_progress_misproposes(struct member_progress *progress, uint32_t member)
{
    struct seat *seat = &progress->seat[member];
    if (member == progress->view->self)
        return false;
    seat->misproposed_ms = progress->now_ms;
    return log_limit_pass(&seat->misproposed_said, progress->now_ms, MISPROPOSED_SAID_MS);
}

bool member_progress_misproposed(const struct member_progress *progress, uint32_t member)
{
    uint64_t since_ms = progress->seat[member].misproposed_ms;
    return since_ms != 0 && progress->now_ms < since_ms + MISPROPOSED_MS;
}

bool member_progress_silent(const struct member_progress *progress, uint32_t member)
{
    return bitset_has(&progress->lost, member);
}

static bool partitioned_lasts(const struct member_progress *progress, uint32_t member)
{
    uint64_t since_ms = progress->seat[member].partitioned_ms;
    return since_ms != 0 && progress->now_ms >= since_ms + PARTITIONED_MS;
}

bool member_progress_partitioned(const struct member_progress *progress, uint32_t member)
{
    bool owner = progress->view->members[member].as.role == CONFIG_OWNER;
    return owner ? partitioned_lasts(progress, member) : progress->seat[member].partitioned_ms != 0;
}

bool member_progress_yields(const struct member_progress *progress)
{
    return progress->yields_ms != 0 && progress->now_ms >= progress->yields_ms + YIELDS_MS;
}

bool member_progress_hear_owners(const struct member_progress *progress)
{
    return progress->hears_owners;
}

uint32_t member_progress_partitioned_from(const struct member_progress *progress, uint32_t member)
{
    for (uint32_t i = 0; partitioned_lasts(progress, member) && i < progress->view->count; i++) {
        const struct hearing *row = &progress->hearing[i];
        bool owns = row->used && (row->owner || (row->voter && row->candidate)); /* for a witness nobody stands back */
        if (owns && i != member && hearing_cut(progress->hearing, member, i))
            return i;
    }
    return VIEW_NOBODY;
}

static bool says_silent(const struct member_progress *progress, uint32_t member, uint32_t of)
{
    const struct bitset *silent = progress->hearing[member].silent;
    return silent != NULL && bitset_has(silent, of);
}

bool member_progress_partitioned_text(const struct member_progress *progress, uint32_t member, uint32_t owner,
                                      char *text, size_t text_bytes)
{
    const struct view *view = progress->view;
    bool mutual = says_silent(progress, member, owner) && says_silent(progress, owner, member);
    uint32_t who = says_silent(progress, member, owner) ? member : owner, of = who == member ? owner : member;
    if (mutual) {
        snprintf(text, text_bytes, "islands %s and %s do not hear each other", view->members[member].as.name,
                 view->members[owner].as.name);
        return true;
    }
    /* Who makes no result is as if it were not heard (peers_tick()); of others it is not known which they mean. */
    if (who == view->self && progress->seat[of].up) {
        snprintf(text, text_bytes, "island %s is heard, and makes no result of its shards", view->members[of].as.name);
        return false;
    }
    snprintf(text, text_bytes, "island %s does not hear island %s%s", view->members[who].as.name,
             view->members[of].as.name, who == view->self ? "" : ", or gets no result of it");
    return true;
}

struct key_turns_heard member_progress_hears(const struct member_progress *progress)
{
    const struct view *view = progress->view;
    uint32_t others = 0, here = 0, know_ours = 0;
    bool any = false, any_knows = false;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct seat *seat = &progress->seat[i];
        if (i == view->self || !view->members[i].used)
            continue;
        bool votes = view->members[i].as.voter, up = seat->up,
             knows = up && seat->heard && seat->epoch <= last(progress)->epoch;
        any |= up;
        any_knows |= knows;
        others += votes;
        here += votes && up;
        know_ours += votes && knows;
    }
    return (struct key_turns_heard){.any = any,
                                    .most = others > 0 ? 2 * here > others : any,
                                    .most_know_ours = others > 0 ? 2 * know_ours > others : any_knows};
}

bool member_progress_disk_fails(const struct member_progress *progress, uint32_t member)
{
    return progress->seat[member].disk_fails;
}

static uint32_t voters_here(const struct member_progress *progress, bool able)
{
    const struct view *view = progress->view;
    uint32_t here = 0;
    for (uint32_t i = 0; i < view->count; i++)
        here += view->members[i].used && view->members[i].as.voter && (i == view->self || progress->seat[i].up) &&
                !(able && progress->seat[i].disk_fails);
    return here;
}

uint32_t member_progress_voters_heard(const struct member_progress *progress)
{
    return voters_here(progress, false);
}

uint32_t member_progress_voters_able(const struct member_progress *progress)
{
    return voters_here(progress, true);
}

void member_progress_put_out(struct member_progress *progress, uint32_t member)
{
    progress->seat[member].out_ms = progress->now_ms;
    progress->seat[member].out_step = progress->seat[member].step;
}

bool member_progress_kept_out(const struct member_progress *progress, uint32_t member)
{
    const struct seat *seat = &progress->seat[member];
    return seat->out_ms != 0 && seat->trains && progress->now_ms < seat->out_ms + KEPT_OUT_MS &&
           !last(progress)->paused;
}

bool member_progress_caught_up(const struct member_progress *progress, uint32_t member)
{
    uint64_t last_ms = progress->seat[member].caught_up_ms;
    return as_far_as_most(progress, member) || (last_ms != 0 && progress->now_ms < last_ms + CAUGHT_UP_MS);
}

/* ---- disks in doubt ---- */

bool member_progress_in_doubt(const struct member_progress *progress, uint32_t member)
{
    if (member == progress->view->self)
        return progress->disk->doubt != VOTE_SURE;
    uint64_t since_ms = progress->seat[member].doubt_ms;
    return since_ms != 0 && progress->now_ms >= since_ms + DOUBT_MS;
}

void member_progress_doubt_anew(struct member_progress *progress)
{
    for (uint32_t i = 0; i < progress->view->count; i++)
        if (progress->seat[i].doubt_ms != 0)
            progress->seat[i].doubt_ms = progress->now_ms;
}

uint8_t member_progress_losses(const struct member_progress *progress, uint32_t member)
{
    const struct seat *seat = &progress->seat[member];
    uint64_t forgiven = (progress->now_ms - seat->losses_ms) / FORGIVE_MS;
    return forgiven < seat->losses ? (uint8_t)(seat->losses - forgiven) : 0;
}

uint64_t member_progress_incarnation(const struct member_progress *progress, uint32_t member)
{
    return member == progress->view->self ? progress->disk->incarnation : progress->seat[member].incarnation;
}

/* The founder's first disk. Nobody else is in configuration 0, so all that may rest on its word are versions that it
 * has made itself. */
static bool founds(const struct member_progress *progress)
{
    const struct config *config = last(progress);
    bool first = progress->disk->doubt == VOTE_FRESH && config->epoch == 0 && config->members_count == 1 &&
                 config->members[0].incarnation == 0 && progress->sync != NULL;
    for (uint32_t f = 0; f < progress->fragments_count && first; f++)
        first = sync_own(progress->sync, f).version == 0;
    return first;
}

bool member_progress_doubt_is_over(const struct member_progress *progress)
{
    const struct view_member *self = &progress->view->members[progress->view->self];
    return self->as.incarnation == progress->disk->incarnation || founds(progress);
}

/* Whether the member has said of every fragment what it holds; a witness holds none. */
static bool said_all(const struct member_progress *progress, uint32_t member)
{
    bool said = true;
    for (uint32_t f = 0; f < progress->fragments_count; f++)
        said = said && sync_heard(progress->sync, member, f).said;
    return said || progress->view->members[member].as.role == CONFIG_WITNESS;
}

/* The only voter of a configuration is the only one whom the next one needs: with two, one of whom has an older disk,
 * the other knows of it. */
struct bitset member_progress_awaited(const struct member_progress *progress)
{
    const struct view *view = progress->view;
    struct bitset missing = {{0}};
    uint32_t voters = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        if (!view->members[i].used)
            continue;
        voters += view->members[i].as.voter;
        if (i != view->self && !(progress->seat[i].up && progress->seat[i].heard))
            bitset_add(&missing, i);
    }
    bool alone = voters == 1 && progress->awake_ms < ALONE_MS;
    return alone ? missing : (struct bitset){{0}};
}

/* Whether nobody who is here knows a later configuration, and nobody is awaited who might. */
static bool nothing_newer(const struct member_progress *progress)
{
    const struct bitset awaited = member_progress_awaited(progress);
    for (uint32_t i = 0; i < progress->view->count; i++) {
        const struct seat *seat = &progress->seat[i];
        if (progress->view->members[i].used && i != progress->view->self && seat->up &&
            seat->epoch > last(progress)->epoch)
            return false;
    }
    return bitset_empty(&awaited);
}

bool member_progress_majority_in_doubt(const struct member_progress *progress)
{
    const struct view *view = progress->view;
    uint32_t sure = 0;
    if (progress->sync == NULL || !view->members[view->self].as.voter || !nothing_newer(progress))
        return false;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        if (!member->used || !member->as.voter || i == view->self)
            continue;
        if (!progress->seat[i].up || progress->seat[i].epoch != last(progress)->epoch || !said_all(progress, i))
            return false;
        sure += progress->seat[i].doubt_ms == 0;
    }
    return sure < config_majority(last(progress));
}

bool member_progress_may_be_sent(struct member_progress *progress, uint32_t member, bool asked, uint64_t now_ms)
{
    struct seat *seat = &progress->seat[member];
    uint64_t epoch = last(progress)->epoch;
    if (asked)
        return quota_take(&seat->logs, logs_rule, now_ms);
    if (seat->log_epoch == epoch && now_ms < seat->log_ms + CONFIG_LOG_UNASKED_MS)
        return false;
    seat->log_epoch = epoch;
    seat->log_ms = now_ms;
    return true;
}
