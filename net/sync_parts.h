/*
 * sync_parts: what the files of the protocol's core share: its memory, and the calls between them. Private to
 * net/sync*.c. sync.c: interface, actions, the owner's side. sync_fragment.c: the fragment's state machine.
 * sync_peers.c: what peers say, who is right, catching up.
 */
#ifndef NET_SYNC_PARTS_H
#define NET_SYNC_PARTS_H

#include "net/grace.h"
#include "net/sync.h"

/* Own hashes kept, to compare with peers that are a version or two behind or ahead. */
enum { SYNC_HASHES = 4 };
#define SYNC_NOBODY UINT32_MAX

struct sync_known_hash {
    uint64_t version;
    struct digest hash;
    bool known;
};

struct sync_fragment {
    enum sync_state state;
    bool trainer;              /* attached to this fragment */
    bool lost;                 /* go to REPAIR as soon as the state allows */
    uint32_t lost_to;          /* from this member */
    bool complete;             /* all results of version + 1 are stored */
    uint64_t behind_ms;        /* since when a peer is known to be ahead; 0: not */
    uint64_t fetch_ms;         /* no new request before */
    struct wire_key state_key; /* REPAIR: what was asked for */
    uint32_t state_from;
    struct sync_known_hash hashes[SYNC_HASHES];
    struct sync_peer_fragment own;
    struct owner owner;
    uint32_t missing_last; /* the member that our shard's round was last seen to wait for */
};

struct sync_member {
    bool up;
    bool heard;              /* it has said how every fragment stands since it came up */
    uint32_t fragments_said; /* distinct ones so far */
    bool taking_part;
    struct grace grace; /* with a quorum: how late its contributions to our shards are */
    struct sync_peer_fragment *fragments;
};

struct sync {
    struct sync_conf conf;
    struct bitset *shards;
    struct sync_fragment *fragments;
    struct sync_member *peers;
    struct sync_action *actions; /* ring */
    size_t actions_room, actions_head, actions_count;
    uint64_t now_ms;
    bool expecting;      /* a trainer of ours is on its way */
    bool brings_initial; /* and it brings its initial tensors */
};

/* Whether we own a part of the fragment. */
static inline bool sync_owns(const struct sync *sync, uint32_t f)
{
    return bitset_has(&sync->shards[f], sync->conf.self);
}

/* ---- sync.c ---- */
void sync_put(struct sync *sync, struct sync_action action);
void sync_put_version(struct sync *sync, enum sync_action_type type, uint32_t f, uint64_t version);
void sync_report(struct sync *sync, enum sync_report what, uint32_t f, uint32_t member);
void sync_announce(struct sync *sync);
/* Runs the owner's table for our shard of the fragment, if we have one, and puts what it orders. */
void sync_step_owner(struct sync *sync, uint32_t f, struct owner_input input);
void sync_check_owner(struct sync *sync, uint32_t f);
void sync_check_owners(struct sync *sync);

/* ---- sync_fragment.c ---- */
/* Runs the fragment's table. */
void sync_raise(struct sync *sync, uint32_t f, enum sync_event_type type, const struct sync_event *event);
/* Sends our contribution in flight to the owners that are up and have no result yet; to `only` if not NOBODY. */
void sync_send_contributions(struct sync *sync, uint32_t f, uint32_t only);

/* ---- sync_peers.c ---- */
void sync_remember_hash(struct sync_fragment *fragment, uint64_t version, const struct digest *hash);
/* Our hash of a version, or NULL if it is not known (any more). */
const struct digest *sync_hash_at(const struct sync_fragment *fragment, uint64_t version);
void sync_peer_up(struct sync *sync, uint32_t member);
void sync_peer_down(struct sync *sync, uint32_t member);
void sync_heartbeat_in(struct sync *sync, const struct sync_event *event);
void sync_not_available(struct sync *sync, const struct sync_event *event);
/* Asks a member for its state of the fragment. */
void sync_ask_for_state(struct sync *sync, uint32_t f, uint32_t member);
/* Asks for what others have and we lack, with patience. */
void sync_catch_up(struct sync *sync, uint32_t f);

#endif
