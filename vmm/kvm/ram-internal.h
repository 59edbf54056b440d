// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by ram.c (backing and freezing), ram-changed.c (finds pages that the snapshot lacks),
 * ram-layer.c (writes layers), ram-watch.c (tracks writes of the guest), ram-record.c (records its
 * working set), ram-map.c (this process's mappings) and ram-flatten.c (merges layers).
 */
#ifndef RAMET_VMM_KVM_RAM_INTERNAL_H
#define RAMET_VMM_KVM_RAM_INTERNAL_H

#include "vmm/kvm/extent-map.h"
#include "vmm/kvm/ram.h"

/*
 * Extents of a layer that are less than this apart are stored as one: each extent costs every child
 * about 3 us of mapping, and each page copied needlessly costs the pause 1 us.
 */
#define RAM_JOIN_GAP (5u * RAM_PAGE)

#define RAM_MEMORY_FILE 0 /* number of the memory file; layers are numbered from 1 */

struct ram_layer {
	uint32_t file; /* its number; never reused */
	int fd;
	uint64_t bytes; /* in its extents */
	uint64_t size;	/* of the file */
	bool own;	/* written by this process: may hold copies of own pages (ram.h) */
	void *view;	/* a mapping of the file for ram-changed.c; NULL until it is needed */
};

/* A merge of several layers into one. */
struct flatten {
	bool active, done;
	bool failed;		  /* not retried before the next freeze */
	unsigned first, count;	  /* the layers to merge: `count` of the chain, from `first` on */
	struct extent_map source; /* the snapshot when the merge began */
	struct extents extents;	  /* of the new layer in RAM */
	int fd;
	uint32_t extent; /* index of the extent that is copied next */
	uint64_t at;	 /* bytes of that extent that are done */
	uint64_t to;	 /* where the next bytes go in the new layer's file */
};

struct ram {
	struct gm *gm;
	int pagemap_fd;
	int watch_fd; /* -1: not supported by this kernel */
	/*
	 * Writes of the guest are being tracked (ram-watch.c). From a freeze on, an own page that
	 * was not written since it was protected has the content that the snapshot has.
	 */
	bool watching;
	/* tracking continues after the freeze, since the guest writes little */
	bool keep_watching;
	struct extents watched; /* own pages that were protected and not mapped since */
	bool recording;		/* the working set is being recorded, until the first freeze */
	struct working_set working_set;
	int memory_fd; /* -1: RAM is not backed yet */
	bool shared;   /* the memory file is a memfd that the guest writes to */
	/* The memory file is not a memfd: reading a hole does not allocate a page for good. */
	bool on_disk;
	struct ram_layer layers[CTL_MEMORY_MAX]; /* oldest first */
	unsigned nlayers;
	/*
	 * Layers to be closed once the guest runs again, since freeing their pages takes a while.
	 */
	struct ram_layer retired[CTL_MEMORY_MAX];
	unsigned nretired;
	uint32_t last_file;
	struct extent_map snapshot; /* which layer holds which extent, as of the last freeze */
	/*
	 * The extents that this process maps from layers, some of which the snapshot may no longer
	 * have. Own pages replace mapped ones.
	 */
	struct extent_map mapped;
	struct flatten flat;
	int reserved_fd;    /* a file with allocated pages for the layer of the freeze, or -1 */
	uint64_t ahead;	    /* bytes already copied for the next freeze */
	uint64_t ahead_min; /* copying ahead starts above this many bytes */
	uint64_t watch_min; /* watching starts above this many bytes of own pages */
	uint64_t keep_max;  /* maximum bytes of own pages that a freeze keeps as own pages */
	uint64_t map_max;   /* maximum bytes that one freeze maps */
	/* Tracking ends when more than one in this many bytes changed; ram_new sets these five. */
	uint64_t watch_share;
};

/* --- ram.c --- */

/* Returns the position in the chain of the layer with this number, or -1. */
int ram_position(const struct ram *r, uint32_t file);
/* Returns the descriptor of the memory file or of a layer of the snapshot, by its number. */
int ram_file(const struct ram *r, uint32_t file);

/* --- ram-changed.c --- */

/*
 * Adds to `out` (empty before) those pages of `own`, a list of own pages, that differ from the
 * snapshot. A page that can't be compared counts as different. Exact while the vCPUs are paused.
 */
int ram_changed(struct ram *r, const struct extents *own, struct extents *out, struct err *e);
/* layer_close unmaps and closes a layer at once; layer_retire leaves it to ram_end_freeze. */
void layer_close(struct ram_layer *l);
void layer_retire(struct ram *r, struct ram_layer *l);

/* --- ram-watch.c --- */

/* Opens a userfaultfd. Returns a descriptor or -1. */
int watch_open(void);
/*
 * Starts tracking, or continues it: protects the pages in `written`, a list from pagemap_dirty or
 * pagemap_written, so that later writes to them are found. Replaces `written` by the list of pages
 * that were protected. The caller must add to the snapshot what differs in them, or call watch_end.
 * Returns false when the kernel can't track.
 */
bool watch_written(struct ram *r, struct extents *written);
/* Notes that pages are no longer own ones, since they were mapped. */
void watch_mapped(struct ram *r, const struct extents *where);
/*
 * Unmaps and write-protects all of RAM, which is a memfd and keeps its content: pagemap_used then
 * finds what is used and written. Ends with the next mapping of RAM. Returns 0, or -1 with errno
 * set.
 */
int watch_from_empty(struct ram *r);
/* Stops tracking. */
void watch_end(struct ram *r);

/* --- ram-record.c --- */

/* Ends the recording, if there is one, before the memfd is mapped anew. */
void record_end(struct ram *r);

/* --- ram-layer.c --- */

/* Creates an empty file for a layer. Returns a descriptor or -errno. */
int layer_create(struct err *e);
/* Allocates the pages of the file's first `bytes` bytes. Returns 0 or -errno. */
int layer_allocate(int fd, uint64_t bytes, struct err *e);
/*
 * Copies [start, end) of the snapshot `source` to byte `at` of layer `fd`. Pages of zeros become
 * holes.
 */
int layer_copy_snapshot(const struct ram *r, const struct extent_map *source, int fd, uint64_t at,
			uint64_t start, uint64_t end, struct err *e);
/*
 * Copies `extents` of RAM into layer `fd`. The pages in `dirty` come from this process's memory,
 * the others from the snapshot.
 */
int layer_copy_ram(const struct ram *r, int fd, const struct extents *extents,
		   const struct extents *dirty, struct err *e);
/* Writes the table, sets the file's final size and seals it. */
int layer_finish(const struct ram *r, int fd, const struct extents *extents, struct err *e);

/* --- ram-map.c --- */

/*
 * Maps the extents `where` of RAM from the snapshot, which has the same content, and so frees the
 * own pages there. On failure RAM still has the same content, but less of it is shared.
 */
int ram_map_snapshot(struct ram *r, const struct extents *where, struct err *e);
/*
 * Maps from the snapshot, after a freeze, those extents of own pages for which this is worth the
 * cost.
 */
void ram_map_long_extents(struct ram *r, const struct extents *extents);
/* Remaps, after a freeze, some of the extents that are still mapped from retired layers. */
void ram_remap_retired(struct ram *r);

/* --- ram-flatten.c --- */

/*
 * flatten_chain merges layers now, unless the chain has room for `places` more. flatten_extent_map
 * merges all layers now, so that the extent map gets smaller.
 */
int flatten_chain(struct ram *r, unsigned places, struct err *e);
int flatten_extent_map(struct ram *r, struct err *e);
/* Replaces the merged layers of the snapshot by the new layer, if the merge is complete. */
void flatten_adopt(struct ram *r);
/* Removes layers from the chain that newer layers hide completely. */
void flatten_drop_hidden(struct ram *r);
void flatten_stop(struct ram *r);

#endif
