// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/jail-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/text-file.h"
#include "orchestrator/warden/account.h"
#include "orchestrator/warden/jail.h"
#include "orchestrator/warden/net.h"

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE	     62
#define PR_SCHED_CORE_CREATE 1
#endif
#ifndef PR_SCHED_CORE_SCOPE_THREAD_GROUP
#define PR_SCHED_CORE_SCOPE_THREAD_GROUP 1
#endif

#define PROGRAM_FD JAIL_FDS
#define STATUS_FD  (JAIL_FDS + 1)

static int set_session(struct err *e)
{
	sigset_t none;

	sigemptyset(&none);
	if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
		return err_set(e, errno, "unblock signals");
	if (setsid() < 0)
		return err_set(e, errno, "create a session");
	/* CLONE_NEWCGROUP as a flag of clone would make the warden's cgroup the root of the
	 * namespace. */
	if (unshare(CLONE_NEWCGROUP) < 0)
		return err_set(e, errno, "create a cgroup namespace");
	if (sethostname("vm", 2) < 0)
		return err_set(e, errno, "set the host name");
	return 0;
}

static int set_limits(struct err *e)
{
	static const struct {
		int what;
		rlim_t most;
		const char *name;
	} limits[] = {
		/* 32 vCPUs, 100 layers, queues and timers, and a socket for each connection. */
		{RLIMIT_NOFILE, 2048, "descriptors"},
		{RLIMIT_CORE, 0, "core files"},
		{RLIMIT_MEMLOCK, 8u << 20, "locked memory"},
		{RLIMIT_MSGQUEUE, 0, "message queues"},
		{RLIMIT_RTPRIO, 0, "real-time priority"},
		{RLIMIT_NICE, 0, "priority"},
		/* The largest disk (1 TiB) in one layer, with its table. */
		{RLIMIT_FSIZE, (1ull << 40) + (1ull << 30), "the size of a file"},
	};

	for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
		struct rlimit l = {limits[i].most, limits[i].most};

		if (setrlimit(limits[i].what, &l) < 0)
			return err_set(e, errno, "limit %s", limits[i].name);
	}
	return 0;
}

/*
 * Returns the root of a procfs that is mounted nowhere, showing only this namespace's processes, or
 * -errno. The VM program opens its own page map through it and closes it.
 */
static int make_proc(struct err *e)
{
	scoped_fd int fs = fsopen("proc", FSOPEN_CLOEXEC);

	if (fs < 0)
		return err_set(e, errno, "open a procfs");
	if (fsconfig(fs, FSCONFIG_SET_STRING, "subset", "pid", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_set(e, errno, "create a procfs");
	int root = fsmount(fs, FSMOUNT_CLOEXEC,
			   MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
				   MOUNT_ATTR_NOEXEC);
	return root < 0 ? err_set(e, errno, "mount a procfs") : root;
}

/* Moves the descriptors out of the way first, then to their final numbers. *status is the current
 * number of the descriptor that reports errors to the warden. */
static int place_fds(const struct jail_child *c, int proc, int *status, struct err *e)
{
	const int from[] = {
		c->log, c->log, c->log, c->kvm, c->ctl, proc, c->tap, c->jails->program, c->status};
	int high[ARRAY_LEN(from)];

	for (size_t i = 0; i < ARRAY_LEN(from); i++) {
		high[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD_CLOEXEC, 64);
		if (from[i] < 0)
			continue;
		if (high[i] < 0)
			return err_set(e, errno, "move a descriptor out of the way");
	}
	*status = high[STATUS_FD];
	for (size_t i = 0; i < ARRAY_LEN(from); i++)
		if (high[i] >= 0 && dup3(high[i], (int)i, i < JAIL_FDS ? 0 : O_CLOEXEC) < 0)
			return err_set(e, errno, "move a descriptor to number %zu", i);
	*status = STATUS_FD;
	if (syscall(SYS_close_range, STATUS_FD + 1, ~0u, 0) < 0)
		return err_set(e, errno, "close all other descriptors");
	return 0;
}

/* Changes the root to an empty tmpfs and unmounts the host's tree from this namespace. */
static int set_root(const char *root, struct err *e)
{
	const unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;

	if (mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_set(e, errno, "make the mounts private");
	if (mount("ramet", root, "tmpfs", flags, "size=4k,nr_inodes=1,mode=555") < 0)
		return err_set(e, errno, "mount an empty root over %s", root);
	if (chdir(root) < 0)
		return err_set(e, errno, "change the directory to %s", root);
	/* Stacks the old root on the new one (pivot_root(2), "pivot_root(".", ".")"). */
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return err_set(e, errno, "make %s the root", root);
	if (umount2(".", MNT_DETACH) < 0)
		return err_set(e, errno, "unmount the host's root directory");
	if (chdir("/") < 0)
		return err_set(e, errno, "change the directory to the empty root");
	return 0;
}

#define ARGUMENTS_MAX 24
#define NUMBER_MAX    12

struct arguments {
	const char *all[ARGUMENTS_MAX]; /* NULL-terminated */
	char numbers[ARGUMENTS_MAX][NUMBER_MAX];
	size_t n;
};

static void add_number(struct arguments *a, const char *name, unsigned value)
{
	char *text = a->numbers[a->n];

	snprintf(text, NUMBER_MAX, "%u", value);
	a->all[a->n++] = name;
	a->all[a->n++] = text;
}

static int start_program(const struct jail_child *c, struct err *e)
{
	struct arguments a = {.all = {"ramet-vmm"}, .n = 1};
	const char *const env[] = {NULL};

	add_number(&a, "--vcpus", c->request->spawn.vcpus);
	add_number(&a, "--ram-mib", c->request->spawn.ram_mib);
	add_number(&a, "--kvm-fd", JAIL_KVM);
	add_number(&a, "--ctl-fd", JAIL_CTL);
	add_number(&a, "--proc-fd", JAIL_PROC);
	add_number(&a, "--slot", c->request->slot);
	add_number(&a, "--disk-bytes-s", c->jails->config->disk_bytes_s);
	add_number(&a, "--disk-ops-s", c->jails->config->disk_ops_s);
	if (c->jails->net->on)
		add_number(&a, "--tap-fd", JAIL_TAP);
	if (c->jails->net->ipv6)
		a.all[a.n++] = "--ipv6";
	syscall(SYS_execveat, PROGRAM_FD, "", a.all, env, AT_EMPTY_PATH);
	if (errno == ENOENT) /* its loader is not in the empty root */
		return err_say(e, ENOEXEC, "the VM program is not statically linked (setting vmm)");
	return err_set(e, errno, "execute the VM program");
}

/* Sets the OOM score of the VM. Until then it has the negative score inherited from rametd's own
 * processes. */
static int offer_to_oom(struct err *e)
{
	int r = text_file_write(AT_FDCWD, "/proc/self/oom_score_adj", JAIL_OOM_LAST);

	return r < 0 ? err_set(e, -r, "set oom_score_adj") : 0;
}

static int become_vm(const struct jail_child *c, int *status, struct err *e)
{
	int proc = make_proc(e);

	if (proc < 0)
		return proc;
	if (c->net_ns >= 0 && setns(c->net_ns, CLONE_NEWNET) < 0)
		return err_set(e, errno, "enter the network namespace");
	if (place_fds(c, proc, status, e) < 0 || set_session(e) < 0 || set_limits(e) < 0 ||
	    offer_to_oom(e) < 0)
		return e->code;
	/* Keep threads with another core-scheduling cookie off a core while this process runs on
	 * it. A kernel without core scheduling is reported by orchestrator/operator/posture.c;
	 * without SMT there is nothing to do. */
	if (c->jails->config->core_scheduling[0] == 'y')
		prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, PR_SCHED_CORE_SCOPE_THREAD_GROUP, 0);
	if (set_root(c->root, e) < 0 || account_become(c->uid, c->uid, e) < 0)
		return e->code;
	return start_program(c, e);
}

_Noreturn void jail_child_run(const struct jail_child *c)
{
	struct err e = {0};
	int status = c->status;

	become_vm(c, &status, &e);
	_exit(write(status, &e, sizeof(e)) == (ssize_t)sizeof(e) ? 127 : 126);
}
