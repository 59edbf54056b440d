// SPDX-License-Identifier: Apache-2.0
/*
 * The fields of a client's request, one in a line "name:value", as another host gets them. The
 * first line is method, path and authority. What is written must be exactly one request, whose
 * client is the one that this host has named.
 */
#include <picohttpparser.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/peers/peer-ask.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FIELDS 60

static void must(int holds)
{
	if (!holds)
		abort();
}

static bool is_named(const struct phr_header *h, const char *name)
{
	return h->name_len == strlen(name) && memcmp(h->name, name, h->name_len) == 0;
}

static void check(const struct text *out)
{
	struct phr_header fields[FIELDS + 10];
	size_t n = FIELDS + 10, method_len, path_len;
	const char *method, *path;
	int minor, clients = 0, lengths = 0, ours = 0;

	must(phr_parse_request(out->p, out->len, &method, &method_len, &path, &path_len, &minor,
			       fields, &n, 0) == (int)out->len);
	for (size_t i = 0; i < n; i++) {
		clients += is_named(&fields[i], "x-forwarded-for");
		ours += is_named(&fields[i], "ramet-warm");
		lengths += is_named(&fields[i], "content-length") ||
			   is_named(&fields[i], "transfer-encoding");
	}
	must(clients == 1 && ours == 1 && lengths <= 1);
}

/* Takes the part up to `end`. */
static const char *take(const char **p, const char *stop, char end, size_t *len)
{
	const char *from = *p, *at = memchr(from, end, (size_t)(stop - from));

	*len = (size_t)((at ? at : stop) - from);
	*p = at ? at + 1 : stop;
	return from;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data, *end = p + size, *line;
	struct port_field fields[FIELDS];
	struct text out = {0};
	size_t len;
	struct port_ask ask = {.fields = fields, .client = "::1", .scheme = "http"};

	if (!size)
		return 0;
	ask.body = (unsigned char)*p % 3;
	ask.body_len = (size_t)(unsigned char)*p++;
	line = take(&p, end, '\n', &len);
	const char *stop = line + len;
	ask.method = take(&line, stop, ' ', &ask.method_len);
	ask.path = take(&line, stop, ' ', &ask.path_len);
	ask.authority = line;
	ask.authority_len = (size_t)(stop - line);
	while (p < end && ask.n_fields < FIELDS) {
		struct port_field *f = &fields[ask.n_fields];

		line = take(&p, end, '\n', &len);
		stop = line + len;
		f->name = take(&line, stop, ':', &f->name_len);
		f->value = line;
		f->value_len = (size_t)(stop - line);
		for (size_t i = 0; i < f->name_len; i++) /* h2o makes them lower case */
			if (f->name[i] >= 'A' && f->name[i] <= 'Z')
				return 0;
		ask.n_fields++;
	}
	if (ask.n_fields) {
		ask.upgrade = fields[ask.n_fields - 1].value;
		ask.upgrade_len = fields[ask.n_fields - 1].value_len;
	}
	if (peer_ask_write(&out, &ask, "ramet-warm: only\r\n"))
		check(&out);
	text_free(&out);
	return 0;
}
