// SPDX-License-Identifier: Apache-2.0
/*
 * Loads the Spaces at the start, compares the catalogue's rows with the directories, and removes
 * the files of Spaces that the catalogue records as gone, and of no others. A directory that the
 * catalogue does not name is kept for LOST_KEPT_MS, since the catalogue may have been restored from
 * an older backup.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/snapshot/checkpoint.h"
#include "orchestrator/snapshot/internal.h"
#include "orchestrator/snapshot/space-files.h"

#define LOST_KEPT_DAYS 7
#define LOST_KEPT_MS   (INT64_C(1000) * 24 * 3600 * LOST_KEPT_DAYS)

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

static void on_lost(void *arg, const char *id, int64_t since_ms)
{
	struct service *c = arg;
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

/* --- start ---------------------------------------------------------------------------------- */

static void on_row(void *arg, const struct store_space *row)
{
	space_add(arg, row);
}

static void drop(void *arg, const char *id)
{
	space_files_drop(arg, id);
}

static bool is_space(void *arg, const char *id)
{
	return space_of(arg, id) != NULL;
}

/* Returns whether the catalogue records the Space as gone. If the catalogue can't be read, returns
 * false, so that the directory is kept. */
static bool is_gone(void *arg, const char *id)
{
	struct service *c = arg;
	struct err e;

	return store_space_is_gone(c->store, id, &e) > 0;
}

/* Loads the Spaces. A missing directory is found later, by the scrub or a resume. */
int spaces_load(struct service *c, struct err *e)
{
	const struct spaces_sweep sweep = {is_space, is_gone, drop, on_lost, c};
	int ret = checkpoints_drop_unstored(c, e);

	if (ret == 0)
		ret = store_spaces(c->store, on_row, c, e);
	if (ret == 0)
		ret = spaces_sweep(c->config.state_dir, &sweep, e);
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
