/* SPDX-License-Identifier: Apache-2.0 */
/*
 * membership_io: the host that membership needs: a disk, a way to the other members, and somebody to tell. The daemon
 * has files, keys and links (daemon/membership/membership_host.c), the simulator has arrays (tests/lib/simhost.c);
 * nothing else of membership differs between them.
 *
 * Types only. No call may call back into membership: what it leads to comes with the host's next call.
 */
#ifndef NET_MEMBERSHIP_MEMBERSHIP_IO_H
#define NET_MEMBERSHIP_MEMBERSHIP_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/config.h"
#include "net/config/config_proof.h"
#include "net/membership/paxos.h"

/* Whether a disk may vote (rule 9 of docs/PROTOCOL.md, "Epochs"). */
enum vote_doubt {
    VOTE_SURE,  /* nothing was forgotten */
    VOTE_FRESH, /* nothing was ever here: the first start, or an emptied folder */
    VOTE_DOUBT, /* it may hold less than it did once */
};

/* This island's disk as far as votes are concerned. The host's; it changes in save_vote(), settle() and distrust()
 * alone. */
struct voting_disk {
    enum vote_doubt doubt;
    uint64_t incarnation;   /* never 0 */
    uint64_t named;         /* by the configuration when the last doubt ended: this one, or one before it */
    uint64_t trusted_epoch; /* configurations up to this one's may name any: they may be older than that end */
    struct paxos_vote vote; /* the last one, durable or not; all zero if there is none */
};

/* The highest numbers of an order and of a word of its own (net/config/order.h, net/transport/member_word.h) that this
 * island has signed, as its disk knows. Lost: it may have forgotten some, so that the next number is above all of
 * earlier epochs. */
struct said_numbers {
    uint64_t order, word; /* 0: none */
    bool order_lost, word_lost;
};

enum membership_news_type {
    MEMBERSHIP_DECIDED,        /* the next configuration is durable here: membership_take() */
    MEMBERSHIP_VOTES,          /* this island votes from now on: its disk is in doubt no more */
    MEMBERSHIP_WANTS,          /* the protocol's core was told to fetch something: step it, with SYNC_EV_TICK */
    MEMBERSHIP_PARTITIONED,    /* `member` stands back, cut off from `from` */
    MEMBERSHIP_DISK_FAILS,     /* `member`, another one, says that its disk keeps nothing */
    MEMBERSHIP_BROKE_WORD,     /* `member` has signed two results of one part: of `fragment`, `version` */
    MEMBERSHIP_EVIDENCE_LOST,  /* the same, but the evidence could not be kept, so that it cannot be shown later */
    MEMBERSHIP_NO_EVIDENCE,    /* the file of evidence about `member` proves nothing: err_text() says why */
    MEMBERSHIP_ORDERED,        /* a decided configuration, `config`, carries out `order` */
    MEMBERSHIP_ORDER_ENDED,    /* `order`, given here, is asked no more, because of `text` */
    MEMBERSHIP_ORDER_REFUSED,  /* `member` has sent an order that may not be given, because of `text` */
    MEMBERSHIP_CONFIG_REFUSED, /* `member` has brought a configuration that may not follow ours, because of `text` */
    MEMBERSHIP_SUSPECT,        /* seals show two results of one part of the member of `id` */
    MEMBERSHIP_FAILED,         /* `text` failed with `err`, as err_text() says; it is tried again */
};

struct membership_news {
    enum membership_news_type type;
    uint32_t member, from; /* slots */
    uint32_t id, fragment;
    uint64_t version;
    enum err err;
    const char *text;
    const struct order *order;
    const struct config *config; /* ORDERED: the one before, which has who asked and whom it is about */
};

struct membership_io {
    /* To another member, by slot. What cannot go now is as if it were lost: everything is repeated. */
    void (*send)(void *user, uint32_t slot, uint32_t type, const uint8_t *bytes, size_t bytes_count);
    /* The vote is the last one from here on; when it is durable, membership_saved() with `number`, or one after it.
     * Copied. Where it cannot be made durable, nothing: what asked for it asks again. */
    void (*save_vote)(void *user, const struct paxos_vote *vote, uint64_t number);
    /* When the configuration is durable, membership_kept(). Copied. ERR_NOMEM: the others send it again. */
    enum err (*keep_config)(void *user, const struct config_entry *entry);
    /* The configuration of an epoch, as it was decided: config_entry_free(). ERR_NOTFOUND and others: another member
     * has it.
     */
    enum err (*read_config)(void *user, uint64_t epoch, struct config_entry *out);
    /* The evidence that the member of this id signed two results of one part (net/membership/evidence.h), for good. The
     * caller of load_evidence() frees `*bytes`; ERR_NOTFOUND: there is none. */
    enum err (*save_evidence)(void *user, uint32_t id, const uint8_t *bytes, size_t bytes_count);
    enum err (*load_evidence)(void *user, uint32_t id, uint8_t **bytes, size_t *bytes_count);
    /* These are the numbers from here on; durable when it returns. A failure: nothing has changed. */
    enum err (*save_numbers)(void *user, const struct said_numbers *numbers);
    /* The disk is in doubt no more, durably, and has these values. A failure: nothing has changed. */
    enum err (*settle)(void *user, uint64_t named, uint64_t trusted_epoch);
    /* The disk is in doubt from here on, though it forgot nothing: the configuration names another one of our key. If
     * that cannot be made durable, nothing: the next start finds the same. */
    void (*distrust)(void *user);
    void (*tell)(void *user, const struct membership_news *news);
};

#endif
