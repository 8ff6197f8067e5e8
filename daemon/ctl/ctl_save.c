/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_save.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/ctl/ctl_client.h"

enum { LOOK_MS = 100 };

enum err ctl_save_wait(const char *socket, char saved[CTL_SAVE_PATH_BYTES])
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    for (;;) {
        json_t *status;
        TRY(ctl_ask(socket, "status", &status));
        bool failed = strcmp(ctl_text(status, "saving"), "failed") == 0;
        bool done = strcmp(ctl_text(status, "saving"), "done") == 0;
        snprintf(saved, CTL_SAVE_PATH_BYTES, "%s", ctl_text(status, "saved"));
        json_decref(status);
        if (failed)
            return err_set(ERR_IO, "saving %s", saved);
        if (done)
            return ERR_OK;
        nanosleep(&pause, NULL);
    }
}
