// SPDX-License-Identifier: Apache-2.0
/*
 * What happened in a sandbox: its last calls, checkpoints, forks, merges and rollbacks, bounded in
 * number. Each entry names the entry whose state it changed. So the entries that led to the present
 * state can be told from those of a state that was given up.
 */
#ifndef RAMET_ORCHESTRATOR_EXEC_HISTORY_H
#define RAMET_ORCHESTRATOR_EXEC_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_MAX	 50 /* entries: less than 8 KiB */
#define HISTORY_TEXT_MAX 80 /* bytes */
#define HISTORY_ID_MAX	 36

/* The numbers of kinds and results are fixed, because journals have them. The first three kinds are
 * how a sandbox begins. */
enum history_kind {
	HISTORY_CREATED,
	HISTORY_FORKED,
	HISTORY_RESUMED,
	HISTORY_CALL,
	HISTORY_CHECKPOINT,
	HISTORY_FORK,
	HISTORY_MERGE,
	HISTORY_ROLLBACK,
	HISTORY_NKINDS,
};
/* How a call ended. ERROR: its exit code was not 0. FAILED: it could not be completed. */
enum history_result {
	HISTORY_OK,
	HISTORY_ERROR,
	HISTORY_FAILED,
	HISTORY_ROLLED_BACK,
	HISTORY_MERGED,
	HISTORY_NRESULTS,
};

struct history_entry {
	uint32_t n;	/* counts the entries, from 1 */
	uint32_t after; /* the entry whose state this one changed; 0: none */
	int64_t at_ms;	/* since the epoch; of a call its end, of a fork when the children began */
	/* When the call began (0: not known); in the first entry, when its state was taken. */
	int64_t began_ms;
	/* The number of a call's last event. In a child's first entry, the number `n` of its
	 * parent's last entry. */
	uint64_t seq;
	uint8_t kind, result;
	uint16_t children; /* of a fork: how many it made */
	/* The first line of a call's code, the name of a checkpoint, or else the id of the sandbox,
	 * checkpoint or Space that the state came from. Valid UTF-8, may be empty. */
	char text[HISTORY_TEXT_MAX + 1];
	char checkpoint[HISTORY_ID_MAX + 1]; /* of the state after the entry; empty: none */
};

/* The first entry says how the sandbox began, and stays. The newest ones follow. */
struct history_log {
	struct history_entry *entries;
	uint32_t count, room;
};

/* Copies the first line of the text that is not blank, cut to whole characters. */
void history_text(char out[static HISTORY_TEXT_MAX + 1], const char *text, size_t len);
/* Appends a copy of the entry, which changed the state of the entry `after`, and numbers the copy.
 * Returns the copy. */
const struct history_entry *history_add(struct history_log *h, const struct history_entry *entry,
					uint32_t after);
/* Appends a copy of an entry that is numbered already. Replaces the last entry if that has the same
 * number. Returns false for an entry that the history can't have. */
bool history_read(struct history_log *h, const struct history_entry *entry);
/* Notes a checkpoint in the entry `n`, whose state it has. Returns the entry; NULL if there is none
 * or it has a checkpoint already. */
const struct history_entry *history_keep(struct history_log *h, uint32_t n, const char *checkpoint);

/* Return the number of the first or last entry; 0 without any. */
uint32_t history_first(const struct history_log *h);
uint32_t history_last(const struct history_log *h);
/* Returns the number of the last entry with the state of the entry `n`; 0 if that is unknown. */
uint32_t history_same(const struct history_log *h, uint32_t n);
/* Returns the number of the last entry with the checkpoint's state; 0 if none is known. */
uint32_t history_find(const struct history_log *h, const char *checkpoint);
/* Adds what the winner of a merge has done, after the entry at whose state the winner began. `id`:
 * of the sandbox that goes on. `line`: number of the last entry that the winner's state comes from,
 * as its checkpoints say; 0: none. Returns the number of the entry with the winner's state. */
uint32_t history_join(struct history_log *h, const char *id, const struct history_log *winner,
		      uint32_t line);

/* Sets undone[i] if the present state does not come from the i-th entry, else clears it. */
void history_undone(const struct history_log *h, bool undone[static HISTORY_MAX]);
void history_fini(struct history_log *h);

#endif
