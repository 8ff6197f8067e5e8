/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void ctl_text_wrap(const char *mark, const char *lead, const char *text, int columns, FILE *file)
{
    const char *end = mark[0] != '\0' ? CTL_TEXT_PLAIN : "";
    int indent = (int)strlen(lead), column = indent;
    fprintf(file, "%s%s", mark, lead);
    for (text += strspn(text, " "); *text != '\0'; text += strspn(text, " ")) {
        int bytes = (int)strcspn(text, " "), word = 0;
        for (int i = 0; i < bytes; i++)
            word += ((unsigned char)text[i] & 0xc0) != 0x80; /* bytes that begin a character */
        if (columns > 0 && column > indent && column + 1 + word > columns) {
            fprintf(file, "%s\n%s%*s", end, mark, indent, "");
            column = indent;
        }
        column += column > indent ? fprintf(file, " ") : 0;
        column += word;
        fprintf(file, "%.*s", bytes, text);
        text += bytes;
    }
    fprintf(file, "%s\n", end);
}

const char *ctl_text_escape(char mark)
{
    static const char *const escapes[] = {"", "\033[1m", "\033[2m", "\033[1;33m", "\033[7m", "\033[0m"};
    return mark >= 0 && (size_t)mark < sizeof escapes / sizeof escapes[0] ? escapes[(size_t)mark] : "";
}

/* TERM names one that steers its looks. */
static bool is_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

struct ctl_text_look ctl_text_look(void)
{
    struct winsize size = {0};
    bool known = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    return (struct ctl_text_look){.columns = known ? size.ws_col : 0};
}

void ctl_text_show(const char *text, size_t bytes)
{
    const char *no_colour = getenv("NO_COLOR");
    bool colours = is_terminal() && (no_colour == NULL || no_colour[0] == '\0');
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c > 0 && c <= CTL_TEXT_PLAIN[0])
            fputs(colours ? ctl_text_escape(c) : "", stdout);
        else
            putchar((c >= 0 && c < ' ' && c != '\n') || c == 0x7f ? '?' : c);
    }
}
