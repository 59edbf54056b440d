// SPDX-License-Identifier: Apache-2.0
/* Forks of running VMs by the real ramet-vmm over the real KVM. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "test/native/guests.h"
#include "test/native/worker-client.h"

#define RAM_MIB	 128
#define PAGE	 4096u
#define MIB	 (1u << 20)
#define CHILDREN 32
#define DEPTH	 20

static const struct vmm_options options = {
	.exe = RAMET_VMM, .vcpus = 1, .ram_mib = RAM_MIB, .debug_serial = true};

static struct worker boot(void)
{
	struct worker w;

	worker_boot(&w, &options, WORKER);
	return w;
}

static struct worker child_of(const struct worker *parent, const struct vmm_snapshot *img)
{
	struct worker child;

	worker_blank(&child, &options);
	worker_restore(&child, parent, img);
	return child;
}

static struct vmm_snapshot image_of(struct worker *w)
{
	struct vmm_snapshot img;
	struct ctl_msg m;

	worker_image(w, &img, &m);
	return img;
}

/* Returns the result of WORKER_SUM over memory that WORKER_FILL filled from `c` on. */
static uint64_t sum_of(uint64_t bytes, uint64_t c)
{
	uint64_t n = bytes / PAGE;

	return n * c + n * (n - 1) / 2;
}

static void fill(struct worker *w, uint64_t at, uint64_t bytes, uint64_t c)
{
	worker_do(w, WORKER_FILL, at, bytes, c);
}

static void expect_ram(struct worker *w, uint64_t at, uint64_t bytes, uint64_t c)
{
	assert_int_equal(worker_do(w, WORKER_SUM, at, bytes, 0), sum_of(bytes, c));
}

static void write_disk(struct worker *w, uint64_t sector, uint64_t c)
{
	worker_do(w, WORKER_WRITE, sector, 0, c);
}

static void expect_sector(struct worker *w, uint64_t sector, uint64_t c)
{
	assert_int_equal(worker_do(w, WORKER_READ, sector, 0, 0), c);
}

#define HERE  WORKER_MEMORY
#define THERE (WORKER_MEMORY + 16 * MIB)

/* Parent and children do not see what the others write after the fork, in memory or on disk. */
static void test_writes_after_a_fork_are_private(void **state)
{
	struct worker parent = boot(), child[2];
	struct vmm_snapshot img;

	fill(&parent, HERE, 4 * MIB, 1000);
	write_disk(&parent, 8, 0x1111);
	img = image_of(&parent);
	fill(&parent, HERE, 2 * MIB, 2000);
	write_disk(&parent, 8, 0x2222);
	for (unsigned i = 0; i < 2; i++)
		child[i] = child_of(&parent, &img);
	for (unsigned i = 0; i < 2; i++) {
		expect_ram(&child[i], HERE, 4 * MIB, 1000);
		expect_sector(&child[i], 8, 0x1111);
		fill(&child[i], HERE + MIB, MIB, 3000 + i);
		fill(&child[i], THERE, MIB, 4000 + i);
		write_disk(&child[i], 8, 0x3333 + i);
		write_disk(&child[i], 16, 0x4444 + i);
	}
	expect_ram(&parent, HERE, 2 * MIB, 2000);
	assert_int_equal(worker_do(&parent, WORKER_SUM, THERE, MIB, 0), 0);
	expect_sector(&parent, 8, 0x2222);
	expect_sector(&parent, 16, 0);
	for (unsigned i = 0; i < 2; i++) {
		expect_ram(&child[i], HERE, MIB, 1000);
		expect_ram(&child[i], HERE + MIB, MIB, 3000 + i);
		expect_ram(&child[i], THERE, MIB, 4000 + i);
		expect_sector(&child[i], 8, 0x3333 + i);
		expect_sector(&child[i], 16, 0x4444 + i);
		worker_stop(&child[i]);
	}
	worker_stop(&parent);
	vmm_snapshot_close(&img);
}

/* Each child has everything that was written before its fork, whichever layer holds it. */
static void test_each_fork_has_all_writes_before_it(void **state)
{
	struct worker parent = boot(), child;
	struct vmm_snapshot img;

	fill(&parent, HERE, 4 * MIB, 7);
	for (unsigned i = 0; i < 2 * CTL_MEMORY_MAX; i++) {
		fill(&parent, HERE + i * 16 * PAGE, 8 * PAGE, 100 + i);
		if (i % 3)
			write_disk(&parent, 8 + 8 * (i % 5), i + 1);
		img = image_of(&parent);
		child = child_of(&parent, &img);
		expect_ram(&child, HERE + i * 16 * PAGE, 8 * PAGE, 100 + i);
		expect_ram(&child, HERE, 8 * PAGE, 100);
		if (i % 3)
			expect_sector(&child, 8 + 8 * (i % 5), i + 1);
		worker_stop(&child);
		vmm_snapshot_close(&img);
	}
	worker_stop(&parent);
}

static void test_forks_of_forks_keep_the_content(void **state)
{
	struct worker w = boot();

	for (unsigned i = 0; i < DEPTH; i++) {
		struct vmm_snapshot img;
		struct worker child;

		fill(&w, HERE + i * MIB, MIB, i);
		write_disk(&w, 8 * (i + 1), 0xd00 + i);
		img = image_of(&w);
		child = child_of(&w, &img);
		vmm_snapshot_close(&img);
		worker_stop(&w);
		w = child;
		for (unsigned j = 0; j <= i; j += 5) {
			expect_ram(&w, HERE + j * MIB, MIB, j);
			expect_sector(&w, 8 * (j + 1), 0xd00 + j);
		}
	}
	worker_stop(&w);
}

#define LARGE (64 * MIB)

static uint64_t filled[LARGE / PAGE]; /* what WORKER_FILL wrote to the pages from HERE on */

static void fill_large(struct worker *w, uint64_t at, uint64_t bytes, uint64_t c)
{
	fill(w, HERE + at, bytes, c);
	for (uint64_t i = 0; i < bytes / PAGE; i++)
		filled[at / PAGE + i] = c + i;
}

static void expect_large(struct worker *w)
{
	for (uint64_t at = 0; at < LARGE; at += MIB) {
		uint64_t sum = 0;

		for (uint64_t i = 0; i < MIB / PAGE; i++)
			sum += filled[at / PAGE + i];
		assert_int_equal(worker_do(w, WORKER_SUM, HERE + at, MIB, 0), sum);
	}
}

/* While the parent writes little, its pages stay write-protected between forks. */
static void test_forks_in_a_row_of_a_large_parent(void **state)
{
	struct worker parent = boot(), child;
	struct vmm_snapshot img;

	for (unsigned i = 0; i < 10; i++) {
		if (i % 5 == 1)
			fill_large(&parent, 0, LARGE, 1000 * i);
		fill_large(&parent, i * 5 * MIB, 5 * PAGE, 77 * i);
		fill_large(&parent, LARGE - (i + 1) * MIB, PAGE, 99 * i);
		if (i == 4 || i == 9) {
			worker_do(&parent, WORKER_FREE, HERE + 20 * MIB, 4 * MIB, 0);
			fill_large(&parent, 20 * MIB, 4 * MIB, 55 * i);
		}
		img = image_of(&parent);
		fill(&parent, HERE + LARGE, MIB, i);
		child = child_of(&parent, &img);
		expect_large(&child);
		worker_stop(&child);
		vmm_snapshot_close(&img);
	}
	expect_large(&parent);
	worker_stop(&parent);
}

static void test_children_of_one_image_are_independent(void **state)
{
	struct worker parent = boot(), child[CHILDREN];
	struct vmm_snapshot img;

	fill(&parent, HERE, MIB, 5);
	img = image_of(&parent);
	/* They exist at the same time, but are paused: running all of them would take longer. */
	for (unsigned i = 0; i < CHILDREN; i++) {
		child[i] = child_of(&parent, &img);
		fill(&child[i], HERE, MIB / 2, 50 + i);
		assert_int_equal(vmm_ask(&child[i].vmm, CTL_PAUSE), 0);
	}
	for (unsigned i = 0; i < CHILDREN; i++) {
		assert_int_equal(vmm_ask(&child[i].vmm, CTL_RUN), 0);
		expect_ram(&child[i], HERE, MIB / 2, 50 + i);
		worker_stop(&child[i]);
	}
	expect_ram(&parent, HERE, MIB, 5);
	worker_stop(&parent);
	vmm_snapshot_close(&img);
}

/*
 * The guest fills a range of memory again and again, with a greater number in each pass. An image
 * of one moment has the first pages from one pass and the rest from the pass before. The child's
 * memory must then not change without the child.
 */
static void test_image_is_of_one_moment_while_memory_is_written(void **state)
{
	struct worker parent = boot(), child;
	const uint64_t pages = 2 * MIB / PAGE, bytes = pages * PAGE;

	worker_do(&parent, WORKER_HAMMER, HERE, bytes, 0);
	for (unsigned i = 0; i < 30; i++) {
		struct vmm_snapshot img = image_of(&parent);
		uint64_t sum;

		child = child_of(&parent, &img);
		worker_do(&child, WORKER_HAMMER, 0, 0, 0);
		sum = worker_do(&child, WORKER_SUM, HERE, bytes, 0);
		/* The child has finished its pass, so all pages are from the same pass. */
		assert_int_equal((sum - sum_of(bytes, 0)) % pages, 0);
		assert_int_equal(worker_do(&child, WORKER_SUM, HERE, bytes, 0), sum);
		worker_stop(&child);
		vmm_snapshot_close(&img);
	}
	worker_stop(&parent);
}

/* A disk that was not written to adds no layer. */
static void test_idle_disk_adds_no_layer(void **state)
{
	struct worker parent = boot(), child;
	struct vmm_snapshot first, second, third;

	first = image_of(&parent);
	assert_int_equal(first.nlayers, 0);
	write_disk(&parent, 8, 1);
	second = image_of(&parent);
	assert_int_equal(second.nlayers, 1);
	third = image_of(&parent);
	assert_int_equal(third.nlayers, 1);
	child = child_of(&parent, &third);
	expect_sector(&child, 8, 1);
	worker_stop(&child);
	worker_stop(&parent);
	vmm_snapshot_close(&first);
	vmm_snapshot_close(&second);
	vmm_snapshot_close(&third);
}

/* However often a disk is written to and forked, its chain of layers can be opened. */
static void test_disk_can_be_forked_any_number_of_times(void **state)
{
	struct worker parent = boot(), child;

	for (unsigned i = 0; i < 3 * CTL_LAYERS_MAX; i++) {
		struct vmm_snapshot img;

		write_disk(&parent, 8 * (1 + i % 50), 0xf000 + i);
		img = image_of(&parent);
		assert_true(img.nlayers <= CTL_LAYERS_MAX);
		if (i % 30 == 29) {
			child = child_of(&parent, &img);
			for (unsigned j = i < 50 ? 0 : i - 49; j <= i; j += 7)
				expect_sector(&child, 8 * (1 + j % 50), 0xf000 + j);
			worker_stop(&child);
		}
		vmm_snapshot_close(&img);
	}
	worker_stop(&parent);
}

static void test_fork_of_a_vm_that_does_not_run_is_refused(void **state)
{
	struct worker blank, parent = boot();
	struct vmm_snapshot img;
	struct ctl_msg m;

	worker_blank(&blank, &options);
	assert_int_equal(vmm_fork(&blank.vmm, &img, &m), -EINVAL);
	assert_non_null(strstr(m.reply.text, "is not running"));
	worker_stop(&blank);
	assert_int_equal(vmm_ask(&parent.vmm, CTL_PAUSE), 0);
	assert_int_equal(vmm_fork(&parent.vmm, &img, &m), -EINVAL);
	assert_int_equal(vmm_ask(&parent.vmm, CTL_RUN), 0);
	worker_do(&parent, WORKER_COUNT, 0, 0, 0);
	worker_stop(&parent);
}

static uint64_t exits_of(struct worker *w)
{
	struct ctl_msg m = {.type = CTL_STATS};

	assert_int_equal(vmm_call(&w->vmm, &m, NULL, 0), 0);
	return m.reply.stats.exits;
}

/* The parent carries out orders that arrive while it is paused as soon as it runs again. */
static void test_orders_wait_while_the_parent_stays_paused(void **state)
{
	struct worker parent = boot(), child;
	struct vmm_snapshot img;
	struct ctl_msg m;

	fill(&parent, HERE, MIB, 1000);
	assert_true(vmm_ask_fork(&parent.vmm, true));
	assert_int_equal(vmm_take_fork(&parent.vmm, &img, &m), 0);
	uint64_t exits = exits_of(&parent);
	child = child_of(&parent, &img);
	worker_post(&parent, WORKER_FILL, HERE, MIB, 2000);
	expect_ram(&child, HERE, MIB, 1000);
	fill(&child, HERE, MIB, 3000);
	assert_int_equal(exits_of(&parent), exits);
	assert_int_equal(vmm_ask(&parent.vmm, CTL_RUN), 0);
	worker_wait(&parent);
	expect_ram(&parent, HERE, MIB, 2000);
	expect_ram(&child, HERE, MIB, 3000);
	worker_stop(&child);
	worker_stop(&parent);
	vmm_snapshot_close(&img);
}

/* The connection is gone before the VM process reads the request, so nobody would resume the VM. */
static void test_vm_resumes_when_its_connection_is_lost(void **state)
{
	struct worker parent = boot();
	int status;

	fill(&parent, HERE, MIB, 1000);
	assert_int_equal(kill(parent.vmm.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(parent.vmm.pid, &status, WUNTRACED), parent.vmm.pid);
	assert_true(vmm_ask_fork(&parent.vmm, true));
	close_fd(&parent.vmm.ctl);
	assert_int_equal(kill(parent.vmm.pid, SIGCONT), 0);
	assert_true(
		vmm_expect_log(&parent.vmm, "the connection that requested a snapshot is gone"));
	expect_ram(&parent, HERE, MIB, 1000);
	assert_true(vmm_connect(&parent.vmm));
	assert_int_equal(vmm_ask(&parent.vmm, CTL_RUN), -EINVAL);
	worker_stop(&parent);
}

/* The file for the writable layer is not empty: the fork fails, and the VM continues with its disk
 * unchanged. */
static void test_fork_with_an_invalid_file_fails_and_vm_continues(void **state)
{
	struct worker parent = boot();
	scoped_fd int bad = vmm_file("x", 1, 1);
	struct vmm_snapshot img;
	struct ctl_msg m;

	for (unsigned i = 0; i < 50; i++) {
		write_disk(&parent, 8, i);
		m = (struct ctl_msg){.type = CTL_FORK};
		assert_int_equal(vmm_call(&parent.vmm, &m, &bad, 1), -EINVAL);
		assert_non_null(strstr(m.reply.text, "not empty"));
		expect_sector(&parent, 8, i);
	}
	img = image_of(&parent);
	assert_int_equal(img.nlayers, 1);
	worker_stop(&parent);
	vmm_snapshot_close(&img);
}

/* Mounts a file system of a few pages that only this process and its children see. */
static bool mount_small(void)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("small", "/mnt", "tmpfs", 0, "size=256k") == 0;
}

/* While the guest's writes wait for space on the host's disk, a fork is refused, and no write
 * fails.
 */
static void test_full_host_disk_is_reported(void **state)
{
	static const uint8_t page[PAGE];
	struct worker parent;
	struct vmm_snapshot img;
	struct ctl_msg m;
	int r;

	if (!mount_small()) {
		print_message("no private file system can be mounted here\n");
		skip();
	}
	vmm_layers_in = "/mnt";
	parent = boot();
	scoped_fd int filler = open("/mnt", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	while (write(filler, page, sizeof(page)) > 0)
		;
	vmm_layers_in = NULL;
	worker_post(&parent, WORKER_WRITE, 8, 0, 0x77);
	do {
		r = vmm_fork(&parent.vmm, &img, &m);
		if (!r)
			vmm_snapshot_close(&img);
	} while (!r);
	assert_int_equal(r, -ENOSPC);
	assert_non_null(strstr(m.reply.text, "wait for space"));
	assert_int_equal(ftruncate(filler, 0), 0);
	worker_wait(&parent);
	expect_sector(&parent, 8, 0x77);
	img = image_of(&parent);
	vmm_snapshot_close(&img);
	worker_stop(&parent);
	umount("/mnt");
}

/* Replaces the image's memory file, which is sealed, by a copy that the test can write to. */
static void own_memory(struct vmm_snapshot *img)
{
	int copy = vmm_file(NULL, 0, (uint64_t)RAM_MIB << 20);
	static uint8_t buf[1 << 20];
	off_t at = 0;

	while ((at = lseek(img->memory, at, SEEK_DATA)) >= 0) {
		ssize_t n = pread(img->memory, buf, sizeof(buf), at);

		assert_true(n > 0 && pwrite(copy, buf, (size_t)n, at) == n);
		at += n;
	}
	close(img->memory);
	img->memory = copy;
}

/* Forks a guest whose vCPUs all spin: all of them are in the image, and continue. */
static void crowd(unsigned vcpus)
{
	struct vmm_options o = options;
	struct vmm_snapshot img, disk = {.base = vmm_file("disk", 4, MIB), .disk_bytes = MIB};
	int kernel = guest_elf_with(GUEST_CROWD, GUEST_OTHERS, vcpus - 1);
	struct ctl_msg m;
	struct vmm v, copy;

	o.vcpus = vcpus;
	assert_true(vmm_start(&v, &o));
	assert_true(vmm_start(&copy, &o));
	assert_int_equal(vmm_boot(&v, kernel, -1, "", &disk), 0);
	assert_true(vmm_expect_log(&v, vcpus > 1 ? "serial: all up" : "serial: alone"));
	assert_int_equal(vmm_fork(&v, &img, &m), 0);
	own_memory(&img);
	assert_int_equal(pwrite(img.memory, "\1", 1, GUEST_FLAG), 1);
	assert_int_equal(vmm_restore(&copy, &img), 0);
	assert_true(vmm_expect_log(&copy, "serial: still counting"));
	assert_true(vmm_wait_ended(&copy));
	vmm_snapshot_close(&img);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(vmm_fork(&v, &img, &m), 0);
		vmm_snapshot_close(&img);
	}
	assert_false(v.has_ended);
	vmm_stop(&v);
	vmm_stop(&copy);
	close(kernel);
	close_fd(&disk.base);
	close_fd(&disk.writable);
}

static void test_fork_with_one_vcpu(void **state)
{
	crowd(1);
}

static void test_fork_with_two_vcpus(void **state)
{
	crowd(2);
}

static void test_fork_with_32_vcpus(void **state)
{
	crowd(32);
}

/* The guest may end at any point of a fork: the answer is always an image or an error. */
static void test_fork_is_answered_when_the_guest_ends_meanwhile(void **state)
{
	for (unsigned i = 0; i < 40; i++) {
		struct vmm_snapshot img,
			disk = {.base = vmm_file("disk", 4, MIB), .disk_bytes = MIB};
		int kernel = guest_elf(GUEST_HELLO), r;
		struct ctl_msg m;
		struct vmm v;

		assert_true(vmm_start(&v, &options));
		assert_int_equal(vmm_boot(&v, kernel, -1, "", &disk), 0);
		do {
			r = vmm_fork(&v, &img, &m);
			if (!r)
				vmm_snapshot_close(&img);
		} while (!r);
		assert_true(r == -ECANCELED || r == -EINVAL);
		assert_true(m.reply.text[0]);
		assert_true(vmm_wait_ended(&v));
		assert_int_equal(v.ended.ended.reason, CTL_END_POWEROFF);
		vmm_stop(&v);
		close(kernel);
		close_fd(&disk.base);
		close_fd(&disk.writable);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writes_after_a_fork_are_private),
		cmocka_unit_test(test_each_fork_has_all_writes_before_it),
		cmocka_unit_test(test_forks_of_forks_keep_the_content),
		cmocka_unit_test(test_forks_in_a_row_of_a_large_parent),
		cmocka_unit_test(test_children_of_one_image_are_independent),
		cmocka_unit_test(test_image_is_of_one_moment_while_memory_is_written),
		cmocka_unit_test(test_idle_disk_adds_no_layer),
		cmocka_unit_test(test_disk_can_be_forked_any_number_of_times),
		cmocka_unit_test(test_fork_of_a_vm_that_does_not_run_is_refused),
		cmocka_unit_test(test_orders_wait_while_the_parent_stays_paused),
		cmocka_unit_test(test_vm_resumes_when_its_connection_is_lost),
		cmocka_unit_test(test_fork_with_an_invalid_file_fails_and_vm_continues),
		cmocka_unit_test(test_full_host_disk_is_reported),
		cmocka_unit_test(test_fork_with_one_vcpu),
		cmocka_unit_test(test_fork_with_two_vcpus),
		cmocka_unit_test(test_fork_with_32_vcpus),
		cmocka_unit_test(test_fork_is_answered_when_the_guest_ends_meanwhile),
	};

	if (!vmm_kvm_usable()) {
		fprintf(stderr, "skipped: /dev/kvm can't be used here: %s\n", strerror(errno));
		return 77;
	}
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
