// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/snapshot/space-files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "orchestrator/snapshot/space.h"
#include "orchestrator/template/bases.h"
#include "orchestrator/template/templates.h"

#define NAME_ROOM (SANDBOX_ID_LEN + 8)
#define TMP	  ".tmp"
#define LOST	  ".lost"
#define YEAR_MS	  (INT64_C(365) * 24 * 3600 * 1000)

/* --- directories ---------------------------------------------------------------------------- */

static int open_dir(const char *state_dir, const char *name, struct err *e)
{
	char path[CONFIG_PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/%s", state_dir, name);
	return directory_open(path, e);
}

static int sync_path(const char *path, struct err *e)
{
	scoped_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return err_set(e, errno, "write %s to disk", path);
	return 0;
}

static void remove_dir(int parent, const char *name)
{
	scoped_fd int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *d = fd < 0 ? NULL : fdopendir(dup(fd));
	struct dirent *entry;

	while (d && (entry = readdir(d)))
		if (entry->d_name[0] != '.')
			unlinkat(fd, entry->d_name, 0);
	if (d)
		closedir(d);
	unlinkat(parent, name, AT_REMOVEDIR);
}

/* Removes root file systems that no Space uses, and incomplete ones. No freeze may be running. */
static void sweep_bases(const char *state_dir)
{
	struct err e;
	scoped_fd int fd = bases_open(state_dir, &e);
	DIR *d = fd < 0 ? NULL : fdopendir(dup(fd));
	struct dirent *entry;
	struct stat st;

	while (d && (entry = readdir(d))) {
		if (entry->d_name[0] == '.')
			continue;
		if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (st.st_nlink == 1)
			unlinkat(fd, entry->d_name, 0);
		else if (fchmodat(fd, entry->d_name, TEMPLATE_FILE_MODE, 0) < 0)
			log_warn("root file system %s: %s; it counts for the Spaces that use it",
				 entry->d_name, strerror(errno)); /* made by an earlier version */
	}
	if (d)
		closedir(d);
}

/* Renames the directory to its temporary name before removing it, so that an interrupted removal
 * does not leave a lost Space. Returns true when both names are gone. */
static bool remove_named(int parent, const char *name, const char *tmp)
{
	renameat(parent, name, parent, tmp);
	remove_dir(parent, tmp);
	return faccessat(parent, name, F_OK, 0) < 0 && faccessat(parent, tmp, F_OK, 0) < 0;
}

bool space_remove(const char *state_dir, const char *id)
{
	char tmp[NAME_ROOM], lost[NAME_ROOM];
	struct err e;
	scoped_fd int parent = open_dir(state_dir, "spaces", &e);

	if (parent < 0)
		return false;
	snprintf(tmp, sizeof(tmp), "%s" TMP, id);
	snprintf(lost, sizeof(lost), "%s" LOST, id);
	remove_dir(parent, tmp);
	return remove_named(parent, id, tmp) && remove_named(parent, lost, tmp);
}

/* --- sweep ---------------------------------------------------------------------------------- */

struct names {
	char (*all)[NAME_ROOM];
	size_t n, room;
};

static void add_name(struct names *names, const char *name)
{
	if (names->n == names->room) {
		names->room = names->room ? 2 * names->room : 64;
		names->all = realloc(names->all, names->room * sizeof(names->all[0]));
		if (!names->all)
			abort();
	}
	snprintf(names->all[names->n++], NAME_ROOM, "%s", name);
}

/* Reads all names, before any is changed. Ignores entries that are not named like a Space. */
static int read_names(int parent, struct names *out, struct err *e)
{
	DIR *d = fdopendir(dup(parent));
	struct dirent *entry;

	if (!d)
		return err_set(e, errno, "read the directory of Spaces");
	while ((entry = readdir(d)))
		if (!strncmp(entry->d_name, SPACE_ID_PREFIX, strlen(SPACE_ID_PREFIX)) &&
		    strlen(entry->d_name) < NAME_ROOM)
			add_name(out, entry->d_name);
	closedir(d);
	return 0;
}

/* Removes `suffix` from the end of `name`; returns false if it is not there. */
static bool cut(char *name, const char *suffix)
{
	size_t len = strlen(name), tail = strlen(suffix);

	if (len <= tail || strcmp(name + len - tail, suffix) != 0)
		return false;
	name[len - tail] = 0;
	return true;
}

/* Returns when the Space was lost, in ms since the epoch. A time in the future or more than a year
 * ago comes from a wrong clock: then the retention period starts now. */
static int64_t lost_since(int parent, const char *lost)
{
	const int64_t now = realtime_ms();
	struct stat st;

	if (fstatat(parent, lost, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		int64_t since = (int64_t)st.st_mtim.tv_sec * 1000;

		if (since <= now && since > now - YEAR_MS)
			return since;
	}
	utimensat(parent, lost, NULL, AT_SYMLINK_NOFOLLOW);
	return now;
}

static int64_t mark_lost(int parent, const char *id, const char *lost)
{
	if (renameat(parent, id, parent, lost) < 0)
		log_error("space %s: its directory can't be renamed to %s: %s", id, lost,
			  strerror(errno));
	utimensat(parent, lost, NULL, AT_SYMLINK_NOFOLLOW);
	return realtime_ms();
}

static void sweep_one(int parent, const char *name, const struct spaces_sweep *s)
{
	char id[NAME_ROOM], lost[NAME_ROOM + sizeof(LOST)];

	snprintf(id, sizeof(id), "%s", name);
	bool half = cut(id, TMP), was_lost = cut(id, LOST);
	/* Skip a copy of a Space that was made by hand: its name, cut to the length of an id, would
	 * be the Space's. */
	if (strlen(id) > SANDBOX_ID_LEN)
		return;
	snprintf(lost, sizeof(lost), "%s" LOST, id);
	if (s->is_space(s->arg, id)) {
		if ((half || was_lost) && renameat(parent, name, parent, id) == 0)
			log_info("space %s: its directory was renamed back from %s", id, name);
	} else if (half) {
		s->on_leftover(s->arg, id);
	} else if (!s->is_gone(s->arg, id)) {
		s->on_lost(s->arg, id,
			   was_lost ? lost_since(parent, lost) : mark_lost(parent, id, lost));
	}
}

int spaces_sweep(const char *state_dir, const struct spaces_sweep *s, struct err *e)
{
	scoped_fd int parent = open_dir(state_dir, "spaces", e);
	struct names names = {0};
	int ret = parent < 0 ? parent : read_names(parent, &names, e);

	for (size_t i = 0; i < names.n; i++)
		sweep_one(parent, names.all[i], s);
	free(names.all);
	if (ret == 0)
		sweep_bases(state_dir);
	return ret;
}

/* --- write ---------------------------------------------------------------------------------- */

static uint64_t bytes_on_disk(const struct stat *st)
{
	return (uint64_t)st->st_blocks * 512;
}

struct space_write *space_write_new(const char *state_dir, struct vmproc_image *image)
{
	struct space_write *w = must_alloc(sizeof(*w));
	struct stat st;

	snprintf(w->state_dir, sizeof(w->state_dir), "%s", state_dir);
	w->image = image;
	w->parent = w->dir = w->out = -1;
	w->manifest.memory_layers = image->memory_layers;
	w->manifest.layers = image->layers;
	w->manifest.disk_bytes = image->disk_bytes;
	w->manifest.n_files = image->nfds;
	for (unsigned i = 0; i < image->nfds; i++)
		if (fstat(image->fds[i], &st) == 0)
			atomic_fetch_add(&w->total, bytes_on_disk(&st));
	return w;
}

static void tmp_name(const struct space_write *w, char out[NAME_ROOM])
{
	snprintf(out, NAME_ROOM, "%s" TMP, w->manifest.id);
}

static int make_dir(struct space_write *w)
{
	char name[NAME_ROOM];

	w->parent = open_dir(w->state_dir, "spaces", &w->job.err);
	if (w->parent < 0)
		return w->parent;
	tmp_name(w, name);
	if (mkdirat(w->parent, name, 0700) < 0)
		return err_set(&w->job.err, errno, "make its directory");
	w->dir = openat(w->parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return w->dir < 0 ? err_set(&w->job.err, errno, "open its directory") : 0;
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
	char tmp[BASE_NAME_ROOM + NAME_ROOM];
};

/* Fills *base with names derived from the file's identity. Returns the descriptor of the directory,
 * which the caller closes. */
static int open_bases(struct space_write *w, struct base *base, struct err *e)
{
	int bases = bases_open(w->state_dir, e);

	if (bases < 0)
		return bases;
	if (base_name(w->image->fds[w->at], base->name, e) < 0) {
		close_fd(&bases);
		return e->code;
	}
	snprintf(base->tmp, sizeof(base->tmp), "%s.%s" TMP, base->name, w->manifest.id);
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
		return err_set(&w->job.err, errno, "make a copy of its root file system");
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
	/* By this mode, Spaces recognize the base that they share. */
	if (fchmod(w->out, TEMPLATE_FILE_MODE) < 0 ||
	    linkat(bases, base.tmp, w->dir, "base", 0) < 0 ||
	    renameat(bases, base.tmp, bases, base.name) < 0 || fsync(bases) < 0)
		return err_set(&w->job.err, errno, "publish the copy of its root file system");
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

/* Begins the next file: links it if that is possible (same file system, and the file has a name or
 * may get one), else copies it. */
static int begin_file(struct space_write *w)
{
	const int in = w->image->fds[w->at];
	const unsigned base = space_base_index(&w->manifest);
	struct space_file *file = &w->manifest.files[w->at];
	char name[SPACE_FILE_NAME_MAX];
	struct stat st;
	int ret = 0;

	space_file_name(&w->manifest, w->at, name);
	if (fstat(in, &st) < 0)
		return err_set(&w->job.err, errno, "stat its %s", name);
	file->bytes = (uint64_t)st.st_size;
	w->open = true;
	bool linked = link_fd(in, w->dir, name) == 0;
	/* Shared files: a template's root file system, and files with the template's mode, which
	 * the copies of such a file have too. A link alone proves nothing. */
	w->shared = linked && (st.st_mode & 07777) == TEMPLATE_FILE_MODE;
	if (w->at == base && !w->shared) {
		ret = base_is_known(w->state_dir, in, &w->job.err);
		w->shared = ret > 0;
	}
	if (ret >= 0 && !linked)
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

	w->manifest.files[w->at].sum = w->walk.sum;
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
		file_sum_learn(&st, w->manifest.files[w->at].sum);
	if (!copied || base)
		file_sum_learn(&source, w->manifest.files[w->at].sum);
	w->size_bytes += w->shared ? 0 : bytes_on_disk(&st);
	w->open = false;
	w->at++;
	return 0;
}

static int write_manifest(struct space_write *w)
{
	scoped_free uint8_t *bytes = NULL;
	size_t len;
	scoped_fd int fd =
		openat(w->dir, "manifest", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (space_manifest_write(&w->manifest, &bytes, &len) < 0)
		return err_set(&w->job.err, ENOMEM, "write its manifest");
	if (fd < 0)
		return err_set(&w->job.err, errno, "make its manifest");
	if (file_write(fd, 0, bytes, len, &w->job.err) < 0)
		return err_context(&w->job.err, "its manifest");
	w->size_bytes += len;
	return fsync(fd) < 0 ? err_set(&w->job.err, errno, "write its manifest to disk") : 0;
}

static int publish(struct space_write *w)
{
	char name[NAME_ROOM];
	int ret = write_manifest(w);

	if (ret < 0)
		return ret;
	tmp_name(w, name);
	if (fsync(w->dir) < 0 || renameat(w->parent, name, w->parent, w->manifest.id) < 0 ||
	    fsync(w->parent) < 0)
		return err_set(&w->job.err, errno, "put its directory in place");
	return sync_path(w->state_dir, &w->job.err);
}

/* Writes up to SPACE_STEP_BYTES. Returns 0 when there is more to do, 1 when the Space is complete,
 * or -errno. */
static int write_some(struct space_write *w)
{
	uint64_t done = 0;
	int ret = w->dir < 0 ? make_dir(w) : 0;

	while (ret == 0 && done < SPACE_STEP_BYTES) {
		uint64_t before = done;

		if (w->at == w->manifest.n_files)
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
	space_remove(w->state_dir, w->manifest.id);
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

static int damage(struct space_read *r, const char *name)
{
	r->damaged = true;
	err_context(&r->job.err, "%s", name);
	return r->job.err.code;
}

/* Opens a file of the Space. A missing file is damage; too many open files are not. */
static int open_file(struct space_read *r, const char *name)
{
	int fd = openat(r->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd >= 0)
		return fd;
	err_set(&r->job.err, errno, "open it");
	return errno == ENOENT || errno == ELOOP ? damage(r, name) : r->job.err.code;
}

static int read_manifest(struct space_read *r)
{
	struct stat st;
	scoped_free uint8_t *bytes = NULL;
	scoped_fd int fd = open_file(r, "manifest");

	if (fd < 0)
		return r->job.err.code;
	if (fstat(fd, &st) < 0)
		return err_set(&r->job.err, errno, "stat its manifest");
	if (!S_ISREG(st.st_mode) || st.st_size > SPACE_MANIFEST_MAX) {
		err_say(&r->job.err, EINVAL, "its size of %lld bytes is wrong",
			(long long)st.st_size);
		return damage(r, "manifest");
	}
	bytes = malloc((size_t)st.st_size + 1);
	if (!bytes)
		return err_set(&r->job.err, ENOMEM, "read its manifest");
	ssize_t len = read(fd, bytes, (size_t)st.st_size);
	if (len < 0)
		return err_set(&r->job.err, errno, "read its manifest");
	int ret = space_manifest_read(bytes, (size_t)len, &r->manifest, &r->job.err);
	if (ret == 0 && strcmp(r->manifest.id, r->id) != 0)
		ret = err_say(&r->job.err, EINVAL, "it belongs to another Space");
	return ret < 0 ? damage(r, "manifest") : 0;
}

static int open_all(struct space_read *r)
{
	char path[CONFIG_PATH_MAX + SANDBOX_ID_LEN + 16];

	snprintf(path, sizeof(path), "%s/spaces/%s", r->state_dir, r->id);
	r->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (r->dir < 0) {
		err_set(&r->job.err, errno, "open its directory");
		r->damaged = r->job.err.code == -ENOENT;
		return r->job.err.code;
	}
	return read_manifest(r);
}

static int begin_check(struct space_read *r, struct stat *st)
{
	const struct space_file *file = &r->manifest.files[r->at];
	char name[SPACE_FILE_NAME_MAX];

	space_file_name(&r->manifest, r->at, name);
	int fd = open_file(r, name);
	if (fd < 0)
		return fd;
	r->fds[r->at] = fd;
	if (fstat(fd, st) < 0)
		return err_set(&r->job.err, errno, "stat its %s", name);
	if (!S_ISREG(st->st_mode) || (uint64_t)st->st_size != file->bytes) {
		err_say(&r->job.err, EIO, "it has %lld bytes instead of %llu",
			(long long)st->st_size, (unsigned long long)file->bytes);
		return damage(r, name);
	}
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
	if (r->walk.sum != r->manifest.files[r->at].sum) {
		space_file_name(&r->manifest, r->at, name);
		err_say(&r->job.err, EIO, "its checksum differs from the manifest's");
		return damage(r, name);
	}
	if (fstat(r->fds[r->at], &st) == 0)
		file_sum_learn(&st, r->walk.sum);
	r->at++;
	return 0;
}

int space_read_step(void *job)
{
	struct space_read *r = job;
	int ret = r->dir < 0 ? open_all(r) : 0;
	uint64_t done = 0;

	while (ret == 0 && done < SPACE_STEP_BYTES) {
		struct stat st;

		if (r->at == r->manifest.n_files)
			return 1;
		bool fresh = !r->open;
		ret = fresh ? begin_check(r, &st) : 0;
		if (ret < 0)
			break;
		ret = fresh && file_sum_known(&st, &r->walk.sum)
			      ? 1
			      : file_walk_step(&r->walk, SPACE_STEP_BYTES - done, &done,
					       &r->job.err);
		if (ret == -EIO)
			r->damaged = true;
		if (ret == 1)
			ret = end_check(r);
	}
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
