// SPDX-License-Identifier: Apache-2.0
/* How large a sandbox gets, and sentences about what it can't get. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>

#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/core/internal.h"

#define RAM_MIN_MIB 128
#define RAM_MAX_MIB 65536
#define VCPUS_MAX   32
#define DISK_LEAST  (16u << 20)
#define DISK_AHEAD  (2ull << 30) /* kept for sandboxes: images made ahead don't take it */

static uint32_t host_ram_mib(void)
{
	struct sysinfo info;

	if (sysinfo(&info) < 0)
		return RAM_MIN_MIB;
	uint64_t most = (uint64_t)info.totalram * info.mem_unit / 4 * 3 >> 20;
	return min_u32(most, RAM_MAX_MIB) / RAM_STEP_MIB * RAM_STEP_MIB;
}

/* Those that this process, and so its VMs, may run on: others may be kept for something else. */
static uint32_t host_vcpus(void)
{
	cpu_set_t own;

	if (sched_getaffinity(0, sizeof(own), &own) < 0) /* more CPUs than the set holds */
		return VCPUS_MAX;
	return min_u32((uint64_t)CPU_COUNT(&own), VCPUS_MAX);
}

struct size size_host(void)
{
	return (struct size){host_vcpus(), host_ram_mib(), SOURCE_ROOTFS_MAX_GB};
}

/* A disk has room for the template's root file system. */
static bool is_possible(const struct source *from, const struct sandbox_spec *spec,
			struct failure *f)
{
	uint32_t asked = spec->rootfs_gb;
	uint32_t least = asked && asked < from->rootfs_gb ? from->least_gb : 0;

	if (spec->ram_mib && spec->ram_mib < RAM_MIN_MIB)
		failure_set(f, 400, "out_of_range", 0, "ram_mib is %u, the least is %d",
			    spec->ram_mib, RAM_MIN_MIB);
	else if (asked < least)
		failure_set(f, 400, "out_of_range", 0,
			    "rootfs_gb is %u, the least that holds the template is %u", asked,
			    least);
	else
		return true;
	return false;
}

bool size_choose(const struct source *from, const struct sandbox_spec *spec,
		 const struct size *most, struct sized_choice *out, struct failure *f)
{
	const struct size asked = {spec->vcpus, spec->ram_mib, spec->rootfs_gb};
	struct size own = source_size(from), host = size_host();
	struct size limit = size_limit(&host, &own, most);

	if (!is_possible(from, spec, f))
		return false;
	out->size = size_exact(&asked, &own, &limit);
	out->image = size_image(&out->size, &own);
	return true;
}

/*
 * What a VM may be charged with, in parts as large as its RAM: RAM itself; once its template's
 * image when it writes one; or the layers of its forks: up to two that newer ones hide, the one
 * that is being made, the one that several become, and those that only its children still have.
 */
#define BUILDS_MEMORY 2u
#define FORKED_MEMORY 8u

struct vm_spec size_vm_spec(const struct size *size, bool builds)
{
	uint64_t ram = (uint64_t)size->ram_mib << 20, own = 256u << 20;

	return (struct vm_spec){.vcpus = size->vcpus,
				.ram_mib = size->ram_mib,
				.memory_max = builds ? BUILDS_MEMORY * ram + 2 * own
						     : FORKED_MEMORY * ram + own};
}

struct vm_spec size_shell_spec(const struct core *c)
{
	struct size host = size_host(), most = *template_size(c->def);
	struct sizes sizes;

	sizes_ahead(&sizes, &c->config, template_size(c->def), &host);
	for (size_t i = 0; i < sizes.n; i++)
		most.ram_mib = max_u32(most.ram_mib, sizes.all[i].ram_mib);
	if (config_sizes_auto(&c->config))
		most.ram_mib = max_u32(most.ram_mib, host.ram_mib);
	return size_vm_spec(&most, false);
}

static bool read_meminfo(const char *text, const char *name, uint64_t *kib)
{
	const char *at = strstr(text, name);

	return at && sscanf(at + strlen(name), " %lu", kib) == 1;
}

bool host_memory_low(void)
{
	char text[2048];
	uint64_t total, available;
	scoped_fd int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (len <= 0)
		return false;
	text[len] = 0;
	return read_meminfo(text, "MemTotal:", &total) &&
	       read_meminfo(text, "MemAvailable:", &available) && available < total / 32;
}

bool disk_is_full(const char *state_dir)
{
	struct statvfs fs;

	return statvfs(state_dir, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < DISK_LEAST;
}

/* As of the last look, which is of the start at first. */
bool host_disk_low(const struct core *c)
{
	uint64_t bytes = c->watched.disk_free_bytes;

	return bytes && bytes < DISK_AHEAD;
}

void failure_set(struct failure *f, int status, const char *code, unsigned retry_after,
		 const char *format, ...)
{
	va_list args;

	f->status = status;
	f->code = code;
	f->retry_after = retry_after;
	va_start(args, format);
	vsnprintf(f->text, sizeof(f->text), format, args);
	va_end(args);
}

void failure_not_found(struct failure *f, const char *id)
{
	failure_set(f, 404, "not_found", 0, "there is no sandbox %.40s", id);
}
