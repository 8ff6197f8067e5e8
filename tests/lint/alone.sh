#!/bin/sh
# Every part of daemon/ has a unit test that builds it alone: with what lies below it, and nothing above or beside it.
# Seen in the tests' programs: the function that makes a part is in them, those of parts it must not know are not.
set -u
dir=$BUILD/tests/unit
bad=0

# part: its function | functions that must not be there | tests
parts='
engine:  engine_new      |                                                                  | engine
control: control_new     | engine_new                                                       | control
status:  status_take     | engine_new control_new                                           | status status_json
peers:   peers_new       | engine_new control_new status_take                               | peers heartbeat peers_pair
objects: objects_new     | engine_new control_new status_take                               | objects
trainer: trainer_new     | engine_new control_new status_take peers_new rounds_new          | trainer training resume
shared:  shared_make     | engine_new control_new status_take peers_new rounds_new trainer_new attachment_new | shared
process: process_new     | engine_new control_new status_take peers_new rounds_new trainer_new shared_make | process
rounds:  rounds_new      | engine_new control_new status_take peers_new trainer_new         | rounds rounds_apply rounds_disk
replica: replica_new     | engine_new peers_new rounds_new trainer_new slots_new ledger_open jobs_new events_new | replica
ledger:  ledger_open     | engine_new peers_new rounds_new trainer_new slots_new replica_new jobs_new events_new | ledger
slots:   slots_new       | engine_new peers_new rounds_new trainer_new ledger_open jobs_new events_new | slots
results: result_open     | engine_new peers_new rounds_new trainer_new replica_new jobs_new events_new | results
store:   store_export    | engine_new peers_new rounds_new trainer_new slots_new ledger_open jobs_new events_new | store
state:   state_object_install | engine_new peers_new rounds_new trainer_new slots_new ledger_open jobs_new | state_object
plan:    model_plan_parse | engine_new peers_new rounds_new trainer_new slots_new ledger_open jobs_new | model_plan
memory:  memory_of       | engine_new peers_new rounds_new trainer_new ledger_open          | memory
event:   events_new      | engine_new peers_new rounds_new trainer_new replica_new jobs_new | event
jobs:    jobs_new        | engine_new peers_new rounds_new trainer_new replica_new events_new | jobs
rules:   rules_round     | engine_new peers_new rounds_new trainer_new replica_new jobs_new | rules
dconf:   dconf_load      | engine_new peers_new rounds_new trainer_new replica_new jobs_new | dconf
ctl:     ctl_ask         | engine_new peers_new rounds_new trainer_new replica_new jobs_new | ctl
'
[ -x "$dir/test_event" ] || { echo "the tests are not built"; exit 77; }

mkdir -p "$BUILD/test-data"
has() { printf '%s\n' "$symbols" | grep -qx "$1"; }
checked=0
printf '%s\n' "$parts" | sed '/^$/d' >"$BUILD/test-data/alone"
while IFS='|' read -r part others tests; do
    made=${part#*:}
    made=$(echo $made)
    for test in $tests; do
        symbols=$(nm --defined-only "$dir/test_$test" | awk '{ print $NF }') || { echo "test_$test: not built"; bad=1; continue; }
        has "$made" || { echo "test_$test: ${part%%:*} is not in it ($made)"; bad=1; }
        for other in $others; do
            has "$other" && { echo "test_$test: builds more than ${part%%:*}: $other is in it"; bad=1; }
        done
        checked=$((checked + 1))
    done
done <"$BUILD/test-data/alone"
[ "$checked" -gt 20 ] || { echo "only $checked tests were looked at"; bad=1; }
[ $bad -eq 0 ] && echo "$checked tests build their part alone"
exit $bad
