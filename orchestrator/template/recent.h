// SPDX-License-Identifier: Apache-2.0
/*
 * Recently requested sandbox sizes, other than the templates' own, so that they can be prepared
 * again after a restart. File STATE_DIR/sizes: one line `TEMPLATE VCPUSxRAMxDISK` each, most recent
 * first. A lost or damaged file costs only speed.
 */
#ifndef RAMET_ORCHESTRATOR_TEMPLATE_RECENT_H
#define RAMET_ORCHESTRATOR_TEMPLATE_RECENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orchestrator/template/template-source.h"

#define RECENT_MAX	8
#define RECENT_TEXT_MAX 1024 /* bytes of the file */

struct loop;

struct recent {
	char template[SOURCE_NAME_MAX + 1];
	struct size size;
	bool expected; /* passed on to the pool, or requested since the service started */
};

struct recents {
	struct recent all[RECENT_MAX];
	size_t n;
	bool dirty; /* differs from the file */
	struct recents_job *job;
};

/* Parses the well-formed lines and skips the others. */
void recents_parse(struct recents *out, const char *text, size_t len);
/* Formats the file's text. Returns its length without the NUL. */
size_t recents_print(const struct recents *r, char out[RECENT_TEXT_MAX]);
/* Reads the file below config->state_dir; a missing file means no sizes. */
void recents_load(struct recents *out, const struct config *config);
/* Moves the size to the front; a new one replaces the oldest if the list is full. Returns true when
 * it is new. */
bool recents_note(struct recents *r, const struct recent *size);
/* Writes the file on a worker thread unless it is up to date or being written. */
void recents_save(struct recents *r, struct loop *loop, const struct config *config);
/* Detaches from a write in progress, which completes by itself. */
void recents_close(struct recents *r);

#endif
