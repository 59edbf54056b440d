// SPDX-License-Identifier: Apache-2.0
/* The input is a line with a Range header, then a URL. Accepted values must be those of the
 * text. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/api/list-filter.h"
#include "orchestrator/json/query.h"

#define ROOM 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool right)
{
	if (!right)
		abort();
}

static void use_range(const char *text, size_t len)
{
	struct byte_range r;

	if (range_read(text, len, &r))
		expect(r.length > 0 && r.offset <= 1ull << 53 && (!r.from_end || r.offset > 0));
}

static void use_filter(const char *url, size_t len)
{
	const struct sandbox_view view = {.state = "ready",
					  .config.template = "default",
					  .created_at_ms = 1700000000123,
					  .root = "sbx_00000000000000000000000000000001",
					  .labels = "{\"team\":\"red\"}",
					  .metadata = "{\"run\":7,\"who\":[\"me\"]}"};
	struct list_filter f;
	struct err e = {0};

	if (list_filter_read(&f, url, len, &e) < 0) {
		expect(e.text[0]);
		return;
	}
	if (list_filter_fits(&f, &view))
		expect(!f.after_ms || f.after_ms < view.created_at_ms);
	list_filter_fini(&f);
}

/* The rest of a query must not have the names. */
static void use_rest(const char *url, size_t len)
{
	static const char *const names[] = {"path", "limit"};
	struct text rest = {0};
	struct err e;
	char out[ROOM];

	text_putc(&rest, '?');
	query_without(&rest, url, len, names, 2);
	expect(rest.len <= len + 2);
	for (int i = 0; i < 2; i++)
		expect(query_text(rest.p, rest.len, names[i], out, sizeof(out), &e) == -ENOENT);
	text_free(&rest);
}

static void use_url(const char *url, size_t len)
{
	char out[ROOM];
	struct err e = {0};
	uint32_t mode = 1;
	uint64_t n = 1;
	bool flag = false;

	use_rest(url, len);
	int ret = query_text(url, len, "path", out, sizeof(out), &e);
	expect(ret == -ENOENT || (ret == -EINVAL && e.text[0]) ||
	       (ret >= 0 && ret < ROOM && strlen(out) == (size_t)ret));
	if (query_path(url, len, "to", out, sizeof(out), &e) >= 0)
		expect(out[0] == '/');
	if (query_mode(url, len, &mode, &e) >= 0)
		expect(mode >= 1 && mode <= 07777);
	else
		expect(mode == 1);
	if (query_number(url, len, "offset", 0, &n, &e) >= 0)
		expect(n <= 1ull << 53);
	query_flag(url, len, "recursive", &flag, &e);
	int64_t ms = -2;
	expect(query_time(url, len, "time", &ms, &e) < 0 || ms == -2 || ms > 0);
	use_filter(url, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *line = size ? memchr(text, '\n', size) : NULL;

	use_range(text, line ? (size_t)(line - text) : size);
	if (line)
		use_url(line + 1, size - (size_t)(line + 1 - text));
	return 0;
}
