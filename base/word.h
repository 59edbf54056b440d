// SPDX-License-Identifier: Apache-2.0
/* Words, and lists of them. */
#ifndef RAMET_BASE_WORD_H
#define RAMET_BASE_WORD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Returns a number for a hash table (FNV-1a). Not for words from somebody who could gain from
 * collisions. */
static inline uint64_t word_hash(const char *word)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (; *word; word++)
		hash = (hash ^ (uint8_t)*word) * 0x100000001b3u;
	return hash;
}

/* Returns whether the word is in a list like those of the kernel, which are separated by spaces and
 * may end with a newline. */
static inline bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += len)
		if ((p == list || p[-1] == ' ') && strchr(" \n", p[len]))
			return true;
	return false;
}

#endif
