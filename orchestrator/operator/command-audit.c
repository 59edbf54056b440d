// SPDX-License-Identifier: Apache-2.0
/* rametctl audit: the events in the catalogue. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/operator/command.h"
#include "orchestrator/store/store.h"

/* Events in an answer of the service, which rametctl asks for again and again. */
#define BATCH 256

struct listing {
	struct store_events_range rest; /* after the last event listed */
	unsigned n;
	FILE *out;
};

static bool list_one(void *arg, const struct logged_event *event)
{
	struct listing *l = arg;

	l->rest.after = event->n;
	l->n++;
	fwrite(event->line, 1, event->len, l->out);
	fputc('\n', l->out);
	return true;
}

static int read_since(const char *value, uint64_t *out, struct err *e)
{
	char *end;

	*out = 0;
	if (!value)
		return 0;
	errno = 0;
	unsigned long long n = strtoull(value, &end, 10);
	if (errno || *value < '0' || *value > '9' || *end)
		return err_say(e, EINVAL,
			       "--since must be the number (\"n\") of an event, not \"%.40s\"",
			       value);
	*out = n;
	return 0;
}

static int audit(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		 struct err *e)
{
	struct option_value options[] = {{"--since", NULL}};
	struct listing l = {.n = BATCH, .out = out};

	int ret = command_options(argc, argv, options, ARRAY_LEN(options), NULL, 0, e);
	if (ret == 0)
		ret = read_since(options[0].value, &l.rest.after, e);
	while (ret == 0 && l.n == BATCH) {
		l.n = 0;
		ret = store_events(env->store, &l.rest, BATCH, list_one, &l, e);
		/* The service answers with one batch; rametctl asks it for the next one. */
		if (env->rest)
			break;
	}
	return ret;
}

const struct command audit_commands[] = {
	{"audit", "[--since N] [--follow]",
	 "shows the events of sandboxes and keys after number N, and with --follow new ones", audit,
	 OWN_OPTIONS, COMMAND_AT_ONCE},
	{NULL, NULL, NULL, NULL, 0, COMMAND_AT_ONCE},
};
