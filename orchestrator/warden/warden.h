// SPDX-License-Identifier: Apache-2.0
/*
 * The only privileged process. It starts the service, restarts it when it dies, and creates and
 * removes jails for it (proto/warden.h). One thread and one epoll loop, which never blocks.
 */
#ifndef RAMET_ORCHESTRATOR_WARDEN_WARDEN_H
#define RAMET_ORCHESTRATOR_WARDEN_WARDEN_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/warden/account.h"
#include "orchestrator/warden/record.h"

/* Descriptors that the service inherits, and its exit status when it cannot start at all. */
#define WARDEN_SOCKET_FD  3 /* the service's socket for proto/warden.h */
#define WARDEN_CONFIG_FD  4 /* a sealed memfd with a struct config */
#define WARDEN_ADMIN_FD	  5 /* RUN_DIR/admin.sock, listening (orchestrator/operator) */
#define WARDEN_OUTBOX_FD  6 /* socket to ramet-notify (orchestrator/events/notify.h) */
#define WARDEN_NOTIFY_FD  7 /* counters of ramet-notify (orchestrator/events/notify.h) */
#define WARDEN_SPANS_FD	  8 /* socket to ramet-notify, for spans (orchestrator/events/span.h) */
#define WARDEN_SETUP_EXIT 78

struct warden_options {
	const struct config *config;
	int service;			/* descriptor of the executable */
	char *const *service_argv;	/* NULL-terminated */
	pid_t supervisor;		/* in the warden's cgroup; 0: none */
	struct warden_record *record;	/* NULL: crashes are not recorded */
	bool crashed;			/* a signal other than SIGKILL ended the previous warden */
	const char *const *controllers; /* NULL: cgroup_controllers; tests may ask for fewer */
};

/* Finds the account of the service. Refuses one that belongs to a VM process. */
int warden_account(struct account *out, const struct config *config, struct err *e);

/*
 * Runs until SIGTERM or SIGINT. Then it ends the service in order, kills every VM and removes
 * everything it created. Returns 0, or -errno with *e filled: it could not start; the first service
 * failed with WARDEN_SETUP_EXIT (after logging why) while there was no VM; or VMs could not be
 * killed.
 */
int warden_run(const struct warden_options *options, struct err *e);

#endif
