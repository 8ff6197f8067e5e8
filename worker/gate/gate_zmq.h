/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_zmq: libzmq, opened when somebody wants it: nothing links it, as libdiloco is loaded into programs on machines
 * that have none and need none. Owns nothing: the library, once open, stays. Any thread.
 */
#ifndef WORKER_GATE_GATE_ZMQ_H
#define WORKER_GATE_GATE_ZMQ_H

#include <zmq.h>

#include "common/err.h"

#define GATE_ZMQ_FUNCTIONS(each)                                                                                      \
    each(zmq_ctx_new) each(zmq_ctx_set) each(zmq_ctx_term) each(zmq_socket) each(zmq_close) each(zmq_setsockopt)      \
        each(zmq_getsockopt) each(zmq_bind) each(zmq_connect) each(zmq_poll) each(zmq_msg_init)                       \
            each(zmq_msg_init_size) each(zmq_msg_init_data) each(zmq_msg_send) each(zmq_msg_recv) each(zmq_msg_close) \
                each(zmq_msg_data) each(zmq_msg_size) each(zmq_msg_more) each(zmq_msg_move) each(zmq_errno)           \
                    each(zmq_strerror) each(zmq_has) each(zmq_curve_keypair) each(zmq_curve_public)                   \
                        each(zmq_z85_decode) each(zmq_socket_monitor)

struct gate_zmq {
#define GATE_ZMQ_MEMBER(name) __typeof__(&name) name;
    GATE_ZMQ_FUNCTIONS(GATE_ZMQ_MEMBER)
#undef GATE_ZMQ_MEMBER
};

/* libzmq.so.5 from where the loader looks. ERR_NOTFOUND: it is not there, lacks a function, or was built without
 * encryption; the text says what to do. */
ERR_MUST_CHECK enum err gate_zmq_open(const struct gate_zmq **out);

/* The text of its last failure, behind ours. */
ERR_MUST_CHECK enum err gate_zmq_failed(const struct gate_zmq *zmq, enum err code, const char *what);

#endif
