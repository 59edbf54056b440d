// SPDX-License-Identifier: Apache-2.0
/*
 * The catalogue: state that must survive a kill of the service. It is one SQLite file. A change
 * survives a kill once its call returned 0. It may be lost in a power cut, which ends the VMs as
 * well, so no call waits for the disk.
 *
 * The service works on a live copy in memory, so that no change and no read waits for a disk that
 * hangs. Worker threads write the changes to the file (store_take, store_write, store_written).
 */
#ifndef RAMET_ORCHESTRATOR_STORE_STORE_H
#define RAMET_ORCHESTRATOR_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/config/sandbox-config.h"

struct store;

/* Opens the catalogue, creating it if it does not exist, and locks out other processes until
 * store_close(). Returns -EBUSY when another process has it open, -EBADMSG when it is damaged;
 * errors say so when the file belongs to another program or is too new. Reads the whole file to
 * detect damage, since the service removes files that the catalogue does not name. An existing
 * catalogue can be opened on a full disk; writes fail once the space reserved in advance is used
 * up. */
int store_open(struct store **out, const char *path, struct err *e);
/* Like store_open, with a live copy at `live`, a path on a tmpfs. If a killed service left a live
 * copy, that is newer than the file and is used. store_close removes it once the file has all its
 * changes. Without space for a live copy, the store works on the file. */
int store_open_live(struct store **out, const char *path, const char *live, struct err *e);
/* Writes the changes in a live copy that a killed service left, if there is one, to the file. */
int store_fold(const char *path, const char *live, struct err *e);
/* Finds out what store_open would find, and whether a key was ever made, without a change of the
 * file and also while another process has it open. `whole`: reads the whole file to detect damage;
 * not for a file that changes. Returns 0, or -errno with *e filled; -ENOENT: there is none. */
int store_look(const char *path, bool whole, bool *any_key, struct err *e);
/* Makes each later change wait for the disk. For programs without an event loop. */
int store_wait_for_disk(struct store *s, struct err *e);
void store_close(struct store *s);

#define STORE_INSTANCE_LEN 16
#define STORE_HASH_LEN	   32

/* The answer to a request with an Idempotency-Key. */
struct store_answer {
	const uint8_t *key, *asks; /* STORE_HASH_LEN bytes each */
	const char *tenant;
	int64_t answered_at_ms;
	uint32_t kind;				   /* enum made_kind (sandbox/sandboxes.h) */
	const char *ids;			   /* of what the request made, space-separated */
	uint64_t pause_us, ready_us, copied_bytes; /* of a fork */
};

/* A row of the table of sandboxes. A slot has at most one living sandbox. */
struct store_sandbox {
	const char *id, *tenant;
	struct sandbox_config config;
	uint32_t slot, pid;
	int64_t created_at_ms, expires_at_ms;
	uint64_t seq_reserved;
	const char *metadata;
	const void *env;
	size_t env_len;
	int64_t ended_at_ms; /* 0: alive */
	const char *ended_code, *ended_text;
	const char *ancestors; /* space-separated ids, oldest first */
	uint8_t instance[STORE_INSTANCE_LEN];
	/* Not a column: a row of another table, added in the same transaction; NULL: none. */
	const struct store_answer *answer;
	const char *ports; /* shared ports, in the form of orchestrator/ports; NULL: none */
	const char *root;  /* of its tree */
	uint32_t depth;
	struct score score;
	const char *labels; /* JSON object text; NULL: none */
	/* The last checkpoint that its state comes from; NULL: none. */
	const char *checkpoint;
	uint64_t given_seq, given_state; /* struct given_state (snapshot/state.h) */
	const struct store_tree *tree;	 /* like `answer`: the tree that the sandbox begins */
};

int store_sandbox_add(struct store *s, const struct store_sandbox *row, struct err *e);
/* Adds all rows or none. */
int store_sandboxes_add(struct store *s, const struct store_sandbox *rows, size_t n, struct err *e);

/* Describes a merge: the VM of `winner` becomes that of `parent`, and the winner ends with `code`
 * and `text`. A winner of NULL was never in the catalogue. `lines`: sandboxes whose ancestors
 * change. */
struct store_merge {
	const char *parent, *winner;
	const char *checkpoint; /* the parent's last checkpoint from now on; NULL: none */
	uint32_t slot, pid;
	const uint8_t *instance;
	bool egress; /* the parent's network access from now on */
	uint64_t seq_reserved;
	int64_t at_ms;
	const char *code, *text;
	const struct store_line {
		const char *id, *ancestors;
	} * lines;
	size_t n_lines;
};
int store_sandbox_merge(struct store *s, const struct store_merge *m, struct err *e);

/* Records the end of a sandbox and deletes its metadata, labels and environment. The row stays for
 * a while, so that requests for the id can be answered with the reason. */
int store_sandbox_end(struct store *s, const char *id, int64_t at_ms, const char *code,
		      const char *text, struct err *e);
/* Records the new limits, egress, expires_at_ms, metadata, score and labels of row->id. */
int store_sandbox_change(struct store *s, const struct store_sandbox *row, struct err *e);
int store_sandbox_ports(struct store *s, const char *id, const char *ports, struct err *e);
int store_sandbox_seq(struct store *s, const char *id, uint64_t seq_reserved, struct err *e);
int store_sandbox_given(struct store *s, const char *id, uint64_t seq, uint64_t state,
			struct err *e);
int store_sandbox_forget(struct store *s, const char *id, struct err *e);
/* Removes up to `most` rows of sandboxes that ended before `before_ms`, oldest first; returns the
 * number removed. */
int store_purge_ended(struct store *s, int64_t before_ms, unsigned most, struct err *e);
/* Calls `each` for every living sandbox, oldest first. The row and what it points to are valid only
 * during the call. */
typedef void store_sandbox_fn(void *arg, const struct store_sandbox *row);
int store_sandboxes(struct store *s, store_sandbox_fn *each, void *arg, struct err *e);
/* Calls `each` for the last `most` sandboxes that ended after `after_ms`, in the order of their
 * end. */
int store_sandboxes_ended(struct store *s, int64_t after_ms, unsigned most, store_sandbox_fn *each,
			  void *arg, struct err *e);

/* --- Spaces ---------------------------------------------------------------------------------- */

struct store_checkpoint {
	const char *id, *tenant, *name, *parent, *ancestors;
	bool pin;
	int64_t expires_at_ms; /* 0: never */
	uint64_t shared_bytes;
	enum checkpoint_kind kind;
	uint64_t call_seq; /* number of the state: of the last event that led to it */
};

struct store_space {
	const char *id, *tenant, *sandbox;
	struct sandbox_config config; /* without `persistent` and `checkpoint_calls` */
	int64_t created_at_ms;
	uint64_t size_bytes, seq_reserved;
	const char *metadata;
	const void *env;
	size_t env_len;
	const char *root; /* these four as in a store_sandbox */
	uint32_t depth;
	struct score score;
	const char *labels;
	/* Not columns: rows of another table, added in the same transaction. */
	const struct store_answer *answers;
	size_t n_answers;
	const struct store_checkpoint *checkpoint; /* the rest of a checkpoint; NULL: a Space */
};

/* Ends the frozen sandbox with `code` and `text` and adds its Space, in one transaction. */
int store_space_freeze(struct store *s, const struct store_space *row, int64_t at_ms,
		       const char *code, const char *text, struct err *e);
/* Removes the Space and adds the sandbox `row`, in one transaction. */
int store_space_resume(struct store *s, const char *space, const struct store_sandbox *row,
		       struct err *e);
/* Reverts store_space_resume: ends the sandbox with `code` and `text` and adds the Space `row`
 * again, in one transaction. */
int store_space_unresume(struct store *s, const char *sandbox, const struct store_space *row,
			 int64_t at_ms, const char *code, const char *text, struct err *e);
int store_space_forget(struct store *s, const char *id, struct err *e);
/* Records that the files of a resumed or forgotten Space were removed. Until then the Space is
 * recorded as gone, so that its files on the disk are not taken for those of a lost Space. */
int store_space_removed(struct store *s, const char *id, struct err *e);
/* Returns 1 if the Space is recorded as gone, else 0; -errno on failure. */
int store_space_is_gone(struct store *s, const char *id, struct err *e);
/* Calls `each` for every Space recorded as gone. `id` is valid only during the call, which must not
 * change the catalogue. */
int store_spaces_gone(struct store *s, void (*each)(void *arg, const char *id), void *arg,
		      struct err *e);
/* Calls `each` for every Space, oldest first. The row and what it points to are valid only during
 * the call. */
int store_spaces(struct store *s, void (*each)(void *arg, const struct store_space *row), void *arg,
		 struct err *e);

/* --- trees with a budget ---------------------------------------------------------------------- */

struct store_tree {
	const char *root, *tenant;
	struct tree_budget budget;
	int64_t created_at_ms;
	uint64_t spent_ms; /* CPU time of VMs that have ended */
};

/* Adds the tree, or replaces its row. */
int store_tree_set(struct store *s, const struct store_tree *row, struct err *e);
/* Records that VMs of the tree have ended, and the CPU time of all such VMs. */
int store_tree_spent(struct store *s, const char *root, uint64_t spent_ms, struct err *e);
int store_tree_forget(struct store *s, const char *root, struct err *e);
/* Removes the trees that have no living sandbox and no Space, then calls `each` for the others. The
 * row is valid only during the call, which must not change the catalogue. */
int store_trees(struct store *s, void (*each)(void *arg, const struct store_tree *row), void *arg,
		struct err *e);

/* --- checkpoints ----------------------------------------------------------------------------- */

/* Adds a checkpoint of the sandbox that is in memory only, with the answer to the request for it,
 * which may be NULL. */
int store_checkpoint_add(struct store *s, const struct store_checkpoint *row, const char *sandbox,
			 const struct store_answer *answer, struct err *e);
/* Records new labels, a new score, and of `row->checkpoint` name, pin, expires_at_ms and kind. */
int store_checkpoint_change(struct store *s, const struct store_space *row, struct err *e);
/* Adds the row of a checkpoint that was in memory and is on disk now. */
int store_checkpoint_stored(struct store *s, const struct store_space *row, struct err *e);
/* Removes the checkpoint, and records its files as the files of a Space that is gone. Sandboxes and
 * checkpoints that came from this checkpoint come from its parent from now on. */
int store_checkpoint_forget(struct store *s, const char *id, struct err *e);
/* Calls `each` for every checkpoint that is not on disk. The row is valid only during the call,
 * which must not change the catalogue. */
int store_checkpoints_unstored(struct store *s,
			       void (*each)(void *arg, const struct store_checkpoint *row),
			       void *arg, struct err *e);

/* --- answers --------------------------------------------------------------------------------- */

/* Removes the answer with this key, if there is one. */
int store_answer_forget(struct store *s, const uint8_t key[static STORE_HASH_LEN], struct err *e);
/* Removes all answers given before `before_ms`. */
int store_answers_purge(struct store *s, int64_t before_ms, struct err *e);
/* Calls `each` for every answer, oldest first. The row and what it points to are valid only during
 * the call, which must not change the catalogue. */
int store_answers(struct store *s, void (*each)(void *arg, const struct store_answer *row),
		  void *arg, struct err *e);

/* --- keys ------------------------------------------------------------------------------------ */

struct key; /* store/keys.h; its `ends_ms` is not stored */
#define STORE_KEY_HASH_LEN 32

struct store_revocation {
	int64_t at_ms;
	bool done; /* revoked permanently already */
};
int store_key_add(struct store *s, const struct key *key,
		  const uint8_t hash[static STORE_KEY_HASH_LEN], struct err *e);
int store_key_revoke(struct store *s, const char *id, const struct store_revocation *r,
		     struct err *e);
int store_key_set_tier(struct store *s, const char *id, const char *tier, struct err *e);
/* Adds `key` and revokes `old`, in one transaction. */
int store_key_rotate(struct store *s, const struct key *key,
		     const uint8_t hash[static STORE_KEY_HASH_LEN], const char *old,
		     const struct store_revocation *r, struct err *e);
/* Calls `each` for every key, oldest first. The key and its hash are valid only during the call. */
int store_keys(struct store *s, void (*each)(void *arg, const struct key *key, const uint8_t *hash),
	       void *arg, struct err *e);

/* --- events ---------------------------------------------------------------------------------- */

struct audit_event;
/* Adds the event to the next change, in its transaction: both reach the catalogue, or neither. Call
 * it directly before the function that makes the change. */
void store_event(struct store *s, const struct audit_event *event);
/* Which events to read. */
struct store_events_range {
	const char *tenant;	/* NULL: events of all tenants */
	uint64_t after, before; /* event numbers, both exclusive; `before` is 0: no bound */
	bool newest_first;
};
/* An event that the audit log has. */
struct logged_event {
	uint64_t n;
	/* The time by which events are ordered: never before that of the previous event. The line
	 * has the clock's time, which may be. */
	int64_t at_ms;
	const char *line; /* one JSON object (orchestrator/events/line.h) */
	size_t len;
};
/* Returns whether the next event is wanted too. `event` is valid only during the call, which must
 * not change the catalogue. */
typedef bool store_event_fn(void *arg, const struct logged_event *event);
/* Calls `each` for up to `most` events. Reads no others, however many the range has. */
int store_events(struct store *s, const struct store_events_range *range, unsigned most,
		 store_event_fn *each, void *arg, struct err *e);
/* Finds the number from which on events are later than `at_ms`, as if the clock had never been set
 * back. */
int store_events_later(struct store *s, int64_t at_ms, uint64_t *n, struct err *e);
/* Keeps `most` events from now on: for one more, the oldest of the tenant with the most events is
 * removed. */
void store_events_keep(struct store *s, uint64_t most);
/* Removes those of the oldest `most` events that are from before `before_ms`, by the time in each
 * event. Returns how many it removed. */
int store_events_purge(struct store *s, int64_t before_ms, unsigned most, struct err *e);
/* Sets the function that is called after each change with events. It must not change the
 * catalogue. */
void store_events_watch(struct store *s, void (*added)(void *arg), void *arg);
struct store_events_count {
	uint64_t added; /* since the store was opened */
	uint64_t last;	/* number of the last event; 0: none */
};
struct store_events_count store_events_count(const struct store *s);

/* Reads the number of the last event that the webhooks are done with. Returns 1; 0 if none was
 * recorded yet; -errno on failure. */
int store_webhooks_done(struct store *s, uint64_t *n, struct err *e);
int store_webhooks_set(struct store *s, uint64_t n, struct err *e);

/* --- from the live copy to the disk ---------------------------------------------------------- */

/* Sets the function that is called after each change that the file does not have yet. */
void store_watch(struct store *s, void (*changed)(void *arg), void *arg);
/* Returns whether there are changes that store_take did not take yet. */
bool store_is_behind(const struct store *s);
/* Takes the changes that the file lacks. Only one batch may be in flight. Returns NULL if they
 * cannot be taken now. */
struct store_batch;
struct store_batch *store_take(struct store *s);
/* Writes the batch to the file, all or nothing; with `sync`, waits until it and all earlier changes
 * are on the disk. Call it on a worker thread; the loop's thread may use `s` meanwhile. */
int store_write(struct store *s, struct store_batch *b, bool sync, struct err *e);
/* Frees the batch, given the result of store_write: changes that failed join the next batch. */
void store_written(struct store *s, struct store_batch *b, int ret);

/* --- backup ---------------------------------------------------------------------------------- */

/*
 * A copy of the catalogue in one file, with the state at the beginning of the backup. It is made
 * over a separate connection: call these functions on a worker thread, while the loop's thread uses
 * the store. Later changes are not in the copy, and do not slow it down.
 */
struct store_backup;
/* Begins a backup to the file `to`, which is replaced and accessible to its owner only. */
int store_backup_new(struct store_backup **out, const char *path, const char *to, struct err *e);
/* Copies up to 1 MiB. Returns 1 when the copy is complete and on the disk, 0 when there is more to
 * copy, or -errno. */
int store_backup_step(struct store_backup *b, struct err *e);
/* Frees the backup and unlinks the copy; returns its descriptor, which the caller owns. */
int store_backup_end(struct store_backup *b);
/* Removes a database and its log, which stays when the database is closed (store_open_db). */
void store_remove(const char *path);

#endif
