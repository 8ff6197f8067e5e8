/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/gate/gate_zmq.h"

#include <dlfcn.h>
#include <string.h>

/* Programs built today take these from C libraries of 2021 on only, see conf/wheel.sh; in older ones they are in
 * libdl.so.2, which whoever loads libraries has. */
#if defined(__GLIBC__) && defined(__x86_64__)
#define OLD_VERSION "GLIBC_2.2.5"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define OLD_VERSION "GLIBC_2.17"
#endif
#ifdef OLD_VERSION
__asm__(".symver dlopen, dlopen@" OLD_VERSION);
__asm__(".symver dlsym, dlsym@" OLD_VERSION);
__asm__(".symver dlclose, dlclose@" OLD_VERSION);
#endif

#define LIBRARY "libzmq.so.5"
#define REMEDY "install libzmq5 (Debian, Ubuntu; elsewhere zeromq), version 4.2 or later"

/* Object and function pointers are of one size wherever there is dlsym(); C has no conversion between them. */
static enum err find_functions(void *library, struct gate_zmq *api)
{
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
#define WANTED(name) {#name, &api->name},
        GATE_ZMQ_FUNCTIONS(WANTED)
#undef WANTED
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *at = dlsym(library, wanted[i].name);
        if (at == NULL)
            return err_set(ERR_NOTFOUND, LIBRARY " has no %s; " REMEDY, wanted[i].name);
        memcpy(wanted[i].function, &at, sizeof at);
    }
    return ERR_OK;
}

enum err gate_zmq_open(const struct gate_zmq **out)
{
    static struct gate_zmq api; /* the same for all, whoever fills it */
    struct gate_zmq found;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return err_set(ERR_NOTFOUND, LIBRARY " not found, by which ranks speak with a gateway; " REMEDY);
    enum err err = find_functions(library, &found);
    if (err == ERR_OK && found.zmq_has("curve") != 1)
        err = err_set(ERR_NOTFOUND, LIBRARY " was built without encryption (CURVE); " REMEDY);
    if (err != ERR_OK) {
        dlclose(library);
        return err;
    }
    api = found;
    *out = &api;
    return ERR_OK;
}

enum err gate_zmq_failed(const struct gate_zmq *zmq, enum err code, const char *what)
{
    return err_set(code, "%s: %s", what, zmq->zmq_strerror(zmq->zmq_errno()));
}
