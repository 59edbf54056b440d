// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/config/failure.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const names[FAILURE_CODES] = {
	[FAIL_OUT_OF_RANGE] = "out_of_range",
	[FAIL_BAD_PATH] = "bad_path",
	[FAIL_UNKNOWN_TEMPLATE] = "unknown_template",
	[FAIL_PTY_FAILED] = "pty_failed",
	[FAIL_PROCESS_FAILED] = "process_failed",
	[FAIL_TOO_LARGE] = "too_large",
	[FAIL_BAD_ARCHIVE] = "bad_archive",
	[FAIL_NOT_FOUND] = "not_found",
	[FAIL_NO_SUCH_FILE] = "no_such_file",
	[FAIL_NO_SUCH_PTY] = "no_such_pty",
	[FAIL_NO_SUCH_PROCESS] = "no_such_process",
	[FAIL_NOT_SHARED] = "not_shared",
	[FAIL_NO_SUCH_CONTEXT] = "no_such_context",
	[FAIL_DELETED] = "deleted",
	[FAIL_EXPIRED] = "expired",
	[FAIL_STOPPED] = "stopped",
	[FAIL_VM_DIED] = "vm_died",
	[FAIL_FROZEN] = "frozen",
	[FAIL_MERGED] = "merged",
	[FAIL_TREE_ENDED] = "tree_limit",
	[FAIL_FREEZING] = "freezing",
	[FAIL_NOT_A_DESCENDANT] = "not_a_descendant",
	[FAIL_MERGED_DURING_CALL] = "merged",
	[FAIL_ROLLED_BACK] = "rolled_back",
	[FAIL_SPACE_DAMAGED] = "space_damaged",
	[FAIL_CHECKPOINT_DAMAGED] = "checkpoint_damaged",
	[FAIL_PINNED] = "pinned",
	[FAIL_NO_UNDO] = "no_undo",
	[FAIL_EGRESS_CLOSED] = "egress_closed",
	[FAIL_IN_USE] = "busy",
	[FAIL_IS_A_DIRECTORY] = "is_a_directory",
	[FAIL_NOT_A_DIRECTORY] = "not_a_directory",
	[FAIL_NOT_A_FILE] = "not_a_file",
	[FAIL_FILE_EXISTS] = "file_exists",
	[FAIL_NOT_EMPTY] = "not_empty",
	[FAIL_FILE_BUSY] = "file_busy",
	[FAIL_FILE_CHANGED] = "file_changed",
	[FAIL_PTY_ENDED] = "pty_ended",
	[FAIL_NOT_INSTALLED] = "not_installed",
	[FAIL_INTERPRETER] = "interpreter_failed",
	[FAIL_PTY_FULL] = "pty_full",
	[FAIL_PROCESS_ENDED] = "process_ended",
	[FAIL_STDIN_CLOSED] = "stdin_closed",
	[FAIL_STDIN_FULL] = "stdin_full",
	[FAIL_NOT_PERMITTED] = "not_permitted",
	[FAIL_DISK_FULL] = "disk_full",
	[FAIL_QUEUE_FULL] = "queue_full",
	[FAIL_TOO_MANY] = "too_many",
	[FAIL_CAP_REACHED] = "cap_reached",
	[FAIL_QUOTA_REACHED] = "quota_reached",
	[FAIL_TREE_LIMIT] = "tree_limit",
	[FAIL_PORT_CLOSED] = "port_closed",
	[FAIL_PORT_LOST] = "port_lost",
	[FAIL_PORT_SILENT] = "port_silent",
	[FAIL_PORT_ANSWER] = "port_answer",
	[FAIL_HOST_UNREACHABLE] = "host_unreachable",
	[FAIL_HOST_LOST] = "host_lost",
	[FAIL_HOST_FAILED] = "host_failed",
	[FAIL_AGENT_ERROR] = "agent_error",
	[FAIL_AGENT_LOST] = "agent_lost",
	[FAIL_NOT_FORKED] = "not_forked",
	[FAIL_STOPPING] = "stopping",
	[FAIL_NOT_READY] = "not_ready",
	[FAIL_NO_CAPACITY] = "no_capacity",
	[FAIL_DRAINING] = "draining",
	[FAIL_NO_WARM] = "no_warm",
	[FAIL_HOST_CLOSED] = "host_closed",
	[FAIL_NO_MEMORY] = "no_memory",
	[FAIL_SERVICE_BUSY] = "busy",
	[FAIL_VM_FAILED] = "vm_failed",
	[FAIL_TEMPLATE_FAILED] = "template_failed",
	[FAIL_PRIVATE_COPY] = "private_copy",
	[FAIL_FORK_FAILED] = "fork_failed",
	[FAIL_FREEZE_FAILED] = "freeze_failed",
	[FAIL_RESUME_FAILED] = "resume_failed",
	[FAIL_START_FAILED] = "start_failed",
	[FAIL_CATALOGUE] = "catalogue",
	[FAIL_BACKUP_FAILED] = "backup_failed",
};

const char *failure_code_name(enum failure_code code)
{
	assert(code > FAIL_NONE && code < FAILURE_CODES);
	return names[code];
}

void failure_set(struct failure *f, enum failure_code code, unsigned retry_after,
		 const char *format, ...)
{
	va_list args;

	assert(code > FAIL_NONE && code < FAILURE_CODES);
	f->code = code;
	f->retry_after = retry_after;
	f->lacks = 0;
	va_start(args, format);
	vsnprintf(f->text, sizeof(f->text), format, args);
	va_end(args);
}
