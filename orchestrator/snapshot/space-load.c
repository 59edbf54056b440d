// SPDX-License-Identifier: Apache-2.0
/*
 * Loads the Spaces at the start, compares the catalogue's rows with the directories, and removes
 * the files of Spaces that the catalogue records as gone, and of no others. A directory that the
 * catalogue does not name is kept for LOST_KEPT_MS, since the catalogue may have been restored from
 * an older backup.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/images/image-dir.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/snapshot/checkpoint.h"
#include "orchestrator/snapshot/internal.h"
#include "orchestrator/snapshot/space-files.h"

#define LOST_KEPT_DAYS 7
#define LOST_KEPT_MS   (INT64_C(1000) * 24 * 3600 * LOST_KEPT_DAYS)
#define YEAR_MS	       (INT64_C(365) * 24 * 3600 * 1000)

struct lost_space {
	struct list link; /* on snapshot_service.lost_spaces */
	char id[SANDBOX_ID_LEN + 1];
	uint64_t due_ms;       /* time of removal, on the boot-time clock */
	int64_t removed_at_ms; /* the same time, by the wall clock at the start */
};

/* --- removal -------------------------------------------------------------------------------- */

struct removal {
	struct list link;	 /* on snapshot_service.removals */
	struct service *service; /* NULL: the service is gone */
	char state_dir[CONFIG_PATH_MAX];
	char id[SANDBOX_ID_LEN + 1];
	bool whole;
};

static void remove_work(void *arg)
{
	struct removal *job = arg;

	job->whole = space_remove(job->state_dir, job->id);
}

static void on_removed(void *arg)
{
	struct removal *job = arg;
	struct err e;

	list_del(&job->link);
	if (!job->whole)
		log_error("space %s: not all of its files could be removed; the next start of the "
			  "service tries again",
			  job->id);
	else if (job->service && store_space_removed(job->service->store, job->id, &e) < 0)
		log_warn("space %s: its files are removed, but that can't be recorded: %s", job->id,
			 e.text);
	free(job);
}

/* Removes a Space's files on a worker. Without memory for the job, the next start removes them. */
void space_files_drop(struct service *c, const char *id)
{
	struct removal *job = must_alloc(sizeof(*job));

	job->service = c;
	snprintf(job->state_dir, sizeof(job->state_dir), "%s", c->config.state_dir);
	snprintf(job->id, sizeof(job->id), "%s", id);
	list_add_tail(&snapshots_of_service(c)->removals, &job->link);
	if (loop_work(c->loop, LOOP_BULK, remove_work, on_removed, job) < 0) {
		list_del(&job->link);
		free(job);
	}
}

/* --- lost Spaces ---------------------------------------------------------------------------- */

/* `since_ms`: when it was lost, on the wall clock. */
static void add_lost(struct service *c, const char *id, int64_t since_ms)
{
	struct lost_space *lost = must_alloc(sizeof(*lost));
	int64_t left = since_ms + LOST_KEPT_MS - realtime_ms();

	snprintf(lost->id, sizeof(lost->id), "%s", id);
	lost->due_ms = boottime_ms() + (uint64_t)(left > 0 ? left : 0);
	lost->removed_at_ms = since_ms + LOST_KEPT_MS;
	list_add_tail(&snapshots_of_service(c)->lost_spaces, &lost->link);
	snapshots_of_service(c)->spaces_lost++;
	log_warn("space %s is on the disk and not in the catalogue: it is kept for %lld h more, as "
		 "STATE_DIR/spaces/%s.lost (docs/recovery.md, Lost Spaces)",
		 id, (long long)(left > 0 ? left : 0) / 3600000, id);
}

void spaces_lost_check(struct service *c)
{
	list_each_of_safe (lost, struct lost_space, link, &snapshots_of_service(c)->lost_spaces) {
		if (boottime_ms() < lost->due_ms)
			continue;
		log_warn("space %s was lost for %d days: its files are removed", lost->id,
			 LOST_KEPT_DAYS);
		space_files_drop(c, lost->id);
		snapshots_of_service(c)->spaces_lost--;
		list_del(&lost->link);
		free(lost);
	}
}

void service_spaces_lost(struct service *c,
			 void (*each)(void *arg, const char *id, int64_t removed_at_ms), void *arg)
{
	list_each_of (lost, const struct lost_space, link, &snapshots_of_service(c)->lost_spaces)
		each(arg, lost->id, lost->removed_at_ms);
}

/* --- sweep ---------------------------------------------------------------------------------- */

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

/* Returns whether the catalogue records the Space as gone. If the catalogue can't be read, returns
 * false, so that the directory is kept. */
static bool is_gone(struct service *c, const char *id)
{
	struct err e;

	return store_space_is_gone(c->store, id, &e) > 0;
}

static void sweep_one(struct service *c, int parent, const char *name)
{
	char id[IMAGE_NAME_ROOM], lost[IMAGE_NAME_ROOM + sizeof(SPACE_LOST)];

	snprintf(id, sizeof(id), "%s", name);
	bool half = cut(id, IMAGE_TMP), was_lost = cut(id, SPACE_LOST);
	/* Skip a copy of a Space that was made by hand: its name, cut to the length of an id, would
	 * be the Space's. */
	if (strlen(id) > SANDBOX_ID_LEN)
		return;
	snprintf(lost, sizeof(lost), "%s" SPACE_LOST, id);
	if (space_of(c, id)) {
		if ((half || was_lost) && renameat(parent, name, parent, id) == 0)
			log_info("space %s: its directory was renamed back from %s", id, name);
	} else if (half) {
		space_files_drop(c, id);
	} else if (!is_gone(c, id)) {
		add_lost(c, id, was_lost ? lost_since(parent, lost) : mark_lost(parent, id, lost));
	}
}

/* Removes root file systems that no Space uses, and incomplete ones. No freeze may be running. */
static void sweep_bases(const char *state_dir)
{
	struct image_names names = {0};
	scoped_fd int fd = state_dir_open(state_dir, "bases", NULL);
	struct stat st;

	if (fd >= 0)
		image_names_read(fd, &names, NULL);
	for (size_t i = 0; i < names.n; i++)
		if (fstatat(fd, names.all[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == 1)
			unlinkat(fd, names.all[i], 0);
	image_names_free(&names);
}

/*
 * Classifies all directories by name, on the loop thread. ID.tmp is incomplete: a leftover. A
 * directory that the catalogue does not name is lost: the Space was frozen after the backup from
 * which the catalogue was restored, or power failed before its freeze was answered. It is kept as
 * ID.lost, and renamed to ID when a catalogue names it. Also removes root file systems that no
 * directory uses.
 */
static int sweep(struct service *c, struct err *e)
{
	scoped_fd int parent = state_dir_open(c->config.state_dir, "spaces", e);
	struct image_names names = {0};
	int ret = parent < 0 ? parent : image_names_read(parent, &names, e);

	for (size_t i = 0; i < names.n; i++)
		if (!strncmp(names.all[i], SPACE_ID_PREFIX, strlen(SPACE_ID_PREFIX)) ||
		    !strncmp(names.all[i], CHECKPOINT_ID_PREFIX, strlen(CHECKPOINT_ID_PREFIX)))
			sweep_one(c, parent, names.all[i]);
	image_names_free(&names);
	if (ret == 0)
		sweep_bases(c->config.state_dir);
	return ret;
}

/* --- start ---------------------------------------------------------------------------------- */

static void on_row(void *arg, const struct store_space *row)
{
	space_add(arg, row);
}

static void drop(void *arg, const char *id)
{
	space_files_drop(arg, id);
}

/* Loads the Spaces. A missing directory is found later, by the scrub or a resume. */
int spaces_load(struct service *c, struct err *e)
{
	int ret = checkpoints_drop_unstored(c, e);

	if (ret == 0)
		ret = store_spaces(c->store, on_row, c, e);
	if (ret == 0)
		ret = sweep(c, e);
	if (ret == 0)
		ret = store_spaces_gone(c->store, drop, c, e);
	spaces_lost_check(c);
	return ret;
}

void spaces_unload(struct service *c)
{
	list_each_safe (pos, &snapshots_of_service(c)->removals) {
		list_del(pos);
		container_of(pos, struct removal, link)->service = NULL;
	}
	list_each_safe (pos, &snapshots_of_service(c)->lost_spaces) {
		list_del(pos);
		free(container_of(pos, struct lost_space, link));
	}
}
