// SPDX-License-Identifier: Apache-2.0
/* Creates a sandbox: takes a warm one from the pool, or else waits for the template and restores a
 * VM for the request. Then adds the sandbox to the catalogue. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "orchestrator/images/host.h"
#include "orchestrator/images/private.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/pool/vm-bringup.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/capacity.h"
#include "orchestrator/sandbox/life.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/sandbox/tree.h"

#define TRIES 3

struct create {
	struct op op;
	service_create_fn *fn;
	struct sandbox_config asked; /* as requested, before defaults and limits */
	struct tree_budget budget;   /* of the tree that the sandbox begins */
	bool limited;		     /* the request has a budget for the tree */
	struct disk_job *files;	     /* looks up the template's files, or opens its memory */
	struct sandbox *sandbox;     /* complete except for the VM */
	struct template_wait wait;
	struct waiter private_wait;
	bool warm_only;
	bool private; /* must not use a pool sandbox, which maps memory that other tenants map */
	struct template *template;
	struct vm_bringup *bringup; /* in progress */
	unsigned tries;
	char id[SANDBOX_ID_LEN + 1]; /* empty until the sandbox is complete */
	char *tenant;
};

static struct create *create_of(const struct op *op)
{
	return container_of(op, struct create, op);
}

static void create_put_away(struct op *op)
{
	struct create *create = create_of(op);

	disk_job_cancel(create->files);
	template_unwait(&create->wait);
	waiter_cancel(&create->private_wait);
	vm_bringup_free(create->bringup);
	if (create->sandbox)
		sandbox_free(create->sandbox);
	if (create->template)
		template_put(create->template);
	free(create->tenant);
}

static void note_made(struct service *c, bool well)
{
	c->template_env.ops->made(c->template_env.arg, well);
}

/* Does not count a create that lacks a part of its tenant's limit on this host: other hosts of the
 * fleet may give up some. */
static void count_failure(struct service *c, const struct failure *f)
{
	c->stats.create_failures += !f->lacks;
}

static void fail(struct create *create, const struct failure *f)
{
	count_failure(create->op.service, f);
	op_finish(&create->op, f);
}

/* The VM is ready: writes the catalogue row, then answers. */
static void complete(struct create *create, struct vm_bringup *warm)
{
	struct op *op = &create->op;
	struct service *c = op->service;
	struct sandbox *s = create->sandbox;
	struct ready_vm ready = vm_bringup_take(warm);
	struct store_answer answer;
	struct failure f;
	struct err e;

	sandbox_note_vm(s, &ready);
	struct store_sandbox row = sandbox_row(s);
	const struct store_tree tree = {.root = s->id,
					.tenant = s->tenant,
					.budget = create->budget,
					.created_at_ms = s->created_at_ms};
	row.tree = create->limited ? &tree : NULL;
	row.answer = op_answer(op, s->tenant, MADE_SANDBOX, s->id, &answer);
	life_note(s, (struct audit_event){.name = "sandbox.created"});
	if (store_sandbox_add(c->store, &row, &e) < 0) {
		ready_vm_drop(&ready);
		note_made(c, false);
		failure_catalogue(&f, &e);
		fail(create, &f);
		return;
	}
	c->stats.creates++;
	note_made(c, true);
	create->sandbox = NULL;
	s->tree = tree_get(c, s->owner, s->id);
	if (create->limited)
		tree_limit(s->tree, &tree);
	sandbox_begin(s, &ready);
	memcpy(create->id, s->id, sizeof(create->id));
	op_finish(op, NULL);
}

static void start(struct create *create);

static void on_bringup(void *arg, struct vm_bringup *warm, const char *text)
{
	struct create *create = arg;
	struct failure f;

	create->bringup = NULL;
	if (warm) {
		complete(create, warm);
	} else if (++create->tries < TRIES) {
		start(create);
	} else {
		note_made(create->op.service, false);
		failure_set(&f, FAIL_VM_FAILED, 5,
			    "no VM could be restored in %d attempts; the last error: %s", TRIES,
			    text);
		fail(create, &f);
	}
}

/* Completes the request with a warm sandbox from the pool. Its network access is open, and is
 * closed first if the request wants none. */
static void take(struct create *create, struct vm_bringup *warm)
{
	if (create->sandbox->config.egress) {
		complete(create, warm);
		return;
	}
	create->bringup = warm;
	vm_bringup_close_egress(warm, on_bringup, create);
}

bool host_has_room(struct service *c, size_t n, struct failure *f)
{
	const struct template *t = templates_building(c->templates);
	bool builds = t && !template_is_background(t);
	size_t used = c->n_sandboxes + c->ended.n_unrecorded + c->n_coming + builds;

	if (used + n > vmproc_host_usable(&c->vms)) {
		failure_set(f, FAIL_NO_CAPACITY, 10, "all %u VMs of this host are in use",
			    vmproc_host_usable(&c->vms));
		return false;
	}
	if (host_memory_low()) {
		failure_set(f, FAIL_NO_CAPACITY, 10, "the host's memory is used up");
		return false;
	}
	return true;
}

static struct vm_bringup *take_warm(struct create *create)
{
	if (create->private)
		return NULL;
	return pool_take_warm(create->op.service->pool, create->template,
			      create->sandbox->config.size.rootfs_gb);
}

static void make(void *arg, const struct failure *f)
{
	struct create *create = arg;
	struct service *c = create->op.service;
	struct vm_bringup_spec spec = {.size = create->sandbox->config.size,
				       .template = create->template,
				       .private_of = create->private ? create->tenant : NULL,
				       .privates = c->privates,
				       .closed = !create->sandbox->config.egress};
	struct failure full;

	if (f || !host_has_room(c, 0, &full)) {
		fail(create, f ? f : &full);
		return;
	}
	spec.blank = pool_take_blank(c->pool, &spec.size);
	create->bringup = vm_bringup_start(&c->template_env, &spec, on_bringup, create);
}

static void on_memory(void *arg, struct disk_job *memory)
{
	struct create *create = arg;
	struct failure f;

	create->files = NULL;
	if (memory->job.ret < 0) {
		failure_set(&f, FAIL_TEMPLATE_FAILED, 5, "%s", memory->job.err.text);
		fail(create, &f);
	} else if (private_ready(create->op.service->privates, create->tenant, memory->fds[0],
				 &memory->memory, &create->private_wait, make, create)) {
		make(create, NULL);
	}
}

static void make_private(struct create *create)
{
	create->files = template_open_memory(create->template, on_memory, create);
}

static void on_template(void *arg, const struct failure *f)
{
	struct create *create = arg;
	struct vm_bringup *warm = f ? NULL : take_warm(create);

	if (warm)
		take(create, warm);
	else if (create->private && !f)
		make_private(create);
	else
		make(create, f);
}

static void start(struct create *create)
{
	template_wait(create->template, &create->wait, on_template, create);
}

static size_t env_size(const char *const *env)
{
	size_t size = 0;

	for (; env && *env; env++)
		size += strlen(*env) + 1;
	return size;
}

static bool copy_spec(struct sandbox *s, const struct sandbox_spec *spec)
{
	size_t len = env_size(spec->env), at = 0;
	char *env = malloc(len + 1);

	if (!env || !sandbox_set_text(&s->metadata, spec->metadata ? spec->metadata : "{}") ||
	    !sandbox_set_text(&s->labels, spec->labels ? spec->labels : "{}")) {
		free(env);
		return false;
	}
	for (const char *const *each = spec->env; each && *each; each++) {
		memcpy(env + at, *each, strlen(*each) + 1);
		at += strlen(*each) + 1;
	}
	sandbox_set_env(s, env, len);
	free(env);
	s->config = spec->config;
	tenant_clamp(s->service, s->tenant, &s->config);
	return true;
}

static bool check(struct service *c, const char *tenant, const struct sandbox_spec *spec,
		  struct failure *f)
{
	if (c->closing) {
		failure_set(f, FAIL_STOPPING, 5, "the service is stopping");
		return false;
	}
	if (!drain_allows(c, f))
		return false;
	/* No more than max_vms can succeed, and each waiting request holds memory. */
	if (c->n_coming >= c->vms.max_vms) {
		failure_set(f, FAIL_NO_CAPACITY, 5,
			    "%zu sandboxes are being created or forked already, which is the limit",
			    c->n_coming);
		return false;
	}
	if (env_size(spec->env) > SANDBOX_ENV_MAX) {
		failure_set(f, FAIL_OUT_OF_RANGE, 0, "env has %zu bytes, the limit is %u",
			    env_size(spec->env), SANDBOX_ENV_MAX);
		return false;
	}
	return tenant_has_room(c, tenant, 1, f);
}

/* --- the template --------------------------------------------------------------------------- */

/* A worker's lookup of a template's files by name. */
struct source_look {
	struct config config;
	char name[SANDBOX_NAME_MAX + 1];
	struct source found;
	char known[ERR_TEXT_MAX]; /* when not found: the existing names, comma-separated */
};

static void list_known(struct source_look *look)
{
	char **names = source_names(&look->config);
	size_t used = (size_t)snprintf(look->known, sizeof(look->known), TEMPLATE_DEFAULT);

	for (char **each = names; *each && used < sizeof(look->known); each++)
		used += (size_t)snprintf(look->known + used, sizeof(look->known) - used, ", %s",
					 *each);
	source_names_free(names);
}

static int find_source(struct disk_job *job)
{
	struct source_look *look = job->what;
	int ret = source_find(&look->config, look->name, &look->found, &job->job.err);

	if (ret == -ENOENT)
		list_known(look);
	return ret;
}

static bool choose_size(struct create *create, const struct source *from, struct failure *f)
{
	struct service *c = create->op.service;
	struct size most = tenant_size_most(c, create->tenant);
	struct sandbox *s = create->sandbox;
	struct sized_choice size;

	if (!size_choose(from, &create->asked.size, &most, &size, f))
		return false;
	s->config.size = size.size;
	memcpy(s->config.template, from->name, sizeof(from->name));
	if ((create->limited &&
	     !tree_budget_fits(c, create->tenant, &create->budget, &s->config.size, f)) ||
	    !tenant_has_disk(c, create->tenant, s->config.size.rootfs_gb, f) ||
	    !promises_have_room(c, s->config.size.ram_mib, f))
		return false;
	op_promise(&create->op, 1, &s->config.size);
	create->template = template_get(c->templates, from, &size.image);
	if (!create->template)
		failure_set(f, FAIL_SERVICE_BUSY, 5,
			    "too many templates and sizes are being prepared: try again");
	return create->template != NULL;
}

static void on_source(void *arg, struct disk_job *job)
{
	struct create *create = arg;
	const struct source_look *look = job->what;
	struct service *c = create->op.service;
	struct failure f;

	create->files = NULL;
	if (job->job.ret == -ENOENT)
		failure_set(&f, FAIL_UNKNOWN_TEMPLATE, 0,
			    "template %s is not known; this host has: %s", look->name, look->known);
	else if (job->job.ret < 0)
		failure_set(&f, FAIL_TEMPLATE_FAILED, 0, "template %s can't be used: %.180s",
			    look->name, job->job.err.text);
	if (job->job.ret < 0 || !choose_size(create, &look->found, &f)) {
		fail(create, &f);
		return;
	}
	struct vm_bringup *warm = take_warm(create);
	if (warm) {
		c->stats.pool_hits++;
		take(create, warm);
	} else if (create->warm_only) {
		failure_set(&f, FAIL_NO_WARM, 0, "no warm sandbox of this kind is ready");
		op_finish(&create->op, &f);
	} else {
		c->stats.pool_misses++;
		start(create);
	}
}

static void look_for_source(struct create *create)
{
	struct source_look *look = must_alloc(sizeof(*look));

	look->config = create->op.service->config;
	memcpy(look->name, create->asked.template, sizeof(look->name));
	create->files =
		disk_job_start(create->op.service->loop, find_source, look, 0, on_source, create);
}

uint32_t creates_choosing(const struct service *c)
{
	uint32_t n = 0;

	list_each_of (create, const struct create, op.link, &c->creates)
		n += create->files && !create->template;
	return n;
}

/* --- the call ------------------------------------------------------------------------------- */

/* Deletes the sandbox: the client never received its id. */
static void create_abandon(struct op *op)
{
	const struct create *create = create_of(op);
	struct sandbox *s = sandbox_living(op->service, create->tenant, create->id);

	if (s)
		sandbox_end(s, "deleted", "the client that created it disconnected", true);
	op_free(op);
}

static void create_notify(struct op *op)
{
	const struct create *create = create_of(op);

	op_notify_made(op, create->tenant, create->id, create->fn);
}

static const struct op_methods create_ops = {
	.size = sizeof(struct create),
	.makes_sandboxes = true,
	.put_away = create_put_away,
	.notify = create_notify,
	.abandon = create_abandon,
};

struct op *service_create(struct service *c, const char *tenant, const struct sandbox_spec *spec,
			  service_create_fn *fn, void *arg)
{
	struct create *create = create_of(op_new(c, &create_ops, arg));
	struct failure f;

	create->fn = fn;
	if (!check(c, tenant, spec, &f)) {
		count_failure(c, &f);
		return op_finish(&create->op, &f);
	}
	create->asked = spec->config;
	create->limited = spec->tree != NULL;
	create->warm_only = spec->warm_only;
	if (spec->tree)
		create->budget = *spec->tree;
	create->sandbox = sandbox_new(c, "", tenant);
	create->tenant = must_copy(tenant);
	create->private = tenant_is_private(c, tenant);
	op_expect(&create->op, create->sandbox->owner, 1, NULL);
	list_add_tail(&c->creates, &create->op.link);
	if (!copy_spec(create->sandbox, spec)) {
		failure_no_memory(&f);
		fail(create, &f);
		return &create->op;
	}
	look_for_source(create);
	return &create->op;
}
