/*
 * ctl_here: how a command of this island begins, as somebody types it: what dilococtl suggests works when it is copied.
 *
 * Set once, by main(), from what was given on the command line; read by whoever prints a command to type. One thread.
 */
#ifndef DAEMON_CTL_CTL_HERE_H
#define DAEMON_CTL_CTL_HERE_H

/* Adds an option ("--home") and its value, with quotes where a shell needs them; NULL: was not given. */
void ctl_here_add(const char *option, const char *value);

/* "dilococtl", and what was added; valid until the next ctl_here_add(). */
const char *ctl_here(void);

#endif
