/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_runtime_api: of CUDA's header of this name, what kernels/cuda/cuda_queue.c uses, so that a test can build it
 * without the toolkit and play the device. Declarations and values are CUDA's.
 */
#ifndef TESTS_FAKES_CUDA_RUNTIME_API_H
#define TESTS_FAKES_CUDA_RUNTIME_API_H

typedef enum cudaError { cudaSuccess = 0, cudaErrorNotReady = 600 } cudaError_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUstream_st *cudaStream_t;

enum { cudaStreamNonBlocking = 1, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };

cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetLastError(void);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);

#endif
