// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/operator/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text-file.h"
#include "base/meminfo.h"
#include "base/word.h"
#include "orchestrator/operator/doctor-internal.h"
#include "orchestrator/operator/posture.h"
#include "orchestrator/warden/limits.h"

#define LINE_BYTES    4096 /* the flags of a CPU are one line */
#define TEXT_BYTES    512
#define MEMORY_LEAST  (2ull << 30)
#define DISK_LEAST    (10ull << 30)
#define FLUSH_SLOW_NS 50000000ull
#define FLUSHES	      5
#define KERNEL_SCAN   607 /* 6.7: PAGEMAP_SCAN, Landlock for TCP */
#define KERNEL_LEAST  601 /* 6.1, that of Debian 12 */
#define FS_XFS_MAGIC  0x58465342
#define CONTROLLERS   "/sys/fs/cgroup/cgroup.controllers"
#define VMS_UNIT      "/sys/fs/cgroup" LIMITS_UNIT_CGROUP
#define FORMER_CGROUP "/sys/fs/cgroup/ramet/ramet"

/* --- helpers --------------------------------------------------------------------------------- */

void doctor_say(const struct doctor_host *h, const char *check, enum doctor_result result,
		const char *remedy, const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	const struct doctor_finding finding = {check, result, text, remedy};
	h->found(h->arg, &finding);
}

static bool path_of(const struct doctor_host *h, const char *path, char out[static PATH_MAX])
{
	return snprintf(out, PATH_MAX, "%s%s", h->root, path) < PATH_MAX;
}

FILE *doctor_open(const struct doctor_host *h, const char *path)
{
	char whole[PATH_MAX];

	return path_of(h, path, whole) ? fopen(whole, "re") : NULL;
}

bool doctor_exists(const struct doctor_host *h, const char *path)
{
	char whole[PATH_MAX];

	return path_of(h, path, whole) && access(whole, F_OK) == 0;
}

bool doctor_line(const struct doctor_host *h, const char *path, char *out, size_t size)
{
	char whole[PATH_MAX];

	out[0] = '\0';
	if (path_of(h, path, whole))
		text_file_read(AT_FDCWD, whole, out, size);
	out[strcspn(out, "\n")] = '\0';
	return out[0];
}

/* Reads the first line of a file that begins with `name`, from the value on. */
static bool value_of(const struct doctor_host *h, const char *path, const char *name,
		     char out[static LINE_BYTES])
{
	FILE *f = doctor_open(h, path);
	size_t len = strlen(name);
	bool found = false;

	while (f && !found && fgets(out, LINE_BYTES, f))
		found = strncmp(out, name, len) == 0 && strchr(" \t:", out[len]);
	if (f)
		fclose(f);
	if (!found) {
		out[0] = '\0';
		return false;
	}
	const char *value = out + len + strspn(out + len, " \t:");
	memmove(out, value, strlen(value) + 1);
	out[strcspn(out, "\n")] = '\0';
	return true;
}

/* Warnings of one check. */
struct warnings {
	const struct doctor_host *host;
	const char *check, *remedy;
	unsigned n;
};

static void say_warning(void *arg, const char *sentence)
{
	struct warnings *w = arg;

	w->n++;
	doctor_say(w->host, w->check, DOCTOR_WARNING, w->remedy, "%s", sentence);
}

/* --- KVM and CPU ------------------------------------------------------------------------------ */

static void check_kvm(const struct doctor_host *h, const char *flags)
{
	char path[PATH_MAX];
	bool pvm = doctor_exists(h, "/sys/module/kvm_pvm");
	bool virtual = has_word(flags, "vmx") || has_word(flags, "svm");

	if (!doctor_exists(h, "/dev/kvm")) {
		if (virtual)
			doctor_say(h, "kvm", DOCTOR_PROBLEM,
				   "`modprobe kvm_intel` or `modprobe kvm_amd`; if that fails, the "
				   "log "
				   "of the kernel (dmesg) has the reason",
				   "there is no /dev/kvm, although the CPU has virtualisation");
		else
			doctor_say(h, "kvm", DOCTOR_PROBLEM,
				   "turn on VT-x or SVM in the firmware; in a VM, turn on nested "
				   "virtualisation, or choose a type of machine that has it",
				   "there is no /dev/kvm, and the CPU shows no virtualisation");
		return;
	}
	if (!path_of(h, "/dev/kvm", path) || access(path, R_OK | W_OK) < 0)
		doctor_say(h, "kvm", DOCTOR_PROBLEM,
			   "run this command as root; in a container, pass /dev/kvm in",
			   "/dev/kvm cannot be opened: %s", strerror(errno));
	else if (pvm)
		doctor_say(h, "kvm", DOCTOR_PROBLEM,
			   "use a host with VT-x, SVM or nested virtualisation",
			   "KVM is PVM, which needs a guest kernel of its own that Ramet does not "
			   "have");
	else
		doctor_say(h, "kvm", DOCTOR_OK, NULL, "/dev/kvm can be opened");
}

static void check_nested(const struct doctor_host *h, const char *flags)
{
	char vendor[TEXT_BYTES];

	if (!has_word(flags, "hypervisor")) {
		doctor_say(h, "nested", DOCTOR_OK, NULL, "this host is not a VM");
		return;
	}
	doctor_line(h, "/sys/class/dmi/id/sys_vendor", vendor, sizeof(vendor));
	doctor_say(h, "nested", DOCTOR_WARNING,
		   "use bare metal where speed matters; the provider must not migrate the VM while "
		   "sandboxes run",
		   "this host is itself a VM (%.64s): its VMs are slower",
		   vendor[0] ? vendor : "unknown vendor");
}

static void check_cpu(const struct doctor_host *h, const char *flags)
{
	if (has_word(flags, "vmx") && !has_word(flags, "ept"))
		doctor_say(
			h, "cpu", DOCTOR_PROBLEM,
			"use another CPU; in a VM, let its hypervisor offer EPT",
			"the CPU has no second level of page tables (ept), without which VMs are "
			"many times slower");
	else if (has_word(flags, "svm") && !has_word(flags, "npt"))
		doctor_say(
			h, "cpu", DOCTOR_PROBLEM,
			"use another CPU; in a VM, let its hypervisor offer NPT",
			"the CPU has no second level of page tables (npt), without which VMs are "
			"many times slower");
	else
		doctor_say(h, "cpu", DOCTOR_OK, NULL, "the CPU has what VMs need");
}

static void check_isolation(const struct doctor_host *h)
{
	struct warnings w = {.host = h,
			     .check = "isolation",
			     .remedy = "hardening.md explains it: \"The CPU's weaknesses\""};
	char sys[PATH_MAX];

	if (!path_of(h, "/sys", sys))
		return;
	posture_check(sys, h->cores_are_apart, say_warning, &w);
	if (w.n == 0)
		doctor_say(h, "isolation", DOCTOR_OK, NULL,
			   "no weakness of CPU, SMT or KSM lets a VM observe another");
}

/* --- kernel ----------------------------------------------------------------------------------- */

static void check_kernel(const struct doctor_host *h)
{
	char text[TEXT_BYTES];
	unsigned major = 0, minor = 0;

	doctor_line(h, "/proc/sys/kernel/osrelease", text, sizeof(text));
	if (sscanf(text, "%u.%u", &major, &minor) != 2)
		doctor_say(h, "kernel", DOCTOR_WARNING, "use Linux 6.1 or later",
			   "its version cannot be read");
	else if (major * 100 + minor < KERNEL_LEAST)
		doctor_say(h, "kernel", DOCTOR_WARNING, "use Linux 6.1 or later",
			   "Linux %.64s is older than what Ramet is tested with", text);
	else if (major * 100 + minor < KERNEL_SCAN)
		doctor_say(h, "kernel", DOCTOR_WARNING, "use the kernel of Debian's backports",
			   "Linux %.64s works, but from 6.7 on forks are faster and the service's "
			   "connections are restricted further",
			   text);
	else
		doctor_say(h, "kernel", DOCTOR_OK, NULL, "Linux %.64s", text);
}

static void check_landlock(const struct doctor_host *h)
{
	char text[TEXT_BYTES];

	doctor_line(h, "/sys/kernel/security/lsm", text, sizeof(text));
	for (char *comma = text; (comma = strchr(comma, ',')); *comma = ' ')
		;
	if (has_word(text, "landlock"))
		doctor_say(h, "landlock", DOCTOR_OK, NULL, "the service can be confined");
	else
		doctor_say(
			h, "landlock", DOCTOR_WARNING,
			"boot with lsm=landlock,... and the modules that /sys/kernel/security/lsm "
			"names; mount securityfs if that file is missing",
			"Landlock, which confines the service further, is off");
}

/* --- cgroups ---------------------------------------------------------------------------------- */

static void check_controllers(const struct doctor_host *h)
{
	static const char *const needed[] = {"memory", "cpu", "pids"};
	char text[LINE_BYTES];

	if (!doctor_exists(h, CONTROLLERS)) {
		doctor_say(
			h, "cgroup", DOCTOR_PROBLEM,
			"boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line",
			"cgroup v2 is not mounted at /sys/fs/cgroup, so VMs cannot be limited");
		return;
	}
	if (!doctor_line(h, CONTROLLERS, text, sizeof(text))) {
		doctor_say(h, "cgroup", DOCTOR_PROBLEM,
			   "remove cgroup_disable= and mounts of cgroup v1, and boot with "
			   "systemd.unified_cgroup_hierarchy=1; in a container, give it a cgroup "
			   "with controllers",
			   "cgroup v2 is mounted at /sys/fs/cgroup, but no controller is available "
			   "there, so VMs cannot be limited");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(needed); i++)
		if (!has_word(text, needed[i])) {
			doctor_say(h, "cgroup", DOCTOR_PROBLEM,
				   "remove cgroup_disable= and mounts of cgroup v1, and boot with "
				   "systemd.unified_cgroup_hierarchy=1",
				   "cgroup v2 has no %s controller, so VMs cannot be limited",
				   needed[i]);
			return;
		}
	if (has_word(text, "io"))
		doctor_say(h, "cgroup", DOCTOR_OK, NULL, "cgroup v2 has memory, cpu, pids and io");
	else
		doctor_say(h, "cgroup", DOCTOR_WARNING,
			   "use a kernel with CONFIG_BLK_CGROUP; the setting disk_ops_s still "
			   "limits VMs",
			   "cgroup v2 has no io controller, so no VM has priority on a busy disk");
}

static void check_delegation(const struct doctor_host *h)
{
	if (doctor_exists(h, FORMER_CGROUP))
		doctor_say(
			h, "delegation", DOCTOR_WARNING,
			"`systemctl restart ramet` when no sandbox runs: it ends them",
			"VMs that an earlier version started are in /ramet, below the root cgroup, "
			"which belongs to systemd");
	else if (doctor_exists(h, VMS_UNIT))
		doctor_say(h, "delegation", DOCTOR_OK, NULL,
			   "systemd leaves the cgroup of ramet-vms.service to VMs");
	else if (doctor_exists(h, "/run/systemd/system"))
		doctor_say(h, "delegation", DOCTOR_WARNING,
			   "`systemctl start ramet-vms`, then `systemctl restart ramet` when no "
			   "sandbox "
			   "runs",
			   "ramet-vms.service, whose cgroup is for VMs, does not run");
	else
		doctor_say(h, "delegation", DOCTOR_OK, NULL,
			   "systemd does not run here, so rametd may use every cgroup");
}

/* --- clock and memory --------------------------------------------------------------------------
 */

static void check_clock(const struct doctor_host *h, const char *flags)
{
	char source[TEXT_BYTES];

	doctor_line(h, "/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
		    sizeof(source));
	bool steady = has_word(flags, "constant_tsc") && has_word(flags, "nonstop_tsc");
	if (strcmp(source, "tsc") == 0 && steady)
		doctor_say(h, "tsc", DOCTOR_OK, NULL,
			   "the TSC is steady, and it is the clock source");
	else if (strcmp(source, "tsc") == 0 || strcmp(source, "kvm-clock") == 0)
		doctor_say(h, "tsc", DOCTOR_WARNING,
			   "in a VM, let its hypervisor offer an invariant TSC",
			   "the clock source is %.32s, but the CPU does not promise a steady TSC: "
			   "clocks of guests may jump when they are restored",
			   source);
	else
		doctor_say(h, "tsc", DOCTOR_WARNING,
			   "the log of the kernel (dmesg) says why the TSC is not used; look for "
			   "firmware updates",
			   "the clock source is %.32s, which makes the clocks of guests slow",
			   source[0] ? source : "unknown");
}

static void check_memory(const struct doctor_host *h)
{
	char text[LINE_BYTES], path[PATH_MAX];
	struct meminfo memory = {0};

	if (path_of(h, "/proc/meminfo", path))
		meminfo_read(path, &memory);
	doctor_line(h, "/proc/sys/vm/overcommit_memory", text, sizeof(text));
	if (strcmp(text, "2") == 0)
		doctor_say(
			h, "memory", DOCTOR_PROBLEM,
			"`sysctl vm.overcommit_memory=0`, and in /etc/sysctl.d",
			"vm.overcommit_memory is 2: the kernel refuses the address space of VMs");
	else if (memory.total < MEMORY_LEAST)
		doctor_say(h, "memory", DOCTOR_WARNING, "use a host with 4 GiB or more",
			   "the host has %" PRIu64 " MiB: enough for a few sandboxes only",
			   memory.total >> 20);
	else if (meminfo_is_low(&memory))
		doctor_say(h, "memory", DOCTOR_PROBLEM,
			   "end other programs, or sandboxes: no VM starts with less than a 32nd "
			   "available",
			   "only %" PRIu64 " of %" PRIu64 " MiB are available",
			   memory.available >> 20, memory.total >> 20);
	else
		doctor_say(h, "memory", DOCTOR_OK, NULL,
			   "%" PRIu64 " of %" PRIu64 " MiB are available", memory.available >> 20,
			   memory.total >> 20);
}

void doctor_check_files(const struct doctor_host *h)
{
	char flags[LINE_BYTES];

	value_of(h, "/proc/cpuinfo", "flags", flags);
	check_kvm(h, flags);
	check_nested(h, flags);
	check_cpu(h, flags);
	check_isolation(h);
	check_kernel(h);
	check_landlock(h);
	check_controllers(h);
	check_delegation(h);
	check_clock(h, flags);
	check_memory(h);
	doctor_check_firewall(h);
}

/* --- disk --------------------------------------------------------------------------------------
 */

/* Opens an unnamed file in the folder. */
static int open_unnamed(const char *dir)
{
	return open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* Returns the shortest time that a write and its flush took; 0 if they fail. */
static uint64_t time_flush(int fd)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < FLUSHES; i++) {
		uint64_t begin = now_ns();

		if (pwrite(fd, "ramet", 5, 0) != 5 || fdatasync(fd) < 0)
			return 0;
		uint64_t took = now_ns() - begin;
		least = took < least ? took : least;
	}
	return least;
}

static const char *file_system_name(const struct statfs *fs)
{
	switch ((unsigned long)fs->f_type) {
	case EXT4_SUPER_MAGIC:
		return "ext4";
	case FS_XFS_MAGIC:
		return "XFS";
	case BTRFS_SUPER_MAGIC:
		return "Btrfs";
	case TMPFS_MAGIC:
		return "tmpfs";
	case OVERLAYFS_SUPER_MAGIC:
		return "overlayfs";
	case NFS_SUPER_MAGIC:
		return "NFS";
	default:
		return "another file system";
	}
}

/* Shortens `path` to its nearest parent that exists. */
static void nearest(char *path)
{
	while (access(path, F_OK) < 0) {
		char *slash = strrchr(path, '/');

		if (!slash || slash == path) {
			strcpy(path, "/");
			return;
		}
		*slash = '\0';
	}
}

static void check_space(const struct doctor_host *h, const char *path, const struct statfs *fs)
{
	uint64_t available = (uint64_t)fs->f_bavail * (uint64_t)fs->f_bsize;
	const char *name = file_system_name(fs);

	if (available < DISK_LEAST)
		doctor_say(h, "disk", DOCTOR_WARNING,
			   "free some, or set state_dir to a larger disk",
			   "%" PRIu64 " MiB are free in %.200s (%s)", available >> 20, path, name);
	else
		doctor_say(h, "disk", DOCTOR_OK, NULL, "%" PRIu64 " GiB are free in %.200s (%s)",
			   available >> 30, path, name);
}

static void check_reflink(const struct doctor_host *h, int fd, const char *path)
{
	scoped_fd int copy = open_unnamed(path);

	if (copy >= 0 && ioctl(copy, FICLONE, fd) == 0)
		doctor_say(h, "reflink", DOCTOR_OK, NULL, "files can share their blocks");
	else
		doctor_say(
			h, "reflink", DOCTOR_OK, NULL,
			"files cannot share their blocks, so copies of disks take space; XFS and "
			"Btrfs can");
}

static void check_flush(const struct doctor_host *h, int fd)
{
	uint64_t took = time_flush(fd);

	if (took == 0)
		doctor_say(h, "flush", DOCTOR_PROBLEM, "replace the disk, or free space on it",
			   "a file cannot be written and flushed: %s", strerror(errno));
	else if (took > FLUSH_SLOW_NS)
		doctor_say(h, "flush", DOCTOR_WARNING,
			   "use an SSD, or move other programs that write to another disk",
			   "a flush takes %" PRIu64
			   " ms; each freeze and each change of a key waits for one",
			   took / 1000000);
	else
		doctor_say(h, "flush", DOCTOR_OK, NULL,
			   "a flush takes %" PRIu64 ".%03" PRIu64 " ms", took / 1000000,
			   took / 1000 % 1000);
}

static void check_disk(const struct doctor_host *h)
{
	char path[PATH_MAX];
	struct statfs fs;

	if (!path_of(h, h->config->state_dir, path))
		return;
	nearest(path);
	scoped_fd int fd = open_unnamed(path);
	if (fd < 0 || fstatfs(fd, &fs) < 0) {
		doctor_say(h, "disk", DOCTOR_PROBLEM,
			   "run this command as root; state_dir must be on a file system of this "
			   "host, "
			   "such as ext4",
			   "no file can be made in %.200s: %s", path, strerror(errno));
		return;
	}
	check_space(h, path, &fs);
	check_reflink(h, fd, path);
	check_flush(h, fd);
}

static void check_time(const struct doctor_host *h)
{
	struct timex now = {0};

	if (adjtimex(&now) == TIME_ERROR)
		doctor_say(h, "clock", DOCTOR_WARNING, "run chrony or systemd-timesyncd",
			   "the clock is not synchronised with others; guests take their time from "
			   "it");
	else
		doctor_say(h, "clock", DOCTOR_OK, NULL, "the clock is synchronised");
}

/* Checks the limits of this host, with the cgroup that ramet.service names if no setting does. */
static void check_limits(const struct doctor_host *h)
{
	struct warnings w = {.host = h,
			     .check = "limits",
			     .remedy = "capacity.md explains it: \"Limits of the host\""};
	struct config config = *h->config;

	limits_use_unit(&config, h->root);
	limits_check_host(&config, say_warning, &w);
	if (w.n == 0)
		doctor_say(h, "limits", DOCTOR_OK, NULL,
			   "no limit of the host is too small for max_vms = %u", config.max_vms);
}

void doctor_check_live(const struct doctor_host *h)
{
	check_disk(h);
	check_limits(h);
	check_time(h);
}
