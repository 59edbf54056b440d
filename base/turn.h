// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_BASE_TURN_H
#define RAMET_BASE_TURN_H

/*
 * For a thread that does little and that others wait for: when it wakes and the CPUs are busy, it
 * runs before those that run for long. It gets no more of them than before (Linux 6.12: a shorter
 * slice; nothing happens before that). Threads that it makes from then on have the same.
 */
void turn_soon(void);
/* The same, but what it makes has not: neither threads nor processes. */
void turn_soon_alone(void);

#endif
