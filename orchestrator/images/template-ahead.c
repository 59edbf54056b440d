// SPDX-License-Identifier: Apache-2.0
/* Prepares images ahead of need: chooses which and when. */
#include <string.h>

#include "base/elements.h"
#include "base/log.h"
#include "orchestrator/images/host.h"
#include "orchestrator/images/template-internal.h"

#define CALM_MS 3000 /* the service is calm after so long without activity */

/* --- when ------------------------------------------------------------------------------------ */

/* Returns the ms until the service is calm, if nothing happens; 0: it is calm. */
static uint64_t calm_in_ms(const struct templates *ts)
{
	uint64_t since_ms = loop_now_ms(ts->env->loop) - ts->busy_ms;

	if (ts->env->ops->has_requests(ts->env->arg))
		return CALM_MS;
	return since_ms < CALM_MS ? CALM_MS - since_ms : 0;
}

bool templates_calm(const struct templates *ts)
{
	return calm_in_ms(ts) == 0;
}

void templates_work_began(struct templates *ts)
{
	templates_work_ended(ts);
	if (templates_closing(ts))
		return;
	templates_hold(ts);
}

void templates_work_ended(struct templates *ts)
{
	ts->busy_ms = loop_now_ms(ts->env->loop);
}

/* Returns true when no more important work is pending and the host has resources to spare. */
static bool is_idle(const struct templates *ts, bool full)
{
	const struct vmproc_host *vms = ts->env->vms;

	return !ts->building && vms->in_use < vmproc_host_usable(vms) && full &&
	       !host_memory_low() && !ts->env->ops->disk_is_low(ts->env->arg);
}

/* --- what ------------------------------------------------------------------------------------ */

static void on_prepared(void *arg, const struct failure *f)
{
	struct templates *ts = arg;
	struct template *t = ts->ahead;

	ts->ahead = NULL;
	template_put(t);
	ts->env->ops->changed(ts->env->arg); /* next come its warm sandboxes, then the next image */
}

/* Returns true when an image of `more` bytes may be added to those prepared ahead. A configured
 * list of sizes has no limit. */
static bool has_room(const struct templates *ts, uint64_t more)
{
	uint64_t bytes = 0;
	size_t images = 0;

	if (!config_sizes_auto(ts->env->config))
		return true;
	list_each_of (t, const struct template, link, &ts->all) {
		if ((t->ahead || t == ts->def) && t->state == TPL_READY) {
			images++;
			bytes += t->bytes;
		}
	}
	return sizes_have_room(images, bytes, more);
}

/* Starts preparing an image. Returns true when it was started. A failed template is tried again on
 * request only. */
static bool start(struct templates *ts, const struct source *from, const struct size *image)
{
	struct template *t = template_find(ts, from->name, image);

	if ((t && t->state != TPL_NEW) || image->ram_mib > size_host().ram_mib ||
	    !has_room(ts, size_image_bytes(image)))
		return false;
	ts->ahead = template_get(ts, from, image);
	if (!ts->ahead)
		return false;
	ts->ahead->ahead = true;
	template_wait(ts->ahead, &ts->ahead_wait, on_prepared, ts);
	return true;
}

/* Prepares a size: first its image, then its warm sandboxes. Returns true when it started the
 * image. */
static bool prepare(struct templates *ts, const struct source *from, const struct size *size)
{
	struct size image = size_image(size, &from->size);
	struct template *t = template_find(ts, from->name, &image);

	if (!t || t->state != TPL_READY)
		return start(ts, from, &image);
	t->ahead = t->ahead || has_room(ts, t->bytes); /* a request may have made the image first */
	if (t->ahead)
		ts->env->ops->keep_warm(ts->env->arg, t, size->rootfs_gb);
	return false;
}

/* With a configured list of sizes, the other templates are prepared when they are requested. */
static bool prepare_templates(struct templates *ts)
{
	/* Skip the default template, all[0]: its sizes come last. */
	for (size_t i = 1; config_sizes_auto(ts->env->config) && i < ts->sources->n; i++) {
		const struct known_source *known = &ts->sources->all[i];

		if (known->ret == 0 && prepare(ts, &known->source, &known->source.size))
			return true;
	}
	return false;
}

static struct sizes sizes_of_default(const struct templates *ts)
{
	struct size host = size_host();
	struct sizes sizes;

	sizes_ahead(&sizes, ts->env->config, template_size(ts->def), &host);
	return sizes;
}

static bool prepare_sizes(struct templates *ts)
{
	struct sizes sizes = sizes_of_default(ts);

	for (size_t i = 0; i < sizes.n; i++)
		if (prepare(ts, &ts->def->source, &sizes.all[i]))
			return true;
	return false;
}

static bool is_listed(const struct templates *ts, const struct size *image)
{
	const struct size *own = template_size(ts->def);
	struct sizes sizes = sizes_of_default(ts);

	for (size_t i = 0; i < sizes.n; i++) {
		struct size listed = size_image(&sizes.all[i], own);

		if (size_equal(&listed, image))
			return true;
	}
	return size_equal(own, image);
}

/* Only sizes of the default template can be listed. */
void templates_note_unlisted(struct templates *ts, const struct template *t)
{
	const struct size *image = template_size(t);

	if (strcmp(t->source.name, ts->def->source.name) != 0 || is_listed(ts, image))
		return;
	ts->unlisted++;
	log_info("a snapshot of %u MiB, %u CPUs and %u GB was made for a request: add %ux%ux%u to "
		 "the setting sizes to have it made ahead",
		 image->ram_mib, image->vcpus, image->rootfs_gb, image->ram_mib, image->vcpus,
		 image->rootfs_gb);
}

uint64_t templates_ahead(struct templates *ts, bool full)
{
	uint64_t calm_ms = calm_in_ms(ts);

	if (templates_closing(ts))
		return 0;
	templates_hold(ts);
	if (calm_ms)
		return calm_ms;
	template_next_build(ts);
	if (!ts->ahead && is_idle(ts, full) && !prepare_templates(ts))
		prepare_sizes(ts);
	return 0;
}

size_t templates_ahead_count(const struct templates *ts)
{
	return config_sizes_auto(ts->env->config) ? AHEAD_IMAGES_MAX : sizes_of_default(ts).n + 1;
}
