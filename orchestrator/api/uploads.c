// SPDX-License-Identifier: Apache-2.0
/* Routes for uploading a file in parts. The sandbox stores the received parts, so the service keeps
 * no state of an upload. */
#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/api/json.h"
#include "orchestrator/guestops/guestops.h"

#define SIZE_MOST (1ull << 53)

static void on_begun(void *arg, const char *id, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called_well(r, f))
		return;
	text_printf(&r->out, "{\"id\":\"%s\",\"part_bytes\":%u}\n", id, UPLOAD_PART_MAX);
	answer(r, 201, "application/json");
}

void serve_upload(struct request *r)
{
	char path[AGENT_PATH_MAX + 1];
	uint32_t mode = 0;

	if (!ask_path(r, path) || !ask_mode(r, &mode))
		return;
	request_ref(r);
	r->call = core_upload_begin(r->api->core, r->tenant, r->id, path, mode, on_begun, r);
}

void serve_upload_part(struct request *r)
{
	struct upload_part part = {
		.offset = UINT64_MAX, .data = r->req->entity.base, .len = r->req->entity.len};

	if (!ask_number(r, "offset", &part.offset))
		return;
	if (part.offset == UINT64_MAX) {
		answer_error(r, 400, "bad_request", "the query has no offset: add ?offset=N");
		return;
	}
	if (part.len > UPLOAD_PART_MAX) {
		answer_error(r, 413, "too_large", "a part must be at most %u bytes long, not %zu",
			     UPLOAD_PART_MAX, part.len);
		return;
	}
	request_ref(r);
	r->call =
		core_upload_part(r->api->core, r->tenant, r->id, r->other, &part, request_done, r);
}

struct commit_body {
	uint64_t size;
	struct json_text sha256;
};

static const struct json_field commit_fields[] = {
	{"size", JSON_BIG, offsetof(struct commit_body, size), 0, SIZE_MOST, true},
	{"sha256", JSON_TEXT, offsetof(struct commit_body, sha256), 0, 2 * AGENT_HASH_LEN, false},
};

static bool read_hash(const struct json_text *text, uint8_t hash[static AGENT_HASH_LEN])
{
	bool good = text->len == 2 * AGENT_HASH_LEN;

	for (size_t i = 0; good && i < AGENT_HASH_LEN; i++) {
		int high = hex_digit(text->p[2 * i]), low = hex_digit(text->p[2 * i + 1]);

		good = high >= 0 && low >= 0;
		hash[i] = (uint8_t)((unsigned)high << 4 | (unsigned)low);
	}
	return good;
}

static void commit(struct request *r, const void *values)
{
	const struct commit_body *b = values;
	uint8_t hash[AGENT_HASH_LEN];

	if (b->sha256.p && !read_hash(&b->sha256, hash)) {
		answer_error(r, 400, "bad_request", "sha256 must be %u hexadecimal digits",
			     2 * AGENT_HASH_LEN);
		return;
	}
	request_ref(r);
	r->call = core_upload_commit(r->api->core, r->tenant, r->id, r->other, b->size,
				     b->sha256.p ? hash : NULL, request_done, r);
}

void serve_upload_commit(struct request *r)
{
	const struct commit_body b = {0};

	body_read(r, commit_fields, ARRAY_LEN(commit_fields), &b, sizeof(b), commit);
}

void serve_upload_abort(struct request *r)
{
	request_ref(r);
	r->call = core_upload_abort(r->api->core, r->tenant, r->id, r->other, request_done, r);
}
