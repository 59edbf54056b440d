// SPDX-License-Identifier: Apache-2.0
/* Commands on the sandboxes and the state of this host. */
#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "base/fd.h"
#include "orchestrator/operator/command.h"
#include "orchestrator/operator/host-commands.h"
#include "orchestrator/service/service.h"

#define AGE_MAX 48

/* Prints a duration with two units: "3d4h", "12m5s". */
static void print_age(char out[static AGE_MAX], uint64_t seconds)
{
	static const struct {
		uint64_t seconds;
		const char *unit, *less;
	} units[] = {{86400, "d", "h"}, {3600, "h", "m"}, {60, "m", "s"}};
	static const uint64_t below[] = {3600, 60, 1};

	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		if (seconds < units[i].seconds)
			continue;
		snprintf(out, AGE_MAX, "%" PRIu64 "%s%" PRIu64 "%s", seconds / units[i].seconds,
			 units[i].unit, seconds % units[i].seconds / below[i], units[i].less);
		return;
	}
	snprintf(out, AGE_MAX, "%" PRIu64 "s", seconds);
}

struct table {
	FILE *out;
	int64_t now_ms;
};

static const struct list_name everything = {.kind = LIST_SANDBOXES};

/* Lists the sandboxes that exist now, with calls of `more`: in parts if the caller can continue
 * later, otherwise all at once. */
static void list_all(const struct command_env *env, FILE *out,
		     bool (*more)(const struct command_env *env, struct command_rest *rest,
				  FILE *out))
{
	struct command_rest here = {0}, *rest = env->rest ? env->rest : &here;
	struct failure f;

	*rest = (struct command_rest){.more = more};
	service_page(env->service, &everything, SIZE_MAX, &rest->page, &f);
	while (rest == &here && more(env, rest, out))
		;
}

static void list_one(void *arg, const struct sandbox_view *v)
{
	const struct table *t = arg;
	char age[AGE_MAX], idle[AGE_MAX], size[40];

	print_age(age, (uint64_t)(t->now_ms > v->created_at_ms ? t->now_ms - v->created_at_ms : 0) /
			       1000);
	print_age(idle, v->idle_ms / 1000);
	snprintf(size, sizeof(size), "%ux%u", v->config.size.ram_mib, v->config.size.vcpus);
	fprintf(t->out, "%-36s  %-7s  %-12s  %-12s  %-8s  %-7s  %-7s  %6" PRIu64 " MiB  %s\n",
		v->id, v->state, v->tenant, v->config.template, size, age, idle,
		v->memory.private_bytes >> 20, v->parent ? v->parent : "-");
}

static void list_lost(void *arg, const char *id, int64_t removed_at_ms)
{
	char time[COMMAND_TIME_LEN + 1];

	command_time(removed_at_ms, time);
	fprintf(arg,
		"# space %s is on the disk but not in the catalogue: its files will be removed "
		"on %s\n",
		id, time);
}

static bool list_some(const struct command_env *env, struct command_rest *rest, FILE *out)
{
	struct table table = {out, realtime_ms()};

	if (service_list(env->service, &everything, &rest->page, COMMAND_LINES, list_one, &table))
		return true;
	service_spaces_lost(env->service, list_lost, out);
	return false;
}

static int ls(const struct command_env *env, int argc, const char *const argv[], FILE *out,
	      struct err *e)
{
	fprintf(out, "%-36s  %-7s  %-12s  %-12s  %-8s  %-7s  %-7s  %10s  %s\n", "ID", "STATE",
		"TENANT", "TEMPLATE", "SIZE", "AGE", "IDLE", "MEMORY", "PARENT");
	list_all(env, out, list_some);
	return 0;
}

static void list_process(void *arg, const struct sandbox_view *v)
{
	fprintf(arg, "%s\t%" PRIu32 "\t%s\t%s\t%s\n", v->id, v->pid, v->state, v->tenant,
		v->config.template);
}

static bool list_processes(const struct command_env *env, struct command_rest *rest, FILE *out)
{
	return service_list(env->service, &everything, &rest->page, COMMAND_LINES, list_process,
			    out);
}

static int processes(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		     struct err *e)
{
	list_all(env, out, list_processes);
	return 0;
}

static void list_check(void *arg, const char *name, const char *reason)
{
	fprintf(arg, "%-8s  %s\n", name, reason ? reason : "ok");
}

static int checks(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		  struct err *e)
{
	service_checks(env->service, list_check, out);
	return 0;
}

static int loads(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		 struct err *e)
{
	return env->peers ? 0 : err_say(e, ENOENT, "this host is in no fleet");
}

/* Exists for the help text of commands that `rametctl` runs itself: it draws the view of `top` from
 * the output of `processes`, and `doctor` checks files that the service cannot read. */
static int by_rametctl(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		       struct err *e)
{
	return err_say(e, EINVAL,
		       "rametctl runs this command by itself: the service cannot run it");
}

#define ROW(words, arguments, help, run, n_plain, wait)                                            \
	{words, arguments, help, run, n_plain, wait},

/* For `backup`, the service sends a descriptor of the copy to `rametctl`, which writes the file and
 * copies the Spaces, because the service cannot write where operators can. */
const struct command host_commands[] = {
	HOST_COMMANDS(ROW){NULL, NULL, NULL, NULL, 0, COMMAND_AT_ONCE}};
