/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host of net/membership in a simulated world: what daemon/membership/membership_host.c is in the daemon, with a
 * disk that takes its time, fills up and is lost, and letters for messages. Its own additions: a proposer dies now and
 * then, before its draft or its configuration is said, when its vote is on its way to disk, or when it has just
 * decided.
 */
#include "tests/lib/simworld.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "net/config/config_proof.h"
#include "net/sync/sync_core.h"

enum { TICK_MS = 100, ADMIT_MS = 2000, EVICT_MS = 2000, FLAP_MS = 6000 };

static struct sim_voice *voice_of(uint32_t i)
{
    return &sim->island[i].voice;
}

static const struct config *last(uint32_t i)
{
    return config_log_last(sim->island[i].config_log);
}

const struct config_member *sim_member_of(uint32_t i, uint32_t k)
{
    return sim_knows(i, k) ? config_member(last(i), sim_id(k)) : NULL;
}

bool sim_in_doubt(uint32_t i)
{
    return sim->island[i].voting.doubt != VOTE_SURE;
}

struct ident sim_ident(uint32_t i)
{
    struct ident ident = {.public_text = ""};
    struct digest digest = digest_of(&i, sizeof i);
    memcpy(ident.key, digest.byte, sizeof ident.key);
    return ident;
}

/* A proposer is killed at a moment when it hurts. */
static void die_now_and_then(uint32_t i, unsigned percent)
{
    if (sim->healing || sim->kill_permille == 0 || !sim_chance(percent))
        return;
    sim->tally.proposers_died += !sim->island[i].die;
    sim->island[i].die = true;
}

/* ---- the network ---- */

/* A configuration that is said, or voted for, may still be decided when all else is lost. */
static uint32_t note_proposed(const uint8_t *bytes, size_t bytes_count)
{
    struct config config;
    struct digest digest = config_digest(bytes, bytes_count);
    uint32_t number = sim_config_of(&digest);
    if (number == 0) {
        assert_ok(config_unpack(bytes, bytes_count, &config));
        number = sim_config_add(&config);
        config_deinit(&config);
    }
    sim_config(number)->proposed = true;
    return number;
}

/* What the liar says in its seal. */
static void send_lie(uint32_t i, uint32_t k, struct paxos_message *message)
{
    uint8_t *bytes;
    size_t count;
    sim_lie_promise(i, message);
    assert_ok(wire_paxos_pack(message, &bytes, &count));
    sim_send_letter(i, k, message->type, bytes, count);
    mem_free(bytes);
}

/* Nobody honest accepts it, so that it can be decided nowhere. */
static void send_lies_about(uint32_t i, uint32_t k, const struct paxos_message *message)
{
    uint8_t *bytes;
    size_t count;
    sim_lie_config(i, message, &bytes, &count);
    sim_send_letter(i, k, message->type, bytes, count);
    mem_free(bytes);
}

static void send(void *user, uint32_t slot, uint32_t type, const uint8_t *bytes, size_t bytes_count)
{
    uint32_t i = *(const uint32_t *)user, k = sim_at(i, slot);
    struct paxos_message message;
    SIM_HOLDS(k < sim->n && k != i, "island %u sends to slot %u\n", i, slot);
    assert_ok(wire_paxos_unpack(type, bytes, bytes_count, &message));
    if (type == WIRE_ACCEPT && sim_lies(i, SIM_LIE_ORDER)) {
        send_lies_about(i, k, &message);
        wire_paxos_deinit(&message);
        return;
    }
    if (type == WIRE_ACCEPT) {
        die_now_and_then(i, 1);
        if (!sim->island[i].die)
            (void)note_proposed(message.bytes, message.bytes_count);
    }
    if (type == WIRE_PREPARE && message.bytes_count > 0)
        die_now_and_then(i, 1);
    /* False seals of a member that is silent else stop a run for good in which it is needed: of three, one is away. */
    bool promises = type == WIRE_PROMISE && message.sealed, drafts = sim_lies(i, SIM_LIE_DRAFT);
    bool seals = drafts && sim->steady && sim->seed % 3 == 0;
    if (!sim->island[i].die && sim->island[i].greeted[k] != 0) {
        if (promises && (sim_lies(i, SIM_LIE_PROMISE) || seals))
            send_lie(i, k, &message);
        else if (!drafts)
            sim_send_letter(i, k, type, bytes, bytes_count);
    }
    wire_paxos_deinit(&message);
}

/* ---- the disk ---- */

static uint64_t disk_delay_ms(void)
{
    return sim->disk_ms == 0 ? 0 : sim_below(sim->disk_ms);
}

bool sim_disk_full(uint32_t i)
{
    return sim->now_ms < sim->island[i].full_ms && !sim->healing;
}

static void write_vote(uint32_t i)
{
    struct sim_voice *voice = voice_of(i);
    if (voice->writing.number != 0 || voice->unsaved.number == 0)
        return;
    voice->writing = voice->unsaved;
    voice->writing.due_ms = sim->now_ms + disk_delay_ms();
    voice->unsaved.number = 0;
}

static void save_vote(void *user, const struct paxos_vote *vote, uint64_t number)
{
    uint32_t i = *(const uint32_t *)user;
    struct sim_island *island = &sim->island[i];
    if (island->die)
        return;
    uint32_t accepted = vote->accepted != 0 ? note_proposed(vote->bytes, vote->bytes_count) : 0;
    island->voting.vote = *vote;
    island->voting.vote.bytes = accepted != 0 ? sim_config(accepted)->bytes : NULL;
    island->voice.unsaved = (struct sim_saving){.number = number, .vote = island->voting.vote, .accepted = accepted};
    write_vote(i);
    die_now_and_then(i, 1);
}

static void vote_is_durable(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct sim_saving *writing = &island->voice.writing;
    struct sim_disk *disk = &island->disk;
    sim_tell("island %u has saved its vote in epoch %llu: promised %llx accepted %llx", i,
             (unsigned long long)writing->vote.epoch, (unsigned long long)writing->vote.promised,
             (unsigned long long)writing->vote.accepted);
    disk->number++;
    disk->fresh = false;
    disk->vote_epoch = writing->vote.epoch;
    disk->promised = writing->vote.promised;
    disk->accepted = writing->vote.accepted;
    disk->own = writing->vote.own;
    disk->accepted_config = writing->accepted;
    sim_mark(i);
    uint64_t number = writing->number;
    writing->number = 0;
    write_vote(i);
    membership_saved(island->voice.membership, number, sim_clock(i));
}

static enum err keep_config(void *user, const struct config_entry *entry)
{
    uint32_t i = *(const uint32_t *)user;
    struct sim_voice *voice = voice_of(i);
    if (sim->island[i].die || voice->keeping != 0)
        return ERR_OK;
    struct digest digest = config_digest(entry->bytes, entry->bytes_count);
    sim_decided(i, sim_config_of(&digest), entry->votes, entry->votes_count);
    voice->keeping = sim_config_of(&digest);
    voice->kept_ms = sim->now_ms + disk_delay_ms();
    die_now_and_then(i, 2);
    return ERR_OK;
}

static struct config_entry entry_of(uint32_t number)
{
    struct sim_config *config = sim_config(number);
    return (struct config_entry){.bytes = config->bytes,
                                 .bytes_count = config->bytes_count,
                                 .votes = config->votes,
                                 .votes_count = config->votes_count};
}

static void config_is_durable(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    const struct config_entry entry = entry_of(island->voice.keeping);
    uint64_t epoch = sim_config(island->voice.keeping)->config.epoch;
    island->voice.keeping = 0;
    island->disk.epoch = epoch > island->disk.epoch ? epoch : island->disk.epoch;
    membership_kept(island->voice.membership, &entry);
    die_now_and_then(i, 1);
}

static enum err read_config(void *user, uint64_t epoch, struct config_entry *out)
{
    (void)user; /* it asks for what its config log has alone */
    const struct config_entry entry = entry_of(sim->decided[epoch]);
    return config_entry_copy(&entry, out);
}

static enum err save_evidence(void *user, uint32_t id, const uint8_t *bytes, size_t bytes_count)
{
    return sim_save_evidence(*(const uint32_t *)user, sim_of(id), bytes, bytes_count);
}

static enum err load_evidence(void *user, uint32_t id, uint8_t **bytes, size_t *bytes_count)
{
    return sim_load_evidence(*(const uint32_t *)user, sim_of(id), bytes, bytes_count);
}

/* Into `numbers`, the last SIM_SAID of them, the newest first. False: it is there already. */
static bool note_number(uint64_t *numbers, uint64_t number)
{
    for (uint32_t k = 0; k < SIM_SAID; k++)
        if (numbers[k] == number)
            return k == 0;
    memmove(numbers + 1, numbers, (SIM_SAID - 1) * sizeof *numbers);
    numbers[0] = number;
    return true;
}

/* Whatever became of its disks, an island uses none twice, but from a disk that is in doubt. */
static enum err save_numbers(void *user, const struct said_numbers *numbers)
{
    uint32_t i = *(const uint32_t *)user;
    struct sim_island *island = &sim->island[i];
    bool two = sim->copied && i == sim->liar; /* of which neither knows the other's */
    if (sim_disk_full(i))
        return err_set(ERR_STATE, "the disk is full");
    bool orders = numbers->order == island->disk.numbers.order || note_number(island->said.orders, numbers->order);
    bool words = numbers->word == island->disk.numbers.word || note_number(island->said.words, numbers->word);
    SIM_HOLDS(two || orders || numbers->order_lost, "island %u gives order %llu again\n", i,
              (unsigned long long)numbers->order);
    SIM_HOLDS(two || words || numbers->word_lost, "island %u says word %llu again\n", i,
              (unsigned long long)numbers->word);
    island->disk.numbers = *numbers;
    return ERR_OK;
}

/* As daemon/membership/numbers_file.c; of one of which nothing is left at all, nobody knows that it was. */
static void open_numbers(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct sim_disk *disk = &island->disk;
    if (disk->numbers_of != disk->incarnation && (disk->numbers_of != 0 || island->voting.doubt == VOTE_DOUBT))
        disk->numbers.order_lost = disk->numbers.word_lost = true;
    if (disk->numbers_of == 0 && island->voting.doubt == VOTE_FRESH)
        memset(&island->said, 0, sizeof island->said);
    disk->numbers_of = disk->incarnation;
}

static enum err settle(void *user, uint64_t named, uint64_t trusted_epoch)
{
    uint32_t i = *(const uint32_t *)user;
    struct sim_island *island = &sim->island[i];
    bool ends = island->voting.doubt != VOTE_SURE;
    if (ends)
        sim_tell("island %u votes: its disk is not in doubt", i);
    sim->tally.recoveries += ends;
    island->voting.doubt = VOTE_SURE;
    island->voting.named = named;
    island->voting.trusted_epoch = trusted_epoch;
    sim_mark(i);
    return ERR_OK;
}

static void distrust(void *user)
{
    uint32_t i = *(const uint32_t *)user;
    sim_tell("island %u votes no more: another disk of its key is named", i);
    SIM_HOLDS(sim->copied && i == sim->liar, "island %u takes its disk for one of two\n", i);
    sim->tally.distrusted++;
    sim->island[i].voting.doubt = VOTE_DOUBT;
    sim_mark(i);
}

static void tell(void *user, const struct membership_news *news)
{
    uint32_t i = *(const uint32_t *)user;
    struct sim_voice *voice = voice_of(i);
    switch (news->type) {
    case MEMBERSHIP_DECIDED: voice->taken = true; break;
    case MEMBERSHIP_VOTES: sim->island[i].announce = true; break;
    case MEMBERSHIP_WANTS: voice->wants = true; break;
    case MEMBERSHIP_PARTITIONED: break;
    case MEMBERSHIP_DISK_FAILS: break;
    case MEMBERSHIP_ORDERED: break;
    case MEMBERSHIP_ORDER_ENDED: break;
    case MEMBERSHIP_ORDER_REFUSED: break; /* it is of the epoch before, or was carried out */
    case MEMBERSHIP_CONFIG_REFUSED:
        SIM_HOLDS(sim_at(i, news->member) == sim->liar && sim->lie != SIM_HONEST,
                  "island %u says that honest island %u proposes what may not follow: %s\n", i, sim_at(i, news->member),
                  news->text);
        sim->tally.misproposed++;
        break;
    case MEMBERSHIP_EVIDENCE_LOST:
    case MEMBERSHIP_BROKE_WORD:
        SIM_HOLDS(sim_at(i, news->member) == sim->liar && sim->lie != SIM_HONEST,
                  "island %u says that honest island %u broke its word\n", i, sim_at(i, news->member));
        sim->tally.equivocated++;
        break;
    case MEMBERSHIP_NO_EVIDENCE: SIM_HOLDS(false, "island %u: %s\n", i, err_text()); break;
    case MEMBERSHIP_SUSPECT:
        SIM_HOLDS(sim->lie >= SIM_LIE_DRAFT, "island %u suspects an honest island of two results of one part\n", i);
        break;
    case MEMBERSHIP_FAILED: /* where a liar's seal makes no sense, nothing can be composed */
        SIM_HOLDS(news->err == ERR_STATE, "island %u: %s: %s\n", i, news->text, err_text());
        break;
    }
}

static const struct membership_io host = {.send = send,
                                          .save_vote = save_vote,
                                          .keep_config = keep_config,
                                          .read_config = read_config,
                                          .save_evidence = save_evidence,
                                          .load_evidence = load_evidence,
                                          .save_numbers = save_numbers,
                                          .settle = settle,
                                          .distrust = distrust,
                                          .tell = tell};

/* ---- the engine ---- */

/* Takes what was decided, and changes over. */
static void adopt(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct config config;
    struct digest digest;
    island->voice.taken = false;
    if (!membership_take(island->voice.membership, &config, &digest))
        return;
    SIM_HOLDS(config.epoch == island->epoch + 1 && sim_config_of(&digest) == sim->decided[config.epoch],
              "island %u takes a configuration that was not decided\n", i);
    config_deinit(&config);
    sim_extend(i);
    sim_tell("island %u begins epoch %llu", i, (unsigned long long)island->epoch);
    struct sync_view view = sim_view(i);
    assert_ok(sync_begin_epoch(island->sync, &view, sim_clock(i)));
    sim_drain(i);
    sim_check_epoch(i);
    for (uint32_t f = 0; f < sim->fragments; f++)
        if (sync_known(island->sync, f))
            sim_tell_held(i, f);
    if (island->certificates != NULL)
        certificates_begin_epoch(island->certificates);
    assert_ok(membership_begin(island->voice.membership, sim_clock(i)));
    sync_set_votes(island->sync, membership_votes(island->voice.membership));
}

/* After each call of membership: what it led to here. */
static void look(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct sim_voice *voice = &island->voice;
    while (!island->die) {
        if (sim_lies(i, SIM_LIE_SEAL))
            island->sync->sealed = false;
        if (voice->wants) {
            voice->wants = false;
            sim_step(i, &(struct sync_event){.type = SYNC_EV_TICK});
        } else if (voice->taken) {
            adopt(i);
        } else if (voice->writing.number != 0 && voice->writing.due_ms <= sim->now_ms && !sim_disk_full(i)) {
            vote_is_durable(i);
        } else if (voice->keeping != 0 && voice->kept_ms <= sim->now_ms && !sim_disk_full(i)) {
            config_is_durable(i);
        } else {
            return;
        }
    }
}

void sim_voice_letter(uint32_t i, const struct sim_letter *letter)
{
    if (letter->type == WIRE_ORDER && sim_lies(i, SIM_LIE_LEAVES_OUT))
        return;
    enum err err = membership_message_in(voice_of(i)->membership, sim_slot(i, letter->from), letter->type,
                                         letter->bytes, letter->bytes_count, sim_clock(i));
    SIM_HOLDS(err == ERR_OK, "island %u cannot read what island %u says: %s\n", i, letter->from, err_text());
    look(i);
}

/* Who lies about it says at each time what the configuration does not. */
static bool drains(uint32_t k)
{
    const struct config_member *as = sim_member_of(k, k);
    return sim_lies(k, SIM_LIE_DRAINS) ? as != NULL && !as->draining
                                       : sim->now_ms < sim->island[k].drains_ms && !sim->healing;
}

/* What an island says of itself is signed by its own membership, and heard as it stands there. */
static void said(uint32_t i, uint32_t k)
{
    const struct sim_island *island = &sim->island[k];
    const struct membership *of = voice_of(k)->membership;
    if (i == k) {
        const struct member_word word = {.uplink = island->uplink,
                                         .units = sim_units(k),
                                         .owner_choice = sim_owner_choice(k),
                                         .draining = drains(k)};
        membership_say(voice_of(i)->membership, &word);
    } else if (of != NULL && membership_own_word(of)->number != 0 && !sim_lies(i, SIM_LIE_LEAVES_OUT)) {
        /* Who has not heard yet that it has another key cannot know whose signature that is. */
        bool good = membership_word(voice_of(i)->membership, sim_slot(i, k), membership_own_word(of)) == ERR_OK;
        SIM_HOLDS(good || (sim->rekeys && island->epoch > sim->island[i].epoch),
                  "island %u does not believe what island %u says of itself: %s\n", i, k, err_text());
    }
}

void sim_voice_up(uint32_t i, uint32_t k, bool up)
{
    if (up)
        said(i, k);
    membership_up(voice_of(i)->membership, sim_slot(i, k), up, sim_clock(i));
    look(i);
}

void sim_voice_heard(uint32_t i, uint32_t k, const struct wire_heartbeat *beat)
{
    said(i, k);
    membership_heard(voice_of(i)->membership, sim_slot(i, k), beat, sim_clock(i));
    look(i);
}

void sim_voice_beat(uint32_t i, const struct wire_heartbeat *beat)
{
    membership_beat(voice_of(i)->membership, beat, sim_clock(i));
}

/* ---- time ---- */

static struct wire_join newcomer(uint32_t k)
{
    struct ident ident = sim_ident(k);
    struct wire_join join = {
        .witness = sim->island[k].witness,
        .word = {.number = 1, .uplink = sim->island[k].uplink, .owner_choice = sim_owner_choice(k)}};
    snprintf(join.name, sizeof join.name, "m%u", k);
    wire_join_sign(&ident, sim_newest()->nonce, &join);
    return join;
}

/* As the daemon's join server does until a configuration has them: at one island, and at another one when that is away.
 */
static void admit_newcomers(uint32_t i)
{
    uint32_t first = 0;
    while (first < sim->n &&
           (!sim->island[first].joined || !sim->island[first].alive || sim->island[first].dials || sim_stopped(first)))
        first++;
    for (uint32_t k = 0; first == i && k < sim->n; k++) {
        struct wire_join join = newcomer(k);
        if (!sim->island[k].joined && sim->now_ms >= sim->island[k].revive_ms)
            (void)!membership_admit(voice_of(i)->membership, &join, false);
    }
}

/* People ask for it at every island, again and again. */
static void evict_the_liar(uint32_t i)
{
    if (sim->evicted && i != sim->liar)
        sim_voice_order_out(i, sim->liar);
}

/* It stops, as a machine that hangs does, for long enough to be lost, and goes on for as long. */
static void come_and_go(uint32_t i)
{
    if (sim_lies(i, SIM_LIE_FLAPS) && sim->now_ms % (2 * FLAP_MS) < TICK_MS)
        sim->island[i].go_on_ms = sim->now_ms + FLAP_MS;
}

/* So that there always is something to change. */
static void order_without_end(uint32_t i)
{
    if (sim_lies(i, SIM_LIE_LEAVES_OUT) && !sim->island[i].die)
        (void)!membership_order(voice_of(i)->membership, ORDER_STEPS, 0, SIM_ORDERED_STEPS + sim->now_ms, NULL);
}

void sim_voice_order_out(uint32_t i, uint32_t whom)
{
    if (sim_member_of(i, whom) != NULL && !sim->island[i].die)
        (void)!membership_order(voice_of(i)->membership, ORDER_EVICT, sim_id(whom), 0, NULL);
}

void sim_voice_order_steps(uint32_t i)
{
    uint64_t steps = SIM_ORDERED_FROM + sim_below(SIM_ORDERED_STEPS - SIM_ORDERED_FROM);
    if (sim_member_of(i, i) != NULL && !sim->island[i].die)
        (void)!membership_order(voice_of(i)->membership, ORDER_STEPS, 0, steps, NULL);
}

void sim_voice_order_pause(uint32_t i, bool pause)
{
    if (sim_member_of(i, i) != NULL && !sim->island[i].die)
        (void)!membership_order(voice_of(i)->membership, pause ? ORDER_PAUSE : ORDER_RESUME, 0, 0, NULL);
}

bool sim_stands(uint32_t i)
{
    const struct config *config = sim->island[i].alive ? config_log_last(sim->island[i].config_log) : NULL;
    return config != NULL && config->paused;
}

static void listen(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    island->voice.silent = (struct bitset){{0}};
    for (uint32_t k = 0; k < sim->n; k++)
        if (k != i && sim_knows(i, k) &&
            (sim_clock(i) > island->heard_ms[k] + SIM_AWAY_MS ||
             sync_complains(island->sync, sim_slot(i, k), sim_in_doubt(i))))
            bitset_add(&island->voice.silent, sim_slot(i, k));
}

void sim_voice_tick(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct sim_voice *voice = &island->voice;
    look(i);
    sim_lie_draft(i);
    sim_lie_order(i);
    if (sim->now_ms < voice->tick_ms || island->die)
        return;
    voice->tick_ms = sim->now_ms + TICK_MS;
    listen(i);
    sim_keys_tick(i);
    said(i, i);
    if (sim->now_ms >= voice->admit_ms) {
        voice->admit_ms = sim->now_ms + ADMIT_MS;
        admit_newcomers(i);
        evict_the_liar(i);
    }
    order_without_end(i);
    come_and_go(i);
    membership_tick(voice->membership, &voice->silent, sim_clock(i));
    look(i);
}

/* ---- life ---- */

static struct paxos_vote vote_on(const struct sim_disk *disk)
{
    const struct sim_config *accepted = sim_config(disk->accepted_config);
    bool has = disk->accepted_config != 0;
    return (struct paxos_vote){.epoch = disk->vote_epoch,
                               .promised = disk->promised,
                               .accepted = disk->accepted,
                               .own = disk->own,
                               .digest = has ? accepted->digest : (struct digest){{0}},
                               .bytes = has ? accepted->bytes : NULL,
                               .bytes_count = has ? accepted->bytes_count : 0};
}

bool sim_votes(uint32_t i)
{
    const struct membership *membership = voice_of(i)->membership;
    return membership != NULL && membership_votes(membership);
}

void sim_voice_start(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct sim_voice *voice = &island->voice;
    memset(voice, 0, sizeof *voice);
    voice->self = i;
    sim_keys_settle(i);
    island->keys.links_by_next = false;
    island->keys.turns = (struct key_turns){0};
    island->voting.incarnation = island->disk.incarnation;
    island->voting.vote = vote_on(&island->disk);
    open_numbers(i);
    struct membership_conf conf = {.view = &island->view,
                                   .config_log = island->config_log,
                                   .ident = &voice->ident,
                                   .next = &voice->next,
                                   .disk = &island->voting,
                                   .numbers = island->disk.numbers,
                                   .host = &host,
                                   .user = &voice->self,
                                   .seed = env_rng_u64(&sim->rng)};
    assert_ok(membership_new(&conf, &voice->membership));
    assert_ok(membership_begin(voice->membership, sim_clock(i)));
    voice->tick_ms = sim->now_ms + sim_below(TICK_MS);
}

void sim_voice_plan_known(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct certificates_conf conf = {.config_log = island->config_log,
                                     .ident = &island->voice.ident,
                                     .nonce = island->view.nonce,
                                     .id = sim_id(i),
                                     .fragments_count = sim->fragments};
    assert_ok(membership_plan_known(island->voice.membership, island->sync, sim->fragments, sim->shards_counts));
    if (!island->witness)
        assert_ok(certificates_new(&conf, &island->certificates));
}

void sim_voice_end(uint32_t i)
{
    struct sim_voice *voice = voice_of(i);
    membership_free(voice->membership);
    memset(voice, 0, sizeof *voice);
    certificates_free(sim->island[i].certificates);
    sim->island[i].certificates = NULL;
}
