// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_ORCHESTRATOR_EVENTS_SIGN_H
#define RAMET_ORCHESTRATOR_EVENTS_SIGN_H

#include <stddef.h>
#include <stdint.h>

#define SIGNATURE_MAX 96

/* Writes "t=SECONDS,v1=HEX", with the HMAC-SHA256 of "SECONDS.BODY" under the secret. */
void sign(char out[static SIGNATURE_MAX], const char *secret, int64_t seconds, const char *body,
	  size_t len);

#endif
