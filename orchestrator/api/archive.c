// SPDX-License-Identifier: Apache-2.0
/* Folders of a sandbox as tar archives, streamed as the guest packs them. */
#include <sys/stat.h>

#include "orchestrator/api/handler.h"
#include "orchestrator/guestops/guestops.h"

#define TAR_TYPE "application/x-tar"

static void on_bytes(void *arg, const void *data, size_t len)
{
	stream_file(arg, TAR_TYPE, data, len);
}

static void on_pack_end(void *arg, const struct failure *f)
{
	end_file(arg, TAR_TYPE, f);
}

static const struct file_sink pack_sink = {.bytes = on_bytes, .ended = on_pack_end};

static void on_head(void *arg, const struct file_view *f)
{
	if (S_ISDIR(f->mode))
		answer_head(arg, 200, TAR_TYPE, SIZE_MAX);
	else
		answer_error(arg, 409, "not_a_directory", "the path is not a folder");
}

static const struct file_sink head_sink = {.file = on_head, .ended = end_file_head};

void serve_pack(struct request *r)
{
	char path[AGENT_PATH_MAX + 1];

	if (!ask_path(r, path) || !answer_may_be_long(r))
		return;
	request_ref(r);
	if (request_is_head(r))
		r->op = service_file_stat(r->service, r->tenant, r->id, path, false, &head_sink, r);
	else
		r->op = service_file_pack(r->service, r->tenant, r->id, path, &pack_sink, r);
}

void serve_unpack(struct request *r)
{
	char path[AGENT_PATH_MAX + 1];
	struct agent_file_request unpack = {.type = AGENT_UNPACK, .path = path};

	if (!ask_path(r, path))
		return;
	struct file_data data = body_data(r);
	file_do(r, &unpack, &data);
}
