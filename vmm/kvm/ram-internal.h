// SPDX-License-Identifier: Apache-2.0
/*
 * Between ram.c (backing and freezing), ram-changed.c (what the image lacks), ram-layer.c (writes
 * layers), ram-watch.c (what the guest writes meanwhile), ram-map.c (what this process sees) and
 * ram-flatten.c (makes one layer of many).
 */
#ifndef RAMET_VMM_KVM_RAM_INTERNAL_H
#define RAMET_VMM_KVM_RAM_INTERNAL_H

#include "vmm/kvm/overlay.h"
#include "vmm/kvm/ram.h"

/* Runs of a layer that are less than this apart are stored as one: each run costs every child some
 * 3 us of mapping, a page that is copied needlessly costs the pause 1 us. */
#define RAM_JOIN_GAP (5u * RAM_PAGE)

#define RAM_MEMORY_FILE 0 /* number of the memory file; layers are numbered from 1 on */

struct ram_layer {
	uint32_t file; /* its number; never given twice */
	int fd;
	uint64_t bytes; /* in its runs */
	uint64_t size;	/* of the file */
	bool own;	/* written by this process: what was left as it was may be in it */
	void *view;	/* the file, for ram-changed.c; NULL until it is wanted */
};

/* Several layers becoming one. */
struct flatten {
	bool active, done;
	bool failed;	       /* not tried again before the next freeze */
	unsigned first, count; /* these of the chain */
	struct overlay source; /* the image that they are the top of */
	struct runs runs;      /* of the new layer */
	int fd;
	uint32_t run; /* the work goes on in this one, */
	uint64_t at;  /* so many bytes into it, */
	uint64_t to;  /* which is this byte of the new layer */
};

struct ram {
	struct gm *gm;
	int pagemap_fd;
	int watch_fd;	     /* -1: this kernel can't */
	bool watching;	     /* for the freeze to come, */
	struct runs watched; /* these */
	int memory_fd;	     /* -1: not backed */
	bool shared;	     /* the memory file is a memfd that the guest writes to */
	bool on_disk;	     /* it is none: what is looked at of its holes can go again */
	struct ram_layer layers[CTL_MEMORY_MAX]; /* oldest first */
	unsigned nlayers;
	/* To be closed when the guest runs again: to free their pages takes a while. */
	struct ram_layer gone[CTL_MEMORY_MAX];
	unsigned ngone;
	uint32_t last_file;
	struct overlay image;  /* which layer holds what, as of the last freeze */
	struct overlay mapped; /* which layer this process sees where it has not written since;
				* some may be gone from the image */
	struct flatten flat;
	uint64_t ahead;	    /* bytes that were copied for the freeze to come */
	uint64_t ahead_min; /* with no more than so many to copy nothing is copied ahead */
	uint64_t watch_min; /* bytes of our own from which on it is worth to watch them */
	uint64_t left_max;  /* bytes of our own that a freeze leaves as they are */
	uint64_t show_max;  /* bytes that a freeze maps at most; all four by ram_new */
};

/* --- ram.c --- */

/* Place in the chain of the layer with that number, or -1. */
int ram_position(const struct ram *r, uint32_t file);
/* Descriptor of the file with that number, which is part of the image. */
int ram_file(const struct ram *r, uint32_t file);

/* --- ram-changed.c --- */

/* Those pages of `own`, which are this process's own, that are not the same in the image. Exact
 * while vCPUs stand still. `out` is empty before. */
int ram_changed(struct ram *r, const struct runs *own, struct runs *out, struct err *e);
/* Ends what there is of it in this process; layer_go: by ram_settle. */
void layer_close(struct ram_layer *l);
void layer_go(struct ram *r, struct ram_layer *l);

/* --- ram-watch.c --- */

/* A descriptor, or -1. */
int watch_open(void);
/* From here on pagemap_written tells what the guest writes; `own`, what is this process's own, is
 * listed anew as of the moment it began. False where it did not: the kernel can't, or it has. */
bool watch_begin(struct ram *r, struct runs *own);
/* It slows the guest down. */
void watch_end(struct ram *r);

/* --- ram-layer.c --- */

/* An empty file for a layer. A descriptor, or -errno. */
int layer_create(struct err *e);
/* Copies [start, end) of image `source` into layer `fd`, from byte `at` of it on; pages of zeros
 * become holes. */
int layer_copy_image(const struct ram *r, const struct overlay *source, int fd, uint64_t at,
		     uint64_t start, uint64_t end, struct err *e);
/* Copies `runs` of RAM, of which `dirty` is in this process's own pages, and the image has the
 * rest, into layer `fd`. */
int layer_copy_ram(const struct ram *r, int fd, const struct runs *runs, const struct runs *dirty,
		   struct err *e);
/* Writes the table, and makes the file as long as it shall be and immutable. */
int layer_finish(const struct ram *r, int fd, const struct runs *runs, struct err *e);

/* --- ram-map.c --- */

/*
 * Maps `where` of RAM as the image has it, once RAM and image agree. Pages of our own there are
 * given back. On failure, RAM still holds the same, with less of it shared.
 */
int ram_show(struct ram *r, const struct runs *where, struct err *e);
/* After a freeze: shows of `runs`, which are this process's own, those that are worth it. */
void ram_show_long(struct ram *r, const struct runs *runs);
/* After a freeze: lets go of some of what is mapped from layers that are gone from the image. */
void ram_show_retired(struct ram *r);

/* --- ram-flatten.c --- */

/* Makes place for so many layers in the chain, and place in the image's overlay, now, if there is
 * not as much. */
int flatten_chain(struct ram *r, unsigned places, struct err *e);
int flatten_overlay(struct ram *r, struct err *e);
/* Puts a new layer that is complete into the image. */
void flatten_adopt(struct ram *r);
/* Takes layers out of the chain of which nothing is seen any more. */
void flatten_drop_hidden(struct ram *r);
void flatten_stop(struct ram *r);

#endif
