// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/text-file.h"

static void test_written_bytes_are_read_back(void **state)
{
	scoped_fd int fd = memfd_create("file", MFD_CLOEXEC);
	uint64_t bytes;
	char got[5] = "";

	assert_int_equal(file_write(fd, 4096, "hello", 5, NULL), 0);
	assert_int_equal(file_size(fd, &bytes, NULL), 0);
	assert_int_equal(bytes, 4101);
	assert_int_equal(file_read(fd, 4096, got, 5, NULL), 0);
	assert_memory_equal(got, "hello", 5);
}

static void test_reading_past_the_end_is_an_error(void **state)
{
	scoped_fd int fd = memfd_create("file", MFD_CLOEXEC);
	struct err e = {0};
	char got[5];

	assert_int_equal(file_write(fd, 0, "hell", 4, &e), 0);
	assert_int_equal(file_read(fd, 0, got, 5, &e), -ENODATA);
	assert_string_equal(e.text, "the file is too short");
	assert_int_equal(file_read(fd, UINT64_MAX, got, 1, &e), -EINVAL);
	assert_non_null(strstr(e.text, "0xffffffffffffffff"));
}

static void test_failed_write_names_the_reason(void **state)
{
	scoped_fd int fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct err e = {0};

	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_int_equal(file_write(fd, 0, "x", 1, &e), -EPERM);
	assert_string_equal(e.text, "write: Operation not permitted");
}

static void file_is_replaced_as_a_whole(void **state)
{
	char path[] = "/tmp/ramet-file-XXXXXX";
	struct err e = {0};
	struct stat st;
	size_t len;

	assert_non_null(mkdtemp(path));
	scoped_fd int dir = directory_open(path, &e);
	/* A program that was killed meanwhile left this file. */
	assert_int_equal(mknodat(dir, "f.tmp", S_IFREG | 0600, 0), 0);
	assert_int_equal(file_replace(dir, "f", "first", 5, 0600, 0, &e), 0);
	assert_int_equal(file_replace(dir, "f", "second", 6, 0640, 0, &e), 0);
	scoped_fd int fd = openat(dir, "f", O_RDONLY);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	scoped_free char *text = file_text(fd, 6, &len, &e);
	assert_string_equal(text, "second");
	assert_int_equal(len, 6);
	assert_int_equal(unlinkat(dir, "f", 0), 0);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(file_replace(dir, "f", "third", 5, 0600, 0, &e), -ENOENT);
	assert_string_equal(e.text, "create f.tmp: No such file or directory");
}

static void text_is_limited_and_may_come_from_a_pipe(void **state)
{
	struct err e = {0};
	int ends[2];
	size_t len;

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], "hello", 5), 5);
	assert_null(file_text(ends[0], 4, &len, &e));
	assert_int_equal(e.code, -EFBIG);
	assert_string_equal(e.text, "it has more than 4 bytes");
	close_fd(&ends[1]);
	scoped_free char *rest = file_text(ends[0], 4, &len, &e);
	assert_string_equal(rest, "");
	close_fd(&ends[0]);
	assert_null(file_text(open("/nonexistent", O_RDONLY), 4, &len, &e));
	assert_int_equal(e.code, -ENOENT);
	assert_string_equal(e.text, "open: No such file or directory");
}

static void directory_is_made_once_and_opened(void **state)
{
	char path[] = "/tmp/ramet-dir-XXXXXX";
	struct err e = {0};

	assert_non_null(mkdtemp(path));
	rmdir(path);
	for (int i = 0; i < 2; i++) {
		scoped_fd int fd = directory_open(path, &e);

		assert_true(fd >= 0);
		assert_int_equal(faccessat(fd, ".", R_OK | W_OK | X_OK, 0), 0);
	}
	rmdir(path);
	assert_int_equal(directory_open("/dev/null/none", &e), -ENOTDIR);
	assert_non_null(strstr(e.text, "make /dev/null/none"));
	assert_int_equal(directory_open("/dev/null", &e), -ENOTDIR);
	assert_non_null(strstr(e.text, "open /dev/null"));
}

static void test_only_regular_files_have_a_size(void **state)
{
	scoped_fd int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct err e = {0};
	uint64_t bytes;

	assert_int_equal(file_size(fd, &bytes, &e), -EINVAL);
	assert_int_equal(file_size(-1, &bytes, &e), -EBADF);
}

static void text_of_a_small_file_is_read_and_written(void **state)
{
	scoped_fd int dir = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[] = "/tmp/text-XXXXXX", text[8] = "old";
	scoped_fd int fd = mkstemp(name);

	assert_true(fd >= 0);
	assert_int_equal(text_file_write(dir, name + 5, "123456789"), 0);
	assert_int_equal(text_file_read(dir, name + 5, text, sizeof(text)), 7);
	assert_string_equal(text, "1234567");
	unlink(name);
	assert_int_equal(text_file_read(dir, name + 5, text, sizeof(text)), -ENOENT);
	assert_string_equal(text, "");
	assert_int_equal(text_file_write(dir, name + 5, "1"), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_written_bytes_are_read_back),
		cmocka_unit_test(test_reading_past_the_end_is_an_error),
		cmocka_unit_test(test_failed_write_names_the_reason),
		cmocka_unit_test(file_is_replaced_as_a_whole),
		cmocka_unit_test(text_is_limited_and_may_come_from_a_pipe),
		cmocka_unit_test(directory_is_made_once_and_opened),
		cmocka_unit_test(test_only_regular_files_have_a_size),
		cmocka_unit_test(text_of_a_small_file_is_read_and_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
