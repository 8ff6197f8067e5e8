/*
 * view: the membership: every island of the run, in order of name, and the digest by which all see that they mean the
 * same.
 *
 * Owns the list; the strings in it are the caller's. A member's place in the list is its number in every message, so
 * the same members give the same view whatever order they are given in, and whoever makes it. Made once and then only
 * read. It knows no file and no socket: where the members come from is the caller's business.
 */
#ifndef NET_VIEW_H
#define NET_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/ident.h"

/* What has to be known of an island, ourselves included. */
struct view_entry {
    const char *name;
    const char *address;  /* "host:port"; "" if it dials us */
    const char *key_text; /* its public key */
    uint64_t uplink;      /* bit/s */
};

struct view_member {
    const char *name;    /* borrowed from the entry, as long as the view lives */
    const char *address; /* likewise */
    uint8_t key[IDENT_KEY_BYTES];
    char key_text[IDENT_TEXT_BYTES];
    uint64_t uplink; /* bit/s */
};

struct view {
    struct view_member *members;
    uint32_t count, self;
    struct digest id;     /* of names, keys and uplinks */
    struct digest shares; /* of names and uplinks: who owns what, and under which number; a new key changes no share */
};

/* The membership of these islands, `self` being the name of our own. ERR_CONF names the islands: more than
 * WIRE_MEMBERS_MAX, two of one name or one key, a key that is none. ERR_ARG: none is called `self`. On failure `*view`
 * is empty. */
ERR_MUST_CHECK enum err view_new(const struct view_entry *entries, size_t entries_count, const char *self,
                                 struct view *view);
/* An empty one is fine; leaves it empty. */
void view_free(struct view *view);

#endif
