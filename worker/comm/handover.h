/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handover: one descriptor, or word that there is none, from one rank to another over a SOCK_SEQPACKET socket pair.
 * The sender keeps its own; the receiver closes what it gets. Never waits.
 */
#ifndef WORKER_COMM_HANDOVER_H
#define WORKER_COMM_HANDOVER_H

#include <stdint.h>

#include "common/err.h"

/* `fd` < 0: none. `number` is what the receiver must expect. ERR_CLOSED: the other side is gone. */
ERR_MUST_CHECK enum err handover_send(int socket, uint64_t number, int fd);
/* `*fd` is -1 if there is none. ERR_AGAIN: nothing has come yet; ERR_PROTO: it is not what was expected. */
ERR_MUST_CHECK enum err handover_receive(int socket, uint64_t number, int *fd);

#endif
