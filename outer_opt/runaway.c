/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/runaway.h"

/* At most so many times as large after one version and after RUNAWAY_ROUNDS; and when it has come back. */
static const double most_at_once = 2, most_in_time = 4, back = 2;
/* Versions from which on each of the two counts: before, parameters grow from almost nothing. */
enum { AT_ONCE_FROM = 8, IN_TIME_FROM = 16 };

static double norm_before(const struct runaway *runaway, uint64_t version)
{
    return runaway->norm[version % RUNAWAY_ROUNDS];
}

/* The norm it has run away from; 0: it has not. */
static double left_behind(const struct runaway *runaway, uint64_t version, double norm)
{
    if (runaway->known >= RUNAWAY_ROUNDS && version >= IN_TIME_FROM + RUNAWAY_ROUNDS) {
        double before = norm_before(runaway, version); /* as old as there is: the next one takes its place */
        if (norm > most_in_time * before)
            return before;
    }
    if (runaway->known > 0 && version > AT_ONCE_FROM) {
        double before = norm_before(runaway, version - 1);
        if (norm > most_at_once * before)
            return before;
    }
    return 0;
}

double runaway_note(struct runaway *runaway, uint64_t version, double norm)
{
    if (version != runaway->version + 1)
        *runaway = (struct runaway){.version = version};
    if (!(norm - norm == 0)) { /* Inf or NaN */
        *runaway = (struct runaway){.version = version};
        return runaway_most;
    }
    if (runaway->calm > 0 && norm < back * runaway->calm)
        runaway->calm = 0;
    else if (runaway->calm == 0)
        runaway->calm = left_behind(runaway, version, norm);
    runaway->version = version;
    runaway->norm[version % RUNAWAY_ROUNDS] = norm;
    runaway->known += runaway->known < RUNAWAY_ROUNDS;
    return runaway->calm > 0 ? norm / runaway->calm : 0;
}
