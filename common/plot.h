/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plot: lines as an SVG picture: axes with round numbers or decades, a legend beside them, any number of series.
 */
#ifndef COMMON_PLOT_H
#define COMMON_PLOT_H

#include <stdbool.h>
#include <stddef.h>

enum { PLOT_SERIES_MAX = 16 };

struct plot_series {
    const char *name;  /* borrowed; NULL: not in the legend */
    const char *color; /* an SVG colour */
    const double *x, *y;
    size_t count;
    double width;  /* of the line; 0: points only */
    double radius; /* of points; 0: as usual */
    double opacity;
};

struct plot {
    const char *title, *subtitle, *x_label, *y_label;
    struct plot_series series[PLOT_SERIES_MAX];
    size_t series_count;
    /* Not NULL: the x axis has decades, each named by this; x is above 0. Returns `text`. */
    const char *(*x_tick)(double x, char *text, size_t text_bytes);
    double y_high; /* not 0: the y axis ends there, and what lies above it is not drawn */
    double x_mark; /* an upright line with a name, where that is not NULL */
    const char *x_mark_name;
};

/* Writes the picture; false if the file cannot be written. */
bool plot_write(const struct plot *plot, const char *path);

#endif
