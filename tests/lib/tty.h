/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tty: a program on a terminal that the test plays: what it shows, as a terminal would show it, and what is typed.
 * A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_TTY_H
#define TESTS_LIB_TTY_H

#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

enum { TTY_ROWS_MAX = 100, TTY_COLUMNS_MAX = 300 };

struct tty {
    int fd, pid;
    int slave; /* the program's side, so that it can be looked at when the program has gone */
    int rows, columns;
    bool alternate;     /* the alternate screen is shown */
    bool cursor_hidden; /* and no cursor */
    bool beyond;        /* something was written where there is no room */
    bool behind;   /* it has not begun a screen anew since its size changed: what it writes may be for the old one */
    bool coloured; /* a colour or a look was asked for */
    size_t bytes;  /* that came so far */
    struct termios before;
    /* private */
    int row, column, saved[2], state, args[2], args_count;
    bool private_mode;
    char cells[TTY_ROWS_MAX][TTY_COLUMNS_MAX + 1];
    char text[TTY_ROWS_MAX * (TTY_COLUMNS_MAX + 1)];
};

/* Starts argv[0] with a terminal of that size as its standard input, output and errors. `term`: TERM of it. */
void tty_start(struct tty *tty, const char *const *argv, int rows, int columns, const char *term);
/* Takes in what it shows for so long. */
void tty_look(struct tty *tty, double seconds);
/* The whole screen as it is now, in lines without blanks at their ends; valid until the next call. */
const char *tty_text(struct tty *tty);
/* Until the screen holds `part`, or, with `gone`, does not. */
void tty_wait(struct tty *tty, const char *part, bool gone);
void tty_type(struct tty *tty, const char *keys);
void tty_resize(struct tty *tty, int rows, int columns);
/* Whether the terminal is set as it was when the program was started. */
bool tty_restored(struct tty *tty);
/* Its exit status, or 128 + signal; it has six seconds, less than a question to a daemon may take. Closes the terminal
 * but for its slave side. */
int tty_end(struct tty *tty);
void tty_close(struct tty *tty);

#endif
