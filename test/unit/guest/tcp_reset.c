// SPDX-License-Identifier: Apache-2.0
/* Runs in a new network namespace, where nobody answers packets sent through eth0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/system/system.h"

/* The kernel makes the address local some time after the link is up. */
#define PREPARE                                                                                    \
	"exec 2>/dev/null; ip link set lo up && ip link add eth0 type veth peer name far && "      \
	"ip address add 192.168.252.2/24 dev eth0 && "                                             \
	"ip address add fd52:616d:6574::2/64 dev eth0 nodad && "                                   \
	"ip link set far up && ip link set eth0 up && "                                            \
	"until ip -6 route get fd52:616d:6574::2 | grep -q ^local; do sleep 0.01; done"

struct peer {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
	socklen_t len;
};

static struct peer peer(const char *address, uint16_t port)
{
	struct peer p = {0};

	if (strchr(address, ':')) {
		p.v6.sin6_family = AF_INET6;
		p.v6.sin6_port = htons(port);
		p.len = sizeof(p.v6);
		assert_int_equal(inet_pton(AF_INET6, address, &p.v6.sin6_addr), 1);
	} else {
		p.v4.sin_family = AF_INET;
		p.v4.sin_port = htons(port);
		p.len = sizeof(p.v4);
		assert_int_equal(inet_pton(AF_INET, address, &p.v4.sin_addr), 1);
	}
	return p;
}

static int tcp_socket(const struct peer *p)
{
	int fd = socket(p->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	return fd;
}

static int start_connecting(const char *address, uint16_t port)
{
	struct peer p = peer(address, port);
	int fd = tcp_socket(&p);

	if (connect(fd, &p.any, p.len) < 0)
		assert_int_equal(errno, EINPROGRESS);
	return fd;
}

static int listen_at(const char *address, uint16_t port)
{
	struct peer p = peer(address, port);
	int fd = tcp_socket(&p);

	assert_int_equal(bind(fd, &p.any, p.len), 0);
	assert_int_equal(listen(fd, 5), 0);
	return fd;
}

static int error_of(int fd)
{
	int error = -1;
	socklen_t len = sizeof(error);

	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	return error;
}

static void test_outside_connections_are_reset(void **state)
{
	const char *const outside[] = {"192.168.252.77", "fd52:616d:6574::77",
				       "::ffff:192.168.252.78", "192.168.252.79"};
	int fds[sizeof(outside) / sizeof(outside[0])];

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		fds[i] = start_connecting(outside[i], 80);
	int ended = tcp_reset("eth0");
	if (ended == -EOPNOTSUPP || ended == -ENOENT || ended == -EPROTONOSUPPORT) {
		print_message("skipped: the kernel has no INET_DIAG_DESTROY\n");
		skip();
	}
	assert_int_equal(ended, 4);
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		struct pollfd p = {.fd = fds[i], .events = POLLIN};
		assert_int_equal(poll(&p, 1, 0), 1);
		assert_int_equal(error_of(fds[i]), ECONNABORTED);
		close(fds[i]);
	}
	assert_int_equal(tcp_reset("eth0"), 0);
}

static void test_inside_connections_survive(void **state)
{
	const char *const within[] = {"127.0.0.1", "::1", "192.168.252.2", "fd52:616d:6574::2"};

	for (size_t i = 0; i < sizeof(within) / sizeof(within[0]); i++) {
		char byte = 0;
		int listener = listen_at(within[i], 5000);
		int near = start_connecting(within[i], 5000);
		struct pollfd p = {.fd = listener, .events = POLLIN};
		assert_int_equal(poll(&p, 1, 10000), 1);
		int far = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		assert_true(far >= 0);
		assert_int_equal(tcp_reset("eth0"), 0);
		assert_int_equal(write(near, "x", 1), 1);
		assert_int_equal(read(far, &byte, 1), 1);
		assert_int_equal(byte, 'x');
		int second = start_connecting(within[i], 5000);
		assert_int_equal(poll(&p, 1, 10000), 1);
		close(second);
		close(near);
		close(far);
		close(listener);
	}
}

static void test_missing_interface_resets_nothing(void **state)
{
	assert_int_equal(tcp_reset("nosuchlink"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outside_connections_are_reset),
		cmocka_unit_test(test_inside_connections_survive),
		cmocka_unit_test(test_missing_interface_resets_nothing),
	};

	if (unshare(CLONE_NEWNET) < 0 || system(PREPARE) != 0) {
		fprintf(stderr, "skipped: network namespaces are not permitted here\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
