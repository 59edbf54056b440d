// SPDX-License-Identifier: Apache-2.0
/*
 * This host's part in a fleet. Exists only if the setting fleet_dir is set. From its start to its
 * end, all ids that the process makes say that they were made here.
 */
#ifndef RAMET_ORCHESTRATOR_FLEET_MEMBER_H
#define RAMET_ORCHESTRATOR_FLEET_MEMBER_H

#include "orchestrator/config/config.h"
#include "orchestrator/fleet/id.h"
#include "orchestrator/fleet/table.h"
#include "orchestrator/io/loop.h"

struct member;

/* Reads the key and the table, and follows the table's changes. Returns 0, or -errno with *e
 * filled. At most one exists in a process. `loop` and `config` must outlive it. */
int member_new(struct member **out, struct loop *loop, const struct config *config, struct err *e);
/* Returns what member_new would return for the files, and the table, which the caller frees. */
int member_check(struct fleet_table **out, const struct config *config, struct err *e);
/* NULL is fine. Called before loop_free. */
void member_free(struct member *m);

/* Has `fn` called after the file `name` in the folder was written or replaced. One function is
 * kept; NULL: none. `name` must outlive *m. */
void member_follow(struct member *m, const char *name, void (*fn)(void *arg), void *arg);

/* Has `fn` called after the table changed. One function is kept; NULL: none. */
void member_follow_table(struct member *m, void (*fn)(void *arg), void *arg);

/* Returns the last table that was whole. Valid until the caller returns to the loop. */
const struct fleet_table *member_table(const struct member *m);
/* Returns a number that changes with every new table. */
unsigned member_version(const struct member *m);
const struct fleet_keys *member_keys(const struct member *m);

#endif
