/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attachment_core: struct attachment, one socket and whoever is attached by it: what the floors of the trainer's
 * attachment share. Private to them.
 *
 *     attachment        the socket; registering; what a training trainer says
 *     arrival           from registered to training: attaching again, and for the first time
 *     attachment_core   this struct, sending and posting, and the end of an attachment
 *
 * Each floor calls only those below it.
 */
#ifndef DAEMON_TRAINER_ATTACHMENT_CORE_H
#define DAEMON_TRAINER_ATTACHMENT_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ipc.h"
#include "common/log.h"
#include "daemon/trainer/introduction.h"
#include "daemon/trainer/losses.h"
#include "daemon/trainer/shared.h"
#include "daemon/trainer/tally.h"
#include "daemon/trainer/trainer_types.h"

/* The picture is in attachment.h. */
enum attachment_phase { NONE, REGISTERING, REGISTERED, RESUMING, WELCOMING, INITIAL, KEEPING, STARTING, TRAINING };

struct attachment_fragment {
    bool up;       /* the core knows of the trainer */
    bool starting; /* its base is being brought */
    bool kept;     /* what its trainer kept from before goes on */
    uint64_t bad;  /* snapshots in a row that could not be sent */
    /* before it is up: the version that it was last seen at, and since when; 0: not yet */
    uint64_t stands_at, stands_ms;
};

struct attachment {
    struct trainer_conf conf;
    struct trainer_plan plan; /* .plan NULL: not known yet */
    char *path;
    int listen_fd, socket;
    int turned_away; /* a second trainer was told so; kept open for a moment for it to read that */
    uint64_t turned_away_ms;
    uint64_t now_ms;
    bool peers_heard;
    enum attachment_phase phase;
    uint32_t pid;
    int pidfd; /* of the process that attached; -1: it cannot be watched */
    struct introduction introduction;
    struct shared *shared;
    struct attachment_memory *left;        /* memory of trainers that are gone: jobs give it back */
    struct attachment_fragment *fragments; /* [fragments of the plan] */
    bool closing;                          /* the trainer is gone; the memory goes when nothing is pinned */
    uint32_t initial_left;                 /* jobs that take its initial tensors over */
    bool ready_said, wait_said;
    bool leave, finishing, counted;
    uint64_t leave_step; /* by which the last contributions of one that leaves are due */
    bool end_said;
    uint64_t open_ms;    /* since when nobody but those who are away is waited for; 0: others are */
    uint64_t own_step;   /* highest step a trainer of ours reported */
    double step_s;       /* that a step takes, smoothed; 0: not known yet */
    uint64_t slowest_ms; /* step of this trainer so far, without its waiting for others; 0: it has taken none */
    struct ipc_report report;
    uint64_t waits_ms; /* since when it stands still for a round; 0: it does not */
    uint64_t report_ms, ready_ms;
    struct log_limit unread_said; /* that it does not read */
    struct losses losses;         /* of trainers before this one, too */
    struct tally tally;
};

/* Of the plan; 0 before it is known. */
uint32_t attachment_core_fragments(const struct attachment *a);
/* A step as the trainer says it; the run's last for those beyond. */
uint64_t attachment_core_step(const struct attachment *a, uint64_t step);
/* Closes it if it is open. */
void attachment_core_close_fd(int *fd);

/* A trainer that does not read loses messages, and finds the truth in the shared memory. */
void attachment_core_send(struct attachment *a, const struct ipc_message *message, int fd);
void attachment_core_wake(struct attachment *a, uint32_t f);
void attachment_core_post(struct attachment *a, enum event_type type, uint32_t f);
void attachment_core_post_sync(struct attachment *a, enum sync_event_type type, uint32_t f, uint64_t version);

/* The trainer is gone; its memory goes when no job is at it. */
void attachment_core_close(struct attachment *a);
/* The same, and it is told why. */
void attachment_core_refuse(struct attachment *a, const char *reason);

#endif
