// SPDX-License-Identifier: Apache-2.0
/* Discarded pages: their storage is freed, and nothing else changes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "vmm/kvm/pagemap.h"
#include "vmm/kvm/ram-internal.h"

#define MIB (1ull << 20)
#define RAM (4 * MIB)

struct guest {
	struct gm gm;
	struct ram *ram;
};

static void make(struct guest *g)
{
	int pagemap = pagemap_open(-1, NULL);

	assert_true(pagemap >= 0);
	*g = (struct guest){0};
	assert_int_equal(gm_reserve(&g->gm, RAM, NULL), 0);
	assert_int_equal(ram_new(&g->ram, &g->gm, pagemap, NULL), 0);
}

static void boot(struct guest *g)
{
	make(g);
	assert_int_equal(ram_back_with_memfd(g->ram, NULL), 0);
	memset(g->gm.base, 'a', RAM);
}

static void end(struct guest *g)
{
	ram_free(g->ram);
	gm_release(&g->gm);
}

static uint64_t freeze(struct guest *g)
{
	uint64_t copied;

	assert_int_equal(ram_freeze(g->ram, &copied, NULL), 0);
	return copied;
}

static void fork_guest(const struct guest *g, struct guest *child)
{
	int fds[RAM_SNAPSHOT_FDS];
	unsigned n = ram_snapshot_fds(g->ram, fds);

	make(child);
	assert_int_equal(ram_back_with_snapshot(child->ram, fds[0], fds + 1, n - 1, NULL), 0);
}

static void check(const struct guest *g, uint64_t from, uint64_t to, uint8_t value)
{
	for (uint64_t at = from; at < to; at++)
		if (g->gm.base[at] != value)
			fail_msg("byte %llu is %u", (unsigned long long)at, g->gm.base[at]);
}

static uint64_t bytes_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void test_discard_frees_memory_of_a_booted_guest(void **state)
{
	struct guest g, child;

	boot(&g);
	assert_int_equal(bytes_of(g.ram->memory_fd), RAM);
	assert_int_equal(ram_discard(g.ram, MIB, MIB), 0);
	assert_int_equal(bytes_of(g.ram->memory_fd), RAM - MIB);
	check(&g, 0, MIB, 'a');
	check(&g, 2 * MIB, RAM, 'a');
	memset(g.gm.base + MIB, 'b', RAM_PAGE);
	assert_int_equal(bytes_of(g.ram->memory_fd), RAM - MIB + RAM_PAGE);
	freeze(&g);
	fork_guest(&g, &child);
	check(&child, 0, MIB, 'a');
	check(&child, MIB, MIB + RAM_PAGE, 'b');
	check(&child, 2 * MIB, RAM, 'a');
	end(&child);
	end(&g);
}

/* Own pages are freed; those of the snapshot stay, since others use them. */
static void test_discard_frees_only_own_pages_of_a_restored_guest(void **state)
{
	struct guest g, child;
	struct extents dirty = {0};

	boot(&g);
	freeze(&g);
	fork_guest(&g, &child);
	memset(child.gm.base, 'c', 2 * MIB);
	assert_int_equal(ram_discard(child.ram, MIB, 2 * MIB), 0);
	assert_int_equal(pagemap_dirty(child.ram->pagemap_fd, &child.gm, &dirty, NULL), 0);
	assert_int_equal(extents_bytes(&dirty), MIB);
	check(&child, 0, MIB, 'c');
	check(&child, 3 * MIB, RAM, 'a');
	check(&g, 0, RAM, 'a');
	assert_int_equal(freeze(&child), MIB);
	extents_free(&dirty);
	end(&child);
	end(&g);
}

/* Writes of the guest after a discard are in the next snapshot. */
static void test_writes_after_a_discard_are_in_the_next_snapshot(void **state)
{
	struct guest g, child;

	boot(&g);
	freeze(&g);
	for (unsigned round = 0; round < 20; round++) {
		uint64_t at = round % 7 * 3 * RAM_PAGE;

		memset(g.gm.base + at, (int)round + 1, 5 * RAM_PAGE);
		freeze(&g);
		assert_int_equal(ram_discard(g.ram, at, 4 * RAM_PAGE), 0);
		memset(g.gm.base + at, (int)round + 100, 3 * RAM_PAGE);
		freeze(&g);
		fork_guest(&g, &child);
		check(&child, at, at + 3 * RAM_PAGE, (uint8_t)(round + 100));
		check(&child, at + 4 * RAM_PAGE, at + 5 * RAM_PAGE, (uint8_t)(round + 1));
		end(&child);
	}
	end(&g);
}

static void test_only_whole_pages_are_discarded(void **state)
{
	struct guest g;

	boot(&g);
	assert_int_equal(ram_discard(g.ram, RAM_PAGE - 1, RAM_PAGE + 2), 0);
	check(&g, 0, RAM_PAGE, 'a');
	check(&g, RAM_PAGE, 2 * RAM_PAGE, 0);
	check(&g, 2 * RAM_PAGE, RAM, 'a');
	assert_int_equal(ram_discard(g.ram, 3 * RAM_PAGE + 1, RAM_PAGE), 0);
	assert_int_equal(ram_discard(g.ram, 3 * RAM_PAGE + 1, 0), 0);
	assert_int_equal(ram_discard(g.ram, RAM, 0), 0);
	check(&g, 2 * RAM_PAGE, RAM, 'a');
	end(&g);
}

static void test_discard_outside_of_ram_is_refused(void **state)
{
	struct guest g, blank;

	boot(&g);
	assert_int_equal(ram_discard(g.ram, RAM, 1), -EINVAL);
	assert_int_equal(ram_discard(g.ram, RAM - RAM_PAGE, 2 * RAM_PAGE), -EINVAL);
	assert_int_equal(ram_discard(g.ram, UINT64_MAX - 4095, 8192), -EINVAL);
	check(&g, 0, RAM, 'a');
	end(&g);
	make(&blank);
	assert_int_equal(ram_discard(blank.ram, 0, RAM_PAGE), -EINVAL);
	end(&blank);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_discard_frees_memory_of_a_booted_guest),
		cmocka_unit_test(test_discard_frees_only_own_pages_of_a_restored_guest),
		cmocka_unit_test(test_writes_after_a_discard_are_in_the_next_snapshot),
		cmocka_unit_test(test_only_whole_pages_are_discarded),
		cmocka_unit_test(test_discard_outside_of_ram_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
