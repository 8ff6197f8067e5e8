#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An island as a job of Slurm, by docs/examples/island.sbatch: slurmctld on this machine, slurmd on two made of
# namespaces. It is cancelled, preempted, requeued, and ends with the run, as an island outside of Slurm does.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/machines.sh
. tests/lib/ranks.sh
for tool in slurmctld slurmd srun munged; do
    command -v $tool >/dev/null 2>&1 || skip "there is no $tool; apt-get install slurm-wlm munge"
done
ranks_begin 3 'oslo paris'

# ---- the cluster ----

mkdir -p "$work/ctld"
(umask 077 && head -c 64 /dev/urandom >"$work/munge.key")
munged --force --key-file="$work/munge.key" --socket="$work/munge.socket" --pid-file="$work/munged.pid" \
    --log-file="$work/munged.log" --seed-file="$work/munge.seed" || fail "munged does not start"
ranks_end_with "$work/munged.pid"
cat >"$work/slurm.conf" <<I
ClusterName=test
SlurmctldHost=$(hostname)($machines_base.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CredType=cred/munge
SlurmctldPort=$(port)
SlurmdPort=$(port)
StateSaveLocation=$work/ctld
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
TmpFS=$work/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=node1 NodeAddr=$machines_base.2 CPUs=2 RealMemory=500
NodeName=node2 NodeAddr=$machines_base.3 CPUs=2 RealMemory=500
PartitionName=low Nodes=node1,node2 Default=YES PriorityTier=1 GraceTime=12 PreemptMode=REQUEUE
PartitionName=high Nodes=node1,node2 PriorityTier=9 PreemptMode=OFF
I
echo 'CgroupPlugin=cgroup/v1' >"$work/cgroup.conf" # none of it is used
export SLURM_CONF=$work/slurm.conf
slurmctld -f "$SLURM_CONF" || fail "slurmctld does not start"
ranks_end_with "$work/slurmctld.pid"
for node in node1 node2; do
    mkdir -p "$work/spool-$node" "$work/tmp-$node"
    "$work/agent" $node "SLURM_CONF=$SLURM_CONF slurmd -f $SLURM_CONF" || fail "slurmd does not start on $node"
done
idle() { [ "$(sinfo -h -p low -t idle -o %D)" = 2 ]; }
await 30 "two idle nodes" idle

# ---- the islands ----

spec 4000
found oslo "$work/example-ranks 10" "$machines_base.1:$(port)"
cp docs/examples/ranks.sh "$work"
join paris "$work/ranks.sh --mpi=pmix --ntasks-per-node=2 --overcommit $work/example-ranks 10" ''
export DILOCO_HOME=$work/paris PATH=$PWD/$BUILD:$PATH
log=$work/job.log
submit() { # options of sbatch
    sbatch --parsable --chdir="$work" --output="$log" "$@" docs/examples/island.sbatch || fail "sbatch $*"
}
of_job() { scontrol show job "$job" | tr ' ' '\n' | sed -n "s/^$1=//p"; }
state() { [ "$(of_job JobState)" = "$1" ]; }
times() { cat "$log" 2>/dev/null | grep -c "$1"; } # words: in how many lines of the job
said() { [ "$(times "$1")" -gt "${2:-0}" ]; }        # words, and in how many lines they were before
nothing_runs() { ! pgrep -f "dilocod.*$work/paris|srun.*$work/example-ranks" >/dev/null; }

on='training goes on after step [1-9]'
before() { ons=$(times "$on") stops=$(times stopping); }

# On one node; and the daemon alone is told to end, as it is where the job's time is nearly over.
job=$(submit --nodes=1)
await 60 "training on one node" said "$on"
scancel --batch --signal=TERM "$job"
await 60 "the end of the job whose time is over" state COMPLETED
await 20 "the end of all its processes" nothing_runs
said 'not the end: this trainer was to end' || fail "the ranks were not asked to end"

# On two, where it goes on; then one of more weight wants the nodes.
before
job=$(submit)
await 60 "training on two nodes" said "$on" "$ons"
await 20 "two ranks on the second node" said 'rank [23] on node2 of 4' 1
before
sbatch --parsable --partition=high --nodes=2 --exclusive --output=/dev/null --wrap 'sleep 3' >/dev/null || fail "sbatch high"
await 60 "that the daemon was stopped for it" said stopping "$stops"
again() { # to be requeued takes Slurm two minutes, unless it is told to hurry
    scontrol update "jobid=$job" StartTime=now >/dev/null 2>&1
    said "$on" "$ons"
}
await 90 "that it goes on after the other job" again
[ "$(of_job Restarts)" -eq 1 ] || fail "it was not requeued"

# And once more, by hand.
before
scontrol requeue "$job" || fail "scontrol requeue"
await 60 "that the daemon was stopped" said stopping "$stops"
await 90 "that it goes on again" again
said 'was killed by signal' && fail "a trainer was not asked to end"
said 'tasks.*Killed' && fail "ranks were not asked to end"

# The end of the run is that of the job.
await 180 "the end of the job" state COMPLETED
said 'the run is over, and so is this daemon' || fail "it did not end with the run"
await 30 "the end of oslo" ended oslo
cmp "$work/paris/state/anchor.safetensors" "$work/oslo/state/anchor.safetensors" || fail "the islands hold other values"
grep 'goes on after\|of 4\|the run is over' "$log"
