// SPDX-License-Identifier: Apache-2.0
/*
 * An ordered list that can be read in pages: an array of pointers, sorted by creation time and id.
 * Both are constant while an entry lives, also across a restart of the service. Therefore a reader
 * can continue after any entry that it has seen, even if that entry was removed meanwhile. New
 * entries nearly always go to the end. An entry may be in several rosters.
 */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_ROSTER_H
#define RAMET_ORCHESTRATOR_SANDBOX_ROSTER_H

#include <stddef.h>

#include "orchestrator/sandbox/sandboxes.h"

/* Embedded in each object that is listed. */
struct listed {
	struct list_position place;
};

struct roster {
	struct listed **all;
	size_t n, room;
};

/* Compares two positions; returns a negative number, 0 or a positive number. */
int list_position_compare(const struct list_position *a, const struct list_position *b);
/* Adds an entry. No two entries may have the same position. */
void roster_add(struct roster *r, struct listed *l);
/* Removes an entry, which must be in the roster; aborts otherwise. */
void roster_remove(struct roster *r, const struct listed *l);
/* Returns the index of the first entry after `place`, which need not be an entry's position; r->n
 * when there is none. */
size_t roster_after(const struct roster *r, const struct list_position *place);
/* Frees the array, not the entries. The roster is empty then and may be used again. */
void roster_fini(struct roster *r);

#endif
