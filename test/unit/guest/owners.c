// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/files/owners.h"
#include "proto/agent.h"

static char path[] = "/tmp/ramet-owners-XXXXXX";
static struct owners owners;

static void forget(void)
{
	free(owners.list);
	free(owners.text);
	owners = (struct owners){0};
}

static void read_text(const char *text, size_t len)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	fclose(f);
	forget();
	owners_read(&owners, path);
}

static void is_named(uint32_t id, const char *name)
{
	assert_string_equal(owners_name(&owners, id), name);
}

static void test_names_are_found(void **state)
{
	static const char text[] = "root:x:0:0:root:/root:/bin/bash\nlow:x:1:\nhigh:*:4294967294\n"
				   "b:x:1000:1000::/:\na:x:1000:1000::/:\nlast:x:7:7";

	read_text(text, strlen(text));
	is_named(0, "root");
	is_named(1, "low");
	is_named(7, "last");
	is_named(1000, "b"); /* the first line */
	is_named(4294967294, "high");
	is_named(2, "");
	is_named(UINT32_MAX, "");
}

static void test_invalid_lines_are_ignored(void **state)
{
	char text[2048];
	int len = snprintf(text, sizeof(text),
			   "\n:\n::1:\na\nb:x\nc:x:\nd:x:-1:\ne:x:1x:\nf:x: 1:\ng:x:4294967296:\n"
			   ":x:2:\nh:x:99999999999999999999999:\n%0*d:x:3:\ngood:x:4:\n",
			   AGENT_OWNER_MAX + 1, 7);

	read_text(text, (size_t)len);
	assert_int_equal(owners.count, 1);
	is_named(4, "good");
	read_text("zero\0byte:x:5:\n", 15);
	is_named(5, "");
}

static void test_files_are_read_to_a_limit(void **state)
{
	char *text = malloc(2 * OWNERS_FILE_MAX);
	const size_t line = 8;

	for (size_t at = 0; at < 2 * OWNERS_FILE_MAX; at += line)
		memcpy(text + at, "ab:x:9:\n", line);
	memcpy(text + OWNERS_FILE_MAX - line, "in:x:10\n", line);
	memcpy(text + OWNERS_FILE_MAX, "no:x:11\n", line);
	read_text(text, 2 * OWNERS_FILE_MAX);
	is_named(10, "in");
	is_named(11, "");
	memset(text, 'x', 2 * OWNERS_FILE_MAX); /* one endless line */
	read_text(text, 2 * OWNERS_FILE_MAX);
	assert_int_equal(owners.count, 0);
	free(text);
}

static void test_other_files_have_no_names(void **state)
{
	static const char *const others[] = {"/dev/zero", "/tmp", "/nonexistent/passwd"};
	char fifo[64];

	for (size_t i = 0; i < 3; i++) {
		forget();
		owners_read(&owners, others[i]);
		assert_int_equal(owners.count, 0);
	}
	snprintf(fifo, sizeof(fifo), "%s-fifo", path);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	owners_read(&owners, fifo); /* does not wait for a writer */
	is_named(0, "");
	unlink(fifo);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_are_found),
		cmocka_unit_test(test_invalid_lines_are_ignored),
		cmocka_unit_test(test_files_are_read_to_a_limit),
		cmocka_unit_test(test_other_files_have_no_names),
	};

	int fd = mkstemp(path);
	if (fd < 0)
		return 1;
	close(fd);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	forget();
	unlink(path);
	return failed;
}
