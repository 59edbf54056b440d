// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/events/sign.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "orchestrator/events/line.h"

void sign(char out[static SIGNATURE_MAX], const char *secret, int64_t seconds, const char *body,
	  size_t len)
{
	unsigned char text[32 + AUDIT_LINE_MAX], hash[EVP_MAX_MD_SIZE];
	unsigned hash_len = 0;
	int head = snprintf((char *)text, 32, "%" PRId64 ".", seconds);

	if (len > AUDIT_LINE_MAX)
		abort(); /* no line of the log is that long */
	memcpy(text + head, body, len);
	if (!HMAC(EVP_sha256(), secret, (int)strlen(secret), text, (size_t)head + len, hash,
		  &hash_len))
		abort();
	int used = snprintf(out, SIGNATURE_MAX, "t=%" PRId64 ",v1=", seconds);
	hex_write(out + used, hash, hash_len);
}
