// SPDX-License-Identifier: Apache-2.0
/* The history of a sandbox: its bound, and which entries its present state comes from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/exec/history.h"

static void expect_text(const char *code, size_t len, const char *text)
{
	char out[HISTORY_TEXT_MAX + 1];

	memset(out, 'x', sizeof(out));
	history_text(out, code, len);
	assert_string_equal(out, text);
}

static void text_is_the_first_line(void **state)
{
	char line[100];

	expect_text("", 0, "");
	expect_text(" \n\t\n", 4, "");
	expect_text("\n  x = 1  \r\ny", 13, "x = 1  ");
	expect_text("abc", 2, "ab"); /* not beyond the length */
	memset(line, 'a', sizeof(line));
	memcpy(line + HISTORY_TEXT_MAX - 2, "\xe2\x82\xac", 3); /* one character */
	char cut[HISTORY_TEXT_MAX - 1] = "";
	memset(cut, 'a', sizeof(cut) - 1);
	expect_text(line, sizeof(line), cut);
}

static uint32_t add(struct history_log *h, enum history_kind kind, int64_t at_ms)
{
	const struct history_entry e = {.kind = (uint8_t)kind, .at_ms = at_ms};

	return history_add(h, &e, history_last(h))->n;
}

/* Expects the numbers of all entries, with a minus in front of those that are undone. */
static void expect(const struct history_log *h, const char *numbers)
{
	bool undone[HISTORY_MAX];
	char text[HISTORY_MAX * 12] = "";

	history_undone(h, undone);
	for (uint32_t i = 0; i < h->count; i++)
		sprintf(text + strlen(text), "%s%s%u", i ? " " : "", undone[i] ? "-" : "",
			h->entries[i].n);
	assert_string_equal(text, numbers);
}

static void oldest_entries_are_dropped_but_not_the_first(void **state)
{
	struct history_log h = {0};

	add(&h, HISTORY_CREATED, 7);
	for (int i = 0; i < 3 * HISTORY_MAX; i++)
		add(&h, HISTORY_CALL, i);
	assert_int_equal(h.count, HISTORY_MAX);
	assert_int_equal(h.entries[0].n, 1);
	assert_int_equal(h.entries[0].at_ms, 7);
	assert_int_equal(h.entries[1].n, 2 * HISTORY_MAX + 3);
	assert_int_equal(history_last(&h), 3 * HISTORY_MAX + 1);
	history_fini(&h);
}

#define ID "sbx_1"

/* Begins the history of a child of ID, which was forked after the entry `n`. */
static void begin_child(struct history_log *h, uint32_t n)
{
	history_add(h, &(struct history_entry){.kind = HISTORY_FORKED, .seq = n, .text = ID}, 0);
}

static void merge_continues_at_the_fork(void **state)
{
	const struct history_entry merge = {.kind = HISTORY_MERGE};
	struct history_log h = {0}, first = {0}, second = {0};

	add(&h, HISTORY_CREATED, 0);
	add(&h, HISTORY_CALL, 0);
	begin_child(&first, 2);
	add(&h, HISTORY_FORK, 0);
	add(&h, HISTORY_CALL, 0);
	begin_child(&second, 4);
	add(&h, HISTORY_FORK, 0);
	add(&first, HISTORY_CALL, 0);
	add(&first, HISTORY_CALL, 0);
	history_add(&first, &merge, 2); /* its second call is undone */
	assert_int_equal(history_join(&h, ID, &first, 0), 8);
	expect(&h, "1 2 3 -4 -5 6 -7 8");
	history_add(&h, &merge, history_join(&h, ID, &second, 0)); /* which did nothing */
	expect(&h, "1 2 3 4 5 -6 -7 -8 9");
	history_fini(&h);
	history_fini(&first);
	history_fini(&second);
}

static void merge_of_another_descendant_continues_at_its_time(void **state)
{
	const struct history_entry began = {
		.kind = HISTORY_FORKED, .began_ms = 25, .text = "sbx_2"};
	struct history_log h = {0}, winner = {0};

	for (int i = 1; i <= 4; i++)
		add(&h, i == 1 ? HISTORY_CREATED : HISTORY_CALL, 10 * i);
	history_add(&winner, &began, 0);
	add(&winner, HISTORY_CALL, 60);
	history_join(&h, ID, &winner, 0);
	expect(&h, "1 2 -3 -4 5");
	history_fini(&h);
	history_fini(&winner);
}

static void winner_that_was_rolled_back_continues_at_that_state(void **state)
{
	struct history_log h = {0}, winner = {0};

	add(&h, HISTORY_CREATED, 0);
	begin_child(&winner, 1);
	add(&h, HISTORY_CALL, 0);
	add(&h, HISTORY_CALL, 0);
	add(&winner, HISTORY_CALL, 0);
	history_add(&winner, &(struct history_entry){.kind = HISTORY_ROLLBACK}, 1);
	add(&winner, HISTORY_CALL, 0);
	history_join(&h, ID, &winner, 2);
	expect(&h, "1 2 -3 -4 5 6");
	history_fini(&h);
	history_fini(&winner);
}

static void line_of_checkpoints_is_preferred_to_the_time(void **state)
{
	const struct history_entry began = {
		.kind = HISTORY_FORKED, .began_ms = 45, .text = "sbx_2"};
	struct history_log h = {0}, winner = {0};

	add(&h, HISTORY_CREATED, 10);
	add(&h, HISTORY_CALL, 20);
	history_add(&h, &(struct history_entry){.kind = HISTORY_ROLLBACK, .at_ms = 40}, 1);
	history_add(&winner, &began, 0);
	add(&winner, HISTORY_CALL, 60);
	history_join(&h, ID, &winner, 2);
	expect(&h, "1 2 -3 4");
	history_fini(&h);
	history_fini(&winner);
}

static void winner_with_dropped_entries_joins(void **state)
{
	struct history_log h = {0}, winner = {0};
	bool undone[HISTORY_MAX];

	add(&h, HISTORY_CREATED, 0);
	add(&h, HISTORY_CALL, 0);
	begin_child(&winner, 2);
	for (int i = 0; i < HISTORY_MAX + 8; i++)
		add(&winner, HISTORY_CALL, 0);
	assert_int_equal(history_join(&h, ID, &winner, 0), 2 + HISTORY_MAX - 1);
	assert_int_equal(h.count, HISTORY_MAX);
	history_undone(&h, undone);
	for (uint32_t i = 0; i < h.count; i++)
		assert_false(undone[i]);
	history_fini(&h);
	history_fini(&winner);
}

static void checkpoint_is_noted_at_the_state_that_it_has(void **state)
{
	struct history_log h = {0};

	assert_int_equal(history_same(&h, 0), 0);
	assert_null(history_keep(&h, 0, "ckp_0"));
	add(&h, HISTORY_CREATED, 0);
	add(&h, HISTORY_CALL, 0);
	add(&h, HISTORY_FORK, 0); /* the state of the call */
	add(&h, HISTORY_CALL, 0);
	assert_int_equal(history_same(&h, 2), 3);
	assert_int_equal(history_same(&h, 4), 4);
	assert_int_equal(history_same(&h, 5), 0);
	assert_ptr_equal(history_keep(&h, 3, "ckp_1"), &h.entries[2]);
	assert_null(history_keep(&h, 3, "ckp_2"));
	assert_null(history_keep(&h, 5, "ckp_2"));
	assert_int_equal(history_find(&h, "ckp_1"), 3);
	history_add(&h, &(struct history_entry){.kind = HISTORY_ROLLBACK},
		    history_find(&h, "ckp_1"));
	expect(&h, "1 2 3 -4 5");
	history_fini(&h);
}

static void invalid_entries_are_not_read(void **state)
{
	const struct history_entry bad[] = {{.n = 4},
					    {.n = 6, .after = 6},
					    {.n = 0},
					    {.n = 6, .kind = HISTORY_NKINDS},
					    {.n = 6, .result = HISTORY_NRESULTS}};
	struct history_log h = {0};

	assert_false(history_read(&h, &bad[2]));
	assert_true(history_read(&h, &(struct history_entry){.n = 5}));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(history_read(&h, &bad[i]));
	assert_true(history_read(&h, &(struct history_entry){.n = 5, .seq = 7}));
	assert_int_equal(h.count, 1);
	assert_int_equal(h.entries[0].seq, 7);
	history_fini(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_is_the_first_line),
		cmocka_unit_test(oldest_entries_are_dropped_but_not_the_first),
		cmocka_unit_test(merge_continues_at_the_fork),
		cmocka_unit_test(merge_of_another_descendant_continues_at_its_time),
		cmocka_unit_test(winner_that_was_rolled_back_continues_at_that_state),
		cmocka_unit_test(line_of_checkpoints_is_preferred_to_the_time),
		cmocka_unit_test(winner_with_dropped_entries_joins),
		cmocka_unit_test(checkpoint_is_noted_at_the_state_that_it_has),
		cmocka_unit_test(invalid_entries_are_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
