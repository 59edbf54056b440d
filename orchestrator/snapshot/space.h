// SPDX-License-Identifier: Apache-2.0
/* A Space: a sandbox on disk. */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_H

#include "base/list.h"
#include "orchestrator/images/sizes.h"
#include "orchestrator/sandbox/roster.h"
#include "orchestrator/snapshot/snapshots.h"

struct service;
struct store_space;
struct tenant;
struct tree;

struct space {
	struct list link;   /* on snapshot_service.spaces, oldest first */
	struct list bucket; /* keyed by id */
	struct list unread; /* on snapshot_service.unread_spaces until this instance has read all of
			       it */
	struct listed listed; /* on the owner's snapshot_tenant.spaces */
	struct tenant *owner;
	struct service *service;
	char id[SANDBOX_ID_LEN + 1], sandbox[SANDBOX_ID_LEN + 1];
	const char *tenant; /* the owner's name */
	char *metadata;
	struct tree *tree;
	uint32_t depth;
	struct score score;
	char *labels;
	struct sandbox_config config;
	int64_t created_at_ms;
	uint64_t size_bytes, seq;
	char *env;
	size_t env_len;
	struct resume *resume;	   /* in progress, or NULL */
	char damage[ERR_TEXT_MAX]; /* the error found in it; empty: none known */
};

struct space *space_add(struct service *c, const struct store_space *row);
/* Returns the Space's row in the catalogue, valid as long as the Space. */
struct store_space space_row(const struct space *p);
void space_view_fill(const struct space *p, struct space_view *view);
/* Returns NULL, with *f filled, when the tenant has no such Space or it is damaged. */
struct space *space_find(struct service *c, const char *tenant, const char *id, struct failure *f);
void space_damaged(struct space *p, const char *what);
/* Marks a Space as fully read or written: it needs no scrub. */
void space_checked(struct space *p);
/* Stops the scrub of this Space, since it is being resumed or deleted. */
void space_scrub_stop(const struct space *p);
/* Removes the Space from memory; its files stay. */
void space_forget(struct space *p);
/* Removes the files of a Space that is gone, in the background. */
void space_files_drop(struct service *c, const char *id);
/* Returns the Space with this id, of any tenant; NULL when there is none. */
struct space *space_of(struct service *c, const char *id);

#endif
