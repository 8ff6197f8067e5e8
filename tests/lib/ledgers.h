/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledgers: ledgers of a run that is nobody's, in folders of the test.
 *
 * A helper that fails fails the running test. ledger_close() what these open.
 */
#ifndef TESTS_LIB_LEDGERS_H
#define TESTS_LIB_LEDGERS_H

#include "daemon/state/ledger.h"

/* A ledger of small segments: a hundred results of 1,000 bytes go over two. Borrows `folder`. */
struct ledger_conf ledgers_conf(const char *folder);
struct ledger *ledgers_open(const char *folder);
/* One with room for all in its first segment, in a new folder of this name. */
struct ledger *ledgers_new(const char *name);

/* The path of a segment, the first being 1; valid for the process. */
const char *ledgers_segment(const char *folder, unsigned number);

#endif
