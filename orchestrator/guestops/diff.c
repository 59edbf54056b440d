// SPDX-License-Identifier: Apache-2.0
/* Compares the files of two sandboxes. Each guest lists its tree over a separate connection, one
 * requested path after the other; entries are compared as they arrive. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "orchestrator/guestops/diff-merge.h"
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"
#include "orchestrator/sandbox/tenant.h"

#define DIFFS_MAX     8 /* at the same time; each holds its result in memory */
#define DIAL_LIMIT_MS 30000
#define SILENCE_MS    300000 /* limit without a frame of either guest: both may hash big files */
#define ROUNDS_MAX    12     /* a whole diff may take this many times SILENCE_MS */

struct listing {
	struct diff *diff;
	struct sandbox *sandbox;
	struct guest_link guest;
};

struct diff {
	struct op base;
	service_diff_fn *fn;
	struct listing side[2];
	struct diff_merge merge;
	char *paths[DIFF_PATHS_MAX];
	unsigned n_paths; /* 0: the operation could not begin */
	unsigned at;	  /* index of the path being listed */
	struct loop_timer silence;
	bool heard; /* a frame arrived since the timer was set */
	unsigned rounds;
};

static struct diff *diff_of(const struct op *base)
{
	return container_of(base, struct diff, base);
}

static void hang_up(struct diff *d)
{
	loop_timer_clear(d->base.service->loop, &d->silence);
	for (int i = 0; i < 2; i++) {
		guest_link_close(&d->side[i].guest);
		d->side[i].sandbox = NULL;
	}
}

static void diff_put_away(struct op *base)
{
	struct diff *d = diff_of(base);

	if (!d->n_paths)
		return;
	hang_up(d);
	diff_merge_fini(&d->merge);
	for (unsigned i = 0; i < d->n_paths; i++)
		free(d->paths[i]);
}

/* --- end ------------------------------------------------------------------------------------ */

static void fail(struct listing *l, enum failure_code code, const char *reason)
{
	struct failure f;

	failure_set(&f, code, 0, "sandbox %s: %.180s", l->sandbox->id, reason);
	op_finish(&l->diff->base, &f);
}

/* Maps an error of the merge to a failure. */
static void fail_with(struct listing *l, int error, const struct err *e)
{
	if (error == -EFBIG)
		fail(l, FAIL_TOO_LARGE, e->text);
	else if (error == -ENOMEM)
		fail(l, FAIL_NO_MEMORY, e->text);
	else
		fail(l, FAIL_AGENT_ERROR, e->text);
}

static void on_silence(void *arg)
{
	struct diff *d = arg;
	char reason[ERR_TEXT_MAX];

	if (d->heard && ++d->rounds < ROUNDS_MAX) {
		d->heard = false;
		loop_timer_set(d->base.service->loop, &d->silence, SILENCE_MS);
		return;
	}
	if (d->heard)
		snprintf(reason, sizeof(reason), "its guest is still listing %.100s after %d s",
			 d->paths[d->at], SILENCE_MS / 1000 * ROUNDS_MAX);
	else
		snprintf(reason, sizeof(reason),
			 "its guest sent nothing for %d s while listing %.60s", SILENCE_MS / 1000,
			 d->paths[d->at]);
	fail(&d->side[d->merge.side[0].ended], FAIL_AGENT_ERROR, reason);
}

void diff_sandbox_gone(struct sandbox *s, const struct failure *f)
{
	list_each_of_safe (base, struct op, link, &guestops_of_service(s->service)->diffs)
		if (diff_of(base)->side[0].sandbox == s || diff_of(base)->side[1].sandbox == s)
			op_finish(base, f);
}

static void succeed(struct diff *d)
{
	sandbox_touch(d->side[0].sandbox);
	sandbox_touch(d->side[1].sandbox);
	hang_up(d);
	op_finish(&d->base, NULL);
}

static void diff_notify(struct op *base)
{
	struct diff *d = diff_of(base);

	if (base->failed)
		d->fn(base->arg, NULL, &base->failure);
	else
		d->fn(base->arg, diff_merge_take(&d->merge), NULL);
}

/* --- listing -------------------------------------------------------------------------------- */

/* Requests the listing of the current path. Returns false when the diff has failed. */
static bool ask(struct listing *l)
{
	struct diff *d = l->diff;
	const char *const paths[] = {d->paths[d->at], NULL};

	return guest_link_send(&l->guest, agent_tree_bytes(paths));
}

static void next_path(struct diff *d)
{
	if (++d->at == d->n_paths) {
		succeed(d);
		return;
	}
	diff_merge_begin(&d->merge, d->paths[d->at]);
	if (ask(&d->side[0]))
		ask(&d->side[1]);
}

/* Applies back-pressure to the side that is ahead; the other one has nothing uncompared. */
static void hold_back(struct diff *d)
{
	for (unsigned i = 0; i < 2; i++)
		guest_link_pause(&d->side[i].guest, diff_merge_is_ahead(&d->merge, i));
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	struct listing *l = arg;
	struct diff *d = l->diff;
	unsigned side = l == &d->side[1];
	char reason[ERR_TEXT_MAX];
	struct err e;
	int ret;

	d->heard = true;
	if (frame->type == AGENT_ENTRY) {
		ret = diff_merge_entry(&d->merge, side, &frame->entry, &e);
	} else if (frame->type == AGENT_DONE) {
		ret = diff_merge_end(&d->merge, side, &e);
	} else {
		const bool has_text = frame->type == AGENT_ERROR && frame->len;

		snprintf(reason, sizeof(reason), "its guest's agent can't list %.60s: %.*s",
			 d->paths[d->at], (int)(has_text && frame->len < 100 ? frame->len : 100),
			 has_text ? (const char *)frame->data : "it gave no reason");
		fail(l, FAIL_AGENT_ERROR, reason);
		return;
	}
	if (ret < 0) {
		fail_with(l, ret, &e);
		return;
	}
	hold_back(d);
	if (diff_merge_complete(&d->merge))
		next_path(d);
}

static void on_lost(void *arg, enum guest_lost reason, const char *text)
{
	if (reason == GUEST_NO_MEMORY)
		fail(arg, FAIL_NO_MEMORY, "no memory for a request to its guest");
	else
		fail(arg, FAIL_AGENT_LOST, text);
}

static void on_reached(void *arg)
{
	ask(arg);
}

static const struct guest_link_events guest_events = {
	.reached = on_reached, .frame = on_frame, .lost = on_lost};

/* --- start ---------------------------------------------------------------------------------- */

char *guest_path_clean(const char *path)
{
	char *out = must_alloc(strlen(path) + 2), *end = out;

	for (size_t len; *path; path += len) {
		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (!len || (len == 1 && *path == '.'))
			continue;
		*end++ = '/';
		memcpy(end, path, len);
		end += len;
	}
	if (end == out)
		*end = '/';
	return out;
}

static bool has_room(const struct service *c, const char *tenant, struct failure *f)
{
	unsigned n = 0, own = 0;

	list_each_of (base, const struct op, link, &guestops_of_service(c)->diffs) {
		n++;
		own += strcmp(diff_of(base)->side[0].sandbox->tenant, tenant) == 0;
	}
	return tenant_may_begin(c, "diffs", n, own, DIFFS_MAX, f);
}

static void start(struct diff *d, struct sandbox *sandboxes[2], const char *const *paths)
{
	struct service *c = d->base.service;

	list_add_tail(&guestops_of_service(c)->diffs, &d->base.link);
	while (d->n_paths < DIFF_PATHS_MAX && paths[d->n_paths]) {
		d->paths[d->n_paths] = guest_path_clean(paths[d->n_paths]);
		d->n_paths++;
	}
	diff_merge_init(&d->merge);
	diff_merge_begin(&d->merge, d->paths[0]);
	loop_timer_start(c->loop, &d->silence, on_silence, d, SILENCE_MS);
	for (int i = 0; i < 2; i++) {
		struct listing *l = &d->side[i];

		l->diff = d;
		l->sandbox = sandboxes[i];
		sandbox_touch(l->sandbox);
		guest_link_init(&l->guest, c->loop, &guest_events, l);
		guest_link_dial(&l->guest, l->sandbox->vm, DIAL_LIMIT_MS, false);
	}
}

static const struct op_methods diff_ops = {
	.size = sizeof(struct diff),
	.put_away = diff_put_away,
	.notify = diff_notify,
	.abandon = op_free,
};

struct op *service_diff(struct service *c, const char *tenant, const char *id, const char *other,
			const char *const *paths, service_diff_fn *fn, void *arg)
{
	struct diff *d = diff_of(op_new(c, &diff_ops, arg));
	struct sandbox *s[2] = {0};
	struct failure f;

	d->fn = fn;
	s[0] = sandbox_find_reached(c, tenant, id, &f);
	if (s[0])
		s[1] = sandbox_find_reached(c, tenant, other, &f);
	if (!s[1] || !has_room(c, tenant, &f))
		return op_finish(&d->base, &f);
	start(d, s, paths);
	return &d->base;
}
