// SPDX-License-Identifier: Apache-2.0
/* The part of ports/ (sandbox/part.h): its hooks for events of a sandbox. */
#include <stdlib.h>

#include "orchestrator/ports/internal.h"
#include "orchestrator/sandbox/service.h"

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
	.service_size = sizeof(struct ports_service),
	.tenant_size = sizeof(struct ports_tenant),
	.sandbox_size = sizeof(struct ports_sandbox),
	.loaded = loaded,
	.fail_ops = tunnels_fail,
	.shed = shed,
};
