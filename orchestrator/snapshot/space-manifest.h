// SPDX-License-Identifier: Apache-2.0
/*
 * The manifest of a Space's directory: the list of its files, and the parts of the sandbox that the
 * catalogue does not store. Little-endian fields: char magic[8], u32 version, u32 body bytes, u32
 * CRC-32C of the body, u32 zero, then the body. The file is not trusted.
 */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_MANIFEST_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_MANIFEST_H

#include "orchestrator/journal/journal.h"
#include "orchestrator/sandbox/sandboxes.h"
#include "orchestrator/template/templates.h"

#define SPACE_MANIFEST_MAX  (64u << 20) /* enough for all unfinished lines and results */
#define SPACE_FILE_NAME_MAX 24

struct space_file {
	uint64_t bytes;
	uint32_t sum; /* as computed by file_sum_step */
};

struct space_manifest {
	char id[SANDBOX_ID_LEN + 1];
	char template[SANDBOX_NAME_MAX + 1];
	struct size size;
	uint64_t disk_bytes;
	uint32_t memory_layers, layers;
	bool guest_busy;
	struct exec_point call; /* the calls that ran during the freeze */
	unsigned n_files;	/* in the order of a vmproc_image */
	struct space_file files[CTL_FDS_MAX];
};

/* Writes the name of file `i` to `out`. */
void space_file_name(const struct space_manifest *m, unsigned i, char out[SPACE_FILE_NAME_MAX]);
/* Returns the index of the root file system among the files. */
unsigned space_base_index(const struct space_manifest *m);

/* Encodes the manifest. The caller frees *out. Returns 0 or -ENOMEM. */
int space_manifest_write(const struct space_manifest *m, uint8_t **out, size_t *len);
/* Decodes a manifest. Returns 0, or -EINVAL with *e filled when it is incomplete, invalid or of
 * another version. The caller passes `out` to space_manifest_fini in either case. */
int space_manifest_read(const void *bytes, size_t len, struct space_manifest *out, struct err *e);
void space_manifest_fini(struct space_manifest *m);

#endif
