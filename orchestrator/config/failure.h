// SPDX-License-Identifier: Apache-2.0
/* Why a request to the service failed, in the terms of docs/api.md. */
#ifndef RAMET_ORCHESTRATOR_CONFIG_FAILURE_H
#define RAMET_ORCHESTRATOR_CONFIG_FAILURE_H

#include <stdint.h>

#include "base/err.h"

/* Each code has a word for clients in failure.c and an HTTP status in orchestrator/http/status.c.
 * If clients get the same word with two statuses, it has two codes. */
enum failure_code {
	FAIL_NONE, /* no failure */

	/* The request is wrong. */
	FAIL_OUT_OF_RANGE,
	FAIL_BAD_PATH,
	FAIL_UNKNOWN_TEMPLATE,
	FAIL_PTY_FAILED,
	FAIL_PROCESS_FAILED,
	FAIL_TOO_LARGE,
	FAIL_BAD_ARCHIVE,

	/* The request names something that does not exist. */
	FAIL_NOT_FOUND,
	FAIL_NO_SUCH_FILE,
	FAIL_NO_SUCH_PTY,
	FAIL_NO_SUCH_PROCESS,
	FAIL_NOT_SHARED,
	FAIL_NO_SUCH_CONTEXT,

	/* The sandbox has ended. */
	FAIL_DELETED,
	FAIL_EXPIRED,
	FAIL_STOPPED,
	FAIL_VM_DIED,
	FAIL_FROZEN,
	FAIL_MERGED,
	FAIL_TREE_ENDED, /* "tree_limit": ended, as its tree had no time or room left */

	/* The state of a sandbox, Space, file or process does not allow the request. */
	FAIL_FREEZING,
	FAIL_NOT_A_DESCENDANT,
	FAIL_MERGED_DURING_CALL, /* "merged": a merge ended the call */
	FAIL_ROLLED_BACK,
	FAIL_SPACE_DAMAGED,
	FAIL_CHECKPOINT_DAMAGED,
	FAIL_PINNED,
	FAIL_NO_UNDO,
	FAIL_EGRESS_CLOSED,
	FAIL_IN_USE, /* "busy": another request uses the Space, or another backup runs */
	FAIL_IS_A_DIRECTORY,
	FAIL_NOT_A_DIRECTORY,
	FAIL_NOT_A_FILE,
	FAIL_FILE_EXISTS,
	FAIL_NOT_EMPTY,
	FAIL_FILE_BUSY,
	FAIL_FILE_CHANGED,
	FAIL_PTY_ENDED,
	FAIL_NOT_INSTALLED,
	FAIL_INTERPRETER,
	FAIL_PTY_FULL,
	FAIL_PROCESS_ENDED,
	FAIL_STDIN_CLOSED,
	FAIL_STDIN_FULL,
	FAIL_NOT_PERMITTED,
	FAIL_DISK_FULL,

	/* A limit of the sandbox or tenant is reached. */
	FAIL_QUEUE_FULL,
	FAIL_TOO_MANY,
	FAIL_CAP_REACHED,
	FAIL_QUOTA_REACHED,
	FAIL_TREE_LIMIT,

	/* A server in the guest can't be reached. */
	FAIL_PORT_CLOSED,
	FAIL_PORT_LOST,
	FAIL_PORT_SILENT,
	FAIL_PORT_ANSWER,

	/* The host that has the sandbox can't be reached, or failed. */
	FAIL_HOST_UNREACHABLE,
	FAIL_HOST_LOST,
	FAIL_HOST_FAILED,

	/* The guest's agent failed. */
	FAIL_AGENT_ERROR,
	FAIL_AGENT_LOST,
	FAIL_NOT_FORKED,

	/* The service can't fulfil the request now. */
	FAIL_STOPPING,
	FAIL_NOT_READY,
	FAIL_NO_CAPACITY,
	FAIL_DRAINING,
	FAIL_NO_WARM, /* the answer to another host of the fleet, never to a client */
	FAIL_HOST_CLOSED,
	FAIL_NO_MEMORY,
	FAIL_SERVICE_BUSY, /* "busy": a limit of the whole service is reached */
	FAIL_VM_FAILED,
	FAIL_TEMPLATE_FAILED,
	FAIL_PRIVATE_COPY,
	FAIL_FORK_FAILED,
	FAIL_FREEZE_FAILED,
	FAIL_RESUME_FAILED,
	FAIL_START_FAILED,
	FAIL_CATALOGUE,
	FAIL_BACKUP_FAILED,

	FAILURE_CODES
};

struct failure {
	enum failure_code code;
	unsigned retry_after; /* seconds; 0: none */
	/* FAIL_CAP_REACHED or FAIL_QUOTA_REACHED in a fleet: units of the limit that are missing on
	 * this host, but may be free on other hosts; 0: other hosts can't help */
	uint32_t lacks;
	unsigned limit; /* the limit that is reached; enum tenant_limit */
	char text[ERR_TEXT_MAX];
};

/* Returns the code's word: short, stable, a string constant. `code` is not FAIL_NONE. */
const char *failure_code_name(enum failure_code code);

/* Fills in *f; the text is cut to what fits. `code` is not FAIL_NONE. */
void failure_set(struct failure *f, enum failure_code code, unsigned retry_after,
		 const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
