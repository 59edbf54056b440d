// SPDX-License-Identifier: Apache-2.0
/*
 * The catalogue: what must be known after the service was killed. One SQLite file; a change is
 * there for good when its call returns 0, as far as the process goes (a power cut takes the VMs as
 * well, so no call waits for the disk).
 *
 * The service works on a live copy of it in memory, so that no change and no read waits for a disk
 * that stands still. Worker threads bring the file up to it (store_take and what follows).
 */
#ifndef RAMET_ORCHESTRATOR_STORE_STORE_H
#define RAMET_ORCHESTRATOR_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct store;

/* Makes the file when there is none, and keeps other processes from it until store_close(): -EBUSY
 * when one of them has it. Errors say what it is when it is not ours or too new. -EBADMSG: it is
 * damaged; all of it is read to know that, since whoever acts on what a catalogue does not name
 * must know it to be whole. One that was there is opened on a full disk, too; writes may fail then,
 * once the room taken ahead is used up. */
int store_open(struct store **out, const char *path, struct err *e);
/* The same with a live copy at `live`, which is on a tmpfs. One that a killed service left is the
 * newer of the two and counts; store_close removes it when the file has all that is in it. Without
 * room for one the store works as store_open's. */
int store_open_live(struct store **out, const char *path, const char *live, struct err *e);
/* Brings the file up to the live copy that a killed service left, if there is one. */
int store_fold(const char *path, const char *live, struct err *e);
/* From here on each change waits for the disk: for programs without a loop to hold up. */
int store_wait_for_disk(struct store *s, struct err *e);
void store_close(struct store *s);

#define STORE_INSTANCE_LEN 16

/* No two that live are in one slot. */
struct store_sandbox {
	const char *id, *tenant, *template;
	uint32_t slot, pid, vcpus, ram_mib, rootfs_gb, timeout_s, idle_timeout_s;
	bool persistent, egress;
	int64_t created_at_ms, expires_at_ms;
	uint64_t seq_reserved;
	const char *metadata;
	const void *env;
	size_t env_len;
	int64_t ended_at_ms; /* 0: it lives */
	const char *ended_code, *ended_text;
	const char *ancestors; /* ids with a space between them, oldest first */
	uint8_t instance[STORE_INSTANCE_LEN];
};

int store_sandbox_add(struct store *s, const struct store_sandbox *row, struct err *e);
/* All or none. */
int store_sandboxes_add(struct store *s, const struct store_sandbox *rows, size_t n, struct err *e);

/* The VM of `winner` is the one of `parent` from here on; the winner ends with `code` and `text`.
 * `lines`: sandboxes whose ancestors are other ones now. */
struct store_merge {
	const char *parent, *winner;
	uint32_t slot, pid;
	const uint8_t *instance;
	uint64_t seq_reserved;
	int64_t at_ms;
	const char *code, *text;
	const struct store_line {
		const char *id, *ancestors;
	} * lines;
	size_t n_lines;
};
int store_sandbox_merge(struct store *s, const struct store_merge *m, struct err *e);

/* Keeps the row for a while, so that the id is answered with what became of it; its metadata and
 * environment are gone with this. */
int store_sandbox_end(struct store *s, const char *id, int64_t at_ms, const char *code,
		      const char *text, struct err *e);
int store_sandbox_seq(struct store *s, const char *id, uint64_t seq_reserved, struct err *e);
int store_sandbox_forget(struct store *s, const char *id, struct err *e);
/* Removes up to `most` rows that ended before `before_ms`, those that ended first; returns how
 * many. */
int store_purge_ended(struct store *s, int64_t before_ms, unsigned most, struct err *e);
/* Those that live, oldest first. What the row points to is good during the call only. */
typedef void store_sandbox_fn(void *arg, const struct store_sandbox *row);
int store_sandboxes(struct store *s, store_sandbox_fn *each, void *arg, struct err *e);
/* The last `most` that ended after `after_ms`, in the order they ended. */
int store_sandboxes_ended(struct store *s, int64_t after_ms, unsigned most, store_sandbox_fn *each,
			  void *arg, struct err *e);

/* --- Spaces ---------------------------------------------------------------------------------- */

struct store_space {
	const char *id, *tenant, *sandbox, *template;
	uint32_t vcpus, ram_mib, rootfs_gb, timeout_s, idle_timeout_s;
	bool egress;
	int64_t created_at_ms;
	uint64_t size_bytes, seq_reserved;
	const char *metadata;
	const void *env;
	size_t env_len;
};

/* The sandbox it was ends, with `code` and `text`, and the Space is there: both or neither. */
int store_space_freeze(struct store *s, const struct store_space *row, int64_t at_ms,
		       const char *code, const char *text, struct err *e);
/* The Space is gone, and the sandbox `row` is there: both or neither. */
int store_space_resume(struct store *s, const char *space, const struct store_sandbox *row,
		       struct err *e);
int store_space_forget(struct store *s, const char *id, struct err *e);
/* A Space that was resumed or forgotten is remembered as gone until its files are removed: so what
 * else is on the disk and not here is known to be lost, not left over. */
int store_space_removed(struct store *s, const char *id, struct err *e);
/* Returns 1 or 0, or -errno. */
int store_space_is_gone(struct store *s, const char *id, struct err *e);
/* `id` is good during the call only, which may not change the catalogue. */
int store_spaces_gone(struct store *s, void (*each)(void *arg, const char *id), void *arg,
		      struct err *e);
/* Oldest first. What the row points to is good during the call only. */
int store_spaces(struct store *s, void (*each)(void *arg, const struct store_space *row), void *arg,
		 struct err *e);
/* --- keys ------------------------------------------------------------------------------------ */

#define STORE_KEY_HASH_LEN 32

/* Names and ids as orchestrator/keys/keys.h has them. */
struct store_key {
	const char *id, *tenant, *name, *tier;
	const uint8_t *hash; /* STORE_KEY_HASH_LEN bytes */
	int64_t created_at_ms;
	int64_t revoked_at_ms; /* when it was revoked, or is to be; 0: neither */
	bool revoked;	       /* for good: no clock is asked any more */
};
/* When a key is revoked, and whether it is so for good already. */
struct store_revocation {
	int64_t at_ms;
	bool done;
};
int store_key_add(struct store *s, const struct store_key *row, struct err *e);
int store_key_revoke(struct store *s, const char *id, const struct store_revocation *r,
		     struct err *e);
/* Adds `row` and revokes `old`: both or neither. */
int store_key_rotate(struct store *s, const struct store_key *row, const char *old,
		     const struct store_revocation *r, struct err *e);
/* Oldest first. What the row points to is good during the call only. */
int store_keys(struct store *s, void (*each)(void *arg, const struct store_key *row), void *arg,
	       struct err *e);

/* --- from the live copy to the disk ---------------------------------------------------------- */

/* `changed` is called after each change that the file does not have yet. */
void store_watch(struct store *s, void (*changed)(void *arg), void *arg);
/* Returns whether there are changes that were not taken yet. */
bool store_is_behind(const struct store *s);
/* Takes what the file lacks; one batch at a time. NULL: not now. */
struct store_batch;
struct store_batch *store_take(struct store *s);
/* Writes it to the file, all or nothing, and with `sync` waits until all that is in the file is on
 * the disk. To be called on a worker thread, while the loop's thread goes on with `s`. */
int store_write(struct store *s, struct store_batch *b, bool sync, struct err *e);
/* Frees the batch, with what store_write has returned: what failed goes with the next one. */
void store_written(struct store *s, struct store_batch *b, int ret);

/* --- backup ---------------------------------------------------------------------------------- */

/*
 * A copy of the catalogue as it is when the backup begins, in one file, over a connection of its
 * own: each call is for a worker thread, while the loop's thread goes on with the store. What is
 * written meanwhile is not in the copy, and does not slow it down.
 */
struct store_backup;
/* `to` is made anew, for its owner alone. */
int store_backup_new(struct store_backup **out, const char *path, const char *to, struct err *e);
/* Copies up to a MiB. 1: the copy is whole and on the disk; 0: there is more; -errno. */
int store_backup_step(struct store_backup *b, struct err *e);
/* Removes the name of the copy; returns its descriptor, which is the caller's. */
int store_backup_end(struct store_backup *b);

#endif
