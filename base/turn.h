// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_BASE_TURN_H
#define RAMET_BASE_TURN_H

/*
 * When the calling thread wakes on a busy CPU, lets it run before threads that run for long. Use it
 * for a thread that works little while others wait for it. Its share of CPU time stays the same.
 * (It asks for a shorter slice, which Linux ignores before 6.12.) Threads that it creates later
 * inherit this, unless it has SCHED_RESET_ON_FORK.
 */
void turn_soon(void);

#endif
