/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cuda_blas.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_choices.h"
#include "kernels/cuda/cuda_dev.h"
#include "kernels/cuda/cuda_library.h"

#define TEXT_OF_(number) #number
#define TEXT_OF(number) TEXT_OF_(number)
#define MAJOR TEXT_OF(CUBLAS_VER_MAJOR)
#define LIBRARY "libcublasLt.so." MAJOR

enum { CANDIDATES = 8, TRIALS = 3, ALIGN_MAX = 16, CAPABILITY_HOPPER = 90, IDENTITY_BYTES = 384 };

/* What is equal for calls of one plan; whole numbers, so that there is nothing between them. */
struct key {
    int64_t M, N, K, lda, ldb, ldc;
    int64_t kind;                      /* of ta, tb, to_float, beta != 0: a bit each */
    int64_t align_a, align_b, align_c; /* bytes, up to ALIGN_MAX: of an algorithm more cannot be asked */
};
_Static_assert(sizeof(struct key) == CUDA_CHOICE_KEYS * sizeof(int64_t), "a key is as it is kept");
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == CUDA_CHOICE_BYTES, "an algorithm is as it is kept");

struct plan {
    struct key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    bool usable;
};

struct cuda_blas {
    void *library;
    cublasLtHandle_t handle;
    void *workspace;
    size_t workspace_bytes;
    struct plan **plans; /* in the order they came up: a few dozen in a process */
    size_t plans_count, plans_room;
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtDestroy) *destroy;
    __typeof__(cublasLtGetStatusName) *status_name;
    __typeof__(cublasLtMatmulDescCreate) *desc_create;
    __typeof__(cublasLtMatmulDescDestroy) *desc_destroy;
    __typeof__(cublasLtMatmulDescSetAttribute) *desc_set;
    __typeof__(cublasLtMatrixLayoutCreate) *layout_create;
    __typeof__(cublasLtMatrixLayoutDestroy) *layout_destroy;
    __typeof__(cublasLtMatmulPreferenceCreate) *preference_create;
    __typeof__(cublasLtMatmulPreferenceDestroy) *preference_destroy;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *preference_set;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *heuristic;
    __typeof__(cublasLtMatmulAlgoCheck) *check;
    __typeof__(cublasLtMatmul) *matmul;
    __typeof__(cublasLtGetVersion) *version;
};

/* One product as the library is to do it: pointers, and what its sums are multiplied with. */
struct job {
    const void *a, *b;
    void *c;
    float alpha, beta;
    size_t c_bytes;
};

/* ---- the library ---- */

static enum err find_functions(struct cuda_blas *blas)
{
    const struct cuda_symbol wanted[] = {
        {"cublasLtCreate", &blas->create},
        {"cublasLtDestroy", &blas->destroy},
        {"cublasLtGetStatusName", &blas->status_name},
        {"cublasLtMatmulDescCreate", &blas->desc_create},
        {"cublasLtMatmulDescDestroy", &blas->desc_destroy},
        {"cublasLtMatmulDescSetAttribute", &blas->desc_set},
        {"cublasLtMatrixLayoutCreate", &blas->layout_create},
        {"cublasLtMatrixLayoutDestroy", &blas->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", &blas->preference_create},
        {"cublasLtMatmulPreferenceDestroy", &blas->preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &blas->preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", &blas->heuristic},
        {"cublasLtMatmulAlgoCheck", &blas->check},
        {"cublasLtMatmul", &blas->matmul},
        {"cublasLtGetVersion", &blas->version},
    };
    const char *lacks = cuda_library_lacks(blas->library, wanted, sizeof wanted / sizeof wanted[0]);
    if (lacks != NULL)
        return err_set(ERR_NOTFOUND, LIBRARY " has no %s; install the CUDA toolkit's cuBLAS again", lacks);
    return ERR_OK;
}

/* Choices hold for a GPU of the same kind, and the same version of the library. */
static enum err open_choices(struct kern_dev *dev, const char *path)
{
    char text[IDENTITY_BYTES];
    struct cudaDeviceProp found = {.name = "a GPU"};
    if (cudaGetDeviceProperties(&found, dev->device) != cudaSuccess)
        cudaGetLastError();
    snprintf(text, sizeof text, "algorithms of cublasLt %zu on %s, compute %d.%d, %d processors", dev->blas->version(),
             found.name, dev->capability / 10, dev->capability % 10, dev->processors);
    return cuda_choices_open(path, text, &dev->choices);
}

enum err cuda_blas_open(struct kern_dev *dev, const char *choices)
{
    struct cuda_blas *blas;
    TRY(mem_new(1, sizeof *blas, "the library of matrix products", &blas));
    dev->blas = blas;
    blas->library = cuda_library_open(LIBRARY);
    if (blas->library == NULL)
        return err_set(ERR_NOTFOUND,
                       LIBRARY " not found; install the CUDA " MAJOR
                               " toolkit's cuBLAS or pip's nvidia-cublas, and add its folder to LD_LIBRARY_PATH");
    TRY(find_functions(blas));
    cublasStatus_t status = blas->create(&blas->handle);
    if (status != CUBLAS_STATUS_SUCCESS)
        return err_set(ERR_STATE, "GPU %d: " LIBRARY " does not start: %s", dev->device, blas->status_name(status));
    TRY(open_choices(dev, choices));
    blas->workspace_bytes = (size_t)(dev->capability >= CAPABILITY_HOPPER ? 64 : 32) << 20;
    return cuda_alloc(dev, blas->workspace_bytes, "the workspace of matrix products", &blas->workspace);
}

static void free_plan(struct cuda_blas *blas, struct plan *plan)
{
    if (plan->desc != NULL)
        blas->desc_destroy(plan->desc);
    if (plan->a != NULL)
        blas->layout_destroy(plan->a);
    if (plan->b != NULL)
        blas->layout_destroy(plan->b);
    if (plan->c != NULL)
        blas->layout_destroy(plan->c);
    mem_free(plan);
}

void cuda_blas_close(struct kern_dev *dev)
{
    struct cuda_blas *blas = dev->blas;
    if (blas == NULL)
        return;
    for (size_t i = 0; i < blas->plans_count; i++)
        free_plan(blas, blas->plans[i]);
    mem_free(blas->plans);
    cuda_choices_close(dev->choices);
    dev->choices = NULL;
    cuda_free(dev, blas->workspace);
    if (blas->handle != NULL)
        blas->destroy(blas->handle);
    /* The library stays loaded: it has made things in the driver that outlive its handle. */
    mem_free(blas);
    dev->blas = NULL;
}

/* ---- plans ---- */

static int64_t alignment(const void *at)
{
    int64_t align = ALIGN_MAX;
    while ((uintptr_t)at % (uintptr_t)align != 0)
        align /= 2;
    return align;
}

static struct key key_of(const struct job *job, const struct cuda_product *p)
{
    return (struct key){.M = p->M,
                        .N = p->N,
                        .K = p->K,
                        .lda = p->lda,
                        .ldb = p->ldb,
                        .ldc = p->ldc,
                        .kind = p->ta | p->tb << 1 | p->to_float << 2 | (p->beta != 0) << 3,
                        .align_a = alignment(job->a),
                        .align_b = alignment(job->b),
                        .align_c = alignment(job->c)};
}

/* The library counts by columns: to it, each of our arrays is the transposed matrix. So C^T = op(B)^T op(A)^T, with our
 * B as its first factor and our A as its second, and flags as they are. */
static cublasStatus_t describe(struct cuda_blas *blas, struct plan *plan, const struct cuda_product *p)
{
    const cublasOperation_t first = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint64_t M = (uint64_t)p->M, N = (uint64_t)p->N, K = (uint64_t)p->K;
    cublasStatus_t status = blas->desc_create(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->layout_create(&plan->b, CUDA_R_16BF, p->tb ? K : N, p->tb ? N : K, p->ldb);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->layout_create(&plan->a, CUDA_R_16BF, p->ta ? M : K, p->ta ? K : M, p->lda);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->layout_create(&plan->c, p->to_float ? CUDA_R_32F : CUDA_R_16BF, N, M, p->ldc);
    return status;
}

/* The library's best algorithms for the plan, the best first by what it believes. */
static cublasStatus_t ask(struct cuda_blas *blas, const struct plan *plan, cublasLtMatmulHeuristicResult_t *found,
                          int *count)
{
    /* A sum in place is made in whatever order blocks finish. */
    const uint32_t sums = CUBLASLT_REDUCTION_SCHEME_MASK & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_INPLACE;
    const uint64_t workspace = blas->workspace_bytes;
    const uint32_t a = (uint32_t)plan->key.align_b, b = (uint32_t)plan->key.align_a, c = (uint32_t)plan->key.align_c;
    const struct {
        cublasLtMatmulPreferenceAttributes_t which;
        const void *value;
        size_t bytes;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c},
    };
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t status = blas->preference_create(&preference);
    for (size_t i = 0; status == CUBLAS_STATUS_SUCCESS && i < sizeof wishes / sizeof wishes[0]; i++)
        status = blas->preference_set(preference, wishes[i].which, wishes[i].value, wishes[i].bytes);
    *count = 0;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->heuristic(blas->handle, plan->desc, plan->b, plan->a, plan->c, plan->c, preference, CANDIDATES,
                                 found, count);
    if (preference != NULL)
        blas->preference_destroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && *count == 0)
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    return status;
}

static cublasStatus_t multiply(struct kern_dev *dev, const struct plan *plan, const cublasLtMatmulAlgo_t *algorithm,
                               const struct job *job)
{
    struct cuda_blas *blas = dev->blas;
    return blas->matmul(blas->handle, plan->desc, &job->alpha, job->b, plan->b, job->a, plan->a, &job->beta, job->c,
                        plan->c, job->c, plan->c, algorithm, blas->workspace, blas->workspace_bytes,
                        dev->stream[KERN_MAIN]);
}

/* Milliseconds that an algorithm takes here, the shortest of a few trials; negative: it does not work. */
static float time_one(struct kern_dev *dev, const struct plan *plan, const cublasLtMatmulAlgo_t *algorithm,
                      const struct job *job, cudaEvent_t begin, cudaEvent_t end)
{
    float best = -1;
    if (multiply(dev, plan, algorithm, job) != CUBLAS_STATUS_SUCCESS) /* not counted: it loads the kernel */
        return -1;
    for (int i = 0; i < TRIALS; i++) {
        float took;
        if (cudaEventRecord(begin, dev->stream[KERN_MAIN]) != cudaSuccess ||
            multiply(dev, plan, algorithm, job) != CUBLAS_STATUS_SUCCESS ||
            cudaEventRecord(end, dev->stream[KERN_MAIN]) != cudaSuccess || cudaEventSynchronize(end) != cudaSuccess ||
            cudaEventElapsedTime(&took, begin, end) != cudaSuccess)
            return -1;
        best = best < 0 || took < best ? took : best;
    }
    return best;
}

/* The fastest of the algorithms, tried where nothing is lost: in C itself if the product overwrites it anyway, else in
 * memory that is taken for the purpose. Without such memory it is the one that the library believes to be best. */
static int fastest(struct kern_dev *dev, const struct plan *plan, const cublasLtMatmulHeuristicResult_t *found,
                   int count, const struct job *job)
{
    struct job trial = *job;
    void *copy = NULL;
    cudaEvent_t begin = NULL, end = NULL;
    int best = 0;
    float best_ms = -1;
    if (count == 1)
        return 0;
    if (job->beta != 0) {
        if (cudaMalloc(&copy, job->c_bytes) != cudaSuccess)
            goto out;
        /* The offset from a border stays as it is: kernels are chosen by it. */
        if (cudaMemsetAsync(copy, 0, job->c_bytes, dev->stream[KERN_MAIN]) != cudaSuccess)
            goto out;
        trial.c = (char *)copy + (uintptr_t)job->c % ALIGN_MAX;
    }
    if (cudaEventCreate(&begin) != cudaSuccess || cudaEventCreate(&end) != cudaSuccess)
        goto out;
    for (int i = 0; i < count; i++) {
        float ms = time_one(dev, plan, &found[i].algo, &trial, begin, end);
        if (ms >= 0 && (best_ms < 0 || ms < best_ms)) {
            best_ms = ms;
            best = i;
        }
    }
out:
    if (begin != NULL)
        cudaEventDestroy(begin);
    if (end != NULL)
        cudaEventDestroy(end);
    if (copy != NULL) {
        cudaStreamSynchronize(dev->stream[KERN_MAIN]);
        cudaFree(copy);
    }
    cudaGetLastError(); /* a fault of the device comes back at the next call */
    return best;
}

static void tell(struct kern_dev *dev, const struct cuda_product *p, const char *problem)
{
    cuda_fault_set(dev,
                   "the product of %s(%" PRId64 ",%" PRId64 ") and %s(%" PRId64 ",%" PRId64 "), rows %" PRId64
                   ", %" PRId64 ", %" PRId64 " apart, %s%s: %s",
                   p->ta ? "transposed " : "", p->M, p->K, p->tb ? "transposed " : "", p->K, p->N, p->lda, p->ldb,
                   p->ldc, p->to_float ? "to float" : "to bf16", p->beta != 0 ? ", added" : "", problem);
}

/* The algorithm that was chosen before, if the library still takes it. */
static bool chosen_before(struct kern_dev *dev, struct plan *plan)
{
    struct cuda_blas *blas = dev->blas;
    cublasLtMatmulHeuristicResult_t result = {0};
    return cuda_choices_find(dev->choices, (const int64_t *)&plan->key, (unsigned char *)&plan->algorithm) &&
           blas->check(blas->handle, plan->desc, plan->b, plan->a, plan->c, plan->c, &plan->algorithm, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= blas->workspace_bytes;
}

/* Makes the plan; one that cannot be used is kept as well, so that nobody asks again. */
static void make_plan(struct kern_dev *dev, struct plan *plan, const struct cuda_product *p, const struct job *job)
{
    struct cuda_blas *blas = dev->blas;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0;
    cublasStatus_t status = describe(blas, plan, p);
    plan->usable = status == CUBLAS_STATUS_SUCCESS && chosen_before(dev, plan);
    if (plan->usable)
        return;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = ask(blas, plan, found, &count);
    if (status != CUBLAS_STATUS_SUCCESS) {
        tell(dev, p, blas->status_name(status));
        return;
    }
    plan->algorithm = found[fastest(dev, plan, found, count, job)].algo;
    plan->usable = true;
    cuda_choices_add(dev->choices, (const int64_t *)&plan->key, (const unsigned char *)&plan->algorithm);
}

/* NULL: no memory, which is kept as the fault. */
static struct plan *find_plan(struct kern_dev *dev, const struct cuda_product *p, const struct job *job)
{
    struct cuda_blas *blas = dev->blas;
    const struct key key = key_of(job, p);
    struct plan *plan;
    for (size_t i = 0; i < blas->plans_count; i++)
        if (memcmp(&blas->plans[i]->key, &key, sizeof key) == 0)
            return blas->plans[i];
    if (blas->plans_count == blas->plans_room) {
        size_t room = 2 * blas->plans_room + 16;
        if (mem_grow(&blas->plans, blas->plans_count, room, sizeof *blas->plans, "plans of products") != ERR_OK) {
            tell(dev, p, "out of memory");
            return NULL;
        }
        blas->plans_room = room;
    }
    if (mem_new(1, sizeof *plan, "a plan of a product", &plan) != ERR_OK) {
        tell(dev, p, "out of memory");
        return NULL;
    }
    plan->key = key;
    blas->plans[blas->plans_count++] = plan;
    make_plan(dev, plan, p, job);
    return plan;
}

void cuda_multiply(struct kern_dev *dev, void *c, const kern_act *a, const kern_act *b, struct cuda_product product)
{
    const size_t value = product.to_float ? sizeof(float) : sizeof(uint16_t);
    if (product.M <= 0 || product.N <= 0)
        return;
    /* To the last value of the last row, and what may lie before a border. */
    const struct job job = {.a = a,
                            .b = b,
                            .c = c,
                            .alpha = product.alpha,
                            .beta = product.beta,
                            .c_bytes = (size_t)((product.M - 1) * product.ldc + product.N) * value + ALIGN_MAX};
    cuda_use(dev);
    const struct plan *plan = find_plan(dev, &product, &job);
    if (plan == NULL || !plan->usable)
        return;
    cublasStatus_t status = multiply(dev, plan, &plan->algorithm, &job);
    dev->operation = "a product of matrices";
    if (status != CUBLAS_STATUS_SUCCESS)
        tell(dev, &product, dev->blas->status_name(status));
    cuda_failed(dev, cudaGetLastError(), "a product of matrices");
}
