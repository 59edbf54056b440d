// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_BASE_TURN_H
#define RAMET_BASE_TURN_H

/*
 * For a thread that works little while others wait for it: when it wakes and the CPUs are busy, it
 * runs before threads that run for long. Its share of the CPUs stays the same (Linux 6.12: a
 * shorter slice; before that, nothing happens). Threads that it creates later inherit this.
 */
void turn_soon(void);
/* The same, but neither threads nor processes inherit it. */
void turn_soon_alone(void);

#endif
