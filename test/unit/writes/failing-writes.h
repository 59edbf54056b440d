// SPDX-License-Identifier: Apache-2.0
/*
 * A disk whose n-th write fails: what a program calls to change files
 * (test/unit/writes/CMakeLists.txt lists it) comes here first. What shared libraries call does not.
 */
#ifndef RAMET_TEST_UNIT_WRITES_FAILING_WRITES_H
#define RAMET_TEST_UNIT_WRITES_FAILING_WRITES_H

#include <stdbool.h>

/* Of the calls from now on that change something below `dir`, on any thread, the n-th (from 1 on)
 * fails with `error` and does nothing. */
void writes_fail(const char *dir, unsigned n, int error);
/* Of the calls that write bytes, the n-th writes only half of them. */
void writes_are_short(const char *dir, unsigned n);
/* No more; true when one has failed, or was short. */
bool writes_end(void);

#endif
