/*
 * ctl_init: making an island: key, run spec, configuration and folders, and, for this machine's service, the user that
 * it runs as.
 *
 * dilocod.conf is the mark of an island and is written last, by a rename, when everything else is there and dilocod
 * --check-config has found it good. After a failure what was made is removed. A try that was killed leaves no
 * dilocod.conf, and what it leaves the next one takes up: a key is never replaced, whoever made it. Signals that would
 * end us wait meanwhile. Blocking; starts no daemon.
 */
#ifndef DAEMON_CTL_CTL_INIT_H
#define DAEMON_CTL_CTL_INIT_H

#include <stdbool.h>

#include "common/err.h"
#include "daemon/home.h"

struct ctl_init {
    const char *name, *data;
    const char *run;     /* file to copy; NULL: the sample, or what is there */
    const char *listen;  /* NULL: chosen here */
    const char *address; /* where the others reach this island; NULL: not said */
    const char *uplink;  /* NULL: the default */
    const char *user; /* NULL: whoever calls; else who is to own key and state, and is made if there is no such user */
    bool json;
};

/* Makes the island and says what it made. ERR_ARG: something is not given, or not as it has to be; ERR_STATE: there is
 * an island already; ERR_CONF: what was given will not do. Each with the remedy. */
ERR_MUST_CHECK enum err ctl_init(const struct home *home, const struct ctl_init *init);

/* A TCP port, from 7600 on, on which nobody listens just now; 0: there is none. */
unsigned ctl_init_port(void);

#endif
