// SPDX-License-Identifier: Apache-2.0
/*
 * Memory promised to sandboxes. Each counts with its RAM, or with the memory charged to its VM if
 * that is more, since the snapshots for its forks are charged to it too.
 *
 * When the host's memory runs out, the kernel kills a VM. It must be a VM of a tenant above its
 * share, so that a tenant within its share loses no VM because of others. Such a tenant always
 * exists then: if all tenants were within their shares, their memory would fit.
 *
 * OOM scores mark the VMs to kill. A cgroup for each tenant would not work: warm VMs are made
 * before their tenant is known, and the memory of a process that moves to another cgroup stays
 * charged to the first one.
 */
#include <unistd.h>

#include "base/elements.h"
#include "base/meminfo.h"
#include "orchestrator/images/private.h"
#include "orchestrator/sandbox/capacity.h"
#include "orchestrator/sandbox/tenant.h"

#define CHECK_MS 500 /* delay after a change, which combines several changes */
#define OVERHEAD 16  /* 1/16 of the memory is not for sandboxes */

static uint64_t memory_mib(const struct service *c)
{
	uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), size = (uint64_t)sysconf(_SC_PAGESIZE);

	return c->config.memory_mib ? c->config.memory_mib : pages * size >> 20;
}

/* Returns the VM of the tenant's sandbox number `i`; NULL when it has none. */
static struct vmproc *vm_of(const struct tenant *t, size_t i)
{
	return container_of(t->sandboxes.all[i], struct sandbox, listed)->vm;
}

/* Returns the memory that the tenant's sandboxes need, in MiB. */
static uint64_t need_mib(const struct tenant *t)
{
	uint64_t mib = 0;

	for (size_t i = 0; i < t->sandboxes.n; i++) {
		const struct sandbox *s = container_of(t->sandboxes.all[i], struct sandbox, listed);
		uint64_t charged = s->vm ? vmproc_charged(s->vm) >> 20 : 0;

		if (s->vm)
			mib += charged > s->config.size.ram_mib ? charged : s->config.size.ram_mib;
	}
	return mib;
}

static size_t count_tenants(const struct service *c)
{
	size_t n = 0;

	list_each_of (t, struct tenant, link, &c->tenants)
		n += t->sandboxes.n != 0;
	return n;
}

/* Returns each tenant's share. 1/OVERHEAD of the memory is for page tables, the VM processes, and
 * rametd itself. */
static uint64_t share_mib(const struct service *c, size_t tenants)
{
	return memory_mib(c) / OVERHEAD * (OVERHEAD - 1) / tenants;
}

static void mark_all(struct service *c)
{
	size_t tenants = count_tenants(c);

	list_each_of (t, const struct tenant, link, &c->tenants) {
		bool over =
			tenants > 1 && need_mib(t) + (private_bytes(c->privates, t->name) >> 20) >
					       share_mib(c, tenants);

		for (size_t i = 0; i < t->sandboxes.n; i++)
			if (vm_of(t, i))
				vmproc_set_oom(vm_of(t, i), over);
	}
}

void promises_measured(void *arg)
{
	struct service *c = arg;

	if (!c->closing)
		mark_all(c);
}

/* Starts measuring all VMs; returns false when none is measured. A single tenant can only harm
 * itself, so nothing is measured for it. */
static bool measure_all(struct service *c)
{
	bool asked = false;

	if (count_tenants(c) < 2)
		return false;
	list_each_of (t, const struct tenant, link, &c->tenants) {
		for (size_t i = 0; i < t->sandboxes.n; i++)
			asked = (vm_of(t, i) && vmproc_measure(vm_of(t, i))) || asked;
	}
	return asked;
}

static void check(void *arg)
{
	if (!measure_all(arg))
		mark_all(arg);
}

void promises_changed(struct service *c)
{
	if (c->closing || loop_timer_is_set(&c->promises_timer))
		return;
	loop_timer_start(c->loop, &c->promises_timer, check, c, CHECK_MS);
}

void promises_room(const struct service *c, uint64_t *used_mib, uint64_t *total_mib)
{
	struct meminfo memory;

	*total_mib = memory_mib(c) * c->config.memory_overcommit / 100;
	*used_mib = c->promised_mib + c->coming_mib;
	if (*total_mib)
		return;
	*total_mib = memory_mib(c);
	if (meminfo_read("/proc/meminfo", &memory))
		*used_mib = (memory.total - memory.available) >> 20;
}

bool promises_have_room(const struct service *c, uint64_t mib, struct failure *f)
{
	uint64_t most = memory_mib(c) * c->config.memory_overcommit / 100;

	if (!c->config.memory_overcommit)
		return true;
	mib += c->promised_mib + c->coming_mib;
	if (mib <= most)
		return true;
	failure_set(f, FAIL_NO_CAPACITY, 10,
		    "the memory of this host is promised to other sandboxes: with this request, "
		    "sandboxes would have %llu MiB, and the limit is %llu MiB",
		    (unsigned long long)mib, (unsigned long long)most);
	return false;
}
