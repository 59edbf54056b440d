// SPDX-License-Identifier: Apache-2.0
/* Chooses the size of a sandbox, and formats failures. */
#include <stdarg.h>
#include <stdio.h>

#include "base/num.h"
#include "orchestrator/core/internal.h"

#define DISK_AHEAD (2ull << 30) /* reserved for sandboxes, not for images made ahead */

/* Returns whether the requested size is possible: a disk must hold the template's root file
 * system. */
static bool is_possible(const struct source *from, const struct sandbox_spec *spec,
			struct failure *f)
{
	uint32_t asked = spec->rootfs_gb;
	uint32_t least = asked && asked < from->rootfs_gb ? from->least_gb : 0;

	if (spec->ram_mib && spec->ram_mib < RAM_MIN_MIB)
		failure_set(f, 400, "out_of_range", 0, "ram_mib is %u, the minimum is %d",
			    spec->ram_mib, RAM_MIN_MIB);
	else if (asked < least)
		failure_set(f, 400, "out_of_range", 0,
			    "rootfs_gb is %u, the minimum that holds the template is %u", asked,
			    least);
	else
		return true;
	return false;
}

bool size_choose(const struct source *from, const struct sandbox_spec *spec,
		 const struct size *most, struct sized_choice *out, struct failure *f)
{
	const struct size asked = {spec->vcpus, spec->ram_mib, spec->rootfs_gb};
	struct size own = source_size(from), host = size_host();
	struct size limit = size_limit(&host, &own, most);

	if (!is_possible(from, spec, f))
		return false;
	out->size = size_exact(&asked, &own, &limit);
	out->image = size_image(&out->size, &own);
	return true;
}

struct vmproc_spec size_blank_spec(const struct core *c)
{
	struct size host = size_host(), most = *template_size(c->def);
	struct sizes sizes;

	sizes_ahead(&sizes, &c->config, template_size(c->def), &host);
	for (size_t i = 0; i < sizes.n; i++)
		most.ram_mib = max_u32(most.ram_mib, sizes.all[i].ram_mib);
	if (config_sizes_auto(&c->config))
		most.ram_mib = max_u32(most.ram_mib, host.ram_mib);
	return size_vm_spec(&most, false);
}

/* Uses the last measurement, which is that of the start at first. */
bool host_disk_low(const struct core *c)
{
	uint64_t bytes = c->watched.disk_free_bytes;

	return bytes && bytes < DISK_AHEAD;
}

void failure_set(struct failure *f, int status, const char *code, unsigned retry_after,
		 const char *format, ...)
{
	va_list args;

	f->status = status;
	f->code = code;
	f->retry_after = retry_after;
	va_start(args, format);
	vsnprintf(f->text, sizeof(f->text), format, args);
	va_end(args);
}

void failure_not_found(struct failure *f, const char *id)
{
	failure_set(f, 404, "not_found", 0, "there is no sandbox %.40s", id);
}
