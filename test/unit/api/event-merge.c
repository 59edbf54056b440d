// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/api/event-merge.h"
#include "orchestrator/events/line.h"

#define ID "evt_00112233445566778899aabbccddeeff"

/* A host's log: the times of the events with the numbers 1, 2, … */
struct host {
	uint32_t number;
	size_t n;
	int64_t at_ms[8];
};

/* Makes the line of an event, whose text is its host and number. */
static size_t make(char line[static AUDIT_LINE_MAX], uint32_t host, uint64_t n)
{
	char text[40];
	const struct audit_event event = {"sandbox.died", .at_ms = 1, .text = text};

	snprintf(text, sizeof(text), "%u.%" PRIu64, host, n);
	return audit_line_make(line, n, ID, &event) - 1;
}

/* Writes up to `most` of the host's events behind the merge's position, as a host does. Returns
 * whether the host has more. */
static bool give(struct text *out, const struct host *h, const struct event_merge *m, size_t most)
{
	const struct event_position from = event_merge_from(m, h->number);
	const bool back = m->newest_first;
	char line[AUDIT_LINE_MAX];

	for (size_t i = 0; i < h->n; i++) {
		const size_t n = back ? h->n - i : i + 1;
		const int64_t at_ms = h->at_ms[n - 1];
		const bool by_n = back ? n < from.n : n > from.n;
		const bool by_time = back ? at_ms < from.at_ms : at_ms > from.at_ms;

		if (!(from.n ? by_n : by_time))
			continue;
		if (!most--)
			return true;
		const struct logged_event event = {n, at_ms, line, make(line, h->number, n)};
		event_part_write(out, &event);
	}
	return false;
}

/* Adds "HOST.N " of each line. */
static void add_names(char *names, struct text *lines)
{
	const char *at;

	text_putc(lines, '\0');
	for (at = lines->p; (at = strstr(at, "\"text\":\"")); at++) {
		at += strlen("\"text\":\"");
		sprintf(names + strlen(names), "%.*s ", (int)strcspn(at, "\""), at);
	}
}

/* Returns the names of all events of both hosts, read in pages of `limit` events. */
static const char *merged(const struct host hosts[2], bool newest_first, size_t limit, size_t most)
{
	static char names[1000];
	struct event_merge m = {.newest_first = newest_first};
	bool more = true;

	names[0] = '\0';
	while (more) {
		struct text page = {0};

		m.left = limit;
		for (size_t i = 0; i < 2; i++) {
			struct text part = {0};
			const bool has_more = give(&part, &hosts[i], &m, most);

			assert_true(event_merge_take(&m, hosts[i].number, part.len ? part.p : "",
						     part.len, has_more));
			text_free(&part);
		}
		const size_t n = event_merge_write(&m, &page, &more);
		assert_true(n <= limit && (n || !more));
		add_names(names, &page);
		text_free(&page);
	}
	return names;
}

static void events_are_in_the_order_of_time(void **state)
{
	static const struct host hosts[] = {{7, 5, {5, 5, 5, 6, 7}}, {9, 4, {5, 5, 7, 7}}};

	for (size_t limit = 1; limit < 12; limit++)
		for (size_t most = 1; most < 6; most++) {
			assert_string_equal(merged(hosts, false, limit, most),
					    "7.1 7.2 7.3 9.1 9.2 7.4 7.5 9.3 9.4 ");
			assert_string_equal(merged(hosts, true, limit, most),
					    "9.4 9.3 7.5 7.4 9.2 9.1 7.3 7.2 7.1 ");
		}
}

static void host_without_events_is_no_hindrance(void **state)
{
	static const struct host hosts[] = {{7, 0, {0}}, {9, 2, {1, INT64_MAX - 2}}};

	assert_string_equal(merged(hosts, false, 1, 1), "9.1 9.2 ");
	assert_string_equal(merged(hosts, true, 1, 1), "9.2 9.1 ");
}

static size_t count_lines(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += text[i] == '\n';
	return n;
}

/* Returns whether the merge takes the part, beside one of another host. It must write all lines
 * that it has taken, and no others. */
static bool takes(const char *part, size_t len, bool newest_first)
{
	static const struct host other = {6, 1, {1}};
	struct event_merge m = {.newest_first = newest_first, .left = 10};
	struct text given = {0}, out = {0};
	bool more;

	give(&given, &other, &m, 1);
	assert_true(event_merge_take(&m, other.number, given.p, given.len, false));
	const bool taken = event_merge_take(&m, 7, part, len, false);
	const size_t n = event_merge_write(&m, &out, &more);
	assert_int_equal(n, 1 + (taken ? count_lines(part, len) : 0));
	assert_int_equal(count_lines(out.p, out.len), n);
	assert_false(more);
	text_free(&given);
	text_free(&out);
	return taken;
}

/* Returns "TIME LINE\n" with a valid line. */
static const char *part_line(const char *time, uint64_t n)
{
	static char lines[2][AUDIT_LINE_MAX + 50];
	static unsigned turn;
	char line[AUDIT_LINE_MAX];
	char *out = lines[turn++ % 2];
	const size_t len = make(line, 7, n);

	snprintf(out, sizeof(lines[0]), "%s %.*s\n", time, (int)len, line);
	return out;
}

static bool takes_line(const char *time, uint64_t n)
{
	const char *part = part_line(time, n);

	return takes(part, strlen(part), false);
}

static bool takes_two(const char *one, unsigned n, const char *other, unsigned m)
{
	char part[3 * AUDIT_LINE_MAX];

	snprintf(part, sizeof(part), "%s%s", part_line(one, n), part_line(other, m));
	const bool taken = takes(part, strlen(part), false);
	/* Newest first, the same events come the other way round. */
	snprintf(part, sizeof(part), "%s%s", part_line(other, m), part_line(one, n));
	assert_int_equal(takes(part, strlen(part), true), taken);
	return taken;
}

static void malformed_parts_are_refused(void **state)
{
	static const char *const bad[] = {"\n",	    "no\n",  "1\n",    "1 \n",
					  "1 {}\n", "1 1\n", " 1 {}\n"};
	const char *good = part_line("5", 1);

	assert_true(takes("", 0, false));
	assert_true(takes(good, strlen(good), false));
	assert_false(takes(good, strlen(good) - 1, false)); /* without the newline */
	assert_false(takes(strchr(good, ' ') + 1, strlen(good) - 2, false));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(takes(bad[i], strlen(bad[i]), false));
	assert_true(takes_line("9223372036854775805", 1));
	assert_false(takes_line("9223372036854775806", 1));
	assert_true(takes_line("5", 9223372036854775807u));
	assert_false(takes_line("5", 9223372036854775808u));
	assert_false(takes_line("99999999999999999999", 1));
	assert_false(takes_line("0", 1));
	assert_false(takes_line("-5", 1));
	assert_false(takes_line("5 ", 1));
	assert_false(takes_line("5", 0));
}

static void parts_that_are_not_in_order_are_refused(void **state)
{
	assert_true(takes_two("5", 1, "5", 2));
	assert_true(takes_two("5", 1, "6", 9));
	assert_false(takes_two("5", 2, "5", 1));
	assert_false(takes_two("5", 2, "5", 2));
	assert_false(takes_two("6", 1, "5", 2));
}

/* Returns whether the merge takes a line of this size, which ends with `end`. */
static bool takes_size(size_t size, const char *end)
{
	const size_t time = strlen("5 ");
	struct text part = {0};

	text_puts(&part, part_line("5", 1));
	part.len -= strlen("}\n");
	text_puts(&part, ",\"x\":\"");
	while (part.len < time + size - strlen(end))
		text_putc(&part, 'x');
	text_puts(&part, end);
	text_putc(&part, '\n');
	const bool taken = takes(part.p, part.len, false);
	text_free(&part);
	return taken;
}

static void line_must_be_json_of_the_right_size(void **state)
{
	assert_true(takes_size(AUDIT_LINE_MAX - 1, "\"}"));
	assert_false(takes_size(AUDIT_LINE_MAX, "\"}"));
	assert_false(takes_size(1000, "\",\"y\":nan}"));
}

/* Returns the numbers of all own events, which are too many for a part. */
static const char *cut(bool newest_first)
{
	static char names[1000];
	struct event_merge m = {.newest_first = newest_first};
	char line[AUDIT_LINE_MAX + 1];
	bool more = true;

	names[0] = '\0';
	while (more) {
		struct event_part p = event_part_begin(&m, 7);
		struct text page = {0};

		m.left = 1000;
		for (size_t i = 1; i <= 100; i++) {
			const size_t n = newest_first ? 101 - i : i;
			/* Spaces make every other line long. */
			size_t len = make(line, 7, n);
			const size_t pad = n % 2 ? 3900 - len : 0;

			if (m.is_begun && (newest_first ? n >= m.after.n : n <= m.after.n))
				continue;
			memset(line + len, ' ', pad);
			event_part_add(&m, &p,
				       &(struct logged_event){n, (int64_t)n, line, len + pad});
		}
		assert_false(p.bad);
		assert_true(p.bytes <= EVENTS_PART_SIZE);
		event_part_end(&m, &p);
		event_merge_write(&m, &page, &more);
		add_names(names, &page);
		text_free(&page);
	}
	return names;
}

static void part_that_is_cut_by_bytes_loses_no_event(void **state)
{
	char all[1000] = "", back[1000] = "";

	for (int n = 1; n <= 100; n++) {
		sprintf(all + strlen(all), "7.%d ", n);
		sprintf(back + strlen(back), "7.%d ", 101 - n);
	}
	assert_string_equal(cut(false), all);
	assert_string_equal(cut(true), back);
}

static void event_that_is_not_the_next_one_leaves_no_complete_part(void **state)
{
	struct event_merge m = {.left = 10, .is_begun = true, .after = {5, 7, 3}};
	struct event_part p = event_part_begin(&m, 7);
	char line[AUDIT_LINE_MAX];
	const size_t len = make(line, 7, 4);

	event_part_add(&m, &p, &(struct logged_event){4, 4, line, len});
	assert_true(p.bad && p.more);
	event_part_add(&m, &p, &(struct logged_event){5, 6, line, len});
	assert_int_equal(p.n, 0);
	event_merge_drop(&m);
}

static void host_that_has_more_gives_something(void **state)
{
	struct event_merge m = {.left = 10};

	assert_false(event_merge_take(&m, 7, "", 0, true));
	event_merge_drop(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_are_in_the_order_of_time),
		cmocka_unit_test(host_without_events_is_no_hindrance),
		cmocka_unit_test(malformed_parts_are_refused),
		cmocka_unit_test(parts_that_are_not_in_order_are_refused),
		cmocka_unit_test(line_must_be_json_of_the_right_size),
		cmocka_unit_test(part_that_is_cut_by_bytes_loses_no_event),
		cmocka_unit_test(event_that_is_not_the_next_one_leaves_no_complete_part),
		cmocka_unit_test(host_that_has_more_gives_something),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
