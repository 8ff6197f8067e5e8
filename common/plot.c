#include "common/plot.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 860, HEIGHT = 480, LEFT = 64, RIGHT = 24, TOP = 64, BOTTOM = 52 };

struct range {
    double low, high;
};

static struct range range_of(const struct plot *plot, bool of_x)
{
    struct range r = {INFINITY, -INFINITY};
    for (size_t s = 0; s < plot->series_count; s++) {
        const double *values = of_x ? plot->series[s].x : plot->series[s].y;
        for (size_t i = 0; i < plot->series[s].count; i++) {
            r.low = fmin(r.low, values[i]);
            r.high = fmax(r.high, values[i]);
        }
    }
    if (!(r.high > r.low))
        r = (struct range){isfinite(r.low) ? r.low - 1 : 0, isfinite(r.low) ? r.low + 1 : 1};
    double margin = of_x ? 0 : 0.04 * (r.high - r.low);
    return (struct range){r.low - margin, r.high + margin};
}

/* 1, 2 or 5 times a power of ten, so that about six fit. */
static double tick_step(struct range r)
{
    double raw = (r.high - r.low) / 6;
    double power = pow(10, floor(log10(raw)));
    double lead = raw / power;
    return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

static double to_x(struct range r, double v)
{
    return LEFT + (v - r.low) / (r.high - r.low) * (WIDTH - LEFT - RIGHT);
}

static double to_y(struct range r, double v)
{
    return HEIGHT - BOTTOM - (v - r.low) / (r.high - r.low) * (HEIGHT - TOP - BOTTOM);
}

static void draw_axes(FILE *f, const struct plot *plot, struct range x, struct range y)
{
    double step = tick_step(y);
    for (double v = ceil(y.low / step) * step; v <= y.high; v += step)
        fprintf(f,
                "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#e3e3e3'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
                LEFT, to_y(y, v), WIDTH - RIGHT, to_y(y, v), LEFT - 8, to_y(y, v) + 4, fabs(v) < step / 2 ? 0 : v);
    step = tick_step(x);
    for (double v = ceil(x.low / step) * step; v <= x.high; v += step)
        fprintf(f,
                "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#888'/>"
                "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n",
                to_x(x, v), HEIGHT - BOTTOM, to_x(x, v), HEIGHT - BOTTOM + 5, to_x(x, v), HEIGHT - BOTTOM + 20,
                fabs(v) < step / 2 ? 0 : v);
    fprintf(f, "<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='#888'/>\n", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT,
            HEIGHT - BOTTOM);
    fprintf(f, "<text x='%d' y='%d' text-anchor='middle'>%s</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10,
            plot->x_label);
    fprintf(f, "<text transform='translate(16,%d) rotate(-90)' text-anchor='middle'>%s</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2, plot->y_label);
}

static void draw_series(FILE *f, const struct plot_series *s, struct range x, struct range y)
{
    if (s->width > 0) {
        fprintf(f, "<polyline fill='none' stroke='%s' stroke-width='%g' opacity='%g' points='", s->color, s->width,
                s->opacity);
        for (size_t i = 0; i < s->count; i++)
            fprintf(f, "%.1f,%.1f ", to_x(x, s->x[i]), to_y(y, s->y[i]));
        fputs("'/>\n", f);
        return;
    }
    for (size_t i = 0; i < s->count; i++)
        fprintf(f, "<circle cx='%.1f' cy='%.1f' r='5' fill='%s' opacity='%g'/>\n", to_x(x, s->x[i]), to_y(y, s->y[i]),
                s->color, s->opacity);
}

bool plot_write(const struct plot *plot, const char *path)
{
    FILE *f = fopen(path, "we");
    if (f == NULL)
        return false;
    struct range x = range_of(plot, true);
    struct range y = range_of(plot, false);
    fprintf(f,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' "
            "font-family='sans-serif' font-size='13' fill='#333'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    fprintf(
        f,
        "<text x='%d' y='26' font-size='17' font-weight='bold'>%s</text>\n<text x='%d' y='46' fill='#666'>%s</text>\n",
        LEFT, plot->title, LEFT, plot->subtitle);
    draw_axes(f, plot, x, y);
    for (size_t s = 0; s < plot->series_count; s++)
        draw_series(f, &plot->series[s], x, y);
    double row = plot->legend_low ? (TOP + HEIGHT - BOTTOM) / 2.0 + 15 : TOP + 14;
    for (size_t s = 0; s < plot->series_count; s++) {
        const struct plot_series *series = &plot->series[s];
        if (series->name == NULL)
            continue;
        fprintf(f, "<rect x='%d' y='%.0f' width='16' height='4' fill='%s'/><text x='%d' y='%.0f'>%s</text>\n",
                WIDTH - RIGHT - 250, row - 6, series->color, WIDTH - RIGHT - 226, row, series->name);
        row += 19;
    }
    fputs("</svg>\n", f);
    return fclose(f) == 0;
}
