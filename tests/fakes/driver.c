/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for libcuda.so.1 on a machine without a GPU: all that cuDNN asks of a driver while it compiles kernels and
 * makes plans of them. It loads nothing and runs nothing; it knows of no device. */
#define EXPORTED __attribute__((visibility("default")))
#define WELL(name)           \
    EXPORTED int name(void); \
    EXPORTED int name(void)  \
    {                        \
        return 0;            \
    }
#define SAYS(name, text)                          \
    EXPORTED int name(int code, const char **to); \
    EXPORTED int name(int code, const char **to)  \
    {                                             \
        (void)code;                               \
        *to = text;                               \
        return 0;                                 \
    }
enum { NO_DEVICE = 100, VERSION = 13000 };

EXPORTED int cuInit(unsigned flags);
EXPORTED int cuInit(unsigned flags)
{
    (void)flags;
    return NO_DEVICE;
}

EXPORTED int cuDriverGetVersion(int *version);
EXPORTED int cuDriverGetVersion(int *version)
{
    *version = VERSION;
    return 0;
}

EXPORTED int cuDeviceGetCount(int *count);
EXPORTED int cuDeviceGetCount(int *count)
{
    *count = 0;
    return 0;
}

SAYS(cuGetErrorName, "PLAYED")
SAYS(cuGetErrorString, "a driver that is played")
WELL(cuCtxGetCurrent)
WELL(cuCtxGetDevice)
WELL(cuCtxGetLimit)
WELL(cuCtxPopCurrent)
WELL(cuCtxPushCurrent)
WELL(cuDeviceGet)
WELL(cuDeviceGetAttribute)
WELL(cuDevicePrimaryCtxRelease)
WELL(cuDevicePrimaryCtxReset)
WELL(cuDevicePrimaryCtxRetain)
WELL(cuFuncGetAttribute)
WELL(cuFuncSetAttribute)
WELL(cuKernelGetAttribute)
WELL(cuKernelSetAttribute)
WELL(cuLaunchCooperativeKernel)
WELL(cuLaunchKernel)
WELL(cuLaunchKernelEx)
WELL(cuLibraryGetKernel)
WELL(cuLibraryLoadData)
WELL(cuLibraryLoadFromFile)
WELL(cuLibraryUnload)
WELL(cuLinkAddData)
WELL(cuLinkAddData_v2)
WELL(cuLinkAddFile_v2)
WELL(cuLinkComplete)
WELL(cuLinkCreate)
WELL(cuLinkCreate_v2)
WELL(cuLinkDestroy)
WELL(cuMemcpyDtoH_v2)
WELL(cuModuleGetFunction)
WELL(cuModuleGetGlobal_v2)
WELL(cuModuleLoadData)
WELL(cuModuleLoadDataEx)
WELL(cuModuleLoadFatBinary)
WELL(cuModuleUnload)
WELL(cuOccupancyMaxActiveBlocksPerMultiprocessor)
WELL(cuOccupancyMaxPotentialClusterSize)
WELL(cuStreamGetCtx)
WELL(cuStreamSynchronize)
WELL(cuTensorMapEncodeTiled)
