/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/comm/nccl_api.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libnccl.so.2"
#define REMEDY                                                                                                        \
    "install libnccl2 (or pip's nvidia-nccl and add its folder to LD_LIBRARY_PATH), or train on one device: --ranks " \
    "on one GPU need no NCCL"

/* Where the toolkit puts it, for machines on which nobody has told the loader. */
static const char toolkit[] = "/usr/local/cuda/lib64:/usr/local/cuda/lib:/usr/local/cuda/targets/x86_64-linux/lib:"
                              "/usr/local/cuda/targets/sbsa-linux/lib:/opt/cuda/lib64:/usr/lib/cuda/lib64";

enum { MAJOR_UNIT = 10000, MINOR_UNIT = 100, OLD_MAJOR_UNIT = 1000 };

/* Object and function pointers are of one size wherever there is dlsym(); C has no conversion between them. */
static enum err find_functions(void *library, struct nccl_api *api)
{
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"ncclGetVersion", &api->get_version},        {"ncclGetUniqueId", &api->get_unique_id},
        {"ncclCommInitRankConfig", &api->init_rank},  {"ncclCommFinalize", &api->finalize},
        {"ncclCommDestroy", &api->destroy},           {"ncclCommAbort", &api->comm_abort},
        {"ncclCommGetAsyncError", &api->async_error}, {"ncclGetErrorString", &api->error_string},
        {"ncclGetLastError", &api->last_error},       {"ncclAllReduce", &api->all_reduce},
        {"ncclReduceScatter", &api->reduce_scatter},  {"ncclAllGather", &api->all_gather},
        {"ncclBroadcast", &api->broadcast},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *at = dlsym(library, wanted[i].name);
        if (at == NULL)
            return err_set(ERR_NOTFOUND, LIBRARY " has no %s, so it is damaged or too old; " REMEDY, wanted[i].name);
        memcpy(wanted[i].function, &at, sizeof at);
    }
    return ERR_OK;
}

/* Before anything else is called: of another major version it may be anything. */
static enum err check_version(void *library)
{
    ncclResult_t (*get_version)(int *version) = NULL;
    int code = 0;
    void *at = dlsym(library, "ncclGetVersion");
    memcpy(&get_version, &at, sizeof at);
    if (get_version == NULL || get_version(&code) != ncclSuccess)
        return err_set(ERR_NOTFOUND, LIBRARY " does not say which version it is; " REMEDY);
    int unit = code < MAJOR_UNIT ? OLD_MAJOR_UNIT : MAJOR_UNIT; /* until 2.8 and since */
    if (code >= NCCL_API_OLDEST && code / unit == NCCL_API_MAJOR)
        return ERR_OK;
    return err_set(ERR_NOTFOUND, LIBRARY " is NCCL %d.%d.%d, and version %d is needed, of %d.%d or later; " REMEDY,
                   code / unit, code % unit / MINOR_UNIT, code % MINOR_UNIT, NCCL_API_MAJOR, NCCL_API_MAJOR,
                   NCCL_API_OLDEST % MAJOR_UNIT / MINOR_UNIT);
}

static enum err use(void *library, struct nccl_api *out)
{
    enum err err = check_version(library);
    if (err == ERR_OK)
        err = find_functions(library, out);
    if (err != ERR_OK)
        dlclose(library);
    return err;
}

/* ERR_AGAIN: no folder has one. The first one that has it decides. */
static enum err look_in(const char *folders, struct nccl_api *out)
{
    char path[PATH_MAX + sizeof LIBRARY];
    for (const char *at = folders; *at != '\0';) {
        size_t bytes = strcspn(at, ":");
        path[0] = '\0';
        if (bytes > 0 && bytes < PATH_MAX)
            snprintf(path, sizeof path, "%.*s/" LIBRARY, (int)bytes, at);
        at += bytes + (at[bytes] == ':');
        if (path[0] == '\0' || access(path, F_OK) != 0)
            continue;
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library != NULL)
            return use(library, out);
        const char *reason = dlerror();
        return err_set(ERR_NOTFOUND, "%s does not load (%s); " REMEDY, path,
                       reason != NULL ? reason : "no reason given");
    }
    return ERR_AGAIN;
}

static enum err ask_loader(struct nccl_api *out)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    return library != NULL ? use(library, out) : ERR_AGAIN;
}

static enum err not_there(void)
{
    return err_set(ERR_NOTFOUND, LIBRARY " not found, which ranks on several GPUs need; " REMEDY);
}

enum err nccl_api_open_in(const char *folders, bool loader, struct nccl_api *out)
{
    enum err err = look_in(folders, out);
    if (err == ERR_AGAIN && loader)
        err = ask_loader(out);
    return err == ERR_AGAIN ? not_there() : err;
}

enum err nccl_api_open(struct nccl_api *out)
{
    enum err err = ask_loader(out);
    if (err == ERR_AGAIN)
        err = look_in(toolkit, out);
    return err == ERR_AGAIN ? not_there() : err;
}
