// SPDX-License-Identifier: Apache-2.0
/* The text of an answer of etcd, read as each kind of answer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/etcd/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static void on_pair(void *arg, const struct etcd_pair *p)
{
	must(p->key[0] && strlen(p->key) <= ETCD_KEY_MAX && p->revision > 0 && p->lease >= 0);
	must(p->deleted ? !p->value : p->value && p->value_len <= ETCD_VALUE_MAX);
	++*(size_t *)arg;
}

/* An answer that is refused has a sentence, and nothing of it was used. */
static void check(int ret, size_t pairs, const struct err *e)
{
	if (ret < 0)
		must(ret == -EPROTO && e->code == ret && e->text[0] && !pairs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), version[ETCD_VERSION_MAX + 1];
	struct etcd_range range;
	struct etcd_lease lease;
	struct etcd_change change;
	struct err e;
	size_t n = 0;
	bool done;

	memset(&e, 0xff, sizeof(e)); /* what a caller has not set is not read */
	memcpy(text, data, size);
	check(etcd_range_read(&range, text, size, on_pair, &n, &e), n, &e);
	n = 0;
	check(etcd_put_read(&done, text, size, on_pair, &n, &e), n, &e);
	n = 0;
	check(etcd_watch_read(&change, text, size, on_pair, &n, &e), n, &e);
	check(etcd_grant_read(&lease, text, size, &e), 0, &e);
	check(etcd_keepalive_read(&lease, text, size, &e), 0, &e);
	if (etcd_version_read(version, text, size, &e) == 0)
		etcd_version_advice(version);
	must(etcd_failure_read(500, text, size, &e) < 0 && e.text[0]);
	free(text);
	return 0;
}
