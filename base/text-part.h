// SPDX-License-Identifier: Apache-2.0
/* The part of a text that is still to be read. */
#ifndef RAMET_BASE_TEXT_PART_H
#define RAMET_BASE_TEXT_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct text_part {
	const char *p, *end;
};

/* Moves behind `text` if the part begins with it; returns whether it does. */
static inline bool text_part_take(struct text_part *in, const char *text)
{
	size_t len = strlen(text);

	if ((size_t)(in->end - in->p) < len || memcmp(in->p, text, len) != 0)
		return false;
	in->p += len;
	return true;
}

#endif
