// SPDX-License-Identifier: Apache-2.0
/* Memory layers from untrusted files: each defect is reported, and RAM is never backed by an
 * invalid layer. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "base/wire.h"
#include "proto/ctl.h"
#include "proto/image.h"
#include "vmm/kvm/ram-table.h"
#include "vmm/kvm/ram.h"

#define RAM    (4ull << 20)
#define HEADER 32
#define ENTRY  16
#define MOST   IMAGE_MEMORY_EXTENTS_MAX
#define ROOM   (HEADER + ENTRY * 8)

static struct extents example(void)
{
	struct extents r = {0};

	assert_int_equal(extents_add(&r, 0, RAM_PAGE), 0);
	assert_int_equal(extents_add(&r, 3 * RAM_PAGE, 5 * RAM_PAGE), 0);
	assert_int_equal(extents_add(&r, RAM - RAM_PAGE, RAM_PAGE), 0);
	return r;
}

static void put_table(int fd, const struct extents *extents, uint64_t ram_bytes)
{
	assert_int_equal(ram_table_write(fd, extents, ram_bytes, NULL), 0);
}

/* Gives the layer's file the size that a table and the pages of the extents need. */
static void size_layer(int fd, const struct extents *extents)
{
	uint64_t bytes = ram_table_bytes(extents->n) + extents_bytes(extents);

	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
}

static int layer_of(const struct extents *extents)
{
	int fd = memfd_create("layer", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	put_table(fd, extents, RAM);
	size_layer(fd, extents);
	return fd;
}

static void test_written_table_is_read_back(void **state)
{
	struct extents in = example(), out = {0};
	scoped_fd int fd = layer_of(&in);
	struct err e = {0};

	assert_int_equal(ram_table_read(&out, fd, RAM, &e), 0);
	assert_int_equal(out.n, in.n);
	assert_memory_equal(out.extent, in.extent, in.n * sizeof(*in.extent));
	extents_free(&in);
	extents_free(&out);
}

static size_t table_bytes(uint8_t table[ROOM])
{
	struct extents in = example();
	scoped_fd int fd = memfd_create("table", MFD_CLOEXEC);
	ssize_t n;

	put_table(fd, &in, RAM);
	n = pread(fd, table, ROOM, 0);
	extents_free(&in);
	assert_int_equal(n, HEADER + 3 * ENTRY);
	return (size_t)n;
}

static void assert_refused(const uint8_t *table, size_t size, const char *says)
{
	struct extents out = {0};
	struct err e = {0};

	assert_true(ram_table_parse(&out, table, size, RAM, &e) < 0);
	if (!strstr(e.text, says))
		fail_msg("\"%s\" does not say \"%s\"", e.text, says);
	extents_free(&out);
}

static void test_any_flipped_bit_is_refused(void **state)
{
	uint8_t table[ROOM];
	size_t n = table_bytes(table);

	for (size_t i = 0; i < n * 8; i++) {
		table[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_refused(table, n, "");
		table[i / 8] ^= (uint8_t)(1 << i % 8);
	}
}

static void test_truncated_table_is_refused(void **state)
{
	uint8_t table[ROOM];
	size_t n = table_bytes(table);

	for (size_t i = 0; i < n; i++)
		assert_refused(table, i,
			       i < HEADER ? "not a memory layer" : "its table has 3 extents");
}

/* Truncates the file inside the table, which takes several pages. */
static void test_truncated_table_of_many_pages_is_refused(void **state)
{
	scoped_fd int fd = memfd_create("layer", MFD_CLOEXEC);
	struct extents in = {0}, out = {0};
	struct err e = {0};

	for (uint64_t i = 0; i < 500; i++)
		assert_int_equal(extents_add(&in, 2 * i * RAM_PAGE, RAM_PAGE), 0);
	put_table(fd, &in, RAM);
	size_layer(fd, &in);
	assert_int_equal(ram_table_read(&out, fd, RAM, &e), 0);
	assert_int_equal(out.n, in.n);
	assert_memory_equal(out.extent, in.extent, in.n * sizeof(*in.extent));
	extents_free(&out);
	assert_int_equal(ftruncate(fd, RAM_PAGE + 100), 0);
	assert_int_equal(ram_table_read(&out, fd, RAM, &e), -EINVAL);
	assert_non_null(strstr(e.text, "its table has 500 extents in 4196 bytes"));
	extents_free(&out);
	extents_free(&in);
}

/* Expects that an invalid extent is refused even with a valid checksum. */
static void assert_extent_refused(uint64_t offset, uint64_t bytes)
{
	uint8_t table[ROOM] = {0};
	struct wire w = wire_on(table, sizeof(table));
	size_t size = HEADER + 2 * ENTRY;

	wire_put_bytes(&w, IMAGE_MEMORY_MAGIC, 8);
	wire_put_u32(&w, IMAGE_MEMORY_VERSION);
	wire_put_u32(&w, 2);
	wire_put_u64(&w, RAM);
	wire_put_u64(&w, 0);
	wire_put_u64(&w, RAM_PAGE);
	wire_put_u64(&w, 2 * RAM_PAGE);
	wire_put_u64(&w, offset);
	wire_put_u64(&w, bytes);
	w.pos = 24;
	wire_put_u32(&w, crc32c(0, table, size));
	assert_refused(table, size, "extent 1 is invalid");
}

static void test_invalid_extents_are_refused(void **state)
{
	assert_extent_refused(5 * RAM_PAGE, 0);
	assert_extent_refused(5 * RAM_PAGE, 100);
	assert_extent_refused(5 * RAM_PAGE + 1, RAM_PAGE);
	assert_extent_refused(2 * RAM_PAGE, RAM_PAGE); /* overlaps the extent before it */
	assert_extent_refused(3 * RAM_PAGE, RAM_PAGE); /* touches the extent before it */
	assert_extent_refused(0, RAM_PAGE);	       /* lies before that extent */
	assert_extent_refused(RAM, RAM_PAGE);
	assert_extent_refused(RAM - RAM_PAGE, 2 * RAM_PAGE);
	assert_extent_refused(5 * RAM_PAGE, 0ull - RAM_PAGE);
	assert_extent_refused(0ull - RAM_PAGE, RAM_PAGE);
	assert_extent_refused(0ull - RAM_PAGE, 2 * RAM_PAGE);
}

/* --- As the RAM of a VM --- */

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

static void assert_no_image(int memory, const int *layers, unsigned n, const char *says)
{
	unsigned before = count_fds();
	struct err e = {0};
	struct ram *ram;
	struct gm gm;

	assert_int_equal(gm_reserve(&gm, RAM, &e), 0);
	assert_int_equal(ram_new(&ram, &gm, -1, &e), 0);
	assert_true(ram_back_with_snapshot(ram, memory, layers, n, &e) < 0);
	if (!strstr(e.text, says))
		fail_msg("\"%s\" does not say \"%s\"", e.text, says);
	ram_free(ram);
	gm_release(&gm);
	assert_int_equal(count_fds(), before);
}

static int sized(uint64_t bytes)
{
	int fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

static void seal(int fd)
{
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), 0);
}

static int sealed(uint64_t bytes)
{
	int fd = sized(bytes);

	seal(fd);
	return fd;
}

static void assert_no_layer_of(const struct extents *extents, off_t bytes, const char *says)
{
	scoped_fd int memory = sealed(RAM);
	scoped_fd int layer = layer_of(extents);

	assert_int_equal(ftruncate(layer, bytes), 0);
	seal(layer);
	assert_no_image(memory, (int[]){layer}, 1, says);
}

static void test_invalid_files_are_refused(void **state)
{
	struct extents extents = example();
	scoped_fd int layer = layer_of(&extents);
	scoped_fd int memory = sealed(RAM);
	scoped_fd int small = sealed(RAM / 2);
	scoped_fd int empty = sealed(0);
	scoped_fd int open_to_all = sized(RAM);
	scoped_fd int pipe_like = open("/dev/null", O_RDWR | O_CLOEXEC);
	int many[CTL_MEMORY_MAX + 1];

	seal(layer);
	for (unsigned i = 0; i < CTL_MEMORY_MAX + 1; i++)
		many[i] = layer;
	assert_no_image(small, NULL, 0, "2097152 bytes");
	assert_no_image(pipe_like, NULL, 0, "bytes");
	assert_no_image(open_to_all, NULL, 0, "not sealed");
	assert_no_image(memory, many, CTL_MEMORY_MAX + 1, "the limit is 24");
	assert_no_image(memory, (int[]){layer, memory}, 2, "memory layer 2: ");
	assert_no_image(memory, (int[]){pipe_like}, 1, "not a regular file");
	assert_no_image(memory, (int[]){-1}, 1, "memory layer 1: ");
	assert_no_image(memory, (int[]){empty}, 1,
			"the file has 0 bytes, too few for a memory layer");
	assert_no_layer_of(&extents, 7 * RAM_PAGE, "their table take 32768");
	assert_no_layer_of(&extents, 9 * RAM_PAGE, "their table take 32768");
	extents_free(&extents);
}

/* Each layer is valid; together they need more mappings than a process can have. */
static void test_layers_with_too_many_mappings_are_refused(void **state)
{
	struct extents even = {0}, odd = {0};
	scoped_fd int memory = -1, a = -1, b = -1;
	const uint64_t bytes = 256ull << 20;
	struct err e = {0};
	struct ram *ram;
	struct gm gm;

	for (uint64_t i = 0; i < MOST; i++) {
		assert_int_equal(extents_add(&even, i * 4 * RAM_PAGE, RAM_PAGE), 0);
		assert_int_equal(extents_add(&odd, (i * 4 + 2) * RAM_PAGE, RAM_PAGE), 0);
	}
	memory = sealed(bytes);
	a = sized(0);
	b = sized(0);
	put_table(a, &even, bytes);
	put_table(b, &odd, bytes);
	size_layer(a, &even);
	size_layer(b, &odd);
	seal(a);
	seal(b);
	assert_int_equal(gm_reserve(&gm, bytes, &e), 0);
	assert_int_equal(ram_new(&ram, &gm, -1, &e), 0);
	assert_int_equal(ram_back_with_snapshot(ram, memory, (int[]){a, b}, 2, &e), -E2BIG);
	assert_non_null(strstr(e.text, "32768 mappings; the limit is 16384"));
	assert_int_equal(ram_back_with_snapshot(ram, memory, (int[]){b}, 1, &e), 0);
	ram_free(ram);
	gm_release(&gm);
	extents_free(&even);
	extents_free(&odd);
}

static void test_ram_is_backed_once_and_before_a_freeze(void **state)
{
	scoped_fd int memory = sealed(RAM);
	uint64_t copied;
	struct err e = {0};
	struct ram *ram;
	struct gm gm;

	assert_int_equal(gm_reserve(&gm, RAM, &e), 0);
	assert_int_equal(ram_new(&ram, &gm, -1, &e), 0);
	assert_int_equal(ram_freeze(ram, &copied, &e), -EINVAL);
	assert_int_equal(ram_back_with_snapshot(ram, memory, NULL, 0, &e), 0);
	assert_int_equal(ram_back_with_memfd(ram, &e), -EBUSY);
	assert_int_equal(ram_back_with_snapshot(ram, memory, NULL, 0, &e), -EBUSY);
	assert_int_equal(ram_freeze(ram, &copied, &e), -ENOTSUP); /* no page map */
	ram_free(ram);
	gm_release(&gm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_written_table_is_read_back),
		cmocka_unit_test(test_any_flipped_bit_is_refused),
		cmocka_unit_test(test_truncated_table_is_refused),
		cmocka_unit_test(test_truncated_table_of_many_pages_is_refused),
		cmocka_unit_test(test_invalid_extents_are_refused),
		cmocka_unit_test(test_invalid_files_are_refused),
		cmocka_unit_test(test_layers_with_too_many_mappings_are_refused),
		cmocka_unit_test(test_ram_is_backed_once_and_before_a_freeze),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
