// SPDX-License-Identifier: Apache-2.0
/*
 * The environment of templates, the pool and VM bring-ups, and the questions that they ask the rest
 * of the service. The environment and all that it points to must outlive the objects made with it.
 */
#ifndef RAMET_ORCHESTRATOR_IMAGES_TEMPLATE_ENV_H
#define RAMET_ORCHESTRATOR_IMAGES_TEMPLATE_ENV_H

#include <stdbool.h>

#include "orchestrator/config/config.h"
#include "orchestrator/io/deferred.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/vm/inspector.h"
#include "orchestrator/vm/vmproc.h"

struct template;

/* All functions are called on the loop's thread, with the environment's `arg` first. */
struct template_env_ops {
	/* Returns whether the service is stopping: nothing new is started then. */
	bool (*is_closing)(void *arg);
	/* Returns whether a request of a client is in flight. */
	bool (*has_requests)(void *arg);
	/* Returns whether requests in flight will need VMs that they don't have yet. */
	bool (*needs_vms)(void *arg);
	/* Returns whether the disk is too full for images that nobody has requested. */
	bool (*disk_is_low)(void *arg);
	/* Returns whether the tenant has sandboxes, or requests in flight that make some. */
	bool (*tenant_has_sandboxes)(void *arg, const char *tenant);
	/* An image is ready, or other templates were found. */
	void (*changed)(void *arg);
	/* Keeps warm sandboxes of a ready template with disks of this size permanently, if there is
	 * room for them. */
	void (*keep_warm)(void *arg, struct template *t, uint32_t rootfs_gb);
	/* A sandbox was made for a client, or ahead of need, or could not be made. */
	void (*made)(void *arg, bool well);
};

struct template_env {
	struct loop *loop;
	const struct config *config;
	struct deferred_queue *deferred;
	struct vmproc_host *vms;
	const struct inspector *inspector;
	const struct template_env_ops *ops;
	void *arg; /* the service */
};

#endif
