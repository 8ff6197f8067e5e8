/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_watch.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/env.h"
#include "common/mem.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_print.h"
#include "daemon/ctl/ctl_screen.h"
#include "daemon/ctl/ctl_view.h"

enum { SOCKET_BYTES = 512, WHY_BYTES = 400 };

/* One question, and its answer. */
struct asked {
    char socket[SOCKET_BYTES];
    int pipe_fd; /* where the answer goes, as its address */
    enum err err;
    char why[WHY_BYTES];
    json_t *status, *peers, *fragments;
};

static void ask(struct asked *asked)
{
    asked->err = ctl_ask(asked->socket, "status", &asked->status);
    if (asked->err == ERR_OK)
        asked->err = ctl_ask(asked->socket, "peers", &asked->peers);
    if (asked->err == ERR_OK)
        asked->err = ctl_ask(asked->socket, "fragments", &asked->fragments);
    if (asked->err != ERR_OK)
        snprintf(asked->why, sizeof asked->why, "%s", err_text());
}

static enum err asked_new(const struct ctl_watch *watch, int pipe_fd, struct asked **out)
{
    TRY(mem_new(1, sizeof **out, "a question", out));
    snprintf((*out)->socket, sizeof(*out)->socket, "%s", watch->socket);
    (*out)->pipe_fd = pipe_fd;
    return ERR_OK;
}

static void asked_free(struct asked *asked)
{
    if (asked == NULL)
        return;
    json_decref(asked->status);
    json_decref(asked->peers);
    json_decref(asked->fragments);
    mem_free(asked);
}

/* ---- plain ---- */

static void print_blocks(const struct asked *asked)
{
    struct ctl_text_look look = ctl_text_look();
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL)
        return;
    fputc('\n', stream);
    ctl_print_status(asked->status, &look, stream);
    fputc('\n', stream);
    ctl_print_peers(asked->peers, &look, stream);
    fputc('\n', stream);
    ctl_print_fragments(asked->fragments, &look, stream);
    fclose(stream);
    ctl_text_show(text, bytes);
    free(text);
}

static enum err print_plain(const struct ctl_watch *watch, const struct asked *asked)
{
    if (watch->json) {
        json_t *all =
            json_pack("{s:O, s:O, s:O}", "status", asked->status, "peers", json_object_get(asked->peers, "peers"),
                      "fragments", json_object_get(asked->fragments, "fragments"));
        json_dumpf(all, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
        putchar('\n');
        json_decref(all);
    } else {
        print_blocks(asked);
    }
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

static enum err plain_once(const struct ctl_watch *watch, bool *seen)
{
    struct asked *asked;
    TRY(asked_new(watch, -1, &asked));
    ask(asked);
    enum err err = asked->err;
    if (err == ERR_OK) {
        *seen = true;
        err = print_plain(watch, asked);
    } else if (err == ERR_CLOSED && *seen) { /* it may be restarting */
        fprintf(stderr, "%s\n", asked->why);
        err = ERR_OK;
    }
    asked_free(asked);
    return err;
}

static enum err watch_plain(const struct ctl_watch *watch)
{
    bool seen = false;
    struct timespec pause = {.tv_sec = (time_t)(watch->interval_ms / 1000),
                             .tv_nsec = (long)(watch->interval_ms % 1000) * 1000000};
    for (;;) {
        TRY(plain_once(watch, &seen));
        nanosleep(&pause, NULL);
    }
}

/* ---- on a screen ---- */

struct watcher {
    const struct ctl_watch *watch;
    struct ctl_screen *screen;
    struct ctl_view *view;
    struct ctl_view_look look;
    int answers[2]; /* a pipe */
    bool asking;
    uint64_t next_ms; /* when the daemon is asked next */
};

/* What is asked just now. Whoever ends the screen does not wait for the answer, which is not lost memory then. */
static struct asked *volatile under_way;

/* A daemon that hangs is waited for here, so that keys and signals are not. */
static void *ask_aside(void *user)
{
    struct asked *asked = user;
    ask(asked);
    if (write(asked->pipe_fd, &asked, sizeof asked) != (ssize_t)sizeof asked)
        asked_free(asked); /* nobody looks any more */
    return NULL;
}

static enum err begin_asking(struct watcher *w)
{
    struct asked *asked;
    pthread_t thread;
    TRY(asked_new(w->watch, w->answers[1], &asked));
    if (pthread_create(&thread, NULL, ask_aside, asked) != 0) {
        asked_free(asked);
        return err_set(ERR_NOMEM, "cannot start a thread");
    }
    pthread_detach(thread);
    under_way = asked;
    w->asking = true;
    w->next_ms = env_mono_ms() + w->watch->interval_ms;
    return ERR_OK;
}

static void take_answer(struct watcher *w)
{
    struct asked *asked = NULL;
    if (read(w->answers[0], &asked, sizeof asked) != (ssize_t)sizeof asked)
        return;
    w->asking = false;
    if (asked->err == ERR_OK)
        ctl_view_take(w->view, asked->status, asked->peers, asked->fragments, env_mono_ms());
    else
        ctl_view_fail(w->view, asked->why, env_mono_ms());
    asked_free(asked);
}

static enum err draw(struct watcher *w)
{
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL)
        return err_set(ERR_NOMEM, "out of memory for the screen");
    w->look.rows = ctl_screen_rows(w->screen);
    w->look.columns = ctl_screen_columns(w->screen);
    w->look.utf8 = ctl_screen_utf8(w->screen);
    ctl_view_print(w->view, &w->look, env_mono_ms(), stream);
    fclose(stream);
    enum err err = ctl_screen_draw(w->screen, text);
    free(text);
    return err;
}

/* False: it ends. */
static bool press(struct watcher *w, int key)
{
    const int page = w->look.rows > 4 ? w->look.rows / 2 : 1;
    switch (key) {
    case 'q':
    case 'Q': return false;
    case '?':
    case 'h':
        w->look.help = !w->look.help;
        w->look.first = 0;
        break;
    case ' ': w->next_ms = 0; break;
    case 'k':
    case CTL_SCREEN_UP: w->look.first--; break;
    case 'j':
    case CTL_SCREEN_DOWN: w->look.first++; break;
    case CTL_SCREEN_PAGE_UP: w->look.first -= page; break;
    case CTL_SCREEN_PAGE_DOWN: w->look.first += page; break;
    default: break;
    }
    return true;
}

static enum err watch_until_end(struct watcher *w)
{
    enum { LOOK_MS = 1000 }; /* how long it has been is counted while nobody answers */
    for (;;) {
        int key;
        uint64_t now_ms = env_mono_ms();
        if (!w->asking && now_ms >= w->next_ms)
            TRY(begin_asking(w));
        TRY(draw(w));
        now_ms = env_mono_ms();
        uint64_t ms = w->next_ms > now_ms ? w->next_ms - now_ms : 0;
        ms = w->asking || ms > LOOK_MS ? LOOK_MS : ms;
        switch (ctl_screen_wait(w->screen, w->answers[0], ms, &key)) {
        case CTL_SCREEN_END: return ERR_OK;
        case CTL_SCREEN_READY: take_answer(w); break;
        case CTL_SCREEN_KEY:
            if (!press(w, key))
                return ERR_OK;
            break;
        case CTL_SCREEN_LATE:
        case CTL_SCREEN_RESIZED: break;
        }
    }
}

/* The first answer comes before the screen: who names a wrong island is told so in the terminal. */
static enum err open_watcher(struct watcher *w)
{
    struct asked *asked;
    TRY(ctl_view_new(&w->view));
    TRY(asked_new(w->watch, -1, &asked));
    ask(asked);
    enum err err = asked->err != ERR_OK ? err_set(asked->err, "%s", asked->why) : ERR_OK;
    if (err == ERR_OK)
        ctl_view_take(w->view, asked->status, asked->peers, asked->fragments, env_mono_ms());
    asked_free(asked);
    TRY(err);
    if (pipe2(w->answers, O_CLOEXEC) != 0)
        return err_set_errno(ERR_IO, "cannot open a pipe");
    w->next_ms = env_mono_ms() + w->watch->interval_ms;
    return ctl_screen_open(&w->screen);
}

static enum err watch_screen(const struct ctl_watch *watch)
{
    struct watcher w = {.watch = watch, .look = {.interval_ms = watch->interval_ms}, .answers = {-1, -1}};
    enum err err = open_watcher(&w);
    if (err == ERR_OK)
        err = watch_until_end(&w);
    /* A question that is still open writes into the pipe, or into nothing; the program ends in a moment. */
    ctl_screen_close(w.screen);
    ctl_view_free(w.view);
    return err;
}

enum err ctl_watch(const struct ctl_watch *watch)
{
    if (watch->interval_ms == 0)
        return err_set(ERR_ARG, "--interval 0: one millisecond or more between screens");
    return !watch->json && ctl_screen_possible() ? watch_screen(watch) : watch_plain(watch);
}
