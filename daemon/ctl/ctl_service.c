/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_service.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/program.h"

const char ctl_service_mark[] = "/run/systemd/system";

enum err ctl_service_check(const char *mark)
{
    if (access(mark, F_OK) == 0)
        return ERR_OK;
    return err_set(ERR_STATE, "systemd does not run on this machine, so there is no service to speak of; name an "
                              "island's folder with --home DIR, or run dilocod in the foreground");
}

/* systemd's word for how the service is. */
static enum err ask_state(char *state, size_t state_bytes)
{
    static const char *const argv[] = {"systemctl", "is-active", "dilocod", NULL};
    int status;
    TRY(program_run(argv, state, state_bytes, false, &status));
    state[strcspn(state, "\n")] = '\0';
    return ERR_OK;
}

static enum err order(const char *const *argv)
{
    int status;
    TRY(program_run(argv, NULL, 0, false, &status));
    if (status != 0)
        return err_set(ERR_STATE,
                       "systemctl %s dilocod failed; dilococtl logs shows why, and sudo make install makes the service "
                       "if there is none",
                       argv[1]);
    return ERR_OK;
}

enum err ctl_service_start(const char *mark, bool enable)
{
    static const char *const start[] = {"systemctl", "start", "dilocod", NULL};
    static const char *const always[] = {"systemctl", "enable", "--now", "dilocod", NULL};
    char state[64];
    TRY(ctl_service_check(mark));
    TRY(ask_state(state, sizeof state));
    bool runs = strcmp(state, "active") == 0;
    if (!runs || enable)
        TRY(order(enable ? always : start));
    puts(runs ? "dilocod runs already" : "dilocod runs");
    return ERR_OK;
}

enum err ctl_service_stop(const char *mark)
{
    static const char *const stop[] = {"systemctl", "stop", "dilocod", NULL};
    char state[64];
    TRY(ctl_service_check(mark));
    TRY(ask_state(state, sizeof state));
    bool runs = strcmp(state, "inactive") != 0 && strcmp(state, "failed") != 0;
    if (runs)
        TRY(order(stop));
    puts(runs ? "dilocod has stopped" : "dilocod does not run");
    return ERR_OK;
}

enum err ctl_service_logs(const char *mark, bool follow, bool trainer)
{
    const char *argv[8] = {"journalctl", "-u", "dilocod"};
    size_t count = 3;
    if (trainer) {
        argv[count++] = "-g";
        argv[count++] = "^trainer: ";
    }
    if (follow)
        argv[count++] = "-f";
    int status;
    TRY(ctl_service_check(mark));
    TRY(program_run(argv, NULL, 0, false, &status));
    return status == 0 ? ERR_OK : err_set(ERR_STATE, "journalctl -u dilocod failed; it may need sudo");
}
