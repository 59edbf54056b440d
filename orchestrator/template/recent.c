// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/template/recent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/template/sizes.h"

#define NAME	 "sizes"
#define NAME_NEW "sizes.new"

struct recents_job {
	struct recents *recents; /* NULL: the result is not wanted any more */
	char dir[CONFIG_PATH_MAX];
	char text[RECENT_TEXT_MAX];
	size_t len;
	struct err err;
	int ret;
};

/* --- text ------------------------------------------------------------------------------------ */

static bool is_same(const struct recent *a, const struct recent *b)
{
	return size_equal(&a->size, &b->size) && strcmp(a->template, b->template) == 0;
}

static size_t print_line(const struct recent *r, char *out, size_t room)
{
	return (size_t)snprintf(out, room, "%s %ux%ux%u\n", r->template, r->size.vcpus,
				r->size.ram_mib, r->size.rootfs_gb);
}

size_t recents_print(const struct recents *r, char out[RECENT_TEXT_MAX])
{
	size_t len = 0;

	for (size_t i = 0; i < r->n; i++)
		len += print_line(&r->all[i], out + len, RECENT_TEXT_MAX - len);
	return len;
}

/* Accepts a line only if it is exactly what print_line would write. */
static bool parse_line(const char *line, size_t len, struct recent *out)
{
	char copy[128], again[128];

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, line, len);
	copy[len] = 0;
	*out = (struct recent){0};
	if (sscanf(copy, "%63[^ ] %5ux%8ux%5u", out->template, &out->size.vcpus, &out->size.ram_mib,
		   &out->size.rootfs_gb) != 4)
		return false;
	size_t same = print_line(out, again, sizeof(again));
	return same == len + 1 && memcmp(copy, again, len) == 0 && source_name_ok(out->template) &&
	       out->size.vcpus && out->size.ram_mib && out->size.rootfs_gb;
}

void recents_parse(struct recents *out, const char *text, size_t len)
{
	const char *end = text + len, *eol;

	*out = (struct recents){0};
	for (; out->n < RECENT_MAX && (eol = memchr(text, '\n', (size_t)(end - text)));
	     text = eol + 1)
		out->n += parse_line(text, (size_t)(eol - text), &out->all[out->n]);
}

/* --- life cycle ------------------------------------------------------------------------------- */

bool recents_note(struct recents *r, const struct recent *size)
{
	size_t at = 0;

	while (at < r->n && !is_same(&r->all[at], size))
		at++;
	bool is_new = at == r->n;
	if (!is_new && at == 0) {
		r->all[0].expected = true;
		return false;
	}
	if (is_new && r->n == RECENT_MAX)
		at--;
	else if (is_new)
		r->n++;
	memmove(&r->all[1], &r->all[0], at * sizeof(r->all[0]));
	r->all[0] = *size;
	r->all[0].expected = true;
	r->dirty = true;
	return is_new;
}

void recents_load(struct recents *out, const struct config *config)
{
	char path[CONFIG_PATH_MAX + 16], text[RECENT_TEXT_MAX];

	*out = (struct recents){0};
	snprintf(path, sizeof(path), "%s/" NAME, config->state_dir);
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text));
	if (len > 0)
		recents_parse(out, text, (size_t)len);
	else if (len < 0 && errno != ENOENT)
		log_warn("%s can't be read: %s", path, strerror(errno));
}

static int write_file(const struct recents_job *job, struct err *e)
{
	scoped_fd int dir = open(job->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	scoped_fd int fd =
		dir < 0 ? -1
			: openat(dir, NAME_NEW,
				 O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0 || write(fd, job->text, job->len) != (ssize_t)job->len || fdatasync(fd) < 0 ||
	    renameat(dir, NAME_NEW, dir, NAME) < 0)
		return err_set(e, errno, "write %s/" NAME, job->dir);
	return 0;
}

static void save_work(void *arg)
{
	struct recents_job *job = arg;

	job->ret = write_file(job, &job->err);
}

static void save_done(void *arg)
{
	struct recents_job *job = arg;

	if (job->ret < 0)
		log_warn("the recently requested sizes can't be saved: %s", job->err.text);
	if (job->recents)
		job->recents->job = NULL;
	free(job);
}

void recents_save(struct recents *r, struct loop *loop, const struct config *config)
{
	struct recents_job *job;

	if (!r->dirty || r->job)
		return;
	job = must_alloc(sizeof(*job));
	job->recents = r;
	snprintf(job->dir, sizeof(job->dir), "%s", config->state_dir);
	job->len = recents_print(r, job->text);
	if (loop_work(loop, LOOP_DISK, save_work, save_done, job) < 0) {
		free(job);
		return; /* the next save tries again */
	}
	r->job = job;
	r->dirty = false;
}

void recents_close(struct recents *r)
{
	if (r->job)
		r->job->recents = NULL;
	r->job = NULL;
}
