/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine: the daemon of one island: its parts, the loop, and the events and orders between the parts.
 *
 * Parts post events (daemon/event.h); the engine alone takes them out, steps the protocol's core, hands its orders out,
 * and brings one part's answer to another. One thread, which owns every socket and timer; long work runs on job threads
 * and comes back as events.
 *
 * Owns: what an island's daemon is made of: the loop, its events and jobs, start and stop, the configuration, the
 * folder it lives in.
 * Called by: daemon/control, daemon/ctl, daemon/membership, daemon/peers, daemon/rounds, daemon/state, daemon/trainer,
 * daemon/transfer.
 * Never includes: worker/, kernels/.
 */
#ifndef DAEMON_ENGINE_H
#define DAEMON_ENGINE_H

#include "common/err.h"
#include "daemon/dconf.h"

struct engine;

/* Opens everything: configuration, key, run spec, state, sockets; takes over or starts the trainer. `conf` is borrowed.
 * ERR_CONF and others name the thing and the remedy. */
ERR_MUST_CHECK enum err engine_new(const struct dconf *conf, struct engine **out);
void engine_free(struct engine *engine);

/* Runs until SIGTERM or SIGINT is read from `signal_fd`, then ends in order: the trainer saves, jobs end, the state is
 * written, peers are told. ERR_STATE: something the daemon cannot go on without failed. */
ERR_MUST_CHECK enum err engine_run(struct engine *engine, int signal_fd);

#endif
