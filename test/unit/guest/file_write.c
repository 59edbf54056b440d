// SPDX-License-Identifier: Apache-2.0
/* Each write of a put and of an upload fails in turn: the old file stays, and no staged file is
 * left. The test plays the host's end of the connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "guest/files/file-work.h"
#include "guest/files/staged.h"
#include "guest/files/worker-io.h"
#include "guest/files/worker.h"
#include "test/unit/writes/failing-writes.h"
#include "test/remove_tree.h"

#define CHUNK 1000

static struct {
	jmp_buf ended; /* the jump replaces the end of the worker's process */
	int errnum;
	char text[256];
	uint64_t left;
	uint8_t data[CHUNK];
} peer;

void worker_io_expect(uint64_t size)
{
	peer.left = size;
}

size_t worker_io_data(const uint8_t **data)
{
	size_t n = peer.left < CHUNK ? (size_t)peer.left : CHUNK;

	*data = peer.data;
	peer.left -= n;
	return n;
}

void worker_io_done(void)
{
	peer.errnum = 0;
	longjmp(peer.ended, 1);
}

void worker_io_fail(int errnum, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(peer.text, sizeof(peer.text), format, args);
	va_end(args);
	peer.errnum = errnum;
	longjmp(peer.ended, 1);
}

static struct staged_file staged;

struct staged_file *worker_staged(void)
{
	return &staged;
}

/* Runs a worker. Returns the errno that it reports to the host; 0 means success. */
static int work(void (*run)(const struct file_request *r), const struct file_request *r)
{
	staged = (struct staged_file){0};
	if (!setjmp(peer.ended))
		run(r);
	return peer.errnum;
}

/* --- the disk ------------------------------------------------------------------------------- */

static char dir[64], path[128];

static int setup(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/ramet-write-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/folder/file", dir);
	return 0;
}

static int teardown(void **state)
{
	return remove_tree(dir);
}

/* Expects the file with this content, and no other entry; "": expects no file. */
static void expect_file(const char *text, size_t len)
{
	char got[4 * CHUNK];
	scoped_free char *folder = strndup(path, (size_t)(strrchr(path, '/') - path));
	unsigned entries = 0;
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(got, 1, sizeof(got), f) : 0;
	DIR *d = opendir(folder);

	if (f)
		fclose(f);
	assert_int_equal(n, len);
	assert_memory_equal(got, text, len);
	while (d && readdir(d))
		entries++;
	if (d)
		closedir(d);
	assert_int_equal(entries, d ? 2 + (len > 0) : 0); /* including . and .. */
}

static void fail_write(unsigned n, int error)
{
	if (error)
		writes_fail(dir, n, error);
	else
		writes_are_short(dir, n);
}

/* Removes the staged file after a success as well as a failure, as the agent does. Returns true if
 * a write was made to fail. */
static bool end_attempt(int error, int result)
{
	bool broke = writes_end();

	assert_true(result == 0 ||
		    (broke && result == error && strstr(peer.text, strerror(error))));
	staged_remove(&staged);
	return broke;
}

static const struct file_request put_request = {.type = AGENT_PUT, .size = 3 * CHUNK, .mode = 0640};

/* Fails the first write of a put, then the second of another, and so on, until a put succeeds.
 * Returns the number of puts that failed. */
static unsigned put_until_success(int error, const char *old, size_t old_len)
{
	struct file_request r = put_request;
	unsigned n = 0, failed = 0;
	char new[3 * CHUNK];
	bool broke;

	memset(new, 'n', sizeof(new));
	memset(peer.data, 'n', sizeof(peer.data));
	snprintf(r.path, sizeof(r.path), "%s", path);
	do {
		fail_write(++n, error);
		int result = work(serve_put, &r);
		broke = end_attempt(error, result);
		failed += result != 0;
		if (result)
			expect_file(old, old_len);
	} while (broke && failed == n);
	expect_file(new, sizeof(new));
	return failed;
}

static void test_put_survives_each_failed_write(void **state)
{
	static const int errors[] = {ENOSPC, EIO, 0};
	char old[3 * CHUNK];

	for (size_t i = 0; i < 3; i++) {
		unsigned failed = put_until_success(errors[i], "", 0);

		assert_int_equal(failed > 5, errors[i] != 0);
		memset(old, 'n', sizeof(old));
		failed = put_until_success(errors[i], old,
					   sizeof(old)); /* replaces the existing file */
		assert_int_equal(failed > 4, errors[i] != 0);
		assert_int_equal(remove(path), 0);
		*strrchr(path, '/') = 0;
		assert_int_equal(remove(path), 0);
		path[strlen(path)] = '/';
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_put_survives_each_failed_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
