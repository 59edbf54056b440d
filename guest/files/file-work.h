// SPDX-License-Identifier: Apache-2.0
/*
 * The operations on files of proto/agent.h, in workers. Each function answers its request through
 * worker-io.h and ends the process.
 */
#ifndef RAMET_GUEST_FILES_FILE_WORK_H
#define RAMET_GUEST_FILES_FILE_WORK_H

#include "guest/files/staged.h"
#include "guest/files/file-request.h"

/* A worker's request. */
struct file_work {
	const struct file_request *r;
	struct staged_file *staged; /* PUT, UNPACK */
};

/* file-read.c */
__attribute__((noreturn)) void file_get(const struct file_work *w);

/* walk.c */
__attribute__((noreturn)) void file_walk(const struct file_work *w);

/* pack.c, unpack.c */
__attribute__((noreturn)) void file_pack(const struct file_work *w);
__attribute__((noreturn)) void file_unpack(const struct file_work *w);

/* watch.c */
__attribute__((noreturn)) void file_watch(const struct file_work *w);

/* file-change.c */
__attribute__((noreturn)) void file_move(const struct file_work *w);
__attribute__((noreturn)) void file_change(const struct file_work *w);

/* file-write.c */
__attribute__((noreturn)) void file_put(const struct file_work *w);
__attribute__((noreturn)) void file_write_in_place(const struct file_work *w);
__attribute__((noreturn)) void file_remove(const struct file_work *w);
__attribute__((noreturn)) void file_mkdir(const struct file_work *w);
/* Returns -ENOSPC if `size` bytes do not fit on the disk, before they arrive. */
int check_room(int fd, uint64_t size, struct err *e);

#endif
