// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/images/image-manifest.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "base/version.h"
#include "proto/agent.h"

#define MAGIC	     "RAMETIMG"
#define HEADER_BYTES 24u

/* The versions of other formats that the manifest records, so that an image that cannot be restored
 * is refused before a VM reads it. */
static const struct {
	const char *what;
	uint32_t now, oldest;
} formats[] = {
	{"its state file", IMAGE_STATE_VERSION, IMAGE_STATE_VERSION_OLDEST},
	{"its memory layer", IMAGE_MEMORY_VERSION, IMAGE_MEMORY_VERSION_OLDEST},
	{"its disk layer", IMAGE_LAYER_VERSION, IMAGE_LAYER_VERSION_OLDEST},
	{"its guest's agent", AGENT_VERSION, AGENT_VERSION_OLDEST},
};

size_t image_manifest_write(const struct image_manifest *m, const void *extra, size_t extra_len,
			    uint8_t *out)
{
	struct wire head = wire_on(out, HEADER_BYTES);
	struct wire body =
		wire_on(out + HEADER_BYTES, IMAGE_MANIFEST_OVERHEAD - HEADER_BYTES + extra_len);

	for (size_t i = 0; i < ARRAY_LEN(formats); i++)
		wire_put_u32(&body, formats[i].now);
	wire_put_str(&body, m->name, strlen(m->name));
	wire_put_u32(&body, m->n_files);
	for (unsigned i = 0; i < m->n_files; i++) {
		wire_put_u64(&body, m->files[i].bytes);
		wire_put_u32(&body, m->files[i].sum);
	}
	wire_put_bytes(&body, extra, extra_len);
	wire_put_bytes(&head, MAGIC, 8);
	wire_put_u32(&head, IMAGE_MANIFEST_VERSION);
	wire_put_u32(&head, (uint32_t)body.pos);
	wire_put_u32(&head, crc32c(0, body.p, body.pos));
	wire_put_u32(&head, 0);
	return HEADER_BYTES + body.pos;
}

static int check_formats(struct wire *w, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
		uint32_t version = wire_get_u32(w);

		if (!w->bad && version_check(formats[i].what, version, formats[i].oldest,
					     formats[i].now, e) < 0)
			return -ENOTSUP;
	}
	return 0;
}

static int get_body(struct wire *w, struct image_manifest *m, struct err *e)
{
	int ret = check_formats(w, e);

	if (ret < 0)
		return ret;
	wire_get_text(w, m->name, sizeof(m->name));
	if (w->bad)
		return err_say(e, EINVAL, "its manifest's name is malformed");
	m->n_files = wire_get_u32(w);
	for (unsigned i = 0; i < m->n_files && i < CTL_FDS_MAX; i++) {
		m->files[i].bytes = wire_get_u64(w);
		m->files[i].sum = wire_get_u32(w);
	}
	return w->bad || m->n_files > CTL_FDS_MAX
		       ? err_say(e, EINVAL, "its manifest's list of files is malformed")
		       : 0;
}

int image_manifest_read(const void *bytes, size_t len, struct image_manifest *out,
			struct wire *extra, struct err *e)
{
	struct wire head = wire_from(bytes, len < HEADER_BYTES ? len : HEADER_BYTES);
	char magic[8];

	memset(out, 0, sizeof(*out));
	wire_get_bytes(&head, magic, sizeof(magic));
	uint32_t version = wire_get_u32(&head), body_bytes = wire_get_u32(&head);
	uint32_t crc = wire_get_u32(&head), zero = wire_get_u32(&head);
	if (head.bad || memcmp(magic, MAGIC, sizeof(magic)) != 0)
		return err_say(e, EINVAL, "its manifest is not that of an image");
	if (version_check("its manifest", version, IMAGE_MANIFEST_VERSION_OLDEST,
			  IMAGE_MANIFEST_VERSION, e) < 0)
		return -ENOTSUP;
	if (body_bytes != len - HEADER_BYTES || zero)
		return err_say(
			e, EINVAL,
			"its manifest's header is malformed: it says %u bytes, and %zu follow",
			body_bytes, len - HEADER_BYTES);
	struct wire body = wire_from((const uint8_t *)bytes + HEADER_BYTES, body_bytes);
	if (crc32c(0, body.p, body.size) != crc)
		return err_say(e, EINVAL, "its manifest's checksum does not match");
	int ret = get_body(&body, out, e);
	*extra = wire_from(body.p + body.pos, wire_left(&body));
	return ret;
}
