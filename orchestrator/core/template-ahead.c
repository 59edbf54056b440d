// SPDX-License-Identifier: Apache-2.0
/*
 * What is prepared before anybody asks for it, and what there is to tell of all templates. Ahead
 * means: one at a time, and only while nobody has wanted anything for a while.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/core/template-internal.h"

#define QUIET_MS   3000 /* nobody wanted anything for so long */
#define SIZES_SEEN (2 * SIZES_MAX)

/* --- ahead ---------------------------------------------------------------------------------- */

static bool is_quiet(const struct core *c)
{
	if (c->closing || c->building || c->n_forking || !list_empty(&c->creates) ||
	    !list_empty(&c->vms.waiting) || c->vms.in_use >= c->vms.max_vms)
		return false;
	return pool_is_full(c) && !host_memory_low() && !host_disk_low(&c->config);
}

static void on_prepared(void *arg, const struct failure *f)
{
	struct core *c = arg;
	struct template *t = c->ahead;

	c->ahead = NULL;
	if (!f)
		pool_keep(c, t);
	template_put(t);
	pool_check(c); /* the next one, when it is quiet */
}

/* One that failed waits until it is asked for. */
static bool start(struct core *c, const struct source *from, const struct size *size)
{
	struct template *t = template_find(c, from->name, size);

	if (t && t->state == TPL_READY)
		pool_keep(c, t); /* it may have been asked for first */
	if (t && t->state != TPL_NEW)
		return false;
	c->ahead = template_get(c, from, size);
	if (!c->ahead)
		return false;
	c->ahead->ahead = true;
	template_wait(c->ahead, &c->ahead_wait, on_prepared, c);
	return true;
}

static bool start_one_of(struct core *c, const char *name)
{
	struct size host = size_host();
	struct sizes sizes;
	struct source from;
	struct err e;

	if (source_find(&c->config, name, &from, &e) < 0)
		return false;
	sizes_of(&sizes, &c->config, &from, &host);
	for (size_t i = 0; i < sizes.ahead; i++)
		if (sizes.all[i].ram_mib <= host.ram_mib && start(c, &from, &sizes.all[i]))
			return true;
	return false;
}

static bool start_named(struct core *c)
{
	char **names = source_names(&c->config);
	bool started = false;

	for (char **name = names; name && *name && !started; name++)
		started = start_one_of(c, *name);
	source_names_free(names);
	return started;
}

uint64_t templates_ahead(struct core *c)
{
	uint64_t now = loop_now_ms(c->loop);

	if (c->ahead || !is_quiet(c))
		return 0;
	if (now < c->busy_ms + QUIET_MS)
		return c->busy_ms + QUIET_MS - now;
	if (!start_named(c))
		start_one_of(c, TEMPLATE_DEFAULT);
	return 0;
}

/* --- what there is -------------------------------------------------------------------------- */

static const char *state_name(const struct template *t)
{
	if (!t || t->state == TPL_NEW)
		return "waiting";
	if (t->state == TPL_READY)
		return "ready";
	return t->state == TPL_FAILED ? "failed" : "building";
}

static size_t list_sizes(struct core *c, const char *name, struct template_size out[SIZES_SEEN])
{
	size_t n = 0;

	list_each (pos, &c->templates) {
		const struct template *t = container_of(pos, struct template, link);

		if (n < SIZES_SEEN && t->state == TPL_READY && !strcmp(t->source.name, name))
			out[n++] = (struct template_size){t->size.vcpus, t->size.ram_mib,
							  t->size.rootfs_gb};
	}
	return n;
}

static void tell(struct core *c, const char *name,
		 void (*each)(void *arg, const struct template_view *view), void *arg)
{
	struct template_size sizes[SIZES_SEEN];
	struct template_view view;
	struct source from;
	struct err e;
	int ret = source_find(&c->config, name, &from, &e);

	if (ret == -ENOENT)
		return; /* removed just now */
	struct size own = source_size(&from);
	const struct template *t = template_find(c, name, &own);
	const char *trouble = t && t->why ? t->why : t ? template_trouble(t) : "";
	view = (struct template_view){.name = name,
				      .description = from.description,
				      .state = ret < 0 ? "failed" : state_name(t),
				      .why = ret < 0 ? e.text : trouble,
				      .vcpus = from.vcpus,
				      .ram_mib = from.ram_mib,
				      .rootfs_gb = from.rootfs_gb,
				      .sizes = sizes,
				      .n_sizes = list_sizes(c, name, sizes)};
	each(arg, &view);
}

void core_templates(struct core *c, void (*each)(void *arg, const struct template_view *view),
		    void *arg)
{
	char **names = source_names(&c->config);

	tell(c, TEMPLATE_DEFAULT, each, arg);
	for (char **name = names; name && *name; name++)
		tell(c, *name, each, arg);
	source_names_free(names);
}
