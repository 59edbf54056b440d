// SPDX-License-Identifier: Apache-2.0
#include "guest/init/init.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/text-file.h"
#include "guest/system/system.h"
#include "guest/cgroup.h"
#include "guest/loop.h"
#include "guest/log-console.h"
#include "proto/platform.h"

#define DISK_WAIT_MS	10000
#define AGENT_QUICK_MS	1000 /* an agent that ran shorter than this counts as failed */
#define AGENT_FAILS_MAX 5

#define QUIET (MS_NOSUID | MS_NODEV | MS_NOEXEC)

static const struct mount_point {
	const char *type, *path, *options;
	unsigned long flags;
	bool needed;
} mount_points[] = {
	{"proc", "/proc", NULL, QUIET, true},
	{"sysfs", "/sys", NULL, QUIET, true},
	{"devtmpfs", "/dev", "mode=755", MS_NOSUID, true},
	{"devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666", MS_NOSUID | MS_NOEXEC, false},
	{"tmpfs", "/dev/shm", "mode=1777", MS_NOSUID | MS_NODEV, false},
	{"tmpfs", "/run", "mode=755", MS_NOSUID | MS_NODEV, true},
	{"mqueue", "/dev/mqueue", NULL, QUIET, false},
	{"cgroup2", "/sys/fs/cgroup", NULL, QUIET, false},
	{"bpf", "/sys/fs/bpf", "mode=700", QUIET, false},
};

static const struct {
	const char *target, *path;
} links[] = {
	{"/proc/self/fd", "/dev/fd"},
	{"/proc/self/fd/0", "/dev/stdin"},
	{"/proc/self/fd/1", "/dev/stdout"},
	{"/proc/self/fd/2", "/dev/stderr"},
};

/* Devices that a device manager would make accessible to everybody. */
static const char *const open_devices[] = {"/dev/fuse", "/dev/net/tun"};

static const char *const environment[][2] = {
	{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	{"HOME", "/root"},
	{"USER", "root"},
	{"LOGNAME", "root"},
	{"SHELL", "/bin/bash"},
	{"LANG", "C.UTF-8"},
};

/* Ends the VM through the VMM's port. On a machine without that port, resets it. */
__attribute__((noreturn)) static void power_off(void)
{
	kill(-1, SIGKILL);
	sync();
	mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL);
	if (ioperm(PLATFORM_POWER_PORT, 1, 1) == 0)
		outb(PLATFORM_POWER_OFF, PLATFORM_POWER_PORT);
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

static int mount_one(const struct mount_point *m, struct err *e)
{
	mkdir(m->path, 0755);
	if (mount(m->type, m->path, m->type, m->flags, m->options) < 0)
		return err_set(e, errno, "mount %s on %s", m->type, m->path);
	return 0;
}

static int mount_all(struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(mount_points); i++) {
		int bad = mount_one(&mount_points[i], e);
		if (bad && mount_points[i].needed)
			return bad;
		if (bad)
			log_console("%s", e->text);
	}
	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		if (symlink(links[i].target, links[i].path) < 0 && errno != EEXIST)
			log_console("create the link %s: %s", links[i].path, strerror(errno));
	for (size_t i = 0; i < ARRAY_LEN(open_devices); i++)
		if (chmod(open_devices[i], 0666) < 0 && errno != ENOENT)
			log_console("make %s accessible: %s", open_devices[i], strerror(errno));
	/* Makes all mounts shared, as distributions do: container engines rely on the propagation
	 * of mounts. */
	if (mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) < 0)
		log_console("make the mounts shared: %s", strerror(errno));
	return 0;
}

/* Stores the value of root= on the kernel's command line, or /dev/vda. */
static void root_device(char *name, size_t size)
{
	char line[4096];

	snprintf(name, size, "/dev/vda");
	text_file_read(AT_FDCWD, "/proc/cmdline", line, sizeof(line));
	for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"))
		if (strncmp(word, "root=", 5) == 0)
			snprintf(name, size, "%s", word + 5);
}

static bool is_there(const void *name)
{
	return access(name, F_OK) == 0;
}

/* Drivers are built in, so the disk is nearly always there; otherwise waits for its uevent. */
static int wait_for_disk(const char *name, struct err *e)
{
	if (uevent_wait(is_there, name, DISK_WAIT_MS))
		return 0;
	return err_say(e, ENODEV, "no disk %s after %d s", name, DISK_WAIT_MS / 1000);
}

/* Moves the new root over the old one: pivot_root does not work from an initramfs. */
static int switch_root(struct err *e)
{
	char disk[256];

	mkdir("/proc", 0755);
	mkdir("/dev", 0755);
	mkdir("/newroot", 0755);
	if (mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, NULL) < 0 && errno != EBUSY)
		return err_set(e, errno, "mount /dev");
	if (mount("proc", "/proc", "proc", QUIET, NULL) < 0)
		return err_set(e, errno, "mount /proc");
	root_device(disk, sizeof(disk));
	int bad = wait_for_disk(disk, e);
	if (bad)
		return bad;
	if (mount(disk, "/newroot", "ext4", MS_NOATIME, NULL) < 0)
		return err_set(e, errno, "mount %s", disk);
	umount2("/proc", MNT_DETACH);
	umount2("/dev", MNT_DETACH);
	if (chdir("/newroot") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
	    chdir("/") < 0)
		return err_set(e, errno, "switch to %s", disk);
	return 0;
}

static void loopback_up(void)
{
	struct ifreq r = {.ifr_name = "lo"};
	scoped_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &r) < 0)
		return; /* a kernel without a network */
	r.ifr_flags |= IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		log_console("bring up the loopback interface: %s", strerror(errno));
}

static void set_hostname(void)
{
	char name[65];

	text_file_read(AT_FDCWD, "/etc/hostname", name, sizeof(name));
	name[strcspn(name, "\n")] = '\0';
	if (!name[0])
		snprintf(name, sizeof(name), "sandbox");
	if (sethostname(name, strlen(name)) < 0)
		log_console("set the host name to \"%s\": %s", name, strerror(errno));
}

static void set_limits(void)
{
	const struct rlimit files = {.rlim_cur = 65536, .rlim_max = 1048576};
	const struct rlimit core = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
	struct sysinfo info;

	if (setrlimit(RLIMIT_NOFILE, &files) < 0 || setrlimit(RLIMIT_CORE, &core) < 0)
		log_console("set resource limits: %s", strerror(errno));
	if (sysinfo(&info) == 0)
		sysctl_set_all("/proc/sys", (uint64_t)info.totalram * info.mem_unit);
}

static void set_environment(void)
{
	clearenv();
	for (size_t i = 0; i < ARRAY_LEN(environment); i++)
		setenv(environment[i][0], environment[i][1], 1);
}

/* Pins the agent to the CPU that handles its device's interrupts (irqaffinity on the kernel's
 * command line): to wake a task on another CPU takes several exits from the VM. */
static void keep_on_first_cpu(void)
{
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (sched_setaffinity(0, sizeof(first), &first) < 0)
		log_console("pin the agent to a CPU: %s", strerror(errno));
}

/* How the last agent ended, as the start of a sentence; empty before that. */
static char agent_died[96];

__attribute__((noreturn)) static void become_agent(void)
{
	char *const argv[] = {"ramet", "agent", agent_died[0] ? "--died" : NULL, agent_died, NULL};
	const struct sched_param first = {.sched_priority = 1};
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	write_or_log("/proc/self/oom_score_adj", "-1000");
	keep_on_first_cpu();
	/* With this priority, the agent reads output before the program that wrote it continues.
	 * This keeps the order between stdout and stderr. Children are scheduled normally. */
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first) < 0)
		log_console("raise the agent's priority: %s", strerror(errno));
	/* The file is below the new root; only this path reaches it. */
	execv("/proc/self/exe", argv);
	log_console("start the agent: %s", strerror(errno));
	_exit(127);
}

static pid_t start_agent(void)
{
	pid_t pid = fork();

	if (pid == 0)
		become_agent();
	if (pid < 0) {
		/* Nothing would retry, and a guest without an agent serves nobody. */
		log_console("start the agent: %s", strerror(errno));
		power_off();
	}
	return pid;
}

static void note_death(int status)
{
	if (WIFSIGNALED(status))
		snprintf(agent_died, sizeof(agent_died),
			 "the sandbox's agent was killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(agent_died, sizeof(agent_died),
			 "the sandbox's agent ended with exit code %d", WEXITSTATUS(status));
	log_console("%s", agent_died);
}

/* Reaps all processes that ended. Returns true when `agent` was among them. */
static bool reap(pid_t agent)
{
	bool ended = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != agent)
			continue;
		ended = true;
		note_death(status);
	}
	return ended;
}

__attribute__((noreturn)) static void supervise(const sigset_t *signals)
{
	pid_t agent = start_agent();
	int64_t started = loop_now_ms();
	unsigned fails = 0;

	for (;;) {
		int sig = sigwaitinfo(signals, NULL);
		if (sig == SIGTERM)
			power_off();
		if (sig != SIGCHLD || !reap(agent))
			continue;
		fails = loop_now_ms() - started < AGENT_QUICK_MS ? fails + 1 : 0;
		if (fails == AGENT_FAILS_MAX) {
			log_console("the agent failed %d times in a row: power off",
				    AGENT_FAILS_MAX);
			power_off();
		}
		agent = start_agent();
		started = loop_now_ms();
	}
}

int init_main(void)
{
	struct err e;
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	umask(022);
	if (switch_root(&e) < 0 || mount_all(&e) < 0) {
		log_console("init: %s", e.text);
		power_off();
	}
	if (boot_id_mount(BOOT_ID_FILE, &e) < 0)
		log_console("%s", e.text); /* the first reseed retries */
	cgroup_set_up();
	set_hostname();
	loopback_up();
	set_limits();
	set_environment();
	supervise(&signals);
}
