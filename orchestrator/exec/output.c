// SPDX-License-Identifier: Apache-2.0
/*
 * Frees held output when the budget is exceeded. The tenant that holds most loses its oldest events
 * first. When it has none left, its long unfinished lines are delivered in parts.
 */
#include "orchestrator/exec/internal.h"
#include "orchestrator/sandbox/tenant.h"

#define DROP_MIN_BYTES (64u << 10) /* dropped at least, since each drop rewrites a journal */

/* Returns the sandbox with the account's oldest event; NULL when there is no event. */
static struct sandbox *oldest(const struct output_account *a)
{
	const struct tenant *t = a->owner;
	struct sandbox *found = NULL;

	for (size_t i = 0; t && i < t->sandboxes.n; i++) {
		struct sandbox *s = container_of(t->sandboxes.all[i], struct sandbox, listed);

		if (exec_of(s)->replay.count &&
		    (!found || replay_since_ms(&exec_of(s)->replay) <
				       replay_since_ms(&exec_of(found)->replay)))
			found = s;
	}
	return found;
}

static void drop_older_half(struct sandbox *s)
{
	size_t half = exec_of(s)->replay.bytes / 2, held = exec_of(s)->replay.bytes;

	replay_drop(&exec_of(s)->replay, half > DROP_MIN_BYTES ? half : DROP_MIN_BYTES);
	exec_of_service(s->service)->output_dropped_bytes += held - exec_of(s)->replay.bytes;
	exec_keep_all(s, REPLAY_BYTES_MAX);
}

static struct sandbox *with_long_line(const struct output_account *a)
{
	const struct tenant *t = a->owner;

	for (size_t i = 0; t && i < t->sandboxes.n; i++) {
		struct sandbox *s = container_of(t->sandboxes.all[i], struct sandbox, listed);

		if (exec_has_long_line(s))
			return s;
	}
	return NULL;
}

/* Runs deferred from the loop, since each line that is cut emits an event. */
static void cut_lines(void *arg)
{
	struct service *c = arg;
	struct sandbox *s;

	while (output_is_over(&exec_of_service(c)->output) &&
	       (s = with_long_line(output_heaviest(&exec_of_service(c)->output))))
		exec_cut_lines(s);
}

void output_trim(struct service *c)
{
	while (output_is_over(&exec_of_service(c)->output)) {
		struct output_account *a = output_heaviest(&exec_of_service(c)->output);
		struct sandbox *s = oldest(a);

		if (s) {
			drop_older_half(s);
			continue;
		}
		if (with_long_line(a))
			deferred_run(&c->deferred, &exec_of_service(c)->output_deferred, cut_lines,
				     c);
		return;
	}
}
