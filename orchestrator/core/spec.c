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
#include "orchestrator/core/internal.h"

#define RAM_MIN_MIB 128
#define RAM_MAX_MIB 65536
#define VCPUS_MAX   32
/* A size that is so many times larger is as good: what is not used costs nothing. */
#define RAM_NEAR    2
#define ROOTFS_NEAR 4
#define DISK_LEAST  (16u << 20)

struct size source_size(const struct source *from)
{
	return (struct size){from->vcpus, from->ram_mib, from->rootfs_gb};
}

bool size_equal(const struct size *a, const struct size *b)
{
	return a->vcpus == b->vcpus && a->ram_mib == b->ram_mib && a->rootfs_gb == b->rootfs_gb;
}

static uint32_t at_most(uint64_t value, uint64_t limit)
{
	return (uint32_t)(value < limit ? value : limit);
}

uint32_t size_ram_most(void)
{
	struct sysinfo info;

	if (sysinfo(&info) < 0)
		return RAM_MIN_MIB;
	uint64_t most = (uint64_t)info.totalram * info.mem_unit / 4 * 3 >> 20;
	return at_most(most, RAM_MAX_MIB) / RAM_STEP_MIB * RAM_STEP_MIB;
}

/* Those that this process, and so its VMs, may run on: others may be kept for something else. */
static uint32_t host_cpus(void)
{
	cpu_set_t own;

	if (sched_getaffinity(0, sizeof(own), &own) < 0) /* more CPUs than the set holds */
		return VCPUS_MAX;
	return at_most((uint64_t)CPU_COUNT(&own), VCPUS_MAX);
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t ram_limit(const struct source *from, const struct size *most)
{
	return at_most(larger(size_ram_most(), from->ram_mib), most->ram_mib);
}

/* --- what there is an image of, or will be ---------------------------------------------------- */

static size_t prepared_sizes(const struct core *c, const struct source *from,
			     const struct size *most, struct size out[CONFIG_SIZES_MAX + 1])
{
	struct config_size sizes[CONFIG_SIZES_MAX];
	struct err e;
	int listed = config_sizes(&c->config, sizes, &e);
	size_t n = 0;

	if (from->ram_mib <= most->ram_mib)
		out[n++] = source_size(from);
	for (int i = 0; i < listed; i++)
		if (sizes[i].ram_mib <= ram_limit(from, most) &&
		    larger(sizes[i].rootfs_gb, from->rootfs_gb) <=
			    larger(most->rootfs_gb, from->rootfs_gb))
			out[n++] = (struct size){sizes[i].vcpus, sizes[i].ram_mib,
						 larger(sizes[i].rootfs_gb, from->rootfs_gb)};
	return n;
}

static bool is_near(uint32_t asked, uint32_t candidate, uint32_t factor)
{
	return candidate >= asked && candidate <= factor * asked;
}

static bool is_smaller(const struct size *a, const struct size *b)
{
	return a->ram_mib != b->ram_mib ? a->ram_mib < b->ram_mib : a->rootfs_gb < b->rootfs_gb;
}

/* The least of them that serves what was asked for; NULL when none is near. */
static const struct size *find_near(const struct size *sizes, size_t n, const struct size *asked)
{
	const struct size *best = NULL;

	for (size_t i = 0; i < n; i++)
		if (sizes[i].vcpus == asked->vcpus &&
		    is_near(asked->ram_mib, sizes[i].ram_mib, RAM_NEAR) &&
		    is_near(asked->rootfs_gb, sizes[i].rootfs_gb, ROOTFS_NEAR) &&
		    (!best || is_smaller(&sizes[i], best)))
			best = &sizes[i];
	return best;
}

/* The one with the largest disk of those that are as asked for, but for a disk that can grow. */
static const struct size *find_to_grow(const struct size *sizes, size_t n, const struct size *asked)
{
	const struct size *best = NULL;

	for (size_t i = 0; i < n; i++)
		if (sizes[i].vcpus == asked->vcpus &&
		    is_near(asked->ram_mib, sizes[i].ram_mib, RAM_NEAR) &&
		    sizes[i].rootfs_gb <= asked->rootfs_gb &&
		    (!best || sizes[i].ram_mib < best->ram_mib ||
		     (sizes[i].ram_mib == best->ram_mib && sizes[i].rootfs_gb > best->rootfs_gb)))
			best = &sizes[i];
	return best;
}

static void round_to_prepared(const struct core *c, const struct source *from,
			      const struct size *most, struct sized_choice *out)
{
	struct size sizes[CONFIG_SIZES_MAX + 1];
	size_t n = prepared_sizes(c, from, most, sizes);
	const struct size *found = find_near(sizes, n, &out->size);
	uint32_t ram = out->size.ram_mib;

	if (found) {
		out->size = out->image = *found;
		return;
	}
	found = find_to_grow(sizes, n, &out->size);
	if (found)
		out->size.ram_mib = found->ram_mib;
	else
		out->size.ram_mib =
			at_most((uint64_t)(ram + RAM_STEP_MIB - 1) / RAM_STEP_MIB * RAM_STEP_MIB,
				ram_limit(from, most));
	out->image = out->size;
	out->image.rootfs_gb = found ? found->rootfs_gb : from->rootfs_gb;
}

/* --- what was asked for ----------------------------------------------------------------------- */

/* No less than the template has: its file system is there already. */
static bool choose_rootfs(const struct source *from, uint32_t asked, const struct size *most,
			  uint32_t *out, struct failure *f)
{
	uint32_t least = asked < from->rootfs_gb ? source_least_gb(from) : 0;

	if (asked < least) {
		failure_set(f, 400, "out_of_range", 0,
			    "rootfs_gb is %u, the least that holds the template is %u", asked,
			    least);
		return false;
	}
	asked = at_most(asked, at_most(most->rootfs_gb, SOURCE_ROOTFS_MAX_GB));
	*out = larger(asked, from->rootfs_gb);
	return true;
}

bool size_choose(const struct core *c, const struct source *from, const struct sandbox_spec *spec,
		 const struct size *most, struct sized_choice *out, struct failure *f)
{
	struct size *size = &out->size;

	*size = source_size(from);
	if (spec->vcpus)
		size->vcpus = at_most(spec->vcpus, larger(host_cpus(), from->vcpus));
	if (spec->ram_mib && spec->ram_mib < RAM_MIN_MIB) {
		failure_set(f, 400, "out_of_range", 0, "ram_mib is %u, the least is %d",
			    spec->ram_mib, RAM_MIN_MIB);
		return false;
	}
	if (spec->ram_mib)
		size->ram_mib = spec->ram_mib;
	size->ram_mib = at_most(size->ram_mib, ram_limit(from, most));
	if (spec->rootfs_gb && !choose_rootfs(from, spec->rootfs_gb, most, &size->rootfs_gb, f))
		return false;
	round_to_prepared(c, from, most, out);
	return true;
}

struct vm_spec size_vm_spec(const struct size *size, bool builds)
{
	uint64_t ram = (uint64_t)size->ram_mib << 20, own = 256u << 20;

	return (struct vm_spec){.vcpus = size->vcpus,
				.ram_mib = size->ram_mib,
				/* A VM that was forked is charged with its image, too. */
				.memory_max = 2 * ram + (builds ? 2 * own : own)};
}

struct vm_spec size_shell_spec(const struct core *c)
{
	const struct size size = {.vcpus = c->config.vcpus, .ram_mib = c->config.ram_mib};
	struct vm_spec spec = size_vm_spec(&size, false);
	struct config_size sizes[CONFIG_SIZES_MAX];
	uint32_t most = size_ram_most();
	struct err e;
	int n = config_sizes(&c->config, sizes, &e);

	for (int i = 0; i < n; i++)
		if (sizes[i].ram_mib <= most)
			spec.ram_mib = larger(spec.ram_mib, sizes[i].ram_mib);
	return spec;
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

bool host_disk_full(const struct config *config)
{
	struct statvfs fs;

	return statvfs(config->state_dir, &fs) == 0 &&
	       (uint64_t)fs.f_bavail * fs.f_frsize < DISK_LEAST;
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
