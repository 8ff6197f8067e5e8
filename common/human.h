/* SPDX-License-Identifier: Apache-2.0 */
/*
 * human: numbers as people read them: three digits and a unit. Programs get the exact ones, from JSON.
 *
 * All are pure, write into `text`, cut to fit, and return it; HUMAN_BYTES hold any of them. NaN is "?", infinity "inf";
 * a unit changes where the three digits would round up to 1000 of it.
 */
#ifndef COMMON_HUMAN_H
#define COMMON_HUMAN_H

#include <stddef.h>

enum { HUMAN_BYTES = 32 };

/* "999 B", "1.00 kB", "10.7 TB": powers of 1000. */
const char *human_bytes(double bytes, char text[HUMAN_BYTES]);
/* "41.2 GiB": powers of 1024, as memory is sold. */
const char *human_memory(double bytes, char text[HUMAN_BYTES]);
/* "812 kbit/s", "1.50 Gbit/s". */
const char *human_rate(double bits_per_s, char text[HUMAN_BYTES]);
/* "1.50 PFLOP/s" */
const char *human_flops(double flops_per_s, char text[HUMAN_BYTES]);
/* "890", "12.3k", "1.2B": things counted; whole below 1000, and no zeros at the end of a fraction. */
const char *human_count(double count, char text[HUMAN_BYTES]);
/* "2.3457", "1.2e+06"; "-" for 0 and NaN: it is not known. */
const char *human_loss(double loss, char text[HUMAN_BYTES]);
/* "850 ms", "4.2 s", "43 s", "5 min 3 s", "2 h 14 min", "3 d 4 h": the two largest units. */
const char *human_duration(double seconds, char text[HUMAN_BYTES]);

#endif
