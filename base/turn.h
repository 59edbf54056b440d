// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_BASE_TURN_H
#define RAMET_BASE_TURN_H

/*
 * Lets the calling thread run before threads that run for long, when it wakes and the CPUs are
 * busy. It is for a thread that works little while others wait for it. Its share of the CPUs stays
 * the same (Linux 6.12: a shorter slice; before that, nothing happens). Threads that it creates
 * later inherit this.
 */
void turn_soon(void);
/* Does the same, but neither threads nor processes inherit it. */
void turn_soon_alone(void);

#endif
