// SPDX-License-Identifier: Apache-2.0
/* A peer's lines on allowances: what is read is in range, and is printed and read as the same; and
 * the books that take it at its word stay consistent. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/fleet/books.h"
#include "orchestrator/fleet/exchange.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static void check_granted(const char *text)
{
	struct exchange_granted g = {0}, again = {0};
	char line[EXCHANGE_LINE_MAX], second[EXCHANGE_LINE_MAX];
	const char *at = line;

	if (!exchange_read_granted(&g, &text))
		return;
	exchange_print_granted(line, &g);
	must(exchange_read_granted(&again, &at) && !*at);
	exchange_print_granted(second, &again);
	must(strcmp(line, second) == 0);
}

static void check(struct books *b, const struct exchange *x)
{
	const struct books_said said = {x->from, x->at, x->limits[0].held, x->limits[0].used,
					x->limits[0].want};
	struct exchange again = {0};
	char line[EXCHANGE_LINE_MAX], second[EXCHANGE_LINE_MAX];
	uint32_t hosts[SLOTS_YIELD_HOSTS];
	const char *at = line;

	exchange_print(line, x);
	must(exchange_read(&again, &at) && !*at);
	exchange_print(second, &again);
	must(strcmp(line, second) == 0);
	if (x->limits[1].lacks & 1)
		books_note(b, &said, 1000);
	else
		must(books_grant(b, 10, x->limits[1].lacks & 2, &said, 1000) <=
		     (said.held > 10 ? said.held : 10));
	must(books_spare(b, x->from, 1000, hosts) <= SLOTS_YIELD_HOSTS);
	must(books_left(b, 10, 1000) <= 10);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = calloc(1, size + 1);
	struct books books = {0};
	const char *at = text;

	must(text != NULL);
	if (size)
		memcpy(text, data, size);
	check_granted(text);
	for (;;) {
		struct exchange x = {0};

		if (!exchange_read(&x, &at))
			break;
		check(&books, &x);
	}
	books_tidy(&books, 1000 + BOOKS_LEASE_MS);
	must(!books.n);
	free(books.records);
	free(text);
	return 0;
}
