/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ledgers.h"

#include "tests/lib/testlib.h"

#include <stdio.h>

static struct ledger *opened(const struct ledger_conf *conf)
{
    struct ledger *ledger;
    assert_ok(ledger_open(conf, &ledger));
    return ledger;
}

struct ledger_conf ledgers_conf(const char *folder)
{
    static const uint8_t nonce[16] = "begun at noon";
    return (struct ledger_conf){.folder = folder,
                                .run_id = digest_of("run", 3),
                                .nonce = nonce,
                                .segment_bytes = 64 << 10,
                                .keep_bytes = 100 << 10};
}

struct ledger *ledgers_open(const char *folder)
{
    struct ledger_conf conf = ledgers_conf(folder);
    return opened(&conf);
}

struct ledger *ledgers_new(const char *name)
{
    struct ledger_conf conf = ledgers_conf(testlib_folder(name));
    conf.segment_bytes = conf.keep_bytes = 1 << 20;
    return opened(&conf);
}

const char *ledgers_segment(const char *folder, unsigned number)
{
    char name[64];
    snprintf(name, sizeof name, "ledger-%012u.log", number);
    return testlib_path(folder, name);
}
