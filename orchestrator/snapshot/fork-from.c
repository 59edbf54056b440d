// SPDX-License-Identifier: Apache-2.0
/* Forks whose children are started from a checkpoint or Space. A rollback has one such child. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "orchestrator/sandbox/capacity.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/snapshot/fork-op.h"
#include "orchestrator/snapshot/internal.h"

static void on_opened(void *arg, const struct failure *f)
{
	struct fork *fork = arg;

	if (f)
		fork_fail(fork, f);
	else
		fork_part_ready(fork);
}

/* Starts the children of a checkpoint or Space, as fork->config has them. */
static void start_from_space(struct fork *fork, struct space *from)
{
	op_expect(&fork->op, from->owner, fork->n, &fork->config.size);
	list_add_tail(&snapshots_of_service(fork->op.service)->resumes, &fork->op.link);
	fork->seq = from->seq;
	fork->state_seq = from->checkpoint ? from->checkpoint->call_seq : from->seq;
	bool is_open = space_open_start(&fork->open, from, on_opened, fork);
	fork_start(fork, !is_open);
}

/* Returns the checkpoint or Space if sandboxes may start from it; else NULL with *f filled. */
static struct space *find_source(struct service *c, const char *tenant, const char *id,
				 struct failure *f)
{
	struct space *from = space_find(c, tenant, id, f);

	if (!from || !from->resume)
		return from;
	failure_set(f, FAIL_IN_USE, 1, "space %s is being resumed", id);
	return NULL;
}

/* Does what find_source does, and claims room for `n` sandboxes. */
static struct space *claim_source(struct fork *fork, const char *id, unsigned n, struct failure *f)
{
	struct service *c = fork->op.service;
	struct space *from = drain_allows(c, f) && fork_check(c, n, f)
				     ? find_source(c, fork->tenant, id, f)
				     : NULL;

	if (!from || !fork_has_room(c, fork->tenant, n, &from->config.size, f))
		return NULL;
	fork->claim = (struct tree_claim){.tree = from->tree,
					  .depth = from->depth + space_is_checkpoint(from),
					  .n = n,
					  .mib = from->config.size.ram_mib};
	if (space_is_checkpoint(from))
		fork->claim.ancestors = from->checkpoint->ancestors;
	return tree_claim(&fork->claim, f) ? from : NULL;
}

struct op *service_fork_from(struct service *c, const char *tenant, const char *id,
			     const struct fork_spec *spec, service_fork_fn *fn, void *arg)
{
	struct fork *fork = fork_new(c, tenant, arg);
	struct failure f;

	fork->fn = fn;
	struct space *from = claim_source(fork, id, spec->n, &f);
	if (!from)
		return fork_fail(fork, &f);
	fork->config = from->config;
	tenant_clamp(c, tenant, &fork->config);
	fork_note_spec(fork, spec);
	start_from_space(fork, from);
	return &fork->op;
}

/* Returns the strings one after the other, each with its NUL; NULL when they are too long. */
static char *env_block(const char *const *env, size_t *len)
{
	size_t at = 0;

	*len = 0;
	for (const char *const *each = env; *each; each++)
		*len += strlen(*each) + 1;
	if (*len > SANDBOX_ENV_MAX)
		return NULL;
	char *block = must_alloc(*len + 1);
	for (const char *const *each = env; *each; each++) {
		memcpy(block + at, *each, strlen(*each) + 1);
		at += strlen(*each) + 1;
	}
	return block;
}

static bool size_fits(const struct size *asked, const struct size *has)
{
	return (!asked->vcpus || asked->vcpus == has->vcpus) &&
	       (!asked->ram_mib || asked->ram_mib == has->ram_mib) &&
	       (!asked->rootfs_gb || asked->rootfs_gb == has->rootfs_gb);
}

static bool fits(const struct space *from, const struct sandbox_config *asked, struct failure *f)
{
	const struct size *has = &from->config.size;

	if (size_fits(&asked->size, has) &&
	    (!asked->template[0] || !strcmp(asked->template, from->config.template)))
		return true;
	failure_set(f, FAIL_OUT_OF_RANGE, 0,
		    "a sandbox of checkpoint %s has its template %s, %u vCPUs, %u MiB of RAM and a "
		    "disk of %u GB, which can't be changed",
		    from->id, from->config.template, has->vcpus, has->ram_mib, has->rootfs_gb);
	return false;
}

/* Applies what a request to create a sandbox says. */
static bool apply(struct fork *fork, const struct space *from, const struct sandbox_spec *spec,
		  struct failure *f)
{
	const struct sandbox_config *asked = &spec->config;

	if (!fits(from, asked, f))
		return false;
	if (spec->tree) {
		failure_set(f, FAIL_OUT_OF_RANGE, 0,
			    "a sandbox of checkpoint %s is in tree %s, which can't get another "
			    "budget",
			    from->id, from->tree->root);
		return false;
	}
	fork->config = from->config;
	if (asked->timeout_s)
		fork->config.timeout_s = asked->timeout_s;
	if (asked->idle_timeout_s)
		fork->config.idle_timeout_s = asked->idle_timeout_s;
	fork->config.persistent = asked->persistent;
	fork->config.checkpoint_calls = asked->checkpoint_calls;
	fork->config.egress &= asked->egress;
	tenant_clamp(fork->op.service, fork->tenant, &fork->config);
	fork->metadata = spec->metadata ? must_copy(spec->metadata) : NULL;
	if (spec->env)
		fork->env = env_block(spec->env, &fork->env_len);
	if (!spec->env || fork->env)
		return true;
	failure_set(f, FAIL_OUT_OF_RANGE, 0, "env has more than the limit of %u bytes",
		    SANDBOX_ENV_MAX);
	return false;
}

struct op *service_create_from(struct service *c, const char *tenant, const char *id,
			       const struct sandbox_spec *spec, service_create_fn *fn, void *arg)
{
	struct fork *fork = fork_new(c, tenant, arg);
	struct failure f;

	fork->created_fn = fn;
	struct space *from = claim_source(fork, id, 1, &f);
	if (!from || !apply(fork, from, spec, &f))
		return fork_fail(fork, &f);
	fork_note_spec(fork, &(struct fork_spec){.n = 1, .reseed = true, .labels = spec->labels});
	start_from_space(fork, from);
	return &fork->op;
}

/* Returns whether there is room for the second VM that the sandbox has until its present one ends.
 * The limits of the tier are exceeded for at most as many VMs as the tenant has sandboxes. */
static bool second_fits(struct service *c, const struct sandbox *s, struct failure *f)
{
	const struct tenant *t = s->owner;

	if (t->coming < t->sandboxes.n)
		return host_has_room(c, 1, f) && promises_have_room(c, s->config.size.ram_mib, f);
	return fork_has_room(c, s->tenant, 1, &s->config.size, f);
}

bool fork_into_fits(struct service *c, const char *tenant, const char *checkpoint, const char *id,
		    struct failure *f)
{
	const struct sandbox *s =
		fork_check(c, 1, f) ? sandbox_find_reached(c, tenant, id, f) : NULL;
	const struct space *from = s ? find_source(c, tenant, checkpoint, f) : NULL;

	if (!from)
		return false;
	if (size_equal(&s->config.size, &from->config.size) &&
	    !strcmp(s->config.template, from->config.template))
		return second_fits(c, s, f);
	failure_set(f, FAIL_OUT_OF_RANGE, 0,
		    "sandbox %s can't be rolled back to checkpoint %s, which has another size or "
		    "template",
		    s->id, from->id);
	return false;
}

struct op *fork_into(struct service *c, const char *tenant, const char *checkpoint, const char *id,
		     service_done_fn *fn, void *arg)
{
	struct fork *fork = fork_new(c, tenant, arg);
	struct failure f;

	fork->op.done_fn = fn;
	snprintf(fork->into, sizeof(fork->into), "%s", id);
	if (!fork_into_fits(c, tenant, checkpoint, id, &f))
		return fork_fail(fork, &f);
	const struct sandbox *s = sandbox_living(c, tenant, id);
	struct space *from = space_of(c, checkpoint);
	fork->config = s->config;
	fork->config.checkpoint_calls = 0;
	fork->config.egress = s->config.egress && from->config.egress;
	/* Nothing is claimed: the sandbox's present VM makes room. */
	fork->claim = (struct tree_claim){.tree = from->tree, .depth = from->depth};
	fork_note_spec(fork, &(struct fork_spec){.n = 1});
	start_from_space(fork, from);
	return &fork->op;
}
