// SPDX-License-Identifier: Apache-2.0
/*
 * The available templates, as a worker last found them. A worker searches at the start,
 * periodically, and for each list that a client requests. A list waits for a search that began
 * after the request; all lists requested during one search share the next. A create searches for
 * its template itself.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/core/internal.h"
#include "orchestrator/io/disk-job.h"

static void add(struct sources *s, const struct config *config, const char *name)
{
	struct known_source *known = &s->all[s->n];
	struct err e = {0};

	known->ret = source_find(config, name, &known->source, &e);
	snprintf(known->reason, sizeof(known->reason), "%s", e.text);
	s->n += known->ret != -ENOENT; /* -ENOENT: removed meanwhile */
}

static struct sources *sources_read(const struct config *config)
{
	char **names = source_names(config);
	size_t n = 1;

	while (names && names[n - 1])
		n++;
	struct sources *s = must_alloc(sizeof(*s) + n * sizeof(s->all[0]));
	add(s, config, TEMPLATE_DEFAULT);
	for (char **name = names; name && *name; name++)
		add(s, config, *name);
	source_names_free(names);
	return s;
}

const struct known_source *sources_find(const struct sources *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (!strcmp(s->all[i].source.name, name))
			return &s->all[i];
	return NULL;
}

struct look {
	struct config config;
	struct sources *found;
};

static void look_free(void *arg)
{
	struct look *what = arg;

	free(what->found);
	free(what);
}

static int look(struct disk_job *job)
{
	struct look *what = job->what;

	what->found = sources_read(&what->config);
	return 0;
}

static void finish_all(struct list *calls, const struct failure *f)
{
	list_each_safe (pos, calls)
		call_finish(container_of(pos, struct core_call, link), f);
}

static void stop_waiting(struct core *c)
{
	struct failure f;

	failure_set(&f, 503, "stopping", 5, "the service is stopping");
	finish_all(&c->later_looks, &f);
}

static void on_looked(void *arg, struct disk_job *job)
{
	struct core *c = arg;
	struct look *what = job->what;
	struct failure f;

	c->sources_job = NULL;
	failure_set(&f, 503, "no_memory", 5, "%s", job->err.text);
	finish_all(&c->looks, what->found ? NULL : &f);
	if (what->found) {
		free(c->sources);
		c->sources = what->found;
		what->found = NULL;
		pool_check(c);
	}
	if (c->closing)
		stop_waiting(c);
	else if (!list_empty(&c->later_looks))
		sources_refresh(c);
}

void sources_refresh(struct core *c)
{
	if (c->sources_job || c->closing)
		return;
	struct look *what = must_alloc(sizeof(*what));
	what->config = c->config;
	list_move_all(&c->looks, &c->later_looks);
	c->sources_job = disk_job_start(c->loop, look, what, 0, on_looked, c);
	c->sources_job->free_what = look_free;
}

static const struct call_ops look_ops = {
	.passive = true,
};

struct core_call *core_templates_look(struct core *c, core_done_fn *fn, void *arg)
{
	struct core_call *call = call_new(c, &look_ops, arg);

	call->done_fn = fn;
	list_add_tail(&c->later_looks, &call->link);
	if (c->closing && !c->sources_job)
		stop_waiting(c);
	else
		sources_refresh(c);
	return call;
}

void sources_load(struct core *c)
{
	c->sources = sources_read(&c->config);
}

void sources_free(struct core *c)
{
	disk_job_cancel(c->sources_job);
	free(c->sources);
}
