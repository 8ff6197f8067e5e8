/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cuda_open.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_dev.h"
#include "kernels/cuda/cuda_peak.h"

#define DRIVER "libcuda.so.1"
#define MANAGEMENT "libnvidia-ml.so.1"

enum { CAPABILITY_MIN = 80, VERSION_BYTES = 80 };

static int major_of(int version)
{
    return version / 1000;
}

static int minor_of(int version)
{
    return version % 1000 / 10;
}

/* Without a driver the runtime would say that it is too old. */
static enum err find_driver(void)
{
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (driver != NULL) {
        dlclose(driver); /* the runtime opens it again */
        return ERR_OK;
    }
    return err_set(ERR_NOTFOUND, "device cuda: no NVIDIA driver on this machine (" DRIVER
                                 " does not load); install it, or use --device cpu");
}

static enum err too_old(void)
{
    int driver = 0, needed = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&needed);
    return err_set(ERR_STATE,
                   "device cuda: the NVIDIA driver is for CUDA %d.%d, and this build needs %d.%d; install a newer "
                   "driver, or use --device cpu",
                   major_of(driver), minor_of(driver), major_of(needed), minor_of(needed));
}

static enum err nothing_to_see(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL)
        return err_set(ERR_NOTFOUND,
                       "device cuda: this process may see no GPU (CUDA_VISIBLE_DEVICES is \"%s\"); name one there, or "
                       "use --device cpu",
                       visible);
    return err_set(ERR_NOTFOUND, "device cuda: the NVIDIA driver finds no GPU; see what nvidia-smi says (in a "
                                 "container, or under a service, the GPU has to be let in), or use --device cpu");
}

static enum err count_devices(int *count)
{
    cudaError_t code = cudaGetDeviceCount(count);
    if (code != cudaSuccess)
        cudaGetLastError();
    if (code == cudaErrorInsufficientDriver || code == cudaErrorCallRequiresNewerDriver)
        return too_old();
    if (code == cudaErrorNoDevice || (code == cudaSuccess && *count == 0))
        return nothing_to_see();
    if (code == cudaErrorStubLibrary)
        return err_set(ERR_NOTFOUND, "device cuda: " DRIVER " is the CUDA toolkit's stand-in, which no program can run "
                                     "with; take its folder out of LD_LIBRARY_PATH and install the NVIDIA driver");
    if (code != cudaSuccess)
        return err_set(ERR_STATE,
                       "device cuda: the NVIDIA driver does not start: %s (%s); see what nvidia-smi says, or use "
                       "--device cpu",
                       cudaGetErrorString(code), cudaGetErrorName(code));
    return ERR_OK;
}

static enum err begin(int device)
{
    /* Threads that wait for the GPU sleep meanwhile: others use the processors. */
    cudaError_t code = cudaInitDevice(device, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid);
    if (code == cudaSuccess)
        code = cudaSetDevice(device);
    if (code == cudaSuccess)
        code = cudaFree(NULL); /* what is left to fail at the beginning fails here */
    if (code == cudaSuccess)
        return ERR_OK;
    cudaGetLastError();
    if (code == cudaErrorDevicesUnavailable)
        return err_set(ERR_STATE,
                       "GPU %d is busy: another process has it for itself alone; wait for that to end, take another "
                       "one (--devices), or let several in (nvidia-smi -c DEFAULT)",
                       device);
    if (code == cudaErrorMemoryAllocation)
        return err_set(ERR_STATE, "GPU %d has no memory left even to begin; nvidia-smi shows which process has it",
                       device);
    return err_set(ERR_STATE, "GPU %d does not start: %s (%s); see what nvidia-smi says", device,
                   cudaGetErrorString(code), cudaGetErrorName(code));
}

enum err cuda_open_device(struct kern_dev *dev, const struct kern_place *place)
{
    int count = 0, major = 0, minor = 0, processors = 0;
    TRY(find_driver());
    TRY(count_devices(&count));
    if (place->device < 0 || place->device >= count)
        return err_set(ERR_NOTFOUND,
                       "device cuda: device %d of %d is asked for; they are counted from 0, in the order of nvidia-smi "
                       "or of CUDA_VISIBLE_DEVICES",
                       place->device, count);
    cudaError_t code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, place->device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, place->device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, place->device);
    if (code != cudaSuccess) {
        cudaGetLastError();
        return err_set(ERR_STATE, "GPU %d does not say what it is: %s", place->device, cudaGetErrorString(code));
    }
    if (10 * major + minor < CAPABILITY_MIN)
        return err_set(ERR_STATE,
                       "GPU %d has compute capability %d.%d, and the kernels need 8.0 (sm_80) or later; take another "
                       "one (--devices), or --device cpu",
                       place->device, major, minor);
    TRY(begin(place->device));
    dev->device = place->device;
    dev->processors = processors;
    dev->capability = 10 * major + minor;
    return ERR_OK;
}

/* ---- what it is called ---- */

/* CUDA knows only which of its own versions a driver is for; the driver's own number its management library has. */
static bool ask_management(char *version, unsigned bytes)
{
    int (*init)(void) = NULL, (*driver_version)(char *, unsigned) = NULL, (*shutdown)(void) = NULL;
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"nvmlInit_v2", &init},
        {"nvmlSystemGetDriverVersion", &driver_version},
        {"nvmlShutdown", &shutdown},
    };
    bool known = true;
    void *library = dlopen(MANAGEMENT, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return false;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *at = dlsym(library, wanted[i].name);
        known = known && at != NULL;
        memcpy(wanted[i].function, &at, sizeof at);
    }
    if (known && init() == 0) {
        known = driver_version(version, bytes) == 0;
        shutdown();
    } else {
        known = false;
    }
    dlclose(library);
    return known;
}

void cuda_describe(struct kern_dev *dev, char *text, size_t bytes)
{
    struct cudaDeviceProp found;
    char version[VERSION_BYTES];
    if (!ask_management(version, sizeof version)) {
        int driver = 0;
        cudaDriverGetVersion(&driver);
        snprintf(version, sizeof version, "for CUDA %d.%d", major_of(driver), minor_of(driver));
    }
    if (cudaGetDeviceProperties(&found, dev->device) != cudaSuccess) {
        cudaGetLastError(); /* no fault: nothing but a name is missing */
        snprintf(found.name, sizeof found.name, "GPU %d", dev->device);
    }
    snprintf(text, bytes, "%s, driver %s, compute %d.%d", found.name, version, dev->capability / 10,
             dev->capability % 10);
}

double cuda_peak_flops(struct kern_dev *dev)
{
    int clock_khz = 0;
    if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, dev->device) != cudaSuccess)
        cudaGetLastError(); /* no fault: nothing but a figure for people is missing */
    return cuda_peak_of(dev->capability, dev->processors, clock_khz);
}
