// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/daemon/seccomp.h"

/* Each of these functions runs confined, in its own process, and returns only if its call is
 * allowed. */

static void *in_thread(void *arg)
{
	return arg;
}

static void make_thread(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, in_thread, NULL) != 0 || pthread_join(t, NULL) != 0)
		_exit(1);
}

static void use_files(void)
{
	scoped_fd int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	char text[64];

	if (fd < 0 || read(fd, text, sizeof(text)) <= 0)
		_exit(1);
}

static void use_sockets(void)
{
	int ends[2], waiting;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) < 0 || send(ends[0], "x", 1, 0) != 1 ||
	    ioctl(ends[1], FIONREAD, &waiting) < 0 || waiting != 1)
		_exit(1);
}

static void use_clients(void)
{
	scoped_fd int v4 = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	scoped_fd int v6 = socket(AF_INET6, SOCK_STREAM, 0);
	scoped_fd int tcp = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
	scoped_fd int stream = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	scoped_fd int packets = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (v4 < 0 || tcp < 0 || stream < 0 || packets < 0 || (v6 < 0 && errno != EAFNOSUPPORT))
		_exit(1);
}

static void send_datagrams(void)
{
	socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static void speak_raw(void)
{
	socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
}

static void speak_mptcp(void)
{
	socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
}

static void speak_sctp(void)
{
	socket(AF_INET6, SOCK_STREAM, IPPROTO_SCTP);
}

static void send_packets(void)
{
	socket(AF_INET, SOCK_SEQPACKET, 0); /* SCTP, if the kernel supports it */
}

static void ask_for_routes(void)
{
	socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
}

static void call_a_guest(void)
{
	socket(AF_VSOCK, SOCK_STREAM, 0);
}

static void name_itself(void)
{
	if (prctl(PR_SET_NAME, "worker") < 0)
		_exit(1);
}

static void fork_off(void)
{
	if (fork() == 0)
		_exit(0);
}

static void vfork_off(void)
{
	syscall(SYS_vfork);
}

static void clone_process(void)
{
	if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0)
		_exit(0);
}

static void execute(void)
{
	char *const argv[] = {"true", NULL};

	execve("/bin/true", argv, argv + 1);
}

static void trace(void)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static void push_to_terminal(void)
{
	ioctl(0, 0x5412 /* TIOCSTI */, "x");
}

static void allow_dumps(void)
{
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static void leave_namespace(void)
{
	unshare(CLONE_NEWUSER);
}

static void mount_something(void)
{
	syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL);
}

static void load_program(void)
{
	syscall(SYS_bpf, 0, NULL, 0);
}

static void make_ring(void)
{
	syscall(SYS_io_uring_setup, 1, NULL);
}

static void set_keyring(void)
{
	syscall(SYS_keyctl, 0, 0);
}

/* Through the 32-bit entry, system calls have other numbers: 1 is exit and 11 is execve. */
static void enter_as_32_bit(void)
{
	long r;

	__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L /* getpid */) : "memory");
	(void)r;
}

static int run_confined(void (*what)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct rlimit none = {0, 0};
		struct err e;

		setrlimit(RLIMIT_CORE, &none);
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_confine(&e) < 0)
			_exit(2);
		what();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void needed_calls_are_allowed(void **state)
{
	assert_int_equal(run_confined(make_thread), 0);
	assert_int_equal(run_confined(use_files), 0);
	assert_int_equal(run_confined(use_sockets), 0);
	assert_int_equal(run_confined(use_clients), 0);
	assert_int_equal(run_confined(name_itself), 0);
}

static void any_other_call_kills(void **state)
{
	static const struct {
		const char *name;
		void (*what)(void);
	} cases[] = {
		{"fork", fork_off},
		{"vfork", vfork_off},
		{"clone", clone_process},
		{"execve", execute},
		{"ptrace", trace},
		{"TIOCSTI", push_to_terminal},
		{"PR_SET_DUMPABLE", allow_dumps},
		{"unshare", leave_namespace},
		{"mount", mount_something},
		{"bpf", load_program},
		{"keyctl", set_keyring},
		{"io_uring_setup", make_ring},
		{"int 0x80", enter_as_32_bit},
		{"a datagram socket", send_datagrams},
		{"a raw socket", speak_raw},
		{"MPTCP", speak_mptcp},
		{"SCTP", speak_sctp},
		{"packets over IP", send_packets},
		{"netlink", ask_for_routes},
		{"vsock", call_a_guest},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int status = run_confined(cases[i].what);

		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
			fail_msg("%s did not end by SIGSYS: wait status %x", cases[i].name, status);
	}
}

static void no_new_privs_is_required(void **state)
{
	int status;

	if (geteuid() == 0) /* root may install a filter without no_new_privs */
		skip();
	pid_t pid = fork();
	if (pid == 0) {
		struct err e;

		_exit(seccomp_confine(&e) == -EACCES ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(needed_calls_are_allowed),
		cmocka_unit_test(any_other_call_kills),
		cmocka_unit_test(no_new_privs_is_required),
	};

#ifdef __SANITIZE_ADDRESS__
	print_message("skipped: a sanitizer's runtime cannot be confined\n");
	return 77;
#endif
#ifdef __has_feature
#if __has_feature(address_sanitizer)
	print_message("skipped: a sanitizer's runtime cannot be confined\n");
	return 77;
#endif
#endif
	return cmocka_run_group_tests(tests, NULL, NULL);
}
