// SPDX-License-Identifier: Apache-2.0
/* Pages of a list that changes meanwhile: an entry that exists throughout is returned once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/sandbox/roster.h"

#define MANY   400
#define ROUNDS 300

struct entry {
	struct listed listed;
	bool in, all_along;
	unsigned seen;
};

static unsigned seed;

static unsigned draw(unsigned below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

/* Makes an entry. Several get the same time, as the children of a fork do. */
static void make(struct entry *e, unsigned number)
{
	*e = (struct entry){.listed = {.place = {.at_ms = 1000 + number / 7}}};
	snprintf(e->listed.place.id, sizeof(e->listed.place.id), "sbx_%032x", number * 2654435761u);
}

static void flip(struct roster *r, struct entry *e)
{
	if (e->in)
		roster_remove(r, &e->listed);
	else
		roster_add(r, &e->listed);
	e->in = !e->in;
}

static void check_order(const struct roster *r, const struct entry *all)
{
	size_t n = 0;

	for (size_t i = 0; i < MANY; i++)
		n += all[i].in;
	assert_int_equal(r->n, n);
	for (size_t i = 1; i < r->n; i++)
		assert_true(list_position_compare(&r->all[i - 1]->place, &r->all[i]->place) < 0);
}

/* Reads a page, as the service does; returns false after the last page. */
static bool read_page(struct roster *r, struct list_position *after, size_t most)
{
	size_t at = roster_after(r, after);

	for (; at < r->n && most; at++, most--) {
		((struct entry *)r->all[at])->seen++;
		*after = r->all[at]->place;
	}
	return at < r->n;
}

static void read_while_it_changes(struct roster *r, struct entry *all)
{
	struct list_position after = {0};
	bool more = true;

	for (size_t i = 0; i < MANY; i++) {
		all[i].all_along = all[i].in;
		all[i].seen = 0;
	}
	while (more) {
		more = read_page(r, &after, 1 + draw(9));
		for (unsigned i = draw(12); i; i--) {
			struct entry *e = &all[draw(MANY)];

			flip(r, e);
			e->all_along = false;
		}
	}
	for (size_t i = 0; i < MANY; i++) {
		assert_true(all[i].seen <= 1);
		assert_int_equal(all[i].all_along && !all[i].seen, 0);
	}
}

static void test_list_that_changes_is_read_without_gaps(void **state)
{
	struct entry *all = calloc(MANY, sizeof(*all));
	struct roster r = {0};

	for (unsigned i = 0; i < MANY; i++)
		make(&all[i], i);
	for (seed = 1; seed < ROUNDS;) {
		unsigned next = seed + 1;

		for (unsigned i = draw(MANY); i; i--)
			flip(&r, &all[draw(MANY)]);
		check_order(&r, all);
		read_while_it_changes(&r, all);
		seed = next;
	}
	roster_fini(&r);
	free(all);
}

static void test_empty_roster_takes_no_memory(void **state)
{
	struct roster r = {0};
	struct entry e;

	make(&e, 1);
	assert_int_equal(roster_after(&r, &e.listed.place), 0);
	roster_add(&r, &e.listed);
	assert_int_equal(roster_after(&r, &(struct list_position){0}), 0);
	assert_int_equal(roster_after(&r, &e.listed.place), 1);
	roster_remove(&r, &e.listed);
	assert_null(r.all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_list_that_changes_is_read_without_gaps),
		cmocka_unit_test(test_empty_roster_takes_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
