/*
 * plot: lines as an SVG picture: axes with round numbers, a legend, any number of series.
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
    double width; /* of the line; 0: points only */
    double opacity;
};

struct plot {
    const char *title, *subtitle, *x_label, *y_label;
    struct plot_series series[PLOT_SERIES_MAX];
    size_t series_count;
    bool legend_low; /* in the lower half, for curves that end at the top */
};

/* Writes the picture; false if the file cannot be written. */
bool plot_write(const struct plot *plot, const char *path);

#endif
