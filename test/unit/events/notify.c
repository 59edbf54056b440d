// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/events/cursor.h"
#include "orchestrator/events/files.h"
#include "orchestrator/events/rules.h"
#include "orchestrator/events/sign.h"
#include "orchestrator/events/tail.h"
#include "test/remove_tree.h"

/* --- rules ---------------------------------------------------------------------------------- */

static void rules_select_events(void **state)
{
	assert_true(rules_want("sandbox.*", "sandbox.frozen"));
	assert_false(rules_want("sandbox.*", "key.made"));
	assert_true(rules_want("*", "key.made"));
	assert_true(rules_want("key.made, sandbox.died", "sandbox.died"));
	assert_true(rules_want("key.made,sandbox.died", "key.made"));
	assert_false(rules_want("sandbox.die", "sandbox.died"));
	assert_false(rules_want("sandbox.died2", "sandbox.died"));
	assert_false(rules_want(" , ,", "sandbox.died"));
	assert_false(rules_want("", "sandbox.died"));
}

static void waits_double_up_to_five_minutes(void **state)
{
	static const uint32_t most[] = {1000,  2000,   4000,   8000,   16000, 32000,
					64000, 128000, 256000, 300000, 300000};

	for (unsigned i = 0; i < ARRAY_LEN(most); i++) {
		assert_int_equal(rules_wait_ms(i + 1, 0), most[i] / 2);
		assert_int_equal(rules_wait_ms(i + 1, most[i] / 2), most[i]);
		for (uint32_t chance = 1; chance; chance <<= 1)
			assert_in_range(rules_wait_ms(i + 1, chance), most[i] / 2, most[i]);
	}
	assert_int_equal(rules_wait_ms(1000000, 0), 150000);
}

/* --- the signature -------------------------------------------------------------------------- */

static void signature_matches_other_implementations(void **state)
{
	char text[SIGNATURE_MAX];

	/* Python: hmac.new(b"0123456789abcdef", b'1700000000.{"n":1}', "sha256").hexdigest() */
	sign(text, "0123456789abcdef", 1700000000, "{\"n\":1}", 7);
	assert_string_equal(
		text,
		"t=1700000000,v1=d9a22bdcfdab07f3be7c84c30003fdc81a4c25420850e983eb235d7e17846231");
}

/* --- the cursor ----------------------------------------------------------------------------- */

struct world {
	char dir[64];
	int fd;
	struct audit_files journal;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	snprintf(w->dir, sizeof(w->dir), "/tmp/ramet-notify-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->fd = open(w->dir, O_RDONLY | O_DIRECTORY);
	w->journal = (struct audit_files){.dir = w->fd, .fd = -1, .max_bytes = 1 << 20, .files = 4};
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	audit_files_close(&w->journal);
	close(w->fd);
	remove_tree(w->dir);
	free(w);
	return 0;
}

static void cursor_is_saved_and_loaded(void **state)
{
	struct world *w = *state;
	static const uint64_t numbers[] = {0, 1, 42, UINT64_MAX};
	struct err e;
	uint64_t n;

	assert_int_equal(cursor_load(w->fd, &n, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		assert_int_equal(cursor_save(w->fd, numbers[i], &e), 0);
		assert_int_equal(cursor_load(w->fd, &n, &e), 1);
		assert_int_equal(n, numbers[i]);
	}
}

static void damaged_cursor_is_an_error(void **state)
{
	struct world *w = *state;
	char text[CURSOR_TEXT_MAX];
	size_t len = cursor_print(text, 1234567);
	struct err e;
	uint64_t n;

	assert_true(cursor_parse(text, len, &n));
	for (size_t cut = 0; cut < len; cut++)
		assert_false(cursor_parse(text, cut, &n));
	for (size_t at = 0; at < len; at++) {
		text[at] ^= 1;
		assert_false(cursor_parse(text, len, &n));
		text[at] ^= 1;
	}
	int fd = openat(w->fd, "cursor", O_WRONLY | O_CREAT, 0600);
	assert_int_equal(write(fd, text, len - 3), len - 3);
	close(fd);
	assert_true(cursor_load(w->fd, &n, &e) < 0);
}

/* --- the tail ------------------------------------------------------------------------------- */

static void append(struct world *w, const char *p, size_t len)
{
	size_t done;
	struct err e;

	if (audit_files_append(&w->journal, p, len, true, &done, &e) < 0)
		fail_msg("%s", e.text);
}

static void write_lines(struct world *w, uint64_t from, uint64_t to)
{
	const struct audit_event event = {
		.name = "sandbox.died", .at_ms = 1795298467007, .text = "for some reason"};
	char line[AUDIT_LINE_MAX];

	for (; from <= to; from++)
		append(w, line,
		       audit_line_make(line, from, "evt_0123456789abcdef0123456789abcdef", &event));
}

/* Reads all lines, which must be in order; returns their number. */
static unsigned read_lines(struct tail *t)
{
	struct audit_line head;
	const char *line;
	size_t len;
	unsigned count = 0;

	for (uint64_t before = 0; tail_next(t, &head, &line, &len); before = head.n, count++) {
		assert_true(head.n > before);
		assert_int_equal(line[0], '{');
		assert_int_equal(line[len - 1], '}');
	}
	return count;
}

static void lines_are_read_as_they_are_written(void **state)
{
	struct world *w = *state;
	struct tail t;

	tail_init(&t, w->fd, 1);
	assert_int_equal(read_lines(&t), 0);
	write_lines(w, 1, 10);
	assert_int_equal(read_lines(&t), 10);
	assert_int_equal(read_lines(&t), 0);
	append(w, "{\"n\":11,", 8); /* half a line */
	assert_int_equal(read_lines(&t), 0);
	append(w, "\n", 1); /* ends the line that a killed service left torn */
	write_lines(w, 11, 12);
	assert_int_equal(read_lines(&t), 2);
	assert_int_equal(t.gone, 0);
	tail_fini(&t);
	/* Starts in the middle. */
	tail_init(&t, w->fd, 8);
	assert_int_equal(read_lines(&t), 5);
	assert_int_equal(t.gone, 0);
	tail_fini(&t);
}

static void rotated_files_are_read_to_their_end(void **state)
{
	struct world *w = *state;
	struct tail at_once, later, late;
	unsigned seen = 0;

	w->journal.max_bytes = 4000; /* some 25 lines */
	tail_init(&at_once, w->fd, 1);
	tail_init(&later, w->fd, 1);
	tail_init(&late, w->fd, 1);
	for (uint64_t n = 1; n <= 60; n++) {
		write_lines(w, n, n);
		seen += read_lines(&at_once);
		assert_int_equal(seen, n);
	}
	assert_int_equal(read_lines(&later), 60);
	assert_int_equal(read_lines(&later), 0);
	write_lines(w, 61, 1000);
	assert_int_equal(read_lines(&at_once) + at_once.gone, 940);
	assert_int_equal(read_lines(&later) + later.gone, 940);
	/* Lines in removed files are counted. */
	unsigned rest = read_lines(&late);
	assert_in_range(rest, 50, 110);
	assert_int_equal(rest + late.gone, 1000);
	assert_int_equal(at_once.next, 1001);
	tail_fini(&at_once);
	tail_fini(&later);
	tail_fini(&late);
}

static void empty_file_after_full_ones_is_waited_for(void **state)
{
	struct world *w = *state;
	struct tail t;

	write_lines(w, 1, 5);
	tail_init(&t, w->fd, 1);
	assert_int_equal(read_lines(&t), 5);
	assert_int_equal(renameat(w->fd, AUDIT_FILE, w->fd, AUDIT_FILE ".1"), 0);
	assert_int_equal(read_lines(&t), 0); /* the current file is missing */
	write_lines(w, 6, 6);		     /* to the renamed file */
	assert_int_equal(read_lines(&t), 1);
	audit_files_close(&w->journal);
	close(openat(w->fd, AUDIT_FILE, O_WRONLY | O_CREAT, 0600));
	assert_int_equal(read_lines(&t), 0);
	write_lines(w, 7, 9);
	assert_int_equal(read_lines(&t), 3);
	assert_int_equal(t.gone, 0);
	tail_fini(&t);
}

static void invalid_lines_are_skipped(void **state)
{
	struct world *w = *state;
	char junk[6 * AUDIT_LINE_MAX];
	struct tail t;

	memset(junk, 'x', sizeof(junk));
	append(w, junk, 100);
	append(w, "\n\n\n", 3);
	write_lines(w, 1, 2);
	append(w, junk, sizeof(junk)); /* longer than the buffer */
	append(w, "{\"n\":3,\n", 8);
	write_lines(w, 3, 4);
	tail_init(&t, w->fd, 0);
	assert_int_equal(read_lines(&t), 4);
	assert_int_equal(t.gone, 0);
	tail_fini(&t);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_select_events),
		cmocka_unit_test(waits_double_up_to_five_minutes),
		cmocka_unit_test(signature_matches_other_implementations),
		TEST(cursor_is_saved_and_loaded),
		TEST(damaged_cursor_is_an_error),
		TEST(lines_are_read_as_they_are_written),
		TEST(rotated_files_are_read_to_their_end),
		TEST(empty_file_after_full_ones_is_waited_for),
		TEST(invalid_lines_are_skipped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
