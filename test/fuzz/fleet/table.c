// SPDX-License-Identifier: Apache-2.0
/* The text of hosts.json. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/fleet/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct fleet_table *t = NULL;
	struct err e = {0};

	memcpy(text, data, size);
	if (fleet_table_read(&t, text, size, &e) < 0) {
		must(e.text[0] && !t);
	} else {
		must(t->n && t->n <= FLEET_HOSTS_MAX && t->self);
		for (size_t i = 0; i < t->n; i++) {
			const struct fleet_host *h = &t->hosts[i];

			must(fleet_table_host(t, h->number) == h &&
			     fleet_table_named(t, h->name) == h && h->at_len);
		}
		free(t);
	}
	free(text);
	return 0;
}
