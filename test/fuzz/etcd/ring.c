// SPDX-License-Identifier: Apache-2.0
/* The value of a key in etcd, and after a NUL the file of the service. All that is written can be
 * read again, and says the same. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "orchestrator/etcd/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static void check_again(const struct ring *r)
{
	struct ring *again = ring_new(3);
	struct text text = {0}, same = {0};
	struct err e;

	ring_write(r, &text);
	must(ring_take_file(again, text.p, text.len, &e) == 0);
	ring_write(again, &same);
	must(text.len == same.len && memcmp(text.p, same.p, text.len) == 0);
	text_free(&text);
	text_free(&same);
	ring_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = memchr(data, 0, size);
	size_t len = nul ? (size_t)(nul - data) : size;
	char *text = malloc(size + 1);
	const struct etcd_pair pair = {.key = "/ramet/3/keys/key_0123456789abcdef",
				       .value = text,
				       .value_len = len,
				       .revision = 5};
	struct ring *r = ring_new(3);
	const struct ring_key *key;
	int64_t revision;
	struct err e;

	log_init("fuzz", LOG_ERROR + 1);
	memcpy(text, data, size);
	ring_take(r, &pair);
	if (nul)
		ring_take_file(r, text + len + 1, size - len - 1, &e);
	check_again(r);
	while ((key = ring_missing(r, &revision))) {
		must(revision == 0 || revision == 5);
		ring_put(r, key);
	}
	free(text);
	ring_free(r);
	return 0;
}
