// SPDX-License-Identifier: Apache-2.0
/*
 * The manifest of a Space's directory also holds the parts of the sandbox that the catalogue does
 * not store. The file is not trusted.
 */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_MANIFEST_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_MANIFEST_H

#include "orchestrator/exec/journal.h"
#include "orchestrator/images/image-dir.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/sandbox/sandboxes.h"

#define SPACE_FILE_NAME_MAX 24

struct space_manifest {
	struct image_manifest image; /* files in the order of a vmproc_image */
	char template[SANDBOX_NAME_MAX + 1];
	struct size size;
	uint64_t disk_bytes;
	uint32_t memory_layers, layers;
	bool guest_busy;
	struct exec_point call; /* the calls that ran during the freeze */
};

/* Writes the name of file `i` to `out`. */
void space_file_name(const struct space_manifest *m, unsigned i, char out[SPACE_FILE_NAME_MAX]);
/* Returns the index of the root file system among the files. */
unsigned space_base_index(const struct space_manifest *m);

/* Encodes the manifest. The caller frees *out. Returns 0 or -ENOMEM. */
int space_manifest_write(const struct space_manifest *m, uint8_t **out, size_t *len);
/* Decodes the Space's part of a manifest to *m, which has `image` set and is zeroed otherwise.
 * Returns 0, or -EINVAL with *e filled. The caller passes `m` to space_manifest_fini in either
 * case. */
int space_manifest_read(struct wire *w, struct space_manifest *m, struct err *e);
void space_manifest_fini(struct space_manifest *m);

#endif
