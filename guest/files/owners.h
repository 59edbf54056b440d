// SPDX-License-Identifier: Apache-2.0
/* Names of users and groups, read from the guest's own /etc, once for each request. The end of the
 * worker frees them. */
#ifndef RAMET_GUEST_FILES_OWNERS_H
#define RAMET_GUEST_FILES_OWNERS_H

#include <stddef.h>
#include <stdint.h>

#define OWNERS_FILE_MAX (1u << 20) /* bytes; the rest of a longer file is ignored */

struct owners {
	char *text;
	struct owner {
		uint32_t id;
		const char *name; /* in `text` */
	} * list;		  /* sorted by id */
	size_t count;
};

/* Reads a file in the format of /etc/passwd or /etc/group. Invalid lines are ignored. If the
 * file cannot be read, there are no names. */
void owners_read(struct owners *o, const char *path);
/* Returns the name of the user or group with this id, of up to AGENT_OWNER_MAX bytes; "" if it has
 * none. If several lines of the file have the id, the first one counts. */
const char *owners_name(const struct owners *o, uint32_t id);

#endif
