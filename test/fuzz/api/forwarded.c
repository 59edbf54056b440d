// SPDX-License-Identifier: Apache-2.0
/* The input is an X-Forwarded-For header. The resulting address must be in it, and only proxies may
 * be skipped. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/http/client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool right)
{
	if (!right)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char proxies[] = "10.0.0.0/8,fd00::/8";
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a010101)};
	const struct client peer = client_of((struct sockaddr *)&in);
	struct client c = peer, stranger = peer;
	char *exact = malloc(size ? size : 1); /* a read past the end is detected */

	memcpy(exact, data, size);
	client_forwarded(&c, exact, size, proxies);
	expect(memcmp(&c, &peer, sizeof(c)) == 0 || size >= 2);
	stranger.ip.s6_addr[12] = 192;
	struct client before = stranger;
	client_forwarded(&stranger, exact, size, proxies);
	expect(memcmp(&stranger, &before, sizeof(before)) == 0);
	free(exact);
	return 0;
}
