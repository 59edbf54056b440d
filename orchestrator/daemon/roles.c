// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/daemon/roles.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/io/log-writer.h"
#include "orchestrator/operator/posture.h"
#include "orchestrator/daemon/service.h"
#include "orchestrator/warden/limits.h"
#include "orchestrator/warden/warden.h"

static void log_warning(void *arg, const char *sentence)
{
	log_warn("%s", sentence);
}

int role_warden(const struct config *config, struct warden_record *record, bool crashed)
{
	char *const argv[] = {"rametd", "--role=service", NULL};
	struct err e;

	log_init("warden", config_log_level(config));
	log_set_json(config->log_format[0] == 'j');
	if (geteuid() != 0) {
		log_error("rametd must be started as root, to make jails; the service itself runs "
			  "as account %s",
			  config->user);
		return EXIT_FAILED;
	}
	/* Keep the program open, so that a restart of the service runs the same version as this. */
	scoped_fd int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (self < 0) {
		log_error("open /proc/self/exe: %s; is /proc mounted?", strerror(errno));
		return EXIT_FAILED;
	}
	posture_check_host(config->core_scheduling[0] == 'y', log_warning, NULL);
	limits_check_host(config, log_warning, NULL);
	struct warden_options options = {
		.config = config,
		.service = self,
		.service_argv = argv,
		.supervisor = getppid(),
		.record = record,
		.crashed = crashed,
	};
	if (warden_run(&options, &e) < 0) {
		log_error("%s", e.text);
		return EXIT_FAILED;
	}
	return EXIT_FINE;
}

/* Takes over the descriptors that the warden passes: a packet socket, the settings, and the socket
 * for operators' commands. */
static int take_over(struct config *config, struct err *e)
{
	int type = 0;
	socklen_t len = sizeof(type);

	if (getsockopt(WARDEN_SOCKET_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 ||
	    type != SOCK_SEQPACKET)
		return err_say(e, EINVAL,
			       "only the warden may start --role=service; start rametd without it");
	if (pread(WARDEN_CONFIG_FD, config, sizeof(*config), 0) != (ssize_t)sizeof(*config))
		return err_say(e, EINVAL, "the settings from the warden are incomplete");
	close(WARDEN_CONFIG_FD);
	fcntl(WARDEN_SOCKET_FD, F_SETFD, FD_CLOEXEC);
	fcntl(WARDEN_ADMIN_FD, F_SETFD, FD_CLOEXEC);
	return 0;
}

int role_service(void)
{
	struct config config;
	struct err e;

	/* Before any other call of OpenSSL: a worker may be inside OpenSSL when the process exits,
	 * and would crash if an exit handler cleaned up at the same time. */
	OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
	log_init("service", LOG_INFO);
	if (take_over(&config, &e) < 0) {
		log_error("%s", e.text);
		return WARDEN_SETUP_EXIT;
	}
	log_init("service", config_log_level(&config));
	log_set_json(config.log_format[0] == 'j');
	int status = service_run(&config, WARDEN_SOCKET_FD, WARDEN_ADMIN_FD);
	log_writer_flush();
	return status;
}
