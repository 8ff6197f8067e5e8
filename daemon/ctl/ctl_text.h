/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_text: text for people in lines that fit their terminal. Marks in it say how it looks (CTL_TEXT_WARN and the
 * like); what draws it turns them into what the terminal understands, or leaves them out.
 */
#ifndef DAEMON_CTL_CTL_TEXT_H
#define DAEMON_CTL_CTL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* What follows is bold, faint, a warning, the title; or plain again, as at a line's beginning. */
#define CTL_TEXT_BOLD "\x01"
#define CTL_TEXT_FAINT "\x02"
#define CTL_TEXT_WARN "\x03"
#define CTL_TEXT_TITLE "\x04"
#define CTL_TEXT_PLAIN "\x05"

struct ctl_text_look {
    int columns;  /* that a line may have; 0: any number */
    bool verbose; /* also advice, and complaints that follow from another one */
};

/* In lines of so many columns, the first behind `lead`, the others below what follows it, each with this mark. A word
 * that is longer than a line stays whole. */
void ctl_text_wrap(const char *mark, const char *lead, const char *text, int columns, FILE *file);

/* "\033[1m" for a mark; "" for any other byte. */
const char *ctl_text_escape(char mark);

/* How standard output shows text: as wide as its terminal is; 0 columns if it is none. */
struct ctl_text_look ctl_text_look(void);
/* Marked text to standard output: coloured where that is a terminal and NO_COLOR is not set. Control characters, which
 * others may have put there, become question marks. */
void ctl_text_show(const char *text, size_t bytes);

#endif
