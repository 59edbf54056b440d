// SPDX-License-Identifier: Apache-2.0
/* Network and balloon of the real ramet-vmm, driven by a guest over the real KVM. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "proto/net.h"
#include "test/native/worker-client.h"

#define RAM_MIB 128
#define MIB	(1u << 20)
#define HDR	12 /* bytes of the header that a tap puts before each frame */

static const uint8_t guest_mac[6] = NET_GUEST_MAC;

static struct vmm_options options(int tap)
{
	return (struct vmm_options){
		.exe = RAMET_VMM, .vcpus = 1, .ram_mib = RAM_MIB, .debug_serial = true, .tap = tap};
}

/* A VM and the host's end of its network. */
struct box {
	struct worker w;
	int net;
};

static struct vmm_options with_network(struct box *b, int *tap)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	b->net = fds[0];
	*tap = fds[1];
	return options(fds[1]);
}

static struct box boot(void)
{
	scoped_fd int tap = -1;
	struct box b;
	const struct vmm_options o = with_network(&b, &tap);

	worker_boot(&b.w, &o, WORKER);
	return b;
}

static struct box fork_of(struct box *parent)
{
	scoped_fd int tap = -1;
	struct vmm_snapshot img;
	struct ctl_msg m;
	struct box b;
	const struct vmm_options o = with_network(&b, &tap);

	worker_blank(&b.w, &o);
	worker_image(&parent->w, &img, &m);
	worker_restore(&b.w, &parent->w, &img);
	vmm_snapshot_close(&img);
	return b;
}

static void stop(struct box *b)
{
	worker_stop(&b->w);
	close_fd(&b->net);
}

/* --- Network --- */

static void guest_says(struct box *b, uint64_t value)
{
	struct {
		uint8_t header[HDR];
		struct worker_frame f;
	} __attribute__((packed)) got;

	worker_do(&b->w, WORKER_SEND, 0, 0, value);
	/* The device has returned the guest's buffer, so the frame has arrived. */
	assert_int_equal(recv(b->net, &got, sizeof(got), 0), sizeof(got));
	assert_memory_equal(got.f.from, guest_mac, 6);
	assert_int_equal(got.f.type, WORKER_ETHERTYPE);
	assert_int_equal(got.f.value, value);
}

static struct worker_frame to_guest(uint64_t value)
{
	struct worker_frame f = {.from = NET_GATEWAY_MAC, .type = WORKER_ETHERTYPE, .value = value};

	memcpy(f.to, guest_mac, 6);
	return f;
}

static void guest_hears(struct box *b, uint64_t value)
{
	struct {
		uint8_t header[HDR];
		struct worker_frame f;
	} __attribute__((packed)) m = {.f = to_guest(value)};

	assert_int_equal(send(b->net, &m, sizeof(m), 0), sizeof(m));
	assert_int_equal(worker_do(&b->w, WORKER_HEAR, 0, 0, 0), value);
}

static void check_stats(struct box *b, uint64_t bytes)
{
	struct ctl_msg m = {.type = CTL_STATS};

	assert_int_equal(vmm_call(&b->w.vmm, &m, NULL, 0), 0);
	assert_int_equal(m.reply.stats.net_rx_bytes, bytes);
	assert_int_equal(m.reply.stats.net_tx_bytes, bytes);
	assert_int_equal(m.reply.stats.net_dropped, 0);
}

static void test_frames_pass_both_ways(void **state)
{
	struct box b = boot();

	for (uint64_t i = 1; i < 20; i++) {
		guest_says(&b, i * 1000);
		guest_hears(&b, i * 1000 + 1);
	}
	check_stats(&b, 19 * sizeof(struct worker_frame));
	stop(&b);
}

/* The devices of parent and children continue where they were, each on its own network. */
static void test_each_child_has_its_own_network(void **state)
{
	struct box parent = boot(), child, grandchild;

	guest_says(&parent, 1);
	guest_hears(&parent, 2);
	child = fork_of(&parent);
	for (uint64_t i = 3; i < 20; i++) {
		guest_says(&child, i);
		guest_hears(&parent, i + 100);
		guest_says(&parent, i + 200);
		guest_hears(&child, i + 300);
	}
	grandchild = fork_of(&child);
	guest_says(&grandchild, 5);
	guest_hears(&grandchild, 6);
	guest_hears(&child, 7);
	stop(&grandchild);
	stop(&child);
	stop(&parent);
}

/* A frame that arrives while the guest does not receive is not lost by the fork. */
static void test_frame_sent_during_a_fork_is_received(void **state)
{
	struct worker_frame f = to_guest(77);
	struct box parent = boot(), child;
	uint8_t m[HDR + sizeof(f)] = {0};

	guest_says(&parent, 1);
	memcpy(m + HDR, &f, sizeof(f));
	child = fork_of(&parent);
	assert_int_equal(send(parent.net, m, sizeof(m), 0), sizeof(m));
	assert_int_equal(worker_do(&parent.w, WORKER_HEAR, 0, 0, 0), 77);
	assert_int_equal(recv(child.net, m, sizeof(m), MSG_DONTWAIT), -1);
	stop(&child);
	stop(&parent);
}

static void test_frames_are_dropped_without_a_network(void **state)
{
	const struct vmm_options o = options(0);
	struct worker w;

	worker_boot(&w, &o, WORKER);
	worker_do(&w, WORKER_SEND, 0, 0, 1); /* dropped, but answered */
	worker_stop(&w);
}

/* Makes a tap as the warden does: with a header of 12 bytes, and offloads. Returns -1 where that is
 * not allowed. */
static int make_tap(void)
{
	struct ifreq ifr = {.ifr_name = "ramet-test",
			    .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	scoped_fd int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	scoped_fd int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	int bytes = HDR;

	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr) < 0)
		return -1;
	assert_int_equal(ioctl(fd, TUNSETVNETHDRSZ, &bytes), 0);
	assert_int_equal(
		ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN), 0);
	ifr.ifr_flags = IFF_UP;
	assert_int_equal(ioctl(s, SIOCSIFFLAGS, &ifr), 0);
	return take_fd(&fd);
}

static int listen_on_tap(void)
{
	struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_protocol = WORKER_ETHERTYPE};
	struct timeval timeout = {.tv_sec = 60};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, WORKER_ETHERTYPE);

	a.sll_ifindex = (int)if_nametoindex("ramet-test");
	assert_true(a.sll_ifindex > 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)), 0);
	return fd;
}

static void talk_over_tap(int tap)
{
	scoped_fd int wire = listen_on_tap();
	const struct vmm_options o = options(tap);
	struct worker_frame f;
	struct worker w;

	worker_boot(&w, &o, WORKER);
	for (uint64_t i = 1; i < 20; i++) {
		worker_do(&w, WORKER_SEND, 0, 0, i);
		do {
			assert_int_equal(recv(wire, &f, sizeof(f), 0), sizeof(f));
		} while (memcmp(f.from, guest_mac,
				6)); /* frames of this test are received as well */
		assert_int_equal(f.value, i);
		f = to_guest(i + 100);
		assert_int_equal(send(wire, &f, sizeof(f), 0), sizeof(f));
		assert_int_equal(worker_do(&w, WORKER_HEAR, 0, 0, 0), i + 100);
	}
	worker_stop(&w);
}

/* Runs in a separate process with a separate network namespace. */
static void test_kernel_tap_carries_frames(void **state)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		int tap = unshare(CLONE_NEWNET) < 0 ? -1 : make_tap();

		if (tap < 0)
			_exit(77);
		talk_over_tap(tap);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip(); /* taps can't be made here */
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- Balloon --- */

static uint64_t resident(const struct worker *w, const char *what)
{
	char path[64], text[4096], *line;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/status", w->vmm.pid);
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	line = strstr(text, what);
	assert_non_null(line);
	return strtoull(line + strlen(what), NULL, 10) << 10;
}

#define FREED (32u * MIB)

static void free_memory(struct worker *w, const char *what)
{
	uint64_t before, full;

	before = resident(w, what);
	worker_do(w, WORKER_FILL, WORKER_MEMORY, FREED, 1);
	full = resident(w, what);
	assert_true(full >= before + FREED);
	worker_do(w, WORKER_FREE, WORKER_MEMORY, FREED, 0);
	assert_true(resident(w, what) + FREED <= full + MIB);
}

/* Tests a guest that booted, whose memory is a file, and its child, which has private pages. */
static void test_freed_memory_returns_to_the_host(void **state)
{
	struct box parent = boot(), child;
	struct vmm_snapshot img;
	struct ctl_msg m;

	free_memory(&parent.w, "RssShmem:");
	child = fork_of(&parent);
	free_memory(&child.w, "RssAnon:");
	/* The next fork does not copy the freed memory. */
	worker_image(&child.w, &img, &m);
	assert_true(m.reply.fork.copied_bytes < FREED / 4);
	vmm_snapshot_close(&img);
	/* The guest can use the freed memory again. */
	worker_do(&child.w, WORKER_FILL, WORKER_MEMORY, MIB, 5);
	assert_int_equal(worker_do(&child.w, WORKER_SUM, WORKER_MEMORY, 4096, 0), 5);
	stop(&child);
	stop(&parent);
}

/* The VM has less RAM than its blank VM could have: the range between the two sizes is not
 * memory. */
static void test_memory_beyond_the_size_of_a_vm_is_unusable(void **state)
{
	struct vmm_options roomy = options(0);
	struct box parent = boot();
	struct worker child;
	struct vmm_snapshot img;
	struct ctl_msg m;

	roomy.ram_mib = 2 * RAM_MIB;
	worker_blank(&child, &roomy);
	worker_image(&parent.w, &img, &m);
	img.ram_mib = RAM_MIB;
	worker_restore(&child, &parent.w, &img);
	worker_do(&child, WORKER_FILL, WORKER_MEMORY, 4096, 5);
	worker_post(&child, WORKER_FILL, RAM_MIB * MIB, 4096, 5);
	assert_true(vmm_wait_ended(&child.vmm));
	assert_int_equal(child.vmm.ended.ended.reason, CTL_END_CRASH);
	assert_non_null(strstr(child.vmm.ended.ended.text, "memory that does not exist"));
	vmm_snapshot_close(&img);
	worker_stop(&child);
	stop(&parent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_pass_both_ways),
		cmocka_unit_test(test_each_child_has_its_own_network),
		cmocka_unit_test(test_frame_sent_during_a_fork_is_received),
		cmocka_unit_test(test_frames_are_dropped_without_a_network),
		cmocka_unit_test(test_kernel_tap_carries_frames),
		cmocka_unit_test(test_freed_memory_returns_to_the_host),
		cmocka_unit_test(test_memory_beyond_the_size_of_a_vm_is_unusable),
	};

	if (!vmm_kvm_usable()) {
		puts("skipped: no KVM to use");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
