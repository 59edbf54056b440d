// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/sandbox/part.h"

#include "orchestrator/sandbox/tenant.h"

static size_t place(size_t *end, size_t size)
{
	const size_t unit = _Alignof(max_align_t);
	size_t at = (*end + unit - 1) / unit * unit;

	*end = at + size;
	return at;
}

void parts_place(struct part *const *parts, struct part_sizes *out)
{
	*out = (struct part_sizes){sizeof(struct service), sizeof(struct tenant),
				   sizeof(struct sandbox)};
	for (; *parts; parts++) {
		struct part *p = *parts;

		p->service_at = place(&out->service, p->service_size);
		p->tenant_at = place(&out->tenant, p->tenant_size);
		p->sandbox_at = place(&out->sandbox, p->sandbox_size);
	}
}
