/*
 * port_parts: the trainer's side of the daemon. port.c: socket, messages, attaching. port_fragment.c: the words and
 * areas of the shared memory. Private to them.
 */
#ifndef DAEMON_PORT_PARTS_H
#define DAEMON_PORT_PARTS_H

#include "common/ipc.h"
#include "daemon/engine.h"
#include "daemon/rules.h"

enum port_phase {
    PORT_NONE,        /* no trainer */
    PORT_REGISTERING, /* it announces its tensors */
    PORT_RESUMING,    /* it comes from a daemon before this one; fragments are brought up to date first */
    PORT_WELCOMING,   /* waiting for peers to be heard, to know whether the run has begun */
    PORT_INITIAL,     /* waiting for its initial tensors */
    PORT_STARTING,    /* fragments are brought to it as they become known */
    PORT_TRAINING,
};

/* Our own copy of what the shared memory says about places: the trainer can write there, so we do not ask it. */
struct port_fragment {
    uint64_t values_count, area_offset[2];
    bool up;         /* the sync core knows of the trainer */
    bool starting;   /* a job brings the base */
    bool give_waits; /* an anchor is to be given as soon as the trainer has finished what it is doing */
};

struct port {
    int listen_fd, socket;
    int turned_away; /* a second trainer was told so; kept open for a moment for it to read that */
    uint64_t turned_away_ms;
    char *path;
    enum port_phase phase;
    uint32_t pid;
    struct ipc_hello hello;
    int resume_fd;
    struct ipc_tensor *tensors;
    uint32_t tensors_count, tensors_room;
    int memfd;
    struct ipc_shm *shm;
    uint64_t shm_bytes, session, fragments_offset;
    struct port_fragment *fragments;
    uint32_t pins;         /* jobs that read or write the shared memory */
    bool closing;          /* the trainer is gone; the memory goes when nothing is pinned */
    uint32_t initial_left; /* jobs that take them over */
    bool leave, finishing, finished;
    uint64_t own_step; /* highest step a trainer of ours reported */
    struct ipc_report report;
    uint64_t tokens_before, tokens_last; /* by trainers before this one since the daemon started; by the last of them */
    uint64_t report_ms;
};

/* ---- port.c ---- */
void port_wake(struct port *port, uint32_t f);

/* ---- port_fragment.c ---- */
struct ipc_fragment *port_ipc(struct port *port, uint32_t f);
float *port_base(struct port *port, uint32_t f);
float *port_area(struct port *port, uint32_t f);
/* Makes a memfd for the plan and maps it. */
ERR_MUST_CHECK enum err port_make_shm(struct engine *engine);
/* Takes over the memfd of a trainer that attaches again; ERR_PROTO if it does not fit. */
ERR_MUST_CHECK enum err port_adopt_shm(struct engine *engine, int fd);
void port_drop_shm(struct engine *engine);
/* Brings the sync core and a resumed trainer's words together. */
void port_resume_fragment(struct engine *engine, uint32_t f);
/* The trainer's words. */
void port_taken(struct engine *engine, uint32_t f);
void port_mixed(struct engine *engine, uint32_t f);

#endif
