/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A calendar clock that can be set while a program runs, for LD_PRELOAD: what says the time of day is put forward by as
 * many seconds as stand in the file that SKEWED_CLOCK names. The monotonic clock stays as it is.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#define SEEN __attribute__((visibility("default")))

SEEN int clock_gettime(clockid_t clock, struct timespec *out);
SEEN time_t time(time_t *out);
SEEN int gettimeofday(struct timeval *restrict out, void *restrict zone);

static time_t skew(void)
{
    const char *path = getenv("SKEWED_CLOCK");
    long seconds = 0;
    FILE *file = path != NULL ? fopen(path, "re") : NULL;
    if (file == NULL)
        return 0;
    if (fscanf(file, "%ld", &seconds) != 1)
        seconds = 0;
    fclose(file);
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, out);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += skew();
    return result;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}
