// SPDX-License-Identifier: Apache-2.0
/* Lists need no initialization: zeroed memory is an empty list, and a node that is in none. */
#include "base/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct item {
	struct list node;
	int number;
};

static int first_of(const struct list *l)
{
	return container_of(list_next(l), struct item, node)->number;
}

static void zeroed_list_is_empty(void **state)
{
	struct list l = {0}, other = {0};
	unsigned n = 0;

	assert_true(list_empty(&l));
	assert_ptr_equal(list_next(&l), &l);
	assert_int_equal(list_count(&l), 0);
	list_each (pos, &l)
		n++;
	list_each_safe (pos, &l)
		n++;
	assert_int_equal(n, 0);
	list_move_all(&other, &l);
	assert_true(list_empty(&other));
}

static void zeroed_node_is_in_no_list(void **state)
{
	struct item item = {0};

	assert_true(list_empty(&item.node));
	list_del(&item.node);
	assert_true(list_empty(&item.node));
}

static void nodes_are_in_the_order_of_their_addition(void **state)
{
	struct item items[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
	struct list l = {0}, other = {0};
	int sum = 0;

	for (int i = 0; i < 3; i++)
		list_add_tail(&l, &items[i].node);
	list_each (pos, &l)
		sum = 10 * sum + container_of(pos, struct item, node)->number;
	assert_int_equal(sum, 123);
	list_del(&items[0].node);
	assert_true(list_empty(&items[0].node));
	assert_int_equal(first_of(&l), 2);
	list_add_tail(&other, &items[0].node);
	list_move_all(&other, &l);
	assert_true(list_empty(&l));
	assert_int_equal(list_count(&other), 3);
	assert_int_equal(first_of(&other), 1);
}

static void node_can_be_removed_while_the_list_is_walked(void **state)
{
	struct item items[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
	struct list l = {0};

	for (int i = 0; i < 3; i++)
		list_add_tail(&l, &items[i].node);
	list_each_safe (pos, &l)
		list_del(pos);
	assert_true(list_empty(&l));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(zeroed_list_is_empty),
		cmocka_unit_test(zeroed_node_is_in_no_list),
		cmocka_unit_test(nodes_are_in_the_order_of_their_addition),
		cmocka_unit_test(node_can_be_removed_while_the_list_is_walked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
