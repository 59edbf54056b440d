// SPDX-License-Identifier: Apache-2.0
/* All templates of the service, from its start to its end. */
#include <stdlib.h>

#include "base/elements.h"
#include "orchestrator/images/template-internal.h"

struct templates *templates_new(const struct template_env *env)
{
	struct templates *ts = must_alloc(sizeof(*ts));

	ts->env = env;
	return ts;
}

/* The default template is always kept ready: it retries by itself. */
static void on_default(void *arg, const struct failure *f)
{
}

void templates_start(struct templates *ts)
{
	templates_sweep(ts->env->config);
	ts->busy_ms = loop_now_ms(ts->env->loop);
	sources_load(ts);
	const struct source *from = &ts->sources->all[0].source;
	ts->def = template_get(ts, from, &from->size);
	template_wait(ts->def, &ts->def_wait, on_default, ts);
}

void templates_close(struct templates *ts)
{
	struct failure f;

	failure_set(&f, FAIL_STOPPING, 0, "the service is stopping");
	if (ts->ahead)
		template_unwait(&ts->ahead_wait);
	list_each_of (t, struct template, link, &ts->all)
		template_close(t, &f);
}

void templates_free(struct templates *ts)
{
	if (!ts)
		return;
	template_unwait(&ts->def_wait);
	if (ts->ahead)
		template_unwait(&ts->ahead_wait);
	list_drain_of (t, struct template, link, &ts->all)
		template_free(t);
	sources_free(ts);
	free(ts);
}

/* --- while it runs --------------------------------------------------------------------------- */

struct template *templates_default(const struct templates *ts)
{
	return ts->def;
}

struct template *templates_building(const struct templates *ts)
{
	return ts->building;
}

bool templates_preparing(const struct templates *ts)
{
	return ts->building || ts->ahead;
}

uint64_t templates_boots(const struct templates *ts)
{
	return ts->boots;
}

uint64_t templates_unlisted(const struct templates *ts)
{
	return ts->unlisted;
}

void templates_housekeeping(struct templates *ts)
{
	sources_refresh(ts);
}
