// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "vmm/kvm/memory.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* Returns memory that is never accessed: the tests check only the arithmetic of addresses. */
static struct gm fake(uint64_t bytes)
{
	return (struct gm){.base = (uint8_t *)0x100000000000, .bytes = bytes};
}

static void test_ram_below_the_hole_is_addressable(void **state)
{
	struct gm m = fake(256 * MIB);

	assert_ptr_equal(gm_ptr(&m, 0, 256 * MIB), m.base);
	assert_ptr_equal(gm_ptr(&m, 256 * MIB - 1, 1), m.base + 256 * MIB - 1);
	assert_null(gm_ptr(&m, 256 * MIB - 1, 2));
	assert_null(gm_ptr(&m, 256 * MIB, 1));
	assert_null(gm_ptr(&m, 0, 256 * MIB + 1));
}

static void test_addresses_in_the_hole_are_refused(void **state)
{
	struct gm m = fake(5 * GIB);

	assert_ptr_equal(gm_ptr(&m, 3 * GIB - 4, 4), m.base + 3 * GIB - 4);
	assert_null(gm_ptr(&m, 3 * GIB - 4, 5));
	assert_null(gm_ptr(&m, 3 * GIB, 1));
	assert_int_equal(gm_addr(3 * GIB - 1), 3 * GIB - 1);
	assert_int_equal(gm_addr(3 * GIB), 4 * GIB);
	assert_null(gm_ptr(&m, 4 * GIB - 1, 1));
	assert_ptr_equal(gm_ptr(&m, 4 * GIB, 1), m.base + 3 * GIB);
	assert_ptr_equal(gm_ptr(&m, 6 * GIB - 1, 1), m.base + 5 * GIB - 1);
	assert_null(gm_ptr(&m, 6 * GIB - 1, 2));
	assert_null(gm_ptr(&m, 6 * GIB, 1));
}

static void test_ranges_that_wrap_are_refused(void **state)
{
	struct gm m = fake(5 * GIB);

	assert_null(gm_ptr(&m, UINT64_MAX, 1));
	assert_null(gm_ptr(&m, UINT64_MAX, UINT64_MAX));
	assert_null(gm_ptr(&m, 4096, UINT64_MAX));
	assert_null(gm_ptr(&m, 4 * GIB, UINT64_MAX - 4 * GIB + 2));
	assert_int_equal(gm_offset(&m, UINT64_MAX), UINT64_MAX);
	assert_int_equal(gm_offset(&m, 3 * GIB + 1), UINT64_MAX);
	assert_int_equal(gm_offset(&m, 4 * GIB + 7), 3 * GIB + 7);
}

static void test_reservation_is_aligned_and_empty(void **state)
{
	struct err e = {0};
	struct gm m;

	assert_int_equal(gm_reserve(&m, 64 * MIB, &e), 0);
	assert_int_equal((uintptr_t)m.base % GIB, 0);
	assert_int_equal(mprotect(m.base, 64 * MIB, PROT_NONE), 0);
	gm_release(&m);
	assert_null(m.base);
	assert_int_equal(gm_reserve(&m, 4096, &e), -EINVAL);
	assert_int_equal(gm_reserve(&m, 0, &e), -EINVAL);
}

static void test_writes_do_not_reach_the_image_file(void **state)
{
	struct err e = {0};
	struct gm m;
	int fd;
	char byte = 'x';

	assert_int_equal(gm_reserve(&m, 2 * MIB, &e), 0);
	assert_int_equal(gm_back_with_memfd(&m, &fd, &e), 0);
	assert_true(gm_write(&m, MIB, "image", 6));
	assert_int_equal(gm_back_with_file(&m, fd, &e), 0);
	assert_true(gm_write(&m, MIB, "child", 6));
	assert_int_equal(pread(fd, &byte, 1, MIB), 1);
	assert_int_equal(byte, 'i');
	assert_int_equal(ftruncate(fd, MIB), 0);
	assert_int_equal(gm_back_with_file(&m, fd, &e), -EINVAL);
	assert_non_null(strstr(e.text, "1048576 bytes"));
	close(fd);
	gm_release(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ram_below_the_hole_is_addressable),
		cmocka_unit_test(test_addresses_in_the_hole_are_refused),
		cmocka_unit_test(test_ranges_that_wrap_are_refused),
		cmocka_unit_test(test_reservation_is_aligned_and_empty),
		cmocka_unit_test(test_writes_do_not_reach_the_image_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
