// SPDX-License-Identifier: Apache-2.0
/* Lists of words, as the kernel writes them: separated by spaces, perhaps with a line's end. */
#ifndef RAMET_BASE_WORD_H
#define RAMET_BASE_WORD_H

#include <stdbool.h>
#include <string.h>

static inline bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += len)
		if ((p == list || p[-1] == ' ') && strchr(" \n", p[len]))
			return true;
	return false;
}

#endif
