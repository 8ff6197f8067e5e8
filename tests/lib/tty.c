/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/tty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include "tests/lib/proc.h"
#include "tests/lib/testlib.h"

enum state { PLAIN, ESCAPE, SEQUENCE };
enum { PATIENCE_S = 20, END_S = 6 };

static void clear(struct tty *tty)
{
    for (int row = 0; row < TTY_ROWS_MAX; row++) {
        memset(tty->cells[row], ' ', TTY_COLUMNS_MAX);
        tty->cells[row][TTY_COLUMNS_MAX] = '\0';
    }
}

/* ---- what a terminal does with what it is told ---- */

static void put(struct tty *tty, unsigned char c)
{
    if ((c & 0xc0) == 0x80) /* of a character that has its cell */
        return;
    if (tty->column >= tty->columns || tty->row >= tty->rows)
        tty->beyond = tty->beyond || !tty->behind;
    else
        tty->cells[tty->row][tty->column] = (char)(c < 0x80 ? c : '*');
    tty->column++;
}

static void set_mode(struct tty *tty, bool on)
{
    if (tty->private_mode && tty->args[0] == 1049) {
        tty->saved[0] = on ? tty->row : tty->saved[0];
        tty->saved[1] = on ? tty->column : tty->saved[1];
        tty->row = tty->saved[0];
        tty->column = tty->saved[1];
        tty->alternate = on;
        clear(tty);
    }
    if (tty->private_mode && tty->args[0] == 25)
        tty->cursor_hidden = !on;
}

static void obey(struct tty *tty, char order)
{
    switch (order) {
    case 'H':
        tty->row = tty->args[0] > 0 ? tty->args[0] - 1 : 0;
        tty->column = tty->args_count > 1 && tty->args[1] > 0 ? tty->args[1] - 1 : 0;
        tty->behind = tty->behind && (tty->row > 0 || tty->column > 0);
        break;
    case 'K':
        if (tty->column < tty->columns)
            memset(tty->cells[tty->row] + tty->column, ' ', (size_t)(TTY_COLUMNS_MAX - tty->column));
        break;
    case 'J': clear(tty); break;
    case 'h':
    case 'l': set_mode(tty, order == 'h'); break;
    case 'm': tty->coloured |= tty->args[0] != 0; break;
    default: fail_msg("an order that this terminal does not know: ESC [ %c", order);
    }
}

static void take_in_sequence(struct tty *tty, char c)
{
    if (c == '?') {
        tty->private_mode = true;
    } else if (c >= '0' && c <= '9') {
        int *arg = &tty->args[tty->args_count > 0 ? tty->args_count - 1 : 0];
        *arg = *arg * 10 + (c - '0');
        tty->args_count = tty->args_count > 0 ? tty->args_count : 1;
    } else if (c == ';') {
        tty->args_count = 2;
    } else {
        obey(tty, c);
        tty->state = PLAIN;
    }
}

static void next_row(struct tty *tty)
{
    if (tty->row + 1 < tty->rows) {
        tty->row++;
        return;
    }
    memmove(tty->cells[0], tty->cells[1], (size_t)(tty->rows - 1) * sizeof tty->cells[0]);
    memset(tty->cells[tty->row], ' ', TTY_COLUMNS_MAX);
}

static void take(struct tty *tty, char c)
{
    if (tty->state == SEQUENCE) {
        take_in_sequence(tty, c);
    } else if (tty->state == ESCAPE) {
        assert_int_equal(c, '[');
        tty->state = SEQUENCE;
        tty->args[0] = tty->args[1] = tty->args_count = 0;
        tty->private_mode = false;
    } else if (c == '\033') {
        tty->state = ESCAPE;
    } else if (c == '\n') {
        next_row(tty);
    } else if (c == '\r') {
        tty->column = 0;
    } else {
        put(tty, (unsigned char)c);
    }
}

/* ---- the program ---- */

void tty_start(struct tty *tty, const char *const *argv, int rows, int columns, const char *term)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    *tty = (struct tty){.rows = rows, .columns = columns};
    clear(tty);
    assert_int_equal(openpty(&tty->fd, &tty->slave, NULL, NULL, &size), 0);
    fcntl(tty->fd, F_SETFD, FD_CLOEXEC);
    assert_int_equal(tcgetattr(tty->slave, &tty->before), 0);
    tty->pid = fork();
    assert_true(tty->pid >= 0);
    if (tty->pid > 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("TERM", term, 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    login_tty(tty->slave);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

void tty_look(struct tty *tty, double seconds)
{
    double until_s = env_mono_s() + seconds;
    for (double left_s = seconds; left_s > 0; left_s = until_s - env_mono_s()) {
        struct pollfd item = {.fd = tty->fd, .events = POLLIN};
        char bytes[4096];
        if (poll(&item, 1, (int)(left_s * 1000) + 1) <= 0)
            continue;
        ssize_t got = read(tty->fd, bytes, sizeof bytes);
        if (got <= 0)
            return;
        tty->bytes += (size_t)got;
        for (ssize_t i = 0; i < got; i++)
            take(tty, bytes[i]);
    }
}

const char *tty_text(struct tty *tty)
{
    size_t used = 0;
    for (int row = 0; row < tty->rows; row++) {
        int end = tty->columns;
        while (end > 0 && tty->cells[row][end - 1] == ' ')
            end--;
        memcpy(tty->text + used, tty->cells[row], (size_t)end);
        used += (size_t)end;
        tty->text[used++] = '\n';
    }
    tty->text[used] = '\0';
    return tty->text;
}

void tty_wait(struct tty *tty, const char *part, bool gone)
{
    for (int i = 0; i < 20 * PATIENCE_S; i++) {
        tty_look(tty, 0.05);
        if ((strstr(tty_text(tty), part) != NULL) != gone)
            return;
    }
    fail_msg("\"%s\" %s in:\n%s", part, gone ? "is still" : "does not come", tty_text(tty));
}

void tty_type(struct tty *tty, const char *keys)
{
    assert_int_equal(write(tty->fd, keys, strlen(keys)), strlen(keys));
}

void tty_resize(struct tty *tty, int rows, int columns)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    tty_look(tty, 0.05);
    tty->behind = rows != tty->rows || columns != tty->columns;
    tty->rows = rows;
    tty->columns = columns;
    assert_int_equal(ioctl(tty->fd, TIOCSWINSZ, &size), 0);
}

bool tty_restored(struct tty *tty)
{
    struct termios now;
    assert_int_equal(tcgetattr(tty->slave, &now), 0);
    return now.c_lflag == tty->before.c_lflag && now.c_iflag == tty->before.c_iflag &&
           now.c_oflag == tty->before.c_oflag && memcmp(now.c_cc, tty->before.c_cc, sizeof now.c_cc) == 0;
}

int tty_end(struct tty *tty)
{
    int status = -1;
    for (int i = 0; status < 0 && i < 20 * END_S; i++) {
        tty_look(tty, 0.05);
        status = proc_wait(tty->pid, 0);
    }
    tty_look(tty, 0.05);
    if (status < 0)
        fail_msg("it does not end, and shows:\n%s", tty_text(tty));
    return status;
}

void tty_close(struct tty *tty)
{
    close(tty->fd);
    close(tty->slave);
}
