// SPDX-License-Identifier: Apache-2.0
/*
 * Simulates a disk whose n-th write fails, or the end of the process instead of that. The program's
 * calls that change files, listed in test/unit/writes/CMakeLists.txt, are redirected here; calls by
 * shared libraries are not.
 */
#ifndef RAMET_TEST_UNIT_WRITES_FAILING_WRITES_H
#define RAMET_TEST_UNIT_WRITES_FAILING_WRITES_H

#include <stdbool.h>

/* Makes the n-th call (counted from 1) from now on that changes something below `dir`, on any
 * thread, fail with `error` and do nothing. */
void writes_fail(const char *dir, unsigned n, int error);
/* Makes the n-th call from now on that writes bytes below `dir` write only half of them. */
void writes_are_short(const char *dir, unsigned n);
/* Kills the process (SIGKILL) instead of the n-th call from now on that changes or removes
 * something below `dir`; 0: ends that. */
void writes_kill(const char *dir, unsigned n);
/* Stops the simulation; returns true when a call failed or was short. */
bool writes_end(void);

#endif
