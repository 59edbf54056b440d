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

/*
 * Larger amounts are copied before the pause: copying in it costs the guest about 0.3 ms per MiB.
 */
#define AHEAD_MIN    (4u << 20)
#define AHEAD_FIRST  (1u << 20)	  /* the same while this process has written no layer */
#define AHEAD_MANY   (256u << 10) /* the same with MANY_CHILDREN or more */
#define AHEAD_ROUNDS 2u
#define SAMPLE	     16u  /* one page in this many is compared for an estimate */
#define SAMPLE_MANY  128u /* the same above WATCH_MIN */
/*
 * Writing to allocated pages takes a third of the time. For a layer smaller than RESERVE_MIN,
 * allocating its pages early gains less than 0.1 ms.
 */
#define RESERVE_MIN  (256u << 10)
#define RESERVE_MAX  (8u << 20)
#define RESERVE_MORE (64u << 10) /* for the table, and pages in gaps */

/*
 * Each extent costs every child about 3 us of mapping, and a page copied needlessly costs 1 us.
 * With many children, joining extents over wider gaps pays off, since copying ahead does not pause
 * the guest.
 */
#define MANY_CHILDREN 4u
#define GAP_CHILDREN  32u /* the gap stops growing here */

/*
 * Mapping an extent from its new layer costs as much as copying about 20 pages, plus a fault for
 * each page that the guest uses again, and the guest will write many of the same pages again before
 * the next freeze. A small amount therefore stays as own pages: the next freeze compares them with
 * the snapshot (about 0.1 ms per MiB) and copies those that differ. The price is that these pages
 * exist twice, here and in a layer. Of a larger amount the long extents are mapped first.
 */
#define KEEP_MAX (8u << 20)
#define MAP_MAX	 (2u << 20) /* per freeze: mapping takes up to 1 ms per MiB */
/*
 * Comparing more than this takes too long for a pause. Writes are then tracked (ram-watch.c), and
 * the freeze compares only the pages written meanwhile.
 */
#define WATCH_MIN (12u << 20)
/*
 * Tracking goes on after the freeze unless more than this share of the own pages had changed when
 * pages were last protected. The next freeze then need not compare and protect all of them again
 * (0.15 ms per MiB). The price: the guest's first write to each page takes 4 us longer, and the
 * kernel maps the pages that the guest reads one by one instead of 16 at a time.
 */
#define WATCH_SHARE 16u

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
		return err_set(e, ENOMEM, "allocate the state of guest RAM");
	r->gm = gm;
	r->pagemap_fd = pagemap_fd;
	r->memory_fd = -1;
	r->flat.fd = -1;
	r->reserved_fd = -1;
	r->watch_fd = watch_open();
	r->ahead_min = AHEAD_MIN;
	r->watch_min = WATCH_MIN;
	r->keep_max = KEEP_MAX;
	r->map_max = MAP_MAX;
	r->watch_share = WATCH_SHARE;
	*out = r;
	return 0;
}

void ram_free(struct ram *r)
{
	if (!r)
		return;
	ram_end_freeze(r);
	watch_end(r);
	flatten_stop(r);
	drop_layers(r);
	extent_map_free(&r->snapshot);
	extent_map_free(&r->mapped);
	working_set_free(&r->working_set);
	close_fd(&r->memory_fd);
	close_fd(&r->pagemap_fd);
	close_fd(&r->watch_fd);
	free(r);
}

struct working_set *ram_working_set(struct ram *r)
{
	return &r->working_set;
}

unsigned ram_snapshot_fds(const struct ram *r, int fds[RAM_SNAPSHOT_FDS])
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
		return err_say(e, EBUSY, "the RAM of this VM is already backed");
	result = gm_back_with_memfd(r->gm, &r->memory_fd, e);
	r->shared = !result;
	return result;
}

/*
 * Refuses a memfd that someone could still write to. Files on disk have no seals, and files on
 * tmpfs can't get any. A file that has a name is trusted: only the service can have made it, since
 * a VM process can't name a file. A memfd never has a name.
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
	return err_say(e, EINVAL, "the memory file is not sealed: someone could still write to it");
}

static int keep(int *kept, int fd, struct err *e)
{
	int r = check_sealed(fd, e);

	if (r)
		return r;
	*kept = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return *kept < 0 ? err_set(e, errno, "duplicate the descriptor of guest memory") : 0;
}

static int open_layer(struct ram *r, int fd, struct err *e)
{
	struct ram_layer *l = &r->layers[r->nlayers];
	struct extent_map snapshot = {0};
	struct extents extents = {0};
	int result = ram_table_read(&extents, fd, r->gm->bytes, e);

	if (!result && extent_map_cover(&snapshot, &r->snapshot, &extents, r->last_file + 1,
					ram_table_bytes(extents.n)))
		result = err_set(e, ENOMEM, "add it to the extent map");
	if (!result && snapshot.n > IMAGE_MEMORY_EXTENTS_MAX)
		result = err_say(e, E2BIG, "RAM would have %u mappings; the limit is %u",
				 snapshot.n, IMAGE_MEMORY_EXTENTS_MAX);
	if (!result)
		result = keep(&l->fd, fd, e);
	if (!result) {
		l->file = ++r->last_file;
		l->bytes = extents_bytes(&extents);
		l->size = ram_table_bytes(extents.n) + l->bytes;
		r->nlayers++;
		extent_map_take(&r->snapshot, &snapshot);
	}
	extents_free(&extents);
	extent_map_free(&snapshot);
	return result;
}

static int map_all(struct ram *r, struct err *e)
{
	struct extents all = {0};
	int result = extent_map_extents(&all, &r->snapshot);

	if (result)
		err_set(e, ENOMEM, "list what the memory layers hold");
	else
		result = ram_map_snapshot(r, &all, e);
	extents_free(&all);
	return result;
}

int ram_back_with_snapshot(struct ram *r, int memory_fd, const int *layers, unsigned n,
			   struct err *e)
{
	int result = 0;

	if (r->memory_fd >= 0)
		return err_say(e, EBUSY, "the RAM of this VM is already backed");
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
		result = gm_back_with_file(r->gm, memory_fd, e);
	if (!result)
		result = map_all(r, e);
	if (result) {
		drop_layers(r);
		extent_map_free(&r->snapshot);
		close_fd(&r->memory_fd);
	}
	return result;
}

/* --- Freeze --- */

/*
 * Adds the seals after the new mapping, so that a failure can restore the old one. No writable
 * mapping is left then, so F_SEAL_FUTURE_WRITE suffices and takes no time; F_SEAL_WRITE would visit
 * each page.
 */
static int freeze_memfd(struct ram *r, struct err *e)
{
	int result;

	record_end(r);
	result = gm_map(r->gm, 0, r->gm->bytes, MAP_PRIVATE, r->memory_fd, 0, e);
	if (result)
		return result;
	if (fcntl(r->memory_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) <
	    0) {
		result = err_set(e, errno, "seal the guest's memory file");
		gm_map(r->gm, 0, r->gm->bytes, MAP_SHARED, r->memory_fd, 0, NULL);
		return result;
	}
	r->shared = false;
	return 0;
}

/* Computes the extents of the new layer, and the extent map of the snapshot that includes it. */
static int plan(struct ram *r, const struct extents *dirty, uint64_t gap, uint32_t most,
		struct extents *extents, struct extent_map *snapshot, struct err *e)
{
	extent_map_free(snapshot);
	extents_free(extents);
	if (extents_join(extents, dirty, gap, most) ||
	    extent_map_cover(snapshot, &r->snapshot, extents, r->last_file + 1,
			     ram_table_bytes(extents->n)))
		return err_set(e, ENOMEM, "list the pages that the guest wrote");
	return 0;
}

/*
 * Plans a snapshot that a child can map: the kernel limits the number of maps. If there would be
 * too many, merges the old layers into at most half of the limit. New extents, limited to a quarter
 * of it, add at most two mappings each.
 */
static int plan_within_limits(struct ram *r, const struct extents *dirty, uint64_t gap,
			      struct extents *extents, struct extent_map *snapshot, struct err *e)
{
	int result = plan(r, dirty, gap, IMAGE_MEMORY_EXTENTS_MAX, extents, snapshot, e);

	if (result || snapshot->n <= IMAGE_MEMORY_EXTENTS_MAX)
		return result;
	result = flatten_extent_map(r, e);
	return result ? result
		      : plan(r, dirty, gap, IMAGE_MEMORY_EXTENTS_MAX / 4, extents, snapshot, e);
}

static int write_layer(struct ram *r, const struct extents *extents, const struct extents *dirty,
		       struct err *e)
{
	scoped_fd int fd = r->reserved_fd >= 0 ? take_fd(&r->reserved_fd) : layer_create(e);
	int result;

	if (fd < 0)
		return fd;
	result = layer_copy_ram(r, fd, extents, dirty, e);
	if (!result)
		result = layer_finish(r, fd, extents, e);
	return result ? result : take_fd(&fd);
}

static int add_layer(struct ram *r, const struct extents *dirty, uint64_t gap, uint64_t *copied,
		     struct err *e)
{
	struct extent_map snapshot = {0};
	struct extents extents = {0};
	int result = flatten_chain(r, 1, e), fd = -1;

	if (!result)
		result = plan_within_limits(r, dirty, gap, &extents, &snapshot, e);
	if (!result)
		result = fd = write_layer(r, &extents, dirty, e);
	if (fd >= 0) {
		uint64_t bytes = extents_bytes(&extents);

		r->layers[r->nlayers++] =
			(struct ram_layer){.file = ++r->last_file,
					   .fd = fd,
					   .bytes = bytes,
					   .size = ram_table_bytes(extents.n) + bytes,
					   .own = true};
		extent_map_take(&r->snapshot, &snapshot);
		flatten_drop_hidden(r);
		*copied += bytes;
		result = 0;
	}
	extents_free(&extents);
	extent_map_free(&snapshot);
	return result;
}

/* Adds a layer with the pages of `own` that differ from the snapshot. */
static int add_changed(struct ram *r, const struct extents *own, uint64_t *copied, struct err *e)
{
	struct extents changed = {0};
	int result = ram_changed(r, own, &changed, e);

	if (!result && changed.n)
		result = add_layer(r, &changed, RAM_JOIN_GAP, copied, e);
	extents_free(&changed);
	return result;
}

/* Estimates how much of `own` differs from the snapshot, by one page in `step`. */
static uint64_t estimate_changed(struct ram *r, const struct extents *own, uint64_t step)
{
	struct extents some = {0}, changed = {0};
	uint64_t bytes = extents_bytes(own), skip = 0;
	int result = 0;

	for (uint32_t i = 0; i < own->n && !result; i++) {
		const struct extent *extent = &own->extent[i];

		for (; skip < extent->bytes && !result; skip += step * RAM_PAGE)
			result = extents_add(&some, extent->offset + skip, RAM_PAGE);
		skip -= extent->bytes;
	}
	if (!result)
		result = ram_changed(r, &some, &changed, NULL);
	if (!result)
		bytes = step * extents_bytes(&changed);
	extents_free(&some);
	extents_free(&changed);
	return bytes;
}

/* Lists the own pages that may differ from the snapshot. */
static int list_written(const struct ram *r, struct extents *own, struct err *e)
{
	return r->watching ? pagemap_written(r->pagemap_fd, r->gm, own, e)
			   : pagemap_dirty(r->pagemap_fd, r->gm, own, e);
}

/*
 * Lists the pages of `own` that differ from the snapshot, or moves all of them to the list if
 * nearly all of a sample differ: to compare a page takes a third as long as to copy it.
 */
static int list_changed(struct ram *r, struct extents *own, struct extents *changed, struct err *e)
{
	uint64_t bytes = extents_bytes(own);

	if (estimate_changed(r, own, SAMPLE_MANY) < bytes - bytes / 8)
		return ram_changed(r, own, changed, e);
	*changed = *own;
	*own = (struct extents){0};
	return 0;
}

/* The result of one round of copying ahead. */
struct round {
	uint64_t changed; /* bytes of pages that differed from the snapshot, perhaps estimated */
	bool tracked;	  /* all of them were copied and are being tracked */
};

/* Runs one round of copying ahead, if more than `least` bytes are to be copied. */
static int copy_ahead(struct ram *r, uint64_t least, uint64_t gap, struct round *round,
		      struct err *e)
{
	struct extents own = {0}, changed = {0};
	int result = list_written(r, &own, e);

	round->tracked = !result && extents_bytes(&own) > r->watch_min && watch_written(r, &own);
	if (!result && !round->tracked)
		round->changed = estimate_changed(r, &own, SAMPLE);
	if (!result && (round->tracked || round->changed > least)) {
		result = round->tracked ? list_changed(r, &own, &changed, e)
					: ram_changed(r, &own, &changed, e);
		round->changed = extents_bytes(&changed);
	}
	if (round->tracked && round->changed > extents_bytes(&r->watched) / r->watch_share)
		r->keep_watching = false;
	/* The freeze does not compare protected pages, so even a little is copied now. */
	if (!result && changed.n && (round->tracked || round->changed > least))
		result = add_layer(r, &changed, gap, &r->ahead, e);
	/* The protected pages may differ from the snapshot now: the freeze must compare them. */
	if (result && round->tracked)
		watch_end(r);
	extents_free(&changed);
	extents_free(&own);
	return result;
}

/*
 * Prepares a file for the layer that the freeze is expected to write. If it fails, the freeze makes
 * its own.
 */
static void reserve_layer(struct ram *r, uint64_t bytes)
{
	if (bytes < RESERVE_MIN)
		return;
	bytes = (bytes < RESERVE_MAX ? bytes : RESERVE_MAX) + RESERVE_MORE;
	r->reserved_fd = layer_create(NULL);
	if (r->reserved_fd >= 0 && layer_allocate(r->reserved_fd, bytes, NULL))
		close_fd(&r->reserved_fd);
}

/* Returns how many bytes the first round of copying ahead may leave to the freeze. */
static uint64_t copy_ahead_min(const struct ram *r, bool many)
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
	bool many = children >= MANY_CHILDREN;
	unsigned counted = children < GAP_CHILDREN ? children : GAP_CHILDREN;
	uint64_t gap = many ? 2 * counted * RAM_PAGE : RAM_JOIN_GAP;
	uint64_t least = copy_ahead_min(r, many);
	struct round round = {0};
	int result;

	r->ahead = 0;
	if (r->memory_fd < 0 || r->shared || r->pagemap_fd < 0)
		return 0;
	flatten_adopt(r);
	r->flat.failed = false;
	r->keep_watching = true;
	result = flatten_chain(r, AHEAD_ROUNDS + 1, e);
	for (unsigned i = 0; i < AHEAD_ROUNDS && !result; i++) {
		result = copy_ahead(r, least, gap, &round, e);
		if (round.changed <= least)
			break;
		least = r->ahead_min;
	}
	if (!result && !round.tracked) /* the freeze will copy about as many bytes as this round */
		reserve_layer(r, round.changed);
	return result;
}

/*
 * Maps own pages from the new layer after a freeze. Includes pages in small gaps, to need fewer
 * maps.
 */
static void map_own(struct ram *r, const struct extents *own)
{
	struct extents joined = {0};

	if (!extents_join(&joined, own, RAM_JOIN_GAP, IMAGE_MEMORY_EXTENTS_MAX))
		ram_map_long_extents(r, &joined);
	extents_free(&joined);
}

int ram_freeze(struct ram *r, uint64_t *copied, struct err *e)
{
	struct extents own = {0};
	int result;

	*copied = r->ahead;
	r->ahead = 0;
	if (r->memory_fd < 0)
		return err_say(e, EINVAL, "the RAM of this VM is not backed yet");
	if (r->shared)
		return freeze_memfd(r, e);
	if (r->pagemap_fd < 0)
		return err_say(e, ENOTSUP,
			       "can't find the pages that the guest wrote: no /proc/self/pagemap");
	flatten_adopt(r);
	r->flat.failed = false;
	result = list_written(r, &own, e);
	if (!result)
		result = add_changed(r, &own, copied, e);
	if (!result) {
		map_own(r, r->watching ? &r->watched : &own);
		ram_remap_retired(r);
	}
	extents_free(&own);
	return result;
}

void ram_end_freeze(struct ram *r)
{
	r->ahead = 0;
	if (!r->keep_watching)
		watch_end(r);
	close_fd(&r->reserved_fd);
	while (r->nretired)
		layer_close(&r->retired[--r->nretired]);
}

/* --- Discard --- */

/*
 * Drops pages of RAM. A page dropped from a private mapping is no longer an own page, hence not
 * dirty. RAM then has the content that is mapped there, and the next snapshot the content of its
 * topmost layer. The two differ if that layer was not mapped (ram_map_long_extents), but the guest
 * uses neither.
 */
static int drop(const struct ram *r, uint64_t start, uint64_t end)
{
	int result;

	if (r->shared)
		result = fallocate(r->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   (off_t)start, (off_t)(end - start));
	else
		result = madvise(r->gm->base + start, end - start, MADV_DONTNEED);
	return result < 0 ? -errno : 0;
}

int ram_discard(struct ram *r, uint64_t offset, uint64_t bytes)
{
	uint64_t start, end;

	if (r->memory_fd < 0 || offset > r->gm->bytes || bytes > r->gm->bytes - offset)
		return -EINVAL;
	start = (offset + RAM_PAGE - 1) / RAM_PAGE * RAM_PAGE;
	end = (offset + bytes) / RAM_PAGE * RAM_PAGE;
	return start < end ? drop(r, start, end) : 0;
}
