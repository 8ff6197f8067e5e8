/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/accounts.h"

#include <stdlib.h>
#include <string.h>

#include "common/runspec.h"
#include "daemon/state/results.h"
#include "tests/lib/begun.h"
#include "tests/lib/testlib.h"

struct accounts {
    uint32_t islands;
    struct ledger *ledgers[CLUSTER_MAX];
};

struct accounts *accounts_open(struct cluster *cluster)
{
    struct runspec spec;
    struct view view;
    struct accounts *accounts = calloc(1, sizeof *accounts);
    assert_non_null(accounts);
    accounts->islands = cluster->count;
    assert_ok(runspec_load(cluster->run, NULL, 0, &spec));
    assert_ok(begun_view(cluster->island[0].state, NULL, &view));
    for (uint32_t i = 0; i < cluster->count; i++) {
        struct ledger_conf conf = {.folder = cluster->island[i].state,
                                   .run_id = spec.digest,
                                   .nonce = view.nonce,
                                   .segment_bytes = 1 << 20,
                                   .keep_bytes = 1 << 30};
        assert_ok(ledger_open(&conf, &accounts->ledgers[i]));
    }
    view_free(&view);
    runspec_deinit(&spec);
    return accounts;
}

void accounts_close(struct accounts *accounts)
{
    for (uint32_t i = 0; i < accounts->islands; i++)
        ledger_close(accounts->ledgers[i]);
    free(accounts);
}

/* The result that made a version of a shard, as this ledger has it; false: it has none. */
static bool find_in(struct ledger *ledger, uint32_t f, uint64_t version, uint32_t shard, struct result *result)
{
    struct ledger_commit commit;
    if (ledger_commit_of(ledger, f, version, &commit) != ERR_OK)
        return false;
    for (uint32_t p = 0; p < commit.parts_count; p++) {
        if (result_open(ledger, &commit.parts[p], result) != ERR_OK)
            continue;
        if ((result->what.shards >> shard & 1) != 0)
            return true;
        result_close(result);
    }
    return false;
}

/* Tokens of a contribution in a shard of it. */
static double tokens_in(const struct wire_meta *meta, uint32_t i, uint32_t shard)
{
    struct wire_contributor contributor = wire_meta_contributor(meta, i);
    struct wire_span span;
    return (double)(wire_meta_span(meta, contributor.id, shard, &span) ? span.tokens : contributor.tokens);
}

static double number_of(uint32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return (double)number;
}

/* How far it moves the mean, but for its direction. */
static double length_in(const struct wire_contributor *contributor)
{
    double norm = contributor->norm != 0 ? number_of(contributor->norm) : 1;
    return number_of(contributor->weight) * number_of(contributor->factor) * norm;
}

static void add_pulls(const struct wire_meta *meta, struct shard_account *account)
{
    double all = 0;
    for (uint32_t i = 0; i < meta->contributors_count; i++) {
        struct wire_contributor contributor = wire_meta_contributor(meta, i);
        all += length_in(&contributor);
    }
    memset(account->pull_last, 0, sizeof account->pull_last);
    for (uint32_t i = 0; i < meta->contributors_count; i++) {
        struct wire_contributor contributor = wire_meta_contributor(meta, i);
        if (contributor.id >= CLUSTER_MAX || all <= 0)
            continue;
        double pull = length_in(&contributor) / all;
        account->pull_last[contributor.id] = pull;
        if (pull > account->pull_most[contributor.id])
            account->pull_most[contributor.id] = pull;
    }
}

static bool find(struct accounts *accounts, uint32_t f, uint64_t version, uint32_t shard, struct result *result)
{
    for (uint32_t i = 0; i < accounts->islands; i++)
        if (find_in(accounts->ledgers[i], f, version, shard, result))
            return true;
    return false;
}

struct shard_account accounts_of(struct accounts *accounts, uint32_t f, uint32_t shard)
{
    struct shard_account account = {0};
    struct result result;
    while (find(accounts, f, (uint64_t)account.results + 1, shard, &result)) {
        account.results++;
        add_pulls(&result.meta, &account);
        account.partial += result.meta.contributors_count < accounts->islands;
        double all = 0;
        for (uint32_t i = 0; i < result.meta.contributors_count; i++)
            all += tokens_in(&result.meta, i, shard);
        for (uint32_t i = 0; i < result.meta.contributors_count; i++) {
            struct wire_contributor contributor = wire_meta_contributor(&result.meta, i);
            if (contributor.id >= CLUSTER_MAX)
                continue;
            double tokens = tokens_in(&result.meta, i, shard);
            account.uneven += wire_meta_span(&result.meta, contributor.id, shard, &(struct wire_span){0});
            account.tokens[contributor.id] += (long long)tokens;
            account.moved[contributor.id] += tokens * tokens / all;
            if (contributor.weight != 0)
                continue;
            account.weightless[contributor.id]++;
            if (account.first_weightless[contributor.id] == 0)
                account.first_weightless[contributor.id] = account.results;
        }
        result_close(&result);
    }
    return account;
}
