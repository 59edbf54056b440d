// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/jail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"
#include "orchestrator/warden/directory.h"
#include "orchestrator/warden/jail-internal.h"

#define SLOT_NAME_MAX 12
/* Room for the connections that killed instances of the service left: the VM process accepts them
 * later. */
#define CONTROL_BACKLOG 64
#define SLOT_PATH_MAX	(CONFIG_PATH_MAX + 32)

struct jail_name jail_name(uint32_t slot)
{
	struct jail_name name;

	snprintf(name.text, sizeof(name.text), "vm-%u", slot);
	return name;
}

static void directory_name(char name[static SLOT_NAME_MAX], uint32_t slot)
{
	snprintf(name, SLOT_NAME_MAX, "%u", slot);
}

static void slot_path(char path[static SLOT_PATH_MAX], const struct jails *j, uint32_t slot,
		      const char *file)
{
	snprintf(path, SLOT_PATH_MAX, "%s/vm/%u%s", j->config->run_dir, slot, file);
}

/* --- all jails ------------------------------------------------------------------------------- */

/* Opens a directory that root owns, and lets the service's group use it. */
static int open_for_service(int parent, const char *name, const struct jails *j)
{
	scoped_fd int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fchown(fd, 0, j->account.gid) < 0 || fchmod(fd, 0750) < 0)
		return -errno;
	return take_fd(&fd);
}

int jails_open(struct jails *j, const struct config *config, const struct cgroup_tree *tree,
	       const struct net *net, struct account account, struct err *e)
{
	*j = (struct jails){.config = config,
			    .tree = tree,
			    .account = account,
			    .net = net,
			    .vm_dir = -1,
			    .program = -1};
	scoped_fd int run = directory_for_root(config->run_dir, account.gid, e);

	if (run < 0)
		return err_context(e, "run_dir");
	if (mkdirat(run, "vm", 0750) < 0 && errno != EEXIST)
		return err_set(e, errno, "create %s/vm", config->run_dir);
	j->vm_dir = open_for_service(run, "vm", j);
	return j->vm_dir < 0 ? err_set(e, -j->vm_dir, "prepare %s/vm", config->run_dir) : 0;
}

void jails_close(struct jails *j, bool remove)
{
	if (remove && j->vm_dir >= 0)
		unlinkat(j->vm_dir, "../vm", AT_REMOVEDIR);
	close_fd(&j->vm_dir);
	close_fd(&j->program);
}

static int open_kvm(struct err *e)
{
	scoped_fd int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return err_say(e, ENOENT,
			       "/dev/kvm does not exist: virtualization is disabled in the "
			       "firmware, or the"
			       " module kvm_intel or kvm_amd is not loaded");
	if (fd < 0)
		return err_set(e, errno,
			       "open /dev/kvm, which rametd must be able to read and write");
	int version = ioctl(fd, KVM_GET_API_VERSION, 0);
	if (version < 0)
		return err_set(e, errno, "query the KVM API version of /dev/kvm");
	if (version != KVM_API_VERSION)
		return err_say(e, ENOTSUP, "/dev/kvm has API version %d, expected %d", version,
			       KVM_API_VERSION);
	return take_fd(&fd);
}

static int open_program(const struct jails *j, struct err *e)
{
	scoped_fd int fd = open(j->config->vmm, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "open the VM program %s (setting vmm)", j->config->vmm);
	/* The kernel hides the page map of a process that may not read its own program. */
	if (!S_ISREG(st.st_mode) || !(st.st_mode & S_IXOTH) || !(st.st_mode & S_IROTH))
		return err_say(
			e, EACCES,
			"the VM program %s (setting vmm) must be a regular file with mode a+rx",
			j->config->vmm);
	return take_fd(&fd);
}

int jails_check(struct jails *j, struct err *e)
{
	j->program = open_program(j, e);
	if (j->program < 0)
		return j->program;
	scoped_fd int kvm = open_kvm(e);
	return kvm < 0 ? kvm : 0;
}

/* --- the directory --------------------------------------------------------------------------- */

static int remove_directory(const struct jails *j, const char *name, struct err *e)
{
	scoped_fd int dir =
		openat(j->vm_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir < 0 && errno == ENOENT)
		return 0;
	if (dir < 0)
		return err_set(e, errno, "open %s/vm/%s", j->config->run_dir, name);
	unlinkat(dir, "ctl.sock", 0);
	unlinkat(dir, "log", 0);
	if (unlinkat(j->vm_dir, name, AT_REMOVEDIR) < 0)
		return err_set(e, errno, "remove %s/vm/%s", j->config->run_dir, name);
	return 0;
}

static int open_log(const struct jails *j, int dir, struct err *e)
{
	scoped_fd int fd =
		openat(dir, "log", O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0640);

	if (fd < 0 || fchown(fd, 0, j->account.gid) < 0 || fchmod(fd, 0640) < 0)
		return err_set(e, errno, "create the log file");
	return take_fd(&fd);
}

static int open_control(const struct jails *j, int dir, uint32_t slot, struct err *e)
{
	scoped_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	char path[SLOT_PATH_MAX];

	slot_path(path, j, slot, "/ctl.sock");
	if (fd < 0)
		return err_set(e, errno, "create the control socket");
	if (strlen(path) >= sizeof(at.sun_path)) /* config.c limits the length of run_dir */
		return err_set(e, ENAMETOOLONG,
			       "create the control socket, whose path is too long: %s", path);
	memcpy(at.sun_path, path, strlen(path));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
		return err_set(e, errno, "bind %s", path);
	/* Only root can write to the directory, so this is the socket just created. */
	if (fchownat(dir, "ctl.sock", 0, j->account.gid, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fchmodat(dir, "ctl.sock", 0660, 0) < 0)
		return err_set(e, errno, "give the service access to %s", path);
	if (listen(fd, CONTROL_BACKLOG) < 0)
		return err_set(e, errno, "listen on %s", path);
	return take_fd(&fd);
}

static int make_directory(const struct jails *j, uint32_t slot, struct err *e)
{
	char name[SLOT_NAME_MAX];

	directory_name(name, slot);
	/* A free slot has no directory, unless creating a jail failed half-way. */
	int r = remove_directory(j, name, e);
	if (r < 0)
		return r;
	if (mkdirat(j->vm_dir, name, 0750) < 0)
		return err_set(e, errno, "create %s/vm/%s", j->config->run_dir, name);
	int dir = open_for_service(j->vm_dir, name, j);
	return dir < 0 ? err_set(e, -dir, "prepare %s/vm/%s", j->config->run_dir, name) : dir;
}

/* --- the process ----------------------------------------------------------------------------- */

static int clone_child(int cgroup, bool new_net, int *pidfd)
{
	struct clone_args args = {
		.flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
			 CLONE_INTO_CGROUP | CLONE_PIDFD | CLONE_CLEAR_SIGHAND |
			 (new_net ? CLONE_NEWNET : 0),
		.pidfd = (uintptr_t)pidfd,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)cgroup,
	};

	return (int)syscall(SYS_clone3, &args, sizeof(args));
}

static int clone_into(const struct jail_child *c, int cgroup, struct jailed *out, struct err *e)
{
	int pidfd = -1;
	int pid = clone_child(cgroup, c->net_ns < 0, &pidfd);

	if (pid == 0)
		jail_child_run(c);
	if (pid < 0)
		return err_set(e, errno, "clone a process into its namespaces and cgroup");
	out->pid = pid;
	out->pidfd = pidfd;
	return 0;
}

static uid_t uid_of(const struct jails *j, uint32_t slot)
{
	return j->config->vm_uid_base + slot;
}

static int start_process(const struct jails *j, const struct warden_msg *m, struct net_jail *net,
			 int dir, int cgroup, struct jailed *out, struct err *e)
{
	char root[SLOT_PATH_MAX];
	int ends[2];

	scoped_fd int log = open_log(j, dir, e);
	if (log < 0)
		return log;
	scoped_fd int ctl = open_control(j, dir, m->slot, e);
	if (ctl < 0)
		return ctl;
	scoped_fd int kvm = open_kvm(e);
	if (kvm < 0)
		return kvm;
	scoped_fd int tap =
		j->net->on ? net_jail_open(j->net, m->slot, uid_of(j, m->slot), net, e) : -1;
	if (j->net->on && tap < 0)
		return tap;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_set(e, errno, "create a status pipe");
	scoped_fd int from_child = ends[0];
	scoped_fd int to_warden = ends[1];

	slot_path(root, j, m->slot, "");
	const struct jail_child c = {.root = root,
				     .log = log,
				     .kvm = kvm,
				     .ctl = ctl,
				     .status = to_warden,
				     .net_ns = net->ns,
				     .tap = tap,
				     .jails = j,
				     .request = m,
				     .uid = uid_of(j, m->slot)};
	int r = clone_into(&c, cgroup, out, e);
	if (r == 0)
		out->status = take_fd(&from_child);
	return r;
}

/* On contended CPUs, a VM that a request waits for gets ten times the share of a running guest. */
static const uint32_t weights[WARDEN_PRIORITIES] = {
	[WARDEN_BACKGROUND] = CGROUP_WEIGHT_IDLE,
	[WARDEN_BRINGUP] = 10 * CGROUP_WEIGHT_USUAL,
	[WARDEN_NORMAL] = CGROUP_WEIGHT_USUAL,
};

static int make_cgroup(const struct jails *j, const struct warden_msg *m, struct err *e)
{
	const struct cgroup_limits limits = {.memory_max = m->spawn.memory_max,
					     .cpu_max_pct = m->spawn.cpu_max_pct,
					     .weight = weights[WARDEN_BRINGUP],
					     .reclaim = CGROUP_RECLAIM_LAST,
					     .pids_max = m->spawn.pids_max};

	return cgroup_make(j->tree, jail_name(m->slot).text, &limits, e);
}

static int start(const struct jails *j, const struct warden_msg *m, struct net_jail *net,
		 struct jailed *out, struct err *e)
{
	scoped_fd int cgroup = make_cgroup(j, m, e);
	if (cgroup < 0)
		return cgroup;
	scoped_fd int events = cgroup_watch(j->tree, jail_name(m->slot).text, e);
	if (events < 0)
		return events;
	scoped_fd int dir = make_directory(j, m->slot, e);
	if (dir < 0)
		return dir;
	int r = start_process(j, m, net, dir, cgroup, out, e);
	if (r == 0)
		out->events = take_fd(&events);
	return r;
}

int jail_start(const struct jails *j, const struct warden_msg *request, struct net_jail *net,
	       struct jailed *out, struct err *e)
{
	*out = (struct jailed){.pidfd = -1, .status = -1, .events = -1};
	int r = start(j, request, net, out, e);

	if (r < 0)
		jail_remove(j, request->slot, NULL);
	return r;
}

int jail_set_priority(const struct jails *j, uint32_t slot, uint32_t priority, struct err *e)
{
	const struct cgroup_limits share = {.weight = weights[priority]};

	return cgroup_limit(j->tree, jail_name(slot).text, &share, e);
}

int jail_set_oom(const struct jails *j, uint32_t slot, bool first, struct err *e)
{
	const struct cgroup_limits limits = {.reclaim = first ? CGROUP_RECLAIM_FIRST
							      : CGROUP_RECLAIM_LAST};
	const struct jail_name name = jail_name(slot);
	int r = cgroup_limit(j->tree, name.text, &limits, e);

	if (r < 0)
		return r;
	return cgroup_oom_score(j->tree, name.text, first ? JAIL_OOM_FIRST : JAIL_OOM_LAST, e);
}

int jail_kill(const struct jails *j, uint32_t slot, struct err *e)
{
	/* A dying VM gets CPU time to free its memory, whatever its priority was. */
	jail_set_priority(j, slot, WARDEN_BRINGUP, NULL);
	return cgroup_kill(j->tree, jail_name(slot).text, e);
}

int jail_remove(const struct jails *j, uint32_t slot, struct err *e)
{
	char name[SLOT_NAME_MAX];

	directory_name(name, slot);
	int r = cgroup_remove(j->tree, jail_name(slot).text, e);
	return r < 0 ? r : remove_directory(j, name, e);
}

/* --- leftovers ------------------------------------------------------------------------------- */

int jails_sweep(const struct jails *j, bool (*keep)(void *arg, uint32_t slot), void *arg,
		struct err *e)
{
	DIR *dir = directory_list(j->vm_dir, ".");
	struct dirent *entry;
	uint32_t slot;
	int r = 0;

	if (!dir)
		return err_set(e, errno, "list %s/vm", j->config->run_dir);
	while (r == 0 && (entry = readdir(dir))) {
		char group[64];

		snprintf(group, sizeof(group), "vm-%.32s", entry->d_name);
		if (cgroup_vm_name(group, &slot) && !keep(arg, slot))
			r = remove_directory(j, entry->d_name, e);
	}
	closedir(dir);
	return r;
}
