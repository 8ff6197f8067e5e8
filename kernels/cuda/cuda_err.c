/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_err: stands for common/err.c inside libdiloco-cuda.so. A library of its own would have a record of failures of
 * its own, which nobody reads: here a text is made and handed to the program at once (kern_services.h). The linker
 * gives cuda_err_set() the name err_set (see kernels/cuda.mk), so that common/ and the tables are written as they are
 * everywhere.
 * What else of err.h is used in the library one day, the linker asks for.
 */
#include "kernels/cuda/cuda_err.h"

#include <stdarg.h>
#include <stdio.h>

enum { TEXT_BYTES = 640 };

enum err cuda_err_set(enum err code, const char *format, ...) __attribute__((format(printf, 2, 3)));

static struct kern_services program;

void cuda_err_init(const struct kern_services *services)
{
    program = *services;
}

enum err cuda_err_set(enum err code, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return program.fail(code, text);
}
