// SPDX-License-Identifier: Apache-2.0
/* A span: one request of a client, as the service gives it to ramet-notify. */
#ifndef RAMET_ORCHESTRATOR_EVENTS_SPAN_H
#define RAMET_ORCHESTRATOR_EVENTS_SPAN_H

#include <stddef.h>
#include <stdint.h>

#define SPAN_ID_MAX	  36 /* bytes of an id such as sbx_… */
#define SPAN_CHILDREN_MAX 64 /* further children of a fork are left out */

enum span_kind {
	SPAN_NONE,
	SPAN_CREATE,
	SPAN_EXEC,
	SPAN_FORK,
	SPAN_FREEZE,
	SPAN_RESUME,
	SPAN_KINDS,
};

/* One packet, which ends after the last child. Texts are padded with zeros. */
struct span {
	uint8_t trace[16], id[8];
	uint8_t parent[8];	   /* all zero: none */
	uint64_t begin_ns, end_ns; /* since 1970 */
	uint32_t kind;		   /* enum span_kind */
	uint32_t status;	   /* of HTTP */
	char sandbox[SPAN_ID_MAX]; /* empty: none */
	char space[SPAN_ID_MAX];   /* empty: none */
	uint32_t n_children;
	char children[SPAN_CHILDREN_MAX][SPAN_ID_MAX];
};

static inline size_t span_size(uint32_t n_children)
{
	return offsetof(struct span, children) + n_children * SPAN_ID_MAX;
}

#endif
