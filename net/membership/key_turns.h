/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key_turns: with which of its two keys an island that asks for another one has its connections (docs/PROTOCOL.md,
 * "Another key").
 *
 * A later configuration than it knows may have given it the other key: then who knows that lets in the other one alone.
 * So who does not hear most of the others that vote tries the other one, by turns: by a few alone, who let it in by a
 * key that it has no more, it would learn nothing if they lie. When it is heard by it by most, and most know no later
 * configuration, it goes back to the key of its newest configuration: who admits a stated key admits the one beside it
 * as well, and there may be others who know of no other. Else these would never hear it again. Likewise when the other
 * key is given up.
 *
 * All connections begin anew at each turn. So who hears nobody for long keeps the key of its newest configuration ever
 * longer, up to 40 s, and the other one for 5 s each time: two that do so at once have that key most of the time, and
 * find each other by it. Who hears a few keeps it 40 s each time: most often the others are just away.
 *
 * Pure: one thread calls, and turns the connections over.
 */
#ifndef NET_MEMBERSHIP_KEY_TURNS_H
#define NET_MEMBERSHIP_KEY_TURNS_H

#include <stdbool.h>
#include <stdint.h>

/* All zeros at first, and whenever the connections have another key for another reason. */
struct key_turns {
    uint64_t alone_ms; /* since when most are not heard, or since the last turn; 0: not known yet */
    uint32_t tries;    /* how often the other key was taken since most were heard */
};

/* Of the other members, as no minority of the voters can make it out to be; where nobody else votes, one member counts
 * for most. */
struct key_turns_heard {
    bool any;            /* is heard; */
    bool most;           /* more than half of those that vote; */
    bool most_know_ours; /* so many of these speak of no later epoch than our newest */
};

struct key_turns_facts {
    bool two;      /* it has two keys, and its newest configuration other members */
    bool by_other; /* the connections have the key that the newest configuration does not name as its own */
    struct key_turns_heard heard;
};

/* Whether the connections are to have the other one of the two keys from now on. */
bool key_turns_due(struct key_turns *turns, const struct key_turns_facts *facts, uint64_t now_ms);

#endif
