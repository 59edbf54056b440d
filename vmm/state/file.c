// SPDX-License-Identifier: Apache-2.0
#include "vmm/state/state.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/version.h"
#include "proto/image.h"

#define HEADER_BYTES 24

void state_begin(struct wire *w, void *buf, size_t size, uint32_t vcpus, uint32_t ram_mib)
{
	static const uint8_t no_header[HEADER_BYTES];

	*w = wire_on(buf, size < IMAGE_STATE_MAX ? size : IMAGE_STATE_MAX);
	wire_put_bytes(w, no_header, sizeof(no_header));
	wire_put_u32(w, vcpus);
	wire_put_u32(w, ram_mib);
}

size_t state_section_begin(struct wire *w, uint32_t id)
{
	wire_put_u32(w, id);
	wire_put_u32(w, STATE_SECTION_VERSION);
	wire_put_u32(w, 0);
	return w->pos;
}

void state_section_end(struct wire *w, size_t mark)
{
	struct wire length;

	if (w->bad)
		return;
	length = wire_on(w->p + mark - 4, 4);
	wire_put_u32(&length, (uint32_t)(w->pos - mark));
}

int64_t state_finish(struct wire *w, struct err *e)
{
	struct wire h;

	if (w->bad)
		return err_say(e, E2BIG, "the state of the VM has more than %u bytes",
			       IMAGE_STATE_MAX);
	h = wire_on(w->p, HEADER_BYTES);
	wire_put_bytes(&h, IMAGE_STATE_MAGIC, 8);
	wire_put_u32(&h, IMAGE_STATE_VERSION);
	wire_put_u32(&h, (uint32_t)(w->pos - HEADER_BYTES));
	wire_put_u32(&h, crc32c(0, w->p + HEADER_BYTES, w->pos - HEADER_BYTES));
	return (int64_t)w->pos;
}

static int check_header(const void *file, size_t size, struct err *e)
{
	struct wire h = wire_from(file, size);
	uint32_t version, bytes, crc, zero;
	char magic[8];

	wire_get_bytes(&h, magic, sizeof(magic));
	version = wire_get_u32(&h);
	bytes = wire_get_u32(&h);
	crc = wire_get_u32(&h);
	zero = wire_get_u32(&h);
	if (h.bad || memcmp(magic, IMAGE_STATE_MAGIC, sizeof(magic)) || zero)
		return err_say(e, EINVAL, "not a state file of a VM");
	if (version_check("the state file", version, IMAGE_STATE_VERSION_OLDEST,
			  IMAGE_STATE_VERSION, e) < 0)
		return -ENOTSUP;
	if (bytes != size - HEADER_BYTES)
		return err_say(e, EINVAL,
			       "the body of the state file should have %u bytes, but has %zu",
			       bytes, size - HEADER_BYTES);
	if (crc32c(0, (const uint8_t *)file + HEADER_BYTES, bytes) != crc)
		return err_say(e, EILSEQ, "the state file is damaged: wrong checksum");
	return 0;
}

/* Lists the sections and their positions. A list suffices: a file has about a dozen. */
static int read_sections(struct state_file *out, struct wire *r, struct err *e)
{
	while (wire_left(r)) {
		struct state_section *s = &out->sections[out->nsections];
		uint32_t bytes;

		if (out->nsections == STATE_SECTIONS_MAX)
			return err_say(e, EINVAL, "the state file has more than %d sections",
				       STATE_SECTIONS_MAX);
		s->id = wire_get_u32(r);
		s->version = wire_get_u32(r);
		bytes = wire_get_u32(r);
		if (r->bad || bytes > wire_left(r))
			return err_say(e, EINVAL, "section %u of the state file is truncated",
				       out->nsections);
		s->body = wire_from(r->p + r->pos, bytes);
		r->pos += bytes;
		out->nsections++;
	}
	return 0;
}

struct state_section *state_find(struct state_file *img, uint32_t id)
{
	for (unsigned i = 0; i < img->nsections; i++)
		if (img->sections[i].id == id)
			return &img->sections[i];
	return NULL;
}

static int expect(struct state_file *img, uint32_t id, const char *what, struct err *e)
{
	const struct state_section *s = state_find(img, id);

	if (!s)
		return err_say(e, EINVAL, "the state file has no section for %s (0x%x)", what, id);
	if (s->version != STATE_SECTION_VERSION)
		return err_say(e, ENOTSUP,
			       "%s (0x%x) is saved in version %u, this Ramet supports %u", what, id,
			       s->version, STATE_SECTION_VERSION);
	return 0;
}

/*
 * Checks that every known section exists. If the count is right too, none is unknown or duplicate.
 */
static int check_sections(struct state_file *img, unsigned ndevices, struct err *e)
{
	unsigned expected = 4 + img->vcpus + ndevices;
	int r = expect(img, STATE_VM, "the VM", e);

	if (!r)
		r = expect(img, STATE_CMOS, "the CMOS clock", e);
	if (!r)
		r = expect(img, STATE_GENERATION, "the generation", e);
	if (!r)
		r = expect(img, STATE_WORKING_SET, "the working set", e);
	for (unsigned i = 0; !r && i < img->vcpus; i++)
		r = expect(img, STATE_VCPU + i, "a vCPU", e);
	for (unsigned i = 0; !r && i < ndevices; i++)
		r = expect(img, STATE_DEVICE + i, "a device", e);
	if (!r && img->nsections != expected)
		return err_say(e, EINVAL, "the state file has %u sections, expected %u",
			       img->nsections, expected);
	return r;
}

int state_parse(struct state_file *out, const void *file, size_t size, unsigned ndevices,
		struct err *e)
{
	struct wire r;
	int res;

	out->nsections = 0;
	if (size < HEADER_BYTES || size > IMAGE_STATE_MAX)
		return err_say(e, EINVAL, "a state file has %d to %u bytes, this one has %zu",
			       HEADER_BYTES, IMAGE_STATE_MAX, size);
	res = check_header(file, size, e);
	if (res)
		return res;
	r = wire_from((const uint8_t *)file + HEADER_BYTES, size - HEADER_BYTES);
	out->vcpus = wire_get_u32(&r);
	out->ram_mib = wire_get_u32(&r);
	if (r.bad || !out->vcpus || out->vcpus > KVM_VCPUS_MAX)
		return err_say(e, EINVAL, "the state file has %u vCPUs; the limits are 1 and %d",
			       out->vcpus, KVM_VCPUS_MAX);
	res = read_sections(out, &r, e);
	return res ? res : check_sections(out, ndevices, e);
}
