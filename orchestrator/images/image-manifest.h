// SPDX-License-Identifier: Apache-2.0
/*
 * The manifest of an image directory: its name, its files, and `extra`, which the room that makes
 * the image may add.
 * Little-endian fields: char magic[8], u32 version, u32 body bytes, u32 CRC-32C of the body, u32
 * zero, then the body. The file is not trusted.
 */
#ifndef RAMET_ORCHESTRATOR_IMAGES_IMAGE_MANIFEST_H
#define RAMET_ORCHESTRATOR_IMAGES_IMAGE_MANIFEST_H

#include "base/err.h"
#include "base/wire.h"
#include "proto/ctl.h"

#define IMAGE_NAME_ROOM	   160 /* for the name of a directory or file, also a temporary one */
#define IMAGE_MANIFEST_MAX (64u << 20) /* enough for any `extra` */
/* The most bytes of a manifest without its `extra`. */
#define IMAGE_MANIFEST_OVERHEAD (48 + IMAGE_NAME_ROOM + 12 * CTL_FDS_MAX)

struct image_file {
	uint64_t bytes;
	uint32_t sum; /* as computed by file_walk_step; 0 in a template's image, which does not
			 verify it */
};

struct image_manifest {
	char name[IMAGE_NAME_ROOM]; /* of the directory */
	unsigned n_files;
	struct image_file files[CTL_FDS_MAX]; /* without names, which follow from the position */
};

/* Encodes a manifest to `out`, which has room for IMAGE_MANIFEST_OVERHEAD and `extra_len`. Returns
 * its length. */
size_t image_manifest_write(const struct image_manifest *m, const void *extra, size_t extra_len,
			    uint8_t *out);
/* Decodes a manifest; *extra reads from `bytes`. Returns 0, or with *e filled -EINVAL when the
 * manifest is incomplete or malformed, -ENOTSUP when it or a file is of another version. */
int image_manifest_read(const void *bytes, size_t len, struct image_manifest *out,
			struct wire *extra, struct err *e);

#endif
