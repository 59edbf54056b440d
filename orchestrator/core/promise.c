// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that was promised: the RAM of sandboxes, or what the VM is charged with where that is
 * more, since the images of its forks are held as well. When more is used than there is, the kernel
 * ends a VM; it is to be one of a tenant that has more than its share. If no tenant is over its
 * share, all of it fits, and nothing runs out: so there is always one of these, and a tenant that
 * keeps to its share loses no VM by what others do. Warm VMs are made before their
 * tenant is known, and the memory of a process that moves to another cgroup stays charged to the
 * first one: therefore marks, and not a cgroup for each tenant.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "orchestrator/core/internal.h"
#include "orchestrator/core/private.h"

#define CHECK_MS 500 /* after a change, so that many at once are one */
#define OVERHEAD 16  /* one part of so many of the memory is not for sandboxes */

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

static uint64_t need_mib(const struct sandbox *s)
{
	uint64_t charged = vm_charged(s->vm) >> 20;

	return charged > s->size.ram_mib ? charged : s->size.ram_mib;
}

/* Returns how many of the next ones are of the same tenant, and what they need. */
static size_t group(struct sandbox *const *all, size_t n, uint64_t *mib)
{
	size_t len = 0;

	for (*mib = 0; len < n && by_tenant(&all[len], &all[0]) == 0; len++)
		*mib += need_mib(all[len]);
	return len;
}

static size_t count_tenants(struct sandbox *const *all, size_t n)
{
	size_t tenants = 0;
	uint64_t mib;

	for (size_t i = 0; i < n; i += group(all + i, n - i, &mib))
		tenants++;
	return tenants;
}

/* A part is for page tables, the processes of VMs, and rametd itself. */
static uint64_t share_mib(const struct core *c, size_t tenants)
{
	return memory_mib(c) / OVERHEAD * (OVERHEAD - 1) / tenants;
}

static void mark_all(struct core *c)
{
	uint64_t mib;
	size_t n;
	struct sandbox **all = sorted(c, &n);
	size_t tenants = count_tenants(all, n);

	for (size_t i = 0, len; i < n; i += len) {
		len = group(all + i, n - i, &mib);
		mib += private_bytes(c, all[i]->tenant) >> 20;
		for (size_t at = i; at < i + len; at++)
			vm_set_oom(all[at]->vm, tenants > 1 && mib > share_mib(c, tenants));
	}
	free(all);
}

void promises_measured(void *arg)
{
	struct core *c = arg;

	if (!c->closing)
		mark_all(c);
}

/* A tenant that is alone harms itself only: nothing is measured for it. */
static bool measure_all(struct core *c)
{
	bool asked = false;
	size_t n;
	struct sandbox **all = sorted(c, &n);
	bool several = count_tenants(all, n) > 1;

	for (size_t i = 0; several && i < n; i++)
		asked = vm_measure(all[i]->vm) || asked;
	free(all);
	return asked;
}

static void check(void *arg)
{
	if (!measure_all(arg))
		mark_all(arg);
}

void promises_changed(struct core *c)
{
	if (c->closing || c->promises_timer.heap_index)
		return;
	c->promises_timer = (struct loop_timer){.fn = check, .arg = c};
	loop_timer_set(c->loop, &c->promises_timer, CHECK_MS);
}

/* Returns how many children of the sandbox are on their way. */
static uint64_t children_coming(const struct sandbox *s)
{
	uint64_t n = 0;

	list_each (pos, &s->forks)
		n += container_of(pos, struct core_call, link)->coming;
	return n;
}

/* Many may be asked for before the first is there: those on their way count as well. */
static uint64_t promised_mib(const struct core *c)
{
	uint64_t mib = 0;

	list_each (pos, &c->sandboxes) {
		const struct sandbox *s = container_of(pos, struct sandbox, link);

		mib += (1 + children_coming(s)) * s->size.ram_mib;
	}
	list_each (pos, &c->creates)
		mib += create_coming_mib(container_of(pos, struct core_call, link));
	list_each (pos, &c->resumes)
		mib += resume_coming_mib(container_of(pos, struct core_call, link));
	return mib;
}

bool promises_have_room(const struct core *c, uint64_t mib, struct failure *f)
{
	uint64_t most = memory_mib(c) * c->config.memory_overcommit / 100;

	if (!c->config.memory_overcommit)
		return true;
	mib += promised_mib(c);
	if (mib <= most)
		return true;
	failure_set(
		f, 503, "no_capacity", 10,
		"the memory of this host is promised to other sandboxes: with this they would have "
		"%llu of %llu MiB",
		(unsigned long long)mib, (unsigned long long)most);
	return false;
}
