/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_screen: the whole window of a terminal, drawn again and again, and given back as it was.
 *
 * While it is open the terminal shows its alternate screen, keys come one by one, and signals are taken in between:
 * whatever ends the program but SIGKILL leaves the terminal as it was found, and so does Ctrl-Z. Nothing is cleared
 * before it is drawn, and unchanged text is not drawn again, so that nothing flickers. One at a time, from the main
 * thread; threads that are started while it is open have its signals blocked.
 */
#ifndef DAEMON_CTL_CTL_SCREEN_H
#define DAEMON_CTL_CTL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/ctl/ctl_text.h"

struct ctl_screen;

/* Standard output is a terminal that can be drawn on: TERM names one, and it is not dumb. */
bool ctl_screen_possible(void);

/* ERR_IO: the terminal does not let itself be set. */
ERR_MUST_CHECK enum err ctl_screen_open(struct ctl_screen **out);
/* Gives the terminal back. If a signal was to end the program, it ends it now. */
void ctl_screen_close(struct ctl_screen *screen);

/* Of the window, as it is now; 80 x 24 where nobody knows. */
int ctl_screen_rows(const struct ctl_screen *screen);
int ctl_screen_columns(const struct ctl_screen *screen);
/* It shows more than ASCII. */
bool ctl_screen_utf8(const struct ctl_screen *screen);

/* Draws lines, each ended by '\n', from the first row on; cuts text beyond the terminal's columns or rows. ERR_IO: the
 * terminal has gone. */
ERR_MUST_CHECK enum err ctl_screen_draw(struct ctl_screen *screen, const char *text);

enum ctl_screen_event {
    CTL_SCREEN_LATE,  /* so much time has gone by */
    CTL_SCREEN_READY, /* `fd` can be read */
    CTL_SCREEN_KEY,
    CTL_SCREEN_RESIZED, /* or it has to be drawn anew for another reason */
    CTL_SCREEN_END      /* a signal, or the terminal has gone */
};
enum { CTL_SCREEN_UP = 0x100, CTL_SCREEN_DOWN, CTL_SCREEN_PAGE_UP, CTL_SCREEN_PAGE_DOWN };

/* Waits for the first of these. `*key`: a character, or one of those above. */
enum ctl_screen_event ctl_screen_wait(struct ctl_screen *screen, int fd, uint64_t ms, int *key);

/* As many columns of UTF-8 text as fit into `columns`, with its marks (ctl_text.h), into `out`, cut to fit there, too.
 * A character without width that joins nothing becomes a question mark, as does all beyond ASCII without `utf8`.
 * Returns how many columns it has. Without `colours` looks are left out. Pure but for the locale; for tests. */
int ctl_screen_clip(const char *line, size_t line_bytes, int columns, bool utf8, bool colours, char *out,
                    size_t out_bytes);

#endif
