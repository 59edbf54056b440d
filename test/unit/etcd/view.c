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

#include "base/fd.h"
#include "orchestrator/etcd/settings.h"
#include "orchestrator/etcd/view.h"
#include "orchestrator/fleet/id.h"

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

static void order(struct view *v, uint32_t number, const char *text)
{
	char key[64];

	snprintf(key, sizeof(key), "/ramet/3/orders/%u", number);
	const struct etcd_pair pair = {.key = key,
				       .value = text,
				       .value_len = text ? strlen(text) : 0,
				       .deleted = !text,
				       .revision = 3};
	view_take(v, &pair, true, NOW);
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

#define ORDER(kind)	"{\"format\":1,\"order\":\"" kind "\",\"at\":5}"
#define DRAIN_UNTIL(at) "{\"format\":1,\"order\":\"drain\",\"at\":5,\"deadline\":" at "}"

static void expect_drain(const struct view *v, uint32_t number, bool draining, int64_t deadline)
{
	struct fleet_table *t = table(v);
	const struct fleet_host *h = fleet_table_host(t, number);

	assert_non_null(h);
	assert_int_equal(h->draining, draining);
	assert_int_equal(h->deadline, deadline);
	free(t);
}

/* The service and the next ramet-fleet read no longer file. */
static void longest_table_can_be_read(void **state)
{
	struct view *v = view_new(&self, 3);
	struct fleet_host *h;
	struct text text = {0};
	struct card card = {.fleet = "f00d", .host = {.has_cert = true}};

	h = &card.host;
	memset(card.instance, '0', sizeof(card.instance) - 1);
	memset(h->region, 'r', FLEET_NAME_MAX);
	memset(h->zone, 'z', FLEET_NAME_MAX);
	memset(h->version, 'v', FLEET_NAME_MAX);
	memset(h->name, 'n', FLEET_NAME_MAX);
	snprintf(h->address, sizeof(h->address), "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535");
	h->draining = true;
	h->seen = 1ll << 53;
	for (uint32_t i = 1; i < FLEET_HOSTS_MAX; i++) {
		char key[64], number[16];

		h->number = FLEET_NUMBER_MAX - i;
		memcpy(h->name, number, (size_t)snprintf(number, sizeof(number), "%u", h->number));
		snprintf(key, sizeof(key), "/ramet/3/hosts/%u", h->number);
		text.len = 0;
		card_write(&text, &card);
		const struct etcd_pair pair = {
			.key = key, .value = text.p, .value_len = text.len, .revision = 1};
		view_take(v, &pair, false, NOW);
		if (i % 2)
			take_away(v, h->number, 1ll << 53);
	}
	text.len = 0;
	view_hosts(v, &text);
	assert_in_range(text.len, FLEET_HOSTS_MAX * 500, FLEET_TABLE_BYTES);
	text_free(&text);
	struct fleet_table *t = table(v);
	assert_int_equal(t->n, FLEET_HOSTS_MAX);
	free(t);
	view_free(v);
}

static void orders_are_in_the_table(void **state)
{
	static const char *const damaged[] = {"", "garbage", ORDER("dance"),
					      "{\"format\":2,\"order\":\"drain\",\"at\":5}"};
	struct view *v = view_new(&self, 3), *next = view_new(&self, 3);
	struct text text = {0};

	order(v, 18, DRAIN_UNTIL("77"));
	order(v, 17, ORDER("drain"));
	put(v, 18); /* whatever came first */
	expect_drain(v, 18, true, 77);
	expect_drain(v, 17, true, 0);
	for (size_t i = 0; i < ARRAY_LEN(damaged); i++)
		order(v, 18, damaged[i]);
	expect_drain(v, 18, true, 77);
	take_away(v, 18, NOW);
	view_hosts(v, &text);
	assert_true(view_load(next, text.p, text.len));
	for (uint32_t number = 17; number < 19; number++)
		expect_drain(next, number, true, number == 18 ? 77 : 0);
	order(next, 17, ORDER("serve"));
	order(next, 18, NULL);
	expect_drain(next, 17, false, 0);
	expect_drain(next, 18, false, 0);
	view_list_begin(v); /* without them */
	view_list_end(v, NOW);
	expect_drain(v, 17, false, 0);
	text_free(&text);
	view_free(v);
	view_free(next);
}

static void forgotten_hosts_are_in_no_table(void **state)
{
	struct view *v = view_new(&self, 3);

	put(v, 18);
	put(v, 19);
	order(v, 18, ORDER("forget"));
	expect(v, 3, 18, 0); /* it lives */
	take_away(v, 19, NOW);
	order(v, 19, ORDER("forget"));
	expect(v, 2, 18, 0);
	view_list_begin(v);
	order(v, 18, ORDER("forget"));
	view_list_end(v, NOW);
	expect(v, 1, 17, 0);
	put(v, 18);
	expect(v, 2, 18, 0);
	assert_int_equal(view_order(v, 18).kind, ORDER_FORGET);
	view_free(v);
}

static void hosts_are_found_by_name_and_number(void **state)
{
	struct view *v = view_new(&self, 3);

	put(v, 18);
	put_as(v, 19, "18", "00000000000000000000000000000001");
	assert_int_equal(view_find(v, "h18")->number, 18);
	assert_int_equal(view_find(v, "18")->number, 19); /* a name is preferred */
	assert_int_equal(view_find(v, "19")->number, 19);
	assert_int_equal(view_find(v, "h17")->number, 17);
	assert_int_equal(view_find(v, "17")->number, 17);
	assert_null(view_find(v, "20"));
	assert_null(view_find(v, "h20"));
	assert_null(view_find(v, ""));
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
		cmocka_unit_test(longest_table_can_be_read),
		cmocka_unit_test(orders_are_in_the_table),
		cmocka_unit_test(forgotten_hosts_are_in_no_table),
		cmocka_unit_test(hosts_are_found_by_name_and_number),
		cmocka_unit_test(settings_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
