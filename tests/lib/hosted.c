/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/hosted.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/runspec.h"
#include "daemon/ctl/ctl_client.h"
#include "tests/lib/patience.h"
#include "tests/lib/proc.h"
#include "tests/lib/testlib.h"

enum { PATIENCE_MS = 20000, LOOK_MS = 10 };

struct hosted hosted;

static const char exact[] = "interval = 5\noverlap = 0\nmix = 0\nlate = wait\noffsets = zero\n"
                            "[outer]\noptimizer = average\n";

const char *hosted_conf(uint32_t self)
{
    const char *sync = testlib_file(hosted.run->folder, "run.ini",
                                    "[run]\nname = isle\nsteps = %d\n[sync]\ncodec = fp32\nerror_feedback = no\n"
                                    "layers_per_fragment = 1\nzstd_level = 0\n%s",
                                    HOSTED_STEPS, exact);
    runspec_deinit(&hosted.run->spec);
    assert_ok(runspec_load(sync, NULL, 0, &hosted.run->spec));
    return isle_conf(hosted.run, self);
}

enum err hosted_open(uint32_t self)
{
    assert_ok(dconf_load(hosted_conf(self), hosted.overrides, hosted.overrides_count, &hosted.conf));
    enum err err = engine_new(&hosted.conf, &hosted.engine);
    assert_true((hosted.engine == NULL) == (err != ERR_OK));
    snprintf(hosted.control, sizeof hosted.control, "%s/control.sock", hosted.conf.run_folder);
    snprintf(hosted.worker, sizeof hosted.worker, "%s/worker.sock", hosted.conf.run_folder);
    return err;
}

void hosted_close(void)
{
    engine_free(hosted.engine);
    hosted.engine = NULL;
    conf_deinit(&dconf_schema, &hosted.conf);
}

static void *run_engine(void *unused)
{
    hosted.tid = gettid();
    hosted.err = engine_run(hosted.engine, hosted.signals[0]);
    snprintf(hosted.text, sizeof hosted.text, "%s", err_text());
    return unused;
}

/* Fragments, some of which are not read yet; 0: all are. */
static long long left_to_read(void)
{
    json_t *status = hosted_ask("status");
    long long left = (long long)ctl_integer(json_object_get(status, "recovering"), "fragments");
    json_decref(status);
    return left;
}

void hosted_start(uint32_t self)
{
    assert_ok(hosted_open(self));
    assert_int_equal(pipe2(hosted.signals, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(pthread_create(&hosted.thread, NULL, run_engine, NULL), 0);
    hosted.running = true;
}

void hosted_restart(uint32_t self)
{
    hosted_start(self);
    isle_wait(left_to_read() == 0);
}

void hosted_signal(int number)
{
    struct signalfd_siginfo info = {.ssi_signo = (uint32_t)number};
    assert_int_equal(write(hosted.signals[1], &info, sizeof info), sizeof info);
}

enum err hosted_end(void)
{
    struct patience patience = {0};
    while (pthread_tryjoin_np(hosted.thread, NULL) != 0) {
        if (patience_over(&patience, PATIENCE_MS)) {
            print_error("the engine does not end\n");
            _exit(1); /* nothing else can be tested beside it */
        }
        proc_sleep_ms(LOOK_MS);
    }
    hosted.running = false;
    close(hosted.signals[0]);
    close(hosted.signals[1]);
    hosted_close();
    return hosted.err;
}

void hosted_stop(void)
{
    hosted_signal(SIGTERM);
    enum err err = hosted_end();
    if (err != ERR_OK)
        fail_msg("it ended with: %s", hosted.text);
}

/* ---- what it says of itself ---- */

json_t *hosted_ask(const char *request)
{
    json_t *answer;
    assert_ok(ctl_ask(hosted.control, request, &answer));
    return answer;
}

long long hosted_number(const char *key)
{
    json_t *status = hosted_ask("status");
    long long value = (long long)ctl_integer(status, key);
    json_decref(status);
    return value;
}

bool hosted_says(const char *part, const char *key, const char *word)
{
    json_t *status = hosted_ask("status");
    bool is = strcmp(ctl_text(part != NULL ? json_object_get(status, part) : status, key), word) == 0;
    json_decref(status);
    return is;
}

int hosted_begin(void **state)
{
    (void)state;
    hosted.overrides_count = 0;
    hosted.run = isle_run_new("engine", 1, NULL);
    adder_new();
    return 0;
}

int hosted_finish(void **state)
{
    (void)state;
    if (hosted.running) { /* the test failed */
        hosted_signal(SIGTERM);
        (void)!hosted_end();
    }
    adder_free();
    isle_run_free(hosted.run);
    return 0;
}
