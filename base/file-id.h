// SPDX-License-Identifier: Apache-2.0
/* Identifies a version of a file: the identity changes when the file is written or replaced. */
#ifndef RAMET_BASE_FILE_ID_H
#define RAMET_BASE_FILE_ID_H

#include <stdbool.h>
#include <sys/stat.h>

struct file_id {
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime;
};

static inline struct file_id file_id_of(const struct stat *st)
{
	return (struct file_id){st->st_dev, st->st_ino, st->st_size, st->st_mtim};
}

static inline bool file_id_equal(const struct file_id *a, const struct file_id *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

#endif
