// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that was promised: the RAM of sandboxes. When more is used than there is, the kernel ends
 * a VM; it is to be one of a tenant that was promised more than its share. If no tenant is over its
 * share, all that was promised fits, and nothing runs out: so there is always one of these, and a
 * tenant that keeps to its share loses no VM by what others do. Warm VMs are made before their
 * tenant is known, and the memory of a process that moves to another cgroup stays charged to the
 * first one: therefore marks, and not a cgroup for each tenant.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "orchestrator/core/internal.h"

#define CHECK_MS 500 /* after a change, so that many at once are one */

static uint64_t memory_mib(const struct core *c)
{
	uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), size = (uint64_t)sysconf(_SC_PAGESIZE);

	return c->config.memory_mib ? c->config.memory_mib : pages * size >> 20;
}

static int by_tenant(const void *a, const void *b)
{
	const struct sandbox *const *left = a, *const *right = b;

	return strcmp((*left)->tenant, (*right)->tenant);
}

/* Returns those with a VM, by tenant; the caller frees them. */
static struct sandbox **sorted(struct core *c, size_t *n)
{
	struct sandbox **all = must_alloc((c->n_sandboxes + 1) * sizeof(struct sandbox *));

	*n = 0;
	list_each (pos, &c->sandboxes) {
		struct sandbox *s = container_of(pos, struct sandbox, link);

		if (s->vm && *n < c->n_sandboxes)
			all[(*n)++] = s;
	}
	qsort(all, *n, sizeof(struct sandbox *), by_tenant);
	return all;
}

/* Returns how many of the next ones are of the same tenant, and what they were promised. */
static size_t group(struct sandbox *const *all, size_t n, uint64_t *mib)
{
	size_t len = 0;

	for (*mib = 0; len < n && by_tenant(&all[len], &all[0]) == 0; len++)
		*mib += all[len]->size.ram_mib;
	return len;
}

static void mark_all(void *arg)
{
	struct core *c = arg;
	uint64_t mib, tenants = 0;
	size_t n;
	struct sandbox **all = sorted(c, &n);

	for (size_t i = 0; i < n; i += group(all + i, n - i, &mib))
		tenants++;
	for (size_t i = 0, len; i < n; i += len) {
		len = group(all + i, n - i, &mib);
		for (size_t at = i; at < i + len; at++)
			vm_set_oom(all[at]->vm, tenants > 1 && mib > memory_mib(c) / tenants);
	}
	free(all);
}

void promises_changed(struct core *c)
{
	if (c->closing || c->promises_timer.heap_index)
		return;
	c->promises_timer = (struct loop_timer){.fn = mark_all, .arg = c};
	loop_timer_set(c->loop, &c->promises_timer, CHECK_MS);
}

bool promises_have_room(const struct core *c, uint64_t mib, struct failure *f)
{
	uint64_t most = memory_mib(c) * c->config.memory_overcommit / 100;

	if (!c->config.memory_overcommit)
		return true;
	list_each (pos, &c->sandboxes)
		mib += container_of(pos, struct sandbox, link)->size.ram_mib;
	if (mib <= most)
		return true;
	failure_set(
		f, 503, "no_capacity", 10,
		"the memory of this host is promised to other sandboxes: with this they would have "
		"%llu of %llu MiB",
		(unsigned long long)mib, (unsigned long long)most);
	return false;
}
