/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_queue: a stream for each queue of the table, and marks in them. The number of a mark names its queue (its value
 * modulo 4) and, above that, counts; a queue runs in order, so the newest mark seen reached says it of all before. What
 * is waiting is a ring of events that grows; where it cannot, mark() waits for the oldest. Private to this folder; the
 * thread that uses the device calls. What fails becomes the device's fault.
 */
#ifndef KERNELS_CUDA_CUDA_QUEUE_H
#define KERNELS_CUDA_CUDA_QUEUE_H

#include "kernels/kern_table.h"

/* ERR_STATE. After a failure, too, cuda_queues_close() is to be called; it waits for what is queued. */
ERR_MUST_CHECK enum err cuda_queues_open(struct kern_dev *dev);
void cuda_queues_close(struct kern_dev *dev);

/* The table's own, as kern_table.h says. */
void cuda_order(struct kern_dev *dev, enum kern_queue later, enum kern_queue earlier);
uint64_t cuda_mark(struct kern_dev *dev, enum kern_queue queue);
bool cuda_reached(struct kern_dev *dev, uint64_t mark);
enum err cuda_wait(struct kern_dev *dev, uint64_t mark);
enum err cuda_sync(struct kern_dev *dev);
enum err cuda_fault(struct kern_dev *dev);
void *cuda_stream(struct kern_dev *dev, enum kern_queue queue);

#endif
