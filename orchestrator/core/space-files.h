// SPDX-License-Identifier: Apache-2.0
/*
 * The directories of Spaces, STATE_DIR/spaces/ID: written under another name, whole on disk
 * before it gets its own. What a Space shares with its template and with other Spaces (the
 * template's memory and disk layer, the root file system) is linked into it, so that it outlives
 * them; of a root file system that lies elsewhere there is one copy for all, in STATE_DIR/bases.
 */
#ifndef RAMET_ORCHESTRATOR_CORE_SPACE_FILES_H
#define RAMET_ORCHESTRATOR_CORE_SPACE_FILES_H

#include <stdatomic.h>

#include "base/file-sum.h"
#include "orchestrator/core/space-manifest.h"

#define SPACE_PIECE (32u << 20) /* bytes that a worker reads or writes at a time */

/*
 * Both kinds of work go in steps, each of which is for a worker thread; `over` is set with the last
 * one, and `ret` with `err` says how it went. Between steps, and after the last, they belong to
 * whoever runs them.
 */
struct space_write {
	char state_dir[CONFIG_PATH_MAX];
	struct space_manifest manifest; /* files: filled here */
	struct vmproc_image *image;	/* what is written; held */
	atomic_bool cancelled;		/* the next step is the last, and leaves nothing behind */
	atomic_ullong written, total;	/* bytes */
	uint64_t size_bytes;		/* of the disk; not what is the template's, and all have */
	bool over;
	int ret;
	struct err err;
	/* in the course of it */
	int parent, dir, out;
	unsigned at;
	bool open, shared, for_base;
	struct file_walk walk;
};
void space_write_begin(struct space_write *w, const char *state_dir, struct vmproc_image *image);
void space_write_step(struct space_write *w);
/* Frees what it has, but the image. */
void space_write_fini(struct space_write *w);

struct space_read {
	char state_dir[CONFIG_PATH_MAX];
	char id[SANDBOX_ID_LEN + 1];
	atomic_bool cancelled;
	bool damaged; /* it failed, and for good: what is on disk is not what was written */
	bool over;
	int ret;
	struct err err;
	/* the result: descriptors in the order of a vmproc_image, to be taken */
	struct space_manifest manifest;
	int fds[CTL_FDS_MAX];
	struct stat memory; /* of the file at TEMPLATE_MEMORY */
	/* in the course of it */
	int dir;
	unsigned at;
	bool open;
	struct file_walk walk;
};
void space_read_begin(struct space_read *r, const char *state_dir, const char *id);
/* Opens its files and reads each whose checksum is not known to be right. */
void space_read_step(struct space_read *r);
void space_read_fini(struct space_read *r);

/* Removes a Space's directory, under each of its names; true when nothing of it is left. The copy
 * of its root file system stays for the next one. */
bool space_remove(const char *state_dir, const char *id);

/*
 * A start sorts the directories by their names: a half-written one (ID.tmp) is left over. A
 * directory that the catalogue does not name is lost: it was frozen after the copy of the catalogue
 * that was put back, or a power cut came before its freeze was answered. It is kept as ID.lost, and
 * gets its name back when a catalogue names it.
 */
struct spaces_sweep {
	bool (*is_space)(void *arg, const char *id);
	bool (*is_gone)(void *arg, const char *id); /* it was one, and its files are removed */
	void (*on_leftover)(void *arg, const char *id);
	void (*on_lost)(void *arg, const char *id, int64_t since_ms); /* by the wall clock */
	void *arg;
};
/* At the start, on the loop; also removes the root file systems that no directory uses. -errno. */
int spaces_sweep(const char *state_dir, const struct spaces_sweep *s, struct err *e);

#endif
