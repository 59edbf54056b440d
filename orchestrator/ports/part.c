// SPDX-License-Identifier: Apache-2.0
/* The part of ports/ (sandbox/part.h): its hooks for events of a sandbox. */
#include <stdlib.h>

#include "orchestrator/ports/internal.h"
#include "orchestrator/sandbox/context.h"

static void sandbox_init(struct sandbox *s)
{
	list_init(&ports_of(s)->tunnels);
}

void ports_start(struct core *c)
{
	list_init(&ports_of_core(c)->visits);
}

static void shed(struct sandbox *s)
{
	tunnels_free(s);
	free(ports_of(s)->shares);
	ports_of(s)->shares = NULL;
	ports_of(s)->n_shares = 0;
}

static void loaded(struct sandbox *s, const struct store_sandbox *row)
{
	if (row->ports)
		shares_read(ports_of(s), row->ports);
}

struct part ports_part = {
	.core_size = sizeof(struct ports_core),
	.tenant_size = sizeof(struct ports_tenant),
	.sandbox_size = sizeof(struct ports_sandbox),
	.sandbox_init = sandbox_init,
	.loaded = loaded,
	.fail_calls = tunnels_fail,
	.shed = shed,
};
