// SPDX-License-Identifier: Apache-2.0
/* The table of hosts, and which of them a request is for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/random.h"
#include "orchestrator/fleet/id.h"
#include "orchestrator/fleet/table.h"

#define HEAD "{\"format\":1,\"fleet\":\"f00d\",\"cell\":3,\"self\":17,\"hosts\":["
#define H17  "{\"host\":17,\"name\":\"h17\",\"address\":\"10.0.0.17:7443\"}"
#define H18                                                                                        \
	"{\"host\":18,\"name\":\"h18\",\"address\":\"[fd00::18]:7443\",\"region\":\"fsn\","        \
	"\"zone\":\"a\","                                                                          \
	"\"state\":\"draining\",\"version\":\"0.1.0\",\"seen\":1764400000,\"gone\":1764400030,"    \
	"\"cert_sha256\":\"" CERT "\"}"
#define CERT  "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define TABLE HEAD H18 "," H17 "]}"

static struct fleet_table *read_good(const char *text)
{
	struct fleet_table *t;
	struct err e = {0};

	if (fleet_table_read(&t, text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
	return t;
}

static void hosts_are_found(void **state)
{
	struct fleet_table *t = read_good(TABLE);
	const struct fleet_host *h = fleet_table_host(t, 18);

	assert_int_equal(t->n, 2);
	assert_string_equal(t->fleet, "f00d");
	assert_int_equal(t->cell, 3);
	assert_string_equal(t->self->name, "h17");
	assert_false(t->self->draining || t->self->has_cert || t->self->gone);
	assert_ptr_equal(fleet_table_named(t, "h18"), h);
	assert_string_equal(h->region, "fsn");
	assert_string_equal(h->zone, "a");
	assert_string_equal(h->version, "0.1.0");
	assert_int_equal(h->at.ss_family, AF_INET6);
	assert_int_equal(h->seen, 1764400000);
	assert_int_equal(h->gone, 1764400030);
	assert_true(h->draining && h->has_cert);
	assert_int_equal(h->cert[31], 0xff);
	assert_null(fleet_table_host(t, 19));
	assert_null(fleet_table_named(t, "h1"));
	free(t);
}

static void damaged_tables_are_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{"", "missing"},
		{"{}", "missing"},
		{HEAD H17, "JSON"},
		{HEAD H18 "]}", "self is host 17"},
		{HEAD H17 "," H17 "]}", "two hosts have the number 17"},
		{HEAD H17 ",{\"host\":5,\"name\":\"h17\",\"address\":\"10.0.0.5:1\"}]}",
		 "hosts 5 and 17 have the same name"},
		{HEAD "[]]}", "array of objects"},
		{HEAD "{\"host\":1048576,\"name\":\"a\",\"address\":\"10.0.0.5:1\"}]}", "1048575"},
		{HEAD "{\"host\":17,\"name\":\"a b\",\"address\":\"10.0.0.5:1\"}]}",
		 "host 17: name"},
		{HEAD "{\"host\":17,\"name\":\"\",\"address\":\"10.0.0.5:1\"}]}",
		 "host 17: name must have 1 to 63 bytes, not 0"},
		{HEAD "{\"host\":17,\"name\":\"a\",\"address\":\"example.com:1\"}]}",
		 "host 17: address"},
		{HEAD "{\"host\":17,\"name\":\"a\",\"address\":\"10.0.0.5\"}]}",
		 "host 17: address"},
		{HEAD "{\"host\":17,\"name\":\"a\",\"address\":\"10.0.0.5:1\",\"state\":\"up\"}]}",
		 "host 17: state must be \"ready\" or \"draining\", not \"up\""},
		{HEAD "{\"host\":17,\"name\":\"a\",\"address\":\"10.0.0.5:1\",\"cert_sha256\":"
		      "\"12\"}]}",
		 "cert_sha256"},
		{HEAD "{\"host\":17,\"name\":\"a\",\"address\":\"10.0.0.5:1\",\"cert_sha256\":"
		      "\"x0112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"}]}",
		 "cert_sha256"},
		{"{\"format\":2,\"fleet\":\"f\",\"cell\":3,\"self\":17,\"hosts\":[" H17 "]}",
		 "reads up to 1"},
		{"{\"format\":1,\"fleet\":\"f\",\"cell\":4096,\"self\":17,\"hosts\":[" H17 "]}",
		 "4095"},
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct fleet_table *t;
		struct err e = {0};

		assert_true(fleet_table_read(&t, bad[i].text, strlen(bad[i].text), &e) < 0);
		if (!strstr(e.text, bad[i].why))
			fail_msg("%s: %s", bad[i].text, e.text);
	}
}

/* --- routes --------------------------------------------------------------------------------- */

static const struct fleet_keys keys = {.n = 1, .key = {{7}}};

static bool is_elsewhere(const struct fleet_table *t, uint32_t cell, uint32_t host,
			 const struct fleet_host **peer)
{
	uint8_t id[FLEET_ID_BYTES];
	char text[FLEET_ID_TEXT + 1] = "sbx_";

	random_bytes(id, sizeof(id));
	fleet_id_hide(&keys, (struct fleet_place){cell, host}, id);
	for (size_t i = 0; i < sizeof(id); i++)
		sprintf(text + 4 + 2 * i, "%02x", id[i]);
	return fleet_is_elsewhere(t, &keys, text, strlen(text), peer);
}

static void requests_go_to_the_host_that_made_the_id(void **state)
{
	struct fleet_table *t = read_good(TABLE);
	const struct fleet_host *peer;

	assert_false(is_elsewhere(t, 3, 17, &peer));
	assert_false(is_elsewhere(t, 4, 18, &peer)); /* of another cell */
	assert_true(is_elsewhere(t, 3, 19, &peer));
	assert_null(peer);
	assert_true(is_elsewhere(t, 3, 18, &peer));
	assert_string_equal(peer->name, "h18");
	free(t);
}

static void host_is_lost_ten_minutes_after_it_is_gone(void **state)
{
	struct fleet_table *t = read_good(TABLE);
	const struct fleet_host *gone = fleet_table_host(t, 18);

	assert_false(fleet_is_lost(gone, 1764400030));
	assert_false(fleet_is_lost(gone, 1764400030 + 599));
	assert_true(fleet_is_lost(gone, 1764400030 + 600));
	assert_false(fleet_is_lost(t->self, 1764400030 + 600));
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hosts_are_found),
		cmocka_unit_test(damaged_tables_are_refused),
		cmocka_unit_test(requests_go_to_the_host_that_made_the_id),
		cmocka_unit_test(host_is_lost_ten_minutes_after_it_is_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
