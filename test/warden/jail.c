// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the real warden with a probe that replaces ramet-vmm and a service that relays packets to
 * this test. Checks the claims of docs/threats.md about a jail in /proc, in the cgroups, and from
 * inside. Where cgroup v2 lacks a controller, the tests of its limit are skipped.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/message-fds.h"
#include "base/privileges.h"
#include "orchestrator/warden/warden.h"
#include "orchestrator/warden/cgroup.h"
#include "proto/warden.h"

#define WAIT_MS	 20000
#define SLOTS	 72
#define UID_BASE 310000
#define ACCOUNT	 64999
#define RAM_MIB	 128
#define MEMORY	 (256ull << 20)

static char top[64];				     /* directory of all files of this test */
static char base[CGROUP_PATH_MAX + CONFIG_PATH_MAX]; /* cgroup that the test works under */
static char group[sizeof(base) + 16];
static const char *controllers[4]; /* the available ones of cgroup_controllers */
static struct config config;
static char probe[512];	  /* the program that replaces ramet-vmm, next to this one */
static int listener = -1; /* the service's relay connects here */
static int warden = -1;	  /* packets to and from the warden, through the relay */
static pid_t warden_pid;
static uint32_t last_seq;

static const char *under(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *under(const char *format, ...)
{
	static char path[512];
	int used = snprintf(path, sizeof(path), "%s/", top);
	va_list args;

	va_start(args, format);
	vsnprintf(path + used, sizeof(path) - (size_t)used, format, args);
	va_end(args);
	return path;
}

/* --- the service: relays packets both ways --------------------------------------------------- */

static struct sockaddr_un address(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	snprintf(at.sun_path, sizeof(at.sun_path), "%.*s", (int)sizeof(at.sun_path) - 1, path);
	return at;
}

/* Number of jails that asked for their own cores, in memory shared with the test. */
static atomic_uint *cookies;

int __real_prctl(int op, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
int __wrap_prctl(int op, unsigned long a, unsigned long b, unsigned long c, unsigned long d);

int __wrap_prctl(int op, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
	if (op == PR_SCHED_CORE && a == PR_SCHED_CORE_CREATE && b == 0 &&
	    c == PR_SCHED_CORE_SCOPE_THREAD_GROUP)
		atomic_fetch_add(cookies, 1);
	return __real_prctl(op, a, b, c, d);
}

/* In the warden: takes all numbers below FD_SETSIZE once it has started, so that every later
 * descriptor has a larger one, as with hundreds of VMs. Libraries that use select(2) abort then. */
static void take_small_numbers(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	while (fd >= 0 && fd < FD_SETSIZE)
		fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	close_fd(&fd);
}

/* In memory shared with the test. */
static atomic_uint *deadly; /* 1 + the slot whose WARDEN_PRIORITY aborts the warden */
static struct warden_record *record;

struct warden;
void __real_slots_serve(struct warden *w, const struct warden_msg *m);
void __wrap_slots_serve(struct warden *w, const struct warden_msg *m);

void __wrap_slots_serve(struct warden *w, const struct warden_msg *m)
{
	if (m->type == WARDEN_PRIORITY && *deadly == m->slot + 1)
		abort();
	__real_slots_serve(w, m);
}

int __real_epoll_wait(int epoll, struct epoll_event *events, int n, int ms);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int n, int ms);

int __wrap_epoll_wait(int epoll, struct epoll_event *events, int n, int ms)
{
	static bool taken;

	if (!taken)
		take_small_numbers();
	taken = true;
	return __real_epoll_wait(epoll, events, n, ms);
}

static bool held; /* the relay does not read from the warden */

static void pass_on(int from, int to)
{
	char packet[4096], space[CMSG_SPACE(sizeof(int) * 8)];
	struct iovec iov = {packet, sizeof(packet)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = space,
			     .msg_controllen = sizeof(space)};
	ssize_t n = recvmsg(from, &msg, MSG_CMSG_CLOEXEC);

	if (n <= 0)
		_exit(0);
	if (n < 8) { /* a command to the relay itself: "hold" or "go" */
		held = n == 4;
		return;
	}
	iov.iov_len = (size_t)n;
	if (sendmsg(to, &msg, MSG_NOSIGNAL) < 0)
		_exit(0);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++)
			close(((int *)CMSG_DATA(c))[i]);
}

static int relay(void)
{
	struct config c;
	char path[CONFIG_PATH_MAX + 16];

	if (pread(WARDEN_CONFIG_FD, &c, sizeof(c), 0) != (ssize_t)sizeof(c))
		return WARDEN_SETUP_EXIT;
	snprintf(path, sizeof(path), "%s/../test.sock", c.state_dir);
	struct sockaddr_un at = address(path);
	int test = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(test, (struct sockaddr *)&at, sizeof(at)) < 0)
		return WARDEN_SETUP_EXIT;
	int most = 212992; /* the kernel doubles it */
	setsockopt(WARDEN_SOCKET_FD, SOL_SOCKET, SO_SNDBUF, &most, sizeof(most));
	for (;;) {
		struct pollfd p[2] = {{.fd = test, .events = POLLIN},
				      {.fd = held ? -1 : WARDEN_SOCKET_FD, .events = POLLIN}};

		if (poll(p, 2, -1) < 0)
			return 1;
		if (p[0].revents)
			pass_on(test, WARDEN_SOCKET_FD);
		if (p[1].revents)
			pass_on(WARDEN_SOCKET_FD, test);
	}
}

/* --- the warden ------------------------------------------------------------------------------ */

static int run_warden(bool crashed)
{
	char *const argv[] = {"relay", "--role=service", NULL};
	struct warden_options options = {
		.config = &config, .service_argv = argv, .controllers = controllers};
	struct err e;

	options.record = record;
	options.crashed = crashed;
	log_init("warden", LOG_WARN);
	options.service = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (warden_run(&options, &e) == 0)
		return 0;
	fprintf(stderr, "warden: %s\n", e.text);
	return 1;
}

static bool wait_for(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, WAIT_MS) == 1;
}

static void accept_service(void)
{
	close_fd(&warden);
	assert_true(wait_for(listener));
	warden = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(warden >= 0);
}

static void start_warden_after(bool crashed)
{
	warden_pid = fork();
	if (warden_pid == 0)
		_exit(run_warden(crashed));
	accept_service();
}

static void start_warden(void)
{
	start_warden_after(false);
}

static int stop_warden(int signal)
{
	int status;

	kill(warden_pid, signal);
	assert_int_equal(waitpid(warden_pid, &status, 0), warden_pid);
	return status;
}

/* --- packets --------------------------------------------------------------------------------- */

static struct warden_msg spawn_of(uint32_t slot)
{
	struct warden_msg m = {
		.version = WARDEN_VERSION, .type = WARDEN_SPAWN, .seq = ++last_seq, .slot = slot};

	m.spawn.vcpus = 2;
	m.spawn.ram_mib = RAM_MIB;
	m.spawn.memory_max = MEMORY;
	m.spawn.cpu_max_pct = 150;
	m.spawn.pids_max = 24;
	return m;
}

static struct warden_msg release_of(uint32_t slot)
{
	return (struct warden_msg){
		.version = WARDEN_VERSION, .type = WARDEN_RELEASE, .seq = ++last_seq, .slot = slot};
}

static void put(const struct warden_msg *m)
{
	assert_int_equal(send(warden, m, sizeof(*m), MSG_NOSIGNAL), sizeof(*m));
}

static struct warden_msg get(void)
{
	struct warden_msg m;

	assert_true(wait_for(warden));
	assert_int_equal(recv(warden, &m, sizeof(m), 0), sizeof(m));
	assert_int_equal(m.version, WARDEN_VERSION);
	return m;
}

static struct warden_msg call(struct warden_msg m)
{
	put(&m);
	struct warden_msg r = get();
	assert_int_equal(r.type, WARDEN_REPLY);
	assert_int_equal(r.seq, m.seq);
	return r;
}

static pid_t spawn(uint32_t slot)
{
	struct warden_msg r = call(spawn_of(slot));

	if (r.reply.error)
		fail_msg("spawn: %s", r.reply.text);
	assert_true(r.reply.value > 1);
	return (pid_t)r.reply.value;
}

static void release(uint32_t slot)
{
	struct warden_msg r = call(release_of(slot));

	if (r.reply.error)
		fail_msg("release: %s", r.reply.text);
}

static void assert_refused(struct warden_msg m, int error, const char *words)
{
	struct warden_msg r = call(m);

	assert_int_equal(r.reply.error, -error);
	if (!strstr(r.reply.text, words))
		fail_msg("\"%s\" does not say \"%s\"", r.reply.text, words);
}

static int32_t exit_of(uint32_t slot)
{
	struct warden_msg m = get();

	assert_int_equal(m.type, WARDEN_EXITED);
	assert_int_equal(m.seq, 0);
	assert_int_equal(m.slot, slot);
	return m.exited.status;
}

/* --- the probe ------------------------------------------------------------------------------- */

static int control(uint32_t slot)
{
	struct sockaddr_un at = address(under("run/vm/%u/ctl.sock", slot));
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

/* Returns an empty text when the probe ended instead of answering. */
static const char *ask_on(int fd, const char *command)
{
	static char answer[256];

	assert_true(send(fd, command, strlen(command), MSG_NOSIGNAL) > 0);
	assert_true(wait_for(fd));
	ssize_t n = recv(fd, answer, sizeof(answer) - 1, 0);
	answer[n > 0 ? n : 0] = '\0';
	return answer;
}

static const char *ask_probe(uint32_t slot, const char *command)
{
	scoped_fd int fd = control(slot);

	return ask_on(fd, command);
}

/* --- facts ----------------------------------------------------------------------------------- */

static const char *file_text(const char *path)
{
	static char text[16384];
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t n;

	if (fd < 0)
		return "(missing)";
	while ((n = read(fd, text + used, sizeof(text) - 1 - used)) > 0)
		used += (size_t)n;
	for (size_t i = 0; i < used; i++)
		if (!text[i])
			text[i] = ' '; /* separators in cmdline and environ */
	text[used] = '\0';
	return text;
}

static const char *proc(pid_t pid, const char *name)
{
	static char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	return path;
}

static void assert_status(pid_t pid, const char *line)
{
	char whole[128];

	snprintf(whole, sizeof(whole), "\n%s\n", line);
	if (!strstr(file_text(proc(pid, "status")), whole))
		fail_msg("/proc/%d/status has no line %s", pid, line);
}

static const char *limit_of(const char *slot, const char *file)
{
	char path[sizeof(group) + 64];

	snprintf(path, sizeof(path), "%s/%s/%s", group, slot, file);
	return file_text(path);
}

static bool has_controller(const char *name)
{
	for (size_t i = 0; controllers[i]; i++)
		if (strcmp(controllers[i], name) == 0)
			return true;
	return false;
}

static size_t count_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	size_t n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* --- tests ----------------------------------------------------------------------------------- */

static void vm_process_has_own_uid_and_no_privileges(void **state)
{
	pid_t pid = spawn(3);

	assert_status(pid, "Uid:\t310003\t310003\t310003\t310003");
	assert_status(pid, "Gid:\t310003\t310003\t310003\t310003");
	assert_status(pid, "Groups:\t ");
	assert_status(pid, "CapInh:\t0000000000000000");
	assert_status(pid, "CapPrm:\t0000000000000000");
	assert_status(pid, "CapEff:\t0000000000000000");
	assert_status(pid, "CapBnd:\t0000000000000000");
	assert_status(pid, "CapAmb:\t0000000000000000");
	assert_status(pid, "NoNewPrivs:\t1");
	assert_status(pid, "SigBlk:\t0000000000000000");
	assert_status(pid, "SigIgn:\t0000000000000000");
	release(3);
}

static void vm_process_has_own_namespaces(void **state)
{
	static const char *const kinds[] = {"mnt", "pid", "net", "ipc", "uts", "cgroup"};
	pid_t pids[] = {spawn(0), spawn(1), getpid()};

	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		ino_t seen[ARRAY_LEN(pids)];

		for (size_t p = 0; p < ARRAY_LEN(pids); p++) {
			char name[32];
			struct stat st;

			snprintf(name, sizeof(name), "ns/%s", kinds[k]);
			assert_int_equal(stat(proc(pids[p], name), &st), 0);
			seen[p] = st.st_ino;
			for (size_t before = 0; before < p; before++)
				if (seen[before] == seen[p])
					fail_msg("%s is shared", kinds[k]);
		}
	}
	assert_non_null(strstr(file_text(proc(pids[0], "net/dev")), "lo:"));
	release(0);
	release(1);
}

static void root_is_empty_and_read_only(void **state)
{
	pid_t pid = spawn(0);
	char first[1024];

	assert_int_equal(count_entries(proc(pid, "root")), 0);
	snprintf(first, sizeof(first), "%s", file_text(proc(pid, "mountinfo")));
	char *end = strchr(first, '\n');
	assert_non_null(end);
	assert_int_equal(end[1], '\0'); /* only one mount */
	assert_non_null(strstr(first, " / / ro,nosuid,nodev,noexec"));
	release(0);
}

/* Of procfs only the page map is open, for reading: the probe closed the mount, as ramet-vmm does.
 */
static void only_needed_descriptors_are_open(void **state)
{
	static const struct {
		const char *name, *link;
	} fds[] = {{"fd/0", "/run/vm/0/log"}, {"fd/1", "/run/vm/0/log"}, {"fd/2", "/run/vm/0/log"},
		   {"fd/3", "/dev/kvm"},      {"fd/4", "socket:["},	 {"fd/5", "socket:["},
		   {"fd/6", "/net/tun"},      {"fd/7", "/1/pagemap"}};
	pid_t pid = spawn(0);
	scoped_fd int connection = control(0); /* becomes its fd/5 */

	assert_string_equal(ask_on(connection, "page"), "present");
	assert_non_null(strstr(file_text(proc(pid, "fdinfo/7")), "flags:\t02100000\n"));
	assert_int_equal(count_entries(proc(pid, "fd")), ARRAY_LEN(fds));
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		char link[256] = {0};

		assert_true(readlink(proc(pid, fds[i].name), link, sizeof(link) - 1) > 0);
		if (!strstr(link, fds[i].link))
			fail_msg("%s is %s", fds[i].name, link);
	}
	release(0);
}

static void arguments_follow_the_request(void **state)
{
	pid_t pid = spawn(5);

	assert_string_equal(file_text(proc(pid, "cmdline")),
			    "ramet-vmm --vcpus 2 --ram-mib 128 --kvm-fd 3 --ctl-fd 4 --proc-fd 5 "
			    "--slot 5 --disk-bytes-s 250000000 --disk-ops-s 5000 --tap-fd 6 ");
	assert_string_equal(file_text(proc(pid, "environ")), "");
	assert_string_equal(ask_probe(5, "hello"), "what?");
	assert_string_equal(file_text(under("run/vm/5/log")), "probe of slot 5\n");
	assert_non_null(strstr(file_text(proc(pid, "limits")),
			       "Max core file size        0                    0 "));
	assert_non_null(strstr(file_text(proc(pid, "limits")),
			       "Max file size             1100585369600        1100585369600 "));
	release(5);
}

/* The service's group may connect and read the log; nobody else has access. */
static void slot_directory_is_for_the_service_only(void **state)
{
	static const struct {
		const char *name;
		mode_t mode;
	} files[] = {{"run/vm", S_IFDIR | 0750},
		     {"run/vm/0", S_IFDIR | 0750},
		     {"run/vm/0/ctl.sock", S_IFSOCK | 0660},
		     {"run/vm/0/log", S_IFREG | 0640}};
	struct stat st;

	spawn(0);
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		assert_int_equal(lstat(under("%s", files[i].name), &st), 0);
		assert_int_equal(st.st_uid, 0);
		assert_int_equal(st.st_gid, ACCOUNT);
		assert_int_equal(st.st_mode, files[i].mode);
	}
	assert_int_equal(stat(under("state"), &st), 0);
	assert_int_equal(st.st_uid, ACCOUNT);
	assert_int_equal(st.st_mode, S_IFDIR | 0700);
	release(0);
}

static void escape_attempts_fail(void **state)
{
	spawn(0);
	assert_string_equal(ask_probe(0, "try"), "nothing works");
	release(0);
}

static void cgroup_has_the_requested_limits(void **state)
{
	pid_t pid = spawn(0);
	struct stat st;

	assert_int_equal(stat(group, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0755); /* the service reads its statistics */

	assert_non_null(strstr(file_text(proc(pid, "cgroup")), "/ramet/vm-0\n"));
	if (has_controller("memory")) {
		assert_string_equal(limit_of("vm-0", "memory.max"), "268435456\n");
		assert_string_equal(limit_of("vm-0", "memory.oom.group"), "1\n");
		assert_string_equal(limit_of("vm-0", "memory.low"), "max\n");
		assert_string_equal(limit_of("service", "memory.low"), "max\n");
		assert_string_equal(limit_of("warden", "memory.low"), "max\n");
	}
	if (has_controller("cpu"))
		assert_string_equal(limit_of("vm-0", "cpu.max"), "150000 100000\n");
	if (has_controller("pids"))
		assert_string_equal(limit_of("vm-0", "pids.max"), "24\n");
	release(0);
	if (!controllers[2])
		skip(); /* a controller is missing: the test was incomplete */
}

/* Returns the reply to WARDEN_MEMORY: an error if no VM runs in the slot. */
static struct warden_msg set_memory(uint32_t slot, uint64_t max)
{
	struct warden_msg m = {.version = WARDEN_VERSION,
			       .type = WARDEN_MEMORY,
			       .seq = ++last_seq,
			       .slot = slot,
			       .memory = {.max = max}};

	put(&m);
	return get();
}

/* Tests that each jail requests core scheduling. Where the kernel lacks it, the request fails and
 * rametd reports that. */
static void jail_requests_its_own_cores(void **state)
{
	unsigned before = atomic_load(cookies);

	spawn(1);
	assert_int_equal(atomic_load(cookies), before + 1);
	release(1);
}

static void memory_limit_can_be_changed(void **state)
{
	assert_int_equal(set_memory(0, 1ull << 30).reply.error, -ESRCH);
	spawn(0);
	assert_int_equal(set_memory(0, 1ull << 30).reply.error, 0);
	if (has_controller("memory")) {
		assert_string_equal(limit_of("vm-0", "memory.max"), "1073741824\n");
		assert_string_equal(limit_of("vm-0", "memory.oom.group"), "1\n");
	}
	assert_int_equal(set_memory(0, 1).reply.error, -EINVAL);
	release(0);
	if (!has_controller("memory"))
		skip();
}

/* Returns the reply to WARDEN_CHARGED: an error if no VM runs in the slot. */
static struct warden_msg ask_charged(uint32_t slot)
{
	struct warden_msg m = {
		.version = WARDEN_VERSION, .type = WARDEN_CHARGED, .seq = ++last_seq, .slot = slot};

	put(&m);
	return get();
}

static void charged_memory_is_reported(void **state)
{
	assert_int_equal(ask_charged(0).reply.error, -ESRCH);
	spawn(0);
	struct warden_msg r = ask_charged(0);
	if (has_controller("memory")) {
		assert_int_equal(r.reply.error, 0);
		assert_in_range(r.reply.value, 4096, MEMORY);
	} else {
		assert_int_equal(r.reply.error, -ENOTSUP);
	}
	release(0);
	if (!has_controller("memory"))
		skip();
}

static struct warden_msg priority_of(uint32_t slot, uint32_t priority)
{
	struct warden_msg m = {.version = WARDEN_VERSION,
			       .type = WARDEN_PRIORITY,
			       .seq = ++last_seq,
			       .slot = slot};

	m.priority.priority = priority;
	return m;
}

static void cpu_weight_follows_priority(void **state)
{
	assert_refused(priority_of(4, WARDEN_NORMAL), ESRCH, "no VM runs in slot 4");
	spawn(4);
	if (has_controller("cpu")) {
		assert_string_equal(limit_of("service", "cpu.weight"), "10000\n");
		assert_string_equal(limit_of("warden", "cpu.weight"), "10000\n");
		assert_string_equal(limit_of("vm-4", "cpu.weight"), "1000\n");
		assert_int_equal(call(priority_of(4, WARDEN_BACKGROUND)).reply.error, 0);
		assert_string_equal(limit_of("vm-4", "cpu.idle"), "1\n");
		assert_int_equal(call(priority_of(4, WARDEN_NORMAL)).reply.error, 0);
		assert_string_equal(limit_of("vm-4", "cpu.idle"), "0\n");
		assert_string_equal(limit_of("vm-4", "cpu.weight"), "100\n");
		assert_int_equal(call(priority_of(4, WARDEN_BACKGROUND)).reply.error, 0);
		assert_int_equal(call(priority_of(4, WARDEN_BRINGUP)).reply.error, 0);
		assert_string_equal(limit_of("vm-4", "cpu.weight"), "1000\n");
	}
	assert_refused(priority_of(4, WARDEN_PRIORITIES), EINVAL, "priority is 3");
	release(4);
}

/* Needs the io controller, and disks with I/O weights. */
static void io_weight_follows_priority(void **state)
{
	char path[sizeof(group) + 32];

	spawn(4);
	snprintf(path, sizeof(path), "%s/vm-4/io.weight", group);
	if (access(path, F_OK) < 0) {
		release(4);
		skip();
	}
	assert_string_equal(limit_of("warden", "io.weight"), "default 10000\n");
	assert_string_equal(limit_of("vm-4", "io.weight"), "default 1000\n");
	assert_int_equal(call(priority_of(4, WARDEN_BACKGROUND)).reply.error, 0);
	assert_string_equal(limit_of("vm-4", "io.weight"), "default 1\n");
	assert_int_equal(call(priority_of(4, WARDEN_NORMAL)).reply.error, 0);
	assert_string_equal(limit_of("vm-4", "io.weight"), "default 100\n");
	release(4);
}

/* The VM that is killed first is also reclaimed first. */
static void assert_low(uint32_t slot, const char *low)
{
	char name[16];

	snprintf(name, sizeof(name), "vm-%u", slot);
	if (has_controller("memory"))
		assert_string_equal(limit_of(name, "memory.low"), low);
}

static void oom_mark_sets_score_and_reclaim(void **state)
{
	struct warden_msg m = {.version = WARDEN_VERSION, .type = WARDEN_OOM, .slot = 4};
	pid_t pid = spawn(4);

	assert_string_equal(file_text(proc(pid, "oom_score_adj")), "300\n");
	m.oom.first = 1;
	m.seq = ++last_seq;
	assert_int_equal(call(m).reply.error, 0);
	assert_string_equal(file_text(proc(pid, "oom_score_adj")), "900\n");
	assert_low(4, "0\n");
	m.oom.first = 0;
	m.seq = ++last_seq;
	assert_int_equal(call(m).reply.error, 0);
	assert_string_equal(file_text(proc(pid, "oom_score_adj")), "300\n");
	assert_low(4, "max\n");
	release(4);
}

static void vm_over_its_memory_limit_is_killed(void **state)
{
	if (!has_controller("memory"))
		skip();
	spawn(0);
	assert_string_equal(ask_probe(0, "hog"), "");
	assert_int_equal(exit_of(0), SIGKILL);
	release(0);
}

static void thread_count_is_limited(void **state)
{
	if (!has_controller("pids"))
		skip();
	spawn(0);
	assert_string_equal(ask_probe(0, "threads"), "24");
	release(0);
}

static void death_is_reported_and_keeps_the_slot(void **state)
{
	spawn(2);
	assert_string_equal(ask_probe(2, "exit"), "");
	assert_int_equal(exit_of(2), 7 << 8);
	assert_refused(spawn_of(2), EBUSY, "slot 2 is taken");
	release(2);
	kill(spawn(2), SIGKILL);
	assert_int_equal(exit_of(2), SIGKILL);
	release(2);
}

static void release_removes_everything(void **state)
{
	pid_t pid = spawn(4);
	char path[sizeof(group) + 16];

	snprintf(path, sizeof(path), "%s/vm-4", group);
	assert_int_equal(access(path, F_OK), 0);
	release(4);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(access(under("run/vm/4"), F_OK), -1);
	assert_int_equal(kill(pid, 0), -1);
	release(4); /* an empty slot counts as released */
}

static void requests_for_one_slot_do_not_mix(void **state)
{
	struct warden_msg a = spawn_of(6), b = release_of(6), c = spawn_of(6);
	unsigned answers = 0;

	put(&a);
	put(&b);
	while (answers < 2) {
		struct warden_msg r = get();

		assert_int_equal(r.type, WARDEN_REPLY);
		answers++;
		if (r.seq == a.seq)
			assert_true(r.reply.error == 0 || r.reply.error == -ECANCELED);
		else
			assert_true(r.seq == b.seq && r.reply.error == 0);
	}
	assert_int_equal(call(c).reply.error, 0);
	release(6);
}

static void many_concurrent_spawns_succeed(void **state)
{
	struct timespec from, to;
	bool seen[SLOTS] = {false};

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct warden_msg m = spawn_of(i);

		put(&m);
	}
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct warden_msg r = get();

		assert_int_equal(r.reply.error, 0);
		assert_true(r.slot < SLOTS && !seen[r.slot]);
		seen[r.slot] = true;
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	print_message("%d jails in %.1f ms\n", SLOTS,
		      (double)(to.tv_sec - from.tv_sec) * 1e3 +
			      (double)(to.tv_nsec - from.tv_nsec) / 1e6);
	for (uint32_t i = 0; i < SLOTS; i++)
		release(i);
}

static struct warden_msg no_egress(uint32_t slot)
{
	return (struct warden_msg){.version = WARDEN_VERSION,
				   .type = WARDEN_NO_EGRESS,
				   .seq = ++last_seq,
				   .slot = slot};
}

static bool is_closed(uint32_t slot)
{
	char line[64], name[32];
	bool found = false;
	FILE *f = popen("nft list set inet ramet no_egress", "re");

	assert_non_null(f);
	snprintf(name, sizeof(name), "\"rt%u\"", slot);
	while (fgets(line, sizeof(line), f))
		found = found || strstr(line, name);
	assert_int_equal(pclose(f), 0);
	return found;
}

static void slot_stays_closed_until_released(void **state)
{
	pid_t pid = spawn(2);

	assert_true(if_nametoindex("rt2") > 0);
	assert_false(is_closed(2));
	assert_int_equal(call(no_egress(2)).reply.error, 0);
	assert_true(is_closed(2));
	stop_warden(SIGKILL);
	start_warden();
	assert_true(is_closed(2));
	kill(pid, SIGKILL);
	assert_int_equal(exit_of(2), WARDEN_STATUS_UNKNOWN);
	release(2);
	assert_false(is_closed(2));
	assert_refused(no_egress(2), ESRCH, "no VM runs in slot 2");
}

/* --- network namespaces that are used again -------------------------------------------------- */

static ino_t net_of(pid_t pid)
{
	struct stat st;

	assert_int_equal(stat(proc(pid, "ns/net"), &st), 0);
	return st.st_ino;
}

/* Returns the number of network namespaces that the warden holds, including the host's. */
static size_t count_held(void)
{
	DIR *dir = opendir(proc(warden_pid, "fd"));
	struct dirent *entry;
	char link[64];
	size_t n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);

		link[len > 0 ? len : 0] = '\0';
		n += strncmp(link, "net:[", 5) == 0;
	}
	closedir(dir);
	return n;
}

static void next_vm_of_a_slot_gets_the_namespace(void **state)
{
	pid_t pid = spawn(3);
	ino_t before = net_of(pid);

	assert_int_not_equal(before, net_of(getpid()));
	release(3);
	pid = spawn(3);
	assert_int_equal(net_of(pid), before);
	assert_status(pid, "Uid:\t310003\t310003\t310003\t310003");
	assert_string_equal(ask_probe(3, "try"), "nothing works");
	release(3);
}

static void closed_egress_is_not_inherited(void **state)
{
	spawn(3);
	assert_int_equal(call(no_egress(3)).reply.error, 0);
	release(3);
	spawn(3);
	assert_false(is_closed(3));
	release(3);
	spawn(3);
	assert_int_equal(call(no_egress(3)).reply.error, 0);
	assert_true(is_closed(3));
	release(3);
}

/* The other tests here run with such descriptors, too (take_small_numbers). */
static void descriptors_above_those_of_select_work(void **state)
{
	assert_true(count_entries(proc(warden_pid, "fd")) >= FD_SETSIZE);
	spawn(3);
	assert_int_equal(call(no_egress(3)).reply.error, 0);
	release(3);
}

static void respawns_leak_no_descriptor(void **state)
{
	size_t before;

	spawn(3);
	release(3);
	before = count_entries(proc(warden_pid, "fd"));
	for (int i = 0; i < 200; i++) {
		spawn(3);
		release(3);
	}
	assert_int_equal(count_entries(proc(warden_pid, "fd")), before);
}

static void idle_namespaces_are_bounded(void **state)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		spawn(i);
	assert_int_equal(count_held(), SLOTS + 1);
	for (uint32_t i = SLOTS; i-- > 0;)
		release(i);
	assert_int_equal(count_held(), 64 + 1);
	ino_t first = net_of(spawn(0)); /* the first slots keep theirs */
	release(0);
	assert_int_equal(net_of(spawn(0)), first);
	release(0);
}

static void namespaces_end_with_a_killed_warden(void **state)
{
	const struct timespec pause = {.tv_nsec = 5000000};

	spawn(3);
	release(3);
	assert_true(if_nametoindex("rt3") > 0);
	stop_warden(SIGKILL);
	for (int i = 0; i < WAIT_MS / 5 && if_nametoindex("rt3"); i++)
		nanosleep(&pause, NULL);
	assert_int_equal(if_nametoindex("rt3"), 0);
	start_warden();
}

static void invalid_packets_are_refused(void **state)
{
	struct warden_msg m = spawn_of(SLOTS);

	assert_refused(m, ERANGE, "slot 72 does not exist");
	size_t fds = count_entries(proc(warden_pid, "fd")); /* its start is over */
	m = spawn_of(0);
	m.spawn.vcpus = 1000;
	assert_refused(m, EINVAL, "vcpus is 1000");
	m = spawn_of(0);
	m.type = WARDEN_EXITED;
	assert_refused(m, EPROTO, "65 is not a request type");

	char longer[2 * sizeof(m)] = {0};
	m = spawn_of(0);
	memcpy(longer, &m, sizeof(m));
	assert_int_equal(send(warden, longer, sizeof(longer), 0), sizeof(longer));
	assert_int_equal(get().reply.error, -EPROTO);
	assert_int_equal(send(warden, longer, 20, 0), 20);
	assert_int_equal(get().reply.error, -EPROTO);
	assert_int_equal(count_entries(proc(warden_pid, "fd")), fds);
}

/*
 * A service that asks and does not read: nothing is lost, and the warden does not wait for it. A
 * socket holds fewer than 280 packets one way; the relay's to the warden holds twice as many.
 */
static void flood_is_answered_in_order(void **state)
{
	enum { REQUESTS = 400 };
	uint32_t first = last_seq + 1;

	assert_int_equal(send(warden, "hold", 4, 0), 4);
	for (uint32_t i = 0; i < REQUESTS; i++) {
		struct warden_msg m = release_of(i % SLOTS);

		put(&m);
	}
	assert_int_equal(send(warden, "go", 2, 0), 2);
	for (uint32_t i = 0; i < REQUESTS; i++) {
		struct warden_msg r = get();

		assert_int_equal(r.seq, first + i);
		assert_int_equal(r.reply.error, 0);
	}
	spawn(0);
	release(0);
}

static void descriptors_are_not_received(void **state)
{
	size_t fds = count_entries(proc(warden_pid, "fd"));
	MESSAGE_FDS_ROOM(space, 1);
	struct warden_msg m = release_of(0);
	struct iovec iov = {&m, sizeof(m)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	message_put_fds(&msg, space, &listener, 1);
	assert_true(sendmsg(warden, &msg, 0) > 0);
	assert_int_equal(get().seq, m.seq);
	assert_int_equal(count_entries(proc(warden_pid, "fd")), fds);
}

static void set_vmm(const char *target)
{
	unlink(under("vmm"));
	assert_int_equal(symlink(target, under("vmm")), 0);
}

static pid_t service_pid(void)
{
	char path[sizeof(group) + 32];

	snprintf(path, sizeof(path), "%s/service/cgroup.procs", group);
	return atoi(file_text(path));
}

static int try_warden(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(run_warden(false));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void start_another_warden(const char *vmm)
{
	stop_warden(SIGKILL);
	set_vmm(vmm);
	start_warden();
}

/* An upgrade replaces the program before the warden. */
static void vm_program_is_that_of_the_start(void **state)
{
	set_vmm("/bin/true");
	spawn(0);
	release(0);
	start_another_warden("/bin/true");
	assert_refused(spawn_of(0), ENOEXEC, "slot 0: the VM program is not statically linked");
	start_another_warden(probe);
	spawn(0); /* nothing is left of the failed one */
	release(0);
}

static void unusable_vm_program_is_refused(void **state)
{
	stop_warden(SIGKILL);
	set_vmm("/etc/passwd");
	assert_int_equal(try_warden(), 1);
	set_vmm("/nonexistent");
	assert_int_equal(try_warden(), 1);
	set_vmm(probe);
	start_warden();
}

static void second_warden_is_refused(void **state)
{
	pid_t mine = service_pid();

	assert_int_equal(try_warden(), 1); /* the same run_dir */
	assert_int_equal(access(under("run/lock"), F_OK), 0);
	snprintf(config.run_dir, sizeof(config.run_dir), "%s/run2", top);
	assert_int_equal(try_warden(), 1); /* the same cgroup */
	assert_int_equal(access(config.run_dir, F_OK), -1);
	snprintf(config.run_dir, sizeof(config.run_dir), "%s/run", top);
	assert_int_equal(service_pid(), mine);
	spawn(0);
	release(0);
}

static void service_is_unprivileged(void **state)
{
	pid_t pid = service_pid();

	assert_status(pid, "Uid:\t64999\t64999\t64999\t64999");
	assert_status(pid, "Groups:\t ");
	assert_status(pid, "CapEff:\t0000000000000000");
	assert_status(pid, "CapPrm:\t0000000000000000");
	assert_status(pid, "CapBnd:\t0000000000000000");
	assert_status(pid, "NoNewPrivs:\t1");
	assert_status(pid, "SigBlk:\t0000000000000000");
}

/* Returns one set of capabilities of a process. */
static uint64_t capabilities(pid_t pid, const char *set)
{
	FILE *f = fopen(proc(pid, "status"), "re");
	uint64_t found = UINT64_MAX;
	char line[256];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, set, strlen(set)) == 0)
			found = strtoull(line + strlen(set) + 1, NULL, 16);
	fclose(f);
	return found;
}

/* Its own folder is elsewhere in these tests. */
static void service_sees_nothing_of_run(void **state)
{
	DIR *run = opendir(proc(service_pid(), "root/run"));

	assert_non_null(run);
	for (struct dirent *entry; (entry = readdir(run));)
		if (entry->d_name[0] != '.')
			fail_msg("the service sees /run/%s", entry->d_name);
	closedir(run);
}

static void warden_keeps_only_its_capabilities(void **state)
{
	uint64_t kept = 0;

	for (size_t i = 0; i < privileges_warden.n; i++)
		kept |= 1ull << privileges_warden.keeps[i];
	kept &= capabilities(getpid(), "CapBnd");
	assert_int_equal(capabilities(warden_pid, "CapBnd"), kept);
	assert_int_equal(capabilities(warden_pid, "CapPrm"), kept);
	assert_int_equal(capabilities(warden_pid, "CapEff"), kept);
	assert_int_equal(capabilities(warden_pid, "CapInh"), 0);
	assert_status(warden_pid, "NoNewPrivs:\t1");
}

/* The webhooks' secret is for ramet-notify only. */
static void service_does_not_get_the_webhook_secret(void **state)
{
	pid_t pid = service_pid();
	scoped_fd int settings = open(proc(pid, "fd/4"), O_RDONLY | O_CLOEXEC);
	struct config c;

	assert_int_equal(pread(settings, &c, sizeof(c), 0), sizeof(c));
	assert_string_equal(c.state_dir, config.state_dir);
	assert_string_equal(c.webhook_secret, "");
	assert_null(strstr(file_text(proc(pid, "environ")), "RAMET_"));
}

static void ramet_notify_has_its_own_uid(void **state)
{
	pid_t pid = atoi(limit_of("notify", "cgroup.procs"));
	scoped_fd int settings = open(proc(pid, "fd/4"), O_RDONLY | O_CLOEXEC);
	struct config c;

	assert_string_equal(file_text(proc(pid, "cmdline")), "ramet-notify ");
	assert_status(pid, "Uid:\t326384\t326384\t326384\t326384");
	assert_status(pid, "CapEff:\t0000000000000000");
	assert_int_equal(pread(settings, &c, sizeof(c), 0), sizeof(c));
	assert_string_equal(c.webhook_secret, config.webhook_secret);
}

static void vm_survives_a_service_restart(void **state)
{
	pid_t pid = spawn(1);

	spawn(2);
	ask_probe(2, "exit");
	assert_int_equal(exit_of(2), 7 << 8);
	kill(service_pid(), SIGKILL);
	accept_service();
	assert_int_equal(exit_of(2), 7 << 8); /* the new service is notified */
	assert_string_equal(ask_probe(1, "hello"), "what?");
	assert_refused(spawn_of(1), EBUSY, "slot 1 is taken");
	kill(pid, SIGKILL);
	assert_int_equal(exit_of(1), SIGKILL);
	release(1);
	release(2);
}

static void vm_survives_a_warden_restart(void **state)
{
	pid_t pid = spawn(1);

	kill(spawn(2), SIGKILL);
	assert_int_equal(exit_of(2), SIGKILL);
	stop_warden(SIGKILL);
	start_warden();
	assert_int_equal(access(under("run/vm/2"), F_OK), -1); /* a dead slot is cleaned up */
	assert_string_equal(ask_probe(1, "hello"), "what?");
	assert_refused(spawn_of(1), EBUSY, "slot 1 is taken");
	kill(pid, SIGKILL);
	assert_int_equal(exit_of(1), WARDEN_STATUS_UNKNOWN);
	release(1);
	spawn(1);
	stop_warden(SIGKILL);
	start_warden();
	release(1); /* while the VM runs */
	assert_int_equal(access(under("run/vm/1"), F_OK), -1);
}

static int open_tree_in_child(const char *const *wanted, const char *words)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct cgroup_tree t;
		struct err e = {0};

		if (cgroup_tree_open(&t, config.cgroup, 0, wanted, &e) == 0)
			_exit(0);
		_exit(strstr(e.text, words) ? 1 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void crash(uint32_t slot)
{
	struct warden_msg m = priority_of(slot, WARDEN_NORMAL);
	int status;

	put(&m);
	assert_int_equal(waitpid(warden_pid, &status, 0), warden_pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	start_warden_after(true);
}

static void request_that_crashes_the_warden_twice_is_refused(void **state)
{
	pid_t pid = spawn(1);

	*deadly = 1 + 1;
	crash(1);
	crash(1);
	log_init("warden", LOG_ERROR);
	assert_refused(priority_of(1, WARDEN_NORMAL), ENOTRECOVERABLE, "slot 1: this request");
	*deadly = 0;
	assert_refused(priority_of(1, WARDEN_NORMAL), ENOTRECOVERABLE, "crashed the warden twice");
	assert_int_equal(kill(pid, 0), 0);
	spawn(2); /* other requests, and other slots, are served */
	assert_int_equal(call(priority_of(2, WARDEN_NORMAL)).reply.error, 0);
	release(1);
	release(2);
}

static void missing_controller_is_reported(void **state)
{
	static const char *const wanted[] = {"gravity", NULL};

	assert_int_equal(open_tree_in_child(wanted, "has no gravity controller"), 1);
}

/* Runs after the warden has stopped, because this test itself is in the cgroup that rametd would
 * divide. */
static void cgroup_with_other_processes_is_refused(void **state)
{
	char path[sizeof(base) + 32];

	if (!controllers[0])
		skip();
	snprintf(path, sizeof(path), "%s/cgroup.procs", base);
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	scoped_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(dprintf(fd, "%d", pid) > 0);
	assert_int_equal(open_tree_in_child(controllers, "holds other processes"), 1);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(access(group, F_OK), -1);
}

static void stop_removes_everything(void **state)
{
	pid_t pid = spawn(1);

	spawn(7);
	assert_int_equal(stop_warden(SIGTERM), 0);
	warden_pid = 0;
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(access(group, F_OK), -1);
	assert_int_equal(access(under("run"), F_OK), -1);
	assert_int_equal(access(under("state"), F_OK), 0);
	assert_int_not_equal(system("nft list table inet ramet >/dev/null 2>&1"), 0);
}

/* --- setup and teardown ---------------------------------------------------------------------- */

/* Returns the mount point of cgroup v2; empty: not mounted. */
static void find_mount(char point[static CGROUP_PATH_MAX])
{
	char line[4096], root[CGROUP_PATH_MAX];
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = cgroup_mount_line(line, root, point);
	if (f)
		fclose(f);
	if (!found)
		point[0] = '\0';
}

/* Creates a cgroup for this test with the available controllers. Returns false when there are none.
 */
static bool make_base(void)
{
	char point[CGROUP_PATH_MAX], path[CGROUP_PATH_MAX + 32];
	size_t n = 0;

	find_mount(point);
	if (!point[0])
		return false;
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", point);
	for (size_t i = 0; cgroup_controllers[i]; i++) {
		char text[32];
		scoped_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
		int len = snprintf(text, sizeof(text), "+%s", cgroup_controllers[i]);

		if (fd >= 0 && write(fd, text, (size_t)len) == len)
			controllers[n++] = cgroup_controllers[i];
	}
	snprintf(config.cgroup, sizeof(config.cgroup), "/ramet-test-%d", getpid());
	snprintf(base, sizeof(base), "%s%s", point, config.cgroup);
	snprintf(group, sizeof(group), "%s/ramet", base);
	return mkdir(base, 0755) == 0;
}

static int set_up(void **state)
{
	const struct rlimit files = {4 * FD_SETSIZE, 4 * FD_SETSIZE};

	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return -1;
	snprintf(top, sizeof(top), "/tmp/ramet-jail-XXXXXX");
	if (!mkdtemp(top) || chmod(top, 0755) < 0)
		return -1;
	config_defaults(&config);
	if (!make_base())
		return -1;
	/* A separate network namespace: a service may be using the machine's. */
	if (unshare(CLONE_NEWNET) < 0)
		return -1;
	snprintf(config.run_dir, sizeof(config.run_dir), "%s/run", top);
	snprintf(config.state_dir, sizeof(config.state_dir), "%s/state", top);
	snprintf(config.vmm, sizeof(config.vmm), "%s/vmm", top);
	snprintf(config.user, sizeof(config.user), "%d", ACCOUNT);
	snprintf(config.network, sizeof(config.network), "10.251.0.0/17");
	snprintf(config.webhook_secret, sizeof(config.webhook_secret), "0123456789abcdef");
	setenv("RAMET_WEBHOOK_SECRET", config.webhook_secret, 1);
	snprintf(config.webhook_url, sizeof(config.webhook_url), "http://127.0.0.1:9/");
	memset(config.notify, 0, sizeof(config.notify)); /* readlink(2) adds no NUL */
	if (readlink("/proc/self/exe", config.notify, sizeof(config.notify) - 1) < 0)
		return -1;
	config.vm_uid_base = UID_BASE;
	config.max_vms = SLOTS;
	set_vmm(probe);
	struct sockaddr_un at = address(under("test.sock"));
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    chmod(under("test.sock"), 0666) < 0 || listen(listener, 4) < 0)
		return -1;
	start_warden();
	return 0;
}

static int tear_down(void **state)
{
	char command[128];

	if (warden_pid > 0)
		stop_warden(SIGTERM);
	rmdir(base);
	snprintf(command, sizeof(command), "rm -rf '%s'", top);
	return system(command);
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vm_process_has_own_uid_and_no_privileges),
		cmocka_unit_test(vm_process_has_own_namespaces),
		cmocka_unit_test(root_is_empty_and_read_only),
		cmocka_unit_test(only_needed_descriptors_are_open),
		cmocka_unit_test(arguments_follow_the_request),
		cmocka_unit_test(slot_directory_is_for_the_service_only),
		cmocka_unit_test(escape_attempts_fail),
		cmocka_unit_test(cgroup_has_the_requested_limits),
		cmocka_unit_test(jail_requests_its_own_cores),
		cmocka_unit_test(memory_limit_can_be_changed),
		cmocka_unit_test(charged_memory_is_reported),
		cmocka_unit_test(cpu_weight_follows_priority),
		cmocka_unit_test(io_weight_follows_priority),
		cmocka_unit_test(oom_mark_sets_score_and_reclaim),
		cmocka_unit_test(vm_over_its_memory_limit_is_killed),
		cmocka_unit_test(thread_count_is_limited),
		cmocka_unit_test(death_is_reported_and_keeps_the_slot),
		cmocka_unit_test(release_removes_everything),
		cmocka_unit_test(requests_for_one_slot_do_not_mix),
		cmocka_unit_test(many_concurrent_spawns_succeed),
		cmocka_unit_test(slot_stays_closed_until_released),
		cmocka_unit_test(next_vm_of_a_slot_gets_the_namespace),
		cmocka_unit_test(closed_egress_is_not_inherited),
		cmocka_unit_test(descriptors_above_those_of_select_work),
		cmocka_unit_test(respawns_leak_no_descriptor),
		cmocka_unit_test(idle_namespaces_are_bounded),
		cmocka_unit_test(namespaces_end_with_a_killed_warden),
		cmocka_unit_test(invalid_packets_are_refused),
		cmocka_unit_test(flood_is_answered_in_order),
		cmocka_unit_test(descriptors_are_not_received),
		cmocka_unit_test(vm_program_is_that_of_the_start),
		cmocka_unit_test(unusable_vm_program_is_refused),
		cmocka_unit_test(second_warden_is_refused),
		cmocka_unit_test(service_is_unprivileged),
		cmocka_unit_test(service_sees_nothing_of_run),
		cmocka_unit_test(warden_keeps_only_its_capabilities),
		cmocka_unit_test(service_does_not_get_the_webhook_secret),
		cmocka_unit_test(ramet_notify_has_its_own_uid),
		cmocka_unit_test(vm_survives_a_service_restart),
		cmocka_unit_test(vm_survives_a_warden_restart),
		cmocka_unit_test(request_that_crashes_the_warden_twice_is_refused),
		cmocka_unit_test(missing_controller_is_reported),
		cmocka_unit_test(stop_removes_everything),
		cmocka_unit_test(cgroup_with_other_processes_is_refused),
	};

	char *slash;

	if (argc == 2 && strcmp(argv[1], "--role=service") == 0)
		return relay();
	if (argc == 1 && strcmp(argv[0], "ramet-notify") == 0)
		return pause();
	cookies = mmap(NULL, sizeof(*cookies), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (cookies == MAP_FAILED)
		return 1;
	deadly = mmap(NULL, sizeof(*deadly), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	record = warden_record_new();
	if (deadly == MAP_FAILED || !record)
		return 1;
	if (geteuid() != 0 || access("/dev/kvm", R_OK | W_OK) < 0) {
		print_message("skipped: needs root and /dev/kvm\n");
		return 77;
	}
	ssize_t len = readlink("/proc/self/exe", probe, sizeof(probe) - 16);
	if (len < 0 || !(slash = strrchr(probe, '/')))
		return 1;
	snprintf(slash, (size_t)(probe + sizeof(probe) - slash), "/warden_probe");
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
