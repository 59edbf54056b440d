// SPDX-License-Identifier: Apache-2.0
#include "guest/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text-file.h"
#include "guest/log-console.h"

#define ROOT "/sys/fs/cgroup"
#define OURS ROOT "/ramet"
#define USER ROOT "/sandbox"

/* Delegates each controller separately, so that one that cannot be delegated does not prevent the
 * others. */
static void hand_down_controllers(void)
{
	char names[512], order[64];

	text_file_read(AT_FDCWD, ROOT "/cgroup.controllers", names, sizeof(names));
	for (char *name = strtok(names, " \n"); name; name = strtok(NULL, " \n")) {
		snprintf(order, sizeof(order), "+%s", name);
		write_or_log(ROOT "/cgroup.subtree_control", order);
	}
}

static unsigned long read_number(const char *path)
{
	char text[32];

	return text_file_read(AT_FDCWD, path, text, sizeof(text)) > 0 ? strtoul(text, NULL, 10) : 0;
}

static void limit_user(void)
{
	unsigned long threads = read_number("/proc/sys/kernel/threads-max");
	unsigned long pids = read_number("/proc/sys/kernel/pid_max");
	char text[32];

	if (pids && pids < threads)
		threads = pids;
	snprintf(text, sizeof(text), "%lu", threads / 10 * 9);
	write_or_log(USER "/pids.max", text);
}

void cgroup_set_up(void)
{
	if (mkdir(OURS, 0755) < 0 || mkdir(USER, 0755) < 0) {
		log_console("create control groups: %s", strerror(errno));
		return;
	}
	write_or_log(OURS "/cgroup.procs", "0");
	hand_down_controllers();
	limit_user();
}

/* Returns -1 if the kernel cannot start a process in another group, or the group does not allow it.
 * libc does not learn of this fork; it need not, in a program with one thread. */
static pid_t fork_into_user(void)
{
	scoped_fd int group = open(USER, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD};

	if (group < 0)
		return -1;
	args.cgroup = (uint64_t)group;
	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

pid_t cgroup_fork_user(void)
{
	/* Starts the child in the group, rather than moving it there: for a move, the kernel first
	 * waits for an RCU grace period, which takes longer than starting a program. */
	pid_t pid = fork_into_user();

	if (pid >= 0)
		return pid;
	/* When the group has as many processes as it may have, a fork into it fails, and a move
	 * still works. */
	pid = fork();
	if (pid == 0)
		text_file_write(AT_FDCWD, USER "/cgroup.procs", "0");
	return pid;
}
