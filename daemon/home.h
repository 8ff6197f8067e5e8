/* SPDX-License-Identifier: Apache-2.0 */
/*
 * home: the places of an island's files, and the process that runs there.
 *
 *                   in a folder (--home DIR, DILOCO_HOME)   of this machine's service
 *   configuration   DIR/dilocod.conf                        /etc/diloco/dilocod.conf
 *   secret key      DIR/island.key                          /etc/diloco/key/island.key
 *   run spec        DIR/run.ini                             /etc/diloco/run.ini
 *   state           DIR/state/                              /var/lib/diloco/
 *   sockets         DIR/run/                                /run/diloco/
 *   log             DIR/dilocod.log                         the journal
 *   lock            DIR/dilocod.pid                         systemd knows its process
 *   supervisor      DIR/supervisor.pid                      systemd
 *   mark of votes   /dev/shm/diloco-UID/KEY.mark            /run/diloco/vote.mark
 *
 * The configuration of either may say otherwise of key, run spec, state and sockets.
 *
 * A service may write to no folder of /etc but that of its key, where another key comes beside it (daemon/keyring.h).
 * It is none of the state, all of which `dilococtl reset` moves aside.
 *
 * One daemon at a time runs in a folder: it holds a record lock (POSIX fcntl) on dilocod.pid. The kernel ends the lock
 * with the process, however that ends, and names the process that holds it; the number written in the file is for
 * people, and nobody is signalled by it. So does its supervisor (daemon/supervisor.h) with supervisor.pid. The mark is
 * not in the folder: whoever copies that back later would bring an older mark with an older state, and the daemon would
 * not know that it has forgotten something. Any thread; no memory but that of struct home.
 */
#ifndef DAEMON_HOME_H
#define DAEMON_HOME_H

#include <stdbool.h>

#include "common/err.h"

struct home {
    char *folder; /* absolute; NULL: the service's */
    char *conf, *key, *run, *state, *sockets;
    char *log, *pid, *supervisor; /* NULL without a folder */
};

/* The folder that was chosen: that of the option, or, where that is NULL, DILOCO_HOME in the environment; NULL: none.
 */
const char *home_chosen(const char *option);

/* `folder` need not exist; NULL: the service's. Free with home_free() whatever comes out. ERR_ARG: the folder's name is
 * empty, or too long for the paths of the sockets in it. */
ERR_MUST_CHECK enum err home_find(const char *folder, struct home *home);
void home_free(struct home *home);

/* Where the mark of the last vote lies of the island with this public key (daemon/membership/vote.h), in a folder that
 * is made if it is not there. `in_folder`: of one with --home; where there is no such place, or not ours alone, it is
 * beside the sockets as of the service, and `*exposed` is true: a copy of the folder brings an older mark with it.
 * mem_free() the path. */
ERR_MUST_CHECK enum err home_mark(bool in_folder, const char *public_key, const char *sockets, char **path,
                                  bool *exposed);

/* Takes the lock of a folder and writes our number there; it is held until `*fd` is closed or this process ends, and
 * children do not inherit it. The process opens dilocod.pid no second time: closing that would give the lock up.
 * ERR_STATE: another daemon runs there, which is named with the remedy. */
ERR_MUST_CHECK enum err home_lock(const struct home *home, int *fd);

/* The process that holds the lock; 0: none does, whatever stands in the file. ERR_STATE: it is one of another machine
 * or container, and has no number here. */
ERR_MUST_CHECK enum err home_holder(const struct home *home, int *pid);

/* The same two of the process that starts the daemon again when it dies. */
ERR_MUST_CHECK enum err home_lock_supervisor(const struct home *home, int *fd);
ERR_MUST_CHECK enum err home_supervisor(const struct home *home, int *pid);
/* It says by its lock, as `fd`, whether no daemon of its own runs, since it waits before it starts the next one. */
ERR_MUST_CHECK enum err home_set_pausing(const struct home *home, int fd, bool pausing);
ERR_MUST_CHECK enum err home_is_pausing(const struct home *home, bool *pausing);
/* Whether the file that `fd` has locked is still the one in the folder: else that was removed, moved or replaced. */
bool home_is_there(const struct home *home, int fd);

#endif
