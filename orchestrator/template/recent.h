// SPDX-License-Identifier: Apache-2.0
/*
 * The sizes that sandboxes were created with lately, beside the templates' own, so that they can be
 * prepared again after a restart: STATE_DIR/sizes, a line `TEMPLATE VCPUSxRAMxDISK` each, the most
 * recent first. What is lost of it, or damaged, is only slower.
 */
#ifndef RAMET_ORCHESTRATOR_TEMPLATE_RECENT_H
#define RAMET_ORCHESTRATOR_TEMPLATE_RECENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orchestrator/template/template-source.h"

#define RECENT_MAX	8
#define RECENT_TEXT_MAX 1024 /* of the file */

struct loop;

struct recent {
	char template[SOURCE_NAME_MAX + 1];
	uint32_t vcpus, ram_mib, rootfs_gb;
	bool expected; /* the pool has been told of it, or it was asked for in this instance */
};

struct recents {
	struct recent all[RECENT_MAX];
	size_t n;
	bool dirty; /* the file has another order or content */
	struct recents_job *job;
};

/* Reads the lines that are well formed, and skips the others. */
void recents_parse(struct recents *out, const char *text, size_t len);
/* Returns the length, without a NUL. */
size_t recents_print(const struct recents *r, char out[RECENT_TEXT_MAX]);
/* Reads the file of `config`; without one there are none. */
void recents_load(struct recents *out, const struct config *config);
/* Moves it to the front. Returns true when it is new. */
bool recents_note(struct recents *r, const struct recent *size);
/* Writes the file on a worker thread when it is not up to date. */
void recents_save(struct recents *r, struct loop *loop, const struct config *config);
/* A write under way goes on without it. */
void recents_close(struct recents *r);

#endif
