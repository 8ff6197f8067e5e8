/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations of a simulated world, who is who in them, and letters about them on their way. */
#include "tests/lib/simworld.h"

#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "net/config/config_proof.h"
#include "tests/lib/roster.h"

/* Large, and used from the start up: never cleared as a whole. */
static struct sim_config configs[SIM_CONFIGS_MAX];
static struct sim_letter letters[SIM_LETTERS_MAX];

/* ---- configurations ---- */

struct sim_config *sim_config(uint32_t number)
{
    return &configs[number];
}

uint32_t sim_config_of(const struct digest *digest)
{
    for (uint32_t k = sim->configs_count; k > 1; k--)
        if (digest_equal(&configs[k - 1].digest, digest))
            return k - 1;
    return 0;
}

uint32_t sim_config_add(const struct config *config)
{
    uint8_t *bytes;
    size_t count;
    assert_ok(config_pack(config, &bytes, &count));
    struct digest digest = config_digest(bytes, count);
    uint32_t known = sim_config_of(&digest);
    if (known != 0) {
        mem_free(bytes);
        return known;
    }
    SIM_HOLDS(sim->configs_count < SIM_CONFIGS_MAX, "too many configurations\n");
    struct sim_config *there = &configs[sim->configs_count];
    *there = (struct sim_config){.bytes = bytes, .bytes_count = count, .digest = digest};
    assert_ok(config_copy(config, &there->config));
    return sim->configs_count++;
}

const struct config *sim_newest(void)
{
    return &configs[sim->decided[sim->newest]].config;
}

uint32_t sim_id(uint32_t i)
{
    return sim->ids[i];
}

uint32_t sim_of(uint32_t id)
{
    uint32_t i = 0;
    while (i < sim->n && (sim->ids[i] != id || id == 0))
        i++;
    return i;
}

/* ---- what was decided ---- */

/* Who is on the roster from now on learns it by the configuration itself. */
static void join(const struct config *config)
{
    for (uint32_t k = 0; k < config->members_count; k++) {
        uint32_t i = (uint32_t)strtoul(config->members[k].name + 1, NULL, 10);
        struct sim_island *island = &sim->island[i];
        if (sim->ids[i] != 0)
            continue;
        sim->ids[i] = config->members[k].id;
        sim->tally.joined += config->epoch > 0;
        island->joined = true;
        struct sim_disk *disks[] = {&island->disk, &island->older};
        for (int d = 0; d < 2; d++) {
            disks[d]->epoch = disks[d]->epoch_first = config->epoch;
            disks[d]->fresh = true;
            memset(disks[d]->blank, config->epoch > 0, sizeof disks[d]->blank);
        }
    }
}

static uint32_t named_in(const struct config_member *member)
{
    return (uint32_t)strtoul(member->name + 1, NULL, 10);
}

/* Whether the disk that the configuration names will never vote again: it is lost; or its island, which is down, comes
 * back with one of which it cannot be sure; or another one is there, and can't become sure by itself, since that takes
 * all who vote (`some_gone`: not all can come). */
static bool is_lost(const struct config_member *member, bool some_gone)
{
    const struct sim_island *island = &sim->island[named_in(member)];
    bool other = sim_in_doubt(named_in(member)) && island->disk.incarnation != member->incarnation;
    bool unsure = island->alive ? some_gone && other : !island->mark.there;
    return island->gone || unsure || (island->forgot && member->incarnation <= island->forgot_upto);
}

/* Whether too many of its voters' disks were lost since they said what they hold: nobody could know. */
static bool rests_on_the_lost(const struct config *config)
{
    uint32_t good = 0, lost = 0;
    bool some_gone = false;
    for (uint32_t k = 0; k < config->members_count; k++)
        some_gone |= config->members[k].voter && sim->island[named_in(&config->members[k])].gone;
    for (uint32_t k = 0; k < config->members_count; k++) {
        const struct config_member *member = &config->members[k];
        bool forgot = is_lost(member, some_gone);
        good += member->voter && !forgot;
        lost += member->voter && forgot && member->role != CONFIG_WITNESS;
    }
    return good < config_majority(config) || lost >= config_commit_quorum(config);
}

/* A configuration counts one more loss of a member at most, and one less for each 20 minutes that some island has seen
 * a configuration say that number. */
static void check_losses(const struct config *before, const struct config *config)
{
    for (uint32_t k = 0; k < config->members_count && sim->n <= SIM_NINE; k++) {
        const struct config_member *is = &config->members[k], *was = config_member(before, is->id);
        uint64_t *since_ms = sim->losses_ms[named_in(is)], most_ms = 0;
        if (was != NULL && was->losses == is->losses)
            continue;
        for (uint32_t i = 0; i < sim->n; i++) {
            most_ms = sim_clock(i) - since_ms[i] > most_ms ? sim_clock(i) - since_ms[i] : most_ms;
            since_ms[i] = sim_clock(i);
        }
        if (was == NULL)
            continue;
        uint32_t less = is->losses < was->losses ? was->losses - is->losses : 0;
        SIM_HOLDS(is->losses <= was->losses + 1, "epoch %llu counts more than one loss of island %u\n",
                  (unsigned long long)config->epoch, named_in(is));
        SIM_HOLDS(less <= most_ms / SIM_FORGIVE_MS, "epoch %llu forgives island %u %u losses after %llu ms\n",
                  (unsigned long long)config->epoch, named_in(is), less, (unsigned long long)most_ms);
        sim->tally.forgiven += less;
    }
}

/* Where all others have given up their votes, as who drains does, the liar is a majority. */
static bool liar_decides(const struct config *config)
{
    const struct config_member *liar = config_member(config, sim_id(sim->liar));
    return liar != NULL && liar->voter && config_voters(config) == 1;
}

void sim_check_deal(uint32_t i)
{
    const struct sim_island *island = &sim->island[i];
    uint64_t applied = island->sync != NULL ? sync_steps(island->sync).applied : 0;
    for (uint64_t epoch = island->epoch + 1; epoch <= sim->newest; epoch++)
        SIM_HOLDS(sim->lie != SIM_HONEST || sim->beyond ||
                      applied <= configs[sim->decided[epoch]].config.deal.counted_step,
                  "island %u, in epoch %llu, applied step %llu, and epoch %llu deals data from step %llu on\n", i,
                  (unsigned long long)island->epoch, (unsigned long long)applied, (unsigned long long)epoch,
                  (unsigned long long)configs[sim->decided[epoch]].config.deal.counted_step);
}

void sim_decided(uint32_t i, uint32_t number, const struct config_vote *votes, uint32_t votes_count)
{
    struct sim_config *config = &configs[number];
    uint64_t epoch = config->config.epoch;
    SIM_HOLDS(number != 0 && epoch < SIM_EPOCHS_MAX, "island %u decides a configuration that nobody composed\n", i);
    SIM_HOLDS(sim->decided[epoch] == 0 || sim->decided[epoch] == number,
              "I6: island %u: two configurations of epoch %llu\n", i, (unsigned long long)epoch);
    if (config->decided)
        return;
    SIM_HOLDS(epoch == sim->newest + 1, "epoch %llu is decided after epoch %llu\n", (unsigned long long)epoch,
              (unsigned long long)sim->newest);
    for (uint32_t f = 0; f < sim->fragments; f++)
        SIM_HOLDS(config_start(&config->config, f) >= config_start(sim_newest(), f), "I5: epoch %llu starts below\n",
                  (unsigned long long)epoch);
    check_losses(sim_newest(), &config->config);
    bool alone = liar_decides(sim_newest());
    SIM_HOLDS(alone || !sim_is_lie(&config->digest), "epoch %llu is as the liar would have it\n",
              (unsigned long long)epoch);
    for (uint32_t k = 0; k < config->config.orders_count; k++)
        SIM_HOLDS(alone || sim->lie != SIM_LIE_ORDER || config->config.orders[k].signer != sim_id(sim->liar) ||
                      config->config.orders[k].kind == ORDER_VOID,
                  "epoch %llu carries out an order of island %u, which is no operator\n", (unsigned long long)epoch,
                  sim->liar);
    config->decided = true;
    config->votes_count = votes_count;
    memcpy(config->votes, votes, votes_count * sizeof votes[0]);
    sim->decided[epoch] = number;
    sim_tell("island %u decides configuration %llu", i, (unsigned long long)epoch);
    for (uint32_t f = 0; f < sim->fragments; f++)
        sim_tell("  fragment %u starts from %llu", f, (unsigned long long)config_start(&config->config, f));
    for (uint32_t k = 0; k < config->config.carried_count; k++)
        sim_tell("  carries result %u", sim_number(&config->config.carried[k].id.digest));
    for (uint32_t k = 0; k < config->config.members_count; k++)
        sim_tell("  %s: role %u%s, disk %llu, lost %u times", config->config.members[k].name,
                 config->config.members[k].role, config->config.members[k].voter ? ", votes" : "",
                 (unsigned long long)config->config.members[k].incarnation, config->config.members[k].losses);
    sim->newest = epoch;
    sim->beyond = sim->beyond || rests_on_the_lost(&config->config);
    for (uint32_t k = 0; k < sim->n; k++)
        sim_check_deal(k);
    join(&config->config);
}

void sim_found(void)
{
    struct config config = {.nonce = "simulated world",
                            .steps = 1000000,
                            .map = shardmap_empty(),
                            .founder = CONFIG_NOBODY,
                            .deal.horizon = 40};
    sim->configs_count = 1;
    for (uint32_t i = 0; i < sim->n; i++) {
        struct sim_island *island = &sim->island[i];
        if (!island->joined)
            continue;
        roster_join(&config, i,
                    island->witness                          ? CONFIG_WITNESS
                    : island->wants_shards && !island->dials ? CONFIG_OWNER
                                                             : CONFIG_CONTRIBUTOR);
        struct config_member *member = &config.members[config.members_count - 1];
        struct ident ident = sim_ident(i);
        memcpy(member->key, ident.key, sizeof member->key);
        member->uplink = island->uplink;
        member->units = sim_units(i);
        member->incarnation = i + 1;
        member->owner_choice = sim_owner_choice(i);
        member->operates = sim->rekeys ? i % 2 == 0 : sim->lie != SIM_LIE_ORDER || i != sim->liar;
        if (sim->rekeys && i == 0)
            config.founder = member->id;
    }
    roster_map_owners(&config);
    sim->incarnations = sim->n;
    sim->decided[0] = sim_config_add(&config);
    configs[sim->decided[0]].decided = true;
    join(&config);
    config_deinit(&config);
    for (uint32_t i = 0; i < sim->n; i++) {
        struct sim_island *island = &sim->island[i];
        if (!island->joined)
            continue;
        island->disk.fresh = island->older.fresh = false;
        island->disk.incarnation = island->older.incarnation = i + 1;
        island->mark = (struct sim_mark){.there = true, .incarnation = i + 1};
    }
}

void sim_configs_end(void)
{
    for (uint32_t k = 1; k < sim->configs_count; k++) {
        config_deinit(&configs[k].config);
        mem_free(configs[k].bytes);
    }
    for (size_t k = 0; k < sim->letters_end; k++) {
        if (letters[k].due_ms != 0)
            mem_free(letters[k].bytes);
        letters[k].due_ms = 0;
    }
}

/* ---- an island's config log ---- */

void sim_extend(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    const struct config *last = config_log_last(island->config_log);
    uint32_t number = sim->decided[last == NULL ? 0 : last->epoch + 1];
    struct config copy;
    assert_ok(config_copy(&configs[number].config, &copy));
    assert_ok(config_log_add(island->config_log, &copy, &configs[number].digest));
    last = config_log_last(island->config_log);
    island->epoch = last->epoch;
    struct view_changes changes;
    sim_keys_settle(i);
    assert_ok(
        view_update(&island->view, last, config_log_last_digest(island->config_log), island->keys.own.key, &changes));
    for (uint32_t k = 0; k < sim->n; k++) {
        bool known = sim_id(k) != 0 && config_member(last, sim_id(k)) != NULL;
        if (known && !sim_knows(i, k))
            island->heard_ms[k] = sim_clock(i);
        island->known = known ? island->known | (uint64_t)1 << k : island->known & ~((uint64_t)1 << k);
    }
}

void sim_load_config_log(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    config_log_free(island->config_log);
    view_free(&island->view);
    assert_ok(config_log_new(&island->config_log));
    assert_ok(view_init(NULL, 0, &island->view));
    island->known = 0;
    for (uint64_t epoch = 0; epoch <= island->disk.epoch; epoch++)
        sim_extend(i);
}

struct sync_view sim_view(uint32_t i)
{
    static uint32_t ids[VIEW_SLOTS_MAX];
    struct sim_island *island = &sim->island[i];
    for (uint32_t slot = 0; slot < island->view.count; slot++)
        ids[slot] = island->view.members[slot].as.id;
    struct sync_view view = roster_view(island->config_log, island->view.self, ids, island->view.count);
    view.votes = view.votes && sim_votes(i);
    return view;
}

/* ---- letters ---- */

static uint64_t letter_delay_ms(void)
{
    return sim->loss_percent > 0 && sim_chance(5) ? sim_below(1500) : 1 + sim_below(60);
}

void sim_send_letter(uint32_t from, uint32_t to, uint32_t type, const uint8_t *bytes, size_t bytes_count)
{
    unsigned copies = sim->loss_percent > 0 && sim_chance(4) ? 2 : 1;
    for (; copies > 0; copies--) {
        if (sim->link_down[from][to] || !sim->island[to].alive || sim_chance(sim->loss_percent))
            continue;
        size_t k = 0;
        while (k < sim->letters_end && letters[k].due_ms != 0)
            k++;
        SIM_HOLDS(k < SIM_LETTERS_MAX, "too many letters");
        sim->letters_end = k == sim->letters_end ? k + 1 : sim->letters_end;
        letters[k] = (struct sim_letter){.from = from,
                                         .to = to,
                                         .from_session = sim->island[from].session,
                                         .to_session = sim->island[to].session,
                                         .due_ms = sim->now_ms + letter_delay_ms(),
                                         .type = type,
                                         .bytes_count = bytes_count};
        assert_ok(mem_new(bytes_count, 1, "letter", &letters[k].bytes));
        memcpy(letters[k].bytes, bytes, bytes_count);
    }
}

void sim_letters_in(void)
{
    for (size_t k = 0; k < sim->letters_end; k++) {
        struct sim_letter letter = letters[k];
        const struct sim_island *to = &sim->island[letter.to];
        if (letter.due_ms == 0 || letter.due_ms > sim->now_ms || (to->alive && sim_stopped(letter.to)))
            continue;
        letters[k].due_ms = 0;
        if (to->alive && to->session == letter.to_session && sim_lets_in(letter.to, letter.from) &&
            to->greeted[letter.from] == letter.from_session)
            sim_voice_letter(letter.to, &letter);
        mem_free(letter.bytes);
    }
    while (sim->letters_end > 0 && letters[sim->letters_end - 1].due_ms == 0)
        sim->letters_end--;
}

void sim_mark(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    const struct sim_disk *disk = &island->disk;
    island->mark = (struct sim_mark){.there = true,
                                     .doubt = island->voting.doubt,
                                     .number = disk->number,
                                     .incarnation = disk->incarnation,
                                     .stored = disk->stored,
                                     .named = island->voting.named,
                                     .trusted_epoch = island->voting.trusted_epoch};
}

/* ---- what can still be decided ---- */

/* Whether its disk would vote if it came up now, as the member that a configuration names. */
static bool able(const struct config_member *member)
{
    const struct sim_island *island = &sim->island[sim_of(member->id)];
    const struct sim_disk *disk = &island->disk;
    if (island->gone)
        return false;
    if (island->alive && island->voting.doubt != VOTE_SURE)
        return member->incarnation == disk->incarnation;
    if (island->mark.doubt != VOTE_SURE && member->incarnation != disk->incarnation)
        return false;
    return island->mark.there && island->mark.number == disk->number && island->mark.incarnation == disk->incarnation &&
           island->mark.stored <= disk->stored;
}

static bool can_go_on(const struct config *config, uint32_t without)
{
    uint32_t voters = 0, keepers_without = 0;
    for (uint32_t k = 0; k < config->members_count; k++) {
        const struct config_member *member = &config->members[k];
        if (!member->voter)
            continue;
        bool good = sim_of(member->id) != without && able(member);
        voters += good;
        keepers_without += !good && member->role != CONFIG_WITNESS;
    }
    return voters >= config_majority(config) && keepers_without < config_commit_quorum(config);
}

bool sim_can_spare(uint32_t without)
{
    /* To those who are left: what only the lost have learned has to be decided again; so has what only those know whom
     * nobody else knows yet. */
    uint64_t known = 0;
    for (uint32_t i = 0; i < sim->n; i++) {
        const struct sim_island *island = &sim->island[i];
        bool told = island->disk.epoch == 0 || island->disk.epoch > island->disk.epoch_first;
        if (island->joined && !island->gone && i != without && told && island->disk.epoch > known)
            known = island->disk.epoch;
    }
    for (uint32_t k = 1; k < sim->configs_count; k++) {
        const struct sim_config *config = &configs[k];
        bool pending = config->proposed && config->config.epoch > sim->newest;
        if ((pending || (config->decided && config->config.epoch >= known)) && !can_go_on(&config->config, without))
            return false;
    }
    return true;
}
