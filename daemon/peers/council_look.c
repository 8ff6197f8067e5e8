/* SPDX-License-Identifier: Apache-2.0 */
/* What the council tells of the next epoch, to status and to peers. */
#include <stdio.h>
#include <string.h>

#include "daemon/peers/council.h"
#include "net/membership/wire_epoch.h"
#include "daemon/peers/council_core.h"

bool council_may_vote(const struct council *council, uint32_t member)
{
    const struct view *view = council->conf.view;
    if (member == view->self)
        return council_votes(council);
    return view->members[member].used && view->members[member].voter && council->seats.seat[member].up &&
           !seats_in_doubt(&council->seats, member);
}

bool council_broke_word(const struct council *council, uint32_t member)
{
    return council->seats.seat[member].broke_word;
}

bool council_silent(const struct council *council, uint32_t member)
{
    return seats_silent(&council->seats, member);
}

bool council_disk_fails(const struct council *council, uint32_t member)
{
    return council->seats.seat[member].up && seats_disk_fails(&council->seats, member);
}

uint32_t council_apart_from(const struct council *council, uint32_t member)
{
    return seats_apart_from(&council->seats, member);
}

bool council_apart_text(const struct council *council, uint32_t member, uint32_t owner, char *text, size_t text_bytes)
{
    return seats_apart_text(&council->seats, member, owner, text, text_bytes);
}

uint64_t council_sealed_ms(const struct council *council)
{
    return council->sealed_ms;
}

uint64_t council_wished_ms(const struct council *council)
{
    return council->wished_ms;
}

bool council_pending(const struct council *council, uint32_t *at, struct council_pending *out)
{
    const struct view *view = council->conf.view;
    for (; *at < 2 * view->count; ++*at) {
        uint32_t member = *at / 2;
        bool off = *at % 2 != 0;
        const struct seat *seat = &council->seats.seat[member];
        const struct seat_wish *wish = off ? &seat->off : &seat->out;
        uint32_t by = view_slot(view, wish->by);
        if (!seat->used || !wish->wished)
            continue;
        *out = (struct council_pending){.kind = off ? WIRE_WISH_REVOKE : WIRE_WISH_EVICT,
                                        .member = member,
                                        .by = by != VIEW_NOBODY ? view->members[by].name : "one that is gone",
                                        .for_ms = council->seats.now_ms - wish->since_ms};
        ++*at;
        return true;
    }
    return false;
}

const char *council_unkept(const struct council *council)
{
    return council->keep.unkept;
}

uint32_t council_voters(const struct council *council, uint32_t *heard)
{
    *heard = seats_voters_heard(&council->seats);
    return record_voters(chain_last(council->conf.chain));
}

/* Appends the names of voters: of others who have not promised yet, or of those who lack something. */
static void add_names(const struct council *council, bool lacking, char *text, size_t text_bytes)
{
    const struct view *view = council->conf.view;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        bool asked = member->used && member->voter && i != view->self;
        bool named = !lacking && asked && !epoch_promised(council->epoch, member->id);
        for (uint32_t k = 0; lacking && member->used && k < council->lacking_count; k++)
            named |= council->lacking[k] == member->id;
        size_t at = strlen(text);
        if (named)
            snprintf(text + at, text_bytes - at, " %s", member->name);
    }
}

void council_waits(const struct council *council, char *text, size_t text_bytes)
{
    uint32_t proposer = view_slot(council->conf.view, epoch_ballot_id(vote_last(council->conf.vote)->promised));
    text[0] = '\0';
    if (council->sealed_ms == 0 && council->wished_ms == 0)
        return;
    if (council->keep.unkept[0] != '\0') {
        snprintf(text, text_bytes, "this island's disk: %s", council->keep.unkept);
        return;
    }
    switch (epoch_state(council->epoch)) {
    case EPOCH_PREPARING:
        snprintf(text, text_bytes, "an answer of");
        add_names(council, false, text, text_bytes);
        break;
    case EPOCH_COMPOSING:
        snprintf(text, text_bytes,
                 council->lacking_count > 0 ? "what the next record rests on to be fetched by"
                                            : "what those hold who might take part");
        add_names(council, true, text, text_bytes);
        break;
    case EPOCH_ACCEPTING: snprintf(text, text_bytes, "a majority to accept the next record"); break;
    default:
        if (!council_votes(council))
            snprintf(text, text_bytes, "those that vote, of which this island is none now");
        else if (proposer != VIEW_NOBODY && proposer != council->conf.view->self)
            snprintf(text, text_bytes, "island %s, which proposes it", council->conf.view->members[proposer].name);
        else
            snprintf(text, text_bytes, "our turn to propose it");
        break;
    }
}
