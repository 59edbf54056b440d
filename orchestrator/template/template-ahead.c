// SPDX-License-Identifier: Apache-2.0
/*
 * Prepares images ahead of need: chooses which and when. Also implements the list of templates.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "orchestrator/template/template-internal.h"

#define CALM_MS	   3000 /* the core is calm after so long without activity */
#define SIZES_SEEN 64

/* --- when ------------------------------------------------------------------------------------ */

/* Returns the ms until the core is calm, if nothing happens; 0: it is calm. */
static uint64_t calm_in_ms(const struct core *c)
{
	uint64_t since_ms = loop_now_ms(c->loop) - c->busy_ms;

	if (c->n_requests || c->stats.operations)
		return CALM_MS;
	return since_ms < CALM_MS ? CALM_MS - since_ms : 0;
}

bool core_is_calm(const struct core *c)
{
	return calm_in_ms(c) == 0;
}

void core_touch(struct core *c)
{
	c->busy_ms = loop_now_ms(c->loop);
	if (c->closing)
		return;
	templates_hold(c);
	pool_yield_background(c);
}

/* Returns true when no more important work is pending and the host has resources to spare. */
static bool is_idle(const struct core *c)
{
	return !c->building && c->vms.in_use < c->vms.max_vms && pool_is_full(c) &&
	       !host_memory_low() && !host_disk_low(c);
}

/* --- what ------------------------------------------------------------------------------------ */

static void on_prepared(void *arg, const struct failure *f)
{
	struct core *c = arg;
	struct template *t = c->ahead;

	c->ahead = NULL;
	template_put(t);
	pool_check(c); /* makes its warm sandboxes, then the next image */
}

/* Returns true when an image of `more` bytes may be added to those prepared ahead. A configured
 * list of sizes has no limit. */
static bool has_room(const struct core *c, uint64_t more)
{
	uint64_t bytes = 0;
	size_t images = 0;

	if (!config_sizes_auto(&c->config))
		return true;
	list_each (pos, &c->templates) {
		const struct template *t = container_of(pos, struct template, link);

		if ((t->ahead || t == c->def) && t->state == TPL_READY) {
			images++;
			bytes += t->bytes;
		}
	}
	return sizes_have_room(images, bytes, more);
}

/* Starts preparing an image. Returns true when it was started. A failed template waits for a
 * request. */
static bool start(struct core *c, const struct source *from, const struct size *image)
{
	struct template *t = template_find(c, from->name, image);

	if ((t && t->state != TPL_NEW) || image->ram_mib > size_host().ram_mib ||
	    !has_room(c, size_image_bytes(image)))
		return false;
	c->ahead = template_get(c, from, image);
	if (!c->ahead)
		return false;
	c->ahead->ahead = true;
	template_wait(c->ahead, &c->ahead_wait, on_prepared, c);
	return true;
}

/* Prepares a size: first its image, then its warm sandboxes. Returns true when it started the
 * image. */
static bool prepare(struct core *c, const struct source *from, const struct size *size)
{
	struct size own = source_size(from), image = size_image(size, &own);
	struct template *t = template_find(c, from->name, &image);

	if (!t || t->state != TPL_READY)
		return start(c, from, &image);
	t->ahead = t->ahead || has_room(c, t->bytes); /* a request may have created it first */
	if (t->ahead)
		pool_keep(c, t, size->rootfs_gb);
	return false;
}

static bool prepare_templates(struct core *c)
{
	/* Skip the default template, all[0]: its sizes come last. */
	for (size_t i = 1; i < c->sources->n; i++) {
		const struct known_source *known = &c->sources->all[i];

		if (known->ret < 0)
			continue;
		struct size own = source_size(&known->source);
		if (prepare(c, &known->source, &own))
			return true;
	}
	return false;
}

static bool is_within(const struct size *size, const struct size *limit)
{
	return size->vcpus <= limit->vcpus && size->ram_mib <= limit->ram_mib &&
	       size->rootfs_gb <= limit->rootfs_gb;
}

/* Prepares an image for a size requested in a previous instance; the pool treats the size as
 * requested again. */
static bool prepare_recent(struct core *c, struct recent *r)
{
	const struct size size = {r->vcpus, r->ram_mib, r->rootfs_gb};
	struct size host = size_host();
	const struct known_source *known = sources_find(c->sources, r->template);

	if (r->expected || !known || known->ret < 0)
		return false;
	const struct source *from = &known->source;
	struct size own = source_size(from), image = size_image(&size, &own);
	struct size limit = size_limit(&host, &own, &SIZE_NO_LIMIT);
	struct template *t = template_find(c, from->name, &image);
	if (!is_within(&size, &limit))
		return false;
	if (!t || t->state != TPL_READY)
		return start(c, from, &image);
	r->expected = true;
	pool_expect(c, t, size.rootfs_gb);
	return false;
}

static bool prepare_recents(struct core *c)
{
	for (size_t i = 0; config_sizes_auto(&c->config) && i < c->recents.n; i++)
		if (prepare_recent(c, &c->recents.all[i]))
			return true;
	return false;
}

static bool prepare_sizes(struct core *c)
{
	struct size host = size_host();
	struct sizes sizes;

	sizes_ahead(&sizes, &c->config, template_size(c->def), &host);
	for (size_t i = 0; i < sizes.n; i++)
		if (prepare(c, &c->def->source, &sizes.all[i]))
			return true;
	return false;
}

uint64_t templates_ahead(struct core *c)
{
	uint64_t calm_ms = calm_in_ms(c);

	if (c->closing)
		return 0;
	templates_hold(c);
	if (calm_ms)
		return calm_ms;
	template_next_build(c);
	if (!c->ahead && is_idle(c) && !prepare_templates(c) && !prepare_recents(c))
		prepare_sizes(c);
	return 0;
}

size_t templates_ahead_count(const struct core *c)
{
	struct size host = size_host();
	struct sizes sizes;

	sizes_ahead(&sizes, &c->config, template_size(c->def), &host);
	return config_sizes_auto(&c->config) ? AHEAD_IMAGES_MAX : sizes.n + c->sources->n;
}

/* --- the list of templates -------------------------------------------------------------------- */

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

static void notify(struct core *c, const struct known_source *known,
		   void (*each)(void *arg, const struct template_view *view), void *arg)
{
	struct template_size sizes[SIZES_SEEN];
	struct template_view view;
	const struct source *from = &known->source;
	struct size own = source_size(from);
	const struct template *t = template_find(c, from->name, &own);
	const char *error_text = t && t->reason ? t->reason : t ? template_error(t) : "";

	view = (struct template_view){.name = from->name,
				      .description = from->description,
				      .state = known->ret < 0 ? "failed" : state_name(t),
				      .reason = known->ret < 0 ? known->reason : error_text,
				      .vcpus = from->vcpus,
				      .ram_mib = from->ram_mib,
				      .rootfs_gb = from->rootfs_gb,
				      .sizes = sizes,
				      .n_sizes = list_sizes(c, from->name, sizes)};
	each(arg, &view);
}

void core_templates(struct core *c, void (*each)(void *arg, const struct template_view *view),
		    void *arg)
{
	for (size_t i = 0; i < c->sources->n; i++)
		notify(c, &c->sources->all[i], each, arg);
}
