/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_queue: marks of three queues against a device that is played here, which is done with things when chance wills:
 * each mark is reached when it is, and not before, while the rings grow, wrap, and find no memory to grow. */
#include "tests/lib/testlib.h"

#include <stdlib.h>

#include "common/mem.h"
#include "kernels/cuda/cuda_dev.h"
#include "kernels/cuda/cuda_queue.h"
#include "tests/fakes/cuda_runtime_api.h"

enum { TURNS = 3000 };

struct CUstream_st {
    uint64_t queued, done;
};
struct CUevent_st {
    cudaStream_t stream;
    uint64_t at;
};

static int made; /* streams and events that are there */
static bool forgotten_error;

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    forgotten_error = false;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    assert_int_equal(flags, cudaEventBlockingSync | cudaEventDisableTiming);
    *event = calloc(1, sizeof **event);
    made++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    made--;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (event->stream->done >= event->at)
        return cudaSuccess;
    forgotten_error = true; /* CUDA keeps it as the last error, though it is none */
    return cudaErrorNotReady;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->stream = stream;
    event->at = ++stream->queued;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (event->stream->done < event->at)
        event->stream->done = event->at;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    assert_int_equal(flags, cudaStreamNonBlocking);
    *stream = calloc(1, sizeof **stream);
    made++;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    made--;
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return stream->done == stream->queued ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    stream->done = stream->queued;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return cudaSuccess;
}

/* Of cuda_dev, what the queues stand on. */
void cuda_use(const struct kern_dev *dev)
{
    (void)dev;
}

bool cuda_failed(struct kern_dev *dev, int code, const char *what)
{
    (void)dev, (void)what;
    assert_int_equal(code, cudaSuccess);
    return false;
}

enum err cuda_kept_fault(const struct kern_dev *dev)
{
    (void)dev;
    return ERR_OK;
}

struct marked {
    uint64_t mark, at;
    struct CUstream_st *stream;
};

static void look_at(struct kern_dev *dev, const struct marked *one, bool wait)
{
    if (wait) {
        assert_ok(cuda_wait(dev, one->mark));
        assert_true(one->stream->done >= one->at);
    }
    assert_int_equal(cuda_reached(dev, one->mark), one->stream->done >= one->at);
    assert_false(forgotten_error);
}

static void play(uint64_t seed, bool short_of_memory)
{
    struct env_rng rng = env_rng_init(seed, 1);
    struct kern_dev dev = {.device = 0};
    struct marked *marked = calloc(TURNS, sizeof *marked);
    size_t count = 0;
    uint64_t last = 0;
    assert_ok(cuda_queues_open(&dev));
    for (int i = 0; i < TURNS; i++) {
        enum kern_queue queue = (enum kern_queue)env_rng_below(&rng, KERN_QUEUES);
        struct CUstream_st *stream = dev.stream[queue];
        uint64_t what = env_rng_below(&rng, 60);
        if (what < 30) {
            if (short_of_memory)
                mem_fail_after(0);
            uint64_t mark = cuda_mark(&dev, queue);
            mem_fail_after(-1);
            assert_true(mark > last);
            last = mark;
            marked[count++] = (struct marked){mark, stream->queued, stream};
        } else if (what < 33 && stream->done < stream->queued) {
            stream->done += 1 + env_rng_below(&rng, stream->queued - stream->done);
        } else if (count > 0) {
            look_at(&dev, &marked[env_rng_below(&rng, count)], what == 59);
        }
    }
    assert_ok(cuda_sync(&dev));
    for (size_t i = 0; i < count; i++)
        assert_true(cuda_reached(&dev, marked[i].mark));
    cuda_queues_close(&dev);
    assert_int_equal(made, 0);
    free(marked);
}

static void a_mark_is_reached_when_it_is(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < testlib_seeds(60); seed++)
        play(seed, false);
}

static void without_memory_for_more_marks_it_waits(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < testlib_seeds(60); seed++)
        play(seed, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mark_is_reached_when_it_is),
        cmocka_unit_test(without_memory_for_more_marks_it_waits),
    };
    return cmocka_run_group_tests_name("cuda_queue", tests, NULL, NULL);
}
