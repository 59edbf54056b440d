// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_BASE_ARRAY_H
#define RAMET_BASE_ARRAY_H

#include <errno.h>
#include <stdlib.h>

/* Grows an array from malloc (`array` is the address of the pointer) to hold at least `want`
 * elements of `size` bytes. *room is how many it holds, 0 for NULL. Returns 0 or -ENOMEM. */
static inline int array_grow(void *array, size_t *room, size_t want, size_t size)
{
	void **p = array;
	size_t more = *room ? *room : 1 + 511 / size;

	if (want <= *room)
		return 0;
	while (more < want)
		more *= 2;
	void *grown = reallocarray(*p, more, size);
	if (!grown)
		return -ENOMEM;
	*p = grown;
	*room = more;
	return 0;
}

#endif
