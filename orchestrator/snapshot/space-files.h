// SPDX-License-Identifier: Apache-2.0
/*
 * The directories of Spaces, STATE_DIR/spaces/ID. Each is written under a temporary name and is
 * complete on disk before it is renamed. Files that a Space shares with its template and with other
 * Spaces (the template's memory and disk layer, the root file system, layers of the same sandbox)
 * are hard links, so that the Space keeps them when those are removed. A root file system on
 * another file system is copied once for all Spaces, to STATE_DIR/bases.
 */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_FILES_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_FILES_H

#include "base/file-sum.h"
#include "orchestrator/config/config.h"
#include "orchestrator/io/step-job.h"
#include "orchestrator/sandbox/sandboxes.h"
#include "orchestrator/snapshot/space-manifest.h"
#include "orchestrator/vm/vmproc.h"

#define SPACE_STEP_BYTES (32u << 20) /* bytes that a worker reads or writes in one step */

struct space_write {
	struct step_job job;
	char state_dir[CONFIG_PATH_MAX], sandbox[SANDBOX_ID_LEN + 1];
	struct space_manifest manifest; /* the steps fill in the files */
	struct vmproc_image *image;	/* the snapshot to write; a reference is held */
	atomic_ullong written, total;	/* bytes */
	uint64_t size_bytes;		/* on disk, without shared files */
	uint64_t shared_bytes;		/* on disk, of shared files */
	/* state of the steps */
	bool published; /* its directory has its final name */
	int parent, dir, out;
	unsigned at;
	bool open, shared, for_base;
	struct file_walk walk;
};
/* Returns the bytes on disk that a Space of this snapshot takes, without shared files. */
uint64_t space_bytes_of(const struct vmproc_image *image);
/* Allocates a job; the caller completes the manifest. `sandbox`: the id of the one that `image` is
 * of. Takes over the reference to `image`. */
struct space_write *space_write_new(const char *state_dir, const char *sandbox,
				    struct vmproc_image *image);
/* Functions for a struct step_job_ops. A step that fails removes the files, as `undo` does. */
int space_write_step(void *job);
void space_write_undo(void *job);
void space_write_free(void *job);

struct space_read {
	struct step_job job;
	char state_dir[CONFIG_PATH_MAX];
	char id[SANDBOX_ID_LEN + 1];
	bool damaged; /* a permanent failure: the files differ from those written */
	/* The result: the manifest, and descriptors in the order of a vmproc_image. The caller may
	 * take both. */
	struct space_manifest manifest;
	int fds[CTL_FDS_MAX];
	struct stat memory; /* stat of the file at TEMPLATE_MEMORY */
	/* state of the steps */
	int dir;
	unsigned at;
	bool open;
	struct file_walk walk;
};
void space_read_begin(struct space_read *r, const char *state_dir, const char *id);
/* Opens the Space's files, and reads each whose checksum is not verified yet. */
int space_read_step(void *job);
void space_read_fini(struct space_read *r);
void space_read_free(void *job);

#define SPACE_LOST ".lost" /* ends the name of a directory that the catalogue does not name */

/* Removes a Space's directory, under each of its names; returns true when nothing of it is left.
 * The copy of its root file system stays for other Spaces. */
bool space_remove(const char *state_dir, const char *id);

/* Returns how many bytes on disk the removal of a Space's directory would free: of the files that
 * have no other name. A file that a VM has open is freed when that ends. */
uint64_t space_freed_bytes(const char *state_dir, const char *id);

#endif
