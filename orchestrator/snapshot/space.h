// SPDX-License-Identifier: Apache-2.0
/* A Space: a sandbox on disk. A checkpoint (checkpoint.h) is a struct space, too; `Space` means
 * both where the code does not differ. */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_H

#include "base/list.h"
#include "orchestrator/exec/journal.h"
#include "orchestrator/images/sizes.h"
#include "orchestrator/sandbox/roster.h"
#include "orchestrator/snapshot/snapshots.h"
#include "orchestrator/snapshot/state.h"

struct op;
struct op_methods;
struct sandbox;
struct service;
struct store_space;
struct tenant;
struct tree;

/* The members of a checkpoint that a Space lacks. */
struct checkpoint {
	struct space *space;
	char *name, *ancestors;
	bool pin;
	int64_t expires_at_ms;	      /* 0: never */
	struct checkpoint_ref parent; /* the last checkpoint that this one's state comes from */
	struct list refs;	      /* struct checkpoint_ref: all that point to this checkpoint */
	uint64_t shared_bytes;
	enum checkpoint_kind kind;
	uint64_t call_seq; /* number of the state: of the last event that led to it */
	/* The snapshot in memory, until it is written and nobody uses it. */
	struct vmproc_image *image;
	struct exec_point call;
	bool guest_busy;
	struct list unwritten; /* on snapshot_service.unwritten until it is written */
	struct list of_calls;  /* on snapshot_sandbox.of_calls while its sandbox lives */
};

struct space {
	struct list link;   /* on snapshot_service.spaces, oldest first */
	struct list bucket; /* keyed by id */
	struct list unread; /* on snapshot_service.unread_spaces until this instance has read all of
			       it */
	struct listed listed; /* on the owner's snapshot_tenant.spaces or .checkpoints */
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
	uint64_t size_bytes; /* on disk, without shared files; in memory: what it will take */
	uint64_t seq;
	char *env;
	size_t env_len;
	struct resume *resume;	       /* in progress, or NULL */
	unsigned users;		       /* struct space_open */
	struct checkpoint *checkpoint; /* owned; NULL: a Space */
	char damage[ERR_TEXT_MAX];     /* the error found in it; empty: none known */
};

void checkpoint_ref_set(struct checkpoint_ref *ref, struct checkpoint *to);
/* Returns the checkpoint's id, or NULL. */
const char *checkpoint_ref_id(const struct checkpoint_ref *ref);
/* Frees the memory of a checkpoint's snapshot. */
void space_free_snapshot(struct checkpoint *k);
/* Returns what the id names, for people: "space" or "checkpoint". */
const char *space_noun(const char *id);
static inline bool space_is_checkpoint(const struct space *p)
{
	return p->checkpoint != NULL;
}

struct space *space_add(struct service *c, const struct store_space *row);
/* Returns a new Space's row with what it takes from the sandbox, valid as long as the sandbox. It
 * takes no `persistent` and no `checkpoint_calls`: each start from the Space sets them anew. */
struct store_space space_row_new(const struct sandbox *s, const char *id);
/* Returns the Space's row in the catalogue, valid as long as the Space. */
struct store_space space_row(const struct space *p);
void space_view_fill(const struct space *p, struct space_view *view);
/* Returns NULL, with *f filled, when the tenant has no such Space or it is damaged. */
struct space *space_find(struct service *c, const char *tenant, const char *id, struct failure *f);
void space_damaged(struct space *p, const char *what);
/* Returns whether the tenant's limit of disk space has room for a Space or checkpoint of the
 * sandbox, which takes `bytes`; else fills in *f. `refused`: what *f then says of the sandbox. */
bool space_has_room(const struct sandbox *s, uint64_t bytes, const char *refused,
		    struct failure *f);
/* Sets the Space's bytes on disk. */
void space_resize(struct space *p, uint64_t size_bytes);
/* Fails with FAIL_IN_USE while the Space is being resumed or started from. */
bool space_is_unused(const struct space *p, struct failure *f);
/* Like space_find, but finds damaged ones, too. */
struct space *space_lookup(struct service *c, const char *tenant, const char *id,
			   struct failure *f);
/* Marks a Space as fully read or written: it needs no scrub. */
void space_checked(struct space *p);
/* Stops the scrub of this Space, since it is being resumed or deleted. */
void space_scrub_stop(const struct space *p);
/* Removes the Space from memory; its files stay. */
void space_forget(struct space *p);
/* Forgets a Space that the catalogue records as gone. Once that record is on disk, removes the
 * Space's files and ends `op`, which is of the kind space_drop_ops. */
void space_drop(struct space *p, struct op *op);
extern const struct op_methods space_drop_ops;
/* Removes the files of a Space that is gone, in the background. */
void space_files_drop(struct service *c, const char *id);
/* Returns the Space with this id, of any tenant; NULL when there is none. */
struct space *space_of(struct service *c, const char *id);

#endif
