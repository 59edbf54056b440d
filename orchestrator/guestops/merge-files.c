// SPDX-License-Identifier: Apache-2.0
/*
 * Merges the files of several branches of a sandbox into it, three ways: a diff of the base and
 * each branch says what that branch changed; these files, and their versions in the base, are
 * copied to the sandbox, whose guest merges them (merge_files.py). Diffs of a text use the same
 * copy.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/merge-plan.h"
#include "orchestrator/guestops/staged.h"
#include "orchestrator/guestops/state.h"
#include "orchestrator/sandbox/lineage.h"
#include "orchestrator/sandbox/tenant.h"

#define MERGES_MAX 8 /* at the same time, with diffs of texts */
#define WORDS_MAX  (MERGE_BRANCHES_MAX + 4)

struct merge {
	struct op base;
	service_merge_files_fn *fn;
	service_text_diff_fn *text_fn;
	char *tenant;
	char ids[2 + MERGE_BRANCHES_MAX][SANDBOX_ID_LEN + 1]; /* parent, base, branches */
	char *conflicts;
	char *paths[DIFF_PATHS_MAX + 1];
	unsigned at; /* the branch being compared */
	struct service_diff *diffs[MERGE_BRANCHES_MAX];
	struct merge_plan plan;
	struct text text; /* the diff of a text */
	struct op *sub;
};

static struct merge *merge_of(const struct op *base)
{
	return container_of(base, struct merge, base);
}

static void merge_put_away(struct op *base)
{
	struct merge *m = merge_of(base);

	if (m->sub)
		op_abandon(m->sub);
	for (unsigned i = 0; i < MERGE_BRANCHES_MAX; i++)
		service_diff_free(m->diffs[i]);
	for (char **path = m->paths; *path; path++)
		free(*path);
	merge_plan_free(&m->plan);
	text_free(&m->text);
	free(m->conflicts);
	free(m->tenant);
}

static void merge_notify(struct op *base)
{
	struct merge *m = merge_of(base);
	const struct failure *f = base->failed ? &base->failure : NULL;

	if (m->text_fn)
		m->text_fn(base->arg, m->text.p, m->text.len, f);
	else
		m->fn(base->arg, f ? NULL : &m->plan, f);
}

static void fail_with(struct merge *m, int error, const struct err *e)
{
	enum failure_code code = error == -EFBIG    ? FAIL_TOO_LARGE
				 : error == -ENOMEM ? FAIL_NO_MEMORY
				 : error == -EAGAIN ? FAIL_FILE_CHANGED
						    : FAIL_AGENT_ERROR;
	struct failure f;

	failure_set(&f, code, 0, "sandbox %s: %.180s", m->ids[0], e->text);
	op_finish(&m->base, &f);
}

/* Ends a step. Returns false when the step failed, and the whole merge with it. */
static bool step_done(struct merge *m, const struct failure *f)
{
	m->sub = NULL;
	if (f)
		op_finish(&m->base, f);
	return !f;
}

/* --- the merge ------------------------------------------------------------------------------ */

static void on_merged(void *arg, const struct text *output, const struct failure *f)
{
	struct merge *m = arg;
	struct err e;

	if (!step_done(m, f))
		return;
	int ret = merge_plan_read(&m->plan, output->p, output->len, &e);
	if (ret < 0)
		fail_with(m, ret, &e);
	else
		op_finish(&m->base, NULL);
}

static void write_roots(const struct merge *m, struct text *out)
{
	for (char *const *path = m->paths; *path; path++)
		text_add(out, *path, strlen(*path) + 1);
}

static void apply(struct merge *m)
{
	struct staged_source sources[1 + MERGE_BRANCHES_MAX] = {0};
	const char *words[WORDS_MAX] = {m->conflicts};
	struct staged_spec spec = {.id = m->ids[0],
				   .sources = sources,
				   .n = 1 + m->plan.branches,
				   .command = "apply",
				   .words = words,
				   .output_max = 2 * m->plan.n};

	for (unsigned i = 0; i < spec.n; i++) {
		sources[i].id = m->ids[1 + i];
		merge_plan_list(&m->plan, i, &sources[i].list);
	}
	for (unsigned i = 0; i < spec.n + 1; i++)
		words[1 + i] = m->ids[i];
	write_roots(m, &spec.roots);
	merge_plan_text(&m->plan, &spec.plan);
	m->sub = staged_run(m->base.service, m->tenant, &spec, on_merged, m);
}

static void compare_next(struct merge *m);

static void on_compared(void *arg, struct service_diff *diff, const struct failure *f)
{
	struct merge *m = arg;
	struct err e;

	if (!step_done(m, f))
		return;
	m->diffs[m->at] = diff;
	int ret = merge_plan_add(&m->plan, m->at, diff, &e);
	if (ret == 0 && ++m->at == m->plan.branches)
		ret = merge_plan_sort(&m->plan, &e);
	if (ret < 0)
		fail_with(m, ret, &e);
	else if (m->at < m->plan.branches)
		compare_next(m);
	else if (m->plan.n)
		apply(m);
	else
		op_finish(&m->base, NULL);
}

static void compare_next(struct merge *m)
{
	m->sub = service_diff(m->base.service, m->tenant, m->ids[1], m->ids[2 + m->at],
			      (const char *const *)m->paths, on_compared, m);
}

/* --- what can be merged --------------------------------------------------------------------- */

/* Returns the sandbox that was forked from the parent itself: `s` or an ancestor of it. NULL if
 * that one has ended, which leaves unknown when it was forked. */
static const struct sandbox *forked_from(const struct sandbox *parent, const struct sandbox *s)
{
	const char *after = strstr(s->ancestors, parent->id) + SANDBOX_ID_LEN;
	char id[SANDBOX_ID_LEN + 1];

	if (*after != ' ')
		return s;
	snprintf(id, sizeof(id), "%s", after + 1);
	return sandbox_living(s->service, s->tenant, id);
}

static const struct sandbox *find_fork(struct merge *m, const struct sandbox *parent,
				       const char *id, struct failure *f)
{
	struct sandbox *s = sandbox_find_reached(m->base.service, m->tenant, id, f);

	if (!s)
		return NULL;
	if (lineage_has(s->ancestors, parent->id))
		return s;
	failure_set(f, FAIL_NOT_A_DESCENDANT, 0, "sandbox %s does not descend from %s", id,
		    parent->id);
	return NULL;
}

/* Returns whether the base is a fork of the parent itself, and no branch is of an earlier fork.
 * Otherwise, what the parent changed between the two forks would look like a change of the
 * branch. */
static bool is_base_of(const struct sandbox *parent, const struct sandbox *base,
		       const struct sandbox *branch, struct failure *f)
{
	const struct sandbox *fork = forked_from(parent, branch);

	if (forked_from(parent, base) != base)
		failure_set(f, FAIL_NOT_A_DESCENDANT, 0,
			    "sandbox %s can't be the base: it is not a child of sandbox %s",
			    base->id, parent->id);
	else if (branch == base)
		failure_set(f, FAIL_OUT_OF_RANGE, 0, "sandbox %s is the base and a branch",
			    base->id);
	else if (!fork)
		failure_set(f, FAIL_NOT_A_DESCENDANT, 0,
			    "a sandbox between %s and its ancestor %s has ended, so the time of "
			    "the fork from %s is not known",
			    branch->id, parent->id, parent->id);
	else if (fork->created_at_ms < base->created_at_ms)
		failure_set(
			f, FAIL_NOT_A_DESCENDANT, 0,
			"sandbox %s was forked later than %s and can't be its base: use a child "
			"of the same fork as the base",
			base->id, fork->id);
	else
		return true;
	return false;
}

static bool may_merge(struct merge *m, const struct sandbox *parent, struct failure *f)
{
	const struct sandbox *base = find_fork(m, parent, m->ids[1], f);

	for (unsigned i = 0; base && i < m->plan.branches; i++) {
		const struct sandbox *branch = find_fork(m, parent, m->ids[2 + i], f);

		if (!branch || !is_base_of(parent, base, branch, f))
			return false;
	}
	return base != NULL;
}

static bool has_room(const struct service *c, const char *tenant, struct failure *f)
{
	unsigned n = 0, own = 0;

	list_each (pos, &guestops_of_service(c)->merges) {
		n++;
		own += strcmp(merge_of(container_of(pos, struct op, link))->tenant, tenant) == 0;
	}
	return tenant_may_begin(c, "merges of files", n, own, MERGES_MAX, f);
}

/* --- start ---------------------------------------------------------------------------------- */

static const struct op_methods merge_ops = {
	.size = sizeof(struct merge),
	.put_away = merge_put_away,
	.notify = merge_notify,
	.abandon = op_free,
};

static struct merge *merge_new(struct service *c, const char *tenant, void *arg)
{
	struct merge *m = merge_of(op_new(c, &merge_ops, arg));

	m->tenant = must_copy(tenant);
	return m;
}

static void note_id(struct merge *m, unsigned i, const char *id)
{
	snprintf(m->ids[i], sizeof(m->ids[i]), "%s", id);
}

struct op *service_merge_files(struct service *c, const char *tenant, const char *id,
			       const struct file_merge *merge, service_merge_files_fn *fn,
			       void *arg)
{
	struct merge *m = merge_new(c, tenant, arg);
	struct failure f;

	m->fn = fn;
	m->conflicts = must_copy(merge->conflicts);
	note_id(m, 0, id);
	note_id(m, 1, merge->base);
	for (unsigned i = 0; i < MERGE_BRANCHES_MAX && merge->branches[i]; i++)
		note_id(m, 2 + m->plan.branches++, merge->branches[i]);
	for (unsigned i = 0; i < DIFF_PATHS_MAX && merge->paths[i]; i++)
		m->paths[i] = guest_path_clean(merge->paths[i]);
	const struct sandbox *parent = sandbox_find_reached(c, tenant, id, &f);
	if (!parent || !may_merge(m, parent, &f) || !has_room(c, tenant, &f))
		return op_finish(&m->base, &f);
	list_add_tail(&guestops_of_service(c)->merges, &m->base.link);
	compare_next(m);
	return &m->base;
}

/* --- diffs of a text ------------------------------------------------------------------------ */

static void on_text(void *arg, const struct text *output, const struct failure *f)
{
	struct merge *m = arg;

	if (!step_done(m, f))
		return;
	text_add(&m->text, output->p, output->len);
	op_finish(&m->base, NULL);
}

static void begin_text(struct merge *m, const char *path)
{
	struct staged_source sources[2] = {0};
	char *labels[2];
	struct staged_spec spec = {.id = m->ids[0],
				   .sources = sources,
				   .n = 2,
				   .command = "diff",
				   .output_max = TEXT_DIFF_MAX};

	for (int i = 0; i < 2; i++) {
		sources[i].id = m->ids[i];
		labels[i] = must_alloc(SANDBOX_ID_LEN + 1 + strlen(path) + 1);
		sprintf(labels[i], "%s:%s", m->ids[i], path);
	}
	spec.words = (const char *const[]){labels[0], labels[1], NULL};
	text_add(&sources[1].list, "0", 2);
	text_add(&sources[1].list, path, strlen(path) + 1);
	text_add(&spec.roots, "/", 2);
	text_add(&spec.plan, path, strlen(path) + 1);
	list_add_tail(&guestops_of_service(m->base.service)->merges, &m->base.link);
	m->sub = staged_run(m->base.service, m->tenant, &spec, on_text, m);
	free(labels[0]);
	free(labels[1]);
}

struct op *service_text_diff(struct service *c, const char *tenant, const char *id,
			     const char *other, const char *path, service_text_diff_fn *fn,
			     void *arg)
{
	struct merge *m = merge_new(c, tenant, arg);
	struct failure f;

	m->text_fn = fn;
	note_id(m, 0, id);
	note_id(m, 1, other);
	const struct sandbox *one = sandbox_find(c, tenant, id, &f);
	const struct sandbox *two = one ? sandbox_find(c, tenant, other, &f) : NULL;
	if (!two || !sandbox_is_reached(one, &f) || !sandbox_is_reached(two, &f) ||
	    !has_room(c, tenant, &f))
		return op_finish(&m->base, &f);
	begin_text(m, path);
	return &m->base;
}
