// SPDX-License-Identifier: Apache-2.0
/* Why a request to the service failed, in the terms of docs/api.md. */
#ifndef RAMET_ORCHESTRATOR_FAILURE_FAILURE_H
#define RAMET_ORCHESTRATOR_FAILURE_FAILURE_H

#include "base/err.h"

struct failure {
	int status;	      /* the HTTP status that fits best */
	const char *code;     /* short, stable, a string literal */
	unsigned retry_after; /* seconds; 0: none */
	char text[ERR_TEXT_MAX];
};

/* Fills in *f; the text is cut to what fits. */
void failure_set(struct failure *f, int status, const char *code, unsigned retry_after,
		 const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
