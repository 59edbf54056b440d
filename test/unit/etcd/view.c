// SPDX-License-Identifier: Apache-2.0
/* The table of hosts that comes of the cards in etcd. What is said of bad cards is tested with a
 * real etcd (test/etcd). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "orchestrator/etcd/settings.h"
#include "orchestrator/etcd/view.h"

#define NOW 1764400000

static const struct card self = {
	.fleet = "f00d",
	.instance = "0123456789abcdef0123456789abcdef",
	.host = {.number = 17, .name = "h17", .address = "10.0.0.17:7443", .seen = NOW},
};

static void put_as(struct view *v, uint32_t number, const char *name, const char *instance)
{
	struct card card = {.fleet = "f00d", .host = {.number = number, .seen = NOW}};
	struct text text = {0};
	char key[64];

	snprintf(card.instance, sizeof(card.instance), "%s", instance);
	snprintf(card.host.name, sizeof(card.host.name), "%s", name);
	snprintf(card.host.address, sizeof(card.host.address), "10.0.0.1:%u", 1 + number % 60000);
	snprintf(key, sizeof(key), "/ramet/3/hosts/%u", number);
	card_write(&text, &card);
	const struct etcd_pair pair = {
		.key = key, .value = text.p, .value_len = text.len, .revision = 1};
	view_take(v, &pair, true, NOW);
	text_free(&text);
}

static void put(struct view *v, uint32_t number)
{
	char name[16];

	snprintf(name, sizeof(name), "h%u", number);
	put_as(v, number, name, "00000000000000000000000000000001");
}

static void take_away(struct view *v, uint32_t number, int64_t now)
{
	char key[64];

	snprintf(key, sizeof(key), "/ramet/3/hosts/%u", number);
	const struct etcd_pair pair = {.key = key, .deleted = true, .revision = 2};
	view_take(v, &pair, true, now);
}

/* Returns the table as the service reads it. */
static struct fleet_table *table(const struct view *v)
{
	struct fleet_table *t;
	struct text text = {0};
	struct err e;

	view_hosts(v, &text);
	if (fleet_table_read(&t, text.p, text.len, &e) < 0)
		fail_msg("%s", e.text);
	text_free(&text);
	assert_int_equal(t->cell, 3);
	assert_string_equal(t->fleet, "f00d");
	assert_int_equal(t->self->number, 17);
	return t;
}

static void expect(const struct view *v, size_t n, uint32_t number, int64_t gone)
{
	struct fleet_table *t = table(v);
	const struct fleet_host *h = fleet_table_host(t, number);

	assert_int_equal(t->n, n);
	assert_non_null(h);
	assert_int_equal(h->gone, gone);
	free(t);
}

static void hosts_come_and_go(void **state)
{
	struct view *v = view_new(&self, 3);

	put(v, 18);
	put(v, 5);
	expect(v, 3, 5, 0);
	take_away(v, 5, NOW + 1);
	expect(v, 3, 5, NOW + 1);
	put(v, 5);
	expect(v, 3, 5, 0);
	take_away(v, 99, NOW);
	expect(v, 3, 18, 0);
	view_free(v);
}

static void list_shows_who_is_gone(void **state)
{
	struct view *v = view_new(&self, 3);

	put(v, 18);
	put(v, 19);
	view_list_begin(v);
	put(v, 19);
	view_list_end(v, NOW + 7);
	expect(v, 3, 18, NOW + 7);
	expect(v, 3, 19, 0);
	view_list_begin(v);
	put(v, 19);
	view_list_end(v, NOW + 7 + VIEW_GONE_KEEP_S);
	expect(v, 3, 18, NOW + 7);
	view_list_begin(v);
	put(v, 19);
	view_list_end(v, NOW + 8 + VIEW_GONE_KEEP_S);
	expect(v, 2, 19, 0);
	view_free(v);
}

static void own_card_is_looked_after(void **state)
{
	struct view *v = view_new(&self, 3);

	put_as(v, 17, "h17", self.instance);
	assert_false(view_self_lost(v));
	put_as(v, 17, "h17", "00000000000000000000000000000001");
	assert_true(view_self_lost(v));
	assert_false(view_self_lost(v));
	take_away(v, 17, NOW);
	assert_true(view_self_lost(v));
	view_list_begin(v);
	view_list_end(v, NOW);
	assert_true(view_self_lost(v));
	expect(v, 1, 17, 0);
	view_free(v);
}

static void earlier_table_is_taken_over(void **state)
{
	struct view *v = view_new(&self, 3), *next = view_new(&self, 3);
	struct view *other = view_new(&self, 4);
	struct text text = {0};

	put(v, 18);
	put(v, 19);
	take_away(v, 19, NOW);
	view_hosts(v, &text);
	assert_true(view_load(next, text.p, text.len));
	expect(next, 3, 18, 0);
	expect(next, 3, 19, NOW);
	assert_false(view_load(other, text.p, text.len));
	assert_false(view_load(next, text.p, text.len - 3));
	text_free(&text);
	view_free(v);
	view_free(next);
	view_free(other);
}

static void name_of_a_gone_host_is_free(void **state)
{
	struct view *v = view_new(&self, 3);

	put_as(v, 18, "box", "00000000000000000000000000000001");
	put_as(v, 19, "box", "00000000000000000000000000000002");
	expect(v, 2, 18, 0);
	take_away(v, 18, NOW);
	put_as(v, 19, "box", "00000000000000000000000000000002");
	expect(v, 2, 19, 0);
	view_free(v);
}

static void full_table_forgets_who_is_gone_longest(void **state)
{
	struct view *v = view_new(&self, 3);

	for (uint32_t n = 100; n < 100 + FLEET_HOSTS_MAX - 1; n++)
		put(v, n);
	put(v, 50);
	expect(v, FLEET_HOSTS_MAX, 100, 0);
	take_away(v, 101, NOW + 1);
	take_away(v, 102, NOW);
	put(v, 50);
	expect(v, FLEET_HOSTS_MAX, 50, 0);
	expect(v, FLEET_HOSTS_MAX, 101, NOW + 1);
	view_free(v);
}

static void settings_are_read(void **state)
{
	const char text[] =
		"{\"format\":1,\"fleet\":\"f00d\",\"cell\":3,\"host\":17,\"name\":\"h17\","
		"\"instance\":\"0123456789abcdef0123456789abcdef\",\"address\":\"10.0.0.17:7443\","
		"\"region\":\"fsn\",\"etcd\":[\"https://a:1\",\"https://b:2\"]}";
	struct fleet_settings s;
	struct err e;

	assert_int_equal(fleet_settings_read(&s, text, strlen(text), &e), 0);
	assert_int_equal(s.cell, 3);
	assert_string_equal(s.self.host.region, "fsn");
	assert_string_equal(s.etcd[1], "https://b:2");
	assert_null(s.etcd[2]);
	fleet_settings_free(&s);
	assert_true(fleet_settings_read(&s, "{}", 2, &e) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hosts_come_and_go),
		cmocka_unit_test(list_shows_who_is_gone),
		cmocka_unit_test(own_card_is_looked_after),
		cmocka_unit_test(earlier_table_is_taken_over),
		cmocka_unit_test(name_of_a_gone_host_is_free),
		cmocka_unit_test(full_table_forgets_who_is_gone_longest),
		cmocka_unit_test(settings_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
