// SPDX-License-Identifier: Apache-2.0
/*
 * Copies files of some sandboxes into a folder of another one, the stage, and runs merge_files.py
 * on them there. The files travel as tar archives, which that script writes and the agent unpacks:
 * in the stage each file has a number as its name, so no guest chooses a path in another one.
 */
#ifndef RAMET_ORCHESTRATOR_GUESTOPS_STAGED_H
#define RAMET_ORCHESTRATOR_GUESTOPS_STAGED_H

#include "orchestrator/guestops/guestops.h"
#include "orchestrator/json/text.h"

#define STAGED_BYTES_MAX (2ull << 30) /* bytes of all archives together */

struct staged_source {
	const char *id;	  /* of the sandbox */
	struct text list; /* for each file: number, zero byte, path, zero byte; empty: none */
};

struct staged_spec {
	const char *id;		       /* of the sandbox with the stage */
	struct staged_source *sources; /* the files of the first source are in STAGE/0, and so on */
	unsigned n;
	struct text roots, plan;  /* files of the stage */
	const char *command;	  /* of merge_files.py */
	const char *const *words; /* its arguments after the stage; NULL-terminated */
	size_t output_max;	  /* bytes that it may write */
};

/* `output` is valid during the callback only; NULL on failure. */
typedef void staged_fn(void *arg, const struct text *output, const struct failure *f);

/* `spec` is copied, except for the buffers of its texts, which the callee owns. If the operation is
 * abandoned, the stage is removed, after the end of the command if that already runs. */
struct op *staged_run(struct service *c, const char *tenant, const struct staged_spec *spec,
		      staged_fn *fn, void *arg);

#endif
