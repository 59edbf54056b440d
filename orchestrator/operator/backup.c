// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/operator/backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file-sum.h"
#include "base/file.h"
#include "orchestrator/operator/command.h"
#include "orchestrator/snapshot/space-files.h"
#include "orchestrator/store/store.h"
#include "orchestrator/warden/account.h"
#include "orchestrator/warden/directory.h"

#define NEW_FILE   (O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW)
#define OPEN_FILE  (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) /* a FIFO does not block */
#define OPEN_DIR   (OPEN_FILE | O_DIRECTORY)
#define STEP_BYTES (64u << 20)

/* A copied file that has further names: these become links to the copy. */
struct copied {
	dev_t dev;
	ino_t ino;
	char *path;
};

struct job {
	const char *from, *to; /* folders, each with a subfolder `spaces`; to: NULL for a check */
	struct account owner;  /* of the copy */
	bool may_vanish;     /* a Space whose folder is missing was resumed or deleted meanwhile */
	bool skip_damaged;   /* damaged Spaces are left out of the copy */
	struct store *store; /* a copy of the catalogue, for this job alone */
	char (*ids)[SANDBOX_ID_LEN + 1];
	size_t n, damaged, vanished;
	struct copied *copied;
	size_t n_copied;
};

/* --- files ---------------------------------------------------------------------------------- */

static int walk(int in, int out, uint64_t bytes, struct err *e)
{
	struct file_walk w;
	uint64_t done = 0;
	int ret = file_walk_begin(&w, in, out, bytes, e);

	while (ret == 0)
		ret = file_walk_step(&w, STEP_BYTES, &done, e);
	file_walk_end(&w);
	return ret < 0 ? ret : 0;
}

static int copy_to(int in, int out, struct err *e)
{
	struct stat st;

	if (fstat(in, &st) < 0)
		return err_set(e, errno, "stat the source");
	if (!S_ISREG(st.st_mode))
		return err_say(e, EINVAL, "the source is not a regular file");
	int ret = walk(in, out, (uint64_t)st.st_size, e);
	if (ret == 0 && fsync(out) < 0)
		ret = err_set(e, errno, "write the copy to the disk");
	return ret;
}

int file_copy(int fd, const char *path, struct err *e)
{
	scoped_fd int out = open(path, NEW_FILE, 0600);
	int ret = out < 0 ? err_set(e, errno, "make the file") : copy_to(fd, out, e);

	return ret < 0 ? err_context(e, "%s", path) : 0;
}

int catalogue_copy(const char *from, const char *to, struct err *e)
{
	struct store_backup *b;
	char tmp[PATH_MAX];

	if (access(from, F_OK) < 0)
		return err_set(e, errno, "open the catalogue %s", from);
	if (snprintf(tmp, sizeof(tmp), "%s.tmp", to) >= (int)sizeof(tmp))
		return err_set(e, ENAMETOOLONG, "%.200s", to);
	int ret = store_backup_new(&b, from, tmp, e);
	if (ret < 0)
		return err_context(e, "catalogue %s", from);
	while (ret == 0)
		ret = store_backup_step(b, e);
	scoped_fd int fd = store_backup_end(b);
	return ret < 0 ? err_context(e, "catalogue %s", from) : file_copy(fd, to, e);
}

static int sync_dir(const char *path, struct err *e)
{
	scoped_fd int fd = open(path, OPEN_DIR);

	return fd < 0 || fsync(fd) < 0 ? err_set(e, errno, "write %s to the disk", path) : 0;
}

static int make_dir(const char *path, struct account owner, struct err *e)
{
	if (mkdir(path, 0700) < 0 || lchown(path, owner.uid, owner.gid) < 0)
		return err_set(e, errno, "make %s", path);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	remove(path);
	return 0;
}

static void remove_tree(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* --- copies of Spaces ----------------------------------------------------------------------- */

static bool link_again(const struct job *job, const struct stat *st, int dir, const char *name)
{
	for (size_t i = 0; i < job->n_copied; i++)
		if (job->copied[i].ino == st->st_ino && job->copied[i].dev == st->st_dev)
			return linkat(AT_FDCWD, job->copied[i].path, dir, name, 0) == 0;
	return false;
}

static void remember(struct job *job, const struct stat *st, const char *path)
{
	if (st->st_nlink == 1)
		return;
	job->copied = realloc(job->copied, (job->n_copied + 1) * sizeof(*job->copied));
	if (!job->copied)
		abort();
	job->copied[job->n_copied++] = (struct copied){st->st_dev, st->st_ino, strdup(path)};
}

/* Keeps the mode, by which Spaces recognise the files that they share. */
static int copy_space_file(struct job *job, int from, int to, const char *id, const char *name,
			   struct err *e)
{
	char path[PATH_MAX];
	struct stat st;

	scoped_fd int in = openat(from, name, OPEN_FILE);
	if (in < 0 || fstat(in, &st) < 0)
		return err_set(e, errno, "open the file");
	if (link_again(job, &st, to, name))
		return 0;
	scoped_fd int out = openat(to, name, NEW_FILE, 0600);
	if (out < 0)
		return err_set(e, errno, "make the copy");
	int ret = copy_to(in, out, e);
	if (ret < 0)
		return ret;
	if (fchown(out, job->owner.uid, job->owner.gid) < 0 || fchmod(out, st.st_mode & 07777) < 0)
		return err_set(e, errno, "set the owner and mode of the copy");
	snprintf(path, sizeof(path), "%s/spaces/%s/%s", job->to, id, name);
	remember(job, &st, path);
	return 0;
}

static int copy_files(struct job *job, DIR *from, int to, const char *id, struct err *e)
{
	struct dirent *entry;
	int ret = 0;

	while (ret == 0 && (entry = readdir(from))) {
		if (entry->d_name[0] == '.')
			continue;
		ret = copy_space_file(job, dirfd(from), to, id, entry->d_name, e);
		if (ret < 0)
			err_context(e, "%s", entry->d_name);
	}
	return ret == 0 && fsync(to) < 0 ? err_set(e, errno, "write the folder to the disk") : ret;
}

static int copy_space(struct job *job, const char *id, struct err *e)
{
	char from[PATH_MAX], to[PATH_MAX];

	snprintf(from, sizeof(from), "%s/spaces/%s", job->from, id);
	snprintf(to, sizeof(to), "%s/spaces/%s", job->to, id);
	DIR *dir = directory_list(AT_FDCWD, from);
	if (!dir)
		return err_set(e, errno, "open the folder %s", from);
	int ret = make_dir(to, job->owner, e);
	scoped_fd int out = ret < 0 ? -1 : open(to, OPEN_DIR);
	if (ret == 0)
		ret = out < 0 ? err_set(e, errno, "open %s", to) : copy_files(job, dir, out, id, e);
	closedir(dir);
	return ret;
}

/* --- each Space ----------------------------------------------------------------------------- */

/* Reads all files of a Space and compares their checksums. */
static int verify_space(const char *dir, const char *id, struct err *e)
{
	struct space_read r = {0};
	int ret;

	space_read_begin(&r, dir, id);
	do {
		ret = space_read_step(&r);
	} while (ret == 0);
	*e = r.job.err;
	space_read_fini(&r);
	return ret < 0 ? ret : 0;
}

static bool has_vanished(const struct job *job, const char *id)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/spaces/%s", job->from, id);
	return job->may_vanish && access(path, F_OK) < 0;
}

/* Removes a Space from the copy, so that the copy's catalogue names no missing files. */
static int drop(struct job *job, const char *id, struct err *e)
{
	char path[PATH_MAX];

	if (!job->to)
		return 0;
	snprintf(path, sizeof(path), "%s/spaces/%s", job->to, id);
	remove_tree(path);
	int ret = store_space_forget(job->store, id, e);
	return ret < 0 ? ret : store_space_removed(job->store, id, e);
}

/* A disk that is full, or fails, ends the job; a damaged Space does not. */
static bool is_fatal(int error)
{
	return error == -ENOSPC || error == -EDQUOT || error == -EROFS || error == -ENOMEM ||
	       error == -EMFILE || error == -ENFILE;
}

static int do_space(struct job *job, const char *id, struct err *e)
{
	int ret = job->to ? copy_space(job, id, e) : 0;

	if (ret == 0)
		ret = verify_space(job->to ? job->to : job->from, id, e);
	if (ret == 0)
		return 0;
	if (is_fatal(ret))
		return err_context(e, "space %s", id);
	if (has_vanished(job, id)) {
		printf("space %s: was resumed or deleted meanwhile\n", id);
		job->vanished++;
		return drop(job, id, e);
	}
	printf("space %s: damaged: %s\n", id, e->text);
	job->damaged++;
	return job->skip_damaged ? drop(job, id, e) : 0;
}

static void add_id(void *arg, const struct store_space *row)
{
	struct job *job = arg;

	job->ids = realloc(job->ids, (job->n + 1) * sizeof(job->ids[0]));
	if (!job->ids)
		abort();
	snprintf(job->ids[job->n++], sizeof(job->ids[0]), "%s", row->id);
}

static int do_spaces(struct job *job, const char *catalogue, struct err *e)
{
	int ret = store_open(&job->store, catalogue, e);

	if (ret < 0)
		return ret;
	ret = store_spaces(job->store, add_id, job, e);
	for (size_t i = 0; ret == 0 && i < job->n; i++)
		ret = do_space(job, job->ids[i], e);
	store_close(job->store);
	free(job->ids);
	for (size_t i = 0; i < job->n_copied; i++)
		free(job->copied[i].path);
	free(job->copied);
	return ret;
}

static void print_result(const struct job *job, const char *done, const char *dir)
{
	printf("%s%s: the catalogue is whole; of %zu spaces, %zu are damaged\n", done, dir,
	       job->n - job->vanished, job->damaged);
}

int command_failed(const struct err *e)
{
	fflush(stdout);
	fprintf(stderr, "rametctl: %s\n", e->text);
	return COMMAND_FAILED;
}

/* --- check ---------------------------------------------------------------------------------- */

/* Writes a copy of a catalogue to `path`: of that in the backup `dir`, or of this host's if `dir`
 * is NULL. */
static int stage(const struct catalogue_source *source, const char *dir, const char *path,
		 struct err *e)
{
	char from[PATH_MAX];

	if (!dir)
		return source->copy(source->arg, path, e);
	snprintf(from, sizeof(from), "%s/catalogue.db", dir);
	scoped_fd int fd = open(from, OPEN_FILE);
	if (fd < 0 && errno == ENOENT)
		return err_say(e, ENOENT,
			       "%s has no catalogue.db: it is not a backup, or the backup was "
			       "not completed",
			       dir);
	return fd < 0 ? err_set(e, errno, "open %s", from) : file_copy(fd, path, e);
}

/* Removes a final slash. Refuses a name so long that paths below the folder would not fit. */
static int take_dir(const char *dir, char out[static CONFIG_PATH_MAX], struct err *e)
{
	size_t len = strlen(dir);

	while (len > 1 && dir[len - 1] == '/')
		len--;
	if (len == 0 || len >= CONFIG_PATH_MAX)
		return err_say(e, EINVAL, "the name of the folder must have 1 to %d bytes",
			       CONFIG_PATH_MAX - 1);
	snprintf(out, CONFIG_PATH_MAX, "%.*s", (int)len, dir);
	return 0;
}

int check_run(const struct config *config, const struct catalogue_source *source, const char *dir)
{
	char from[CONFIG_PATH_MAX], tmp[] = "/tmp/rametctl-XXXXXX", catalogue[sizeof(tmp) + 16];
	struct job job = {.from = from, .may_vanish = !dir && source->online};
	struct err e;

	if (take_dir(dir ? dir : config->state_dir, from, &e) < 0)
		return command_failed(&e);
	if (!mkdtemp(tmp)) {
		err_set(&e, errno, "make a folder in /tmp");
		return command_failed(&e);
	}
	snprintf(catalogue, sizeof(catalogue), "%s/catalogue", tmp);
	int ret = stage(source, dir, catalogue, &e);
	if (ret == 0)
		ret = do_spaces(&job, catalogue, &e);
	remove_tree(tmp);
	if (ret < 0)
		return command_failed(&e);
	print_result(&job, "", job.from);
	return job.damaged ? COMMAND_FAILED : COMMAND_DONE;
}

/* --- copies of everything ------------------------------------------------------------------- */

/* Fills the new folder `job->to`, the catalogue last. `backup`: see stage(). */
static int copy_all(struct job *job, const struct catalogue_source *source, const char *backup,
		    struct err *e)
{
	char path[PATH_MAX], staged[PATH_MAX], wal[PATH_MAX + 4];

	snprintf(path, sizeof(path), "%s/spaces", job->to);
	snprintf(staged, sizeof(staged), "%s/catalogue", job->to);
	snprintf(wal, sizeof(wal), "%s-wal", staged);
	int ret = make_dir(path, job->owner, e);
	if (ret == 0)
		ret = stage(source, backup, staged, e);
	if (ret == 0)
		ret = do_spaces(job, staged, e);
	if (ret == 0)
		ret = sync_dir(path, e);
	if (ret == 0 && job->damaged && backup && !job->skip_damaged)
		ret = err_say(e, EIO,
			      "nothing was restored, because spaces of the backup are damaged: "
			      "--skip-damaged restores the others");
	snprintf(path, sizeof(path), "%s/catalogue.db", job->to);
	if (ret == 0)
		ret = catalogue_copy(staged, path, e);
	if (ret == 0 && lchown(path, job->owner.uid, job->owner.gid) < 0)
		ret = err_set(e, errno, "set the owner of %s", path);
	unlink(staged);
	unlink(wal);
	return ret < 0 ? ret : sync_dir(job->to, e);
}

static int sync_parent(const char *dir, struct err *e)
{
	char parent[PATH_MAX + 4];

	snprintf(parent, sizeof(parent), "%s/..", dir);
	return sync_dir(parent, e);
}

int backup_run(const struct config *config, const struct catalogue_source *source, const char *dir)
{
	char to[CONFIG_PATH_MAX];
	struct job job = {.from = config->state_dir,
			  .to = to,
			  .owner = {geteuid(), getegid()},
			  .may_vanish = source->online};
	struct err e;

	if (take_dir(dir, to, &e) < 0)
		return command_failed(&e);
	if (mkdir(to, 0700) < 0) {
		err_set(&e, errno, "make the folder %s, which must not exist yet", to);
		return command_failed(&e);
	}
	if (copy_all(&job, source, NULL, &e) < 0 || sync_parent(to, &e) < 0) {
		remove_tree(to);
		return command_failed(&e);
	}
	print_result(&job, "written to ", to);
	return job.damaged ? COMMAND_FAILED : COMMAND_DONE;
}

/* --- restore -------------------------------------------------------------------------------- */

static int check_rametd_is_stopped(const struct config *config, struct err *e)
{
	char path[CATALOGUE_PATH_MAX];

	snprintf(path, sizeof(path), "%s/lock", config->run_dir);
	scoped_fd int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno != ENOENT)
		return err_set(e, errno, "open %s", path);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
		return err_say(e, EBUSY,
			       "rametd runs: stop it first (`systemctl stop ramet`), which ends "
			       "all sandboxes");
	config_live_catalogue(config, path);
	if (access(path, F_OK) == 0)
		return err_say(e, EBUSY,
			       "rametd was killed, and its VMs may still run: start it, then stop "
			       "it (`systemctl start ramet; systemctl stop ramet`)");
	return 0;
}

/* A restore overwrites nothing, so that restoring the wrong backup loses nothing. */
static int check_is_empty(const struct config *config, struct err *e)
{
	char path[CATALOGUE_PATH_MAX];

	config_catalogue(config, path);
	if (access(path, F_OK) == 0)
		return err_say(
			e, EEXIST,
			"%s has a catalogue: move it away first (`mkdir OLD && mv %s/catalogue.db* "
			"%s/spaces OLD`)",
			config->state_dir, config->state_dir, config->state_dir);
	snprintf(path, sizeof(path), "%s/spaces", config->state_dir);
	if (rmdir(path) < 0 && errno != ENOENT)
		return err_set(e, errno, "remove %s: restore needs it to be empty; move it away",
			       path);
	return 0;
}

/* Moves the catalogue last: without it, the service would see no Space. */
static int put_in_place(const char *from, const char *state_dir, struct err *e)
{
	static const char *const names[] = {"spaces", "catalogue.db"};
	char old[PATH_MAX], new[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(old, sizeof(old), "%s/%s", from, names[i]);
		snprintf(new, sizeof(new), "%s/%s", state_dir, names[i]);
		if (rename(old, new) < 0)
			return err_set(e, errno, "rename %s to %s", old, new);
		int ret = sync_dir(state_dir, e);
		if (ret < 0)
			return ret;
	}
	return 0;
}

static int open_state(const struct config *config, struct account *owner, struct err *e)
{
	int ret = account_find(owner, config->user, e);

	if (ret < 0)
		return ret;
	int dir = directory_for_account(config->state_dir, *owner, e);
	if (dir < 0)
		return err_context(e, "state_dir");
	close_fd(&dir);
	return check_is_empty(config, e);
}

static int restore(const struct config *config, struct job *job, struct err *e)
{
	int ret = open_state(config, &job->owner, e);

	if (ret < 0)
		return ret;
	remove_tree(job->to); /* of a restore that was interrupted */
	ret = make_dir(job->to, job->owner, e);
	if (ret == 0)
		ret = copy_all(job, NULL, job->from, e);
	if (ret == 0)
		ret = put_in_place(job->to, config->state_dir, e);
	remove_tree(job->to);
	return ret;
}

int restore_run(const struct config *config, const char *dir, bool skip_damaged)
{
	char from[CONFIG_PATH_MAX], to[CONFIG_PATH_MAX + 16];
	struct job job = {.from = from, .to = to, .skip_damaged = skip_damaged};
	struct err e;

	if (take_dir(dir, from, &e) < 0)
		return command_failed(&e);
	snprintf(to, sizeof(to), "%s/restore.tmp", config->state_dir);
	if (check_rametd_is_stopped(config, &e) < 0 || restore(config, &job, &e) < 0)
		return command_failed(&e);
	print_result(&job, "restored from ", from);
	return job.damaged ? COMMAND_FAILED : COMMAND_DONE;
}
