// SPDX-License-Identifier: Apache-2.0
/*
 * The operations on files of proto/agent.h, in workers. Each function answers its request through
 * worker-io.h and ends the process.
 */
#ifndef RAMET_GUEST_FILES_FILE_WORK_H
#define RAMET_GUEST_FILES_FILE_WORK_H

#include "guest/files/file-request.h"
#include "proto/agent-file.h"

/* serve_put, serve_get and so on */
#define DECLARE(type, name, ...)                                                                   \
	__attribute__((noreturn)) void serve_##name(const struct file_request *r);
AGENT_FILE_REQUESTS(DECLARE)
#undef DECLARE

/* Returns -ENOSPC if `size` bytes do not fit on the disk, before they arrive. */
int check_room(int fd, uint64_t size, struct err *e);

#endif
