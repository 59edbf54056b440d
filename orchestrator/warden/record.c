// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/record.h"

#include <stddef.h>
#include <sys/mman.h>

#define CRASHES_MAX 2

struct warden_record {
	uint32_t type, slot; /* of the request that is being served; type 0: none */
	/* Crashes in a row, for each request type and slot. Pages of zeros take no memory. */
	uint8_t crashes[WARDEN_OOM + 1][WARDEN_SLOTS_MAX];
};

struct warden_record *warden_record_new(void)
{
	void *r = mmap(NULL, sizeof(struct warden_record), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return r == MAP_FAILED ? NULL : r;
}

void record_begin(struct warden_record *r, const struct warden_msg *m)
{
	if (!r)
		return;
	r->slot = m->slot;
	r->type = m->type;
}

void record_end(struct warden_record *r)
{
	if (!r)
		return;
	if (r->crashes[r->type][r->slot])
		r->crashes[r->type][r->slot] = 0;
	r->type = 0;
}

bool record_take_over(struct warden_record *r, bool crashed, uint32_t *type, uint32_t *slot)
{
	if (!r || !r->type)
		return false;
	*type = r->type;
	*slot = r->slot;
	r->type = 0;
	if (crashed)
		r->crashes[*type][*slot]++;
	return crashed;
}

bool record_refuses(const struct warden_record *r, const struct warden_msg *m)
{
	return r && r->crashes[m->type][m->slot] >= CRASHES_MAX;
}
