// SPDX-License-Identifier: Apache-2.0
/* Names of folders' contents, gathered one after the other and put in the order of their bytes. */
#ifndef RAMET_GUEST_NAMES_H
#define RAMET_GUEST_NAMES_H

#include <stddef.h>
#include <stdint.h>

#define NAMES_MAX (64u << 20) /* bytes of them; and half as much again to sort them */

/* Zeroed to begin with. What was gathered last can be cut off again. */
struct names {
	char *text; /* zero-terminated, one after the other */
	size_t text_len, text_room;
	uint32_t *order; /* places in text */
	size_t count, room;
};

/* 0, -E2BIG over NAMES_MAX, or -ENOMEM. */
int names_add(struct names *n, const char *name);
/* Adds what the open folder holds (not . and ..) and sorts that, without names that came twice. 0
 * or -errno. */
int names_add_folder(struct names *n, int fd);
/* Goes back to `count` names, with `text_len` bytes. */
void names_cut(struct names *n, size_t count, size_t text_len);

static inline const char *names_at(const struct names *n, size_t i)
{
	return n->text + n->order[i];
}

#endif
