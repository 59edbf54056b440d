// SPDX-License-Identifier: Apache-2.0
/*
 * The messages on allowances (slots.h, books.h) that hosts exchange, as text in the bodies of
 * requests between them. Texts are input: a peer may lie.
 */
#ifndef RAMET_ORCHESTRATOR_FLEET_EXCHANGE_H
#define RAMET_ORCHESTRATOR_FLEET_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds of limits of a tenant: sandboxes, GB of their disks, checkpoints, size of Spaces. */
#define EXCHANGE_LIMITS	    4
#define EXCHANGE_SLOTS_MAX  64000000
#define EXCHANGE_TENANT_MAX 63
#define EXCHANGE_LINE_MAX   (64 + EXCHANGE_TENANT_MAX + EXCHANGE_LIMITS * 4 * 9)
#define EXCHANGE_NOBODY	    "-" /* in place of a tenant: asks for all allowances */

/* A host's line on one tenant. */
struct exchange {
	uint64_t keepers; /* books_keepers() of the host */
	uint64_t at;	  /* number of the message */
	uint32_t from;	  /* the host */
	char tenant[EXCHANGE_TENANT_MAX + 1];
	struct {
		uint32_t held, used, want;
		uint32_t lacks; /* slots that waiting requests need */
	} limits[EXCHANGE_LIMITS];
};

/* The keeper's answer. */
struct exchange_granted {
	bool sure; /* the keeper is sure of its records; if not, it granted nothing new */
	struct {
		uint32_t held, left;
	} limits[EXCHANGE_LIMITS];
};

/* Each line ends with a newline. */
void exchange_print(char out[static EXCHANGE_LINE_MAX], const struct exchange *x);
void exchange_print_granted(char out[static EXCHANGE_LINE_MAX], const struct exchange_granted *g);
/* Both read a line at *text, which ends with a NUL, and move *text past the line. They return
 * false, without a move, if the line is invalid. Later versions may add fields at the end of a
 * line. */
bool exchange_read(struct exchange *x, const char **text);
bool exchange_read_granted(struct exchange_granted *g, const char **text);

#endif
