// SPDX-License-Identifier: Apache-2.0
/* Lists of names in folders, each list sorted in byte order. */
#ifndef RAMET_GUEST_FILES_NAMES_H
#define RAMET_GUEST_FILES_NAMES_H

#include <stddef.h>
#include <stdint.h>

#define NAMES_MAX (64u << 20) /* bytes of names; sorting may need half as much again */

/* Starts zeroed. names_cut removes what was added last. */
struct names {
	char *text; /* zero-terminated, one after the other */
	size_t text_len, text_room;
	uint32_t *order; /* offsets in text, sorted */
	size_t count, room;
};

/* Adds a name. Returns 0, -E2BIG beyond NAMES_MAX, or -ENOMEM. */
int names_add(struct names *n, const char *name);
/* Adds the names in the open folder (not . and ..), sorted and without duplicates. Returns 0 or
 * -errno. */
int names_add_folder(struct names *n, int fd);
/* Truncates the list to `count` names with `text_len` bytes. */
void names_cut(struct names *n, size_t count, size_t text_len);

static inline const char *names_at(const struct names *n, size_t i)
{
	return n->text + n->order[i];
}

#endif
