/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu.cuh: CUDA's names for a C++ compiler, on the emulation of tests/emu/emu.h; comes first, by -include, in each .cu
 * file (and by nobody else but emu.cc). Has what kernels/cuda/device.cuh asks of an emulation, and of CUDA's names
 * those that our kernels use; float atomics do not compile.
 *
 * g++ also wants -Wno-unknown-pragmas, since it does not know #pragma unroll.
 *
 * Code of this header runs in a kernel's thread and is seen by the sanitizers; what is in emu.cc is not.
 */
#ifndef TESTS_EMU_EMU_CUH
#define TESTS_EMU_EMU_CUH

#include <cmath>
#include <cstdint>
#include <cstring>
#include <math.h>
#include <tuple>
#include <type_traits>

#include "tests/emu/emu.h"

#define KERN_EMULATED 1
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"
#elif defined(__GNUC__)
/* Vectors below have constructors, which look at alignment; that they are copied as bytes is all right. */
#pragma GCC diagnostic ignored "-Wclass-memaccess"
#endif

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1 /* gcc's name for it */
#endif
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* ---- the emulator, in emu.cc ---- */

enum emu_kind {
    EMU_SYNCTHREADS,
    EMU_SYNCWARP,
    EMU_SHUFFLE,
    EMU_SHUFFLE_UP,
    EMU_SHUFFLE_DOWN,
    EMU_SHUFFLE_XOR,
    EMU_BALLOT,
    EMU_MMA,
    EMU_MATRIX,
    EMU_MATRIX_TRANS
};

/* What a thread waits for with others. It lies on the thread's stack until all are there; the last does it for all. */
struct emu_op {
    enum emu_kind kind;
    uint32_t mask;  /* of lanes; not of SYNCTHREADS */
    int lane;       /* SHUFFLE: the source, or how far away it is */
    int width;      /* SHUFFLE: of a group of lanes */
    const void *in; /* SHUFFLE: `bytes`; BALLOT: an int; MMA: a and b; MATRIX: 16 bytes, a row */
    void *out;      /* SHUFFLE: `bytes`; BALLOT: uint32_t; MMA: d; MATRIX: four words */
    size_t bytes;
    const char *file; /* the place in the source */
    int line;
};

struct emu_copy {
    void *to;
    const void *from;
    bool valid;
};

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

/* Of the thread that runs. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

void emu_wait(struct emu_op *op);
void *emu_shared(const void *place, size_t bytes, const char *name);
void *emu_shared_dynamic(void);
void emu_misaligned(uintptr_t address, const char *what);
void emu_copy_issue(struct emu_copy copy);
/* The next copy of this thread's to be done so that `pending` groups stay on their way. */
bool emu_copy_next(int pending, struct emu_copy *copy);
void emu_run(const char *kernel, dim3 grid, dim3 block, size_t shared, void (*call)(void *), void *context);

/* ---- launches and shared memory ---- */

/* A kernel to be called: converts the arguments as a call does, once. */
template <typename... P> struct emu_launch {
    void (*kernel)(P...);
    const char *name;
    dim3 grid, block;
    size_t shared;

    kern_dev *dev;

    struct queued {
        emu_launch launch;
        std::tuple<P...> arguments;
    };

    static void call(void *context)
    {
        auto *all = (queued *)context;
        std::apply(all->launch.kernel, all->arguments);
    }

    static void run(void *context)
    {
        const emu_launch &launch = ((queued *)context)->launch;
        emu_run(launch.name, launch.grid, launch.block, launch.shared, call, context);
    }

    void operator()(P... p) const
    {
        queued all{*this, std::tuple<P...>(p...)};
        static_assert(std::is_trivially_destructible<queued>::value, "is copied and dropped as bytes");
        emu_queue(dev, run, &all, sizeof(all));
    }
};

template <typename... P>
static inline emu_launch<P...> emu_prepare(kern_dev *dev, void (*kernel)(P...), const char *name, dim3 grid, dim3 block,
                                           size_t shared)
{
    return emu_launch<P...>{kernel, name, grid, block, shared, dev};
}

#define LAUNCH(dev, kernel, grid, block, shared, ...)                                          \
    do {                                                                                       \
        emu_prepare((dev), (kernel), #kernel, (grid), (block), (size_t)(shared))(__VA_ARGS__); \
        cuda_launched((dev), #kernel);                                                         \
    } while (0)

/* Known by the address of an object of its own: each instance of a template has another. */
#define SHARED(type, name, count)     \
    static char name##_place;         \
    typedef type name##_array[count]; \
    name##_array &name = *(name##_array *)emu_shared(&name##_place, sizeof(name##_array), #name)

#define SHARED_DYNAMIC(type, name) type *name = (type *)emu_shared_dynamic()

/* ---- vectors ---- */

/* The address as a number of which the compiler assumes nothing. */
static inline uintptr_t emu_address(const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    __asm__("" : "+r"(address));
    return address;
}

static inline uintptr_t emu_aligned(const void *pointer, size_t bytes, const char *what)
{
    uintptr_t address = emu_address(pointer);
    if (address % bytes != 0)
        emu_misaligned(address, what);
    return address;
}

struct __attribute__((aligned(8), may_alias)) uint2 {
    unsigned x, y;
    uint2() = default;
    uint2(unsigned x_, unsigned y_) : x(x_), y(y_)
    {
    }
    uint2(const uint2 &from)
    {
        memcpy((void *)this, (const void *)emu_aligned(&from, 8, "uint2"), 8);
    }
    uint2 &operator=(const uint2 &from)
    {
        void *to = (void *)emu_aligned(this, 8, "uint2");
        memcpy(to, (const void *)emu_aligned(&from, 8, "uint2"), 8);
        return *this;
    }
};

static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return uint2(x, y);
}

struct __attribute__((aligned(16), may_alias)) uint4 {
    unsigned x, y, z, w;
    uint4() = default;
    uint4(unsigned x_, unsigned y_, unsigned z_, unsigned w_) : x(x_), y(y_), z(z_), w(w_)
    {
    }
    uint4(const uint4 &from)
    {
        memcpy((void *)this, (const void *)emu_aligned(&from, 16, "uint4"), 16);
    }
    uint4 &operator=(const uint4 &from)
    {
        void *to = (void *)emu_aligned(this, 16, "uint4");
        memcpy(to, (const void *)emu_aligned(&from, 16, "uint4"), 16);
        return *this;
    }
};

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return uint4(x, y, z, w);
}

struct __attribute__((aligned(8), may_alias)) float2 {
    float x, y;
    float2() = default;
    float2(float x_, float y_) : x(x_), y(y_)
    {
    }
    float2(const float2 &from)
    {
        memcpy((void *)this, (const void *)emu_aligned(&from, 8, "float2"), 8);
    }
    float2 &operator=(const float2 &from)
    {
        void *to = (void *)emu_aligned(this, 8, "float2");
        memcpy(to, (const void *)emu_aligned(&from, 8, "float2"), 8);
        return *this;
    }
};

static inline float2 make_float2(float x, float y)
{
    return float2(x, y);
}

struct __attribute__((aligned(16), may_alias)) float4 {
    float x, y, z, w;
    float4() = default;
    float4(float x_, float y_, float z_, float w_) : x(x_), y(y_), z(z_), w(w_)
    {
    }
    float4(const float4 &from)
    {
        memcpy((void *)this, (const void *)emu_aligned(&from, 16, "float4"), 16);
    }
    float4 &operator=(const float4 &from)
    {
        void *to = (void *)emu_aligned(this, 16, "float4");
        memcpy(to, (const void *)emu_aligned(&from, 16, "float4"), 16);
        return *this;
    }
};

static inline float4 make_float4(float x, float y, float z, float w)
{
    return float4(x, y, z, w);
}

/* ---- barriers and warps ---- */

#define EMU_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(EMU_PLACE)
{
    emu_op op = {EMU_SYNCTHREADS, 0, 0, 0, nullptr, nullptr, 0, file, line};
    emu_wait(&op);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_PLACE)
{
    emu_op op = {EMU_SYNCWARP, mask, 0, 0, nullptr, nullptr, 0, file, line};
    emu_wait(&op);
}

template <typename T>
static inline T emu_shuffle(emu_kind kind, unsigned mask, T value, int lane, int width, const char *file, int line)
{
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8), "shuffles take 4 or 8 bytes");
    T out = value;
    emu_op op = {kind, mask, lane, width, &value, &out, sizeof(T), file, line};
    emu_wait(&op);
    return out;
}

template <typename T> static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, EMU_PLACE)
{
    return emu_shuffle(EMU_SHUFFLE, mask, value, lane, width, file, line);
}

template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, EMU_PLACE)
{
    return emu_shuffle(EMU_SHUFFLE_UP, mask, value, (int)by, width, file, line);
}

template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, EMU_PLACE)
{
    return emu_shuffle(EMU_SHUFFLE_DOWN, mask, value, (int)by, width, file, line);
}

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, EMU_PLACE)
{
    return emu_shuffle(EMU_SHUFFLE_XOR, mask, value, by, width, file, line);
}

static inline unsigned __ballot_sync(unsigned mask, int value, EMU_PLACE)
{
    unsigned out = 0;
    emu_op op = {EMU_BALLOT, mask, 0, 0, &value, &out, 0, file, line};
    emu_wait(&op);
    return out;
}

static inline int __any_sync(unsigned mask, int value, EMU_PLACE)
{
    return __ballot_sync(mask, value, file, line) != 0;
}

static inline int __all_sync(unsigned mask, int value, EMU_PLACE)
{
    return __ballot_sync(mask, value, file, line) == mask;
}

/* ---- tensor cores and asynchronous copies ---- */

static inline void emu_mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], EMU_PLACE)
{
    const uint32_t in[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    emu_op op = {EMU_MMA, 0xffffffffu, 0, 0, in, d, 0, file, line};
    emu_wait(&op);
}

/* Each lane reads the row that it names, so that a sanitizer sees who reads what. */
static inline void emu_load_matrix_x4(uint32_t (&r)[4], const void *row, bool trans, EMU_PLACE)
{
    uint32_t in[4];
    memcpy(in, (const void *)emu_aligned(row, 16, "a row of a matrix"), 16);
    emu_op op = {trans ? EMU_MATRIX_TRANS : EMU_MATRIX, 0xffffffffu, 0, 0, in, r, 0, file, line};
    emu_wait(&op);
}

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_read16(void *);
extern "C" void __tsan_write16(void *);
#endif

/* Both sides are used at any time from here to the wait: now for who looks for races, later in truth. */
static inline void emu_copy_async16(void *to, const void *from, bool valid)
{
    (void)emu_aligned(to, 16, "the end of an asynchronous copy");
    if (valid)
        (void)emu_aligned(from, 16, "the source of an asynchronous copy");
#ifdef __SANITIZE_THREAD__
    __tsan_write16(to);
    if (valid)
        __tsan_read16((void *)from);
#endif
    emu_copy_issue(emu_copy{to, from, valid});
}

void emu_copy_commit(void);

static inline void emu_copy_wait(int pending)
{
    emu_copy copy;
    while (emu_copy_next(pending, &copy)) {
        uint64_t value[2] = {0, 0};
        if (copy.valid)
            memcpy(value, (const void *)emu_address(copy.from), 16);
        memcpy((void *)emu_address(copy.to), value, 16);
    }
}

/* ---- numbers ---- */

#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")

template <typename To, typename From> static inline To emu_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

static inline unsigned __float_as_uint(float x)
{
    return emu_bits<unsigned>(x);
}

static inline float __uint_as_float(unsigned x)
{
    return emu_bits<float>(x);
}

static inline int __float_as_int(float x)
{
    return emu_bits<int>(x);
}

static inline float __int_as_float(int x)
{
    return emu_bits<float>(x);
}

static inline float emu_rsqrt(float x)
{
    return 1.0f / sqrtf(x);
}

/* Macros, because the C library has functions of these names. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
#define __fdividef(x, y) ((float)(x) / (float)(y))
#define rsqrtf(x) emu_rsqrt(x)

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}

static inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((uint64_t)x * y >> 32);
}

template <typename T> static inline T __ldg(const T *from)
{
    return *from;
}

#define EMU_MIN_MAX(type)                  \
    static inline type min(type x, type y) \
    {                                      \
        return y < x ? y : x;              \
    }                                      \
    static inline type max(type x, type y) \
    {                                      \
        return x < y ? y : x;              \
    }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
EMU_MIN_MAX(float)
EMU_MIN_MAX(double)

/* ---- atomics: of integers, and ordering nothing ---- */

template <typename T, typename Change> static inline T emu_atomic(T *at, Change change)
{
    static_assert(std::is_integral<T>::value, "the order of float sums would be chance");
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, change(old), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}

#define EMU_ATOMICS(type)                                                           \
    static inline type atomicAdd(type *at, type x)                                  \
    {                                                                               \
        return __atomic_fetch_add(at, x, __ATOMIC_RELAXED);                         \
    }                                                                               \
    static inline type atomicOr(type *at, type x)                                   \
    {                                                                               \
        return __atomic_fetch_or(at, x, __ATOMIC_RELAXED);                          \
    }                                                                               \
    static inline type atomicMax(type *at, type x)                                  \
    {                                                                               \
        return emu_atomic(at, [x](type old) -> type { return old < x ? x : old; }); \
    }                                                                               \
    static inline type atomicMin(type *at, type x)                                  \
    {                                                                               \
        return emu_atomic(at, [x](type old) -> type { return x < old ? x : old; }); \
    }
EMU_ATOMICS(int)
EMU_ATOMICS(unsigned)
EMU_ATOMICS(unsigned long long)
template <typename T> T atomicAdd(T *at, T x) = delete;
float atomicAdd(float *at, float x) = delete;
double atomicAdd(double *at, double x) = delete;

#endif
