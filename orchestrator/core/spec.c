// SPDX-License-Identifier: Apache-2.0
/* Whether the disk has room for images, and the failure of a request for an unknown sandbox. */
#include "orchestrator/core/internal.h"

#define DISK_AHEAD (2ull << 30) /* reserved for sandboxes, not for images made ahead */

/* Uses the last measurement, which is that of the start at first. */
bool host_disk_low(const struct core *c)
{
	uint64_t bytes = c->watched.disk_free_bytes;

	return bytes && bytes < DISK_AHEAD;
}

void failure_not_found(struct failure *f, const char *id)
{
	failure_set(f, 404, "not_found", 0, "there is no sandbox %.40s", id);
}
