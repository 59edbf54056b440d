// SPDX-License-Identifier: Apache-2.0
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/config/config.h"
#include "orchestrator/daemon/check.h"
#include "orchestrator/daemon/roles.h"
#include "orchestrator/daemon/supervisor.h"
#include "orchestrator/operator/posture.h"
#include "orchestrator/warden/limits.h"
#include "orchestrator/warden/record.h"

static const char usage[] =
	"usage: rametd [--config=FILE] [--NAME=VALUE ...]\n"
	"       rametd --check [--config=FILE] [--NAME=VALUE ...]\n"
	"       rametd --example | --help | --version\n"
	"\n"
	"Serves sandboxes in microVMs. Start it as root; it drops to the account in `user`.\n"
	"Each setting comes from its default, the file (" CONFIG_FILE " unless\n"
	"--config names another), the environment (RAMET_NAME) or a flag. Later sources\n"
	"in this list override earlier ones.\n"
	"\n"
	"  --check      check the settings and the files that they name, whether the service may\n"
	"               listen (TLS, a key), and warn of weaknesses of this host that concern the\n"
	"               isolation of VMs and of limits that are too small for max_vms, and exit.\n"
	"               Run it as root: it reads the files as the account in `user`.\n"
	"               Exits with 2 if a setting is wrong, with 1 if a start would fail\n"
	"               for another reason.\n"
	"  --example    print a commented file with every setting\n"
	"\n"
	"SIGTERM or SIGINT: drains running requests, then ends every VM.\n"
	"SIGHUP: upgrades to the installed program; VMs continue, streams break.\n";

struct command {
	bool check, example, help, version, service;
};

/* Removes the flags that are not settings from argv. Returns the number of arguments left. */
static int take_command(struct command *c, int argc, char *argv[])
{
	const struct {
		const char *flag;
		bool *found;
	} flags[] = {
		{"--check", &c->check},	    {"--example", &c->example},	     {"--help", &c->help},
		{"--version", &c->version}, {"--role=service", &c->service}, {"-h", &c->help},
	};
	int kept = 0;

	for (int i = 0; i < argc; i++) {
		bool taken = false;

		for (size_t f = 0; i > 0 && f < ARRAY_LEN(flags); f++)
			if (strcmp(argv[i], flags[f].flag) == 0)
				*flags[f].found = taken = true;
		if (!taken)
			argv[kept++] = argv[i];
	}
	return kept;
}

static int print(const char *text)
{
	return fputs(text, stdout) < 0 || fflush(stdout) != 0 ? EXIT_FAILED : EXIT_FINE;
}

static void print_warning(void *arg, const char *sentence)
{
	fprintf(stderr, "warning: %s\n", sentence);
}

/* Warns if there is no KVM, which can be another host's when an image is made. */
static void check_kvm(void)
{
	if (access("/dev/kvm", F_OK) < 0)
		print_warning(NULL, "there is no /dev/kvm, without which rametd does not start: "
				    "`rametctl doctor` says more");
}

/* Runs --check. The settings were checked when they were loaded. Weaknesses and limits of this host
 * only cause warnings. */
static int check(struct config *config)
{
	unsigned unread;
	struct err e;

	log_init("check", LOG_WARN);
	limits_use_unit(config, "");
	posture_check_host(config->core_scheduling[0] == 'y', print_warning, NULL);
	limits_check_host(config, print_warning, NULL);
	check_kvm();
	if (check_start(config, &unread, print_warning, NULL, &e) < 0) {
		fprintf(stderr, "rametd: %s\n", e.text);
		return EXIT_FAILED;
	}
	if (unread)
		return print("The settings are valid as far as this account can see. As root, this "
			     "command checks all of it.\n");
	return print("The settings are valid.\n");
}

struct warden_arg {
	const struct config *config;
	struct warden_record *record;
};

static int run_warden(const void *arg, bool crashed)
{
	const struct warden_arg *a = arg;

	return role_warden(a->config, a->record, crashed);
}

int main(int argc, char *argv[])
{
	struct command command = {0};
	struct config config;
	struct err e;

	argc = take_command(&command, argc, argv);
	if (command.service)
		return role_service();
	if (command.help)
		return print(usage);
	if (command.version)
		return print("rametd " RAMET_VERSION "\n");
	if (command.example)
		return print(config_example());
	if (config_load(&config, argc, argv, &e) < 0) {
		fprintf(stderr, "rametd: %s\n", e.text);
		return command.check ? EXIT_SETTINGS : EXIT_FAILED;
	}
	if (command.check)
		return check(&config);
	struct warden_arg arg = {&config, warden_record_new()};
	return supervise(run_warden, &arg, argv);
}
