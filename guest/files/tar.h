// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a tar archive (ustar, pax, GNU) with libarchive as it arrives, and trusts nothing in it.
 * Memory is bounded: TAR_HEADERS_MAX bytes of headers become a few times as much in memory.
 */
#ifndef RAMET_GUEST_FILES_TAR_H
#define RAMET_GUEST_FILES_TAR_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TAR_HEADERS_MAX (4u << 20) /* bytes of the headers of one entry */

enum tar_type { TAR_FILE, TAR_HARD_LINK, TAR_LINK, TAR_FOLDER, TAR_FIFO };

struct tar_entry {
	enum tar_type type;
	char path[PATH_MAX];   /* relative, without empty parts, "." and ".."; empty: the folder */
	char target[PATH_MAX]; /* HARD_LINK: like path, not empty; LINK: any text, not empty */
	uint32_t mode, uid, gid; /* mode: permission bits */
	uint64_t size;		 /* FILE: number of its bytes */
	int64_t mtime_s;
	uint32_t mtime_ns; /* below 10^9 */
};

struct tar_calls {
	/* Sets *data to the next bytes of the archive, valid until the next call. Returns how many:
	 * 0 after the last. */
	size_t (*read)(void *arg, const uint8_t **data);

	/* Each returns 0, or -errno with *e filled, which ends the reading. */
	int (*entry)(void *arg, const struct tar_entry *n, struct err *e);
	int (*bytes)(void *arg, const uint8_t *data, size_t len, struct err *e); /* of a FILE */
	int (*complete)(void *arg, const struct tar_entry *n, struct err *e);
};

/* Reads an archive, and counts the entries that are complete in *entries. Returns 0, -EBADMSG with
 * *e filled for a broken or refused archive, -ENOMEM, or the error of a call. */
int tar_read(const struct tar_calls *calls, void *arg, uint64_t *entries, struct err *e);

#endif
