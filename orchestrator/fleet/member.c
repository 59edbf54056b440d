// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/fleet/member.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/random.h"
#include "base/text-file.h"
#include "orchestrator/io/disk-job.h"

#define TABLE_FILE     "hosts.json"
#define KEY_FILE_BYTES 1024

struct member {
	struct loop *loop;
	const struct config *config;
	struct fleet_keys keys;
	struct fleet_table *table;
	unsigned version; /* of the table */
	int watch;	  /* inotify, on the folder */
	struct loop_op *poll;
	struct disk_job *reading;
	bool changed;	      /* the folder has changed since the read in flight began */
	bool closing;	      /* to be freed when the poll has ended */
	const char *followed; /* a file in the folder */
	void (*on_followed)(void *arg);
	void *arg;
	void (*on_table)(void *arg); /* NULL: nobody follows the table */
	void *table_arg;
};

static struct member *self; /* the member whose place is part of new ids */

static void fill_id(unsigned char out[RANDOM_ID_BYTES])
{
	const struct fleet_place here = {self->table->cell, self->table->self->number};

	_Static_assert(RANDOM_ID_BYTES == FLEET_ID_BYTES, "ids have one size");
	random_bytes(out, RANDOM_ID_BYTES);
	fleet_id_hide(&self->keys, here, out);
}

/* --- files ---------------------------------------------------------------------------------- */

static int read_keys(const char *path, struct fleet_keys *keys, struct err *e)
{
	char text[KEY_FILE_BYTES + 1];
	int ret = text_file_read(AT_FDCWD, path, text, sizeof(text));

	ret = ret < 0 ? err_set(e, -ret, "read") : fleet_keys_read(keys, text, (size_t)ret, e);
	explicit_bzero(text, sizeof(text));
	return ret < 0 ? err_context(e, "fleet_id_key %s", path) : 0;
}

static int read_table(const char *dir, struct fleet_table **out, struct err *e)
{
	char path[CONFIG_PATH_MAX + sizeof("/" TABLE_FILE)];
	size_t len;

	snprintf(path, sizeof(path), "%s/" TABLE_FILE, dir);
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return err_say(
			e, ENOENT,
			"there is no %s: `systemctl enable --now ramet-fleet` has it written, "
			"once etcd answers",
			path);
	scoped_free char *text = file_text(fd, FLEET_TABLE_BYTES, &len, e);
	return text && fleet_table_read(out, text, len, e) == 0 ? 0 : err_context(e, "%s", path);
}

/* --- changes of the table ------------------------------------------------------------------- */

struct reading {
	char dir[CONFIG_PATH_MAX];
	struct fleet_table *table; /* NULL: that failed */
};

static void free_reading(void *at)
{
	struct reading *r = at;

	free(r->table);
	free(r);
}

static int work(struct disk_job *job)
{
	struct reading *r = job->what;

	return read_table(r->dir, &r->table, &job->job.err);
}

/* Returns whether both tables give this host the same place, which is part of the ids that it has
 * made. */
static bool is_same_place(const struct fleet_table *a, const struct fleet_table *b)
{
	return a->cell == b->cell && a->self->number == b->self->number &&
	       strcmp(a->fleet, b->fleet) == 0;
}

static void begin_reading(struct member *m);

static void on_read(void *arg, struct disk_job *job)
{
	struct member *m = arg;
	struct reading *r = job->what;

	m->reading = NULL;
	if (job->job.ret < 0) {
		log_error("cannot read the fleet's table, the previous one stays in use: %s",
			  job->job.err.text);
	} else if (!is_same_place(m->table, r->table)) {
		log_error(
			"the fleet's new table is refused, the previous one stays in use: it says "
			"that this is host %u in cell %u of fleet %s, not %u in %u of %s: restart "
			"the service if that is right",
			r->table->self->number, r->table->cell, r->table->fleet,
			m->table->self->number, m->table->cell, m->table->fleet);
	} else {
		free(m->table);
		m->table = r->table;
		m->version++;
		r->table = NULL;
		log_debug("the fleet's table has %zu hosts", m->table->n);
		if (m->on_table)
			m->on_table(m->table_arg);
	}
	if (m->changed)
		begin_reading(m);
}

static void begin_reading(struct member *m)
{
	m->changed = m->reading != NULL;
	if (m->reading)
		return;
	struct reading *r = must_alloc(sizeof(*r));
	snprintf(r->dir, sizeof(r->dir), "%s", m->config->fleet_dir);
	m->reading = disk_job_start(m->loop, work, r, 0, on_read, m);
	m->reading->free_what = free_reading;
}

static void poll_watch(struct member *m);

static void free_rest(struct member *m)
{
	close_fd(&m->watch);
	free(m);
}

static bool may_be_of(const struct inotify_event *event, const char *name)
{
	return (event->mask & IN_Q_OVERFLOW) || (event->len && strcmp(event->name, name) == 0);
}

/* Returns whether the events that are waiting may be of the followed file. */
static bool read_events(const struct member *m)
{
	char events[4096] __attribute__((aligned(8)));
	bool followed = false;
	ssize_t n;

	while ((n = read(m->watch, events, sizeof(events))) > 0)
		for (const char *at = events; m->on_followed && at < events + n;) {
			const struct inotify_event *event = (const void *)at;

			followed |= may_be_of(event, m->followed);
			at += sizeof(*event) + event->len;
		}
	return followed;
}

static void on_change(void *arg, int result)
{
	struct member *m = arg;

	m->poll = NULL;
	if (m->closing) {
		free_rest(m);
		return;
	}
	if (result < 0) {
		log_error("the fleet's table is not watched any more: %s", strerror(-result));
		return;
	}
	bool followed = read_events(m);
	/* Whatever changed in the folder: reading the table again costs little. */
	begin_reading(m);
	poll_watch(m);
	if (followed)
		m->on_followed(m->arg);
}

static void poll_watch(struct member *m)
{
	m->poll = loop_poll(m->loop, m->watch, POLLIN, on_change, m);
}

static int watch(struct member *m, struct err *e)
{
	const char *dir = m->config->fleet_dir;

	m->watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (m->watch < 0 ||
	    inotify_add_watch(m->watch, dir, IN_MOVED_TO | IN_CLOSE_WRITE | IN_ONLYDIR) < 0)
		return err_set(e, errno, "watch the folder fleet_dir %s", dir);
	return 0;
}

/* --- start and end -------------------------------------------------------------------------- */

int member_new(struct member **out, struct loop *loop, const struct config *config, struct err *e)
{
	struct member *m = must_alloc(sizeof(*m));

	m->loop = loop;
	m->config = config;
	m->watch = -1;
	/* Watches first, so that no change is missed. */
	if (read_keys(config->fleet_id_key, &m->keys, e) < 0 || watch(m, e) < 0 ||
	    read_table(config->fleet_dir, &m->table, e) < 0) {
		member_free(m);
		return e->code;
	}
	poll_watch(m);
	self = m;
	random_id_fill(fill_id);
	log_info("host %u (%s) in cell %u of the fleet %s, which has %zu hosts",
		 m->table->self->number, m->table->self->name, m->table->cell, m->table->fleet,
		 m->table->n);
	*out = m;
	return 0;
}

int member_check(struct fleet_table **out, const struct config *config, struct err *e)
{
	struct fleet_keys keys;
	int ret = read_keys(config->fleet_id_key, &keys, e);

	explicit_bzero(&keys, sizeof(keys));
	return ret < 0 ? ret : read_table(config->fleet_dir, out, e);
}

void member_free(struct member *m)
{
	if (!m)
		return;
	if (self == m) {
		random_id_fill(NULL);
		self = NULL;
	}
	disk_job_cancel(m->reading);
	free(m->table);
	explicit_bzero(&m->keys, sizeof(m->keys));
	m->closing = true;
	if (m->poll)
		loop_cancel(m->loop, m->poll);
	else
		free_rest(m);
}

void member_follow(struct member *m, const char *name, void (*fn)(void *arg), void *arg)
{
	m->followed = name;
	m->on_followed = fn;
	m->arg = arg;
}

void member_follow_table(struct member *m, void (*fn)(void *arg), void *arg)
{
	m->on_table = fn;
	m->table_arg = arg;
}

const struct fleet_table *member_table(const struct member *m)
{
	return m->table;
}

unsigned member_version(const struct member *m)
{
	return m->version;
}

const struct fleet_keys *member_keys(const struct member *m)
{
	return &m->keys;
}
