// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a corrupt or foreign manifest of a Space: the input unchanged, and again with its versions
 * and the length and checksum of its body corrected. An accepted manifest must be within the limits
 * and survive a round trip.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/wire.h"
#include "orchestrator/snapshot/space-manifest.h"
#include "proto/versions.h"

#define HEAD_BYTES 24u
#define VERSION_AT 8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool right)
{
	if (!right)
		abort();
}

static int read_all(const uint8_t *bytes, size_t len, struct space_manifest *m, struct err *e)
{
	struct wire extra;

	memset(m, 0, sizeof(*m));
	int ret = image_manifest_read(bytes, len, &m->image, &extra, e);
	return ret < 0 ? ret : space_manifest_read(&extra, m, e);
}

static void check(const struct space_manifest *m)
{
	char name[SPACE_FILE_NAME_MAX];

	expect(memchr(m->image.name, 0, sizeof(m->image.name)) &&
	       memchr(m->template, 0, sizeof(m->template)));
	expect(m->memory_layers <= CTL_MEMORY_MAX && m->layers <= CTL_LAYERS_MAX);
	expect(m->image.n_files <= CTL_FDS_MAX && m->image.n_files > space_base_index(m));
	for (unsigned i = 0; i < m->image.n_files; i++) {
		space_file_name(m, i, name);
		expect(name[0] && !strchr(name, '/'));
	}
}

/* Checks that the manifest, when written, is read as the same manifest. */
static void check_round_trip(const struct space_manifest *m)
{
	struct space_manifest again;
	struct err e = {0};
	uint8_t *once, *twice;
	size_t len, len_again;

	expect(space_manifest_write(m, &once, &len) == 0);
	expect(len <= IMAGE_MANIFEST_MAX);
	expect(read_all(once, len, &again, &e) == 0);
	expect(space_manifest_write(&again, &twice, &len_again) == 0);
	expect(len == len_again && memcmp(once, twice, len) == 0);
	space_manifest_fini(&again);
	free(once);
	free(twice);
}

/* A template's manifest has no part of a Space. */
static void read_image(const uint8_t *bytes, size_t size)
{
	uint8_t again[IMAGE_MANIFEST_OVERHEAD];
	struct image_manifest m;
	struct err e = {0};
	struct wire extra;

	if (image_manifest_read(bytes, size, &m, &extra, &e) < 0 || wire_left(&extra))
		return;
	expect(memchr(m.name, 0, sizeof(m.name)) && m.n_files <= CTL_FDS_MAX);
	expect(image_manifest_write(&m, NULL, 0, again) == size && !memcmp(again, bytes, size));
}

static void read_one(const uint8_t *bytes, size_t size)
{
	struct space_manifest m;
	struct err e = {0};

	read_image(bytes, size);
	if (read_all(bytes, size, &m, &e) == 0) {
		check(&m);
		check_round_trip(&m);
	} else {
		expect(e.text[0] != 0);
	}
	space_manifest_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint32_t versions[] = {IMAGE_STATE_VERSION, IMAGE_MEMORY_VERSION,
					    IMAGE_LAYER_VERSION, AGENT_VERSION};

	read_one(data, size);
	if (size < HEAD_BYTES)
		return 0;
	uint8_t *fit = malloc(size);
	struct wire w;

	expect(fit);
	memcpy(fit, data, size);
	if (size >= HEAD_BYTES + sizeof(versions))
		memcpy(fit + HEAD_BYTES, versions, sizeof(versions));
	w = wire_on(fit + VERSION_AT, HEAD_BYTES - VERSION_AT);
	wire_put_u32(&w, IMAGE_MANIFEST_VERSION);
	wire_put_u32(&w, (uint32_t)(size - HEAD_BYTES));
	wire_put_u32(&w, crc32c(0, fit + HEAD_BYTES, size - HEAD_BYTES));
	wire_put_u32(&w, 0);
	read_one(fit, size);
	free(fit);
	return 0;
}
