/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err: one error code for every fallible function, and one line of text that says what went wrong.
 *
 * A function that can fail returns `enum err` and is marked ERR_MUST_CHECK; outputs go through pointers and are
 * undefined after a failure unless the declaration says otherwise. The code tells the caller what to do, the text
 * tells a person what happened and what to do about it. The text is kept per thread until the next failure there.
 * Nothing here exits, aborts or prints.
 *
 * Owns: nothing of a run: what every program needs, as errors, memory, files, logs, sets and digests; the formats of
 * run specs, configurations and tensor files; the contract with a trainer (ipc.h).
 * Called by: daemon/, kernels/, net/, outer_opt/, worker/.
 * Never includes: daemon/, net/, outer_opt/, kernels/, worker/.
 */
#ifndef COMMON_ERR_H
#define COMMON_ERR_H

enum err {
    ERR_OK = 0,
    ERR_ARG,       /* the caller asked for something that makes no sense (command line, API use) */
    ERR_CONF,      /* a configuration or run spec is wrong */
    ERR_IO,        /* a file, socket or system call failed */
    ERR_NOSPACE,   /* no disk space or quota */
    ERR_NOMEM,     /* memory, or a stated limit on memory */
    ERR_PROTO,     /* bytes from a peer or another process break the protocol */
    ERR_CORRUPT,   /* bytes of our own on disk are damaged */
    ERR_AGAIN,     /* not now: try again when the thing is ready */
    ERR_STATE,     /* not possible in the present state */
    ERR_NONFINITE, /* NaN or Inf where a number is needed */
    ERR_NOTFOUND,
    ERR_CLOSED, /* the other side is gone */
    ERR_COUNT
};

#define ERR_MUST_CHECK __attribute__((warn_unused_result))

/* Records a printf-style text for this thread and returns `code`: `return err_set(ERR_IO, "...", ...)`. */
enum err err_set(enum err code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As err_set(), with ": " and strerror(errno) at the end; ENOSPC and EDQUOT make the code ERR_NOSPACE. */
enum err err_set_errno(enum err code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "text: " in front of the recorded text and returns `code`; for adding the name of the thing on the way up. */
enum err err_prefix(enum err code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "; text" after the recorded text and returns `code`; for adding what to do about it. */
enum err err_suffix(enum err code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text of this thread's last failure; never NULL; valid until the thread's next failure. */
const char *err_text(void);

/* Short lower-case name of a code, for logs and JSON. */
const char *err_name(enum err code);

/* Forwards a failure to the caller. */
#define TRY(expression)                    \
    do {                                   \
        enum err try_code_ = (expression); \
        if (try_code_ != ERR_OK)           \
            return try_code_;              \
    } while (0)

/* Forwards a failure to the function's one exit label: `enum err err` and `out:` must exist. */
#define TRY_OUT(expression) \
    do {                    \
        err = (expression); \
        if (err != ERR_OK)  \
            goto out;       \
    } while (0)

#endif
