// SPDX-License-Identifier: Apache-2.0
/* `rametctl host`: shows the hosts of the fleet, and gives them orders by ramet-fleet, which alone
 * speaks to etcd. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "orchestrator/etcd/order.h"
#include "orchestrator/fleet/table.h"
#include "orchestrator/operator/backup.h"
#include "orchestrator/operator/command.h"
#include "orchestrator/operator/fleet.h"

static const char usage[] =
	"usage: rametctl host list [DIR]                print the table of hosts\n"
	"       rametctl host drain HOST [--deadline TIME]\n"
	"                                              give a host no new sandboxes; end the last "
	"ones\n"
	"                                              after TIME, such as 90s, 30m, 12h or 2d\n"
	"       rametctl host undrain HOST              let it have new sandboxes again\n"
	"       rametctl host forget HOST               leave a host that is gone out of the "
	"table\n"
	"HOST is the name or the number of a host. DIR is used instead of fleet_dir, or "
	"of\n" FLEET_TABLES " without that setting.\n";

const char *fleet_option(int argc, char *const argv[])
{
	return argc > 2 && argv[2][0] == '-' && argv[2][1] ? argv[2] : NULL;
}

/* Prints what is wrong with the words of a command: its usage begins with those of each. */
static void print_wrong_words(int argc, char *const argv[], const char *text)
{
	char known[80];

	if (argc < 2) {
		fprintf(stderr, "rametctl: \"%s\" needs a subcommand\n", argv[0]);
		return;
	}
	snprintf(known, sizeof(known), "rametctl %s %s ", argv[0], argv[1]);
	if (strstr(text, known) && fleet_option(argc, argv))
		fprintf(stderr, "rametctl: there is no option \"%.60s\"\n", argv[2]);
	else if (strstr(text, known))
		fprintf(stderr, "rametctl: %s %s has too few arguments, or too many\n", argv[0],
			argv[1]);
	else
		fprintf(stderr, "rametctl: there is no command \"%s %.60s\"\n", argv[0], argv[1]);
}

int fleet_ended(int ret, const struct err *e, int argc, char *const argv[], const char *text)
{
	if (ret == 0)
		return COMMAND_DONE;
	if (!e->text[0]) {
		print_wrong_words(argc, argv, text);
		fputs(text, stderr);
		return COMMAND_USAGE;
	}
	return command_failed(e);
}

/* --- list ------------------------------------------------------------------------------------- */

#define STATE_MAX (COMMAND_TIME_LEN + 32)

static void write_state(char out[static STATE_MAX], const struct fleet_host *h)
{
	char until[COMMAND_TIME_LEN + 1];

	command_time(h->deadline * 1000, until);
	if (h->gone)
		snprintf(out, STATE_MAX, "gone for %lld s%s",
			 (long long)(realtime_ms() / 1000 - h->gone),
			 h->draining ? ", draining" : "");
	else if (h->draining && h->deadline)
		snprintf(out, STATE_MAX, "draining until %s", until);
	else
		snprintf(out, STATE_MAX, "%s", h->draining ? "draining" : "ready");
}

#define COUNT_MAX 16

struct load {
	char sandboxes[COUNT_MAX], free[COUNT_MAX];
};

/* Finds the host's line in the answer to `loads`; NULL: the service gave none. */
static struct load load_of(const char *loads, uint32_t number)
{
	struct load load = {"-", "-"};
	unsigned at, sandboxes, mib;

	while (loads && sscanf(loads, "%u %u %u", &at, &sandboxes, &mib) == 3) {
		if (at == number) {
			snprintf(load.sandboxes, COUNT_MAX, "%u", sandboxes);
			snprintf(load.free, COUNT_MAX, "%.1f GiB", mib / 1024.0);
		}
		loads = strchr(loads, '\n');
		loads += loads != NULL;
	}
	return load;
}

static void show_host(const struct fleet_table *t, const struct fleet_host *h, const char *loads)
{
	char state[STATE_MAX], seen[COMMAND_TIME_LEN + 1] = "now";
	const struct load load = load_of(loads, h->number);

	write_state(state, h);
	if (h->gone)
		command_time(h->seen * 1000, seen);
	printf("%c %-7u %-20s %-24s %-12s %-8s %-10s %9s %11s  %-20s %s\n",
	       h == t->self ? '*' : ' ', h->number, h->name, h->address, h->region, h->zone,
	       h->version, load.sandboxes, load.free, seen, state);
}

const char *hosts_folder(const struct config *config, const char *word)
{
	if (word)
		return word;
	return config->fleet_dir[0] ? config->fleet_dir : FLEET_TABLES;
}

int hosts_read(struct fleet_table **out, const char *tables, struct err *e)
{
	char path[512];
	size_t len;

	snprintf(path, sizeof(path), "%s/hosts.json", tables);
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	scoped_free char *text = file_text(fd, FLEET_TABLE_BYTES, &len, e);
	if (!text)
		return err_context(e, "%s (ramet-fleet writes it once it has joined)", path);
	return fleet_table_read(out, text, len, e) < 0 ? err_context(e, "%s", path) : 0;
}

int hosts_show(const struct config *config, const char *tables, struct err *e)
{
	struct fleet_table *t;
	struct err why;

	if (hosts_read(&t, tables, e) < 0)
		return e->code;
	scoped_free char *loads = service_says(config, "loads", &why);
	printf("fleet %s, cell %u\n  %-7s %-20s %-24s %-12s %-8s %-10s %9s %11s  %-20s %s\n",
	       t->fleet, t->cell, "NUMBER", "NAME", "ADDRESS", "REGION", "ZONE", "VERSION",
	       "SANDBOXES", "FREE MEMORY", "SEEN", "STATE");
	for (size_t i = 0; i < t->n; i++)
		show_host(t, &t->hosts[i], loads);
	if (!loads)
		fprintf(stderr, "rametctl: SANDBOXES and FREE MEMORY are not known: %s\n",
			why.text);
	free(t);
	return fflush(stdout) == 0 ? 0 : err_set(e, errno, "print the hosts");
}

/* --- orders ----------------------------------------------------------------------------------- */

static bool is_order(const char *word)
{
	return strcmp(word, "drain") == 0 || strcmp(word, "undrain") == 0 ||
	       strcmp(word, "forget") == 0;
}

/* Prints what is wrong with the arguments, and returns the exit status. */
static int refuse_order(const struct err *e, const char *more)
{
	fprintf(stderr, "rametctl: %s\n%s", e->text, more);
	return COMMAND_USAGE;
}

/* Becomes `ramet-fleet --drain HOST …`. Returns an exit status if that fails. */
static int give_order(int argc, const char *const argv[])
{
	/* Only a drain has a deadline. */
	struct option_value option = {"--deadline", NULL};
	const size_t n_options = strcmp(argv[1], "drain") == 0;
	char order[16], deadline[64];
	const char *host;
	int64_t seconds;
	struct err e;

	if (command_options(argc - 2, argv + 2, &option, n_options, &host, 1, &e) < 0)
		return refuse_order(&e, usage);
	if (option.value && !order_time_parse(option.value, &seconds)) {
		err_say(&e, EINVAL, "--deadline must be " ORDER_TIME_FORM ", not \"%.60s\"",
			option.value);
		return refuse_order(&e, "");
	}
	snprintf(order, sizeof(order), "--%s", argv[1]);
	snprintf(deadline, sizeof(deadline), "--deadline=%s", option.value ? option.value : "");
	execl(FLEET_PROGRAM, "ramet-fleet", order, host, option.value ? deadline : NULL,
	      (char *)NULL);
	err_set(&e, errno, "execute " FLEET_PROGRAM);
	return command_failed(&e);
}

/* ---------------------------------------------------------------------------------------------- */

int host_help(void)
{
	return fputs(usage, stdout) < 0 || fflush(stdout) != 0 ? COMMAND_FAILED : COMMAND_DONE;
}

int host_command(const struct config *config, int argc, char *const argv[])
{
	struct err e = {0};
	int ret = -EINVAL;

	if (argc > 1 && is_order(argv[1]))
		return give_order(argc, (const char *const *)argv);
	if (argc > 1 && argc < 4 && strcmp(argv[1], "list") == 0 && !fleet_option(argc, argv))
		ret = hosts_show(config, hosts_folder(config, argv[2]), &e);
	return fleet_ended(ret, &e, argc, argv, usage);
}
