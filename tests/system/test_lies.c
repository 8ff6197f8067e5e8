/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member of the run with a good key that says one false thing after the other, to real daemons, of three islands and
 * of five: nobody ends, nobody honest is put out, nobody comes or goes without an order, rounds go on, the model has
 * one history, what the member may do to the mean is bounded, and it is named.
 *
 * By hand, LIES_S=60 BUILD=build/gcc build/gcc/tests/system/test_lies shows a table: of each lie, told for so long to a
 * run of its own, what it cost and what was said of it. LIES_ISLANDS=3 does one size, LIES_ONLY=NAME one lie. Floods
 * are test_flood's.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/shardmap.h"
#include "daemon/membership/config_store.h"
#include "tests/lib/accounts.h"
#include "tests/lib/lies.h"
#include "tests/lib/proc.h"
#include "tests/lib/rogue.h"
#include "tests/lib/toll.h"

/* NAMED_S: of patience with whoever can be heard, and five rounds, on a busy machine. */
enum {
    FRAGMENTS = 3,
    NEW_ROUNDS = 2,
    SAID_MS = 300,
    AT_LEAST_S = 1,
    NAMED_S = 30,
    HELD_UP_S = 30,
    NAMES_MS = 8000,
    USUAL_TOKENS = 1000
};
static const char spec[] = "[run]\nname = lies\nsteps = 900000\n[model]\nlayers = 2\n"
                           "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 0\nmix = 0\nlate = wait\n";
/* All islands move the same way, so that there is a direction to point against. */
static const struct cluster_options options = {.run = spec, .data = "sleep=20 drift=1", .more = "[net]\naway = 1s"};
/* Of three or more, the tokens of one weigh at most half of the others', so a third of all, and its norm counts no more
 * than the median; of two that contribute, as while one starts again, half. */
static const double pull_at_most = .6;

/* ---- what it contributes ---- */

static const float usual_value = -.015f; /* as the others': each goes up */

static bool honest(struct rogue *rogue, uint32_t f, uint64_t version, float *value, uint64_t *tokens)
{
    (void)rogue;
    (void)f;
    (void)version;
    *value = usual_value;
    *tokens = USUAL_TOKENS;
    return true;
}

static bool many_tokens(struct rogue *rogue, uint32_t f, uint64_t version, float *value, uint64_t *tokens)
{
    (void)honest(rogue, f, version, value, tokens);
    *tokens = 1000000000000;
    return true;
}

static bool turned(struct rogue *rogue, uint32_t f, uint64_t version, float *value, uint64_t *tokens)
{
    (void)honest(rogue, f, version, value, tokens);
    *value = -usual_value;
    return true;
}

static bool huge(struct rogue *rogue, uint32_t f, uint64_t version, float *value, uint64_t *tokens)
{
    (void)honest(rogue, f, version, value, tokens);
    *value = 1e4f * usual_value;
    return true;
}

static bool every_second(struct rogue *rogue, uint32_t f, uint64_t version, float *value, uint64_t *tokens)
{
    return honest(rogue, f, version, value, tokens) && version % 2 == 0;
}

static bool nothing(struct rogue *rogue, uint32_t f, uint64_t version, float *value, uint64_t *tokens)
{
    (void)rogue;
    (void)f;
    (void)version;
    (void)value;
    (void)tokens;
    return false;
}

/* ---- what it says of itself and others ---- */

static uint64_t said;

/* Of itself that it is to be dialled there: a name that is none, and places where nobody is. */
static void say_addresses(struct rogue *rogue, uint32_t to)
{
    static const char *const addresses[] = {
        "host!x:7600",      "a,b:1",     "-host:7600",          "x@y:7600",        "*:7600",
        "eth0;10.0.0.1:76", "[::1:7600", "fe80::1:7",           "tcp://1.2.3.4:5", "1.2.3.4.5:7600",
        "127.0.0.1:1",      "[::1]:9",   "nowhere.invalid:7600"};
    static struct wire_message message;
    const struct view_member *self = &rogue->view.members[rogue->self];
    message = (struct wire_message){.type = WIRE_HELLO};
    message.hello = (struct wire_hello){.run_id = rogue->spec.digest,
                                        .session = rogue->session,
                                        .island = self->as.id,
                                        .word = {.number = self->as.word + 2 + said, .uplink = self->as.uplink},
                                        .software = "nonsense",
                                        .window_kib = 1024};
    snprintf(message.hello.name, sizeof message.hello.name, "%s", self->as.name);
    snprintf(message.hello.word.address, sizeof message.hello.word.address, "%s",
             addresses[said % (sizeof addresses / sizeof addresses[0])]);
    member_word_sign(&rogue->ident, rogue->view.nonce, self->as.id, &message.hello.word);
    rogue_say(rogue, to, &message);
}

static struct ident key_of(const struct rogue *rogue, uint32_t i)
{
    struct ident ident;
    assert_ok(ident_load(rogue->cluster->island[i].key, &ident));
    return ident;
}

static void say_order(struct rogue *rogue, uint32_t to, const struct ident *signer, const uint8_t *nonce,
                      struct order *order)
{
    struct paxos_message message = {.type = WIRE_ORDER, .order = order};
    order_sign(signer, nonce, order);
    rogue_say_paxos(rogue, to, &message);
}

/* The founder has lost its mind: it lets in whoever has the mirror image of the second island's key. */
static void say_mirrored(struct rogue *rogue, uint32_t to)
{
    struct ident founder = key_of(rogue, 0), other = key_of(rogue, 1);
    struct order order = {.kind = ORDER_ADMIT, .number = 500000 + said, .epoch = rogue->heard_epoch[to]};
    order.join = lie_mirrored(&other, rogue->view.nonce, "mirror");
    say_order(rogue, to, &founder, rogue->view.nonce, &order);
}

static struct order invitation(const struct rogue *rogue)
{
    struct order order = {.kind = ORDER_ADMIT};
    struct ident newcomer;
    assert_ok(ident_generate(&newcomer));
    order.join.word = (struct member_word){.number = 1, .uplink = 1000000};
    snprintf(order.join.name, sizeof order.join.name, "accomplice-%llu", (unsigned long long)said % 5);
    wire_join_sign(&newcomer, rogue->view.nonce, &order.join);
    return order;
}

/* Each of the others out, accomplices in, itself an operator and the founder, another length, a pause; it may order
 * nothing. */
static void say_orders(struct rogue *rogue, uint32_t to)
{
    static const uint32_t kinds[] = {ORDER_EVICT, ORDER_REVOKE, ORDER_ADMIT, ORDER_GRANT,      ORDER_FOUNDER,
                                     ORDER_STEPS, ORDER_PAUSE,  ORDER_OWNER, ORDER_CONTRIBUTOR};
    struct order order = {.kind = kinds[said % (sizeof kinds / sizeof kinds[0])]};
    if (order.kind == ORDER_ADMIT)
        order = invitation(rogue);
    bool own = order.kind == ORDER_GRANT || order.kind == ORDER_FOUNDER || order.kind == ORDER_OWNER;
    if (order_about_member(order.kind))
        order.subject = own ? rogue->self : (uint32_t)(said / 9) % rogue->self;
    order.value = order.kind == ORDER_STEPS ? 1 : 0;
    order.signer = rogue->self;
    order.number = 1 + said;
    order.epoch = rogue->heard_epoch[to];
    say_order(rogue, to, &rogue->ident, rogue->view.nonce, &order);
}

/* The founder's own words, where they mean nothing: of another run, of an epoch that is over, and as another one has
 * signed them. */
static void say_stolen_orders(struct rogue *rogue, uint32_t to)
{
    static const uint8_t other_run[WIRE_NONCE_BYTES] = {1, 2, 3};
    struct ident founder = key_of(rogue, 0);
    struct order order = {.kind = ORDER_REVOKE, .subject = 1, .number = 1000 + said};
    order.epoch = rogue->heard_epoch[to];
    if (said % 3 == 0)
        say_order(rogue, to, &founder, other_run, &order);
    else if (said % 3 == 1)
        say_order(rogue, to, &rogue->ident, rogue->view.nonce, &order);
    order.epoch--;
    if (said % 3 == 2)
        say_order(rogue, to, &founder, rogue->view.nonce, &order);
}

/* That it does not hear one of the others, for long enough that one of the two has to stand back, and then another. */
static void name_one(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    (void)to;
    uint32_t one = (uint32_t)(env_mono_ms() / NAMES_MS) % rogue->self;
    beat->silent[0] = rogue->view.members[one].as.id;
    beat->silent_count = 1;
}

/* An owner is killed while it happens, and comes back. */
static void restart_an_owner(struct rogue *rogue)
{
    assert_int_equal(cluster_end(rogue->cluster, 0, SIGKILL), 128 + SIGKILL);
    cluster_start(rogue->cluster, 0);
}

static const struct lie {
    const char *name;
    bool contributes_before; /* and in the rounds that the others' speed is compared with; honestly */
    bool (*contributes)(struct rogue *rogue, uint32_t f, uint64_t version, float *value, uint64_t *tokens);
    void (*beat)(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat);
    void (*say)(struct rogue *rogue, uint32_t to); /* every SAID_MS */
    void (*halfway)(struct rogue *rogue);
    bool five;        /* among five, too */
    bool by_hand;     /* what another one shows as well, or would take long */
    const char *told; /* of it, by status or log of another; NULL: there is nothing to tell */
} lies[] = {
    {.name = "nothing", .by_hand = true},
    {.name = "addresses", .say = say_addresses, .told = "sent something we drop"},
    {.name = "mirrored-key", .say = say_mirrored},
    {.name = "orders", .say = say_orders, .told = "sends an order that is refused, to "},
    {.name = "draft",
     .five = true,
     .beat = lie_far_ahead,
     .say = lie_invented_draft,
     .told = "says that it has what it does not show"},
    {.name = "contributes", .contributes_before = true, .contributes = honest, .by_hand = true},
    {.name = "tokens",
     .five = true,
     .contributes_before = true,
     .contributes = many_tokens,
     .told = "times as many tokens a round as most others"},
    {.name = "turned",
     .five = true,
     .contributes_before = true,
     .contributes = turned,
     .told = "have pointed away from the others'"},
    {.name = "huge-at-once", .by_hand = true, .contributes = huge, .told = "far larger than the others'"},
    {.name = "huge",
     .by_hand = true,
     .contributes_before = true,
     .contributes = huge,
     .told = "far larger than the others'"},
    {.name = "huge-restart",
     .five = true,
     .contributes_before = true,
     .contributes = huge,
     .halfway = restart_an_owner,
     .told = "far larger than the others'"},
    {.name = "withheld-restart",
     .contributes_before = true,
     .contributes = nothing,
     .halfway = restart_an_owner,
     .by_hand = true,
     .told = "do not come"},
    {.name = "stolen-orders", .say = say_stolen_orders, .told = "sends an order that is refused, to revoke "},
    {.name = "every-second", .contributes_before = true, .contributes = every_second, .told = "do not come"},
    /* The last: it stands back itself, and takes part no more. */
    {.name = "names-others", .five = true, .beat = name_one, .told = "stands back until that is over"},
};
enum { LIES = sizeof lies / sizeof lies[0] };

/* ---- what becomes of it ---- */

static struct rogue *begin(const char *name, uint32_t islands)
{
    struct cluster *cluster = cluster_new(name, islands, &options);
    cluster_configure_after(cluster, islands - 1, "[net]\n", "uplink = 1kbit\n"); /* it owns no shard */
    for (uint32_t i = 0; i + 1 < islands; i++)
        cluster_start(cluster, i);
    (void)setpriority(PRIO_PROCESS, 0, 10); /* it has a machine of its own */
    return rogue_open(cluster, islands - 1, FRAGMENTS);
}

/* It lies for so long, or, with `named`, until it is named and at least for AT_LEAST_S. */
static void tell(struct rogue *rogue, const struct lie *lie, double seconds, bool named, struct toll *toll)
{
    double since_s = env_mono_s(), passed_s = 0;
    uint64_t next_ms = 0;
    bool half = lie->halfway == NULL;
    rogue->contributes = lie->contributes;
    rogue->beat = lie->beat;
    while (passed_s < seconds &&
           !(named && passed_s >= AT_LEAST_S && half && (lie->told == NULL || toll->named_by != 0))) {
        if (lie->say != NULL && env_mono_ms() >= next_ms) {
            for (uint32_t i = 0; i < rogue->self; i++)
                lie->say(rogue, i);
            next_ms = env_mono_ms() + SAID_MS;
            said++;
        }
        if (!half && (named ? toll->named_by != 0 : passed_s >= seconds / 2)) {
            lie->halfway(rogue);
            half = true;
        }
        rogue_pass(rogue, 5);
        toll_look(toll);
        passed_s = env_mono_s() - since_s;
    }
}

/* Whether all others own shards and vote; one that was started again does after a while. */
static bool others_own(struct rogue *rogue)
{
    struct config now = rogue_config(rogue);
    bool own = true;
    for (uint32_t i = 0; i < rogue->self; i++)
        own = own && now.members[i].voter && now.members[i].role == CONFIG_OWNER;
    config_deinit(&now);
    return own;
}

/* Nobody has come, gone or risen, and the run is as long as it was. */
static void assert_same_company(struct rogue *rogue, const struct config *before)
{
    for (double end_s = env_mono_s() + HELD_UP_S; !others_own(rogue) && env_mono_s() < end_s;)
        rogue_pass(rogue, 100);
    assert_true(others_own(rogue));
    struct config now = rogue_config(rogue);
    assert_int_equal(now.members_count, before->members_count);
    assert_int_equal(now.next_id, before->next_id);
    assert_int_equal(now.founder, before->founder);
    assert_int_equal(now.steps, before->steps);
    assert_int_equal(now.paused, before->paused);
    for (uint32_t i = 0; i < now.members_count; i++) {
        assert_memory_equal(now.members[i].key, before->members[i].key, IDENT_KEY_BYTES);
        assert_int_equal(now.members[i].operates, before->members[i].operates);
        assert_int_equal(now.members[i].contributor, before->members[i].contributor);
    }
    config_deinit(&now);
}

/* Ends all, and looks into their ledgers: what part of the means was the rogue's, at most and in the end. */
static void end(struct rogue *rogue, double *most, double *last)
{
    struct cluster *cluster = rogue->cluster;
    uint32_t self = rogue->self;
    rogue_close(rogue);
    for (uint32_t i = 0; i < self; i++) {
        assert_false(cluster_log_has(cluster, i, "please report", 0));
        (void)cluster_end(cluster, i, SIGTERM);
    }
    (void)cluster_assert_one_history(cluster, self);
    struct accounts *accounts = accounts_open(cluster);
    *most = *last = 0;
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        struct shard_account account = accounts_of(accounts, f, 0);
        assert_true(account.results > 0);
        *most = fmax(*most, account.pull_most[self]);
        *last = fmax(*last, account.pull_last[self]);
    }
    accounts_close(accounts);
    cluster_free(cluster);
}

/* One after the other, in one run. */
static void lies_among(uint32_t islands)
{
    char name[20];
    double most, last;
    snprintf(name, sizeof name, "lies-%u", islands);
    struct rogue *rogue = begin(name, islands);
    struct config before = rogue_config(rogue);
    for (size_t k = 0; k < LIES; k++) {
        static struct toll toll;
        if (lies[k].by_hand || (islands > 3 && !lies[k].five))
            continue;
        rogue->contributes = lies[k].contributes_before ? honest : NULL;
        rogue_moves(rogue, NEW_ROUNDS, HELD_UP_S, "it is honest");
        toll_begin(&toll, rogue->cluster);
        toll.told = lies[k].told;
        tell(rogue, &lies[k], NAMED_S, true, &toll);
        print_message("%s: %s\n", lies[k].name, toll.named_by != 0 ? toll.named : "nothing is said");
        assert_true(lies[k].told == NULL || toll.named_by != 0);
        rogue_moves(rogue, NEW_ROUNDS, HELD_UP_S, lies[k].name);
        assert_true(lies[k].halfway != NULL || toll_put_out(&toll) == 0);
        rogue->beat = NULL;
    }
    assert_same_company(rogue, &before);
    config_deinit(&before);
    end(rogue, &most, &last);
    print_message("its part of a mean: at most %.2f\n", most);
    assert_true(most <= pull_at_most);
}

static void one_of_three_that_lies_is_named_and_harms_nobody(void **state)
{
    (void)state;
    lies_among(3);
}

static void one_of_five_that_lies_is_named_and_harms_nobody(void **state)
{
    (void)state;
    lies_among(5);
}

/* ---- by hand ---- */

static void show(const struct lie *lie, uint32_t islands, double seconds)
{
    static struct toll before, with;
    char name[48];
    double most, last;
    snprintf(name, sizeof name, "lies-%s-%u", lie->name, islands);
    struct rogue *rogue = begin(name, islands);
    struct config company = rogue_config(rogue);
    rogue->contributes = lie->contributes_before ? honest : NULL;
    rogue_moves(rogue, NEW_ROUNDS, HELD_UP_S, name);
    toll_begin(&before, rogue->cluster);
    for (double end_s = env_mono_s() + seconds / 4; env_mono_s() < end_s;)
        rogue_pass(rogue, 5);
    double usual = toll_rate(&before);
    toll_begin(&with, rogue->cluster);
    with.told = lie->told;
    tell(rogue, lie, seconds, false, &with);
    double rate = toll_rate(&with);
    long long epochs = toll_epochs(&with);
    long memory_kib = toll_memory_kib(&with);
    rogue_moves(rogue, NEW_ROUNDS, HELD_UP_S, name);
    assert_same_company(rogue, &company);
    config_deinit(&company);
    end(rogue, &most, &last);
    printf("| %s | %u | %.1f | %.1f | %.0f %% | %lld | %u | %ld | %ld | %.2f, %.2f | %.1f s, by %d | %s |\n", lie->name,
           islands, usual, rate, 100 * rate / usual, epochs, toll_put_out(&with), memory_kib, toll_lines(&with), most,
           last, with.named_s, __builtin_popcount(with.named_by), with.named_by != 0 ? with.named : "nothing");
    fflush(stdout);
}

/* What part of the slots is the last island's. */
static double share_of_last(struct cluster *cluster)
{
    struct config_entry entry;
    struct config config;
    uint32_t slots = 0;
    assert_ok(
        config_store_read(cluster->island[0].state, (uint64_t)cluster_status_number(cluster, 0, "epoch"), &entry));
    assert_ok(config_unpack(entry.bytes, entry.bytes_count, &config));
    for (uint32_t s = 0; s < SHARDMAP_SLOTS; s++)
        slots += config.map.owner[s] == cluster->count - 1;
    config_deinit(&config);
    config_entry_free(&entry);
    return (double)slots / SHARDMAP_SLOTS;
}

static double rate_over(struct cluster *cluster, double seconds, struct toll *toll)
{
    toll_begin(toll, cluster);
    for (double end_s = env_mono_s() + seconds; env_mono_s() < end_s; proc_sleep_ms(50))
        toll_look(toll);
    return toll_rate(toll);
}

/* A daemon like all others, with 2 Mbit/s to each of them, that says of it what is so, and then that it has 10 Tbit/s;
 * with parts that such a line carries in half a second. */
static void show_uplink(uint32_t islands, double seconds)
{
    static struct toll before, with;
    static const struct cluster_options larger = {
        .run = spec, .data = "sleep=20 drift=1 size=200K", .more = "[net]\naway = 500ms\nuplink = 10Mbit"};
    static const struct cluster_options honest_line = {.run = spec,
                                                       .data = "sleep=20 drift=1 size=200K",
                                                       .more =
                                                           "[net]\naway = 500ms\nrate_limit = 2Mbit\nuplink = 2Mbit"};
    static const struct cluster_options false_line = {
        .run = spec,
        .data = "sleep=20 drift=1 size=200K",
        .more = "[net]\naway = 500ms\nrate_limit = 2Mbit\nuplink = 10000Gbit"};
    struct cluster *cluster = cluster_new("lies-uplink", islands, &larger);
    cluster_configure(cluster, islands - 1, &honest_line);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < islands; i++)
        cluster_wait(cluster, i, cluster_versions_reach, 2 * FRAGMENTS, "some versions");
    double usual = rate_over(cluster, seconds / 4, &before), share = share_of_last(cluster);
    assert_int_equal(cluster_end(cluster, islands - 1, SIGTERM), 0);
    cluster_configure(cluster, islands - 1, &false_line);
    cluster_start(cluster, islands - 1);
    for (int k = 0; k < 1200 && share_of_last(cluster) <= share; k++)
        proc_sleep_ms(50);
    double rate = rate_over(cluster, seconds, &with);
    assert_true(share_of_last(cluster) <= .01 + 2. / (islands + 1)); /* it counts for two others */
    printf("| uplink: %.0f %% of the slots, before %.0f %% | %u | %.1f | %.1f | %.0f %% | %lld | %u | %ld | "
           "%ld | | %.1f s, by %d | %s |\n",
           100 * share_of_last(cluster), 100 * share, islands, usual, rate, 100 * rate / usual, toll_epochs(&with),
           toll_put_out(&with), toll_memory_kib(&with), toll_lines(&with), with.named_s,
           __builtin_popcount(with.named_by), with.named_by != 0 ? with.named : "nothing");
    fflush(stdout);
    (void)cluster_assert_one_history(cluster, islands);
    cluster_free(cluster);
}

static void table(void **state)
{
    (void)state;
    const char *only = getenv("LIES_ONLY"), *size = getenv("LIES_ISLANDS");
    double seconds = strtod(getenv("LIES_S"), NULL);
    printf(
        "| lie | islands | versions a second before | with it | | epochs | honest put out | KiB more | log lines more "
        "| its part of a mean: most, last | named after | so |\n");
    for (uint32_t islands = 3; islands <= 5; islands += 2) {
        if (size != NULL && strtoul(size, NULL, 10) != islands)
            continue;
        for (size_t k = 0; k < LIES; k++)
            if (only == NULL || strcmp(only, lies[k].name) == 0)
                show(&lies[k], islands, seconds);
        if (only == NULL || strcmp(only, "uplink") == 0)
            show_uplink(islands, seconds);
    }
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_three_that_lies_is_named_and_harms_nobody),
        cmocka_unit_test(one_of_five_that_lies_is_named_and_harms_nobody),
    };
    const struct CMUnitTest by_hand[] = {cmocka_unit_test(table)};
    return getenv("LIES_S") != NULL ? cmocka_run_group_tests(by_hand, NULL, NULL)
                                    : cmocka_run_group_tests(tests, NULL, NULL);
}
