/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_init: making an island: key, run spec, configuration and folders, and, for this machine's service, the user that
 * it runs as.
 *
 * dilocod.conf is the mark of an island and is written last, by a rename, when everything else is there and dilocod
 * --check-config has found it good. After a failure the new files are removed. A try that was killed leaves no
 * dilocod.conf, and what it leaves the next one takes up: a key is never replaced, whoever made it. An island that was
 * reset, and joins, keeps the key that its dilocod.conf names, and that file is put aside. Signals that would end us
 * wait meanwhile. Blocking; starts no daemon.
 */
#ifndef DAEMON_CTL_CTL_INIT_H
#define DAEMON_CTL_CTL_INIT_H

#include <stdbool.h>

#include "common/err.h"
#include "daemon/home.h"
#include "net/transport/ident.h"
#include "net/transport/wire.h"

/* Whether others reached it while it asked to be let in: nobody tried, or one did, or all that tried did in vain. */
enum ctl_reached { CTL_UNTRIED, CTL_REACHED, CTL_UNREACHED };

/* What the run that takes an island in has told it. */
struct ctl_admission {
    char *run_text;  /* its run spec */
    uint8_t *config; /* bytes of a file: the run's configuration by which it joined */
    size_t config_bytes;
    char inviter_name[WIRE_NAME_BYTES], inviter_address[WIRE_ADDRESS_BYTES]; /* where it answered */
    char address[WIRE_ADDRESS_BYTES]; /* where the others reach this island; "": nowhere */
    enum ctl_reached reached;         /* there */
    bool asked;                       /* its key may be known to the run by now, so that it is kept whatever comes */
};
void ctl_admission_free(struct ctl_admission *admission);

struct ctl_init {
    const char *name, *data;
    const char *run;     /* file to copy; NULL: the one that is there, or the sample */
    const char *from;    /* model that the run begins from, which `run` or the sample is fitted to; NULL: none */
    const char *steps;   /* of the run that begins, in place of the run spec's; NULL: as they are */
    const char *listen;  /* NULL: chosen here */
    const char *address; /* where the others reach this island; NULL: not said */
    const char *uplink;  /* NULL: the default */
    const char *owner;   /* auto, yes, no; NULL: the default */
    /* Of the trainer; NULL: the default, and `devices` alone are of cuda. */
    const char *program, *device, *devices, *ranks, *tensor_parallel;
    bool other_base; /* as [worker] allow_other_base */
    bool witness;    /* of the run that it joins: without `data` */
    /* A run that takes this island in, asked when it has its key; NULL: it begins a run. */
    enum err (*redeem)(void *user, const struct ident *ident, const char *listen, struct ctl_admission *admission);
    void *user_data;
    const char *user; /* owner of key and state, made if there is no such user; NULL: the caller */
    bool json;
};

/* Makes the island and reports it. ERR_ARG: an option is missing or malformed; ERR_STATE: there is an island already;
 * ERR_CONF: a value will not do. Each with the remedy. */
ERR_MUST_CHECK enum err ctl_init(const struct home *home, const struct ctl_init *init);

/* A TCP port, from 7600 on, on which nobody listens just now; 0: there is none. */
unsigned ctl_init_port(void);

#endif
