/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_said: this island's own word about itself, and the numbers of its words and orders, of which none is used twice.
 * Private to net/membership/.
 *
 * Whoever heard a word or an order can repeat it, so numbers rise, whatever became of the disk: those of a disk that
 * may have lost some go on above all of earlier epochs. Pure but for the host, which keeps them.
 */
#ifndef NET_MEMBERSHIP_OWN_SAID_H
#define NET_MEMBERSHIP_OWN_SAID_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/config_log.h"
#include "net/membership/membership_io.h"
#include "net/transport/ident.h"
#include "net/transport/member_word.h"

struct own_said {
    /* borrowed */
    const struct membership_io *host;
    void *user; /* of its calls */
    const struct config_log *config_log;
    const struct voting_disk *disk;
    const struct ident *next; /* the key that it would have instead of its own; one of zeros, or NULL: none */
    struct said_numbers numbers;
    uint64_t seed; /* of where numbers begin: drawn anew in each life */
    bool unkept;   /* not durably */
    bool says;     /* this: all but number and signature */
    struct member_word what;
    struct member_word word; /* that, signed */
};

/* A number of at least `least` for an order, durably. */
ERR_MUST_CHECK enum err own_said_order(struct own_said *said, uint64_t least, uint64_t *number);
/* Signs `what`, as member `as` of the newest configuration; where it is new, by a new number. Where that cannot be kept
 * it is said all the same, since an island whose disk fails can leave: the host's failure. */
ERR_MUST_CHECK enum err own_said_sign(struct own_said *said, const struct ident *ident, const struct config_member *as);

#endif
