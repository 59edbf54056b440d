// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "vmm/backend/layer.h"

#define DISK	    (16u * 4096)
#define BITMAP	    4096u /* first byte of the bitmap in a layer's file */
#define DATA	    8192u /* offset of the first cluster's data */
#define SEALED_AT   48u	  /* offsets of fields in the header */
#define CRC_AT	    52u
#define CLUSTER_OFF 12u

static int new_file(void)
{
	int fd = memfd_create("layer", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static struct layer_stack *open_stack(int base, const int *sealed, unsigned n)
{
	int mine[8], writable = new_file();
	struct layer_stack *s;
	struct err e = {0};

	for (unsigned i = 0; i < n; i++)
		mine[i] = dup(sealed[i]);
	if (layer_stack_open(&s, base < 0 ? -1 : dup(base), mine, n, writable, DISK, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

/* Writes through the stack in the same steps as the disk device. */
static void write_cluster(struct layer_stack *s, unsigned i, uint8_t byte)
{
	uint8_t data[4096];
	struct layer_extent extent;

	memset(data, byte, sizeof(data));
	assert_int_equal(layer_write_map(s, i * 4096ull, 4096, &extent), LAYER_WRITE);
	assert_int_equal(extent.len, 4096);
	assert_int_equal(pwrite(extent.fd, data, 4096, (off_t)extent.offset), 4096);
	layer_written(s, i * 4096ull, 4096);
}

/* Returns the first byte of a cluster as the stack maps it; -1: zeros that no layer stores. */
static int first_byte(const struct layer_stack *s, unsigned i)
{
	struct layer_extent extent = layer_map(s, i * 4096ull, 4096);
	uint8_t byte;

	if (extent.fd < 0)
		return -1;
	assert_int_equal(pread(extent.fd, &byte, 1, (off_t)extent.offset), 1);
	return byte;
}

/* Seals the writable layer, and puts an empty one over it. */
static void put_layer(struct layer_stack *s)
{
	assert_int_equal(layer_stack_prepare(s, new_file(), NULL), 0);
	layer_stack_commit(s);
}

/* Makes a sealed layer that has clusters 2 and 5, on top of the layers `sealed`. Returns its
 * file. */
static int make_sealed(const int *sealed, unsigned n, uint8_t byte)
{
	struct layer_stack *s = open_stack(-1, sealed, n);
	int fd = dup(layer_writable_fd(s));

	write_cluster(s, 2, byte);
	write_cluster(s, 5, byte);
	put_layer(s);
	layer_stack_free(s);
	return fd;
}

static struct err expect_refused(int sealed_fd)
{
	struct layer_stack *s;
	struct err e = {0};
	int writable = new_file();

	assert_true(layer_stack_open(&s, -1, &sealed_fd, 1, writable, DISK, &e) < 0);
	assert_true(strlen(e.text) > 10);
	close(writable);
	assert_true(fcntl(sealed_fd, F_GETFD) >= 0); /* stays the caller's */
	return e;
}

static void test_unwritten_clusters_read_from_the_base_or_as_zeros(void **state)
{
	int base = new_file();
	struct layer_extent extent;

	assert_int_equal(pwrite(base, "base", 4, 0), 4);
	assert_int_equal(ftruncate(base, 5000), 0);
	struct layer_stack *s = open_stack(base, NULL, 0);
	assert_int_equal(first_byte(s, 0), 'b');
	extent = layer_map(s, 0, DISK);
	assert_int_equal(extent.offset, 0);
	assert_int_equal(extent.len, 5000);
	extent = layer_map(s, 5000, 100);
	assert_int_equal(extent.fd, -1);
	extent = layer_map(s, 4999, 100);
	assert_int_equal(extent.len, 1);
	extent = layer_map(s, 8192, DISK - 8192);
	assert_int_equal(extent.fd, -1);
	assert_int_equal(extent.len, DISK - 8192);
	layer_stack_free(s);
	close(base);
}

static void test_each_extent_comes_from_the_topmost_layer(void **state)
{
	int bottom = make_sealed(NULL, 0, 'a');
	int top = make_sealed(&bottom, 1, 'b');
	struct layer_stack *s = open_stack(-1, (int[]){bottom, top}, 2);
	struct layer_extent extent;

	assert_int_equal(first_byte(s, 2), 'b');
	write_cluster(s, 3, 'c');
	write_cluster(s, 4, 'c');
	write_cluster(s, 5, 'c');
	assert_int_equal(first_byte(s, 2), 'b');
	assert_int_equal(first_byte(s, 5), 'c');
	extent = layer_map(s, 0, DISK);
	assert_int_equal(extent.fd, -1);
	assert_int_equal(extent.len, 2 * 4096);
	extent = layer_map(s, 2 * 4096, DISK - 2 * 4096);
	assert_int_equal(extent.len, 4096);
	extent = layer_map(s, 3 * 4096 + 100, DISK - 3 * 4096 - 100);
	assert_int_equal(extent.fd, layer_writable_fd(s));
	assert_int_equal(extent.offset, DATA + 3 * 4096 + 100);
	assert_int_equal(extent.len, 3 * 4096 - 100);
	layer_stack_free(s);
	close(bottom);
	close(top);
}

static void test_partial_write_copies_an_unwritten_cluster(void **state)
{
	struct layer_stack *s = open_stack(-1, NULL, 0);
	struct layer_extent extent;

	assert_int_equal(layer_write_map(s, 4096 + 512, 512, &extent), LAYER_COPY);
	assert_int_equal(extent.offset, DATA + 4096);
	assert_int_equal(extent.len, 4096);
	layer_written(s, 4096, 4096);
	assert_int_equal(layer_write_map(s, 4096 + 512, DISK - 4608, &extent), LAYER_WRITE);
	assert_int_equal(extent.offset, DATA + 4096 + 512);
	assert_int_equal(extent.len, 4096 - 512);
	assert_int_equal(layer_write_map(s, 8192, 4096 * 3 + 512, &extent), LAYER_WRITE);
	assert_int_equal(extent.len, 4096 * 3);
	layer_stack_free(s);
}

static void test_seal_keeps_the_layer_and_adds_an_empty_one(void **state)
{
	struct layer_stack *s = open_stack(-1, NULL, 0);
	int first = layer_writable_fd(s);

	write_cluster(s, 15, 'x');
	put_layer(s);
	assert_int_not_equal(layer_writable_fd(s), first);
	assert_int_equal(first_byte(s, 15), 'x');
	write_cluster(s, 15, 'y');
	assert_int_equal(first_byte(s, 15), 'y');
	int reopened = dup(first);
	layer_stack_free(s);
	s = open_stack(-1, &reopened, 1);
	assert_int_equal(first_byte(s, 15), 'x');
	assert_true(layer_writable_bytes(s) < 65536);
	layer_stack_free(s);
	close(reopened);
}

static void test_failed_seal_changes_nothing(void **state)
{
	struct layer_stack *s = open_stack(-1, NULL, 0);
	int not_empty = new_file(), fd = layer_writable_fd(s);
	struct err e = {0};

	assert_int_equal(write(not_empty, "x", 1), 1);
	write_cluster(s, 1, 'x');
	assert_true(layer_stack_prepare(s, not_empty, &e) < 0);
	assert_non_null(strstr(e.text, "not empty"));
	assert_int_equal(layer_writable_fd(s), fd);
	write_cluster(s, 1, 'y');
	assert_int_equal(first_byte(s, 1), 'y');
	put_layer(s);
	layer_stack_free(s);
	close(not_empty);
}

/* Between prepare and abandon, and afterwards, the disk is as before. */
static void test_abandoned_seal_changes_nothing(void **state)
{
	struct layer_stack *s = open_stack(-1, NULL, 0);
	int fresh = new_file(), fd = layer_writable_fd(s), reopened = dup(fd);
	int fds[LAYER_SEALED_MAX];

	assert_false(layer_stack_written(s));
	write_cluster(s, 1, 'x');
	assert_true(layer_stack_written(s));
	assert_int_equal(layer_stack_prepare(s, fresh, NULL), 0);
	assert_int_equal(layer_writable_fd(s), fd);
	layer_stack_abandon(s);
	expect_refused(reopened);
	assert_int_equal(layer_writable_fd(s), fd);
	assert_int_equal(layer_sealed_fds(s, fds), 0);
	assert_true(layer_stack_written(s));
	write_cluster(s, 1, 'y');
	assert_int_equal(first_byte(s, 1), 'y');

	assert_int_equal(ftruncate(fresh, 0), 0);
	assert_int_equal(layer_stack_prepare(s, fresh, NULL), 0);
	layer_stack_commit(s);
	layer_stack_abandon(s); /* too late: does nothing */
	assert_int_equal(layer_writable_fd(s), fresh);
	assert_int_equal(layer_sealed_fds(s, fds), 1);
	assert_int_equal(fds[0], fd);
	assert_false(layer_stack_written(s));
	assert_int_equal(first_byte(s, 1), 'y');
	layer_stack_free(s);
	s = open_stack(-1, &reopened, 1);
	assert_int_equal(first_byte(s, 1), 'y');
	layer_stack_free(s);
	close(reopened);
}

static void test_seal_fails_at_the_maximum_of_layers(void **state)
{
	struct layer_stack *s = open_stack(-1, NULL, 0);
	struct err e = {0};
	int one_more;

	for (unsigned i = 0; i < CTL_LAYERS_MAX; i++)
		put_layer(s);
	one_more = new_file();
	assert_int_equal(layer_stack_prepare(s, one_more, &e), -E2BIG);
	assert_non_null(strstr(e.text, "has the maximum of"));
	close(one_more);
	layer_stack_free(s);
}

static void test_unsealed_layer_is_refused(void **state)
{
	struct layer_stack *s = open_stack(-1, NULL, 0);

	write_cluster(s, 2, 'a');
	assert_non_null(strstr(expect_refused(layer_writable_fd(s)).text, "never sealed"));
	layer_stack_free(s);
}

static void test_any_changed_metadata_byte_is_refused(void **state)
{
	int fd = make_sealed(NULL, 0, 'a');

	for (off_t at = 0; at < (off_t)DATA; at++) {
		uint8_t byte, bent;

		assert_int_equal(pread(fd, &byte, 1, at), 1);
		bent = byte ^ 0x10;
		assert_int_equal(pwrite(fd, &bent, 1, at), 1);
		expect_refused(fd);
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	layer_stack_free(open_stack(-1, &fd, 1));
	close(fd);
}

static void test_truncated_file_is_refused(void **state)
{
	int fd = make_sealed(NULL, 0, 'a');

	for (off_t len = DATA + DISK - 1; len >= 0; len -= len > 9000 ? 3001 : 1) {
		assert_int_equal(ftruncate(fd, len), 0);
		expect_refused(fd);
	}
	close(fd);
}

/* Changes a field and corrects the checksum, so that the field itself must be refused. */
static void set_field(int fd, off_t at, uint32_t value)
{
	uint8_t head[DATA];
	uint32_t crc;

	assert_int_equal(pread(fd, head, sizeof(head), 0), sizeof(head));
	memcpy(head + at, &value, 4);
	memset(head + CRC_AT, 0, 4);
	crc = crc32c(0, head, sizeof(head));
	memcpy(head + CRC_AT, &crc, 4);
	assert_int_equal(pwrite(fd, head, sizeof(head), 0), sizeof(head));
}

static void test_error_names_the_invalid_field(void **state)
{
	static const struct {
		off_t at;
		uint32_t value;
		const char *says;
	} cases[] = {
		{0, 0x41414141, "not a disk layer"},
		{8, 2, "version 2"},
		{CLUSTER_OFF, 65536, "clusters of 65536"},
		{16, DISK * 2, "expected 65536"},
		{24, 4096, "expected"},
		{40, 7, "is not the layer before it"},
		{SEALED_AT, 0, "never sealed"},
		{SEALED_AT, 2, "never sealed"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int fd = make_sealed(NULL, 0, 'a');

		set_field(fd, cases[i].at, cases[i].value);
		struct err e = expect_refused(fd);
		if (!strstr(e.text, cases[i].says))
			fail_msg("\"%s\" lacks \"%s\"", e.text, cases[i].says);
		close(fd);
	}
}

static void test_layers_in_the_wrong_order_are_refused(void **state)
{
	int bottom = make_sealed(NULL, 0, 'a');
	int top = make_sealed(&bottom, 1, 'b');
	struct layer_stack *s;
	struct err e = {0};
	int writable = new_file();

	assert_true(layer_stack_open(&s, -1, (int[]){top, bottom}, 2, writable, DISK, &e) < 0);
	assert_non_null(strstr(e.text, "disk layer 0"));
	assert_true(layer_stack_open(&s, -1, &top, 1, writable, DISK, &e) < 0);
	assert_true(layer_stack_open(&s, -1, (int[]){bottom, bottom}, 2, writable, DISK, &e) < 0);
	assert_int_equal(layer_stack_open(&s, -1, (int[]){bottom, top}, 2, writable, DISK, &e), 0);
	layer_stack_free(s);
}

#define BITMAP_PAGE_SPAN (128ull << 20) /* bytes of the disk per page of the bitmap */

static struct layer_stack *open_disk(const int *sealed, unsigned n, uint64_t disk_bytes)
{
	int mine[4], writable = new_file();
	struct layer_stack *s;
	struct err e = {0};

	for (unsigned i = 0; i < n; i++)
		mine[i] = dup(sealed[i]);
	if (layer_stack_open(&s, -1, mine, n, writable, disk_bytes, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static int seal(struct layer_stack *s)
{
	int fd = dup(layer_writable_fd(s));

	put_layer(s);
	layer_stack_free(s);
	return fd;
}

static void test_layer_of_a_disk_that_grew_is_opened(void **state)
{
	const unsigned last = BITMAP_PAGE_SPAN / 4096 - 1;
	struct layer_stack *s = open_disk(NULL, 0, BITMAP_PAGE_SPAN);
	struct layer_extent extent;
	int sealed[2];

	write_cluster(s, 2, 'a');
	write_cluster(s, last, 'b');
	sealed[0] = seal(s);
	s = open_disk(sealed, 1, 3 * BITMAP_PAGE_SPAN);
	assert_int_equal(layer_disk_bytes(s), 3 * BITMAP_PAGE_SPAN);
	assert_int_equal(first_byte(s, 2), 'a');
	assert_int_equal(first_byte(s, last), 'b');
	extent = layer_map(s, BITMAP_PAGE_SPAN - 4096, 2 * 4096); /* ends where the old disk did */
	assert_int_equal(extent.len, 4096);
	assert_int_equal(first_byte(s, last + 1), -1);
	write_cluster(s, last + 1, 'c');
	write_cluster(s, 2, 'd');
	sealed[1] = seal(s);
	s = open_disk(sealed, 2, 3 * BITMAP_PAGE_SPAN);
	assert_int_equal(first_byte(s, 2), 'd');
	assert_int_equal(first_byte(s, last), 'b');
	assert_int_equal(first_byte(s, last + 1), 'c');
	layer_stack_free(s);
	close(sealed[0]);
	close(sealed[1]);
}

static void test_disk_that_shrank_or_grew_by_less_than_a_bitmap_page_is_refused(void **state)
{
	const uint64_t sizes[][2] = {{2 * BITMAP_PAGE_SPAN, BITMAP_PAGE_SPAN},
				     {BITMAP_PAGE_SPAN / 2, BITMAP_PAGE_SPAN},
				     {BITMAP_PAGE_SPAN + 4096, 2 * BITMAP_PAGE_SPAN}};
	struct err e = {0};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct layer_stack *s = open_disk(NULL, 0, sizes[i][0]);
		int writable = new_file();

		write_cluster(s, 1, 'a');
		int sealed = seal(s);
		assert_true(layer_stack_open(&s, -1, &sealed, 1, writable, sizes[i][1], &e) < 0);
		assert_non_null(strstr(e.text, "it is for a disk of"));
		close(writable);
		close(sealed);
	}
}

static void test_invalid_sizes_and_files_are_refused(void **state)
{
	static const uint64_t sizes[] = {0, 100, 4097, LAYER_DISK_MAX + 4096, UINT64_MAX - 4095};
	struct layer_stack *s;
	struct err e = {0};
	int fd = new_file(), ends[2];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_true(layer_stack_open(&s, -1, NULL, 0, fd, sizes[i], &e) < 0);
	assert_int_equal(pipe(ends), 0);
	assert_true(layer_stack_open(&s, -1, NULL, 0, ends[1], DISK, &e) < 0);
	assert_true(layer_stack_open(&s, ends[0], NULL, 0, fd, DISK, &e) < 0);
	expect_refused(ends[0]);
	assert_int_equal(layer_stack_open(&s, -1, NULL, 0, fd, LAYER_DISK_MAX, &e), 0);
	layer_written(s, LAYER_DISK_MAX - 4096, 4096);
	assert_int_equal(layer_map(s, LAYER_DISK_MAX - 4096, 4096).len, 4096);
	layer_stack_free(s);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unwritten_clusters_read_from_the_base_or_as_zeros),
		cmocka_unit_test(test_each_extent_comes_from_the_topmost_layer),
		cmocka_unit_test(test_partial_write_copies_an_unwritten_cluster),
		cmocka_unit_test(test_seal_keeps_the_layer_and_adds_an_empty_one),
		cmocka_unit_test(test_failed_seal_changes_nothing),
		cmocka_unit_test(test_abandoned_seal_changes_nothing),
		cmocka_unit_test(test_seal_fails_at_the_maximum_of_layers),
		cmocka_unit_test(test_unsealed_layer_is_refused),
		cmocka_unit_test(test_any_changed_metadata_byte_is_refused),
		cmocka_unit_test(test_truncated_file_is_refused),
		cmocka_unit_test(test_error_names_the_invalid_field),
		cmocka_unit_test(test_layers_in_the_wrong_order_are_refused),
		cmocka_unit_test(test_layer_of_a_disk_that_grew_is_opened),
		cmocka_unit_test(
			test_disk_that_shrank_or_grew_by_less_than_a_bitmap_page_is_refused),
		cmocka_unit_test(test_invalid_sizes_and_files_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
