/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kern_cuda.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kern_services.h"

#define LIBRARY "libdiloco-cuda.so"
#define DRIVER "libcuda.so.1"

enum { FOLDERS_BYTES = 4 * PATH_MAX };

static enum err keep_failure(enum err code, const char *text)
{
    return err_set(code, "%s", text);
}

/* Object and function pointers are of one size wherever there is dlsym(); C has no conversion between them. */
static void find_symbol(void *library, const char *name, void *function)
{
    void *at = dlsym(library, name);
    memcpy(function, &at, sizeof at);
}

/* ERR_AGAIN: it is not there, so the next place may have it. */
static enum err load(const char *path, const struct kern **out)
{
    static const struct kern_services services = {.size = sizeof services, .fail = keep_failure};
    kern_library_entry *entry = NULL;
    if (strchr(path, '/') != NULL && access(path, F_OK) != 0)
        return ERR_AGAIN;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();
        if (strchr(path, '/') == NULL)
            return ERR_AGAIN;
        return err_set(ERR_NOTFOUND, "device cuda: %s does not load (%s); install it again, or use --device cpu", path,
                       reason != NULL ? reason : "no reason given");
    }
    find_symbol(library, KERN_CUDA_ENTRY, &entry);
    *out = entry != NULL ? entry(&services, KERN_SERVICES_VERSION) : NULL;
    if (*out != NULL)
        return ERR_OK;
    dlclose(library);
    return err_set(ERR_NOTFOUND,
                   "device cuda: %s is of another version than this program; install both from one build, or use "
                   "--device cpu",
                   path);
}

enum err kern_cuda_find_in(const char *folders, bool loader, const struct kern **out)
{
    char path[PATH_MAX + sizeof LIBRARY];
    *out = NULL;
    for (const char *at = folders; *at != '\0';) {
        size_t bytes = strcspn(at, ":");
        if (bytes > 0 && bytes < PATH_MAX) {
            snprintf(path, sizeof path, "%.*s/" LIBRARY, (int)bytes, at);
            enum err err = load(path, out);
            if (err != ERR_AGAIN)
                return err;
        }
        at += bytes + (at[bytes] == ':');
    }
    enum err err = loader ? load(LIBRARY, out) : ERR_AGAIN;
    if (err != ERR_AGAIN)
        return err;
    return err_set(ERR_NOTFOUND,
                   "device cuda: " LIBRARY " is not there (looked in %s%s); this build was made without the CUDA "
                   "toolkit, or it was not installed; use --device cpu",
                   folders, loader ? ", and where the loader looks" : "");
}

enum err kern_cuda_find(const struct kern **out)
{
    char self[PATH_MAX], folders[FOLDERS_BYTES] = "";
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    if (bytes > 0) {
        self[bytes] = '\0';
        char *end = strrchr(self, '/');
        if (end != NULL)
            *end = '\0';
        char *above = strrchr(self, '/');
        int up = above != NULL ? (int)(above - self) : 0;
        snprintf(folders, sizeof folders, "%s:%.*s/lib/diloco:%.*s/lib", self, up, self, up, self);
    }
    return kern_cuda_find_in(folders, true, out);
}

/* ---- the driver ---- */

enum err kern_cuda_present(void)
{
    int (*init)(unsigned flags) = NULL, (*count_devices)(int *count) = NULL;
    int count = 0;
    /* It stays: the table's library opens it, too, and a driver is not to be unloaded under a process. */
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL)
        return err_set(ERR_NOTFOUND, "no NVIDIA driver on this machine (" DRIVER ")");
    find_symbol(driver, "cuInit", &init);
    find_symbol(driver, "cuDeviceGetCount", &count_devices);
    if (init == NULL || count_devices == NULL)
        return err_set(ERR_NOTFOUND, DRIVER " is not an NVIDIA driver's");
    int status = init(0);
    if (status == 0)
        status = count_devices(&count);
    if (status == 0 && count > 0)
        return ERR_OK;
    return err_set(ERR_NOTFOUND, "the NVIDIA driver shows no GPU to this process (code %d)", status);
}
