/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_dnn_graph: the real cuDNN builds each graph and makes a plan of it, for an H200 and an A100 that are described
 * to it, with a driver that is played: all but the execution, without a GPU. Skipped where libcudnn.so.9 is not there.
 */
#include "tests/lib/testlib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_dnn.h"

enum { TEXT_BYTES = 1024, SKIPPED = 77 };

#define LIMITS                                                                              \
    ",\"driverVer\":13000,\"cudaDeviceId\":0,\"maxGridSize\":[2147483647,65535,65535]"      \
    ",\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"warpSize\":32"               \
    ",\"maxSharedMemoryPerBlock\":49152,\"reservedSharedMemoryPerBlock\":1024"              \
    ",\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024"          \
    ",\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1" \
    ",\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"totalGlobalMem\":80000000000}"
#define PROPERTIES(version, processors, shared, cache, name)                                     \
    "{\"deviceName\":\"" name "\",\"deviceVer\":" version ",\"multiProcessorCount\":" processors \
    ",\"maxSharedMemoryPerBlockOptin\":" shared ",\"l2CacheSize\":" cache LIMITS

static const char hopper[] = PROPERTIES("900", "132", "232448", "62914560", "NVIDIA H200");
static const char ampere[] = PROPERTIES("800", "108", "166912", "41943040", "NVIDIA A100");

static struct cuda_dnn_calls calls, real;
static size_t version;
static int made; /* descriptors that are there */

static cudnnStatus_t counted_new(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    cudnnStatus_t status = real.descriptor_new(type, out);
    made += status == CUDNN_STATUS_SUCCESS;
    return status;
}

static cudnnStatus_t counted_free(cudnnBackendDescriptor_t descriptor)
{
    made--;
    return real.descriptor_free(descriptor);
}

static struct cuda_dnn_target describe(const char *properties)
{
    struct cuda_dnn_target out = {.calls = &calls};
    assert_int_equal(real.descriptor_new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &out.device), CUDNN_STATUS_SUCCESS);
    assert_int_equal(real.set(out.device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                              (int64_t)strlen(properties) + 1, properties),
                     CUDNN_STATUS_SUCCESS);
    assert_int_equal(real.finalize(out.device), CUDNN_STATUS_SUCCESS);
    return out;
}

/* Forward's scratch is little; backward's, the scores' gradients in bf16, rows' sums, and what grouped heads add. */
static size_t scratch_most(const struct kern_attention *d, bool backward)
{
    size_t tiles = (size_t)(d->T + 127) / 128 * 128, heads = (size_t)(d->B * d->H);
    return backward ? heads * tiles * (tiles * 2 + 4 * 2 * (size_t)d->D + 8) + 65536 : 65536;
}

static void plan(const struct cuda_dnn_target *target, struct kern_attention d, bool backward)
{
    struct cuda_dnn_graph graph;
    int before = made;
    cuda_dnn_graph_new(target, &d, backward, 1, &graph);
    if (graph.plans_count != 1)
        fail_msg("B %lld, T %lld, H %lld, G %lld, D %lld, %s: %s", (long long)d.B, (long long)d.T, (long long)d.H,
                 (long long)d.G, (long long)d.D, backward ? "backward" : "forward", graph.text);
    assert_in_range(cuda_dnn_graph_scratch(&graph), 0, scratch_most(&d, backward));
    cuda_dnn_graph_free(target, &graph);
    assert_int_equal(made, before);
}

static void every_shape_has_a_plan(void **state)
{
    static const struct kern_attention shapes[] = {
        /* the bench's models; no multiple of a tile; every head size; two positions */
        {8, 2048, 16, 16, 128}, {32, 1024, 16, 16, 64}, {32, 1024, 12, 12, 64}, {2, 1030, 4, 2, 128},
        {2, 1030, 4, 1, 64},    {2, 150, 4, 1, 16},     {1, 17, 4, 2, 32},      {1, 2, 2, 1, 64},
    };
    struct cuda_dnn_target target = describe(hopper);
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        plan(&target, shapes[i], false);
        plan(&target, shapes[i], true);
    }
    real.descriptor_free(target.device);
}

static void an_older_gpu_has_plans(void **state)
{
    struct cuda_dnn_target target = describe(ampere);
    (void)state;
    plan(&target, (struct kern_attention){8, 2048, 16, 4, 128}, false);
    plan(&target, (struct kern_attention){8, 2048, 16, 4, 128}, true);
    real.descriptor_free(target.device);
}

/* Nothing is left behind of what is refused, and the library's words are kept. */
static void a_refusal_is_told(void **state)
{
    struct cuda_dnn_target target = describe(hopper);
    (void)state;
    for (int backward = 0; backward < 2; backward++) {
        struct cuda_dnn_graph graph;
        const struct kern_attention odd = {1, 64, 2, 2, 13}; /* rows that do not begin at 16 bytes */
        int before = made;
        cuda_dnn_graph_new(&target, &odd, backward == 1, 1, &graph);
        assert_int_equal(graph.plans_count, 0);
        assert_int_equal(cuda_dnn_graph_scratch(&graph), 0);
        printf("refused: %s\n", graph.text);
        assert_true(strlen(graph.text) > 10);
        cuda_dnn_graph_free(&target, &graph);
        assert_int_equal(made, before);
    }
    real.descriptor_free(target.device);
}

int main(void)
{
    char path[512], why[TEXT_BYTES];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refusal_is_told),
        cmocka_unit_test(every_shape_has_a_plan),
        cmocka_unit_test(an_older_gpu_has_plans),
    };
    const char *build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/tests/fakes/driver/libcuda.so.1", build != NULL ? build : "build/gcc");
    /* Whoever opens a library of this name afterwards gets this one. */
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    if (!cuda_dnn_load(&real, &version, why, sizeof why)) {
        printf("skipped: %s\n", why);
        return SKIPPED;
    }
    printf("cuDNN %zu\n", version);
    calls = real;
    calls.descriptor_new = counted_new;
    calls.descriptor_free = counted_free;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
