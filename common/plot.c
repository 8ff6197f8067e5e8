/* SPDX-License-Identifier: Apache-2.0 */
#include "common/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* In pixels. A legend stands beside the axes, so that it covers no curve; LETTER: of its names, in width. */
enum { WIDTH = 860, HEIGHT = 480, LEFT = 64, RIGHT = 650, MARGIN = 24, TOP = 64, BOTTOM = 52 };
enum { LEGEND_LINE = 14, LEGEND_NAME = 38, LETTER = 8 };
enum { TICK_BYTES = 32, POINT = 5, EDGE = 10 }; /* EDGE: how far points may reach beyond the axes */

struct range {
    double low, high;
};

struct frame {
    struct range x, y; /* of x the logarithm to 10 where the axis has decades */
    double right;      /* where the axes end */
    bool decades;
};

static struct range range_of(const struct plot *plot, bool of_x)
{
    struct range r = {INFINITY, -INFINITY};
    for (size_t s = 0; s < plot->series_count; s++) {
        const double *values = of_x ? plot->series[s].x : plot->series[s].y;
        for (size_t i = 0; i < plot->series[s].count; i++) {
            double value = of_x && plot->x_tick != NULL ? log10(values[i]) : values[i];
            r.low = fmin(r.low, value);
            r.high = fmax(r.high, value);
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

static double to_x(const struct frame *frame, double v)
{
    double at = frame->decades ? log10(v) : v;
    return LEFT + (at - frame->x.low) / (frame->x.high - frame->x.low) * (frame->right - LEFT);
}

static double to_y(const struct frame *frame, double v)
{
    return HEIGHT - BOTTOM - (v - frame->y.low) / (frame->y.high - frame->y.low) * (HEIGHT - TOP - BOTTOM);
}

static void draw_x_tick(FILE *f, const struct frame *frame, double v, const char *text)
{
    fprintf(f,
            "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#888'/>"
            "<text x='%.1f' y='%d' text-anchor='middle'>%s</text>\n",
            to_x(frame, v), HEIGHT - BOTTOM, to_x(frame, v), HEIGHT - BOTTOM + 5, to_x(frame, v), HEIGHT - BOTTOM + 20,
            text);
}

static void draw_x_ticks(FILE *f, const struct plot *plot, const struct frame *frame)
{
    char text[TICK_BYTES];
    if (frame->decades) {
        for (double power = ceil(frame->x.low); power <= frame->x.high; power++) {
            double v = pow(10, power);
            fprintf(f, "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#e3e3e3'/>", to_x(frame, v), TOP,
                    to_x(frame, v), HEIGHT - BOTTOM);
            draw_x_tick(f, frame, v, plot->x_tick(v, text, sizeof text));
        }
        return;
    }
    double step = tick_step(frame->x);
    for (double v = ceil(frame->x.low / step) * step; v <= frame->x.high; v += step) {
        snprintf(text, sizeof text, "%g", fabs(v) < step / 2 ? 0 : v);
        draw_x_tick(f, frame, v, text);
    }
}

static void draw_axes(FILE *f, const struct plot *plot, const struct frame *frame)
{
    double step = tick_step(frame->y);
    for (double v = ceil(frame->y.low / step) * step; v <= frame->y.high; v += step)
        fprintf(f,
                "<line x1='%d' y1='%.1f' x2='%.0f' y2='%.1f' stroke='#e3e3e3'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
                LEFT, to_y(frame, v), frame->right, to_y(frame, v), LEFT - 8, to_y(frame, v) + 4,
                fabs(v) < step / 2 ? 0 : v);
    draw_x_ticks(f, plot, frame);
    fprintf(f, "<line x1='%d' y1='%d' x2='%.0f' y2='%d' stroke='#888'/>\n", LEFT, HEIGHT - BOTTOM, frame->right,
            HEIGHT - BOTTOM);
    fprintf(f, "<text x='%.0f' y='%d' text-anchor='middle'>%s</text>\n", (LEFT + frame->right) / 2, HEIGHT - 10,
            plot->x_label);
    fprintf(f, "<text transform='translate(16,%d) rotate(-90)' text-anchor='middle'>%s</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2, plot->y_label);
}

static void draw_mark(FILE *f, const struct plot *plot, const struct frame *frame)
{
    if (plot->x_mark_name != NULL)
        fprintf(f,
                "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#333' stroke-dasharray='4 3'/>"
                "<text x='%.1f' y='%d' text-anchor='middle'>%s</text>\n",
                to_x(frame, plot->x_mark), TOP, to_x(frame, plot->x_mark), HEIGHT - BOTTOM, to_x(frame, plot->x_mark),
                TOP - 5, plot->x_mark_name);
}

static void draw_series(FILE *f, const struct plot_series *s, const struct frame *frame)
{
    if (s->width > 0) {
        fprintf(f, "<polyline fill='none' stroke='%s' stroke-width='%g' opacity='%g' points='", s->color, s->width,
                s->opacity);
        for (size_t i = 0; i < s->count; i++)
            fprintf(f, "%.1f,%.1f ", to_x(frame, s->x[i]), to_y(frame, s->y[i]));
        fputs("'/>\n", f);
        return;
    }
    for (size_t i = 0; i < s->count; i++)
        fprintf(f, "<circle cx='%.1f' cy='%.1f' r='%g' fill='%s' opacity='%g'/>\n", to_x(frame, s->x[i]),
                to_y(frame, s->y[i]), s->radius > 0 ? s->radius : POINT, s->color, s->opacity);
}

static void draw_legend(FILE *f, const struct plot *plot, const struct frame *frame)
{
    double row = TOP + 14;
    for (size_t s = 0; s < plot->series_count; s++) {
        const struct plot_series *series = &plot->series[s];
        if (series->name == NULL)
            continue;
        fprintf(f, "<rect x='%.0f' y='%.0f' width='16' height='4' fill='%s'/><text x='%.0f' y='%.0f'>%s</text>\n",
                frame->right + LEGEND_LINE, row - 6, series->color, frame->right + LEGEND_NAME, row, series->name);
        row += 19;
    }
}

/* Letters of the longest name; 0: there is no legend. */
static size_t legend_letters(const struct plot *plot)
{
    size_t most = 0;
    for (size_t s = 0; s < plot->series_count; s++)
        if (plot->series[s].name != NULL && strlen(plot->series[s].name) > most)
            most = strlen(plot->series[s].name);
    return most;
}

bool plot_write(const struct plot *plot, const char *path)
{
    FILE *f = fopen(path, "we");
    if (f == NULL)
        return false;
    size_t letters = legend_letters(plot), width = WIDTH;
    if (letters > 0 && RIGHT + LEGEND_NAME + LETTER * letters > width)
        width = RIGHT + LEGEND_NAME + LETTER * letters;
    struct frame frame = {range_of(plot, true), range_of(plot, false), letters > 0 ? RIGHT : WIDTH - MARGIN,
                          plot->x_tick != NULL};
    if (plot->y_high > frame.y.low)
        frame.y.high = plot->y_high;
    fprintf(f,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%zu' height='%d' viewBox='0 0 %zu %d' "
            "font-family='sans-serif' font-size='13' fill='#333'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
            width, HEIGHT, width, HEIGHT);
    fprintf(f,
            "<text x='%d' y='22' font-size='17' font-weight='bold'>%s</text>\n"
            "<text x='%d' y='42' fill='#666'>%s</text>\n",
            LEFT, plot->title, LEFT, plot->subtitle);
    draw_axes(f, plot, &frame);
    fprintf(f,
            "<clipPath id='axes'><rect x='%d' y='%d' width='%.0f' height='%d'/></clipPath><g clip-path='url(#axes)'>\n",
            LEFT - EDGE, TOP, frame.right - LEFT + 2 * EDGE, HEIGHT - TOP - BOTTOM);
    for (size_t s = 0; s < plot->series_count; s++)
        draw_series(f, &plot->series[s], &frame);
    fputs("</g>\n", f);
    draw_mark(f, plot, &frame);
    draw_legend(f, plot, &frame);
    fputs("</svg>\n", f);
    return fclose(f) == 0;
}
