// SPDX-License-Identifier: Apache-2.0
/*
 * Guest memory without KVM: the tests write patterns into RAM and into a copy of its expected
 * content, map snapshots elsewhere, and compare them byte by byte.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "proto/image.h"
#include "vmm/kvm/new-ioctls.h"
#include "vmm/kvm/pagemap.h"
#include "vmm/kvm/ram-internal.h"

#define MIB   (1ull << 20)
#define PAGES (4 * MIB / RAM_PAGE)

struct guest {
	struct gm gm;
	struct ram *ram;
	uint8_t *expected;
};

static uint64_t seed;

static uint64_t random_below(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 11) % n;
}

#define ok(call)                                                                                   \
	do {                                                                                       \
		struct err e = {0};                                                                \
		if ((call) != 0)                                                                   \
			fail_msg("%s: %s", #call, e.text);                                         \
	} while (0)

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void make_guest(struct guest *g, uint64_t bytes)
{
	int pagemap = pagemap_open(-1, NULL);

	assert_true(pagemap >= 0);
	ok(gm_reserve(&g->gm, bytes, &e));
	ok(ram_new(&g->ram, &g->gm, pagemap, &e));
	g->expected = calloc(1, bytes);
	assert_non_null(g->expected);
}

static void end_guest(struct guest *g)
{
	ram_free(g->ram);
	gm_release(&g->gm);
	free(g->expected);
	*g = (struct guest){0};
}

static void boot(struct guest *g, uint64_t bytes)
{
	make_guest(g, bytes);
	ok(ram_back_with_memfd(g->ram, &e));
}

static uint64_t freeze(struct guest *g)
{
	uint64_t copied;

	ok(ram_freeze(g->ram, &copied, &e));
	ram_end_freeze(g->ram);
	return copied;
}

/* Restores a guest from the last snapshot of `g`. */
static void fork_guest(const struct guest *g, struct guest *child)
{
	int fds[RAM_SNAPSHOT_FDS];
	unsigned n = ram_snapshot_fds(g->ram, fds);

	make_guest(child, g->gm.bytes);
	ok(ram_back_with_snapshot(child->ram, fds[0], fds + 1, n - 1, &e));
	memcpy(child->expected, g->expected, g->gm.bytes);
}

static void check(const struct guest *g)
{
	for (uint64_t at = 0; at < g->gm.bytes; at += RAM_PAGE)
		if (memcmp(g->gm.base + at, g->expected + at, RAM_PAGE) != 0)
			fail_msg("page %llu differs", (unsigned long long)(at / RAM_PAGE));
}

static void put(struct guest *g, uint64_t at, uint64_t len, uint8_t value)
{
	memset(g->gm.base + at, value, len);
	memset(g->expected + at, value, len);
}

static void put_pages(struct guest *g, uint64_t first, uint64_t n, uint8_t value)
{
	put(g, first * RAM_PAGE, n * RAM_PAGE, value);
}

/* --- Single operations --- */

static int take_memory(int fd)
{
	struct guest g;
	struct err e = {0};
	int r;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4 * MIB), 0);
	make_guest(&g, 4 * MIB);
	r = ram_back_with_snapshot(g.ram, fd, NULL, 0, &e);
	end_guest(&g);
	close(fd);
	return r;
}

static int sealed(int seals)
{
	int fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, 4 * MIB), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* Nobody may be able to write to a snapshot: its memory file must be sealed or have a name. */
static void test_unsealed_memory_is_refused(void **state)
{
	char path[] = "/dev/shm/ramet-test-XXXXXX";
	int named = mkostemp(path, O_CLOEXEC);

	assert_int_equal(take_memory(sealed(F_SEAL_SHRINK | F_SEAL_WRITE)), 0);
	assert_int_equal(take_memory(sealed(F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE)), 0);
	assert_int_equal(take_memory(sealed(F_SEAL_SHRINK)), -EINVAL);
	assert_int_equal(take_memory(sealed(F_SEAL_WRITE)), -EINVAL);
	assert_int_equal(take_memory(sealed(F_SEAL_SEAL)), -EINVAL);
	assert_int_equal(take_memory(memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
			 -EINVAL);
	assert_int_equal(take_memory(memfd_create("unsealable", MFD_CLOEXEC)), -EINVAL);
	if (named < 0)
		skip(); /* no /dev/shm */
	assert_int_equal(take_memory(named), 0);
	unlink(path);
}

static void test_first_freeze_copies_nothing(void **state)
{
	struct guest g, child;
	int fds[RAM_SNAPSHOT_FDS];
	struct stat before, after;

	boot(&g, 4 * MIB);
	assert_true(g.ram->shared);
	put_pages(&g, 3, 70, 'a');
	assert_int_equal(fstat(g.ram->memory_fd, &before), 0);
	assert_int_equal(freeze(&g), 0);
	assert_false(g.ram->shared);
	assert_int_equal(ram_snapshot_fds(g.ram, fds), 1);
	put_pages(&g, 3, 5, 'b');
	assert_int_equal(fstat(fds[0], &after), 0);
	assert_int_equal(after.st_blocks, before.st_blocks);
	assert_int_equal(pwrite(fds[0], "x", 1, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_ptr_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fds[0], 0), MAP_FAILED);
	assert_int_equal(ftruncate(fds[0], 4096), -1);
	check(&g);
	memset(g.expected + 3 * RAM_PAGE, 'a', 5 * RAM_PAGE);
	fork_guest(&g, &child);
	check(&child);
	end_guest(&child);
	end_guest(&g);
}

static void test_freeze_without_writes_adds_no_layer(void **state)
{
	struct guest g, child;
	int fds[RAM_SNAPSHOT_FDS];

	boot(&g, 4 * MIB);
	put_pages(&g, 1, 1, 'a');
	freeze(&g);
	check(&g); /* check() only reads, so no page becomes dirty */
	assert_int_equal(freeze(&g), 0);
	assert_int_equal(ram_snapshot_fds(g.ram, fds), 1);
	put_pages(&g, 1, 1, 'b');
	assert_int_equal(freeze(&g), RAM_PAGE);
	assert_int_equal(ram_snapshot_fds(g.ram, fds), 2);
	fork_guest(&g, &child);
	check(&child);
	assert_int_equal(freeze(&child), 0);
	assert_int_equal(ram_snapshot_fds(child.ram, fds), 2);
	end_guest(&child);
	end_guest(&g);
}

static uint64_t blocks_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* Pages between dirty ones are stored too, unless they are holes. */
static void test_small_gaps_are_stored_but_no_holes(void **state)
{
	struct guest g, child;
	int fds[RAM_SNAPSHOT_FDS];
	uint64_t before;

	boot(&g, 4 * MIB);
	put_pages(&g, 0, 100, 'a');
	freeze(&g);
	put_pages(&g, 10, 1, 'b');
	put_pages(&g, 13, 1, 'c'); /* a gap of 2 pages that are there */
	put_pages(&g, 98, 1, 'd'); /* a gap of 1 page that is there and 3 holes */
	put_pages(&g, 103, 1, 'e');
	put_pages(&g, 500, 1, 'f'); /* a gap of 4 holes */
	put_pages(&g, 505, 1, 'g');
	ram_snapshot_fds(g.ram, fds);
	before = blocks_of(fds[0]);
	assert_int_equal(freeze(&g), (4 + 6 + 6) * RAM_PAGE);
	assert_int_equal(ram_snapshot_fds(g.ram, fds), 2);
	assert_int_equal(blocks_of(fds[0]), before);			 /* no hole was filled */
	assert_int_equal(blocks_of(fds[1]), (1 + 4 + 3 + 2) * RAM_PAGE); /* table first */
	fork_guest(&g, &child);
	check(&g);
	check(&child);
	end_guest(&child);
	end_guest(&g);
}

/* An extent long enough to be mapped from its new layer is not copied again. */
static void test_long_extents_are_copied_once(void **state)
{
	struct guest g;

	boot(&g, 4 * MIB);
	freeze(&g);
	put_pages(&g, 100, 256, 'a');
	put_pages(&g, 800, 1, 'b');
	assert_int_equal(freeze(&g), 257 * RAM_PAGE);
	check(&g);
	assert_true(freeze(&g) <= RAM_PAGE);
	put_pages(&g, 200, 1, 'c');
	assert_true(freeze(&g) <= 2 * RAM_PAGE);
	check(&g);
	end_guest(&g);
}

/* Layers that newer ones hide are closed, and this process unmaps them. */
static void test_hidden_layers_are_closed(void **state)
{
	struct guest g;
	int fds[RAM_SNAPSHOT_FDS];

	boot(&g, 16 * MIB);
	freeze(&g);
	for (unsigned i = 0; i < 30; i++) {
		put(&g, 0, 16 * MIB, (uint8_t)('a' + i % 20));
		assert_int_equal(freeze(&g), 16 * MIB);
		assert_int_equal(ram_snapshot_fds(g.ram, fds), 2);
		assert_int_equal(g.ram->mapped.n, 1);
	}
	check(&g);
	end_guest(&g);
}

static uint64_t own_bytes(const struct guest *g)
{
	struct extents own = {0};
	uint64_t bytes;

	ok(pagemap_dirty(g->ram->pagemap_fd, &g->gm, &own, &e));
	bytes = extents_bytes(&own);
	extents_free(&own);
	return bytes;
}

/*
 * Own pages with unchanged content are in the snapshot already, even if the guest wrote them again.
 */
static void test_unchanged_pages_are_not_copied(void **state)
{
	struct guest g, child;

	boot(&g, 4 * MIB);
	put_pages(&g, 0, PAGES, 'a');
	freeze(&g);
	for (unsigned i = 0; i < 200; i++)
		put_pages(&g, 5 * i, 1, 'b');
	freeze(&g);
	assert_int_equal(own_bytes(&g), 200 * RAM_PAGE);
	for (unsigned i = 0; i < 200; i++)
		put_pages(&g, 5 * i, 1, 'b');
	assert_int_equal(freeze(&g), 0);
	put(&g, 35 * RAM_PAGE + 4095, 1, 'c');
	assert_int_equal(freeze(&g), RAM_PAGE);
	while (ram_flatten_step(g.ram))
		;
	assert_int_equal(freeze(&g), 0);
	fork_guest(&g, &child);
	check(&child);
	check(&g);
	end_guest(&child);
	end_guest(&g);
}

/* Before a fork of many children, even a few pages are copied ahead, including those in gaps. */
static void test_fork_for_many_children_has_fewer_extents(void **state)
{
	struct guest g, child;

	boot(&g, 64 * MIB);
	put(&g, 0, 64 * MIB, 'a');
	freeze(&g);
	for (unsigned i = 0; i < 200; i++)
		put_pages(&g, 40 * i, 1, 'b');
	ok(ram_prepare(g.ram, 32, &e));
	put_pages(&g, 12000, 1, 'c');
	freeze(&g);
	assert_int_equal(g.ram->snapshot.n, 2);
	fork_guest(&g, &child);
	check(&child);
	end_guest(&child);
	end_guest(&g);
}

/* Pages that were copied ahead and not written since are not copied again. */
static void test_large_amounts_are_copied_ahead(void **state)
{
	struct guest g, child;
	uint64_t copied;
	int fds[RAM_SNAPSHOT_FDS];

	boot(&g, 64 * MIB);
	freeze(&g);
	put(&g, MIB, 32 * MIB, 'a');
	ok(ram_prepare(g.ram, 1, &e));
	assert_int_equal(ram_snapshot_fds(g.ram, fds), 2);
	put_pages(&g, 300, 2, 'b');
	put_pages(&g, 10000, 3, 'c');
	copied = freeze(&g);
	assert_in_range(copied, 32 * MIB + 5 * RAM_PAGE, 32 * MIB + 16 * RAM_PAGE);
	assert_int_equal(ram_snapshot_fds(g.ram, fds), 3);
	assert_true(own_bytes(&g) < 32 * MIB);
	fork_guest(&g, &child);
	check(&child);
	check(&g);
	ok(ram_prepare(g.ram, 1, &e));
	assert_int_equal(freeze(&g), 0);
	end_guest(&child);
	end_guest(&g);
}

/* A first fork has to copy everything that was written; later most of it is in a layer already. */
static void test_first_fork_copies_smaller_amounts_ahead(void **state)
{
	struct guest g;
	int fds[RAM_SNAPSHOT_FDS];

	boot(&g, 64 * MIB);
	freeze(&g);
	put(&g, MIB, 2 * MIB, 'a');
	ok(ram_prepare(g.ram, 1, &e));
	assert_int_equal(ram_snapshot_fds(g.ram, fds), 2);
	assert_int_equal(freeze(&g), 2 * MIB);
	put(&g, MIB, 2 * MIB, 'b');
	ok(ram_prepare(g.ram, 1, &e));
	assert_int_equal(ram_snapshot_fds(g.ram, fds), 2);
	assert_int_equal(freeze(&g), 2 * MIB);
	check(&g);
	end_guest(&g);
}

/* A template's memory is a file on disk: pages in gaps are read through RAM. */
static void test_gaps_over_a_file_on_disk_are_stored(void **state)
{
	struct guest g, child;
	/* /tmp may be in memory, where a file needs seals. */
	scoped_fd int file = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	uint8_t page[RAM_PAGE];

	assert_true(file >= 0);
	assert_int_equal(ftruncate(file, 4 * MIB), 0);
	make_guest(&g, 4 * MIB);
	for (unsigned i = 0; i < 100; i++) {
		memset(page, (int)i, sizeof(page));
		memset(g.expected + 2ull * i * RAM_PAGE, (int)i, RAM_PAGE);
		assert_int_equal(pwrite(file, page, sizeof(page), 2ull * i * RAM_PAGE), RAM_PAGE);
	}
	ok(ram_back_with_snapshot(g.ram, file, NULL, 0, &e));
	for (unsigned i = 0; i < 80; i++)
		put_pages(&g, 3 * i, 1, 'a');
	freeze(&g);
	assert_int_equal(g.ram->snapshot.n, 1);
	for (unsigned i = 0; i < 40; i++)
		put_pages(&g, 5 * i, 1, 'b');
	freeze(&g);
	check(&g);
	fork_guest(&g, &child);
	check(&child);
	end_guest(&child);
	end_guest(&g);
}

static void limit(int what, rlim_t most)
{
	struct rlimit l;

	assert_int_equal(getrlimit(what, &l), 0);
	l.rlim_cur = most < l.rlim_max ? most : l.rlim_max;
	assert_int_equal(setrlimit(what, &l), 0);
}

static void assert_freeze_fails(struct guest *g, int error)
{
	int before[RAM_SNAPSHOT_FDS], after[RAM_SNAPSHOT_FDS];
	unsigned n = ram_snapshot_fds(g->ram, before), fds = count_fds();
	struct err e = {0};
	uint64_t copied;

	limit(error == -EMFILE ? RLIMIT_NOFILE : RLIMIT_FSIZE,
	      error == -EMFILE ? 3 : 100 * RAM_PAGE + 17);
	assert_int_equal(ram_freeze(g->ram, &copied, &e), error);
	limit(error == -EMFILE ? RLIMIT_NOFILE : RLIMIT_FSIZE, RLIM_INFINITY);
	assert_true(e.text[0]);
	assert_int_equal(ram_snapshot_fds(g->ram, after), n);
	assert_memory_equal(before, after, n * sizeof(*before));
	assert_int_equal(count_fds(), fds);
	check(g);
}

/* A freeze fails without a descriptor for the layer, and without space for all of its pages. */
static void test_failed_freeze_changes_nothing(void **state)
{
	struct guest g, child;

	signal(SIGXFSZ, SIG_IGN);
	boot(&g, 4 * MIB);
	put_pages(&g, 0, 100, 'a');
	freeze(&g);
	for (unsigned i = 0; i < 3; i++) {
		put_pages(&g, 10, 200, (uint8_t)('b' + i));
		assert_freeze_fails(&g, -EMFILE);
		assert_freeze_fails(&g, -EFBIG);
		put_pages(&g, 50 * i, 1, 'x');
		freeze(&g);
		fork_guest(&g, &child);
		check(&child);
		end_guest(&child);
	}
	end_guest(&g);
}

static uint64_t prepare_and_freeze(struct guest *g)
{
	ok(ram_prepare(g->ram, 1, &e));
	return freeze(g);
}

static void check_fork(const struct guest *g)
{
	struct guest child;

	fork_guest(g, &child);
	check(&child);
	end_guest(&child);
}

/* The freeze takes its pages from a file whose pages are allocated, and gives the others back. */
static void test_pages_are_allocated_before_a_freeze(void **state)
{
	struct guest g;
	struct stat st;
	int fds[RAM_SNAPSHOT_FDS];

	boot(&g, 16 * MIB);
	freeze(&g);
	put(&g, MIB, 2 * MIB, 'a');
	prepare_and_freeze(&g);
	assert_int_equal(g.ram->reserved_fd, -1);
	put(&g, MIB, 2 * MIB, 'b');
	ok(ram_prepare(g.ram, 1, &e));
	assert_true(g.ram->reserved_fd >= 0);
	put(&g, MIB, MIB, 'c');
	assert_int_equal(freeze(&g), 2 * MIB);
	assert_int_equal(g.ram->reserved_fd, -1);
	assert_int_equal(fstat(fds[ram_snapshot_fds(g.ram, fds) - 1], &st), 0);
	assert_in_range(st.st_size, 2 * MIB, 2 * MIB + 2 * RAM_PAGE);
	assert_in_range(st.st_blocks * 512, 2 * MIB, 2 * MIB + 2 * RAM_PAGE);
	check_fork(&g);
	ok(ram_prepare(g.ram, 1, &e));
	assert_int_equal(g.ram->reserved_fd, -1);
	ram_end_freeze(g.ram);
	end_guest(&g);
}

static bool can_track(const struct guest *g)
{
	struct extents own = {0};
	bool can = pagemap_scan(g->ram->pagemap_fd, &g->gm, &own, NULL) == 0;

	extents_free(&own);
	return can && g->ram->watch_fd >= 0;
}

/* Of much that the guest wrote, 8 unchanged pages are not looked for, but a changed half is. */
static void test_pages_are_compared_unless_nearly_all_changed(void **state)
{
	struct guest g;

	boot(&g, 64 * MIB);
	freeze(&g);
	put(&g, MIB, 32 * MIB, 'a');
	prepare_and_freeze(&g);
	put(&g, MIB, 32 * MIB, 'b');
	put_pages(&g, 4000, 8, 'a');
	assert_int_equal(prepare_and_freeze(&g), 32 * MIB - (can_track(&g) ? 0 : 8 * RAM_PAGE));
	check_fork(&g);
	put(&g, MIB, 32 * MIB, 'b');
	put(&g, MIB, 16 * MIB, 'c');
	assert_in_range(prepare_and_freeze(&g), 16 * MIB, 20 * MIB);
	check_fork(&g);
	end_guest(&g);
}

/* Tracking ends when the guest has written much, and when the pages that were protected could not
 * be added to the snapshot. */
static void test_tracking_goes_on_while_the_guest_writes_little(void **state)
{
	struct guest g;

	boot(&g, 64 * MIB);
	freeze(&g);
	put(&g, MIB, 32 * MIB, 'a');
	prepare_and_freeze(&g);
	assert_false(g.ram->watching);
	put_pages(&g, 300, 2, 'b');
	assert_in_range(prepare_and_freeze(&g), 2 * RAM_PAGE, 16 * RAM_PAGE);
	assert_int_equal(g.ram->watching, can_track(&g));
	put_pages(&g, 4000, 1, 'c');
	ok(ram_prepare(g.ram, 1, &e));
	put_pages(&g, 5000, 1, 'd');
	assert_in_range(freeze(&g), 2 * RAM_PAGE, 16 * RAM_PAGE);
	assert_int_equal(g.ram->watching, can_track(&g));
	check_fork(&g);
	put(&g, 4 * MIB, 16 * MIB, 'e');
	limit(RLIMIT_NOFILE, 3);
	assert_int_equal(ram_prepare(g.ram, 1, NULL), -EMFILE);
	limit(RLIMIT_NOFILE, RLIM_INFINITY);
	ram_end_freeze(g.ram);
	assert_false(g.ram->watching);
	prepare_and_freeze(&g);
	check_fork(&g);
	prepare_and_freeze(&g);
	assert_int_equal(g.ram->watching, can_track(&g));
	put(&g, 8 * MIB, 16 * MIB, 'f');
	prepare_and_freeze(&g);
	assert_false(g.ram->watching);
	check_fork(&g);
	end_guest(&g);
}

static void read_pages(const struct guest *g, uint64_t first, uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++)
		(void)*(volatile uint8_t *)(g->gm.base + i * RAM_PAGE);
}

static void check_extent(const struct extents *x, uint32_t i, uint64_t first, uint64_t n)
{
	assert_true(i < x->n);
	assert_int_equal(x->extent[i].offset, first * RAM_PAGE);
	assert_int_equal(x->extent[i].bytes, n * RAM_PAGE);
}

/* The lists have exactly the pages used since the recording began, except for small gaps. */
static void test_working_set_is_recorded(void **state)
{
	struct guest g;
	const struct working_set *w;

	boot(&g, 4 * MIB);
	if (!can_track(&g)) {
		end_guest(&g);
		skip();
	}
	put_pages(&g, 0, 500, 'a');
	ok(ram_record(g.ram, &e));
	read_pages(&g, 10, 2);
	put_pages(&g, 13, 1, 'b');
	read_pages(&g, 100, 1);
	put_pages(&g, 200, 3, 'c');
	read_pages(&g, 201, 1);
	put_pages(&g, 800, 1, 'd'); /* had no page before */
	freeze(&g);
	w = ram_working_set(g.ram);
	assert_int_equal(w->used.n, 4);
	check_extent(&w->used, 0, 10, 4);
	check_extent(&w->used, 1, 100, 1);
	check_extent(&w->used, 2, 200, 3);
	check_extent(&w->used, 3, 800, 1);
	assert_int_equal(w->written.n, 3);
	check_extent(&w->written, 0, 13, 1);
	check_extent(&w->written, 1, 200, 3);
	check_extent(&w->written, 2, 800, 1);
	check(&g);
	check_fork(&g);
	assert_int_equal(ram_record(g.ram, NULL), -EINVAL); /* it is no longer a memfd */
	end_guest(&g);
}

static void test_large_working_set_is_not_kept(void **state)
{
	struct guest g;

	for (unsigned more = 0; more < 2; more++) {
		boot(&g, 64 * MIB);
		if (!can_track(&g)) {
			end_guest(&g);
			skip();
		}
		ok(ram_record(g.ram, &e));
		put(&g, MIB, WORKING_SET_BYTES_MAX + more * RAM_PAGE, 'a');
		freeze(&g);
		assert_int_equal(ram_working_set(g.ram)->used.n, !more);
		assert_int_equal(ram_working_set(g.ram)->written.n, !more);
		check_fork(&g);
		end_guest(&g);
	}
}

/* Without KVM, only the copies can be tested. Two vCPUs make them, each a part. */
static void test_working_set_is_mapped(void **state)
{
	struct guest g, child;
	struct working_set w = {0};
	struct extents own = {0};

	boot(&g, 4 * MIB);
	put_pages(&g, 0, 500, 'a');
	freeze(&g);
	fork_guest(&g, &child);
	for (uint64_t at = 10; at < 100; at += 10)
		assert_int_equal(extents_add(&w.used, at * RAM_PAGE, 5 * RAM_PAGE), 0);
	assert_int_equal(extents_add(&w.written, 11 * RAM_PAGE, 2 * RAM_PAGE), 0);
	assert_int_equal(extents_add(&w.written, 14 * RAM_PAGE, RAM_PAGE), 0);
	assert_int_equal(extents_add(&w.written, 42 * RAM_PAGE, RAM_PAGE), 0);
	assert_int_equal(extents_add(&w.written, 51 * RAM_PAGE, RAM_PAGE), 0);
	working_set_map(&w, &child.gm, -1, 0, 2); /* the first and each second of `used` */
	ok(pagemap_dirty(child.ram->pagemap_fd, &child.gm, &own, &e));
	assert_int_equal(own.n, 3);
	check_extent(&own, 2, 51, 1);
	extents_free(&own);
	working_set_map(&w, &child.gm, -1, 1, 2);
	ok(pagemap_dirty(child.ram->pagemap_fd, &child.gm, &own, &e));
	assert_int_equal(own.n, w.written.n);
	assert_memory_equal(own.extent, w.written.extent, own.n * sizeof(*own.extent));
	check(&child);
	extents_free(&own);
	working_set_free(&w);
	end_guest(&child);
	end_guest(&g);
}

/* The first freeze can't seal the memory file: RAM stays shared with it. */
static void test_failed_first_freeze_changes_nothing(void **state)
{
	struct guest g;
	uint64_t copied;
	char byte;
	int fd;

	boot(&g, 4 * MIB);
	put_pages(&g, 0, 3, 'a');
	fd = g.ram->memory_fd;
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	assert_int_equal(ram_freeze(g.ram, &copied, NULL), -EPERM);
	assert_true(g.ram->shared);
	assert_int_equal(g.ram->memory_fd, fd);
	put_pages(&g, 1, 1, 'b');
	check(&g);
	assert_int_equal(pread(fd, &byte, 1, RAM_PAGE), 1);
	assert_int_equal(byte, 'b');
	end_guest(&g);
}

static unsigned count_retired(const struct ram *r)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < r->mapped.n; i++)
		n += ram_position(r, r->mapped.mapping[i].file) < 0;
	return n;
}

/* Mappings of merged layers are replaced, so that they do not keep the layers open forever. */
static void test_retired_layers_are_closed(void **state)
{
	struct guest g;
	bool visible = false;

	boot(&g, 32 * MIB);
	freeze(&g);
	for (unsigned i = 0; i < 60; i++) {
		for (unsigned n = 0; n < 20; n++)
			put_pages(&g, random_below(32 * MIB / RAM_PAGE - 16), 16, (uint8_t)i);
		freeze(&g);
		while (ram_flatten_step(g.ram))
			;
		visible = visible || count_retired(g.ram);
	}
	assert_true(visible);
	for (unsigned i = 0; i < 40 && count_retired(g.ram); i++)
		freeze(&g);
	assert_int_equal(count_retired(g.ram), 0);
	check(&g);
	end_guest(&g);
}

/* Before there are too many mappings, the background copies gaps, which joins mappings. */
static void test_mappings_are_joined_in_the_background(void **state)
{
	const uint64_t pages = 288 * MIB / RAM_PAGE;
	struct guest g, child;
	uint64_t steps = 0;

	boot(&g, pages * RAM_PAGE);
	freeze(&g);
	for (uint64_t i = 0; i < pages; i += 8)
		put_pages(&g, i, 1, 'a');
	freeze(&g);
	assert_true(g.ram->snapshot.n > IMAGE_MEMORY_EXTENTS_MAX / 2);
	while (ram_flatten_step(g.ram))
		steps++;
	assert_true(steps > 0);
	freeze(&g);
	assert_in_range(g.ram->snapshot.n, 1, IMAGE_MEMORY_EXTENTS_MAX / 4);
	assert_false(ram_flatten_step(g.ram));
	fork_guest(&g, &child);
	check(&child);
	check(&g);
	end_guest(&child);
	end_guest(&g);
}

/* The guest writes more scattered pages than a snapshot may have extents: gaps are copied until
 * they fit. */
static void test_scattered_writes_stay_within_the_extent_limit(void **state)
{
	const uint64_t pages = 160 * MIB / RAM_PAGE;
	struct guest g, child;
	int fds[RAM_SNAPSHOT_FDS];

	boot(&g, pages * RAM_PAGE);
	for (uint64_t i = 0; i < pages; i += 3)
		put_pages(&g, i, 1, 'a');
	freeze(&g);
	for (unsigned round = 0; round < 3; round++) {
		for (uint64_t i = round * 5; i < pages; i += 17 - 7 * (round == 2))
			put_pages(&g, i, 1, (uint8_t)('b' + round));
		freeze(&g);
		assert_true(g.ram->snapshot.n <= IMAGE_MEMORY_EXTENTS_MAX);
		assert_true(ram_snapshot_fds(g.ram, fds) >= 2);
		fork_guest(&g, &child);
		check(&child);
		end_guest(&child);
	}
	check(&g);
	end_guest(&g);
}

static void test_pagemap_scan_and_read_agree(void **state)
{
	struct extents scanned = {0}, read = {0};
	struct err e = {0};
	struct guest g;
	int fd = pagemap_open(-1, &e);

	boot(&g, 16 * MIB);
	put_pages(&g, 0, 3000, 'a');
	freeze(&g);
	for (unsigned i = 0; i < 1500; i++)
		put_pages(&g, random_below(4096), 1, 'b');
	check(&g);
	assert_int_equal(pagemap_read(fd, &g.gm, &read, &e), 0);
	if (pagemap_scan(fd, &g.gm, &scanned, &e) == 0) {
		assert_int_equal(scanned.n, read.n);
		assert_memory_equal(scanned.extent, read.extent, read.n * sizeof(*read.extent));
	}
	assert_true(read.n > 512);
	extents_free(&scanned);
	extents_free(&read);
	close(fd);
	end_guest(&g);
}

/* --- Random operations --- */

#define GUESTS 5
#define KEPT   6

struct kept { /* A snapshot that the test keeps, and its expected content. */
	int fds[RAM_SNAPSHOT_FDS];
	unsigned n;
	uint8_t *expected;
};

static void keep_image(struct kept *k, const struct guest *g)
{
	for (unsigned i = 0; i < k->n; i++)
		close(k->fds[i]);
	k->n = ram_snapshot_fds(g->ram, k->fds);
	for (unsigned i = 0; i < k->n; i++)
		k->fds[i] = fcntl(k->fds[i], F_DUPFD_CLOEXEC, 3);
	if (!k->expected)
		k->expected = malloc(g->gm.bytes);
	memcpy(k->expected, g->expected, g->gm.bytes);
}

static void check_kept(struct kept *k, uint64_t bytes)
{
	struct guest g;

	if (!k->n)
		return;
	make_guest(&g, bytes);
	ok(ram_back_with_snapshot(g.ram, k->fds[0], k->fds + 1, k->n - 1, &e));
	memcpy(g.expected, k->expected, bytes);
	check(&g);
	end_guest(&g);
}

static void drop_kept(struct kept *k)
{
	for (unsigned i = 0; i < k->n; i++)
		close(k->fds[i]);
	free(k->expected);
	*k = (struct kept){0};
}

static void write_somewhere(struct guest *g)
{
	uint64_t n = 1 + random_below(random_below(4) ? 4 : 200);
	uint64_t first = random_below(PAGES);

	if (first + n > PAGES)
		n = PAGES - first;
	if (random_below(3)) /* parts of pages */
		put(g, first * RAM_PAGE + random_below(4000), 1 + random_below(90),
		    (uint8_t)random_below(256));
	else
		put_pages(g, first, n, (uint8_t)random_below(256));
}

/* The content of discarded pages is undefined until the guest writes them: whole, or after reading
 * them. */
static void discard_and_write(struct guest *g)
{
	uint64_t n = 1 + random_below(60), first = random_below(PAGES - n);

	assert_int_equal(ram_discard(g->ram, first * RAM_PAGE, n * RAM_PAGE), 0);
	if (random_below(2)) {
		put_pages(g, first, n, (uint8_t)random_below(256));
		return;
	}
	memcpy(g->expected + first * RAM_PAGE, g->gm.base + first * RAM_PAGE, n * RAM_PAGE);
	for (uint64_t i = first; i < first + n; i++)
		put(g, i * RAM_PAGE + random_below(RAM_PAGE), 1, (uint8_t)random_below(256));
}

static void flatten_some(struct guest *g)
{
	uint64_t steps = random_below(40);

	while (steps-- && ram_flatten_step(g->ram))
		;
}

/* Freezes decide by the list of watched pages how much there is to map and to track. */
static void check_watched_are_own(const struct guest *g)
{
	const struct extents *watched = &g->ram->watched;
	struct extents own = {0};
	uint32_t at = 0;

	ok(pagemap_dirty(g->ram->pagemap_fd, &g->gm, &own, &e));
	for (uint32_t i = 0; i < watched->n; i++) {
		uint64_t end = watched->extent[i].offset + watched->extent[i].bytes;

		while (at < own.n && own.extent[at].offset + own.extent[at].bytes < end)
			at++;
		assert_true(at < own.n && own.extent[at].offset <= watched->extent[i].offset);
	}
	extents_free(&own);
}

static void step(struct guest guests[GUESTS], struct kept kept[KEPT])
{
	struct guest *g = &guests[random_below(GUESTS)], *other = &guests[random_below(GUESTS)];

	for (uint64_t n = random_below(30); n; n--)
		write_somewhere(g);
	if (random_below(3) == 0)
		flatten_some(g);
	if (random_below(6) == 0)
		discard_and_write(g);
	if (random_below(5) == 0)
		check(g);
	g->ram->keep_max = random_below(3) * 50 * RAM_PAGE;
	if (random_below(3) == 0) {
		g->ram->ahead_min = random_below(2) * 20 * RAM_PAGE;
		g->ram->watch_min = random_below(2) * 40 * RAM_PAGE;
		g->ram->watch_share = random_below(2) ? 1 : 16;
		g->ram->map_max = (1 + random_below(100)) * RAM_PAGE;
		ok(ram_prepare(g->ram, (unsigned)random_below(8), &e));
		write_somewhere(g);
	}
	freeze(g);
	check_watched_are_own(g);
	if (random_below(3) == 0)
		keep_image(&kept[random_below(KEPT)], g);
	if (other != g && random_below(2)) {
		end_guest(other);
		fork_guest(g, other);
	}
	if (random_below(8) == 0)
		check_kept(&kept[random_below(KEPT)], g->gm.bytes);
}

static void run_sequence(unsigned steps)
{
	struct guest guests[GUESTS];
	struct kept kept[KEPT] = {0};

	boot(&guests[0], PAGES * RAM_PAGE);
	write_somewhere(&guests[0]);
	freeze(&guests[0]);
	for (unsigned i = 1; i < GUESTS; i++)
		fork_guest(&guests[0], &guests[i]);
	while (steps--)
		step(guests, kept);
	for (unsigned i = 0; i < GUESTS; i++) {
		check(&guests[i]);
		end_guest(&guests[i]);
	}
	for (unsigned i = 0; i < KEPT; i++) {
		check_kept(&kept[i], PAGES * RAM_PAGE);
		drop_kept(&kept[i]);
	}
}

static void test_random_sequences_keep_the_content(void **state)
{
	unsigned before = count_fds();

	for (unsigned i = 0; i < 8; i++)
		run_sequence(100);
	assert_int_equal(count_fds(), before);
}

/* Forks a child of a child, 80 levels deep. Layers are merged from level 40 on. */
static void test_chain_of_80_forks_keeps_the_content(void **state)
{
	unsigned before = count_fds();
	struct guest g, child;
	int fds[RAM_SNAPSHOT_FDS];

	boot(&g, PAGES * RAM_PAGE);
	for (unsigned depth = 0; depth < 80; depth++) {
		for (uint64_t n = random_below(20); n; n--)
			write_somewhere(&g);
		put_pages(&g, depth, 1, (uint8_t)depth);
		freeze(&g);
		assert_true(ram_snapshot_fds(g.ram, fds) <= RAM_SNAPSHOT_FDS);
		fork_guest(&g, &child);
		if (depth >= 40)
			flatten_some(&child);
		if (depth % 8 == 0)
			check(&child);
		end_guest(&g);
		g = child;
	}
	check(&g);
	end_guest(&g);
	assert_int_equal(count_fds(), before);
}

/* Makes ioctl(PAGEMAP_SCAN) fail as on kernels before 6.7, which do not have it. */
static int take_scan_away(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)PAGEMAP_SCAN, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {ARRAY_LEN(code), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/* Usage: unit_vmm_ram [--without-scan] [SEED] */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unsealed_memory_is_refused),
		cmocka_unit_test(test_first_freeze_copies_nothing),
		cmocka_unit_test(test_freeze_without_writes_adds_no_layer),
		cmocka_unit_test(test_small_gaps_are_stored_but_no_holes),
		cmocka_unit_test(test_long_extents_are_copied_once),
		cmocka_unit_test(test_hidden_layers_are_closed),
		cmocka_unit_test(test_unchanged_pages_are_not_copied),
		cmocka_unit_test(test_gaps_over_a_file_on_disk_are_stored),
		cmocka_unit_test(test_fork_for_many_children_has_fewer_extents),
		cmocka_unit_test(test_large_amounts_are_copied_ahead),
		cmocka_unit_test(test_first_fork_copies_smaller_amounts_ahead),
		cmocka_unit_test(test_failed_freeze_changes_nothing),
		cmocka_unit_test(test_pages_are_allocated_before_a_freeze),
		cmocka_unit_test(test_pages_are_compared_unless_nearly_all_changed),
		cmocka_unit_test(test_tracking_goes_on_while_the_guest_writes_little),
		cmocka_unit_test(test_working_set_is_recorded),
		cmocka_unit_test(test_large_working_set_is_not_kept),
		cmocka_unit_test(test_working_set_is_mapped),
		cmocka_unit_test(test_failed_first_freeze_changes_nothing),
		cmocka_unit_test(test_retired_layers_are_closed),
		cmocka_unit_test(test_mappings_are_joined_in_the_background),
		cmocka_unit_test(test_scattered_writes_stay_within_the_extent_limit),
		cmocka_unit_test(test_pagemap_scan_and_read_agree),
		cmocka_unit_test(test_random_sequences_keep_the_content),
		cmocka_unit_test(test_chain_of_80_forks_keeps_the_content),
	};

	if (argc > 1 && !strcmp(argv[1], "--without-scan")) {
		if (take_scan_away())
			return 1;
		argc--;
		argv++;
	}
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL) * 2654435761u + 1;
	print_message("seed %llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
