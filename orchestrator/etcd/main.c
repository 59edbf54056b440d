// SPDX-License-Identifier: Apache-2.0
/*
 * ramet-fleet: keeps this host's card in etcd, and writes the table of the fleet's hosts, which
 * rametd reads. It has its own user. If ramet-fleet ends, for whatever reason, rametd goes on with
 * the last table, and the next process takes over.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/etcd/order.h"
#include "orchestrator/etcd/session.h"

static const char usage[] =
	"usage: ramet-fleet [SETTINGS [TABLES]]\n"
	"       ramet-fleet --check [SETTINGS]\n"
	"       ramet-fleet --drain=HOST [--deadline=TIME] [SETTINGS [TABLES]]\n"
	"       ramet-fleet {--undrain=HOST | --forget=HOST} [SETTINGS [TABLES]]\n"
	"\n"
	"Keeps this host in its fleet. SETTINGS is the folder with fleet.json and the "
	"certificates\n"
	"(/etc/ramet/fleet), TABLES the one for hosts.json (/var/lib/ramet-fleet).\n"
	"--check asks each member of etcd for its state. The other options give the host with that "
	"name\n"
	"or number an order, as `rametctl host` does. TIME is like 90s, 30m, 12h or 2d.\n";

struct arguments {
	bool check;
	bool explained;	  /* what is wrong with them was printed */
	const char *host; /* the host that gets an order; NULL: no order is given */
	struct order order;
	const char *certificates, *tables;
};

static bool parse_option(struct arguments *out, int option)
{
	const int64_t now = realtime_ms() / 1000;
	int64_t in;

	switch (option) {
	case 'c':
		out->check = true;
		return true;
	case 't':
		if (out->order.kind != ORDER_DRAIN)
			return false;
		if (!order_time_parse(optarg, &in)) {
			fprintf(stderr,
				"ramet-fleet: --deadline must be " ORDER_TIME_FORM
				", not \"%.60s\"\n",
				optarg);
			out->explained = true;
			return false;
		}
		out->order.deadline = now + in;
		return true;
	case 'd':
		out->order = (struct order){ORDER_DRAIN, .at = now};
		break;
	case 'u':
		out->order = (struct order){ORDER_SERVE, .at = now};
		break;
	case 'f':
		out->order = (struct order){ORDER_FORGET, .at = now};
		break;
	default:
		return false;
	}
	if (out->host)
		return false;
	out->host = optarg;
	return true;
}

static bool parse(struct arguments *out, int argc, char *argv[])
{
	static const struct option options[] = {
		{"check", no_argument, NULL, 'c'},
		{"drain", required_argument, NULL, 'd'},
		{"deadline", required_argument, NULL, 't'},
		{"undrain", required_argument, NULL, 'u'},
		{"forget", required_argument, NULL, 'f'},
		{NULL, 0, NULL, 0},
	};
	int option;

	*out = (struct arguments){.certificates = "/etc/ramet/fleet",
				  .tables = "/var/lib/ramet-fleet"};
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0)
		if (!parse_option(out, option))
			return false;
	if (optind < argc)
		out->certificates = argv[optind++];
	if (optind < argc)
		out->tables = argv[optind++];
	return optind == argc && !(out->check && out->host);
}

/* Notifies systemd, which then starts rametd. */
static void notify_ready(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	if (!path || strlen(path) >= sizeof(at.sun_path))
		return;
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	if (at.sun_path[0] == '@')
		at.sun_path[0] = '\0';
	scoped_fd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 ||
	    sendto(fd, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *)&at,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path))) < 0)
		log_warn("cannot tell systemd that there is a table: %s", strerror(errno));
}

/* Prevents other processes of this user from reading the memory, which has the key to etcd. */
static void hide(void)
{
	const struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
}

static _Noreturn void serve(struct session *s)
{
	while (!session_has_table(s))
		session_turn(s);
	notify_ready();
	for (;;)
		session_turn(s);
}

static int run(const struct fleet_settings *settings, const char *certificates, const char *tables,
	       struct err *e)
{
	struct session *s;
	int ret = session_new(&s, settings, certificates, tables, e);

	if (ret < 0)
		return ret;
	hide();
	serve(s);
}

static int act(const struct arguments *args, const struct fleet_settings *settings, struct err *e)
{
	if (args->check)
		return session_check(settings, args->certificates, e);
	if (args->host)
		return session_order(settings, args->certificates, args->tables, args->host,
				     &args->order, e);
	return run(settings, args->certificates, args->tables, e);
}

/* Prints the error of a command, whose caller reads it, without the time of a line in the log. */
static void report(const struct arguments *args, const struct err *e)
{
	if (args->check || args->host)
		fprintf(stderr, "ramet-fleet: %s\n", e->text);
	else
		log_error("%s", e->text);
}

int main(int argc, char *argv[])
{
	struct fleet_settings settings = {0};
	struct arguments args;
	struct err e;

	log_init("fleet", LOG_INFO);
	signal(SIGPIPE, SIG_IGN);
	umask(027);
	if (!parse(&args, argc, argv)) {
		if (!args.explained)
			fputs(usage, stderr);
		return 2;
	}
	int ret = fleet_settings_load(&settings, args.certificates, &e);
	if (ret == 0)
		ret = act(&args, &settings, &e);
	fleet_settings_free(&settings);
	if (ret < 0)
		report(&args, &e);
	return ret < 0;
}
