// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/images/host.h"

#include <sched.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>

#include "base/meminfo.h"
#include "base/num.h"

#define RAM_MAX_MIB 65536
#define VCPUS_MAX   32
#define DISK_LEAST  (16u << 20)

static uint32_t host_ram_mib(void)
{
	struct sysinfo info;

	if (sysinfo(&info) < 0)
		return RAM_MIN_MIB;
	uint64_t most = (uint64_t)info.totalram * info.mem_unit / 4 * 3 >> 20;
	return min_u32(most, RAM_MAX_MIB) / RAM_STEP_MIB * RAM_STEP_MIB;
}

/* Returns the number of CPUs that this process and its VMs may run on. Others may be reserved. */
static uint32_t host_vcpus(void)
{
	cpu_set_t own;

	if (sched_getaffinity(0, sizeof(own), &own) <
	    0) /* the host has more CPUs than the set holds */
		return VCPUS_MAX;
	return min_u32((uint64_t)CPU_COUNT(&own), VCPUS_MAX);
}

struct size size_host(void)
{
	return (struct size){host_vcpus(), host_ram_mib(), SOURCE_ROOTFS_MAX_GB};
}

/*
 * A VM's memory limit in multiples of its RAM; the VM process itself gets 256 MiB or more on top.
 * The limit covers the RAM, plus either the template image that the VM saves once, or the memory
 * layers of its forks: up to two whose pages newer ones replace, the one being made, the one that
 * several are merged into, and those that only the VM's children still use.
 */
#define BUILDS_MEMORY 2u
#define FORKED_MEMORY 8u

struct vmproc_spec size_vm_spec(const struct size *size, bool builds)
{
	uint64_t ram = (uint64_t)size->ram_mib << 20, own = 256u << 20;

	return (struct vmproc_spec){.vcpus = size->vcpus,
				    .ram_mib = size->ram_mib,
				    .memory_max = builds ? BUILDS_MEMORY * ram + 2 * own
							 : FORKED_MEMORY * ram + own};
}

bool host_memory_low(void)
{
	struct meminfo memory;

	return meminfo_read("/proc/meminfo", &memory) && meminfo_is_low(&memory);
}

bool disk_is_full(const char *state_dir)
{
	struct statvfs fs;

	return statvfs(state_dir, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < DISK_LEAST;
}

/* --- sizes ----------------------------------------------------------------------------------- */

/* Returns whether the requested size is possible: enough RAM, and a disk that holds the template's
 * root file system. Fills *f if not. */
static bool is_possible(const struct source *from, const struct size *size, struct failure *f)
{
	uint32_t asked = size->rootfs_gb;
	uint32_t least = asked && asked < from->size.rootfs_gb ? from->least_gb : 0;

	if (size->ram_mib && size->ram_mib < RAM_MIN_MIB)
		failure_set(f, FAIL_OUT_OF_RANGE, 0, "ram_mib is %u, the minimum is %d",
			    size->ram_mib, RAM_MIN_MIB);
	else if (asked < least)
		failure_set(f, FAIL_OUT_OF_RANGE, 0,
			    "rootfs_gb is %u, the minimum that holds the template is %u", asked,
			    least);
	else
		return true;
	return false;
}

bool size_choose(const struct source *from, const struct size *asked, const struct size *most,
		 struct sized_choice *out, struct failure *f)
{
	const struct size *own = &from->size;
	struct size host = size_host();
	struct size limit = size_limit(&host, own, most);

	if (!is_possible(from, asked, f))
		return false;
	out->size = size_exact(asked, own, &limit);
	out->image = size_image(&out->size, own);
	return true;
}
