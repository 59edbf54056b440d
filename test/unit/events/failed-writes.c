// SPDX-License-Identifier: Apache-2.0
/* Each write to the audit log's files fails in turn. Every line must be there once, in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/events/audit.h"
#include "orchestrator/events/files.h"
#include "test/unit/writes/failing-writes.h"

#define FILES 6
#define LINES 24

static const int errors[] = {ENOSPC, EIO, 0};
static char dir[64];

static int setup(void **state)
{
	log_init("test", LOG_ERROR + 1);
	snprintf(dir, sizeof(dir), "/tmp/ramet-audit-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return type == FTW_D || type == FTW_DP ? 0 : remove(path);
}

static void empty(void)
{
	assert_int_equal(nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static int teardown(void **state)
{
	empty();
	return rmdir(dir);
}

static void break_write(unsigned n, int error)
{
	if (error)
		writes_fail(dir, n, error);
	else
		writes_are_short(dir, n);
}

/* Checks that the lines' numbers grow by one, from 1 in the oldest file. Returns the number of
 * files. */
static unsigned expect_lines(unsigned lines, unsigned torn)
{
	char path[128], text[4096], *end;
	unsigned files = 0, bad = 0;
	struct audit_line line;
	uint64_t n = 0;

	for (int age = FILES; age >= 0; age--) {
		snprintf(path, sizeof(path), age ? "%s/" AUDIT_FILE ".%d" : "%s/" AUDIT_FILE, dir,
			 age);
		FILE *f = fopen(path, "r");
		if (!f)
			continue;
		files++;
		while (fgets(text, sizeof(text), f)) {
			end = strchr(text, '\n');
			assert_non_null(end);
			if (audit_line_parse(&line, text, (size_t)(end - text)))
				assert_int_equal(line.n, ++n);
			else
				bad++;
		}
		fclose(f);
	}
	assert_int_equal(n, lines);
	assert_in_range(bad, 0, torn);
	return files;
}

/* Retries a failed write from the byte where it stopped, as the audit log does. Returns the number
 * of failures. */
static unsigned append(struct audit_files *j, const char *p, size_t len)
{
	unsigned failed = 0;
	struct err e = {0};
	size_t done, at = 0;

	for (; audit_files_append(j, p + at, len - at, at == 0, &done, &e) < 0; failed++) {
		assert_string_not_equal(e.text, "");
		at += done;
	}
	while (audit_files_sync(j, &e) < 0)
		failed++;
	return failed;
}

static unsigned write_all(unsigned n, int error, bool *broke)
{
	const struct audit_event event = {.name = "sandbox.died", .at_ms = 1795298467007};
	scoped_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct audit_files j = {.dir = fd, .fd = -1, .max_bytes = 500, .files = FILES};
	char lines[2 * AUDIT_LINE_MAX];
	unsigned failed = 0;

	break_write(n, error);
	for (unsigned i = 1; i <= LINES; i += 2) {
		size_t len = audit_line_new(lines, i, &event);

		len += audit_line_new(lines + len, i + 1, &event);
		failed += append(&j, lines, len);
	}
	*broke = writes_end();
	audit_files_close(&j);
	return failed;
}

static void files_have_every_line_after_any_failed_write(void **state)
{
	for (size_t i = 0; i < 3; i++) {
		unsigned n = 0, failed = 0;
		bool broke;

		do {
			unsigned times = write_all(++n, errors[i], &broke);

			assert_int_equal(times, broke && errors[i]);
			failed += times;
			assert_int_equal(expect_lines(LINES, 0), FILES);
			empty();
		} while (broke);
		assert_int_equal(failed > 40, errors[i] != 0);
	}
}

/* --- the log -------------------------------------------------------------------------------- */

struct service {
	struct config config;
	struct loop *loop;
	struct audit *audit;
	int ring;
};

static void start(struct service *s)
{
	struct err e;

	if (loop_new(&s->loop, &e) < 0 ||
	    audit_new(&s->audit, s->loop, &s->config, s->ring, &e) < 0)
		fail_msg("%s", e.text);
}

static void stop(struct service *s)
{
	audit_stop(s->audit);
	loop_free(s->loop);
	audit_free(s->audit);
}

/* Runs three instances in turn; the `n`th write of the second one fails. Returns false when it has
 * fewer writes. */
static bool log_lines(unsigned n, int error)
{
	const struct audit_event event = {.name = "sandbox.died", .at_ms = 1795298467007};
	struct service s = {.config = {.audit_max_mib = 1, .audit_files = 3},
			    .ring = memfd_create("ring", MFD_CLOEXEC)};

	snprintf(s.config.audit_dir, sizeof(s.config.audit_dir), "%s", dir);
	assert_int_equal(ftruncate(s.ring, AUDIT_RING_BYTES), 0);
	start(&s);
	audit_add(s.audit, &event);
	stop(&s);
	break_write(n, error);
	start(&s);
	for (int i = 0; i < 3; i++)
		audit_add(s.audit, &event);
	stop(&s);
	bool broke = writes_end();
	start(&s);
	audit_add(s.audit, &event);
	stop(&s);
	close(s.ring);
	return broke;
}

static void log_has_every_line_after_any_failed_write(void **state)
{
	for (size_t i = 0; i < 3; i++) {
		unsigned n = 0;

		while (log_lines(++n, errors[i])) {
			expect_lines(5, 1);
			empty();
		}
		expect_lines(5, 0);
		empty();
		assert_in_range(n, errors[i] ? 5 : 2, 20);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(files_have_every_line_after_any_failed_write),
		TEST(log_has_every_line_after_any_failed_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
