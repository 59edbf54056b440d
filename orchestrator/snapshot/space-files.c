// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/snapshot/space-files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/file.h"
#include "orchestrator/images/bases.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/snapshot/snapshots.h"

/* --- directories ---------------------------------------------------------------------------- */

static int sync_path(const char *path, struct err *e)
{
	scoped_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return err_set(e, errno, "write %s to disk", path);
	return 0;
}

static uint64_t bytes_on_disk(const struct stat *st)
{
	return (uint64_t)st->st_blocks * 512;
}

/* Renames the directory to its temporary name before removing it, so that an interrupted removal
 * does not leave a lost Space. Returns true when both names are gone. */
static bool remove_named(int parent, const char *name, const char *tmp)
{
	renameat(parent, name, parent, tmp);
	image_dir_remove(parent, tmp);
	return faccessat(parent, name, F_OK, 0) < 0 && faccessat(parent, tmp, F_OK, 0) < 0;
}

bool space_remove(const char *state_dir, const char *id)
{
	char tmp[IMAGE_NAME_ROOM], lost[IMAGE_NAME_ROOM];
	struct err e;
	scoped_fd int parent = state_dir_open(state_dir, "spaces", &e);

	if (parent < 0)
		return false;
	image_tmp_name(id, tmp);
	snprintf(lost, sizeof(lost), "%s" SPACE_LOST, id);
	image_dir_remove(parent, tmp);
	return remove_named(parent, id, tmp) && remove_named(parent, lost, tmp);
}

uint64_t space_freed_bytes(const char *state_dir, const char *id)
{
	char path[CONFIG_PATH_MAX + SANDBOX_ID_LEN + 16];
	struct image_names names = {0};
	uint64_t bytes = 0;
	struct stat st;

	snprintf(path, sizeof(path), "%s/spaces/%s", state_dir, id);
	scoped_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0)
		image_names_read(dir, &names, NULL);
	for (size_t i = 0; i < names.n; i++)
		if (fstatat(dir, names.all[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == 1)
			bytes += bytes_on_disk(&st);
	image_names_free(&names);
	return bytes;
}

/* --- known copies --------------------------------------------------------------------------- */

#define COPIES 2048u /* entries; a file whose copy is displaced is copied again */

/* The last copies of memory layers, which are files without a name. The next checkpoint of the same
 * sandbox has most of these layers, too, and links the copies. A VM process could make a file that
 * passes for another one. It can harm only its own sandbox, since copies are looked up by file and
 * sandbox. */
static struct copy {
	struct file_id source;
	char sandbox[SANDBOX_ID_LEN + 1];
	char path[SANDBOX_ID_LEN + SPACE_FILE_NAME_MAX + 1]; /* below spaces/ */
} copies[COPIES];
static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;

static struct copy *place_of(const struct stat *source, const char *sandbox)
{
	uint64_t hash = (source->st_ino + bucket_number(sandbox)) * 0x9e3779b97f4a7c15u;

	return &copies[(hash >> 40) % COPIES];
}

static void note_copy(const struct space_write *w, const struct stat *source, const char *name)
{
	struct copy copy = {.source = file_id_of(source)};

	memcpy(copy.sandbox, w->sandbox, sizeof(copy.sandbox));
	snprintf(copy.path, sizeof(copy.path), "%s/%s", w->manifest.image.name, name);
	pthread_mutex_lock(&copies_lock);
	*place_of(source, w->sandbox) = copy;
	pthread_mutex_unlock(&copies_lock);
}

static bool find_copy(const struct space_write *w, const struct stat *source, struct copy *out)
{
	const struct file_id id = file_id_of(source);

	pthread_mutex_lock(&copies_lock);
	*out = *place_of(source, w->sandbox);
	pthread_mutex_unlock(&copies_lock);
	return file_id_equal(&out->source, &id) && !strcmp(out->sandbox, w->sandbox);
}

/* Links the copy of the file that another Space has. The copy's checksum must be known. */
static bool link_copy(const struct space_write *w, const struct stat *source, const char *name)
{
	struct copy copy;
	struct stat st;
	uint32_t sum;

	if (!find_copy(w, source, &copy) || linkat(w->parent, copy.path, w->dir, name, 0) < 0)
		return false;
	if (fstatat(w->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size == source->st_size &&
	    file_sum_known(&st, &sum)) {
		file_sum_learn(source, sum);
		return true;
	}
	unlinkat(w->dir, name, 0);
	return false;
}

/* --- write ---------------------------------------------------------------------------------- */

uint64_t space_bytes_of(const struct vmproc_image *image)
{
	const struct space_manifest m = {.memory_layers = image->memory_layers};
	uint64_t bytes = 0;
	struct stat st;

	/* Files without a name are written, whatever their mode: a VM process made them. */
	for (unsigned i = 0; i < image->nfds; i++)
		if (i != space_base_index(&m) && fstat(image->fds[i], &st) == 0 &&
		    (!st.st_nlink || (st.st_mode & 07777) != TEMPLATE_FILE_MODE))
			bytes += bytes_on_disk(&st);
	return bytes;
}

struct space_write *space_write_new(const char *state_dir, const char *sandbox,
				    struct vmproc_image *image)
{
	struct space_write *w = must_alloc(sizeof(*w));
	struct stat st;

	snprintf(w->state_dir, sizeof(w->state_dir), "%s", state_dir);
	snprintf(w->sandbox, sizeof(w->sandbox), "%s", sandbox);
	w->image = image;
	w->parent = w->dir = w->out = -1;
	w->manifest.memory_layers = image->memory_layers;
	w->manifest.layers = image->layers;
	w->manifest.disk_bytes = image->disk_bytes;
	w->manifest.image.n_files = image->nfds;
	for (unsigned i = 0; i < image->nfds; i++)
		if (fstat(image->fds[i], &st) == 0)
			atomic_fetch_add(&w->total, bytes_on_disk(&st));
	return w;
}

static int link_fd(int fd, int dir, const char *name)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW);
}

/* Names of the copy of a root file system, which Spaces share: the final and a temporary one. */
struct base {
	char name[BASE_NAME_ROOM];
	char tmp[BASE_NAME_ROOM + IMAGE_NAME_ROOM + 8];
};

/* Fills *base with names derived from the file's identity. Returns the descriptor of the directory,
 * which the caller closes. */
static int open_bases(struct space_write *w, struct base *base, struct err *e)
{
	int bases = state_dir_open(w->state_dir, "bases", e);

	if (bases < 0)
		return bases;
	if (base_name(w->image->fds[w->at], base->name, e) < 0) {
		close_fd(&bases);
		return e->code;
	}
	snprintf(base->tmp, sizeof(base->tmp), "%s.%s" IMAGE_TMP, base->name,
		 w->manifest.image.name);
	return bases;
}

/* Links the root file system, or begins to copy it to w->out. Returns 0 in both cases, or
 * -errno. */
static int begin_base(struct space_write *w)
{
	struct base base;
	scoped_fd int bases = open_bases(w, &base, &w->job.err);

	if (bases < 0)
		return bases;
	if (linkat(bases, base.name, w->dir, "base", 0) == 0)
		return 0;
	w->out = openat(bases, base.tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (w->out < 0)
		return err_set(&w->job.err, errno,
			       "make a copy of the template's root file system");
	w->for_base = true;
	return 0;
}

/* Makes the copy available to all Spaces. It may replace one made meanwhile, which is identical. */
static int publish_base(struct space_write *w)
{
	struct base base;
	scoped_fd int bases = open_bases(w, &base, &w->job.err);

	if (bases < 0)
		return bases;
	/* Spaces recognize the base that they share by this mode. */
	if (fchmod(w->out, TEMPLATE_FILE_MODE) < 0 ||
	    linkat(bases, base.tmp, w->dir, "base", 0) < 0 ||
	    renameat(bases, base.tmp, bases, base.name) < 0 || fsync(bases) < 0)
		return err_set(&w->job.err, errno,
			       "publish the copy of the template's root file system");
	w->for_base = false;
	return 0;
}

static void drop_base(struct space_write *w)
{
	struct base base;
	struct err e;
	scoped_fd int bases = w->for_base ? open_bases(w, &base, &e) : -1;

	if (bases >= 0)
		unlinkat(bases, base.tmp, 0);
	w->for_base = false;
}

/* Begins a copy of a file that can't be linked. */
static int begin_copy(struct space_write *w, const char *name)
{
	if (w->at == space_base_index(&w->manifest) && w->shared)
		return begin_base(w);
	w->out = openat(w->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return w->out < 0 ? err_set(&w->job.err, errno, "make its %s", name) : 0;
}

/* Begins the next file. Links the file itself if that is possible (it is on the same file system,
 * and has a name or may get one), else a copy of it; without either, copies the file. */
static int begin_file(struct space_write *w)
{
	const int in = w->image->fds[w->at];
	const unsigned base = space_base_index(&w->manifest);
	struct image_file *file = &w->manifest.image.files[w->at];
	char name[SPACE_FILE_NAME_MAX];
	struct stat st;
	int ret = 0;

	space_file_name(&w->manifest, w->at, name);
	if (fstat(in, &st) < 0)
		return err_set(&w->job.err, errno, "stat its %s", name);
	file->bytes = (uint64_t)st.st_size;
	w->open = true;
	bool linked = link_fd(in, w->dir, name) == 0;
	/* A template's root file system is shared, and so is each linked file with the mode of a
	 * template's files, which their copies keep. A link alone proves nothing. */
	w->shared = linked && (st.st_mode & 07777) == TEMPLATE_FILE_MODE;
	if (w->at == base && !w->shared) {
		ret = base_is_known(w->state_dir, in, &w->job.err);
		w->shared = ret > 0;
	}
	if (ret >= 0 && !linked && (w->at == base || !link_copy(w, &st, name)))
		ret = begin_copy(w, name);
	if (ret < 0)
		return ret;
	return file_walk_begin(&w->walk, in, w->out, file->bytes, &w->job.err);
}

/* Starts to write the new chunk to disk and waits for the previous one. Without this, one flush of
 * gigabytes at the end would block the worker for other jobs. Ignores errors, which the final flush
 * in end_file reports. */
static void flush_chunk(const struct space_write *w, uint64_t from)
{
	const int fd = w->out >= 0 ? w->out : w->walk.in;

	if (from)
		sync_file_range(fd, 0, (off_t)from,
				SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					SYNC_FILE_RANGE_WAIT_AFTER);
	sync_file_range(fd, (off_t)from, (off_t)(w->walk.at - from), SYNC_FILE_RANGE_WRITE);
}

/* Flushes the file and records the checksum of the file read and of the file written. Records
 * nothing for a base that an earlier freeze copied, which was neither read nor written now. */
static int end_file(struct space_write *w)
{
	const int in = w->image->fds[w->at];
	const bool copied = w->out >= 0, base = w->at == space_base_index(&w->manifest);
	char name[SPACE_FILE_NAME_MAX];
	struct stat st, source;

	w->manifest.image.files[w->at].sum = w->walk.sum;
	file_walk_end(&w->walk);
	if (fsync(w->out >= 0 ? w->out : in) < 0)
		return err_set(&w->job.err, errno, "flush a file of the space to disk");
	if (w->for_base && publish_base(w) < 0)
		return w->job.err.code;
	close_fd(&w->out);
	space_file_name(&w->manifest, w->at, name);
	if (fstatat(w->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || fstat(in, &source) < 0)
		return err_set(&w->job.err, errno, "stat its %s", name);
	if (copied)
		file_sum_learn(&st, w->manifest.image.files[w->at].sum);
	if (!copied || base)
		file_sum_learn(&source, w->manifest.image.files[w->at].sum);
	if (!source.st_nlink && !base)
		note_copy(w, &source, name);
	*(w->shared ? &w->shared_bytes : &w->size_bytes) += bytes_on_disk(&st);
	w->open = false;
	w->at++;
	return 0;
}

static int publish(struct space_write *w)
{
	scoped_free uint8_t *bytes = NULL;
	size_t len;

	if (space_manifest_write(&w->manifest, &bytes, &len) < 0)
		return err_set(&w->job.err, ENOMEM, "write its manifest");
	if (w->published)
		return image_manifest_put(w->dir, bytes, len, &w->job.err);
	w->size_bytes += len;
	int ret = image_dir_publish(w->parent, w->dir, w->manifest.image.name, bytes, len,
				    &w->job.err);
	w->published = ret == 0;
	return ret < 0 ? ret : sync_path(w->state_dir, &w->job.err);
}

/* Makes the directory. */
static int begin(struct space_write *w)
{
	w->parent = state_dir_open(w->state_dir, "spaces", &w->job.err);
	if (w->parent < 0)
		return w->parent;
	w->dir = image_dir_new(w->parent, w->manifest.image.name, &w->job.err);
	return w->dir < 0 ? w->dir : 0;
}

/* Writes up to SPACE_STEP_BYTES. Returns 0 when there is more to do, 1 when the Space is complete,
 * or -errno. */
static int write_some(struct space_write *w)
{
	uint64_t done = 0;
	int ret = w->dir < 0 ? begin(w) : 0;

	while (ret == 0 && done < SPACE_STEP_BYTES) {
		uint64_t before = done;

		if (w->at == w->manifest.image.n_files)
			return publish(w) < 0 ? w->job.err.code : 1;
		ret = w->open ? 0 : begin_file(w);
		if (ret < 0)
			break;
		struct stat st;
		bool known = w->out < 0 && !w->walk.at && fstat(w->walk.in, &st) == 0 &&
			     file_sum_known(&st, &w->walk.sum);
		uint64_t from = w->walk.at;
		ret = known ? 1
			    : file_walk_step(&w->walk, SPACE_STEP_BYTES - done, &done, &w->job.err);
		if (done > before)
			flush_chunk(w, from);
		atomic_fetch_add(&w->written, done - before);
		if (ret == 1)
			ret = end_file(w);
	}
	return ret;
}

void space_write_undo(void *job)
{
	struct space_write *w = job;

	drop_base(w);
	space_remove(w->state_dir, w->manifest.image.name);
}

int space_write_step(void *job)
{
	int ret = write_some(job);

	if (ret < 0)
		space_write_undo(job);
	return ret;
}

void space_write_free(void *job)
{
	struct space_write *w = job;

	file_walk_end(&w->walk);
	close_fd(&w->parent);
	close_fd(&w->dir);
	close_fd(&w->out);
	space_manifest_fini(&w->manifest);
	vmproc_image_put(w->image);
	free(w);
}

/* --- read ----------------------------------------------------------------------------------- */

void space_read_begin(struct space_read *r, const char *state_dir, const char *id)
{
	snprintf(r->state_dir, sizeof(r->state_dir), "%s", state_dir);
	snprintf(r->id, sizeof(r->id), "%s", id);
	r->dir = -1;
	for (unsigned i = 0; i < ARRAY_LEN(r->fds); i++)
		r->fds[i] = -1;
}

static int open_all(struct space_read *r)
{
	char path[CONFIG_PATH_MAX + SANDBOX_ID_LEN + 16];
	scoped_free uint8_t *bytes = NULL;
	struct wire extra;

	snprintf(path, sizeof(path), "%s/spaces/%s", r->state_dir, r->id);
	r->dir = image_dir_open(AT_FDCWD, path, &r->job.err);
	if (r->dir < 0)
		return r->dir;
	int ret =
		image_manifest_load(r->dir, r->id, &r->manifest.image, &bytes, &extra, &r->job.err);
	return ret < 0 ? ret : space_manifest_read(&extra, &r->manifest, &r->job.err);
}

static int begin_check(struct space_read *r, struct stat *st)
{
	const struct image_file *file = &r->manifest.image.files[r->at];
	char name[SPACE_FILE_NAME_MAX];

	space_file_name(&r->manifest, r->at, name);
	int fd = r->fds[r->at] = image_file_open(r->dir, name, file->bytes, &r->job.err);
	if (fd < 0)
		return fd;
	if (fstat(fd, st) < 0)
		return err_set(&r->job.err, errno, "stat its %s", name);
	if (r->at == TEMPLATE_MEMORY)
		r->memory = *st;
	r->open = true;
	return file_walk_begin(&r->walk, fd, -1, file->bytes, &r->job.err);
}

static int end_check(struct space_read *r)
{
	char name[SPACE_FILE_NAME_MAX];
	struct stat st;

	file_walk_end(&r->walk);
	r->open = false;
	if (r->walk.sum != r->manifest.image.files[r->at].sum) {
		space_file_name(&r->manifest, r->at, name);
		return err_say(&r->job.err, EIO, "the checksum of %s differs from the manifest's",
			       name);
	}
	if (fstat(r->fds[r->at], &st) == 0)
		file_sum_learn(&st, r->walk.sum);
	r->at++;
	return 0;
}

static int read_some(struct space_read *r)
{
	int ret = r->dir < 0 ? open_all(r) : 0;
	uint64_t done = 0;

	while (ret == 0 && done < SPACE_STEP_BYTES) {
		struct stat st;

		if (r->at == r->manifest.image.n_files)
			return 1;
		bool fresh = !r->open;
		ret = fresh ? begin_check(r, &st) : 0;
		if (ret < 0)
			break;
		ret = fresh && file_sum_known(&st, &r->walk.sum)
			      ? 1
			      : file_walk_step(&r->walk, SPACE_STEP_BYTES - done, &done,
					       &r->job.err);
		if (ret == 1)
			ret = end_check(r);
	}
	return ret;
}

int space_read_step(void *job)
{
	struct space_read *r = job;
	int ret = read_some(r);

	/* A missing or changed file stays so. A failure such as too many open files may pass. */
	r->damaged =
		ret == -ENOENT || ret == -ELOOP || ret == -EINVAL || ret == -ENOTSUP || ret == -EIO;
	return ret;
}

void space_read_fini(struct space_read *r)
{
	file_walk_end(&r->walk);
	close_fd(&r->dir);
	for (unsigned i = 0; i < ARRAY_LEN(r->fds); i++)
		close_fd(&r->fds[i]);
	space_manifest_fini(&r->manifest);
}

void space_read_free(void *job)
{
	space_read_fini(job);
	free(job);
}
