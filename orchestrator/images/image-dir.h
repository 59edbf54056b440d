// SPDX-License-Identifier: Apache-2.0
/*
 * Directories of snapshots, each of one VM. A directory is made as NAME.tmp. When its files are on
 * disk, its manifest is written and it gets its name, so a directory with a name is complete.
 * All functions are for workers and the start of the service.
 */
#ifndef RAMET_ORCHESTRATOR_IMAGES_IMAGE_DIR_H
#define RAMET_ORCHESTRATOR_IMAGES_IMAGE_DIR_H

#include "orchestrator/images/image-manifest.h"

#define IMAGE_TMP ".tmp"

/* Opens STATE_DIR/NAME, and makes it if it is missing. Returns a descriptor, or -errno. */
int state_dir_open(const char *state_dir, const char *name, struct err *e);

/* Writes the temporary name of an image, NAME.tmp. */
void image_tmp_name(const char *name, char out[static IMAGE_NAME_ROOM]);
/* Makes NAME.tmp in the directory `parent`. Returns a descriptor of it, or -errno. */
int image_dir_new(int parent, const char *name, struct err *e);
/* Opens the directory of this very name. Returns a descriptor, or -errno. */
int image_dir_open(int parent, const char *name, struct err *e);
/* Writes the encoded manifest, or replaces it, and flushes both it and the directory. */
int image_manifest_put(int dir, const void *manifest, size_t len, struct err *e);
/* Writes the encoded manifest of NAME.tmp, flushes the manifest and the directory, whose files must
 * be flushed already, and renames the directory to NAME. Returns 0 when all this is on disk. */
int image_dir_publish(int parent, int dir, const char *name, const void *manifest, size_t len,
		      struct err *e);
/* Removes the directory of this very name, as far as that is possible. */
void image_dir_remove(int parent, const char *name);

/* Reads the manifest, which must be of the image `name`. The caller frees *bytes, from which *extra
 * reads. Returns 0 or -errno. -EINVAL, -ENOENT, -ELOOP and -ENOTSUP mean that the manifest is
 * invalid or missing, and a retry does not help. */
int image_manifest_load(int dir, const char *name, struct image_manifest *out, uint8_t **bytes,
			struct wire *extra, struct err *e);
/* Opens a file for reading. Returns a descriptor, or -errno as image_manifest_load. Files of
 * another type or size are refused. */
int image_file_open(int dir, const char *file, uint64_t bytes, struct err *e);

/* The names in a directory, as they were before any of them was changed. */
struct image_names {
	char (*all)[IMAGE_NAME_ROOM];
	size_t n;
};
/* Reads all names but hidden and overlong ones. Returns 0, or -errno; image_names_free frees
 * *out in either case. */
int image_names_read(int parent, struct image_names *out, struct err *e);
void image_names_free(struct image_names *names);

#endif
