/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/trainerstage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/state/results.h"
#include "daemon/trainer/attachment.h"
#include "daemon/trainer/process.h"
#include "tests/lib/shares.h"
#include "tests/lib/testlib.h"

enum { START_MS = 100000 };

static void *values_of(const struct stage *stage, uint32_t f, size_t *bytes)
{
    *bytes = (size_t)stage->run.plan->plan->fragments[f].values_count * sizeof(float);
    return replica_anchor(stage->run.replica, f);
}

/* ---- set-up ---- */

struct jobs *stage_jobs;

static void tell_plan(struct stage *stage)
{
    struct trainer_plan plan = {.plan = stage->run.plan, .replica = stage->run.replica, .sync = stage->run.sync};
    trainer_plan_known(stage->trainer, &plan);
}

static void make_trainer(struct stage *stage)
{
    struct trainer_conf conf = {.conf = &stage->conf,
                                .spec = &stage->run.spec,
                                .view = &stage->run.view,
                                .events = stage->events,
                                .jobs = stage_jobs,
                                .start_ms = stage->start_ms};
    assert_ok(trainer_new(&conf, &stage->trainer));
}

void stage_open(struct stage *stage, uint32_t islands, const char *lines, const char *program)
{
    stage_open_in(stage, testlib_folder("stage"), islands, lines, program);
}

void stage_open_in(struct stage *stage, const char *folder, uint32_t islands, const char *lines, const char *program)
{
    *stage = (struct stage){
        .start_ms = START_MS, .now_ms = START_MS, .applies = true, .hashes = true, .socket = -1, .memfd = -1};
    stage->conf = (struct dconf){.name = "bob",
                                 .state_folder = (char *)(uintptr_t)folder,
                                 .run_folder = (char *)(uintptr_t)folder,
                                 .run_path = "run.ini",
                                 .data = "corpus",
                                 .device = "cpu",
                                 .worker_folder = "",
                                 .devices = "",
                                 .stream = "",
                                 .worker_group = "",
                                 .worker_program = (char *)(uintptr_t)program};
    trainerrun_open(&stage->run, folder, islands, lines);
    assert_ok(events_new(&stage->events));
    assert_ok(events_reserve(stage->events, TRAINERRUN_FRAGMENTS, islands));
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++) {
        size_t bytes;
        values_of(stage, f, &bytes);
        stage->contribution[f] = malloc(bytes);
    }
    make_trainer(stage);
    tell_plan(stage);
}

void stage_close(struct stage *stage)
{
    stage_hang_up(stage, false);
    trainer_free(stage->trainer);
    events_free(stage->events);
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        free(stage->contribution[f]);
    trainerrun_close(&stage->run);
}

void stage_restart(struct stage *stage)
{
    struct wire_standing own[TRAINERRUN_FRAGMENTS];
    struct event lost;
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        own[f] = sync_own(stage->run.sync, f);
    trainer_free(stage->trainer);
    while (event_take(stage->events, &lost))
        continue;
    trainerrun_new_sync(&stage->run);
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        if (own[f].hash_known)
            trainerrun_restore(&stage->run, f, own[f].version);
    stage->start_ms = stage->now_ms;
    stage->waiting_count = stage->held = 0;
    make_trainer(stage);
    tell_plan(stage);
    stage_forget(stage);
}

void stage_forget_plan(struct stage *stage)
{
    trainer_free(stage->trainer);
    make_trainer(stage);
}

/* ---- what was posted ---- */

static void note(struct stage *stage, const struct event *event)
{
    static const char *const of_sync[SYNC_FRAGMENT_EVENTS] = {
        [SYNC_EV_TRAINER_DOWN] = "down", [SYNC_EV_SNAPSHOT] = "snapshot",    [SYNC_EV_MIXED] = "mixed",
        [SYNC_EV_SETTLED] = "settled",   [SYNC_EV_WITHDRAWN] = "taken-back",
    };
    char text[64] = "";
    bool sync = event->type == EVENT_SYNC;
    if (sync && event->sync.type == SYNC_EV_TRAINER_UP)
        snprintf(text, sizeof text, "up %u@%u", event->fragment, (unsigned)event->sync.version);
    else if (sync && event->sync.type < SYNC_FRAGMENT_EVENTS && of_sync[event->sync.type] != NULL)
        snprintf(text, sizeof text, "%s %u", of_sync[event->sync.type], event->fragment);
    else if (event->type == EVENT_START)
        snprintf(text, sizeof text, "%s %u", event->start.initial ? "initial" : "start", event->fragment);
    else if (event->type == EVENT_FILL)
        snprintf(text, sizeof text, "fill %u", event->fragment);
    else if (event->type == EVENT_ANNOUNCE || event->type == EVENT_REGISTERED || event->type == EVENT_READY ||
             event->type == EVENT_FINISHED || event->type == EVENT_FATAL)
        snprintf(text, sizeof text, "%s", event_name(event->type));
    if (text[0] == '\0')
        return; /* our own */
    size_t at = strlen(stage->said);
    assert_true(at + strlen(text) + 3 < sizeof stage->said);
    snprintf(stage->said + at, sizeof stage->said - at, "%s%s", at > 0 ? ", " : "", text);
}

void stage_assert_posted(struct stage *stage, const char *want, const char *file, int line)
{
    if (strcmp(stage->said, want) != 0)
        fail_msg("%s:%d: posted \"%s\", expected \"%s\"", file, line, stage->said, want);
    stage_forget(stage);
}

void stage_forget(struct stage *stage)
{
    stage->said[0] = '\0';
}

/* ---- the core's orders ---- */

static void post(struct stage *stage, enum event_type type, uint32_t f)
{
    event_post(stage->events, &(struct event){.type = type, .fragment = f});
}

static void order_encode(struct stage *stage, uint32_t f)
{
    size_t bytes;
    values_of(stage, f, &bytes);
    if (!trainer_snapshot(stage->trainer, f, &stage->snapshot[f])) {
        event_post_sync(stage->events, &(struct sync_event){.type = SYNC_EV_REFUSED, .fragment = f});
        return;
    }
    memcpy(stage->contribution[f], stage->snapshot[f].theta, bytes);
    post(stage, EVENT_ENCODED, f);
}

/* With other islands an anchor is a number that says which it is; alone it is the contribution. */
static void order_apply(struct stage *stage, uint32_t f, uint64_t version)
{
    size_t bytes;
    float *anchor = values_of(stage, f, &bytes);
    struct event event = {.type = EVENT_COUNTED, .fragment = f, .version = version};
    if (!stage->applies)
        return;
    for (size_t i = 0; i < bytes / sizeof *anchor; i++)
        anchor[i] = (float)(1000 * version + f);
    if (stage->run.view.count == 1) {
        memcpy(anchor, stage->contribution[f], bytes);
        stage->counted_tokens[f] += stage->snapshot[f].tokens - stage->snapshot[f].counted_tokens[0];
    }
    trainerrun_commit(&stage->run, f, version);
    event.shards =
        dedup_since(replica_counted(stage->run.replica, f), stage->run.ids[stage->run.view.self], version - 1);
    event_post(stage->events, &event);
    event_post_sync(stage->events, &(struct sync_event){.type = SYNC_EV_MADE, .fragment = f});
    if (!stage->hashes)
        return;
    event_post_sync(stage->events,
                    &(struct sync_event){.type = SYNC_EV_APPLIED, .fragment = f, .hash = trainerrun_hash(f, version)});
}

static void order_store(struct stage *stage, uint32_t f, uint64_t version)
{
    struct bitset ourselves = {{0}};
    uint32_t self = stage->run.view.self;
    bitset_add(&ourselves, self);
    struct digest digest = trainerrun_result(&stage->run, f, version, self, &ourselves);
    event_post_sync(stage->events, &(struct sync_event){.type = SYNC_EV_STORED,
                                                        .fragment = f,
                                                        .version = version,
                                                        .owner = stage->run.ids[self],
                                                        .hash = digest,
                                                        .member = self});
}

static void carry_out(struct stage *stage, const struct sync_action *action)
{
    uint32_t f = action->fragment;
    switch (action->type) {
    case SYNC_DO_ENCODE: order_encode(stage, f); break;
    case SYNC_DO_RELEASE: trainer_release(stage->trainer, f); break;
    case SYNC_DO_PUBLISH: trainer_publish(stage->trainer, f); break;
    case SYNC_DO_WITHDRAW: trainer_withdraw(stage->trainer, f); break;
    case SYNC_DO_APPLY: order_apply(stage, f, action->version); break;
    case SYNC_DO_REDUCE:
        event_post_sync(stage->events, &(struct sync_event){.type = SYNC_EV_REDUCED, .fragment = f});
        break;
    case SYNC_DO_STORE: order_store(stage, f, action->version); break;
    case SYNC_DO_REPORT: assert_int_not_equal(action->report, SYNC_REPORT_ILLEGAL); break;
    case SYNC_DO_SEND:
    case SYNC_DO_FETCH:
    case SYNC_DO_REPLAY:
    case SYNC_DO_REPAIR:
    case SYNC_DO_RETIRE:
    case SYNC_DO_ANNOUNCE: break;
    }
}

static void step(struct stage *stage, const struct sync_event *event)
{
    struct sync_action action;
    sync_step(stage->run.sync, event, stage->now_ms);
    while (sync_action(stage->run.sync, &action))
        carry_out(stage, &action);
}

/* ---- events ---- */

static enum err judge_tensors(const struct stage *stage)
{
    uint32_t count;
    struct model_plan *plan;
    const struct ipc_tensor *tensors = attachment_tensors(stage->trainer->attachment, &count);
    TRY(model_plan_new(&stage->run.spec, tensors, count, &plan));
    bool same = digest_equal(&plan->id, &stage->run.plan->id);
    model_plan_free(plan);
    return same ? ERR_OK : err_set(ERR_CONF, "its tensors are not those of the run");
}

static void judge(struct stage *stage)
{
    enum err err = stage->refusal != NULL ? err_set(ERR_CONF, "%s", stage->refusal) : judge_tensors(stage);
    if (err != ERR_OK) {
        attachment_refuse(stage->trainer->attachment, err_text());
        return;
    }
    tell_plan(stage);
    attachment_accept(stage->trainer->attachment, "");
}

static void start(struct stage *stage, const struct event *event)
{
    size_t bytes;
    float *anchor = values_of(stage, event->fragment, &bytes);
    float *base = trainer_base(stage->trainer, event->fragment);
    struct event answer = *event;
    if (event->start.initial)
        memcpy(anchor, base, bytes);
    else
        memcpy(base, anchor, bytes);
    answer.type = EVENT_STARTED;
    event_post(stage->events, &answer);
}

static void started(struct stage *stage, const struct event *event)
{
    uint32_t f = event->fragment;
    trainer_started(stage->trainer, f, event->start.initial);
    if (event->start.initial && !sync_known(stage->run.sync, f))
        trainerrun_restore(&stage->run, f, 0);
}

static void fill(struct stage *stage, uint32_t f)
{
    size_t bytes;
    const float *anchor = values_of(stage, f, &bytes);
    memcpy(trainer_area(stage->trainer, f), anchor, bytes);
    post(stage, EVENT_PUBLISHED, f);
}

static void encoded(struct stage *stage, const struct event *event)
{
    trainer_encoded(stage->trainer, event->fragment, event->err);
    step(stage, &(struct sync_event){.type = event->err == ERR_OK ? SYNC_EV_ENCODED : SYNC_EV_REFUSED,
                                     .fragment = event->fragment});
}

static void handle(struct stage *stage, const struct event *event)
{
    switch (event->type) {
    case EVENT_SYNC: step(stage, &event->sync); break;
    case EVENT_REGISTERED: judge(stage); break;
    case EVENT_START: start(stage, event); break;
    case EVENT_STARTED: started(stage, event); break;
    case EVENT_READY: attachment_go(stage->trainer->attachment, stage->go_step); break;
    case EVENT_FILL: fill(stage, event->fragment); break;
    case EVENT_PUBLISHED: trainer_published(stage->trainer, event->fragment); break;
    case EVENT_ENCODED: encoded(stage, event); break;
    case EVENT_COUNTED:
        trainer_counted(stage->trainer, event->fragment, event->version, event->shards, event->share);
        break;
    case EVENT_FINISHED: process_finished(stage->trainer->process); break;
    default: break;
    }
}

static void drain(struct stage *stage)
{
    struct event event;
    while (event_take(stage->events, &event)) {
        note(stage, &event);
        if ((stage->held >> event.type & 1) == 0) {
            handle(stage, &event);
        } else {
            assert_true(stage->waiting_count < STAGE_HELD_MAX);
            stage->waiting[stage->waiting_count++] = event;
        }
    }
}

void stage_turn(struct stage *stage)
{
    stage->run.now_ms = stage->now_ms;
    drain(stage);
    while (trainer_take(stage->trainer, stage->now_ms))
        drain(stage);
}

void stage_tick(struct stage *stage, uint64_t ms)
{
    stage->now_ms += ms;
    stage_turn(stage);
    trainer_tick(stage->trainer, stage->now_ms, stage->peers_heard, &stage->end);
    stage_turn(stage);
}

void stage_answer(struct stage *stage)
{
    stage->held = 0;
    for (size_t i = 0; i < stage->waiting_count; i++) {
        struct event event = stage->waiting[i];
        handle(stage, &event);
    }
    stage->waiting_count = 0;
    stage_turn(stage);
}

void stage_step(struct stage *stage, const struct sync_event *event)
{
    step(stage, event);
    stage_turn(stage);
}

uint32_t stage_mode(const struct stage *stage, uint32_t f, uint32_t member)
{
    const struct ipc_fragment *fragment = ipc_fragment(stage->shm, f);
    struct plan_shard run = shares_run(&stage->run.parts, f, member);
    for (uint32_t r = 0; r < fragment->ranges_count; r++)
        if (fragment->ranges[r].begin <= run.begin && run.end <= fragment->ranges[r].end)
            return fragment->ranges[r].mode;
    fail_msg("member %u's values are not in one range", member);
    return 0;
}

void stage_results(struct stage *stage, uint32_t f, const struct bitset *shards)
{
    struct bitset all = shares_owners(&stage->run.parts, f);
    uint64_t version = sync_own(stage->run.sync, f).version + 1;
    for (uint32_t s = 0; s < stage->run.view.count; s++) {
        struct bitset members = bitset_first(1);
        if (!bitset_has(&all, s))
            continue;
        if (bitset_has(shards, s))
            bitset_add(&members, stage->run.view.self);
        struct digest digest = trainerrun_result(&stage->run, f, version, s, &members);
        stage_step(stage, &(struct sync_event){.type = SYNC_EV_STORED,
                                               .fragment = f,
                                               .version = version,
                                               .owner = stage->run.ids[s],
                                               .hash = digest,
                                               .member = s});
    }
}

unsigned stage_memories(void)
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        count += strstr(line, "memfd:diloco") != NULL;
    fclose(file);
    return count;
}

/* ---- the trainer ---- */

int stage_dial(const struct stage *stage)
{
    struct sockaddr_un address;
    char path[256];
    snprintf(path, sizeof path, "%s/worker.sock", stage->conf.run_folder);
    assert_ok(ipc_address(path, &address));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

void stage_connect(struct stage *stage)
{
    assert_int_equal(stage->socket, -1);
    stage->socket = stage_dial(stage);
}

void stage_send(struct stage *stage, const struct ipc_message *message, int fd)
{
    assert_ok(ipc_send(stage->socket, message, fd));
    stage_turn(stage);
}

void stage_say(struct stage *stage, enum ipc_type type, uint32_t f)
{
    stage_send(stage, &(struct ipc_message){.type = type, .fragment = f}, -1);
}

void stage_hello(struct stage *stage, uint64_t session, uint64_t step_now, uint64_t tokens, int fd)
{
    struct ipc_message message = {.type = IPC_HELLO};
    message.hello = (struct ipc_hello){.version = IPC_VERSION,
                                       .pid = (uint32_t)getpid(),
                                       .session = session,
                                       .step = step_now,
                                       .tokens = tokens,
                                       .machine = stage->machine};
    snprintf(message.hello.trainer, sizeof message.hello.trainer, "test");
    stage_send(stage, &message, fd);
}

static void say_tensors(struct stage *stage)
{
    for (uint32_t i = 0; i < TRAINERRUN_TENSORS; i++) {
        struct ipc_message message = {.type = IPC_TENSOR};
        message.tensor = trainerrun_tensors[i];
        stage_send(stage, &message, -1);
    }
    stage_say(stage, IPC_REGISTERED, 0);
}

void stage_register(struct stage *stage)
{
    stage_hello(stage, 0, 0, 0, -1);
    say_tensors(stage);
}

static void drop_memory(struct stage *stage)
{
    if (stage->memfd < 0)
        return;
    munmap(stage->shm, (size_t)lseek(stage->memfd, 0, SEEK_END));
    close(stage->memfd);
    stage->memfd = -1;
    stage->shm = NULL;
}

struct ipc_message stage_hear(struct stage *stage, enum ipc_type type)
{
    struct ipc_message message;
    int fd;
    enum err err = ipc_recv(stage->socket, &message, &fd);
    if (err != ERR_OK)
        fail_msg("%s expected: %s", ipc_type_name(type), err_text());
    if (message.type != type)
        fail_msg("heard %s, expected %s", ipc_type_name(message.type), ipc_type_name(type));
    assert_int_equal(fd >= 0, type == IPC_WELCOME && !message.welcome.resumed);
    if (fd < 0)
        return message;
    drop_memory(stage);
    stage->memfd = fd;
    stage->session = message.welcome.session;
    stage->shm = trainerrun_map(fd);
    return message;
}

void stage_hear_nothing(const struct stage *stage)
{
    struct ipc_message message;
    int fd;
    enum err err = ipc_recv(stage->socket, &message, &fd);
    if (err == ERR_OK)
        fail_msg("heard %s, expected nothing", ipc_type_name(message.type));
    assert_int_equal(err, ERR_AGAIN);
}

void stage_hear_refusal(struct stage *stage, const char *part)
{
    struct ipc_message message = stage_hear(stage, IPC_REFUSED);
    int fd;
    if (strstr(message.text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", message.text, part);
    assert_int_equal(ipc_recv(stage->socket, &message, &fd), ERR_CLOSED);
    stage_hang_up(stage, true);
}

void stage_train(struct stage *stage, bool initial)
{
    stage->peers_heard = true;
    stage_connect(stage);
    stage_register(stage);
    stage_tick(stage, 1);
    assert_int_equal(stage_hear(stage, IPC_WELCOME).welcome.need_initial, initial);
    if (initial)
        stage_say(stage, IPC_INITIAL, 0);
    stage_tick(stage, 1); /* fragments are brought */
    stage_tick(stage, 1); /* and all are there */
    stage_hear(stage, IPC_GO);
    stage_hear_nothing(stage);
    stage_forget(stage);
}

void stage_attach_again(struct stage *stage, uint64_t step_now, uint64_t tokens)
{
    stage_hang_up(stage, true);
    stage_turn(stage);
    stage_connect(stage);
    stage_hello(stage, stage->session, step_now, tokens, stage->memfd);
    say_tensors(stage);
}

void stage_hang_up(struct stage *stage, bool keep)
{
    if (stage->socket >= 0)
        close(stage->socket);
    stage->socket = -1;
    if (!keep)
        drop_memory(stage);
}

struct ipc_fragment *stage_fragment(const struct stage *stage, uint32_t f)
{
    return ipc_fragment(stage->shm, f);
}

uint32_t stage_word(const struct stage *stage, uint32_t f)
{
    return ipc_word(stage_fragment(stage, f));
}

void stage_put_word(const struct stage *stage, uint32_t f, uint32_t word)
{
    atomic_store(&stage_fragment(stage, f)->word, word);
}

void stage_take_snapshot(struct stage *stage, uint32_t f, uint64_t step_now, uint64_t tokens, float value)
{
    struct ipc_fragment *fragment = stage_fragment(stage, f);
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_FREE, IPC_COPYING));
    for (uint64_t i = 0; i < fragment->values_count; i++)
        ipc_area(stage->shm, fragment)[i] = value;
    fragment->snapshot_step = step_now;
    fragment->snapshot_tokens = tokens;
    fragment->mix_step = step_now + stage->shm->overlap;
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_COPYING, IPC_SNAPSHOT));
    stage_say(stage, IPC_TAKEN, f);
}

void stage_mix(struct stage *stage, uint32_t f)
{
    struct ipc_fragment *fragment = stage_fragment(stage, f);
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_ANCHOR, IPC_MIXING));
    fragment->base ^= 1;
    fragment->base_version = fragment->anchor_version;
    assert_true(ipc_move(fragment, IPC_TRAINER, IPC_MIXING, IPC_FREE));
    stage_say(stage, IPC_MIXED, f);
}
