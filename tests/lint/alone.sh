#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every part of daemon/ has a unit test that builds it alone: with what lies below it, and nothing above or beside it.
# Seen in the tests' programs: a function of the part is in them, those of parts it must not know are not.
set -u
: "${BUILD:?is not set: the build folder, as in BUILD=build/gcc}"
bad=0
complain() { echo "$1"; bad=1; }

# file in daemon/ | a function of it | functions that must not be there | tests
parts='
engine                 | engine_new        |                                                                             | unit/engine
lag                    | lag_step          | engine_new peers_new rounds_new trainer_new replica_new jobs_new events_new | unit/lag
event                  | events_new        | engine_new peers_new rounds_new trainer_new replica_new jobs_new            | unit/event
jobs                   | jobs_new          | engine_new peers_new rounds_new trainer_new replica_new events_new          | unit/jobs
rules                  | rules_round       | engine_new peers_new rounds_new trainer_new replica_new jobs_new            | unit/rules
check                  | check_start       | engine_new peers_new rounds_new trainer_new replica_new jobs_new            | unit/check
ground                 | ground_open_vote  | engine_new peers_new rounds_new trainer_new jobs_new events_new config_store_open | unit/ground
membership/config_store | config_store_open | engine_new peers_new rounds_new trainer_new slots_new jobs_new events_new | unit/charter unit/records unit/proof
dconf                  | dconf_load        | engine_new peers_new rounds_new trainer_new replica_new jobs_new            | unit/dconf
founding               | founding_draw     | engine_new peers_new rounds_new config_store_open config_store_load ctl_ask | unit/founding
home                   | home_find         | engine_new peers_new rounds_new dconf_load ctl_ask ctl_home_start           | unit/home_folder
supervisor             | supervisor_run    | engine_new peers_new rounds_new trainer_new dconf_load ctl_ask ctl_home_start | unit/supervisor
as_typed               | as_typed          | engine_new peers_new rounds_new trainer_new dconf_load home_find ctl_ask ctl_init ctl_plan ctl_print_status forecast_run | unit/as_typed
control/control        | control_new       | engine_new                                                                  | unit/control
control/status         | status_take       | engine_new control_new                                                      | unit/status unit/status_json unit/status_epoch unit/status_trainer unit/status_events unit/blocked
peers/peers            | peers_new         | engine_new control_new status_take                                          | unit/peers unit/heartbeat unit/peers_pair unit/objects unit/objects_epoch unit/states
membership/membership_host | membership_host_new       | engine_new control_new status_take                                          | unit/council unit/council_lost
membership/doorway     | doorway_new       | engine_new peers_new membership_host_new rounds_new trainer_new                     | unit/doorway
transfer/ways          | ways_new          | engine_new peers_new objects_new rounds_new trainer_new events_new          | unit/ways
trainer/trainer        | trainer_new       | engine_new control_new status_take peers_new rounds_new                     | unit/trainer unit/training unit/resume unit/departure unit/phase unit/trainer_runs
trainer/shared         | shared_make       | engine_new control_new status_take peers_new rounds_new trainer_new attachment_new process_new | unit/shared unit/shared_memory
trainer/lines          | lines_new         | engine_new control_new status_take peers_new rounds_new trainer_new attachment_new process_new | unit/lines
trainer/spool          | spool_new         | engine_new control_new status_take peers_new rounds_new trainer_new attachment_new process_new | unit/lines
trainer/process        | process_new       | engine_new control_new status_take peers_new rounds_new trainer_new attachment_new shared_make replica_new | unit/process unit/process_hung
trainer/command        | command_make      | engine_new peers_new rounds_new trainer_new attachment_new shared_make replica_new | unit/program
trainer/door           | door_open         | engine_new peers_new rounds_new trainer_new attachment_new process_new shared_make replica_new | unit/door unit/introduction
trainer/run_end        | run_end_of        | engine_new peers_new rounds_new trainer_new attachment_new process_new shared_make | unit/run_end
rounds/rounds          | rounds_new        | engine_new control_new status_take peers_new trainer_new                    | unit/rounds unit/rounds_apply unit/rounds_parts unit/rounds_disk unit/rounds_export unit/rounds_install unit/rounds_memory unit/rounds_commit
rounds/standing        | standing_note     | engine_new peers_new rounds_new trainer_new desk_init encode_new replica_new jobs_new | unit/standing
state/replica          | replica_new       | engine_new peers_new rounds_new trainer_new slots_new ledger_open jobs_new events_new | unit/replica unit/replica_cut unit/guards
state/parts            | parts_of          | engine_new peers_new rounds_new trainer_new slots_new ledger_open jobs_new events_new | unit/parts
state/ledger           | ledger_open       | engine_new peers_new rounds_new trainer_new slots_new replica_new jobs_new events_new | unit/ledger unit/ledger_at unit/ledger_flush
state/counted          | counted_note      | engine_new peers_new rounds_new trainer_new slots_new ledger_open replica_new jobs_new events_new | unit/counted
membership/vote        | vote_open         | engine_new peers_new rounds_new trainer_new slots_new ledger_open replica_new jobs_new events_new | unit/vote
state/slots            | slots_new         | engine_new peers_new rounds_new trainer_new ledger_open jobs_new events_new | unit/slots
state/results          | result_open       | engine_new peers_new rounds_new trainer_new replica_new jobs_new events_new | unit/results unit/rivals
state/store            | store_export_begin    | engine_new peers_new rounds_new trainer_new slots_new ledger_open jobs_new events_new | unit/store
state/state_object     | state_object_install | engine_new peers_new rounds_new trainer_new slots_new ledger_open jobs_new | unit/state_object
state/model_plan       | model_plan_parse  | engine_new peers_new rounds_new trainer_new slots_new ledger_open jobs_new  | unit/model_plan
state/memory           | memory_of         | engine_new peers_new rounds_new trainer_new ledger_open                     | unit/memory
ctl/ctl_client         | ctl_ask           | engine_new peers_new rounds_new dconf_load ctl_plan ctl_print_status forecast_run | unit/ctl_client
ctl/ctl_print          | ctl_print_status  | engine_new peers_new rounds_new dconf_load ctl_plan forecast_run            | unit/ctl_print
ctl/ctl_view           | ctl_view_new      | engine_new peers_new rounds_new dconf_load ctl_watch ctl_plan forecast_run       | unit/ctl_view
ctl/ctl_screen         | ctl_screen_open   | engine_new peers_new rounds_new dconf_load ctl_watch ctl_plan forecast_run       | unit/ctl_view
ctl/ctl_plan           | ctl_plan          | engine_new peers_new rounds_new dconf_load ctl_ask ctl_print_status         | unit/ctl_plan
ctl/ctl_home           | ctl_home_start    | engine_new peers_new rounds_new dconf_load ctl_init ctl_service_start ctl_plan ctl_print_status forecast_run | unit/ctl_home
ctl/ctl_service        | ctl_service_start | engine_new peers_new rounds_new dconf_load home_find ctl_ask ctl_init ctl_home_start ctl_plan ctl_print_status forecast_run | unit/ctl_service
ctl/ctl_draft          | ctl_draft_conf    | engine_new peers_new rounds_new home_find ctl_ask ctl_init ctl_home_start ctl_plan ctl_print_status forecast_run | unit/ctl_draft
ctl/ctl_export         | ctl_export        | engine_new peers_new rounds_new home_find ctl_init ctl_home_start ctl_plan ctl_print_status forecast_run | unit/ctl_export
ctl/ctl_init           | ctl_init          | engine_new peers_new rounds_new ctl_ask ctl_home_start ctl_service_start ctl_plan ctl_print_status forecast_run | unit/ctl_init
ctl/ctl_join           | ctl_join          | engine_new peers_new rounds_new ctl_ask ctl_home_start ctl_service_start ctl_plan ctl_print_status forecast_run | unit/ctl_join
ctl/yardstick          | yardstick_measure | engine_new peers_new rounds_new dconf_load ctl_ask ctl_plan forecast_run ctl_print_status | unit/yardstick
ctl/ctl_ways           | ctl_ways_spec     | engine_new peers_new rounds_new dconf_load ctl_ask ctl_print_status         | unit/ctl_plan
ctl/forecast           | forecast_run      | engine_new peers_new rounds_new dconf_load ctl_ask ctl_print_status ctl_plan | num/forecast
'
# Inside another part, and tested through it: file in daemon/ | a function of it | that part
inner='
runplan            | runplan_make     | engine
control/progress   | progress_new     | control/status
control/alike      | alike_note       | control/status
control/complaints | complaints_all   | control/status
peers/peer         | twins_note       | peers/peers
transfer/objects   | objects_new      | peers/peers
transfer/lend      | lend_new         | peers/peers
transfer/catchup   | catchup_new      | peers/peers
trainer/attachment | attachment_new   | trainer/trainer
trainer/tally      | tally_init       | trainer/trainer
state/part_cut     | part_cut_new     | state/replica
state/mean         | mean_begin       | state/replica
rounds/desk        | desk_init        | rounds/rounds
rounds/encode      | encode_new       | rounds/rounds
rounds/reduce      | reduce_new       | rounds/rounds
rounds/apply       | apply_new        | rounds/rounds
rounds/copy        | copy_new         | rounds/rounds
rounds/install     | install_new      | rounds/rounds
rounds/keep        | keep_new         | rounds/rounds
rounds/recover     | recover_begin    | rounds/rounds
ctl/ctl_text       | ctl_text_wrap    | ctl/ctl_print
'
programs='dilocod dilococtl ctl/ctl_watch ctl/ctl_members ctl/ctl_reset ctl/ctl_wait' # tests/system runs them

[ -x "$BUILD/tests/unit/test_event" ] || { echo "the tests are not built"; exit 77; }
[ -f "$BUILD/daemon.a" ] || { echo "$BUILD/daemon.a is not built"; exit 1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
rows() { printf '%s\n' "$1" | sed 's/[[:space:]]*|[[:space:]]*/|/g; s/[[:space:]]*$//; /^$/d'; }
rows "$parts" >"$work/parts"
rows "$inner" >"$work/inner"

# The tables against the files.
{
    cut -d'|' -f1 "$work/parts" "$work/inner"
    printf '%s\n' $programs
} | sort >"$work/named"
tests/files.sh 'daemon/*.c' | sed 's,^daemon/,,; s,\.c$,,' | sort >"$work/there"
[ "$(wc -l <"$work/there")" -gt 30 ] || complain "only $(wc -l <"$work/there") sources of daemon/ were found"
for file in $(uniq -d "$work/named"); do complain "daemon/$file.c has two rows in the tables of this script"; done
for file in $(comm -13 "$work/named" "$work/there"); do
    complain "daemon/$file.c has no row in the tables of this script: which test builds it alone?"
done
for file in $(uniq "$work/named" | comm -23 - "$work/there"); do complain "the tables of this script name daemon/$file.c, which does not exist"; done

# Each function against the object that is said to define it; those of no object would never be found in a test.
nm -P --defined-only "$BUILD/daemon.a" | awk 'NF > 2 && $2 ~ /^[TDBR]$/ { print $1 }' | sort -u >"$work/defined"
while IFS='|' read -r file made rest; do
    nm -P --defined-only "$BUILD/daemon/$file.o" | grep -q "^$made T " || complain "daemon/$file.c does not define $made()"
done <<END
$(cat "$work/parts" "$work/inner")
END
for other in $(cut -d'|' -f3 "$work/parts"); do
    grep -qx "$other" "$work/defined" || complain "$other(), which is to be in no test of a row, is nowhere"
done

# The tests.
has() { grep -qx "$1" "$work/symbols"; }
checked=0
while IFS='|' read -r file made others tests; do
    [ -n "$tests" ] || complain "daemon/$file.c has no test in the table of this script"
    for test in $tests; do
        nm --defined-only "$BUILD/tests/${test%/*}/test_${test##*/}" 2>&1 | awk '{ print $NF }' >"$work/symbols"
        has "$made" || complain "$test: $file is not in it ($made), or it is not built"
        for other in $others; do
            ! has "$other" || complain "$test: builds more than $file: $other is in it"
        done
        for within in $(awk -F'|' -v part="$file" '$3 == part { print $2 }' "$work/inner"); do
            has "$within" || complain "$test: $within is not in it, and is said to be tested through $file"
        done
        checked=$((checked + 1))
    done
done <"$work/parts"
while IFS='|' read -r file made part; do
    grep -q "^$part|" "$work/parts" || complain "daemon/$file.c is said to be inside $part, which has no row"
done <"$work/inner"
[ "$checked" -gt 30 ] || complain "only $checked tests were looked at"
[ $bad -eq 0 ] && echo "$checked tests build their part alone, with $(wc -l <"$work/inner") inner ones"
exit $bad
