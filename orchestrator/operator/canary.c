// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/operator/canary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "orchestrator/snapshot/snapshots.h"

#define TENANT	   "local"
#define LIFETIME_S 120 /* lifetime of the sandboxes, in case nobody deletes them */
#define TEXT_BYTES 320

struct canary {
	struct command_env env;
	void (*fn)(void *arg, const char *text, bool well);
	void *arg;
	struct op *op;
	char parent[SANDBOX_ID_LEN + 1], child[SANDBOX_ID_LEN + 1]; /* empty: none is left */
	uint64_t began_ns, created_ns, forked_ns;
	char error[TEXT_BYTES]; /* empty: none */
};

void canary_free(struct canary *c)
{
	if (c && c->op)
		op_abandon(c->op);
	free(c);
}

static void note(struct canary *c, const char *step, const struct failure *f)
{
	if (!c->error[0])
		snprintf(c->error, sizeof(c->error), "%s: %.256s", step, f->text);
}

static double ms(uint64_t from, uint64_t to)
{
	return (double)(to - from) / 1e6;
}

static void finish(struct canary *c)
{
	char text[TEXT_BYTES];

	if (c->error[0]) {
		c->fn(c->arg, c->error, false);
		return;
	}
	snprintf(text, sizeof(text), "a sandbox was made in %.1f ms, and forked in %.1f ms",
		 ms(c->began_ns, c->created_ns), ms(c->created_ns, c->forked_ns));
	c->fn(c->arg, text, true);
}

static void clean_up(struct canary *c);

static void on_deleted(void *arg, const struct failure *f)
{
	struct canary *c = arg;

	c->op = NULL;
	if (f)
		note(c, "delete the sandbox", f);
	clean_up(c);
}

/* Deletes what is left, the child first; then ends. */
static void clean_up(struct canary *c)
{
	char id[SANDBOX_ID_LEN + 1];
	char *left = c->child[0] ? c->child : c->parent;

	if (!left[0]) {
		finish(c);
		return;
	}
	memcpy(id, left, sizeof(id));
	left[0] = '\0';
	c->op = c->env.remove(c->env.service, TENANT, id, on_deleted, c);
}

static void on_forked(void *arg, const struct service_forked *forked, const struct failure *f)
{
	struct canary *c = arg;

	c->op = NULL;
	c->forked_ns = now_ns();
	if (f)
		note(c, "fork the sandbox", f);
	else
		snprintf(c->child, sizeof(c->child), "%s", forked->ids[0]);
	clean_up(c);
}

static void on_created(void *arg, const struct sandbox_view *view, const struct failure *f)
{
	struct canary *c = arg;

	c->op = NULL;
	c->created_ns = now_ns();
	if (f) {
		note(c, "make a sandbox", f);
		finish(c);
		return;
	}
	memcpy(c->parent, view->id, sizeof(c->parent));
	c->op = c->env.fork(c->env.service, TENANT, c->parent,
			    &(struct fork_spec){.n = 1, .reseed = true}, on_forked, c);
}

struct canary *canary_start(const struct command_env *env,
			    void (*fn)(void *arg, const char *text, bool well), void *arg)
{
	const struct sandbox_spec spec = {
		.config = {.timeout_s = LIFETIME_S, .idle_timeout_s = LIFETIME_S}};
	struct canary *c = must_alloc(sizeof(*c));

	*c = (struct canary){.env = *env, .fn = fn, .arg = arg, .began_ns = now_ns()};
	c->op = env->create(env->service, TENANT, &spec, on_created, c);
	return c;
}
