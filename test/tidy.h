// SPDX-License-Identifier: Apache-2.0
/*
 * Included before each file that clang-tidy reads. Its analyzer does not read other source files,
 * and would otherwise follow paths on which err_set() returns 0.
 */
#ifndef RAMET_TEST_TIDY_H
#define RAMET_TEST_TIDY_H

#include "base/err.h"

static inline int tidy_error(struct err *e, ...)
{
	(void)e;
	return -1;
}

#define err_set(e, ...)	    tidy_error(e, __VA_ARGS__)
#define err_say(e, ...)	    tidy_error(e, __VA_ARGS__)
#define err_context(e, ...) tidy_error(e, __VA_ARGS__)

#endif
