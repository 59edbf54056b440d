// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/ram-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "proto/image.h"
#include "vmm/kvm/pagemap.h"
#include "vmm/kvm/ram-table.h"

/* What is copied while the guest stands still costs it some 0.3 ms for each MiB. */
#define AHEAD_MIN    (4u << 20)
#define AHEAD_FIRST  (1u << 20)	  /* with no layer yet that what is our own may be in already */
#define AHEAD_MANY   (256u << 10) /* with many children */
#define AHEAD_ROUNDS 2u
#define SAMPLE	     16u /* pages, of which one is looked at to see whether it is much */

/*
 * Each run costs every child some 3 us of mapping, a page that is copied needlessly 1 us: with many
 * children it is worth to join over wider gaps, which nobody stands still for.
 */
#define MANY_CHILDREN 4u
#define GAP_CHILDREN  32u /* no wider with more */

/*
 * To map a run from its new layer costs as much as to copy some 20 pages, and then a fault for each
 * page that the guest uses again: many of those that it wrote to since the last freeze it will
 * write to before the next one. So what is little is left as it is, our own, and the next freeze
 * compares it with what the image has (some 0.1 ms for each MiB) and copies what differs. The price
 * is that it is there twice, here and in a layer. Of what is more the long runs go first.
 */
#define LEFT_MAX (8u << 20)
#define SHOW_MAX                                                                                   \
	(2u << 20) /* a freeze takes up to 1 ms for each MiB; the rest waits for the next */
/* To compare as much takes longer than a freeze may: only what is written to meanwhile is. */
#define WATCH_MIN (12u << 20)

/* --- The chain --- */

int ram_position(const struct ram *r, uint32_t file)
{
	for (unsigned i = 0; i < r->nlayers; i++)
		if (r->layers[i].file == file)
			return (int)i;
	return -1;
}

int ram_file(const struct ram *r, uint32_t file)
{
	return file == RAM_MEMORY_FILE ? r->memory_fd : r->layers[ram_position(r, file)].fd;
}

static void drop_layers(struct ram *r)
{
	for (unsigned i = 0; i < r->nlayers; i++)
		layer_close(&r->layers[i]);
	r->nlayers = 0;
}

int ram_new(struct ram **out, struct gm *gm, int pagemap_fd, struct err *e)
{
	struct ram *r = calloc(1, sizeof(*r));

	if (!r)
		return err_set(e, ENOMEM, "make the guest's RAM");
	r->gm = gm;
	r->pagemap_fd = pagemap_fd;
	r->memory_fd = -1;
	r->flat.fd = -1;
	r->watch_fd = watch_open();
	r->ahead_min = AHEAD_MIN;
	r->watch_min = WATCH_MIN;
	r->left_max = LEFT_MAX;
	r->show_max = SHOW_MAX;
	*out = r;
	return 0;
}

void ram_free(struct ram *r)
{
	if (!r)
		return;
	ram_settle(r);
	flatten_stop(r);
	drop_layers(r);
	overlay_free(&r->image);
	overlay_free(&r->mapped);
	close_fd(&r->memory_fd);
	close_fd(&r->pagemap_fd);
	close_fd(&r->watch_fd);
	free(r);
}

int ram_memfd(const struct ram *r)
{
	return r->shared ? r->memory_fd : -1;
}

unsigned ram_image(const struct ram *r, int fds[RAM_IMAGE_FDS])
{
	fds[0] = r->memory_fd;
	for (unsigned i = 0; i < r->nlayers; i++)
		fds[1 + i] = r->layers[i].fd;
	return 1 + r->nlayers;
}

/* --- Backing --- */

int ram_back_with_memfd(struct ram *r, struct err *e)
{
	int result;

	if (r->memory_fd >= 0)
		return err_say(e, EBUSY, "this VM has its RAM already");
	result = gm_back_with_memfd(r->gm, &r->memory_fd, e);
	r->shared = !result;
	return result;
}

/*
 * Refuses a memfd that someone could still write to. Files on a disk have no seals, and files on a
 * tmpfs can't get any. A file with a name is trusted: the service made it, for a VM process can't
 * give a file a name. A memfd never has one.
 */
static int check_sealed(int fd, struct err *e)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0)
		return 0;
	if (seals & F_SEAL_SHRINK && seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		return 0;
	if (seals & F_SEAL_SEAL && fstat(fd, &st) == 0 && st.st_nlink)
		return 0;
	return err_say(e, EINVAL, "the memory file is not sealed");
}

static int keep(int *kept, int fd, struct err *e)
{
	int r = check_sealed(fd, e);

	if (r)
		return r;
	*kept = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return *kept < 0 ? err_set(e, errno, "keep a descriptor of it") : 0;
}

static int open_layer(struct ram *r, int fd, struct err *e)
{
	struct ram_layer *l = &r->layers[r->nlayers];
	struct overlay image = {0};
	struct runs runs = {0};
	int result = ram_table_read(&runs, fd, r->gm->bytes, e);

	if (!result &&
	    overlay_cover(&image, &r->image, &runs, r->last_file + 1, ram_table_bytes(runs.n)))
		result = err_set(e, ENOMEM, "lay it over the others");
	if (!result && image.n > IMAGE_MEMORY_RUNS_MAX)
		result = err_say(e, E2BIG, "with it RAM is in %u pieces; the limit is %u", image.n,
				 IMAGE_MEMORY_RUNS_MAX);
	if (!result)
		result = keep(&l->fd, fd, e);
	if (!result) {
		l->file = ++r->last_file;
		l->bytes = runs_bytes(&runs);
		l->size = ram_table_bytes(runs.n) + l->bytes;
		r->nlayers++;
		overlay_take(&r->image, &image);
	}
	runs_free(&runs);
	overlay_free(&image);
	return result;
}

static int show_all(struct ram *r, struct err *e)
{
	struct runs all = {0};
	int result = overlay_runs(&all, &r->image);

	if (result)
		err_set(e, ENOMEM, "list what the memory layers hold");
	else
		result = ram_show(r, &all, e);
	runs_free(&all);
	return result;
}

int ram_back_with_image(struct ram *r, int memory_fd, const int *layers, unsigned n, struct err *e)
{
	int result = 0;

	if (r->memory_fd >= 0)
		return err_say(e, EBUSY, "this VM has its RAM already");
	if (n > CTL_MEMORY_MAX)
		return err_say(e, E2BIG, "%u memory layers; the limit is %u", n, CTL_MEMORY_MAX);
	for (unsigned i = 0; i < n && !result; i++) {
		result = open_layer(r, layers[i], e);
		if (result)
			err_context(e, "memory layer %u", i + 1);
	}
	if (!result)
		result = keep(&r->memory_fd, memory_fd, e);
	r->on_disk = fcntl(memory_fd, F_GET_SEALS) < 0;
	if (!result)
		result = gm_back_with_image(r->gm, memory_fd, e);
	if (!result)
		result = show_all(r, e);
	if (result) {
		drop_layers(r);
		overlay_free(&r->image);
		close_fd(&r->memory_fd);
	}
	return result;
}

/* --- Freeze --- */

static int map_memfd(const struct ram *r, int how, struct err *e)
{
	if (mmap(r->gm->base, r->gm->bytes, PROT_READ | PROT_WRITE, how | MAP_FIXED | MAP_NORESERVE,
		 r->memory_fd, 0) == MAP_FAILED)
		return err_set(e, errno, "map the guest's memory file");
	return 0;
}

/* The seals come after the new map: until then the old one can be had back. No map that can write
 * is left then, so that F_SEAL_FUTURE_WRITE stops all, in no time; F_SEAL_WRITE looks at each page.
 */
static int freeze_memfd(struct ram *r, struct err *e)
{
	int result = map_memfd(r, MAP_PRIVATE, e);

	if (result)
		return result;
	if (fcntl(r->memory_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) <
	    0) {
		result = err_set(e, errno, "seal the guest's memory file");
		map_memfd(r, MAP_SHARED, NULL);
		return result;
	}
	r->shared = false;
	return 0;
}

/* Which runs the new layer has, and what the image is with it. */
static int plan(struct ram *r, const struct runs *dirty, uint64_t gap, uint32_t most,
		struct runs *runs, struct overlay *image, struct err *e)
{
	overlay_free(image);
	runs_free(runs);
	if (runs_join(runs, dirty, gap, most) ||
	    overlay_cover(image, &r->image, runs, r->last_file + 1, ram_table_bytes(runs->n)))
		return err_set(e, ENOMEM, "list the pages that the guest wrote");
	return 0;
}

/* An image in too many pieces would cost a child more maps than the kernel allows. Half of what is
 * allowed for the old layers, and at most two pieces for each new run, leave room. */
static int plan_within_limits(struct ram *r, const struct runs *dirty, uint64_t gap,
			      struct runs *runs, struct overlay *image, struct err *e)
{
	int result = plan(r, dirty, gap, IMAGE_MEMORY_RUNS_MAX, runs, image, e);

	if (result || image->n <= IMAGE_MEMORY_RUNS_MAX)
		return result;
	result = flatten_overlay(r, e);
	return result ? result : plan(r, dirty, gap, IMAGE_MEMORY_RUNS_MAX / 4, runs, image, e);
}

static int write_layer(const struct ram *r, const struct runs *runs, const struct runs *dirty,
		       struct err *e)
{
	scoped_fd int fd = layer_create(e);
	int result;

	if (fd < 0)
		return fd;
	result = layer_copy_ram(r, fd, runs, dirty, e);
	if (!result)
		result = layer_finish(r, fd, runs, e);
	return result ? result : take_fd(&fd);
}

static int add_layer(struct ram *r, const struct runs *dirty, uint64_t gap, uint64_t *copied,
		     struct err *e)
{
	struct overlay image = {0};
	struct runs runs = {0};
	int result = flatten_chain(r, 1, e), fd = -1;

	if (!result)
		result = plan_within_limits(r, dirty, gap, &runs, &image, e);
	if (!result)
		result = fd = write_layer(r, &runs, dirty, e);
	if (fd >= 0) {
		uint64_t bytes = runs_bytes(&runs);

		r->layers[r->nlayers++] =
			(struct ram_layer){.file = ++r->last_file,
					   .fd = fd,
					   .bytes = bytes,
					   .size = ram_table_bytes(runs.n) + bytes,
					   .own = true};
		overlay_take(&r->image, &image);
		flatten_drop_hidden(r);
		*copied += bytes;
		result = 0;
	}
	runs_free(&runs);
	overlay_free(&image);
	return result;
}

/* A layer of what the image lacks of `own`. */
static int add_changed(struct ram *r, const struct runs *own, uint64_t *copied, struct err *e)
{
	struct runs changed = {0};
	int result = ram_changed(r, own, &changed, e);

	if (!result && changed.n)
		result = add_layer(r, &changed, RAM_JOIN_GAP, copied, e);
	runs_free(&changed);
	return result;
}

/* About as much of `own` as this differs from the image; the freeze looks at all of it. */
static uint64_t estimate_changed(struct ram *r, const struct runs *own)
{
	struct runs some = {0}, changed = {0};
	uint64_t bytes = runs_bytes(own), skip = 0;
	int result = 0;

	for (uint32_t i = 0; i < own->n && !result; i++) {
		const struct run *run = &own->run[i];

		for (; skip < run->bytes && !result; skip += SAMPLE * RAM_PAGE)
			result = runs_add(&some, run->offset + skip, RAM_PAGE);
		skip -= run->bytes;
	}
	if (!result)
		result = ram_changed(r, &some, &changed, NULL);
	if (!result)
		bytes = SAMPLE * runs_bytes(&changed);
	runs_free(&some);
	runs_free(&changed);
	return bytes;
}

/* No more than `least` bytes of `own` are to be copied. */
static bool is_little(struct ram *r, const struct runs *own, uint64_t least)
{
	return runs_bytes(own) <= least || estimate_changed(r, own) <= least;
}

/* True in *enough when no more than `least` bytes are left to copy. */
static int copy_ahead(struct ram *r, uint64_t least, uint64_t gap, bool *enough, struct err *e)
{
	struct runs own = {0}, changed = {0};
	bool began = false;
	int result = r->watching ? pagemap_written(r->pagemap_fd, r->gm, &own, e)
				 : pagemap_dirty(r->pagemap_fd, r->gm, &own, e);

	if (!result && runs_bytes(&own) > r->watch_min)
		began = watch_begin(r, &own);
	*enough = !result && !began && is_little(r, &own, least);
	if (!result && !*enough) {
		result = ram_changed(r, &own, &changed, e);
		*enough = runs_bytes(&changed) <= least;
	}
	/* The freeze looks only at what is written from now on. */
	if (!result && changed.n && (!*enough || began))
		result = add_layer(r, &changed, gap, &r->ahead, e);
	runs_free(&changed);
	if (began)
		r->watched = own;
	else
		runs_free(&own);
	return result;
}

/* What is no more than that the first time is left to the freeze. */
static uint64_t worth_ahead(const struct ram *r, bool many)
{
	if (many)
		return AHEAD_MANY;
	for (unsigned i = 0; i < r->nlayers; i++)
		if (r->layers[i].own)
			return r->ahead_min;
	return r->ahead_min < AHEAD_FIRST ? r->ahead_min : AHEAD_FIRST;
}

int ram_prepare(struct ram *r, unsigned children, struct err *e)
{
	bool enough = false, many = children >= MANY_CHILDREN;
	unsigned counted = children < GAP_CHILDREN ? children : GAP_CHILDREN;
	uint64_t gap = many ? 2 * counted * RAM_PAGE : RAM_JOIN_GAP;
	uint64_t least = worth_ahead(r, many);
	int result;

	r->ahead = 0;
	if (r->memory_fd < 0 || r->shared || r->pagemap_fd < 0)
		return 0;
	flatten_adopt(r);
	r->flat.failed = false;
	result = flatten_chain(r, AHEAD_ROUNDS + 1, e);
	for (unsigned i = 0; i < AHEAD_ROUNDS && !enough && !result; i++) {
		result = copy_ahead(r, least, gap, &enough, e);
		least = r->ahead_min;
	}
	return result;
}

/* After a freeze; pages between are shown along: fewer maps. */
static void show_own(struct ram *r, const struct runs *own)
{
	struct runs joined = {0};

	if (!runs_join(&joined, own, RAM_JOIN_GAP, IMAGE_MEMORY_RUNS_MAX))
		ram_show_long(r, &joined);
	runs_free(&joined);
}

int ram_freeze(struct ram *r, uint64_t *copied, struct err *e)
{
	struct runs own = {0};
	int result;

	*copied = r->ahead;
	r->ahead = 0;
	if (r->memory_fd < 0)
		return err_say(e, EINVAL, "this VM has no RAM yet");
	if (r->shared)
		return freeze_memfd(r, e);
	if (r->pagemap_fd < 0)
		return err_say(e, ENOTSUP,
			       "which pages the guest wrote is not known: there is no /proc");
	flatten_adopt(r);
	r->flat.failed = false;
	if (r->watching)
		result = pagemap_written(r->pagemap_fd, r->gm, &own, e);
	else
		result = pagemap_dirty(r->pagemap_fd, r->gm, &own, e);
	if (!result)
		result = add_changed(r, &own, copied, e);
	if (!result) {
		show_own(r, r->watching ? &r->watched : &own);
		ram_show_retired(r);
	}
	runs_free(&own);
	return result;
}

void ram_settle(struct ram *r)
{
	r->ahead = 0;
	watch_end(r);
	runs_free(&r->watched);
	while (r->ngone)
		layer_close(&r->gone[--r->ngone]);
}
