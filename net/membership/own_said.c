/* SPDX-License-Identifier: Apache-2.0 */
#include "net/membership/own_said.h"

#include <string.h>

/* Numbers of orders, or of words, of this island: fewer than 2^NUMBERS_BITS in an epoch. */
enum { NUMBERS_BITS = 20 };

static enum err save(struct own_said *said, const struct said_numbers *numbers)
{
    TRY(said->host->save_numbers(said->user, numbers));
    said->numbers = *numbers;
    said->unkept = false;
    return ERR_OK;
}

static uint64_t higher(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Above all numbers of ours of earlier epochs. */
static uint64_t epoch_number(const struct own_said *said)
{
    uint64_t epoch = config_log_last(said->config_log)->epoch;
    return epoch < (uint64_t)1 << (63 - NUMBERS_BITS) ? epoch << NUMBERS_BITS : 0;
}

/* A disk that was in doubt and recovered by itself may have given numbers in this epoch, and does not know them. Each
 * life begins somewhere else among the lower half of the epoch's. */
static uint64_t begins_at(const struct own_said *said)
{
    return epoch_number(said) + 1 + (said->seed >> (64 - NUMBERS_BITS + 1));
}

/* The next number. A disk that was in doubt has lost none of the epoch in which a configuration named it: until then it
 * goes on to be one that may have. */
static uint64_t next_number(const struct own_said *said, uint64_t before, uint64_t least, bool *lost)
{
    uint64_t number = higher(before + 1, least);
    if (*lost)
        number = higher(number, begins_at(said));
    *lost = *lost && said->disk->doubt != VOTE_SURE;
    return number;
}

enum err own_said_order(struct own_said *said, uint64_t least, uint64_t *number)
{
    struct said_numbers next = said->numbers;
    next.order = next_number(said, next.order, least, &next.order_lost);
    TRY(save(said, &next));
    *number = next.order;
    return ERR_OK;
}

/* What was said before and is in no configuration yet must not count after this word, so its number is higher than all
 * of that; what the configuration says already needs none. */
static uint64_t word_number(struct own_said *said, const struct config_member *as)
{
    struct member_word before = {
        .uplink = as->uplink, .owner_choice = as->owner_choice, .draining = as->draining, .units = as->units};
    memcpy(before.address, as->address, sizeof before.address);
    memcpy(before.next_key, as->next_key, sizeof before.next_key);
    uint64_t least = config_word_number(as);
    if (member_word_same(&before, &said->word) && said->numbers.word <= least && !said->numbers.word_lost)
        return least;
    said->numbers.word = next_number(said, said->numbers.word, least + 1, &said->numbers.word_lost);
    said->unkept = true;
    return said->numbers.word;
}

enum err own_said_sign(struct own_said *said, const struct ident *ident, const struct config_member *as)
{
    const uint8_t *nonce = config_log_last(said->config_log)->nonce;
    struct member_word what = said->what;
    if (said->next != NULL)
        memcpy(what.next_key, said->next->key, sizeof what.next_key);
    if (what.uplink == 0)
        what.uplink = as->uplink;
    what.number = said->word.number;
    bool anew = said->numbers.word_lost && said->disk->doubt == VOTE_SURE;
    bool stands = what.number > as->word && member_word_same(&said->word, &what) && !anew;
    said->word = what;
    if (!stands)
        said->word.number = word_number(said, as);
    enum err err = said->unkept ? save(said, &said->numbers) : ERR_OK;
    if (member_word_has_next(&said->word))
        member_word_state_next(said->next, ident->key, nonce, as->id, &said->word);
    member_word_sign(ident, nonce, as->id, &said->word);
    return err;
}
