// SPDX-License-Identifier: Apache-2.0
/*
 * Forks in waves by the real ramet-vmm. After the last wave, the parent and this test hold no more
 * than after the first waves. There are RAMET_FORK_WAVES waves (default 3) of RAMET_FORK_CHILDREN
 * children (default 8); 313 waves of 32 are 10,000 forks.
 */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sanitizer.h"
#include "test/native/worker-client.h"

#define RAM_MIB	     128
#define MIB	     (1u << 20)
#define PAGE	     4096u
#define CHILDREN_MAX 64
#define FIRST_WAVES  20 /* afterwards, chains of layers have their maximum length */

/* A wave writes WAVE_BYTES. Layers may hold two images of that, each twice until a merge. */
#define WAVE_BYTES MIB
#define SLACK	   (4 * WAVE_BYTES)

static const struct vmm_options options = {
	.exe = RAMET_VMM, .vcpus = 1, .ram_mib = RAM_MIB, .debug_serial = true};

/* The resources that a process holds. */
struct held {
	unsigned fds;
	uint64_t file_bytes; /* in the files without a name that it has open: layers, images */
	uint64_t own_bytes;  /* private memory of the process */
	uint64_t maps;
};

static unsigned number(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);

	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void count_fds(pid_t pid, struct held *h)
{
	char path[300];
	struct dirent *d;
	struct stat st;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((d = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, d->d_name);
		if (d->d_name[0] == '.' || stat(path, &st) < 0)
			continue;
		h->fds++;
		if (S_ISREG(st.st_mode) && !st.st_nlink)
			h->file_bytes += (uint64_t)st.st_blocks * 512;
	}
	closedir(dir);
}

static void count_maps(pid_t pid, struct held *h)
{
	char path[64], line[256];
	unsigned long kib;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Size: %lu", &kib) == 1)
			h->maps++;
		if (sscanf(line, "Private_Dirty: %lu", &kib) == 1)
			h->own_bytes += kib << 10;
	}
	fclose(f);
}

static struct held held_by(pid_t pid)
{
	struct held h = {0};

	count_fds(pid, &h);
	count_maps(pid, &h);
	return h;
}

static struct worker child_of(const struct worker *parent, const struct vmm_snapshot *img)
{
	struct worker child;

	worker_blank(&child, &options);
	worker_restore(&child, parent, img);
	return child;
}

static uint64_t sum_of(uint64_t bytes, uint64_t c)
{
	uint64_t n = bytes / PAGE;

	return n * c + n * (n - 1) / 2;
}

/* Of eight children, three write. One of these is also forked, and one is ended by CTL_QUIT. The
 * other five are killed before they do anything. */
static void live(struct worker *child, unsigned fate, uint64_t written)
{
	struct vmm_snapshot img;
	struct ctl_msg m;
	struct worker grandchild;

	if (fate % 8 > 2)
		return;
	assert_int_equal(worker_do(child, WORKER_SUM, WORKER_MEMORY, WAVE_BYTES, 0),
			 sum_of(WAVE_BYTES, written));
	worker_do(child, WORKER_FILL, WORKER_MEMORY, WAVE_BYTES / 2, fate);
	worker_do(child, WORKER_WRITE, 8, 0, fate);
	if (fate % 8 == 2) {
		worker_image(child, &img, &m);
		grandchild = child_of(child, &img);
		assert_int_equal(
			worker_do(&grandchild, WORKER_SUM, WORKER_MEMORY, WAVE_BYTES / 2, 0),
			sum_of(WAVE_BYTES / 2, fate));
		worker_stop(&grandchild);
		vmm_snapshot_close(&img);
	}
	if (fate % 8 == 1)
		assert_int_equal(vmm_ask(&child->vmm, CTL_QUIT), 0);
}

/* Pauses or resumes a guest. Guests are never idle, so those that exist at the same time take
 * turns. */
static void halt(struct worker *w, bool halted)
{
	assert_int_equal(vmm_ask(&w->vmm, halted ? CTL_PAUSE : CTL_RUN), 0);
}

static void wave(struct worker *parent, unsigned number, unsigned children)
{
	uint64_t written = 1000 + number;
	struct worker child[CHILDREN_MAX];
	struct vmm_snapshot img;
	struct ctl_msg m;

	worker_do(parent, WORKER_FILL, WORKER_MEMORY, WAVE_BYTES, written);
	worker_do(parent, WORKER_WRITE, 8 * (1 + number % 5), 0, written);
	worker_image(parent, &img, &m);
	halt(parent, true);
	for (unsigned i = 0; i < children; i++) {
		child[i] = child_of(parent, &img);
		halt(&child[i], true);
	}
	for (unsigned i = 0; i < children; i++) {
		halt(&child[i], false);
		live(&child[i], number + i, written);
		worker_stop(&child[i]);
	}
	vmm_snapshot_close(&img);
	halt(parent, false);
	assert_int_equal(worker_do(parent, WORKER_SUM, WORKER_MEMORY, WAVE_BYTES, 0),
			 sum_of(WAVE_BYTES, written));
}

static void tell(const char *when, const struct held *vm, const struct held *ours)
{
	print_message("%s: the parent holds %u descriptors, %llu KiB in files, %llu KiB of its "
		      "own in %llu maps; this process %u, %llu KiB, %llu KiB\n",
		      when, vm->fds, (unsigned long long)vm->file_bytes >> 10,
		      (unsigned long long)vm->own_bytes >> 10, (unsigned long long)vm->maps,
		      ours->fds, (unsigned long long)ours->file_bytes >> 10,
		      (unsigned long long)ours->own_bytes >> 10);
}

static void test_waves_of_forks_leave_nothing(void **state)
{
	unsigned waves = number("RAMET_FORK_WAVES", 3), children = number("RAMET_FORK_CHILDREN", 8);
	struct held vm[2], ours[2];
	struct worker parent;

	assert_in_range(children, 1, CHILDREN_MAX);
	worker_boot(&parent, &options, WORKER);
	for (unsigned i = 0; i < FIRST_WAVES; i++)
		wave(&parent, i, 1);
	vm[0] = held_by(parent.vmm.pid);
	ours[0] = held_by(getpid());
	tell("before", &vm[0], &ours[0]);
	for (unsigned i = 0; i < waves; i++)
		wave(&parent, i, children);
	vm[1] = held_by(parent.vmm.pid);
	ours[1] = held_by(getpid());
	tell("after", &vm[1], &ours[1]);
	assert_int_equal(ours[1].fds, ours[0].fds);
	assert_int_equal(ours[1].file_bytes, ours[0].file_bytes);
	assert_true(ours[1].own_bytes <= ours[0].own_bytes + MIB);
	/* A chain has more or fewer layers, depending on the state of its merge. */
	assert_true(vm[1].fds <= vm[0].fds + CTL_MEMORY_MAX);
	assert_true(vm[1].file_bytes <= vm[0].file_bytes + SLACK);
	/* How many of the pages that a wave wrote are in the process and how many in layers depends
	 * on the progress of the merge. */
	if (!HAS_SANITIZER) /* which keeps freed memory, and more of it with each wave */
		assert_true(vm[1].own_bytes <= vm[0].own_bytes + WAVE_BYTES + MIB / 2);
	assert_true(vm[1].maps <= vm[0].maps + 100);
	worker_stop(&parent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waves_of_forks_leave_nothing),
	};

	if (!vmm_kvm_usable()) {
		fprintf(stderr, "skipped: /dev/kvm can't be used here: %s\n", strerror(errno));
		return 77;
	}
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
