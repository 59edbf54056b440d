// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a tar archive (ustar, pax, GNU) as it arrives, and trusts nothing in it. Memory is bounded:
 * one header, and up to TAR_EXTRA_MAX bytes of an extended one.
 */
#ifndef RAMET_GUEST_FILES_TAR_H
#define RAMET_GUEST_FILES_TAR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TAR_BLOCK     512
#define TAR_EXTRA_MAX (256u << 10)

enum tar_type { TAR_FILE, TAR_HARD_LINK, TAR_LINK, TAR_FOLDER, TAR_FIFO };

struct tar_entry {
	enum tar_type type;
	char path[PATH_MAX];   /* relative, without empty parts, "." and ".."; empty: the folder */
	char target[PATH_MAX]; /* HARD_LINK: like path, not empty; LINK: any text, not empty */
	uint32_t mode, uid, gid; /* mode: permission bits */
	uint64_t size;		 /* FILE: of its bytes */
	int64_t mtime_s;
	uint32_t mtime_ns; /* below 10^9 */
};

/* Each returns 0, or -errno with *e filled, which ends the reading. */
struct tar_sink {
	int (*entry)(void *arg, const struct tar_entry *n, struct err *e);
	int (*bytes)(void *arg, const uint8_t *data, size_t len, struct err *e); /* of a FILE */
	int (*complete)(void *arg, const struct tar_entry *n, struct err *e);
};

enum tar_state { TAR_HEADER, TAR_EXTRA, TAR_BODY, TAR_PADDING, TAR_ENDED };

/* Values of an extended header, for the next entry. */
struct tar_extra {
	bool has_path, has_target, has_size, has_mtime, has_uid, has_gid;
	struct tar_entry values;
};

struct tar_reader {
	const struct tar_sink *sink;
	void *arg;
	enum tar_state state;
	uint8_t header[TAR_BLOCK];
	size_t header_len;
	uint64_t left;	  /* EXTRA, BODY: bytes to come; PADDING: bytes to skip */
	unsigned padding; /* after them */
	uint8_t extra_type;
	uint8_t *extra;
	size_t extra_len;
	struct tar_extra next;
	struct tar_entry entry;
	uint64_t entries; /* that are complete */
};

void tar_begin(struct tar_reader *t, const struct tar_sink *sink, void *arg);
/* Reads the next bytes of the archive. Returns 0, -EBADMSG with *e filled for a broken or refused
 * archive, -ENOMEM, or what the sink returned. */
int tar_feed(struct tar_reader *t, const uint8_t *data, size_t len, struct err *e);
/* Called after the last byte. Returns 0, or -EBADMSG when the archive was cut off. */
int tar_finish(const struct tar_reader *t, struct err *e);
void tar_free(struct tar_reader *t);

#endif
