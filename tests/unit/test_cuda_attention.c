/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_attention: which kernels a shape goes by, on a device, a clock and a cuDNN that are played: the faster one, if
 * it gives the same bits each time; the same again in the next process; what DILOCO_ATTENTION says; ours wherever cuDNN
 * is missing, refuses, takes too much memory, or was not asked beforehand.
 */
#include "tests/lib/testlib.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cuda_choices.h"
#include "kernels/cuda/cuda_dev.h"
#include "kernels/cuda/cuda_dnn.h"

enum { PLANS = 2, TEXT_BYTES = 1024, OURS = -1 };

static const struct kern_attention large = {8, 2048, 16, 16, 128}, small = {2, 64, 2, 2, 64};
static struct kern_dev device;
static char choices[1024];

/* ---- what is played ---- */

static struct {
    bool missing, refuses, fails; /* the library; a graph; a run */
    float ours_ms, dnn_ms[PLANS];
    bool restless[PLANS]; /* other bits each time */
    size_t scratch, memory;
    uint64_t bits;
    double clock_ms;
    int ours, dnn, loads, graphs; /* calls; graphs that are there */
    int last_plan;                /* of the newest run; OURS */
    int engines;                  /* that are proposed no more */
} played;

static cudnnStatus_t create(cudnnHandle_t *out)
{
    *out = (cudnnHandle_t)&played;
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t destroy(cudnnHandle_t handle)
{
    assert_ptr_equal(handle, &played);
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    assert_ptr_equal(handle, &played);
    assert_ptr_equal(stream, device.stream[KERN_MAIN]);
    return CUDNN_STATUS_SUCCESS;
}

bool cuda_dnn_load(struct cuda_dnn_calls *calls, size_t *version, char *why, size_t bytes)
{
    played.loads++;
    *version = 91900;
    snprintf(why, bytes, "%s", played.missing ? "it is not there" : "");
    *calls = (struct cuda_dnn_calls){.create = create, .destroy = destroy, .set_stream = set_stream};
    return !played.missing;
}

void cuda_dnn_graph_new(const struct cuda_dnn_target *target, const struct kern_attention *dims, bool backward,
                        int most, struct cuda_dnn_graph *out)
{
    (void)dims;
    assert_ptr_equal(target->handle, &played);
    memset(out, 0, sizeof *out);
    played.graphs++;
    out->made_count = 1;
    snprintf(out->text, sizeof out->text, "%s", played.refuses ? "not this one" : "");
    out->plans_count = played.refuses ? 0 : most < PLANS ? most : PLANS;
    out->sums_bytes = backward ? 4096 : 0;
    for (int i = 0; i < out->plans_count; i++)
        out->plans[i] = (struct cuda_dnn_plan){.engine = 40 + played.engines + i, .workspace_bytes = played.scratch};
}

void cuda_dnn_graph_drop(const struct cuda_dnn_target *target, struct cuda_dnn_graph *graph)
{
    (void)target;
    graph->plans_count = 0;
}

void cuda_dnn_graph_free(const struct cuda_dnn_target *target, struct cuda_dnn_graph *graph)
{
    (void)target;
    played.graphs -= graph->made_count == 1; /* as one that was never made is freed as well */
}

size_t cuda_dnn_graph_scratch(const struct cuda_dnn_graph *graph)
{
    return graph->plans_count > 0 ? graph->sums_bytes + graph->plans[0].workspace_bytes : 0;
}

bool cuda_dnn_graph_run(const struct cuda_dnn_target *target, struct cuda_dnn_graph *graph, int plan,
                        const struct kern_attention *dims, const struct cuda_dnn_arrays *arrays)
{
    (void)target;
    (void)dims;
    assert_in_range(plan, 0, graph->plans_count - 1);
    assert_non_null(arrays->scratch);
    if (played.fails) {
        snprintf(graph->text, sizeof graph->text, "it does not run");
        return false;
    }
    played.dnn++;
    played.last_plan = plan;
    played.clock_ms += (double)played.dnn_ms[plan];
    played.bits = played.restless[plan] ? played.bits + 1 : 7;
    return true;
}

static void ours(void)
{
    played.ours++;
    played.last_plan = OURS;
    played.clock_ms += (double)played.ours_ms;
}

void cuda_attention_fwd(struct kern_dev *dev, kern_act *out, float *lse, const kern_act *qkv,
                        const struct kern_attention *dims, void *scratch)
{
    (void)dev, (void)out, (void)lse, (void)qkv, (void)dims, (void)scratch;
    ours();
}

void cuda_attention_bwd(struct kern_dev *dev, kern_act *dqkv, const kern_act *dout, const kern_act *out,
                        const kern_act *qkv, const float *lse, const struct kern_attention *dims, void *scratch)
{
    (void)dev, (void)dqkv, (void)dout, (void)out, (void)qkv, (void)lse, (void)dims, (void)scratch;
    ours();
}

size_t cuda_attention_scratch(const struct kern_dev *dev, const struct kern_attention *dims)
{
    (void)dev, (void)dims;
    return 1000;
}

size_t cuda_digest_parts(void)
{
    return 512;
}

void cuda_digest(struct kern_dev *dev, uint64_t *parts, const void *array, size_t bytes)
{
    (void)dev, (void)array, (void)bytes;
    memset(parts, 0, cuda_digest_parts() * sizeof *parts);
    parts[3] = played.bits;
}

void cuda_use(const struct kern_dev *dev)
{
    assert_ptr_equal(dev, &device);
}

void cuda_fault_set(struct kern_dev *dev, const char *format, ...)
{
    snprintf(dev->fault, sizeof dev->fault, "%s", format);
}

bool cuda_failed(struct kern_dev *dev, int code, const char *what)
{
    (void)dev, (void)what;
    return code != cudaSuccess;
}

enum err cuda_kept_fault(const struct kern_dev *dev)
{
    return dev->fault[0] == '\0' ? ERR_OK : ERR_STATE;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = played.memory;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    assert_int_equal(kind, cudaMemcpyDeviceToHost);
    assert_ptr_equal(stream, device.stream[KERN_MAIN]);
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = calloc(1, sizeof(double));
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    memcpy(event, &played.clock_ms, sizeof played.clock_ms);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    double from, until;
    memcpy(&from, begin, sizeof from);
    memcpy(&until, end, sizeof until);
    *ms = (float)(until - from);
    return cudaSuccess;
}

/* ---- a process ---- */

static char scratch[65536];

static void begin(const char *rule)
{
    if (rule != NULL)
        setenv("DILOCO_ATTENTION", rule, 1);
    else
        unsetenv("DILOCO_ATTENTION");
    memset(&device, 0, sizeof device);
    device.stream[KERN_MAIN] = scratch;
    assert_ok(cuda_choices_open(choices[0] != '\0' ? choices : NULL, "a GPU", &device.choices));
    assert_ok(cuda_attention_open(&device));
}

static void end(void)
{
    cuda_attention_close(&device);
    assert_int_equal(played.graphs, 0);
    cuda_choices_close(device.choices);
}

static int set_up(void **state)
{
    (void)state;
    memset(&played, 0, sizeof played);
    played.ours_ms = 3;
    played.dnn_ms[0] = 2;
    played.dnn_ms[1] = 1;
    played.scratch = 20000;
    played.memory = (size_t)1 << 30;
    choices[0] = '\0';
    return 0;
}

/* Of one call: the plan that it went by in the end, or OURS. */
static int forward(const struct kern_attention *d)
{
    cuda_chosen_fwd(&device, scratch, (float *)scratch, scratch, d, scratch);
    return played.last_plan;
}

static int backward(const struct kern_attention *d)
{
    cuda_chosen_bwd(&device, scratch, scratch, scratch, scratch, (float *)scratch, d, scratch);
    return played.last_plan;
}

static void assert_by(const struct kern_attention *d, bool back, const char *holds)
{
    char text[TEXT_BYTES];
    cuda_chosen_by(&device, d, back, text, sizeof text);
    if (strstr(text, holds) == NULL)
        fail_msg("'%s' is not in '%s'", holds, text);
}

/* ---- cases ---- */

static void the_faster_one_is_taken_and_stays(void **state)
{
    (void)state;
    begin(NULL);
    assert_int_equal(cuda_chosen_scratch(&device, &large), 24096);
    assert_by(&large, false, "the first call tries");
    assert_int_equal(forward(&large), 1);
    int calls = played.dnn + played.ours;
    assert_int_equal(forward(&large), 1);
    assert_int_equal(played.dnn + played.ours, calls + 1); /* no second trial */
    assert_by(&large, false, "cuDNN 9.19.0, engine 41");
    played.ours_ms = 0.5f;
    assert_int_equal(backward(&large), OURS);
    assert_by(&large, true, "ours: 500 us; cuDNN 9.19.0 1000");
    end();
}

static void other_bits_are_not_taken(void **state)
{
    (void)state;
    begin(NULL);
    played.restless[1] = true;
    (void)cuda_chosen_scratch(&device, &large);
    assert_int_equal(forward(&large), 0);
    played.restless[0] = true;
    assert_int_equal(backward(&large), OURS);
    end();
}

static void the_next_process_takes_the_same(void **state)
{
    (void)state;
    snprintf(choices, sizeof choices, "%s", testlib_path(testlib_folder("attention"), "choices"));
    begin(NULL);
    (void)cuda_chosen_scratch(&device, &large);
    assert_int_equal(forward(&large), 1);
    played.ours_ms = 0.5f;
    assert_int_equal(backward(&large), OURS);
    end();
    played.dnn_ms[0] = 0.1f; /* would be chosen now, for both */
    begin(NULL);
    (void)cuda_chosen_scratch(&device, &large);
    int calls = played.dnn + played.ours;
    assert_int_equal(forward(&large), 1);
    assert_int_equal(backward(&large), OURS);
    assert_int_equal(played.dnn + played.ours, calls + 2);
    assert_by(&large, false, "chosen before");
    end();
    played.engines = 1; /* one that was proposed first is not any more: what was chosen has another place */
    begin(NULL);
    (void)cuda_chosen_scratch(&device, &large);
    calls = played.dnn + played.ours;
    (void)forward(&large);
    assert_true(played.dnn + played.ours > calls + 1); /* tried anew */
    end();
    played.engines = 0;
}

static void ours_wherever_it_cannot_be(void **state)
{
    (void)state;
    begin(NULL);
    assert_int_equal(forward(&large), OURS); /* nobody has asked what scratch it takes */
    assert_int_equal(cuda_chosen_scratch(&device, &small), 1000);
    assert_int_equal(forward(&small), OURS);
    assert_by(&small, false, "too little");
    assert_int_equal(played.loads, 0);
    played.memory = 20000 * 32 - 32; /* one byte too little */
    assert_int_equal(cuda_chosen_scratch(&device, &large), 1000);
    assert_int_equal(forward(&large), OURS);
    assert_by(&large, false, "scratch memory");
    end();
    played.memory = (size_t)1 << 30;
    played.refuses = true;
    begin(NULL);
    assert_int_equal(cuda_chosen_scratch(&device, &large), 1000);
    assert_int_equal(forward(&large), OURS);
    assert_by(&large, true, "not this one");
    end();
    played.refuses = false;
    played.missing = true;
    begin(NULL);
    assert_int_equal(cuda_chosen_scratch(&device, &large), 1000);
    assert_int_equal(backward(&large), OURS);
    assert_by(&large, true, "it is not there");
    assert_int_equal(played.loads, 3);
    end();
}

static void the_environment_decides(void **state)
{
    (void)state;
    begin("ours");
    assert_int_equal(cuda_chosen_scratch(&device, &large), 1000);
    assert_int_equal(forward(&large), OURS);
    assert_int_equal(played.loads, 0);
    assert_int_equal(played.ours, 1);
    end();
    begin("cudnn");
    assert_int_equal(cuda_chosen_scratch(&device, &small), 24096);
    assert_int_equal(forward(&small), 0);
    assert_int_equal(played.ours, 1);
    played.fails = true; /* later on it is a fault, and not something else that computes other bits */
    (void)forward(&small);
    assert_true(device.fault[0] != '\0');
    assert_int_equal(played.ours, 1);
    end();
    setenv("DILOCO_ATTENTION", "best", 1);
    memset(&device, 0, sizeof device);
    assert_fails(ERR_CONF, "DILOCO_ATTENTION=best", cuda_attention_open(&device));
    cuda_attention_close(&device);
}

static void what_fails_in_a_trial_is_not_taken(void **state)
{
    (void)state;
    begin(NULL);
    (void)cuda_chosen_scratch(&device, &large);
    played.fails = true;
    assert_int_equal(forward(&large), OURS);
    assert_true(device.fault[0] == '\0');
    assert_by(&large, false, "it does not run");
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_faster_one_is_taken_and_stays, set_up),
        cmocka_unit_test_setup(other_bits_are_not_taken, set_up),
        cmocka_unit_test_setup(the_next_process_takes_the_same, set_up),
        cmocka_unit_test_setup(ours_wherever_it_cannot_be, set_up),
        cmocka_unit_test_setup(the_environment_decides, set_up),
        cmocka_unit_test_setup(what_fails_in_a_trial_is_not_taken, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
