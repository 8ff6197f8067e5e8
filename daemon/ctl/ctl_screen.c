/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_screen.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "common/fsio.h"
#include "common/mem.h"

enum { ROWS_MAX = 500, COLUMNS_MAX = 1000, ROW_BYTES = 6 * COLUMNS_MAX, ROWS_USUAL = 24, COLUMNS_USUAL = 80 };

/* Alternate screen, no cursor, no new line where a row is full; and back. */
static const char enter[] = "\033[?1049h\033[?25l\033[?7l\033[H\033[2J";
static const char leave[] = "\033[0m\033[?7h\033[?25h\033[?1049l";

struct ctl_screen {
    struct termios before;
    bool keys; /* standard input is a terminal, and says what is typed */
    bool utf8, colours;
    bool drawn; /* what stands in `shown` is there */
    sigset_t signals, signals_before;
    int signal_fd;
    int end_signal; /* that ends the program when the terminal is given back; 0: none */
    int rows, columns;
    char *shown; /* [ROWS_MAX][ROW_BYTES]: rows as last drawn */
    char *row;   /* [ROW_BYTES]: the one that is being drawn */
};

bool ctl_screen_possible(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

int ctl_screen_rows(const struct ctl_screen *screen)
{
    return screen->rows;
}

int ctl_screen_columns(const struct ctl_screen *screen)
{
    return screen->columns;
}

bool ctl_screen_utf8(const struct ctl_screen *screen)
{
    return screen->utf8;
}

/* ---- the terminal ---- */

static enum err say(const char *text)
{
    return fsio_write_all(STDOUT_FILENO, text, strlen(text), "the terminal");
}

static void measure(struct ctl_screen *screen)
{
    struct winsize size = {0};
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
    screen->rows = known ? size.ws_row : ROWS_USUAL;
    screen->columns = known ? size.ws_col : COLUMNS_USUAL;
    screen->rows = screen->rows < ROWS_MAX ? screen->rows : ROWS_MAX;
    screen->columns = screen->columns < COLUMNS_MAX ? screen->columns : COLUMNS_MAX;
    screen->drawn = false;
}

static bool set_keys(const struct termios *how)
{
    int result;
    while ((result = tcsetattr(STDIN_FILENO, TCSADRAIN, how)) != 0 && errno == EINTR) {
    }
    return result == 0;
}

/* Keys come at once and are not shown; Ctrl-C and Ctrl-Z stay signals, and Ctrl-S does not hold us up. */
static enum err take_terminal(struct ctl_screen *screen)
{
    struct termios raw = screen->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_iflag &= ~(tcflag_t)IXON;
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (screen->keys && !set_keys(&raw))
        return err_set_errno(ERR_IO, "cannot set the terminal");
    measure(screen);
    return say(enter);
}

/* One that has gone needs nothing back. */
static void give_terminal(const struct ctl_screen *screen)
{
    if (say(leave) == ERR_OK && screen->keys)
        set_keys(&screen->before);
}

static enum err open_signals(struct ctl_screen *screen)
{
    static const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
    sigemptyset(&screen->signals);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        sigaddset(&screen->signals, taken[i]);
    if (sigprocmask(SIG_BLOCK, &screen->signals, &screen->signals_before) != 0)
        return err_set_errno(ERR_IO, "cannot block signals");
    screen->signal_fd = signalfd(-1, &screen->signals, SFD_CLOEXEC | SFD_NONBLOCK);
    return screen->signal_fd >= 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot open a signal descriptor");
}

static enum err open_screen(struct ctl_screen *screen)
{
    const char *no_colour = getenv("NO_COLOR");
    setlocale(LC_CTYPE, "");
    screen->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    screen->colours = no_colour == NULL || no_colour[0] == '\0';
    screen->keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &screen->before) == 0;
    TRY(mem_new(ROWS_MAX, ROW_BYTES, "the screen", &screen->shown));
    TRY(mem_new(1, ROW_BYTES, "the screen", &screen->row));
    TRY(open_signals(screen));
    return take_terminal(screen);
}

static void free_screen(struct ctl_screen *screen)
{
    if (screen->signal_fd >= 0) {
        close(screen->signal_fd);
        sigprocmask(SIG_SETMASK, &screen->signals_before, NULL);
    }
    mem_free(screen->shown);
    mem_free(screen->row);
    mem_free(screen);
}

enum err ctl_screen_open(struct ctl_screen **out)
{
    struct ctl_screen *screen;
    *out = NULL;
    TRY(mem_new(1, sizeof *screen, "the screen", &screen));
    screen->signal_fd = -1;
    enum err err = open_screen(screen);
    if (err != ERR_OK)
        free_screen(screen);
    else
        *out = screen;
    return err;
}

void ctl_screen_close(struct ctl_screen *screen)
{
    if (screen == NULL)
        return;
    int end_signal = screen->end_signal;
    give_terminal(screen);
    free_screen(screen);
    if (end_signal == 0)
        return;
    signal(end_signal, SIG_DFL); /* a shell's background job is started with Ctrl-C ignored */
    raise(end_signal);
}

/* ---- what comes in ---- */

/* Stands still as every program does, with the terminal as it was; goes on when it is let. */
static enum ctl_screen_event suspend(struct ctl_screen *screen)
{
    static const struct timespec at_once;
    sigset_t stop;
    give_terminal(screen);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* here */
    sigprocmask(SIG_BLOCK, &stop, NULL);
    sigemptyset(&stop);
    sigaddset(&stop, SIGCONT);
    sigtimedwait(&stop, NULL, &at_once); /* which let us go on, and means nothing more */
    return take_terminal(screen) == ERR_OK ? CTL_SCREEN_RESIZED : CTL_SCREEN_END;
}

static enum ctl_screen_event take_signal(struct ctl_screen *screen)
{
    struct signalfd_siginfo info;
    if (read(screen->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
        return CTL_SCREEN_LATE;
    switch (info.ssi_signo) {
    case SIGWINCH: measure(screen); return CTL_SCREEN_RESIZED;
    case SIGTSTP: return suspend(screen);
    case SIGCONT: /* somebody had stopped us; who knows how the terminal is */
        give_terminal(screen);
        return take_terminal(screen) == ERR_OK ? CTL_SCREEN_RESIZED : CTL_SCREEN_END;
    default: screen->end_signal = (int)info.ssi_signo; return CTL_SCREEN_END;
    }
}

/* Keys that are several bytes come at once. */
static enum ctl_screen_event take_key(int *key)
{
    static const struct {
        const char *bytes;
        int key;
    } keys[] = {{"\033[A", CTL_SCREEN_UP},   {"\033OA", CTL_SCREEN_UP},       {"\033[B", CTL_SCREEN_DOWN},
                {"\033OB", CTL_SCREEN_DOWN}, {"\033[5~", CTL_SCREEN_PAGE_UP}, {"\033[6~", CTL_SCREEN_PAGE_DOWN}};
    char bytes[16];
    ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes - 1);
    if (got < 0 && errno == EINTR)
        return CTL_SCREEN_LATE;
    if (got <= 0)
        return CTL_SCREEN_END;
    bytes[got] = '\0';
    *key = (unsigned char)bytes[0];
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(bytes, keys[i].bytes) == 0)
            *key = keys[i].key;
    return CTL_SCREEN_KEY;
}

enum ctl_screen_event ctl_screen_wait(struct ctl_screen *screen, int fd, uint64_t ms, int *key)
{
    struct pollfd items[] = {{.fd = screen->signal_fd, .events = POLLIN},
                             {.fd = screen->keys ? STDIN_FILENO : -1, .events = POLLIN},
                             {.fd = fd, .events = POLLIN}};
    *key = 0;
    if (poll(items, 3, ms < 60000 ? (int)ms : 60000) <= 0)
        return CTL_SCREEN_LATE;
    if (items[0].revents != 0)
        return take_signal(screen);
    if (items[1].revents != 0)
        return take_key(key);
    return CTL_SCREEN_READY;
}

/* ---- drawing ---- */

/* The character at `text`: its bytes, and its columns; -1: it cannot be shown. */
static int next_char(const char *text, size_t bytes, bool utf8, size_t *char_bytes)
{
    wchar_t wide;
    mbstate_t state = {0};
    *char_bytes = 1;
    if ((unsigned char)text[0] < 0x80)
        return text[0] < ' ' || text[0] == 0x7f ? -1 : 1;
    if (!utf8)
        return -1;
    size_t got = mbrtowc(&wide, text, bytes, &state);
    if (got == 0 || got > bytes)
        return -1;
    *char_bytes = got;
    return wcwidth(wide);
}

/* Without a piece of a character where there is no room. */
static void append(char *out, size_t out_bytes, size_t *used, const char *text, size_t bytes)
{
    if (*used + bytes >= out_bytes)
        return;
    memcpy(out + *used, text, bytes);
    *used += bytes;
    out[*used] = '\0';
}

int ctl_screen_clip(const char *line, size_t line_bytes, int columns, bool utf8, bool colours, char *out,
                    size_t out_bytes)
{
    size_t used = 0;
    int column = 0;
    out[0] = '\0';
    for (size_t at = 0, bytes; at < line_bytes; at += bytes) {
        char mark = line[at];
        bytes = 1;
        if (mark > 0 && mark <= CTL_TEXT_PLAIN[0]) {
            if (colours)
                append(out, out_bytes, &used, ctl_text_escape(mark), strlen(ctl_text_escape(mark)));
            continue;
        }
        int width = next_char(line + at, line_bytes - at, utf8, &bytes);
        if (column + (width < 0 ? 1 : width) > columns)
            break;
        column += width < 0 ? 1 : width;
        append(out, out_bytes, &used, width < 0 ? "?" : line + at, width < 0 ? 1 : bytes);
    }
    if (colours)
        append(out, out_bytes, &used, ctl_text_escape(CTL_TEXT_PLAIN[0]), strlen(ctl_text_escape(CTL_TEXT_PLAIN[0])));
    return column;
}

enum err ctl_screen_draw(struct ctl_screen *screen, const char *text)
{
    char *bytes = NULL;
    size_t count = 0;
    FILE *stream = open_memstream(&bytes, &count);
    if (stream == NULL)
        return err_set(ERR_NOMEM, "out of memory for the screen");
    for (int row = 0; row < screen->rows; row++) {
        char *shown = screen->shown + (size_t)row * ROW_BYTES;
        size_t line = strcspn(text, "\n");
        int columns =
            ctl_screen_clip(text, line, screen->columns, screen->utf8, screen->colours, screen->row, ROW_BYTES);
        text += line + (text[line] == '\n');
        if (screen->drawn && strcmp(shown, screen->row) == 0)
            continue;
        /* Behind a full row there is nothing to clear, and the cursor stands on its last column. */
        fprintf(stream, "\033[%d;1H%s%s", row + 1, screen->row, columns < screen->columns ? "\033[K" : "");
        strcpy(shown, screen->row);
    }
    fclose(stream);
    enum err err = fsio_write_all(STDOUT_FILENO, bytes, count, "the terminal");
    free(bytes);
    screen->drawn = true;
    return err;
}
