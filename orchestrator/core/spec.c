// SPDX-License-Identifier: Apache-2.0
/* How large a sandbox gets, and sentences about what it can't get. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <time.h>

#include "base/fd.h"
#include "orchestrator/core/internal.h"

#define RAM_MIN_MIB   128
#define RAM_MAX_MIB   65536
#define RAM_STEP_MIB  64 /* sizes are rounded up to it: each size is a template of its own */
#define VCPUS_MAX     32
#define ROOTFS_MAX_GB 1024

bool size_equal(const struct size *a, const struct size *b)
{
	return a->vcpus == b->vcpus && a->ram_mib == b->ram_mib && a->rootfs_gb == b->rootfs_gb;
}

struct size size_default(const struct core *c)
{
	return (struct size){c->config.vcpus, c->config.ram_mib, c->config.rootfs_gb};
}

static uint32_t at_most(uint64_t value, uint64_t limit)
{
	return (uint32_t)(value < limit ? value : limit);
}

static uint32_t host_ram_mib(void)
{
	struct sysinfo info;

	if (sysinfo(&info) < 0)
		return RAM_MIN_MIB;
	return at_most((uint64_t)info.totalram * info.mem_unit / 4 * 3 >> 20, RAM_MAX_MIB);
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

static uint32_t rootfs_min_gb(const struct core *c)
{
	struct stat st;

	if (stat(c->config.rootfs, &st) < 0)
		return 1;
	return at_most(((uint64_t)st.st_size + (1u << 30) - 1) >> 30, ROOTFS_MAX_GB);
}

bool size_choose(const struct core *c, const struct sandbox_spec *spec, struct size *out,
		 struct failure *f)
{
	struct size def = size_default(c);

	*out = def;
	if (spec->vcpus)
		out->vcpus = at_most(spec->vcpus, larger(host_cpus(), def.vcpus));
	if (spec->ram_mib && spec->ram_mib < RAM_MIN_MIB) {
		failure_set(f, 400, "out_of_range", 0, "ram_mib is %u, the least is %d",
			    spec->ram_mib, RAM_MIN_MIB);
		return false;
	}
	if (spec->ram_mib) {
		uint64_t ram =
			((uint64_t)spec->ram_mib + RAM_STEP_MIB - 1) / RAM_STEP_MIB * RAM_STEP_MIB;

		if (spec->ram_mib != def.ram_mib)
			out->ram_mib =
				at_most(ram, larger(host_ram_mib() / RAM_STEP_MIB * RAM_STEP_MIB,
						    def.ram_mib));
	}
	if (spec->rootfs_gb && spec->rootfs_gb != def.rootfs_gb) {
		uint32_t least = rootfs_min_gb(c);

		if (spec->rootfs_gb < least) {
			failure_set(f, 400, "out_of_range", 0,
				    "rootfs_gb is %u, the least that holds the template is %u",
				    spec->rootfs_gb, least);
			return false;
		}
		out->rootfs_gb = at_most(spec->rootfs_gb, ROOTFS_MAX_GB);
	}
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

int64_t realtime_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void random_bytes(void *out, size_t len)
{
	/* Requests of up to 256 bytes are never cut short once the pool is ready. */
	if (getrandom(out, len, 0) != (ssize_t)len) {
		log_error("the kernel gives no random bytes");
		abort();
	}
}
