// SPDX-License-Identifier: Apache-2.0
#include "vmm/config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "base/num.h"

struct option {
	const char *name;
	uint32_t min, max, value;
	bool is_flag, needed, given;
};

enum { VCPUS, RAM_MIB, KVM_FD, CTL_FD, PROC_FD, TAP_FD, SLOT, CID, DISK_BYTES_S, DISK_OPS_S };
enum { DEBUG_SERIAL = DISK_OPS_S + 1, IPV6, OPTIONS };

#define NO_FD UINT32_MAX /* becomes -1 */

/* CIDs 0 to 2 are reserved: hypervisor, loopback and host. */
static const struct option all_options[OPTIONS] = {
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
	[DEBUG_SERIAL] = {"--debug-serial", .is_flag = true},
	[IPV6] = {"--ipv6", .is_flag = true},
};

static int set_number(struct option *o, const char *text, struct err *e)
{
	if (o->given)
		return err_say(e, EINVAL, "%s is given twice", o->name);
	if (!text)
		return err_say(e, EINVAL, "%s needs a number", o->name);
	if (!number_parse(text, o->min, o->max, &o->value))
		return err_say(e, EINVAL, "%s takes a number from %u to %u, not \"%s\"", o->name,
			       o->min, o->max, text);
	o->given = true;
	return 0;
}

static struct option *find(struct option *options, const char *name)
{
	for (size_t i = 0; i < OPTIONS; i++)
		if (!strcmp(options[i].name, name))
			return &options[i];
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

static int read_arguments(struct option *options, int argc, char *const *argv, struct err *e)
{
	for (int i = 1; i < argc; i++) {
		struct option *o = find(options, argv[i]);
		int r = 0;

		if (!o)
			return err_say(e, EINVAL, "\"%s\" is not an option of ramet-vmm", argv[i]);
		if (o->is_flag)
			o->value = true;
		else
			r = set_number(o, ++i < argc ? argv[i] : NULL, e);
		if (r)
			return r;
	}
	for (size_t i = 0; i < OPTIONS; i++)
		if (options[i].needed && !options[i].given)
			return err_say(e, EINVAL, "%s is missing", options[i].name);
	return 0;
}

int vm_config_parse(struct vm_config *out, int argc, char *const *argv, struct err *e)
{
	struct option n[OPTIONS];
	int r;

	memcpy(n, all_options, sizeof(n));
	r = read_arguments(n, argc, argv, e);
	if (!r)
		r = check_kvm_fd((int)n[KVM_FD].value, e);
	if (!r)
		r = check_ctl_fd((int)n[CTL_FD].value, e);
	if (!r)
		r = check_proc_fd((int)n[PROC_FD].value, e);
	if (!r)
		r = check_tap_fd((int)n[TAP_FD].value, e);
	if (!r && n[RAM_MIB].value % 2)
		r = err_say(e, EINVAL, "--ram-mib takes an even number, not %u", n[RAM_MIB].value);
	if (r)
		return r;
	*out = (struct vm_config){
		.vcpus = n[VCPUS].value,
		.ram_mib = n[RAM_MIB].value,
		.slot = n[SLOT].value,
		.cid = n[CID].value,
		.kvm_fd = (int)n[KVM_FD].value,
		.ctl_fd = (int)n[CTL_FD].value,
		.proc_fd = (int)n[PROC_FD].value,
		.tap_fd = (int)n[TAP_FD].value,
		.disk_bytes_s = n[DISK_BYTES_S].value,
		.disk_ops_s = n[DISK_OPS_S].value,
		.ipv6 = n[IPV6].value,
		.debug_serial = n[DEBUG_SERIAL].value,
	};
	return 0;
}
