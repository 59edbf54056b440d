// SPDX-License-Identifier: Apache-2.0
/* The state of the files of this room, which only they use. */
#ifndef RAMET_ORCHESTRATOR_SERVICE_UPKEEP_H
#define RAMET_ORCHESTRATOR_SERVICE_UPKEEP_H

#include "base/err.h"
#include "orchestrator/fleet/place.h"
#include "orchestrator/sandbox/service.h"

struct backup;
struct disk_check;

/* Measured some seconds ago. */
struct disk_found {
	uint64_t free_bytes, total_bytes;
	char error[ERR_TEXT_MAX]; /* empty: state_dir is writable */
};

struct upkeep {
	struct loop_timer housekeeping, purge;
	uint64_t slept_ms; /* total ms that the host was suspended since its boot */
	struct loop_timer closing_limit;
	struct deferred closed;
	void (*shutdown_done)(void *arg);
	void *shutdown_arg;

	struct {
		struct disk_check *check; /* in progress, or NULL */
		struct disk_found found;
		uint64_t found_ms; /* when that was measured, on the loop's clock */
		struct loop_timer timer;
	} disk;
	struct {
		struct list follows;	     /* calls that read them */
		void (*on_added)(void *arg); /* NULL: no listener */
		void *arg;
	} events;
	struct backup *backup; /* in progress, or NULL */
	struct {
		struct place_health health;
		struct place_room room;
		uint64_t measured_ms; /* when the room was measured, on the loop's clock */
	} load;
};

extern struct part upkeep_part;
static inline struct upkeep *upkeep_of(const struct service *c)
{
	return part_of_service(&upkeep_part, c);
}

extern const struct template_env_ops template_ops; /* templates.c */

void disk_start(struct service *c);
void disk_stop(struct service *c);
/* Returns why state_dir or the catalogue can't be written, in `text` or in *c; NULL: they can. */
const char *disk_error(const struct service *c, char *text, size_t size);
/* Returns true when disk space is low: work that can wait must use no more. `arg`: the service. */
bool disk_is_low(void *arg);

/* Notes whether a sandbox could be made, for this host's load. `arg`: the service. */
void load_made(void *arg, bool well);
/* Returns why this host makes no sandboxes for a while, in `text`; NULL: it does. */
const char *load_error(const struct service *c, char *text, size_t size);

/* Prepares service_events; the catalogue is open. */
void events_init(struct service *c);
/* Removes events that are too old, at most `most`. Returns their number, or -errno. */
int events_purge(struct service *c, unsigned most);
void events_fini(struct service *c);

/* Detaches the backup in progress from the service, which is being freed. */
void backups_free(struct service *c);
/* Removes the file of a backup that a kill of the service interrupted. */
void backup_sweep(const struct service *c);

#endif
