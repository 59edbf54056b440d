// SPDX-License-Identifier: Apache-2.0
/*
 * The templates there are, as a worker found them last: looked for at the start, every now and
 * then, and whenever somebody lists them. A create looks for its own one itself.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/core/disk-job.h"

static void add(struct sources *s, const struct config *config, const char *name)
{
	struct known_source *known = &s->all[s->n];
	struct err e = {0};

	known->ret = source_find(config, name, &known->source, &e);
	snprintf(known->why, sizeof(known->why), "%s", e.text);
	s->n += known->ret != -ENOENT; /* removed just now */
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

static int look(struct disk_job *job)
{
	struct look *what = job->what;

	what->found = sources_read(&what->config);
	return 0;
}

static void on_looked(void *arg, struct disk_job *job)
{
	struct core *c = arg;
	struct look *what = job->what;

	c->sources_job = NULL;
	if (!what->found)
		return;
	free(c->sources);
	c->sources = what->found;
	pool_check(c);
}

void sources_refresh(struct core *c)
{
	if (c->sources_job || c->closing)
		return;
	struct look *what = must_alloc(sizeof(*what));
	what->config = c->config;
	c->sources_job = disk_job_start(c, look, what, 0, on_looked, c);
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
