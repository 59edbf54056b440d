// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/images/private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/fd.h"
#include "base/file-id.h"
#include "base/file-sum.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "orchestrator/io/step-job.h"

#define KEPT_MS	       600000 /* how long copies stay after the tenant's last sandbox */
#define COPIES_MAX     8      /* for each tenant; the least recently used one is replaced */
#define STEP_BYTES     (64u << 20)
#define NAME_MAX_BYTES (PRIVATE_TENANT_MAX + 24)

struct private_copy {
	struct list link; /* on privates->copies */
	char tenant[PRIVATE_TENANT_MAX + 1];
	char name[NAME_MAX_BYTES];
	struct file_id of; /* identity of the original; unknown for a previous instance's copy */
	dev_t dev;	   /* identity of the copy; ino is 0 until the copy is complete */
	ino_t ino;
	/* read-only; VMs get duplicates. -1: not complete, or adopted for the VMs that map it
	 * already */
	int fd;
	uint64_t bytes;
	uint64_t unused_ms; /* since when the tenant has no sandbox; 0: the tenant has one */
	struct private_job *job;
	struct list waits;
};

/* A copy or a removal in progress. */
struct private_job {
	struct step_job job;
	char dir[CONFIG_PATH_MAX + 16], name[NAME_MAX_BYTES];
	int in, out;
	int own; /* the copy, once it is complete; read-only */
	struct file_walk walk;
	bool begun;
	struct stat made;
};

struct privates {
	const struct template_env *env;
	struct list copies; /* struct private_copy, least recently used first */
};

static bool has_sandboxes(const struct privates *all, const char *tenant)
{
	return all->env->ops->tenant_has_sandboxes(all->env->arg, tenant);
}

static void dir_of(const struct privates *all, char *out, size_t size)
{
	snprintf(out, size, "%s/private", all->env->config->state_dir);
}

static struct private_copy *find(const struct privates *all, const char *tenant,
				 const struct file_id *of)
{
	list_each_of (p, struct private_copy, link, &all->copies)
		if (strcmp(p->tenant, tenant) == 0 && file_id_equal(&p->of, of))
			return p;
	return NULL;
}

/* Returns whether the file is one of the tenant's copies already, which is the case when a frozen
 * sandbox is resumed. */
static bool is_own(const struct privates *all, const char *tenant, const struct stat *st)
{
	list_each_of (p, const struct private_copy, link, &all->copies)
		if (p->ino == st->st_ino && p->dev == st->st_dev && strcmp(p->tenant, tenant) == 0)
			return true;
	return false;
}

/* --- on a worker ---------------------------------------------------------------------------- */

static int begin_copy(struct private_job *job)
{
	struct stat st;

	scoped_fd int dir = directory_open(job->dir, &job->job.err);
	if (dir < 0)
		return dir;
	job->out = openat(dir, job->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (job->out < 0 || fstat(job->in, &st) < 0)
		return err_set(&job->job.err, errno, "create the copy");
	job->begun = true;
	return file_walk_begin(&job->walk, job->in, job->out, (uint64_t)st.st_size, &job->job.err);
}

#define PATH_ROOM (CONFIG_PATH_MAX + 16 + NAME_MAX_BYTES)
static void path_of(const struct private_job *job, char out[static PATH_ROOM])
{
	snprintf(out, PATH_ROOM, "%s/%s", job->dir, job->name);
}

static void remove_file(const struct private_job *job)
{
	char path[PATH_ROOM];

	path_of(job, path);
	unlink(path);
}

/* Opens the finished copy read-only, so that a VM process can't write through its descriptor.
 * Returns 1, or -errno. */
static int end_copy(struct private_job *job)
{
	char path[PATH_ROOM];

	path_of(job, path);
	job->own = open(path, O_RDONLY | O_CLOEXEC);
	if (job->own < 0 || fstat(job->own, &job->made) < 0)
		return err_set(&job->job.err, errno, "open %s", path);
	return 1;
}

static int copy_step(void *arg)
{
	struct private_job *job = arg;
	uint64_t done = 0;
	int ret = job->begun ? 0 : begin_copy(job);

	if (ret == 0)
		ret = file_walk_step(&job->walk, STEP_BYTES, &done, &job->job.err);
	if (ret > 0)
		ret = end_copy(job);
	if (ret < 0)
		remove_file(job);
	return ret;
}

/* Removes the file. The close frees its blocks, unless a VM has it mapped. */
static int remove_step(void *arg)
{
	struct private_job *job = arg;

	remove_file(job);
	close_fd(&job->own);
	return 1;
}

static void job_free(void *arg)
{
	struct private_job *job = arg;

	file_walk_end(&job->walk);
	close_fd(&job->in);
	close_fd(&job->out);
	close_fd(&job->own);
	free(job);
}

static struct private_job *job_new(const struct privates *all, const struct private_copy *p)
{
	struct private_job *job = must_alloc(sizeof(*job));

	job->in = job->out = job->own = -1;
	dir_of(all, job->dir, sizeof(job->dir));
	memcpy(job->name, p->name, sizeof(job->name));
	return job;
}

/* --- copies --------------------------------------------------------------------------------- */

static void forget(struct private_copy *p)
{
	list_del(&p->link);
	close_fd(&p->fd);
	free(p);
}

static void fail(struct private_copy *p, const char *text)
{
	struct failure f;

	failure_set(&f, FAIL_PRIVATE_COPY, 5,
		    "can't copy the image's memory for this tenant: %.200s", text);
	log_error("%s", f.text);
	list_del(&p->link); /* the next request starts a new copy */
	waiters_answer(&p->waits, &f);
	free(p);
}

static void on_copied(void *owner, void *arg)
{
	struct private_copy *p = owner;
	struct private_job *job = arg;

	p->job = NULL;
	p->dev = job->made.st_dev;
	p->ino = job->made.st_ino;
	p->bytes = (uint64_t)job->made.st_blocks * 512;
	p->fd = take_fd(&job->own);
	if (job->job.ret < 0)
		fail(p, job->job.err.text);
	else
		waiters_answer(&p->waits, NULL);
}

static const struct step_job_ops copy_ops = {LOOP_BULK, copy_step, NULL, on_copied, job_free};
/* Without memory for a worker, the next start of the service removes the file. */
static const struct step_job_ops remove_ops = {LOOP_BULK, remove_step, NULL, NULL, job_free};

static void drop(struct privates *all, struct private_copy *p)
{
	struct private_job *job = job_new(all, p);

	job->own = take_fd(&p->fd);
	step_job_start(all->env->loop, job, &remove_ops, NULL);
	forget(p);
}

/* Drops the tenant's least recently used copy if it has COPIES_MAX. Returns false when all of them
 * are still in progress. */
static bool make_room(struct privates *all, const char *tenant)
{
	struct private_copy *oldest = NULL;
	unsigned n = 0;

	list_each_of (p, struct private_copy, link, &all->copies) {
		if (strcmp(p->tenant, tenant) != 0)
			continue;
		n++;
		if (!oldest && !p->job)
			oldest = p;
	}
	if (n < COPIES_MAX)
		return true;
	if (oldest)
		drop(all, oldest);
	return oldest;
}

static struct private_copy *copy_new(struct privates *all, const char *tenant)
{
	struct private_copy *p = must_alloc(sizeof(*p));

	snprintf(p->tenant, sizeof(p->tenant), "%s", tenant);
	p->fd = -1;
	list_add_tail(&all->copies, &p->link);
	return p;
}

static struct private_copy *start_copy(struct privates *all, const char *tenant, int fd,
				       const struct file_id *of)
{
	char random[20];
	scoped_fd int in = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (in < 0 || !make_room(all, tenant))
		return NULL;
	struct private_copy *p = copy_new(all, tenant);

	random_id(random, sizeof(random), ".");
	snprintf(p->name, sizeof(p->name), "%s%s", tenant, random);
	p->of = *of;
	p->job = job_new(all, p);
	p->job->in = take_fd(&in);
	step_job_start(all->env->loop, p->job, &copy_ops, p);
	return p;
}

bool private_ready(struct privates *all, const char *tenant, int fd, const struct stat *st,
		   struct waiter *w, void (*fn)(void *arg, const struct failure *f), void *arg)
{
	const struct file_id of = file_id_of(st);

	if (is_own(all, tenant, st))
		return true;
	struct private_copy *p = find(all, tenant, &of);
	if (!p)
		p = start_copy(all, tenant, fd, &of);
	if (!p || p->ino)
		return true; /* private_take reports the error */
	waiter_add(&p->waits, w, fn, arg);
	return false;
}

int private_take(struct privates *all, const char *tenant, int *fd, const struct stat *st,
		 struct err *e)
{
	const struct file_id of = file_id_of(st);

	if (is_own(all, tenant, st))
		return 0;
	struct private_copy *p = find(all, tenant, &of);
	if (!p || p->fd < 0)
		return err_say(e, EAGAIN,
			       "no copy of the image's memory could be made for this tenant");
	int own = fcntl(p->fd, F_DUPFD_CLOEXEC, 3);
	if (own < 0)
		return err_set(e, errno, "open the tenant's copy of the image's memory");
	list_del(&p->link);
	list_add_tail(&all->copies, &p->link);
	close_fd(fd);
	*fd = own;
	return 0;
}

uint64_t private_bytes(const struct privates *all, const char *tenant)
{
	uint64_t bytes = 0;

	list_each_of (p, const struct private_copy, link, &all->copies)
		if (strcmp(p->tenant, tenant) == 0)
			bytes += p->bytes;
	return bytes;
}

/* --- removal of copies ---------------------------------------------------------------------- */

void privates_check(struct privates *all)
{
	const uint64_t now = loop_now_ms(all->env->loop);

	list_each_of_safe (p, struct private_copy, link, &all->copies) {
		if (p->job || has_sandboxes(all, p->tenant))
			p->unused_ms = 0;
		else if (!p->unused_ms)
			p->unused_ms = now;
		else if (now - p->unused_ms >= KEPT_MS)
			drop(all, p);
	}
}

/* Adopts a previous instance's copy if its tenant has sandboxes, since their forks map the file as
 * well; else removes it. */
static void load_one(struct privates *all, int dir, const char *name)
{
	char tenant[PRIVATE_TENANT_MAX + 1] = "";
	size_t len = strcspn(name, ".");
	struct stat st;

	if (len < sizeof(tenant))
		memcpy(tenant, name, len);
	if (strlen(name) >= NAME_MAX_BYTES || !has_sandboxes(all, tenant) ||
	    fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		unlinkat(dir, name, 0);
		return;
	}
	struct private_copy *p = copy_new(all, tenant);
	memcpy(p->name, name, strlen(name));
	p->dev = st.st_dev;
	p->ino = st.st_ino;
	p->bytes = (uint64_t)st.st_blocks * 512;
}

void privates_load(struct privates *all)
{
	char path[CONFIG_PATH_MAX + 16];
	struct dirent *entry;

	dir_of(all, path, sizeof(path));
	DIR *dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			load_one(all, dirfd(dir), entry->d_name);
	if (dir)
		closedir(dir);
}

struct privates *privates_new(const struct template_env *env)
{
	struct privates *all = must_alloc(sizeof(*all));

	all->env = env;
	return all;
}

void privates_free(struct privates *all)
{
	while (all && !list_empty(&all->copies)) {
		struct private_copy *p = container_of(all->copies.next, struct private_copy, link);

		step_job_cancel(p->job);
		while (!list_empty(&p->waits))
			list_del(p->waits.next);
		forget(p);
	}
	free(all);
}
