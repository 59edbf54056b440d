// SPDX-License-Identifier: Apache-2.0
#include "vmm/config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "base/fd.h"

struct option_number {
	const char *name;
	uint64_t min, max;
	uint64_t value;
	bool needed, given;
};

enum { VCPUS, RAM_MIB, KVM_FD, CTL_FD, PROC_FD, TAP_FD, SLOT, CID, DISK_BYTES_S, DISK_OPS_S };

#define NO_FD ((uint64_t)-1) /* becomes -1 */

/* CIDs 0 to 2 are reserved: hypervisor, loopback and host. */
static const struct option_number numbers[] = {
	[VCPUS] = {"--vcpus", 1, CONFIG_VCPUS_MAX, .needed = true},
	[RAM_MIB] = {"--ram-mib", CONFIG_RAM_MIB_MIN, CONFIG_RAM_MIB_MAX, .needed = true},
	[KVM_FD] = {"--kvm-fd", 3, 1023, .needed = true},
	[CTL_FD] = {"--ctl-fd", 3, 1023, .needed = true},
	[PROC_FD] = {"--proc-fd", 3, 1023, .value = NO_FD},
	[TAP_FD] = {"--tap-fd", 3, 1023, .value = NO_FD},
	[SLOT] = {"--slot", 0, UINT32_MAX, .needed = true},
	[CID] = {"--cid", 3, UINT32_MAX - 1, .value = 3},
	[DISK_BYTES_S] = {"--disk-bytes-s", 0, UINT32_MAX, .value = 0},
	[DISK_OPS_S] = {"--disk-ops-s", 0, UINT32_MAX, .value = 0},
};

static int set_number(struct option_number *n, const char *text, struct err *e)
{
	char *end;

	if (n->given)
		return err_say(e, EINVAL, "%s is given twice", n->name);
	if (!text)
		return err_say(e, EINVAL, "%s needs a number", n->name);
	errno = 0;
	n->value = strtoull(text, &end, 10);
	if (errno || *end || text[0] < '0' || text[0] > '9' || n->value < n->min ||
	    n->value > n->max)
		return err_say(e, EINVAL, "%s takes a number from %llu to %llu, not \"%s\"",
			       n->name, (unsigned long long)n->min, (unsigned long long)n->max,
			       text);
	n->given = true;
	return 0;
}

static const char *const flags[] = {"--debug-serial", "--ipv6"};
enum { DEBUG_SERIAL, IPV6, FLAGS };

static bool set_flag(bool given[FLAGS], const char *name)
{
	for (size_t i = 0; i < FLAGS; i++)
		if (!strcmp(flags[i], name))
			return given[i] = true;
	return false;
}

static struct option_number *find(struct option_number *all, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(all[i].name, name))
			return &all[i];
	return NULL;
}

static int check_kvm_fd(int fd, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode))
		return err_say(e, EBADF, "--kvm-fd %d is not an open device", fd);
	return 0;
}

static int check_ctl_fd(int fd, struct err *e)
{
	int type = 0, listening = 0;
	socklen_t len = sizeof(int);

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return err_say(e, EBADF, "--ctl-fd %d is not a socket", fd);
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0 ||
	    type != SOCK_SEQPACKET || !listening)
		return err_say(e, EBADF, "--ctl-fd %d is not a listening SOCK_SEQPACKET socket",
			       fd);
	return 0;
}

static int check_proc_fd(int fd, struct err *e)
{
	struct statfs fs;

	if (fd >= 0 && (fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC))
		return err_say(e, EBADF, "--proc-fd %d is not on a procfs", fd);
	return 0;
}

/* A tap is a character device. Tests pass a socket that keeps message boundaries. */
static int check_tap_fd(int fd, struct err *e)
{
	struct stat st;
	int status;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) < 0 || !(S_ISCHR(st.st_mode) || S_ISSOCK(st.st_mode)))
		return err_say(e, EBADF, "--tap-fd %d is not a tap", fd);
	status = fcntl(fd, F_GETFL);
	if (status < 0 || (status & O_ACCMODE) != O_RDWR || !(status & O_NONBLOCK))
		return err_say(e, EBADF,
			       "--tap-fd %d must be non-blocking, for reading and writing", fd);
	return 0;
}

static int read_arguments(struct option_number *n, bool given_flags[FLAGS], int argc,
			  char *const *argv, struct err *e)
{
	for (int i = 1; i < argc; i++) {
		struct option_number *given = find(n, ARRAY_LEN(numbers), argv[i]);
		int r;

		if (set_flag(given_flags, argv[i]))
			continue;
		if (!given)
			return err_say(e, EINVAL, "\"%s\" is not an option of ramet-vmm", argv[i]);
		r = set_number(given, i + 1 < argc ? argv[i + 1] : NULL, e);
		if (r)
			return r;
		i++;
	}
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		if (n[i].needed && !n[i].given)
			return err_say(e, EINVAL, "%s is missing", n[i].name);
	return 0;
}

int vm_config_parse(struct vm_config *out, int argc, char *const *argv, struct err *e)
{
	struct option_number n[ARRAY_LEN(numbers)];
	bool given_flags[FLAGS] = {false};
	int r;

	memcpy(n, numbers, sizeof(n));
	r = read_arguments(n, given_flags, argc, argv, e);
	if (!r)
		r = check_kvm_fd((int)n[KVM_FD].value, e);
	if (!r)
		r = check_ctl_fd((int)n[CTL_FD].value, e);
	if (!r)
		r = check_proc_fd((int)n[PROC_FD].value, e);
	if (!r)
		r = check_tap_fd((int)n[TAP_FD].value, e);
	if (!r && n[RAM_MIB].value % 2)
		r = err_say(e, EINVAL, "--ram-mib takes an even number, not %llu",
			    (unsigned long long)n[RAM_MIB].value);
	if (r)
		return r;
	*out = (struct vm_config){
		.vcpus = (uint32_t)n[VCPUS].value,
		.ram_mib = (uint32_t)n[RAM_MIB].value,
		.slot = (uint32_t)n[SLOT].value,
		.cid = n[CID].value,
		.kvm_fd = (int)n[KVM_FD].value,
		.ctl_fd = (int)n[CTL_FD].value,
		.proc_fd = (int)n[PROC_FD].value,
		.tap_fd = (int)n[TAP_FD].value,
		.disk_bytes_s = (uint32_t)n[DISK_BYTES_S].value,
		.disk_ops_s = (uint32_t)n[DISK_OPS_S].value,
		.ipv6 = given_flags[IPV6],
		.debug_serial = given_flags[DEBUG_SERIAL],
	};
	return 0;
}
