/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/epochworld.h"

#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "net/config/config_proof.h"

struct ew_world *ew;

static struct ident idents[EW_N_MAX]; /* of the process: configurations want keys that are keys */
static bool idents_there;

uint64_t ew_below(uint64_t bound)
{
    return env_rng_below(&ew->rng, bound);
}

bool ew_chance(unsigned percent)
{
    return ew_below(100) < percent;
}

/* ---- configurations ---- */

uint32_t ew_config_of(const struct digest *digest)
{
    for (uint32_t k = ew->configs_count; k > 1; k--)
        if (digest_equal(&ew->configs[k - 1].digest, digest))
            return k - 1;
    return 0;
}

uint32_t ew_config_add(const struct config *config)
{
    uint8_t *bytes;
    size_t count;
    assert_ok(config_pack(config, &bytes, &count));
    struct digest digest = config_digest(bytes, count);
    uint32_t known = ew_config_of(&digest);
    if (known != 0) {
        mem_free(bytes);
        return known;
    }
    EW_HOLDS(ew->configs_count < EW_CONFIGS_MAX, "too many configurations\n");
    assert_ok(config_check(config));
    struct ew_config *there = &ew->configs[ew->configs_count];
    *there = (struct ew_config){.bytes = bytes, .bytes_count = count, .digest = digest};
    assert_ok(config_copy(config, &there->config));
    return ew->configs_count++;
}

const struct config *ew_newest(uint32_t i)
{
    return config_log_last(ew->island[i].config_log);
}

/* What members say of themselves, of which a configuration is to tell. */
static uint32_t words_of(const struct config *config, struct next_config_word *words)
{
    static struct member_word said[EW_N_MAX];
    uint32_t count = 0;
    for (uint32_t k = 0; k < ew->n; k++) {
        const struct config_member *member = config_member(config, k + 1);
        if (member == NULL || member->uplink == ew->island[k].uplink)
            continue;
        said[k] = (struct member_word){.number = member->word + 1,
                                       .uplink = ew->island[k].uplink,
                                       .units = 1 + (uint32_t)(ew->island[k].uplink % 5)};
        member_word_sign(&idents[k], config->nonce, member->id, &said[k]);
        words[count++] = (struct next_config_word){.id = k + 1, .word = &said[k]};
    }
    return count;
}

/* The run step that results of a version name; of what is held: 10 more. */
static uint64_t step_of(const struct ew_holds *holds, bool held)
{
    uint64_t step = 0;
    for (uint32_t f = 0; f < ew->fragments; f++) {
        uint64_t own = 10 * holds->version[f] + (held && holds->held_count[f] > 0 ? 10 : 0);
        step = step < own ? own : step;
    }
    return step;
}

static const struct next_config_base *base_of(uint32_t i)
{
    static const uint32_t shards[EW_F_MAX] = {EW_SHARDS, EW_SHARDS};
    static struct next_config_base base;
    base = (struct next_config_base){.config = ew_newest(i),
                                     .digest = config_log_last_digest(ew->island[i].config_log),
                                     .shards = shards,
                                     .fragments_count = ew->fragments,
                                     .applied_step = step_of(&ew->island[i].disk.holds, false)};
    return &base;
}

/* ---- messages ---- */

void ew_send(const struct ew_message *message)
{
    unsigned copies = !ew->healing && message->from != message->to && ew_chance(5) ? 2 : 1;
    for (; copies > 0; copies--) {
        if (message->from != message->to && (ew_chance(ew->loss_percent) || ew->cut[message->from][message->to]))
            continue;
        uint32_t at = 0;
        while (at < ew->messages_end && ew->messages[at].used)
            at++;
        if (at == EW_MESSAGES_MAX)
            return;
        ew->messages_end = at == ew->messages_end ? at + 1 : ew->messages_end;
        ew->messages[at] = *message;
        ew->messages[at].used = true;
        ew->messages[at].due_ms = ew->now_ms + 1 + (message->from == message->to ? 0 : ew_below(ew->delay_most_ms));
    }
}

static void send_epoch(uint32_t i, const struct paxos_action *action)
{
    const struct paxos_message *m = &action->message;
    struct ew_message out = {.kind = EW_EPOCH, .from = i, .to = action->to - 1, .epoch = *m};
    out.holds = ew->island[i].disk.holds;
    if (m->bytes_count > 0) {
        struct digest digest = config_digest(m->bytes, m->bytes_count);
        out.config = ew_config_of(&digest);
        if (m->type == WIRE_ACCEPT)
            ew->configs[out.config].proposed = true;
    }
    if (m->type == WIRE_ACCEPTED)
        memcpy(out.epoch.signature, &m->digest, sizeof m->digest);
    ew_send(&out);
}

static void send_configs(uint32_t i, uint32_t to, uint64_t after)
{
    for (uint64_t e = after + 1; e <= ew->island[i].disk.holds.epoch; e++) {
        struct ew_message out = {.kind = EW_EPOCH, .from = i, .to = to, .config = ew->decided[e]};
        out.epoch.type = WIRE_DECIDED;
        out.epoch.epoch = e;
        out.votes_count = ew->decided_votes_count[e];
        memcpy(out.votes, ew->decided_votes[e], sizeof out.votes);
        ew_send(&out);
    }
}

/* As config_proved() has it, with signatures that are the digest itself. */
static bool proved(const struct config *previous, const struct ew_message *m)
{
    uint32_t good = 0, seen = 0;
    for (uint32_t k = 0; k < m->votes_count; k++) {
        const struct config_member *member = config_member(previous, m->votes[k].id);
        bool fits = memcmp(m->votes[k].signature, &ew->configs[m->config].digest, DIGEST_BYTES) == 0;
        if (member != NULL && member->voter && fits && m->votes[k].ballot == m->votes[0].ballot &&
            (seen >> member->id & 1) == 0)
            good++;
        seen |= (uint32_t)1 << m->votes[k].id;
    }
    return good >= config_majority(previous);
}

static void take_epoch_message(const struct ew_message *message)
{
    uint32_t i = message->to;
    struct ew_island *island = &ew->island[i];
    struct paxos_message m = message->epoch;
    const struct ew_config *config = message->config != 0 ? &ew->configs[message->config] : NULL;
    struct paxos_event event = {.type = PAXOS_EV_MESSAGE, .from = message->from + 1, .good = true, .message = &m};
    if (config != NULL) {
        m.bytes = config->bytes;
        m.bytes_count = config->bytes_count;
        m.digest = config->digest;
    }
    m.votes = message->votes;
    m.votes_count = message->votes_count;
    bool here = m.epoch == island->disk.holds.epoch + 1;
    if (here && (m.type == WIRE_ACCEPT || (m.type == WIRE_PROMISE && config != NULL)))
        event.good = next_config_follows(base_of(i), &config->config) == ERR_OK;
    if (m.type == WIRE_DECIDED)
        event.good = here && proved(ew_newest(i), message);
    if (m.type == WIRE_ACCEPTED)
        event.good = memcmp(m.signature, &m.digest, DIGEST_BYTES) == 0;
    if (here && m.type == WIRE_PROMISE)
        island->answer[message->from] =
            (struct ew_answer){.there = true, .sealed = m.sealed, .ballot = m.ballot, .holds = message->holds};
    ew_step(i, &event);
}

/* ---- an island decides ---- */

/* Every voter can be heard, and too few of them have a disk that is not in doubt. */
static bool must_recover(uint32_t i)
{
    const struct ew_island *island = &ew->island[i];
    const struct config *config = ew_newest(i);
    uint32_t sound = 0;
    for (uint32_t k = 0; k < config->members_count; k++) {
        const struct config_member *member = &config->members[k];
        uint32_t m = member->id - 1;
        const struct ew_holds *holds = m == i ? &island->disk.holds : &island->peer[m];
        if (!member->voter)
            continue;
        if (holds->incarnation == 0 || holds->epoch != config->epoch ||
            (m != i && ew->now_ms - island->heard_ms[m] >= EW_SILENT_MS))
            return false;
        sound += holds->incarnation == member->incarnation;
    }
    return sound < config_majority(config) &&
           island->disk.holds.incarnation != config_member(config, i + 1)->incarnation;
}

static void say_who_is_up(uint32_t i)
{
    struct ew_island *island = &ew->island[i];
    for (uint32_t k = 0; k < ew->n; k++) {
        bool up = k == i || ew->now_ms - island->heard_ms[k] < EW_SILENT_MS;
        assert_ok(paxos_step(island->table, &(struct paxos_event){.type = PAXOS_EV_UP, .from = k + 1, .flag = up},
                             ew->now_ms));
    }
}

static void begin_epoch(uint32_t i, bool first)
{
    struct ew_island *island = &ew->island[i];
    const struct config *config = ew_newest(i);
    uint32_t voters[EW_N_MAX], count = 0;
    for (uint32_t k = 0; k < config->members_count; k++)
        if (config->members[k].voter)
            voters[count++] = config->members[k].id;
    const struct config_member *self = config_member(config, i + 1);
    const struct ew_disk *disk = &island->disk;
    const struct ew_config *accepted = &ew->configs[disk->accepted_config];
    struct paxos_vote vote = {.epoch = disk->vote_epoch,
                              .promised = disk->promised,
                              .accepted = disk->accepted,
                              .own = disk->own,
                              .digest = accepted->digest,
                              .bytes = disk->accepted_config != 0 ? accepted->bytes : NULL,
                              .bytes_count = disk->accepted_config != 0 ? accepted->bytes_count : 0};
    bool may_vote = self->voter && self->incarnation == disk->holds.incarnation;
    assert_ok(paxos_begin(island->table, config->epoch, voters, count, may_vote, first ? &vote : NULL, ew->now_ms));
    say_who_is_up(i);
    memset(island->answer, 0, sizeof island->answer);
    island->draft = 0;
    island->want_ms = ew->now_ms + ew_below(EW_BEAT_MS);
}

static void save(uint32_t i, const struct paxos_action *action)
{
    struct ew_island *island = &ew->island[i];
    EW_HOLDS(island->saves < EW_SAVES_MAX, "island %u saves without end\n", i);
    uint64_t due = ew->now_ms + ew_below(15);
    if (island->saves > 0 && due < island->save[island->saves - 1].due_ms)
        due = island->save[island->saves - 1].due_ms;
    island->save[island->saves++] =
        (struct ew_save){.due_ms = due,
                         .number = action->number,
                         .epoch = action->vote.epoch,
                         .promised = action->vote.promised,
                         .accepted = action->vote.accepted,
                         .own = action->vote.own,
                         .config = action->vote.accepted != 0 ? ew_config_of(&action->vote.digest) : 0};
}

static void flush(uint32_t i)
{
    struct ew_island *island = &ew->island[i];
    while (island->alive && island->saves > 0 && island->save[0].due_ms <= ew->now_ms) {
        struct ew_save one = island->save[0];
        memmove(island->save, island->save + 1, --island->saves * sizeof one);
        struct ew_disk *disk = &island->disk;
        disk->vote_epoch = one.epoch;
        disk->promised = one.promised;
        disk->accepted = one.accepted;
        disk->own = one.own;
        disk->accepted_config = one.config;
        island->mark = ++disk->number;
        ew_step(i, &(struct paxos_event){.type = PAXOS_EV_SAVED, .number = one.number});
    }
}

/* Whether its starts may be at nobody else than an island that has lost them since it said that it holds them. */
static bool rests_on_the_lost(const struct config *config)
{
    const struct config_member *member = config_member(config, ew->rolled_id);
    return ew->rolled && member != NULL && member->voter && member->role != CONFIG_WITNESS &&
           member->incarnation == ew->rolled_incarnation && config_commit_quorum(config) == 1;
}

static void decide(uint32_t i, const struct paxos_action *action)
{
    struct ew_island *island = &ew->island[i];
    struct digest digest = config_digest(action->bytes, action->bytes_count);
    uint32_t number = ew_config_of(&digest);
    const struct config *next = &ew->configs[number].config;
    uint64_t e = next->epoch;
    EW_HOLDS(e < EW_E_MAX, "too many epochs\n");
    EW_HOLDS(ew->decided[e] == 0 || ew->decided[e] == number, "I6: two configurations of epoch %llu\n",
             (unsigned long long)e);
    ew->beyond = ew->beyond || (ew->decided[e] == 0 && rests_on_the_lost(next));
    ew->newest = e > ew->newest ? e : ew->newest;
    ew->decided[e] = number;
    ew->decided_votes_count[e] = action->votes_count;
    memcpy(ew->decided_votes[e], action->votes, action->votes_count * sizeof action->votes[0]);
    for (uint32_t f = 0; f < ew->fragments; f++)
        EW_HOLDS(config_start(next, f) >= config_start(ew_newest(i), f), "I5: epoch %llu starts below\n",
                 (unsigned long long)e);
    struct config copy;
    assert_ok(config_copy(next, &copy));
    assert_ok(config_log_add(island->config_log, &copy, &digest));
    island->disk.holds.epoch = e;
    island->mark = ++island->disk.number;
    island->saves = 0;
    ew_learned(i, number);
    begin_epoch(i, false);
}

static uint32_t change_requests_of(uint32_t i, bool answers, struct change_request *requests)
{
    const struct ew_island *island = &ew->island[i];
    const struct config *config = ew_newest(i);
    uint32_t count = 0;
    for (uint32_t k = 0; k < ew->n; k++) {
        const struct config_member *member = config_member(config, k + 1);
        struct change_request *request = &requests[count];
        const struct ew_answer *answer = &island->answer[k];
        *request =
            (struct change_request){.id = member->id, .incarnation = member->incarnation, .losses = member->losses};
        request->silent = k != i && ew->now_ms - island->heard_ms[k] >= EW_SILENT_MS;
        if (k == i)
            request->incarnation = island->disk.holds.incarnation;
        else if (answers && answer->there && answer->ballot == paxos_ballot(island->table))
            request->incarnation = answer->holds.incarnation;
        else if (island->peer[k].incarnation != 0)
            request->incarnation = island->peer[k].incarnation;
        const struct ew_holds *holds = k == i ? &island->disk.holds : &island->peer[k];
        request->caught_up = true;
        for (uint32_t f = 0; f < ew->fragments; f++)
            request->caught_up = request->caught_up && holds->version[f] + 2 >= island->disk.holds.version[f];
        count++;
    }
    return count;
}

/* Whether another epoch would differ in who takes part: then one is wanted. */
static void ask_for_change(uint32_t i)
{
    struct change_request requests[EW_N_MAX];
    uint32_t count = change_requests_of(i, false, requests);
    const struct config *config = ew_newest(i);
    struct config next;
    bool differs = false;
    assert_ok(config_copy(config, &next));
    if (assign_roles(&next, requests, count) == ERR_OK)
        for (uint32_t k = 0; k < next.members_count; k++)
            differs = differs || next.members[k].role != config->members[k].role ||
                      next.members[k].voter != config->members[k].voter ||
                      (next.members[k].voter && next.members[k].incarnation != config->members[k].incarnation) ||
                      (!ew->healing && ew->island[k].uplink != config->members[k].uplink);
    config_deinit(&next);
    ew_step(i, &(struct paxos_event){.type = PAXOS_EV_WANT, .flag = differs || (!ew->healing && ew_chance(2))});
}

static void copy_holds(const struct ew_holds *holds, struct holding *rows, struct part_result (*results)[EW_HELD_MAX])
{
    for (uint32_t f = 0; f < ew->fragments; f++) {
        for (uint32_t k = 0; k < holds->held_count[f]; k++)
            results[f][k] = ew->results[holds->held[f][k].result];
        rows[f] = (struct holding){
            .fragment = f, .version = holds->version[f], .held = results[f], .held_count = holds->held_count[f]};
    }
}

static void propose(uint32_t i, const struct config *draft, const struct next_config_answer *answers, uint32_t count)
{
    struct ew_island *island = &ew->island[i];
    uint32_t lacking[CONFIG_OWNERS_MAX + 1], lacking_count, everyone[EW_N_MAX];
    uint32_t number = ew_config_add(draft);
    const struct ew_config *config = &ew->configs[number];
    for (uint32_t k = 0; k < ew->n; k++)
        everyone[k] = k + 1;
    if (next_config_safe(draft, base_of(i), answers, count, lacking, &lacking_count))
        assert_ok(paxos_propose(island->table, config->bytes, config->bytes_count, &config->digest, ew->now_ms));
    else
        assert_ok(paxos_draft(island->table, config->bytes, config->bytes_count, everyone, ew->n, ew->now_ms));
}

static void compose(uint32_t i)
{
    struct ew_island *island = &ew->island[i];
    struct next_config_answer answers[EW_N_MAX];
    struct holding rows[EW_N_MAX][EW_F_MAX];
    struct part_result results[EW_N_MAX][EW_F_MAX][EW_HELD_MAX];
    struct change_request requests[EW_N_MAX];
    struct next_config_out out;
    uint32_t count = 0, everyone[EW_N_MAX];
    for (uint32_t k = 0; k < ew->n; k++) {
        const struct ew_answer *answer = &island->answer[k];
        everyone[k] = k + 1;
        if (!answer->there || answer->ballot != paxos_ballot(island->table))
            continue;
        copy_holds(&answer->holds, rows[count], results[count]);
        answers[count] = (struct next_config_answer){.id = k + 1,
                                                     .incarnation = answer->holds.incarnation,
                                                     .step = step_of(&answer->holds, true),
                                                     .sealed = answer->sealed && paxos_promised(island->table, k + 1),
                                                     .rows = rows[count],
                                                     .rows_count = ew->fragments};
        count++;
    }
    uint32_t change_requests_count = change_requests_of(i, true, requests);
    struct next_config_word words[EW_N_MAX];
    struct next_config_base base = *base_of(i);
    base.words = words;
    base.words_count = words_of(base.config, words);
    enum err err = next_config(&base, answers, count, requests, change_requests_count, &out);
    EW_HOLDS(err == ERR_OK || err == ERR_STATE, "compose: %s\n", err_text());
    if (err == ERR_OK && !out.ask)
        propose(i, &out.draft, answers, count);
    else
        assert_ok(paxos_draft(island->table, NULL, 0, everyone, ew->n, ew->now_ms));
    config_deinit(&out.draft);
}

void ew_drain(uint32_t i)
{
    struct ew_island *island = &ew->island[i];
    struct paxos_action action;
    bool composing = false, taking = false;
    while (paxos_action(island->table, &action)) {
        if (action.type == PAXOS_DO_SAVE)
            save(i, &action);
        else if (action.type == PAXOS_DO_SEND)
            send_epoch(i, &action);
        else if (action.type == PAXOS_DO_CONFIG_LOG)
            send_configs(i, action.to - 1, action.epoch);
        else if (action.type == PAXOS_DO_COMPOSE)
            composing = true;
        else if (action.type == PAXOS_DO_TAKE_OVER)
            taking = true;
        else if (action.type == PAXOS_DO_VOTE) {
            island->disk.holds.incarnation = config_member(ew_newest(i), i + 1)->incarnation;
            island->mark = ++island->disk.number;
        } else if (action.type == PAXOS_DO_FETCH) {
            struct digest digest = config_digest(action.bytes, action.bytes_count);
            island->draft = ew_config_of(&digest);
        } else if (action.type == PAXOS_DO_DECIDED) {
            uint64_t e = ew_newest(i)->epoch;
            bool ours = action.votes_count > 0 && paxos_ballot_id(action.votes[0].ballot) == i + 1;
            decide(i, &action);
            for (uint32_t k = 0; k < ew->n && ours; k++)
                if (k != i)
                    send_configs(i, k, e);
            return;
        }
    }
    island->taking = taking;
    if (taking && !ew_take_over(i)) {
        ew->recoveries++;
        ew_step(i, &(struct paxos_event){.type = PAXOS_EV_RECOVERED});
        return;
    }
    if (!composing)
        return;
    if (!ew->healing && ew_chance(4)) { /* dead between seal and decision */
        ew_crash(i, 100 + ew_below(1500));
        return;
    }
    compose(i);
    ew_drain(i);
    if (island->alive && paxos_state(island->table) == PAXOS_ACCEPTING && !ew->healing && ew_chance(4))
        ew_crash(i, 100 + ew_below(1500));
}

void ew_step(uint32_t i, const struct paxos_event *event)
{
    assert_ok(paxos_step(ew->island[i].table, event, ew->now_ms));
    ew_drain(i);
}

/* ---- life and death ---- */

void ew_crash(uint32_t i, uint64_t for_ms)
{
    struct ew_island *island = &ew->island[i];
    if (!island->alive)
        return;
    island->alive = false;
    island->revive_ms = ew->now_ms + for_ms;
    paxos_free(island->table);
    config_log_free(island->config_log);
    island->table = NULL;
    island->config_log = NULL;
    island->saves = 0;
}

void ew_roll_back(uint32_t i)
{
    ew_crash(i, 50 + ew_below(1000));
    ew->rolled_id = i + 1;
    ew->rolled_incarnation = ew->island[i].disk.holds.incarnation;
    ew->island[i].disk = ew->island[i].older;
    ew->rolled = true;
}

void ew_start(uint32_t i)
{
    struct ew_island *island = &ew->island[i];
    struct paxos_conf conf = {
        .self = i + 1, .seed = env_rng_u64(&ew->rng), .turn_ms = EW_TURN_MS, .again_ms = EW_AGAIN_MS};
    island->alive = true;
    if (island->mark != island->disk.number) { /* rule 9: a disk in doubt has another incarnation */
        island->disk.holds.incarnation = ++ew->incarnations;
        island->mark = ++island->disk.number;
    }
    assert_ok(paxos_new(&conf, &island->table));
    assert_ok(config_log_new(&island->config_log));
    for (uint64_t e = 0; e <= island->disk.holds.epoch; e++) {
        struct config copy;
        assert_ok(config_copy(&ew->configs[ew->decided[e]].config, &copy));
        assert_ok(config_log_add(island->config_log, &copy, &ew->configs[ew->decided[e]].digest));
    }
    memset(island->peer, 0, sizeof island->peer);
    memset(island->acks, 0, sizeof island->acks);
    for (uint32_t k = 0; k < ew->n; k++)
        island->heard_ms[k] = ew->now_ms;
    begin_epoch(i, true);
}

bool ew_majority(uint32_t without)
{
    uint64_t known = 0; /* to those who are left: what only the dead have learned has to be decided again */
    for (uint32_t i = 0; i < ew->n; i++)
        if (!ew->island[i].gone && i != without && ew->island[i].disk.holds.epoch > known)
            known = ew->island[i].disk.holds.epoch;
    for (uint32_t k = 1; k < ew->configs_count; k++) {
        const struct config *config = &ew->configs[k].config;
        bool pending = ew->configs[k].proposed && config->epoch > ew->newest;
        if (!pending && (config->epoch < known || ew->decided[config->epoch] != k))
            continue;
        uint32_t able = 0, keepers = 0;
        for (uint32_t m = 0; m < config->members_count; m++) {
            const struct config_member *member = &config->members[m];
            uint32_t i = member->id - 1;
            if (!member->voter || ew->island[i].gone || i == without ||
                member->incarnation != ew->island[i].disk.holds.incarnation ||
                ew->island[i].mark != ew->island[i].disk.number)
                continue;
            able++;
            keepers += member->role != CONFIG_WITNESS;
        }
        if (able < config_majority(config) || keepers == 0)
            return false;
    }
    return true;
}

uint64_t ew_top(uint32_t f)
{
    uint64_t top = 0;
    for (uint32_t i = 0; i < ew->n; i++)
        if (!ew->island[i].witness && ew->island[i].disk.holds.version[f] > top)
            top = ew->island[i].disk.holds.version[f];
    return top;
}

static struct config first_config(uint32_t voters, bool witness)
{
    struct config first = {
        .epoch = 0, .next_id = ew->n + 1, .steps = 1000000, .founder = CONFIG_NOBODY, .deal.horizon = 40};
    struct shardmap_owner owners[EW_N_MAX];
    uint32_t owners_count = 0;
    assert_ok(mem_new(ew->n, sizeof first.members[0], "members", &first.members));
    first.members_count = ew->n;
    for (uint32_t i = 0; i < ew->n; i++) {
        struct config_member *member = &first.members[i];
        bool is_witness = witness && i == voters - 1;
        *member = (struct config_member){
            .id = i + 1, .uplink = 100, .units = i + 1, .incarnation = i + 1, .voter = i < voters};
        snprintf(member->name, sizeof member->name, "island%u", i + 1);
        memcpy(member->key, idents[i].key, sizeof member->key);
        member->role = is_witness ? CONFIG_WITNESS : i < voters ? CONFIG_OWNER : CONFIG_OBSERVER;
        if (member->role == CONFIG_OWNER)
            owners[owners_count++] = (struct shardmap_owner){.id = i + 1, .weight = 100};
    }
    first.map = shardmap_empty();
    shardmap_assign(&first.map, owners, owners_count);
    return first;
}

void ew_begin(uint64_t seed, uint32_t n, uint32_t voters, bool witness)
{
    if (ew == NULL) {
        ew = calloc(1, sizeof *ew);
        assert_non_null(ew);
        ew->messages = calloc(EW_MESSAGES_MAX, sizeof ew->messages[0]);
        assert_non_null(ew->messages);
    }
    struct ew_message *messages = ew->messages;
    memset(ew, 0, sizeof *ew);
    ew->messages = messages;
    for (uint32_t i = 0; i < EW_N_MAX && !idents_there; i++)
        assert_ok(ident_generate(&idents[i]));
    idents_there = true;
    ew->seed = seed;
    ew->rng = env_rng_init(seed, 77);
    ew->n = n;
    ew->now_ms = 1000;
    ew->configs_count = ew->results_count = 1;
    ew->incarnations = n;
    struct config first = first_config(voters, witness);
    ew->decided[0] = ew_config_add(&first);
    config_deinit(&first);
    for (uint32_t i = 0; i < n; i++) {
        struct ew_island *island = &ew->island[i];
        island->uplink = 100;
        island->witness = witness && i == voters - 1;
        island->disk.holds.incarnation = i + 1;
    }
}

void ew_end(void)
{
    for (uint32_t i = 0; i < ew->n; i++)
        ew_crash(i, 0);
    for (uint32_t k = 1; k < ew->configs_count; k++) {
        config_deinit(&ew->configs[k].config);
        mem_free(ew->configs[k].bytes);
    }
    for (uint32_t k = 0; k < ew->messages_end; k++)
        ew->messages[k].used = false;
    ew->configs_count = 0;
}

void ew_free(void)
{
    if (ew != NULL)
        free(ew->messages);
    free(ew);
    ew = NULL;
}

/* ---- time ---- */

static void beat(uint32_t i)
{
    ew->island[i].beat_ms = ew->now_ms + EW_BEAT_MS / 2 + ew_below(EW_BEAT_MS);
    for (uint32_t k = 0; k < ew->n; k++)
        if (k != i)
            ew_send(&(struct ew_message){.kind = EW_BEAT, .from = i, .to = k, .holds = ew->island[i].disk.holds});
}

static void take_beat(const struct ew_message *m)
{
    struct ew_island *island = &ew->island[m->to];
    island->heard_ms[m->from] = ew->now_ms;
    island->peer[m->from] = m->holds;
    ew_data_message(m);
    ew_step(m->to, &(struct paxos_event){.type = PAXOS_EV_HEARD, .from = m->from + 1, .epoch = m->holds.epoch});
}

static void deliver(void)
{
    for (uint32_t k = 0; k < ew->messages_end; k++) {
        struct ew_message *m = &ew->messages[k];
        if (!m->used || m->due_ms > ew->now_ms)
            continue;
        struct ew_message copy = *m;
        m->used = false;
        if (!ew->island[copy.to].alive)
            continue;
        if (copy.kind == EW_BEAT)
            take_beat(&copy);
        else if (copy.kind == EW_EPOCH)
            take_epoch_message(&copy);
        else
            ew_data_message(&copy);
    }
    while (ew->messages_end > 0 && !ew->messages[ew->messages_end - 1].used)
        ew->messages_end--;
}

void ew_turn(void)
{
    ew->now_ms += EW_STEP_MS;
    deliver();
    for (uint32_t i = 0; i < ew->n; i++) {
        struct ew_island *island = &ew->island[i];
        if (!island->alive && !island->gone && ew->now_ms >= island->revive_ms)
            ew_start(i);
        flush(i);
        if (!island->alive)
            continue;
        if (ew->now_ms >= island->beat_ms)
            beat(i);
        if (ew->now_ms >= island->want_ms) {
            island->want_ms = ew->now_ms + 2 * EW_BEAT_MS;
            say_who_is_up(i);
            if (must_recover(i))
                ew_step(i, &(struct paxos_event){.type = PAXOS_EV_RECOVER});
            ask_for_change(i);
        }
        if (island->alive)
            ew_step(i, &(struct paxos_event){.type = PAXOS_EV_TICK});
        if (island->alive)
            ew_data_turn(i);
    }
}

void ew_print(void)
{
    for (uint32_t i = 0; i < ew->n; i++) {
        const struct ew_island *island = &ew->island[i];
        const struct ew_holds *h = &island->disk.holds;
        print_message(
            "island %u%s%s: epoch %llu incarnation %llu versions %llu %llu promised %llx accepted %llx state %d\n",
            i + 1, island->gone ? " gone" : "", island->alive ? "" : " down", (unsigned long long)h->epoch,
            (unsigned long long)h->incarnation, (unsigned long long)h->version[0], (unsigned long long)h->version[1],
            (unsigned long long)island->disk.promised, (unsigned long long)island->disk.accepted,
            island->alive ? (int)paxos_state(island->table) : -1);
    }
    const struct config *config = &ew->configs[ew->decided[ew->newest]].config;
    for (uint32_t k = 0; k < config->members_count; k++)
        print_message("  configuration %llu: island %u role %u voter %d incarnation %llu\n",
                      (unsigned long long)config->epoch, config->members[k].id, config->members[k].role,
                      config->members[k].voter, (unsigned long long)config->members[k].incarnation);
}
