// SPDX-License-Identifier: Apache-2.0
/* The real ramet-vmm over the real KVM, with tiny guests. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "base/wire.h"
#include "proto/image.h"
#include "test/native/guests.h"
#include "test/native/vmm-client.h"

#define RAM_MIB	   128
#define DISK_BYTES (1u << 20)

static struct vmm new_blank_vm(unsigned vcpus)
{
	const struct vmm_options o = {
		.exe = RAMET_VMM, .vcpus = vcpus, .ram_mib = RAM_MIB, .debug_serial = true};
	struct vmm v;

	assert_true(vmm_start(&v, &o));
	return v;
}

static struct vmm_snapshot new_disk(void)
{
	return (struct vmm_snapshot){.base = vmm_file("disk", 4, DISK_BYTES),
				     .disk_bytes = DISK_BYTES};
}

static struct vmm boot(unsigned vcpus, int kernel, struct vmm_snapshot *img)
{
	struct vmm v = new_blank_vm(vcpus);

	*img = new_disk();
	assert_int_equal(vmm_boot(&v, kernel, -1, "", img), 0);
	close(kernel);
	return v;
}

/* Sets the word that a saved guest waits for, in its memory file. */
static void set_flag(const struct vmm_snapshot *img)
{
	assert_int_equal(pwrite(img->memory, "\1", 1, GUEST_FLAG), 1);
}

static void test_blank_vm_sends_hello_and_quits(void **state)
{
	struct vmm v = new_blank_vm(2);
	int status;

	assert_int_equal(v.hello.hello.state, CTL_BLANK);
	assert_int_equal(v.hello.hello.vcpus, 2);
	assert_int_equal(v.hello.hello.ram_mib, RAM_MIB);
	assert_int_equal(v.hello.hello.pid, (uint32_t)v.pid);
	assert_int_equal(vmm_ask(&v, CTL_QUIT), 0);
	assert_int_equal(waitpid(v.pid, &status, 0), v.pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	v.pid = -1;
	vmm_stop(&v);
}

static bool status_has(pid_t pid, const char *thread, const char *line)
{
	char path[64], text[4096];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/status", pid, thread);
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	return strstr(text, line);
}

/* Every thread of a blank VM has a system call filter and can't gain privileges. */
static void test_blank_vm_is_confined(void **state)
{
	struct vmm v = new_blank_vm(2);
	unsigned threads = 0;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", v.pid);
	dir = opendir(path);
	assert_non_null(dir);
	for (struct dirent *d; (d = readdir(dir));) {
		if (d->d_name[0] == '.')
			continue;
		assert_true(status_has(v.pid, d->d_name, "Seccomp:\t2"));
		assert_true(status_has(v.pid, d->d_name, "NoNewPrivs:\t1"));
		assert_true(status_has(v.pid, d->d_name, "CapEff:\t0000000000000000"));
		assert_true(status_has(v.pid, d->d_name, "CapPrm:\t0000000000000000"));
		threads++;
	}
	closedir(dir);
	assert_int_equal(threads, 3);
	vmm_stop(&v);
}

static void test_invalid_arguments_are_refused(void **state)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		execl(RAMET_VMM, RAMET_VMM, "--vcpus", "99", NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

/* The guest has no handler for the fault of the forbidden write, and crashes. */
static void test_write_to_a_register_outside_of_images_crashes_the_guest(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_MSR), &img);

	assert_true(vmm_expect_log(&v, "serial: kept"));
	assert_true(vmm_expect_log(&v, "serial: read"));
	assert_true(vmm_wait_ended(&v));
	assert_int_equal(v.ended.ended.reason, CTL_END_CRASH);
	vmm_stop(&v);
	close_fd(&img.base);
	close_fd(&img.writable);
}

/* Port writes reach the serial port, an MMIO read a device, and the power port ends the guest. */
static void test_exits_reach_the_bus(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_HELLO), &img);

	assert_true(vmm_expect_log(&v, "serial: hi"));
	assert_true(vmm_expect_log(&v, "serial: magic"));
	assert_true(vmm_wait_ended(&v));
	assert_int_equal(v.ended.ended.reason, CTL_END_POWEROFF);
	vmm_stop(&v);
	close_fd(&img.base);
	close_fd(&img.writable);
}

static void test_restored_vm_continues_where_it_was_saved(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_TIMEOUT), &img), copy = new_blank_vm(1);

	assert_true(vmm_expect_log(&v, "serial: ready"));
	assert_int_equal(vmm_save(&v, &img), 0);
	set_flag(&img);
	assert_int_equal(vmm_restore(&copy, &img), 0);
	assert_true(vmm_expect_log(&copy, "serial: same"));
	assert_true(vmm_wait_ended(&copy));
	assert_int_equal(copy.ended.ended.reason, CTL_END_POWEROFF);
	vmm_stop(&copy);

	/* The saved VM continues too, in its own memory. */
	assert_int_equal(vmm_ask(&v, CTL_RUN), 0);
	assert_int_equal(vmm_ask(&v, CTL_STATS), 0);
	assert_false(v.has_ended);
	vmm_stop(&v);
	vmm_snapshot_close(&img);
}

static uint32_t file_checksum(int fd)
{
	static uint8_t buf[1 << 20];
	uint32_t crc = 0;
	ssize_t n;

	for (off_t at = 0; (n = pread(fd, buf, sizeof(buf), at)) > 0; at += n)
		crc = crc32c(crc, buf, (size_t)n);
	return crc;
}

static void test_vms_of_one_image_are_independent(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_TWIN), &img), twins[3];
	uint32_t before;

	assert_true(vmm_expect_log(&v, "serial: ready"));
	assert_int_equal(vmm_save(&v, &img), 0);
	vmm_stop(&v);
	set_flag(&img);
	before = file_checksum(img.memory);
	for (size_t i = 0; i < ARRAY_LEN(twins); i++) {
		twins[i] = new_blank_vm(1);
		assert_int_equal(vmm_restore(&twins[i], &img), 0);
		assert_true(vmm_expect_log(&twins[i], "serial: n=0"));
		assert_true(vmm_expect_log(&twins[i], "serial: n=1"));
	}
	assert_int_equal(file_checksum(img.memory), before);
	for (size_t i = 0; i < ARRAY_LEN(twins); i++)
		vmm_stop(&twins[i]);
	vmm_snapshot_close(&img);
}

/* The pages that a restored VM wrote are in a new memory layer. */
static void test_restored_vm_can_be_saved(void **state)
{
	struct vmm_snapshot first, second = {.base = -1, .writable = -1};
	struct vmm v = boot(1, guest_elf(GUEST_TWIN), &first), child = new_blank_vm(1);
	uint32_t before;

	assert_true(vmm_expect_log(&v, "serial: ready"));
	assert_int_equal(vmm_save(&v, &first), 0);
	assert_int_equal(first.nmemory_layers, 0);
	vmm_stop(&v);
	set_flag(&first);
	before = file_checksum(first.memory);
	assert_int_equal(vmm_restore(&child, &first), 0);
	assert_true(vmm_expect_log(&child, "serial: n=1"));
	assert_int_equal(vmm_save(&child, &second), 0);
	vmm_stop(&child);
	assert_int_equal(second.nmemory_layers, 1);
	assert_int_equal(file_checksum(second.memory), before);
	assert_int_equal(file_checksum(first.memory), before);
	child = new_blank_vm(1);
	assert_int_equal(vmm_restore(&child, &second), 0);
	vmm_stop(&child);
	vmm_snapshot_close(&first);
	vmm_snapshot_close(&second);
}

static void crowd(unsigned vcpus)
{
	struct vmm_snapshot img;
	struct vmm v = boot(vcpus, guest_elf_with(GUEST_CROWD, GUEST_OTHERS, vcpus - 1), &img);
	struct vmm copy = new_blank_vm(vcpus);

	assert_true(vmm_expect_log(&v, vcpus > 1 ? "serial: all up" : "serial: alone"));
	assert_int_equal(vmm_save(&v, &img), 0);
	vmm_stop(&v);
	set_flag(&img);
	assert_int_equal(vmm_restore(&copy, &img), 0);
	assert_true(vmm_expect_log(&copy, "serial: still counting"));
	assert_true(vmm_wait_ended(&copy));
	vmm_stop(&copy);
	vmm_snapshot_close(&img);
}

static void test_one_vcpu_is_saved_and_restored(void **state)
{
	crowd(1);
}

static void test_two_vcpus_are_saved_and_restored(void **state)
{
	crowd(2);
}

static void test_four_vcpus_are_saved_and_restored(void **state)
{
	crowd(4);
}

static void test_vm_can_be_paused_and_resumed(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(2, guest_elf_with(GUEST_CROWD, GUEST_OTHERS, 1), &img);

	assert_true(vmm_expect_log(&v, "serial: all up"));
	for (int i = 0; i < 50; i++) {
		assert_int_equal(vmm_ask(&v, CTL_PAUSE), 0);
		assert_int_equal(vmm_ask(&v, CTL_PAUSE), -EINVAL);
		assert_int_equal(vmm_ask(&v, CTL_RUN), 0);
		assert_int_equal(vmm_ask(&v, CTL_RUN), -EINVAL);
	}
	assert_false(v.has_ended);
	vmm_stop(&v);
	close_fd(&img.base);
	close_fd(&img.writable);
}

static void test_triple_fault_is_reported(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_FAULT), &img);

	assert_true(vmm_wait_ended(&v));
	assert_int_equal(v.ended.ended.reason, CTL_END_CRASH);
	assert_non_null(strstr(v.ended.ended.text, "crashed"));
	assert_true(vmm_expect_log(&v, "rip 100000"));
	/*
	 * The process stays alive, reports the end to each new connection, and accepts only
	 * CTL_QUIT.
	 */
	assert_int_equal(vmm_ask(&v, CTL_RUN), -EINVAL);
	v.has_ended = false;
	assert_true(vmm_connect(&v));
	assert_int_equal(v.hello.hello.state, CTL_GUEST_ENDED);
	assert_true(vmm_wait_ended(&v));
	assert_int_equal(vmm_ask(&v, CTL_QUIT), 0);
	vmm_stop(&v);
	close_fd(&img.base);
	close_fd(&img.writable);
}

static void test_reset_is_reported(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_RESET), &img);

	assert_true(vmm_wait_ended(&v));
	assert_int_equal(v.ended.ended.reason, CTL_END_RESET);
	vmm_stop(&v);
	close_fd(&img.base);
	close_fd(&img.writable);
}

/* A file that is not a kernel fails with a message, and the VM reports that it is unusable. */
static void test_invalid_kernel_is_refused(void **state)
{
	struct vmm v = new_blank_vm(1);
	struct vmm_snapshot img = new_disk();
	struct ctl_msg m = {.type = CTL_FILL};
	int kernel = vmm_file("#!/bin/sh\n", 10, 4096);

	m.fill.kind = CTL_BOOT;
	m.fill.ram_mib = RAM_MIB;
	m.fill.disk_bytes = DISK_BYTES;
	img.writable = vmm_file(NULL, 0, 0);
	assert_int_equal(vmm_call(&v, &m, (int[]){kernel, img.base, img.writable}, 3), -ENOEXEC);
	assert_non_null(strstr(m.reply.text, "not an ELF file"));
	assert_int_equal(vmm_boot(&v, kernel, -1, "", &img), -EINVAL);
	vmm_stop(&v);
	close(kernel);
}

/* A snapshot of another shape, a truncated state file and a truncated memory file are refused. */
static void test_invalid_images_are_refused(void **state)
{
	struct vmm_snapshot img, broken;
	struct vmm v = boot(1, guest_elf(GUEST_TIMEOUT), &img);
	struct stat st;

	assert_true(vmm_expect_log(&v, "serial: ready"));
	assert_int_equal(vmm_save(&v, &img), 0);
	vmm_stop(&v);

	v = new_blank_vm(2);
	assert_int_equal(vmm_restore(&v, &img), -EINVAL);
	vmm_stop(&v);

	broken = img;
	broken.memory = vmm_file(NULL, 0, 4096);
	v = new_blank_vm(1);
	assert_int_equal(vmm_restore(&v, &broken), -EINVAL);
	vmm_stop(&v);
	close(broken.memory);

	assert_int_equal(fstat(img.state, &st), 0);
	assert_int_equal(ftruncate(img.state, st.st_size - 1), 0);
	v = new_blank_vm(1);
	assert_int_equal(vmm_restore(&v, &img), -EINVAL);
	vmm_stop(&v);
	vmm_snapshot_close(&img);
}

static struct vmm big_blank_vm(void)
{
	const struct vmm_options o = {
		.exe = RAMET_VMM, .vcpus = 1, .ram_mib = 4096, .debug_serial = true};
	struct vmm v;

	assert_true(vmm_start(&v, &o));
	return v;
}

/* A blank VM of 4 GiB, on both sides of the hole below that address, can become any smaller VM. */
static void test_blank_vm_fits_any_ram(void **state)
{
	struct vmm v = big_blank_vm();
	struct vmm_snapshot img = new_disk();
	int kernel = guest_elf(GUEST_TIMEOUT);

	assert_int_equal(v.hello.hello.ram_mib, 4096);
	img.ram_mib = RAM_MIB;
	assert_int_equal(vmm_boot(&v, kernel, -1, "", &img), 0);
	assert_true(vmm_expect_log(&v, "serial: ready"));
	assert_true(vmm_connect(&v));
	assert_int_equal(v.hello.hello.ram_mib, RAM_MIB);
	assert_int_equal(vmm_save(&v, &img), 0);
	vmm_stop(&v);
	set_flag(&img);

	v = big_blank_vm();
	assert_int_equal(vmm_restore(&v, &img), 0);
	assert_true(vmm_expect_log(&v, "serial: same"));
	vmm_stop(&v);

	v = new_blank_vm(1);
	img.ram_mib = 2 * RAM_MIB;
	assert_int_equal(vmm_restore(&v, &img), -EINVAL);
	vmm_stop(&v);
	vmm_snapshot_close(&img);
	close(kernel);
}

#define GROWN (3ull << 30)

/* The disk of a snapshot may be larger when it is restored, but never smaller. */
static void test_disk_may_grow_between_save_and_restore(void **state)
{
	const uint64_t first = 1ull << 30;
	struct vmm_snapshot img = {.base = vmm_file("disk", 4, DISK_BYTES), .disk_bytes = first};
	int kernel = guest_elf(GUEST_TIMEOUT);
	struct vmm v = new_blank_vm(1);

	assert_int_equal(vmm_boot(&v, kernel, -1, "", &img), 0);
	assert_true(vmm_expect_log(&v, "serial: ready"));
	assert_int_equal(vmm_save(&v, &img), 0);
	vmm_stop(&v);
	set_flag(&img);

	img.disk_bytes = GROWN;
	v = new_blank_vm(1);
	assert_int_equal(vmm_restore(&v, &img), 0);
	assert_true(vmm_expect_log(&v, "serial: same"));
	vmm_stop(&v);

	img.disk_bytes = first / 2;
	v = new_blank_vm(1);
	assert_int_equal(vmm_restore(&v, &img), -EINVAL);
	vmm_stop(&v);
	vmm_snapshot_close(&img);
	close(kernel);
}

struct hostile {
	const char *what;
	size_t len;
	uint32_t version, type, seq, announced;
	unsigned nfds;
	uint32_t words[8]; /* from the union's start */
	bool endless_cmdline;
};

#define FULL sizeof(struct ctl_msg)
#define NOW  CTL_VERSION

static const struct hostile hostile_messages[] = {
	{"one byte", 1, NOW, CTL_STATS, 1, 0, 0, {0}, false},
	{"header alone", 16, NOW, CTL_STATS, 1, 0, 0, {0}, false},
	{"one byte short", FULL - 1, NOW, CTL_STATS, 1, 0, 0, {0}, false},
	{"one byte over", FULL + 1, NOW, CTL_STATS, 1, 0, 0, {0}, false},
	{"version 0", FULL, 0, CTL_STATS, 1, 0, 0, {0}, false},
	{"the version before", FULL, NOW - 1, CTL_STATS, 1, 0, 0, {0}, false},
	{"the next version", FULL, NOW + 1, CTL_STATS, 1, 0, 0, {0}, false},
	{"type 0", FULL, NOW, 0, 1, 0, 0, {0}, false},
	{"type 9", FULL, NOW, 9, 1, 0, 0, {0}, false},
	{"an answer", FULL, NOW, CTL_REPLY, 1, 0, 0, {0}, false},
	{"the last type", FULL, NOW, UINT32_MAX, 1, 0, 0, {0}, false},
	{"sequence 0", FULL, NOW, CTL_STATS, 0, 0, 0, {0}, false},
	{"descriptors that do not come", FULL, NOW, CTL_STATS, 1, 3, 0, {0}, false},
	{"descriptors that are not announced", FULL, NOW, CTL_STATS, 1, 0, 3, {0}, false},
	{"too many descriptors", FULL, NOW, CTL_STATS, 1, 200, 200, {0}, false},
	{"descriptors for stats", FULL, NOW, CTL_STATS, 1, 1, 1, {0}, false},
	{"connect without a socket", FULL, NOW, CTL_CONNECT, 1, 0, 0, {0}, false},
	{"connect with a file", FULL, NOW, CTL_CONNECT, 1, 1, 1, {0}, false},
	{"type 5, which was CTL_SAVE", FULL, NOW, 5, 1, 3, 3, {0}, false},
	{"fork without a file", FULL, NOW, CTL_FORK, 1, 0, 0, {0}, false},
	{"fork with two files", FULL, NOW, CTL_FORK, 1, 2, 2, {0}, false},
	{"fill without RAM", FULL, NOW, CTL_FILL, 1, 3, 3, {1, 0, 0, 0, 0, 0, 4096}, false},
	{"fill with odd RAM", FULL, NOW, CTL_FILL, 1, 3, 3, {1, 0, 129, 0, 0, 0, 4096}, false},
	{"fill of kind 0", FULL, NOW, CTL_FILL, 1, 3, 3, {0, 0, 128, 0, 0, 0, 4096}, false},
	{"fill of kind 3", FULL, NOW, CTL_FILL, 1, 3, 3, {3, 0, 128, 0, 0, 0, 4096}, false},
	{"fill with too few", FULL, NOW, CTL_FILL, 1, 2, 2, {1, 0, 128, 0, 0, 0, 4096}, false},
	{"fill with two initrds", FULL, NOW, CTL_FILL, 1, 5, 5, {1, 2, 128, 0, 0, 0, 4096}, false},
	{"restore with an initrd", FULL, NOW, CTL_FILL, 1, 5, 5, {2, 1, 128, 0, 0, 0, 4096}, false},
	{"fill with 91 layers", FULL, NOW, CTL_FILL, 1, 94, 94, {1, 0, 128, 91, 0, 0, 4096}, false},
	{"fill with layers that wrap",
	 FULL,
	 NOW,
	 CTL_FILL,
	 1,
	 2,
	 2,
	 {1, 0, 128, UINT32_MAX, 0, 0, 4096},
	 false},
	{"boot with a memory layer",
	 FULL,
	 NOW,
	 CTL_FILL,
	 1,
	 4,
	 4,
	 {1, 0, 128, 0, 1, 0, 4096},
	 false},
	{"restore with 25 memory layers",
	 FULL,
	 NOW,
	 CTL_FILL,
	 1,
	 29,
	 29,
	 {2, 0, 128, 0, 25, 0, 4096},
	 false},
	{"restore with too few for its memory layers",
	 FULL,
	 NOW,
	 CTL_FILL,
	 1,
	 5,
	 5,
	 {2, 0, 128, 0, 2, 0, 4096},
	 false},
	{"fill without a disk", FULL, NOW, CTL_FILL, 1, 3, 3, {1, 0, 128, 0, 0, 0, 0}, false},
	{"fill with half a block", FULL, NOW, CTL_FILL, 1, 3, 3, {1, 0, 128, 0, 0, 0, 4097}, false},
	{"fill with the largest disk",
	 FULL,
	 NOW,
	 CTL_FILL,
	 1,
	 3,
	 3,
	 {1, 0, 128, 0, 0, 0, 0xfffff000, UINT32_MAX},
	 false},
	{"endless command line", FULL, NOW, CTL_FILL, 1, 3, 3, {1, 0, 128, 0, 0, 0, 4096}, true},
};

static void send_hostile(struct vmm *v, const struct hostile *h, const int *fds)
{
	union {
		struct ctl_msg m;
		uint8_t bytes[FULL + 1];
	} u = {0};

	u.m = (struct ctl_msg){
		.version = h->version, .type = h->type, .seq = h->seq, .nfds = h->announced};
	memcpy(&u.m.fill, h->words, sizeof(h->words));
	if (h->endless_cmdline)
		memset(u.m.fill.cmdline, 'x', sizeof(u.m.fill.cmdline));
	assert_true(vmm_send_raw(v, u.bytes, h->len, fds, h->nfds));
}

static void test_hostile_messages_are_refused(void **state)
{
	struct vmm v = new_blank_vm(1);
	struct vmm_snapshot img = new_disk();
	int kernel = guest_elf(GUEST_HELLO), fds[253];
	struct ctl_msg m;

	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = img.base;
	for (size_t i = 0; i < ARRAY_LEN(hostile_messages); i++) {
		const struct hostile *h = &hostile_messages[i];

		int error = h->version == NOW ? -EPROTO : -ENOTSUP;

		send_hostile(&v, h, fds);
		assert_true(vmm_receive(&v, &m));
		if (m.type != CTL_REPLY || m.reply.error != error || !m.reply.text[0])
			fail_msg("%s: type %u, error %d, \"%s\"", h->what, m.type, m.reply.error,
				 m.reply.text);
	}
	/* No harm was done: the blank VM still boots a guest. */
	assert_int_equal(vmm_boot(&v, kernel, -1, "", &img), 0);
	assert_true(vmm_expect_log(&v, "serial: magic"));
	vmm_stop(&v);
	close(kernel);
	close_fd(&img.base);
	close_fd(&img.writable);
}

static void test_new_connection_replaces_the_old_one(void **state)
{
	struct vmm v = new_blank_vm(1);
	int first = v.ctl;
	char byte;

	v.ctl = -1;
	assert_true(vmm_connect(&v));
	assert_int_equal(recv(first, &byte, 1, 0), 0);
	assert_int_equal(vmm_ask(&v, CTL_STATS), 0);
	close(first);
	vmm_stop(&v);
}

/* Without a connection, the VM continues, and the next connection finds it running. */
static void test_vm_continues_without_a_connection(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_TWIN), &img);
	uint8_t instance[CTL_INSTANCE_LEN] = {0};

	/* A blank VM has no instance id yet. */
	assert_memory_equal(v.hello.hello.instance, instance, sizeof(instance));
	memset(instance, VMM_INSTANCE, sizeof(instance));
	assert_true(vmm_expect_log(&v, "serial: ready"));
	close_fd(&v.ctl);
	assert_true(vmm_connect(&v));
	assert_int_equal(v.hello.hello.state, CTL_RUNNING);
	assert_memory_equal(v.hello.hello.instance, instance, sizeof(instance));
	vmm_stop(&v);
	close_fd(&img.base);
	close_fd(&img.writable);
}

/* The numbers that GUEST_COPY prints in a copy. */
struct copied {
	uint32_t count, counts, id[4];
};

static struct copied run_copy(const struct vmm_snapshot *img)
{
	struct vmm v = new_blank_vm(2);
	struct copied c;
	char text[128];

	assert_int_equal(vmm_restore(&v, img), 0);
	assert_true(vmm_expect_log(&v, "serial: copied"));
	assert_true(vmm_expect_log(&v, "serial: "));
	assert_true(vmm_log_rest(&v, text, sizeof(text)));
	assert_int_equal(sscanf(text, "%x %x %x %x %x %x", &c.count, &c.counts, &c.id[0], &c.id[1],
				&c.id[2], &c.id[3]),
			 6);
	assert_true(vmm_expect_log(&v, "serial: followed"));
	assert_true(vmm_wait_ended(&v));
	vmm_stop(&v);
	return c;
}

static struct vmm_snapshot image_of_copy(void)
{
	struct vmm_snapshot img;
	struct vmm v = boot(2, guest_elf_with(GUEST_COPY, GUEST_OTHERS, 1), &img);

	assert_true(vmm_expect_log(&v, "serial: ready"));
	assert_int_equal(vmm_save(&v, &img), 0);
	vmm_stop(&v);
	return img;
}

/* A copy is notified before the first instruction of any vCPU, and has an id of its own. */
static void test_copy_is_notified_at_once(void **state)
{
	struct vmm_snapshot img = image_of_copy();
	uint32_t count, counts, last[4] = {0};

	assert_int_equal(pread(img.memory, &count, 4, GUEST_COUNT), 4);
	assert_int_equal(pread(img.memory, &counts, 4, GUEST_COUNTS), 4);
	for (unsigned i = 0; i < 5; i++) {
		struct copied c = run_copy(&img);

		assert_int_equal(c.count, count);
		assert_int_equal(c.counts, counts);
		assert_memory_not_equal(c.id, last, sizeof(last));
		memcpy(last, c.id, sizeof(last));
	}
	vmm_snapshot_close(&img);
}

/* The other vCPUs run even if the guest never confirms. */
static void test_copy_that_does_not_confirm_continues(void **state)
{
	struct vmm_snapshot img = image_of_copy();
	uint32_t counts;

	assert_int_equal(pread(img.memory, &counts, 4, GUEST_COUNTS), 4);
	set_flag(&img);
	assert_int_equal(run_copy(&img).counts, counts);
	vmm_snapshot_close(&img);
}

/* Sets bits in ecx of leaf 1 of the first vCPU, in a state file. */
static void set_features(int fd, uint32_t bits)
{
	static uint8_t file[1 << 20];
	size_t len = (size_t)pread(fd, file, sizeof(file), 0);
	struct wire r = wire_from(file, len), w;
	uint32_t id, n;

	r.pos = 24 + 8;
	while ((id = wire_get_u32(&r)) != 0x100) {
		wire_get_u32(&r);
		n = wire_get_u32(&r);
		r.pos += n;
	}
	r.pos += 8 + 4; /* version and length of the section, count of leaves */
	while (wire_get_u32(&r) != 1)
		r.pos += 6 * 4;
	r.pos += 4 * 4; /* index, flags, eax, ebx */
	w = wire_on(file + r.pos, 4);
	wire_put_u32(&w, wire_get_u32(&r) | bits);
	assert_false(r.bad);
	w = wire_on(file + 16, 4);
	wire_put_u32(&w, crc32c(0, file + 24, len - 24));
	assert_int_equal(pwrite(fd, file, len, 0), len);
}

/* The image has nested virtualization, which no VM is offered even if this host's KVM has it. */
static void test_image_with_an_unoffered_cpu_feature_is_refused(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_TIMEOUT), &img);

	assert_true(vmm_expect_log(&v, "serial: ready"));
	assert_int_equal(vmm_save(&v, &img), 0);
	vmm_stop(&v);
	set_flag(&img);
	set_features(img.state, 1u << 5);
	v = new_blank_vm(1);
	assert_int_equal(vmm_restore(&v, &img), -ENOTSUP);
	vmm_stop(&v);
	vmm_snapshot_close(&img);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blank_vm_sends_hello_and_quits),
		cmocka_unit_test(test_blank_vm_is_confined),
		cmocka_unit_test(test_invalid_arguments_are_refused),
		cmocka_unit_test(test_write_to_a_register_outside_of_images_crashes_the_guest),
		cmocka_unit_test(test_exits_reach_the_bus),
		cmocka_unit_test(test_restored_vm_continues_where_it_was_saved),
		cmocka_unit_test(test_vms_of_one_image_are_independent),
		cmocka_unit_test(test_restored_vm_can_be_saved),
		cmocka_unit_test(test_one_vcpu_is_saved_and_restored),
		cmocka_unit_test(test_two_vcpus_are_saved_and_restored),
		cmocka_unit_test(test_four_vcpus_are_saved_and_restored),
		cmocka_unit_test(test_copy_is_notified_at_once),
		cmocka_unit_test(test_copy_that_does_not_confirm_continues),
		cmocka_unit_test(test_image_with_an_unoffered_cpu_feature_is_refused),
		cmocka_unit_test(test_vm_can_be_paused_and_resumed),
		cmocka_unit_test(test_triple_fault_is_reported),
		cmocka_unit_test(test_reset_is_reported),
		cmocka_unit_test(test_invalid_kernel_is_refused),
		cmocka_unit_test(test_invalid_images_are_refused),
		cmocka_unit_test(test_blank_vm_fits_any_ram),
		cmocka_unit_test(test_disk_may_grow_between_save_and_restore),
		cmocka_unit_test(test_hostile_messages_are_refused),
		cmocka_unit_test(test_new_connection_replaces_the_old_one),
		cmocka_unit_test(test_vm_continues_without_a_connection),
	};

	if (!vmm_kvm_usable()) {
		fprintf(stderr, "skipped: /dev/kvm can't be used here: %s\n", strerror(errno));
		return 77;
	}
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
