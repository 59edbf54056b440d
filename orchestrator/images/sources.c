// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/images/template-internal.h"
#include "orchestrator/io/disk-job.h"

static void add(struct known_sources *s, const struct config *config, const char *name)
{
	struct known_source *known = &s->all[s->n];
	struct err e = {0};

	known->ret = source_find(config, name, &known->source, &e);
	snprintf(known->reason, sizeof(known->reason), "%s", e.text);
	s->n += known->ret != -ENOENT; /* -ENOENT: removed meanwhile */
}

static struct known_sources *sources_read(const struct config *config)
{
	char **names = source_names(config);
	size_t n = 1;

	while (names[n - 1])
		n++;
	struct known_sources *s = must_alloc(sizeof(*s) + n * sizeof(s->all[0]));
	add(s, config, TEMPLATE_DEFAULT);
	for (char **name = names; *name; name++)
		add(s, config, *name);
	source_names_free(names);
	return s;
}

struct look {
	struct config config;
	struct known_sources *found;
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

static void stop_waiting(struct templates *ts)
{
	struct failure f;

	failure_set(&f, FAIL_STOPPING, 5, "the service is stopping");
	waiters_answer(&ts->next_looks, &f);
}

static void on_looked(void *arg, struct disk_job *job)
{
	struct templates *ts = arg;
	struct look *what = job->what;
	struct failure f;

	ts->sources_job = NULL;
	failure_set(&f, FAIL_NO_MEMORY, 5, "%s", job->job.err.text);
	waiters_answer(&ts->looks, what->found ? NULL : &f);
	if (what->found) {
		free(ts->sources);
		ts->sources = what->found;
		what->found = NULL;
		ts->env->ops->changed(ts->env->arg);
	}
	if (templates_closing(ts))
		stop_waiting(ts);
	else if (!list_empty(&ts->next_looks))
		sources_refresh(ts);
}

void sources_refresh(struct templates *ts)
{
	if (ts->sources_job || templates_closing(ts))
		return;
	struct look *what = must_alloc(sizeof(*what));
	what->config = *ts->env->config;
	list_move_all(&ts->looks, &ts->next_looks);
	ts->sources_job = disk_job_start(ts->env->loop, look, what, 0, on_looked, ts);
	ts->sources_job->free_what = look_free;
}

void sources_look(struct templates *ts, struct waiter *w,
		  void (*fn)(void *arg, const struct failure *f), void *arg)
{
	waiter_add(&ts->next_looks, w, fn, arg);
	if (templates_closing(ts) && !ts->sources_job)
		stop_waiting(ts);
	else
		sources_refresh(ts);
}

void sources_load(struct templates *ts)
{
	ts->sources = sources_read(ts->env->config);
}

void sources_free(struct templates *ts)
{
	disk_job_cancel(ts->sources_job);
	free(ts->sources);
}
