// SPDX-License-Identifier: Apache-2.0
/*
 * The directories of Spaces, STATE_DIR/spaces/ID. Each is written under a temporary name and is
 * complete on disk before it is renamed. Files that a Space shares with its template and with other
 * Spaces (the template's memory and disk layer, the root file system) are hard links, so that the
 * Space keeps them when those are removed. A root file system on another file system is copied once
 * for all Spaces, to STATE_DIR/bases.
 */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_FILES_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_FILES_H

#include <stdatomic.h>

#include "base/file-sum.h"
#include "orchestrator/config/config.h"
#include "orchestrator/sandbox/sandboxes.h"
#include "orchestrator/snapshot/space-manifest.h"
#include "orchestrator/vm/vmproc.h"

#define SPACE_STEP_BYTES (32u << 20) /* bytes that a worker reads or writes in one step */

/*
 * Reads and writes run in steps, each on a worker thread. The last step sets `over`; then `ret` and
 * `err` hold the result. During a step only the worker uses the struct, except for the atomic
 * members; at other times it belongs to the loop's thread.
 */
struct space_write {
	char state_dir[CONFIG_PATH_MAX];
	struct space_manifest manifest; /* the steps fill in `files` */
	struct vmproc_image *image;	/* the snapshot to write; a reference is held */
	atomic_bool cancelled;		/* the next step is the last one and removes the files */
	atomic_ullong written, total;	/* bytes */
	uint64_t size_bytes;		/* on disk, without shared files */
	bool over;
	int ret;
	struct err err;
	/* state of the steps */
	int parent, dir, out;
	unsigned at;
	bool open, shared, for_base;
	struct file_walk walk;
};
void space_write_begin(struct space_write *w, const char *state_dir, struct vmproc_image *image);
void space_write_step(struct space_write *w);
/* Frees everything except the snapshot. */
void space_write_fini(struct space_write *w);

struct space_read {
	char state_dir[CONFIG_PATH_MAX];
	char id[SANDBOX_ID_LEN + 1];
	atomic_bool cancelled;
	bool damaged; /* a permanent failure: the files differ from those written */
	bool over;
	int ret;
	struct err err;
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
void space_read_step(struct space_read *r);
void space_read_fini(struct space_read *r);

/* Removes a Space's directory, under each of its names; returns true when nothing of it is left.
 * The copy of its root file system stays for other Spaces. */
bool space_remove(const char *state_dir, const char *id);

/*
 * The start of the service classifies the directories by name. ID.tmp is incomplete: a leftover. A
 * directory that the catalogue does not name is lost: the Space was frozen after the backup from
 * which the catalogue was restored, or power failed before its freeze was answered. It is kept as
 * ID.lost, and renamed to ID when a catalogue names it.
 */
struct spaces_sweep {
	bool (*is_space)(void *arg, const char *id);
	bool (*is_gone)(void *arg, const char *id); /* a former Space: its files may be removed */
	void (*on_leftover)(void *arg, const char *id);
	void (*on_lost)(void *arg, const char *id, int64_t since_ms); /* on the wall clock */
	void *arg;
};
/* Classifies all directories at the start, on the loop thread, and removes root file systems that
 * no directory uses. Returns 0, or -errno with *e filled. */
int spaces_sweep(const char *state_dir, const struct spaces_sweep *s, struct err *e);

#endif
