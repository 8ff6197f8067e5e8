/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/founding.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/as_typed.h"
#include "daemon/rules.h"
#include "net/config/config_proof.h"
#include "net/membership/wire_paxos.h"

enum { DIGITS = 2 * FOUNDING_BYTES, FILE_BYTES_MAX = 256 };

enum err founding_draw(const char *path)
{
    char text[DIGITS + 2];
    snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64 "\n", env_random_u64(), env_random_u64());
    return fsio_replace(path, text, DIGITS + 1, 0644);
}

static int value_of(char digit)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = digit != '\0' ? strchr(digits, digit) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

enum err founding_read(const char *path, uint8_t out[FOUNDING_BYTES])
{
    char *text;
    size_t bytes;
    enum err err = fsio_read(path, FILE_BYTES_MAX, &text, &bytes);
    if (err == ERR_NOMEM)
        return err;
    if (err != ERR_OK)
        return err_suffix(ERR_CONF,
                          "what was drawn when the run was founded is in it, as [island] founded says; put it back, "
                          "or, to found another run: %s reset",
                          as_typed());
    bool good = bytes >= DIGITS && strspn(text + DIGITS, "\r\n") == bytes - DIGITS;
    for (int i = 0; good && i < FOUNDING_BYTES; i++) {
        int high = value_of(text[2 * i]), low = value_of(text[2 * i + 1]);
        good = high >= 0 && low >= 0;
        out[i] = (uint8_t)(high * 16 + low);
    }
    mem_free(text);
    return good ? ERR_OK
                : err_set(ERR_CONF,
                          "%s does not hold %d hexadecimal digits; put back what was drawn when the run was founded, "
                          "or, to found another run: %s reset",
                          path, DIGITS, as_typed());
}

/* ---- configuration 0 ---- */

static enum err read_drawn(const struct dconf *conf, uint8_t out[FOUNDING_BYTES])
{
    char *path;
    if (conf->founded[0] != '\0')
        return founding_read(conf->founded, out);
    TRY(mem_printf(&path, "%s/founded", conf->state_folder));
    enum err err = access(path, F_OK) == 0 ? ERR_OK : founding_draw(path);
    if (err == ERR_OK)
        err = founding_read(path, out);
    mem_free(path);
    return err;
}

static enum err make_nonce(const struct dconf *conf, const struct ident *ident, const struct digest *run_id,
                           uint8_t nonce[CONFIG_NONCE_BYTES])
{
    struct digest_state state;
    uint8_t drawn[FOUNDING_BYTES];
    TRY(read_drawn(conf, drawn));
    digest_begin(&state);
    digest_add(&state, run_id->byte, sizeof run_id->byte);
    digest_add(&state, conf->name, strlen(conf->name) + 1);
    digest_add(&state, ident->key, sizeof ident->key);
    digest_add(&state, drawn, sizeof drawn);
    struct digest digest = digest_end(&state);
    memcpy(nonce, digest.byte, CONFIG_NONCE_BYTES);
    return ERR_OK;
}

uint32_t founding_units(const struct dconf *conf, const struct runspec *spec)
{
    uint64_t windows = conf->units > 0 ? (uint64_t)conf->units : (uint64_t)spec->batch * (uint64_t)spec->accumulate;
    if (conf->stream[0] != '\0' || conf->witness)
        return 0;
    return windows < DEAL_UNITS_MAX ? (uint32_t)windows : DEAL_UNITS_MAX;
}

static struct config_member member_of(const struct dconf *conf, const struct ident *ident, const struct runspec *spec)
{
    struct config_member member = {.uplink = conf->uplink,
                                   .role = CONFIG_OWNER,
                                   .owner_choice = (uint8_t)dconf_owner_choice(conf),
                                   .voter = true,
                                   .operates = true,
                                   .units = founding_units(conf, spec)};
    memcpy(member.name, conf->name, strlen(conf->name));
    memcpy(member.address, dconf_address(conf), strlen(dconf_address(conf)));
    memcpy(member.key, ident->key, sizeof member.key);
    return member;
}

enum err founding_config(const struct dconf *conf, const struct ident *ident, const struct runspec *spec,
                         struct config *config)
{
    *config = (struct config){.steps = (uint64_t)spec->steps, .next_id = 1, .map = shardmap_empty()};
    if (conf->witness)
        return err_set(ERR_CONF,
                       "[island] witness = yes, and no run that this island has joined: a run begins with an island "
                       "that trains, and a witness joins it: %s join TOKEN --witness",
                       as_typed());
    TRY(make_nonce(conf, ident, &spec->digest, config->nonce));
    TRY(mem_new(1, sizeof *config->members, "the first configuration", &config->members));
    config->members_count = 1;
    config->members[0] = member_of(conf, ident, spec);
    config->deal = (struct config_deal){.horizon = rules_horizon(spec), .start.step = 1};
    shardmap_assign(&config->map, &(struct shardmap_owner){.id = 0, .weight = conf->uplink}, 1);
    return ERR_OK;
}

/* ---- a run that this island joined ---- */

enum err founding_read_joined(const char *path, struct config *config, struct config_entry *entry)
{
    struct paxos_message message;
    char *data;
    size_t bytes;
    *config = (struct config){0};
    *entry = (struct config_entry){0};
    TRY(fsio_read(path, WIRE_PAXOS_BYTES_MAX, &data, &bytes));
    enum err err = wire_paxos_unpack(WIRE_DECIDED, data, bytes, &message);
    mem_free(data);
    TRY(err);
    struct config_entry borrowed = {.bytes = (uint8_t *)(uintptr_t)message.bytes,
                                    .bytes_count = message.bytes_count,
                                    .votes = (struct config_vote *)(uintptr_t)message.votes,
                                    .votes_count = message.votes_count};
    err = config_unpack(borrowed.bytes, borrowed.bytes_count, config);
    if (err == ERR_OK)
        err = config_entry_copy(&borrowed, entry);
    if (err != ERR_OK)
        config_deinit(config);
    wire_paxos_deinit(&message);
    return err;
}
