/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a simulated world: as daemon/keyring.c and daemon/engine.c have them, and net/transport/link.c lets them in.
 */
#include "tests/lib/simworld.h"

#include <string.h>

#include "common/digest.h"

static bool is_key(const struct ident *ident)
{
    static const uint8_t none[IDENT_KEY_BYTES];
    return memcmp(ident->key, none, sizeof none) != 0;
}

static bool same(const uint8_t *left, const struct ident *right)
{
    return memcmp(left, right->key, sizeof right->key) == 0;
}

static const struct config_member *self_of(uint32_t i)
{
    const struct config *last = config_log_last(sim->island[i].config_log);
    return last != NULL && sim_id(i) != 0 ? config_member(last, sim_id(i)) : NULL;
}

static const struct ident *link_key(uint32_t i)
{
    const struct sim_keys *keys = &sim->island[i].keys;
    return keys->links_by_next && is_key(&keys->next) ? &keys->next : &keys->own;
}

static bool admits(uint32_t i, uint32_t k, const struct ident *key)
{
    const struct config_member *as =
        sim_knows(i, k) ? config_member(config_log_last(sim->island[i].config_log), sim_id(k)) : NULL;
    return as != NULL && is_key(key) && (same(as->key, key) || same(as->next_key, key));
}

/* It has to expect the key that the other one listens with; and is let in by the key that it has, or had before. */
static bool dials(uint32_t i, uint32_t k)
{
    return !sim->island[k].dials && admits(i, k, link_key(k)) &&
           (admits(k, i, link_key(i)) || admits(k, i, &sim->island[i].keys.before));
}

bool sim_lets_in(uint32_t i, uint32_t k)
{
    return dials(i, k) || dials(k, i);
}

struct ident sim_ident_in(uint32_t i, uint64_t epoch)
{
    struct ident ident = sim_ident(i);
    const struct config_member *as = config_member(&sim_config(sim->decided[epoch])->config, sim_id(i));
    if (as != NULL)
        memcpy(ident.key, as->key, sizeof ident.key);
    return ident;
}

static void tell_voice(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    island->voice.ident = island->keys.own;
    island->voice.next = island->keys.asks ? island->keys.next : (struct ident){.public_text = ""};
}

void sim_keys_settle(uint32_t i)
{
    struct sim_keys *keys = &sim->island[i].keys;
    const struct config_member *self = self_of(i);
    if (!is_key(&keys->own))
        keys->own = sim_ident(i);
    if (self != NULL && is_key(&keys->next) && same(self->key, &keys->next)) {
        sim_tell("island %u has another key", i);
        sim->tally.rekeyed++;
        keys->before = keys->own;
        keys->own = keys->next;
        keys->next = (struct ident){.public_text = ""};
        keys->asks = keys->links_by_next = false;
    }
    tell_voice(i);
}

/* As the engine does. */
void sim_keys_tick(uint32_t i)
{
    struct sim_island *island = &sim->island[i];
    struct sim_keys *keys = &island->keys;
    const struct config_member *self = self_of(i);
    const struct member_word *word = membership_own_word(island->voice.membership);
    const struct config *last = config_log_last(island->config_log);
    struct key_turns_facts facts = {.two = is_key(&keys->next) && last != NULL && last->members_count > 1,
                                    .by_other = keys->links_by_next};
    facts.heard = membership_hears(island->voice.membership);
    if (key_turns_due(&keys->turns, &facts, sim->now_ms)) {
        keys->links_by_next = !keys->links_by_next;
        sim_tell("island %u has its connections with its %s key", i, keys->links_by_next ? "other" : "own");
    }
    /* What was taken back cannot be given any more. */
    if (is_key(&keys->next) && !keys->asks && self != NULL && word->number != 0 && self->word >= word->number &&
        !same(self->next_key, &keys->next))
        keys->next = (struct ident){.public_text = ""};
}

static void ask(uint32_t i)
{
    struct sim_keys *keys = &sim->island[i].keys;
    const uint32_t seed[] = {i, ++keys->made};
    struct digest digest = digest_of(seed, sizeof seed);
    memcpy(keys->next.key, digest.byte, sizeof keys->next.key);
    keys->asks = true;
    keys->turns = (struct key_turns){0};
    sim_tell("island %u asks for another key", i);
}

void sim_rekey(void)
{
    uint32_t i = (uint32_t)sim_below(sim->n), by = (uint32_t)sim_below(sim->n);
    struct sim_keys *keys = &sim->island[i].keys;
    if (sim->island[i].joined && is_key(&keys->own) && !is_key(&keys->next) && !is_key(&keys->before))
        ask(i); /* once: who was away while it changed twice finds it by others alone */
    else if (keys->asks && sim_chance(10))
        keys->asks = false;
    if (sim->island[i].alive)
        tell_voice(i);
    const struct config_member *as = sim->island[by].alive && sim_knows(by, i)
                                         ? config_member(config_log_last(sim->island[by].config_log), sim_id(i))
                                         : NULL;
    if (as != NULL && config_has_next(as) && sim_knows(by, by))
        (void)!membership_order(sim->island[by].voice.membership, ORDER_REKEY, sim_id(i), 0, NULL);
}
