#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# srun for `program` in [worker] of an island that is a job of Slurm (island.sbatch): its arguments are srun's.
#
#     program = /shared/ranks.sh --ntasks-per-node=1 torchrun --nnodes 2 ... /shared/train.py
#
# When the daemon is stopped it sends SIGTERM. srun would kill all ranks at that; here they get it, contribute and end.
set -m # srun in a process group of its own: a signal to ours is not one to it
srun "$@" &
step=$!
# To all steps, and not to the batch script. Of a job that Slurm ends itself scancel would wait for the end.
trap 'timeout 5 scancel --quiet --signal=TERM "$SLURM_JOB_ID" &' TERM
while true; do
    wait "$step"
    status=$?
    kill -0 "$step" 2>/dev/null || exit "$status" # else it was the signal that ended the waiting
done
