// SPDX-License-Identifier: Apache-2.0
/*
 * An ordered list that can be read in pages: an array of pointers, sorted by creation time and id.
 * Neither changes while an entry lives, also over a restart of the service, so the page that begins
 * behind an entry is the same page whatever was added or removed meanwhile, that entry included.
 * New entries are nearly always the last ones. An entry may be in several rosters.
 */
#ifndef RAMET_ORCHESTRATOR_CORE_ROSTER_H
#define RAMET_ORCHESTRATOR_CORE_ROSTER_H

#include <stddef.h>

#include "orchestrator/core/core.h"

/* To be embedded in what is listed. */
struct listed {
	struct list_position place;
};

struct roster {
	struct listed **all;
	size_t n, room;
};

/* Compares as memcmp does. */
int list_position_compare(const struct list_position *a, const struct list_position *b);
/* The place of each entry is its own. */
void roster_add(struct roster *r, struct listed *l);
/* It is in there. */
void roster_remove(struct roster *r, const struct listed *l);
/* Returns the number of the first entry behind `place`, which need not be anybody's; r->n when
 * there is none. */
size_t roster_after(const struct roster *r, const struct list_position *place);
/* Frees the array; entries are the callers'. It is empty then, and may be used again. */
void roster_fini(struct roster *r);

#endif
