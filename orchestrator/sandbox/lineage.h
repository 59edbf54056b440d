// SPDX-License-Identifier: Apache-2.0
/* Which sandbox was forked from which. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_LINEAGE_H
#define RAMET_ORCHESTRATOR_SANDBOX_LINEAGE_H

#include <stdbool.h>

struct sandbox;

/* Returns whether `id` is one of `ancestors`: ids with a space between them, oldest first. */
bool lineage_has(const char *ancestors, const char *id);
/* Returns the ancestors of a child of `parent`; the caller frees it. */
char *lineage_of_child(const struct sandbox *parent);
/* Returns `ancestors` after a merge: with `parent` in the place of `winner`, and nowhere else. The
 * caller frees it. */
char *lineage_merged(const char *ancestors, const char *winner, const char *parent);
/* Links a listed sandbox to its living ancestors, which are listed too. */
void lineage_link(struct sandbox *s);
/* Unlinks a sandbox that ends. The parent of its children is then their nearest living ancestor. */
void lineage_unlink(struct sandbox *s);
/* Replaces the sandbox's ancestors by `ancestors`, from lineage_merged, and takes ownership. */
void lineage_change(struct sandbox *s, char *ancestors);

#endif
