// SPDX-License-Identifier: Apache-2.0
/* The values of the keys of two hosts, or of the orders for them, with a NUL between them: what
 * others wrote into etcd. The table that comes of it must be one that the service reads. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "orchestrator/etcd/view.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static struct card self_card(void)
{
	struct card self = {
		.fleet = "f00d",
		.instance = "0123456789abcdef0123456789abcdef",
		.host = {.number = 17, .name = "h17", .address = "10.0.0.17:7443"},
	};

	return self;
}

static void take(struct view *v, const char *key, const uint8_t *value, size_t len)
{
	const struct etcd_pair pair = {
		.key = key, .value = (const char *)value, .value_len = len, .revision = 1};

	view_take(v, &pair, true, 1000);
}

static void check_table(const struct view *v)
{
	struct fleet_table *t;
	struct text text = {0};
	struct err e;

	view_hosts(v, &text);
	must(fleet_table_read(&t, text.p, text.len, &e) == 0);
	must(t->self->number == 17 && t->n <= 3);
	free(t);
	text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = memchr(data, 0, size);
	size_t len = nul ? (size_t)(nul - data) : size;
	const struct card self = self_card();
	struct view *v = view_new(&self, 3);

	log_init("fuzz", LOG_ERROR + 1);
	view_list_begin(v);
	take(v, "/ramet/3/hosts/18", data, len);
	view_list_end(v, 1000);
	check_table(v);
	take(v, "/ramet/3/hosts/17", data, len);
	take(v, "/ramet/3/orders/18", data, len);
	if (nul) {
		take(v, "/ramet/3/hosts/19", nul + 1, size - len - 1);
		take(v, "/ramet/3/orders/17", nul + 1, size - len - 1);
	}
	check_table(v);
	view_free(v);
	return 0;
}
