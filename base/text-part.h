// SPDX-License-Identifier: Apache-2.0
/* The part of a text that is still to be read. */
#ifndef RAMET_BASE_TEXT_PART_H
#define RAMET_BASE_TEXT_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct text_part {
	const char *p, *end;
};

/* Returns whether the part begins with `text`, and if so moves past it. */
static inline bool text_part_take(struct text_part *in, const char *text)
{
	size_t len = strlen(text);

	if ((size_t)(in->end - in->p) < len || memcmp(in->p, text, len) != 0)
		return false;
	in->p += len;
	return true;
}

/* Takes 1 to 19 digits, which cannot overflow. Returns false if there is no digit. */
static inline bool text_part_take_number(struct text_part *in, uint64_t *n)
{
	const char *start = in->p;

	*n = 0;
	for (; in->p < in->end && *in->p >= '0' && *in->p <= '9' && in->p - start < 19; in->p++)
		*n = *n * 10 + (uint64_t)(*in->p - '0');
	return in->p > start;
}

#endif
