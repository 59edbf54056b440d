// SPDX-License-Identifier: Apache-2.0
/*
 * The bytes of a server in a sandbox, and those of a client of it. The first byte chooses: 0, an
 * answer, which arrives in parts as the byte after it says; 1, a Host and a path; else a request
 * whose fields are lines "name:value".
 */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/ports/port-answer.h"
#include "orchestrator/ports/port-target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static void check_fields(const struct port_answer *a)
{
	const struct port_place place = {.prefix = "/p",
					 .prefix_len = 2,
					 .authority = "api",
					 .authority_len = 3,
					 .port = 80};

	for (size_t i = 0; i < a->n_fields; i++) {
		struct text out = {0};

		if (!port_answer_passes(a, &a->fields[i], &place))
			continue;
		port_answer_value(&out, &a->fields[i], &place);
		must(port_is_value(out.p ? out.p : "", out.len));
		text_free(&out);
	}
}

static void read_answer(const char *data, size_t size, size_t part)
{
	char *copy = malloc(size + 1);
	struct port_answer a;
	size_t have = 0, checked = 0;
	ssize_t took = 0;
	const char *why;

	memcpy(copy, data, size);
	while (took == 0 && have < size) {
		have = have + part < size ? have + part : size;
		took = port_answer_head(&a, copy, have, checked, false, &why);
		checked = have;
	}
	must(took <= (ssize_t)have);
	if (took > 0) {
		check_fields(&a);
		for (size_t at = (size_t)took; at < size && took >= 0; at += part) {
			size_t len = size - at < part ? size - at : part;
			ssize_t got = port_answer_body(&a, copy + at, len);

			must(got <= (ssize_t)len);
			took = got < 0 ? got : took;
		}
	}
	free(copy);
}

static void read_target(const char *data, size_t size)
{
	const char *line = memchr(data, '\n', size);
	size_t host_len = line ? (size_t)(line - data) : size;
	const char *path = line ? line + 1 : data + size;
	size_t path_len = size - (size_t)(path - data), len;
	char *out = malloc(path_len + 1);
	struct port_target t;

	if (port_target_find(&t, data, host_len, path, path_len, "boxes.test", "eu"))
		must(t.port && strlen(t.id) == SANDBOX_ID_LEN && t.path_len && t.path[0] == '/'
			     ? 1
			     : t.by_host);
	must(port_query_strip(out, path, path_len) <= path_len);
	port_query_token(path, path_len, &len);
	free(out);
}

static void write_request(const char *data, size_t size)
{
	struct port_field fields[20];
	struct phr_header parsed[40];
	size_t n = 0, n_parsed = 40, method_len, path_len;
	const char *end = data + size, *method, *path;
	struct text out = {0};
	int minor;

	for (const char *p = data; p < end && n < 20;) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));
		if (!stop)
			stop = end;
		const char *colon = memchr(p, ':', (size_t)(stop - p));
		if (colon) {
			fields[n++] = (struct port_field){p, colon + 1, (size_t)(colon - p),
							  (size_t)(stop - colon - 1)};
		}
		p = stop + 1;
	}
	const struct port_ask ask = {.method = n ? fields[0].name : "GET",
				     .method_len = n ? fields[0].name_len : 3,
				     .path = n ? fields[0].value : "/",
				     .path_len = n ? fields[0].value_len : 1,
				     .fields = fields,
				     .n_fields = n,
				     .authority = n ? fields[n - 1].value : "",
				     .authority_len = n ? fields[n - 1].value_len : 0,
				     .prefix = "",
				     .client = "::1",
				     .scheme = "http",
				     .port = 80};
	/* The text is exactly one request. */
	if (port_ask_write(&out, &ask))
		must(phr_parse_request(out.p, out.len, &method, &method_len, &path, &path_len,
				       &minor, parsed, &n_parsed, 0) == (int)out.len);
	text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	if (data[0] == 0)
		read_answer((const char *)data + 2, size - 2, (size_t)data[1] + 1);
	else if (data[0] == 1)
		read_target((const char *)data + 1, size - 1);
	else
		write_request((const char *)data + 1, size - 1);
	return 0;
}
