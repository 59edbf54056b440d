// SPDX-License-Identifier: Apache-2.0
/*
 * ramet-fleet: keeps this host's card in etcd, and writes the table of the fleet's hosts, which
 * rametd reads. It has its own user. Whenever it ends, by whatever signal, rametd goes on with the
 * last table, and the next process takes over.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "orchestrator/etcd/session.h"

static const char usage[] =
	"usage: ramet-fleet [--check] [SETTINGS [TABLES]]\n"
	"\n"
	"Keeps this host in its fleet. SETTINGS is the folder with fleet.json and the "
	"certificates\n"
	"(/etc/ramet/fleet), TABLES the one for hosts.json (/var/lib/ramet-fleet).\n"
	"--check asks each member of etcd for its state, and exits.\n";

static int read_settings(struct fleet_settings *out, const char *dir, struct err *e)
{
	char path[512];
	size_t len;

	snprintf(path, sizeof(path), "%s/fleet.json", dir);
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	scoped_free char *text = file_text(fd, SETTINGS_MAX, &len, e);
	if (!text)
		return err_context(e, "%s (`rametctl fleet join` writes it)", path);
	return fleet_settings_read(out, text, len, e) < 0 ? err_context(e, "%s", path) : 0;
}

/* Tells systemd, which then starts rametd. */
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

int main(int argc, char *argv[])
{
	bool check = argc > 1 && strcmp(argv[1], "--check") == 0;
	const char *certificates = argc > 1 + check ? argv[1 + check] : "/etc/ramet/fleet";
	const char *tables = argc > 2 + check ? argv[2 + check] : "/var/lib/ramet-fleet";
	struct fleet_settings settings = {0};
	struct err e;

	log_init("fleet", LOG_INFO);
	signal(SIGPIPE, SIG_IGN);
	umask(027);
	if (argc > 3 + check || (argc > 1 && !check && argv[1][0] == '-')) {
		fputs(usage, stderr);
		return 2;
	}
	int ret = read_settings(&settings, certificates, &e);
	if (ret == 0)
		ret = check ? session_check(&settings, certificates, &e)
			    : run(&settings, certificates, tables, &e);
	fleet_settings_free(&settings);
	if (ret < 0)
		log_error("%s", e.text);
	return ret < 0;
}
