// SPDX-License-Identifier: Apache-2.0
/*
 * The one privileged process. It starts the service, restarts it when it dies, and makes and
 * removes jails for it (proto/warden.h). One thread, one epoll loop; it waits for nobody.
 */
#ifndef RAMET_ORCHESTRATOR_WARDEN_WARDEN_H
#define RAMET_ORCHESTRATOR_WARDEN_WARDEN_H

#include <sys/types.h>

#include "base/err.h"
#include "orchestrator/config/config.h"

/* What the service finds open; its exit status when it can't start at all. */
#define WARDEN_SOCKET_FD  3 /* proto/warden.h is spoken on it */
#define WARDEN_CONFIG_FD  4 /* a sealed memfd with a struct config */
#define WARDEN_ADMIN_FD	  5 /* RUN_DIR/admin.sock, listening (orchestrator/admin) */
#define WARDEN_RING_FD	  6 /* memory for the audit log (orchestrator/audit) */
#define WARDEN_NOTIFY_FD  7 /* counters of the webhooks (orchestrator/notify/notify.h) */
#define WARDEN_SETUP_EXIT 78

struct warden_options {
	const struct config *config;
	int service;			/* executable */
	char *const *service_argv;	/* NULL-terminated */
	pid_t supervisor;		/* shares our cgroup; 0: none */
	const char *const *controllers; /* NULL: cgroup_controllers; tests may ask for fewer */
};

/*
 * Runs until SIGTERM or SIGINT: then the service ends in order, every VM is killed and all that
 * was made is removed. Returns 0; or -errno when it could not start, or when the first service
 * failed with WARDEN_SETUP_EXIT (which has told why) and no VM was there.
 */
int warden_run(const struct warden_options *options, struct err *e);

#endif
