// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/wire.h"
#include "orchestrator/snapshot/space-manifest.h"
#include "proto/image.h"

/* Sets the version of the images' state in the manifest, and corrects its checksum. Returns true if
 * the manifest is accepted. */
static bool reads_state_version(uint8_t *bytes, size_t len, uint32_t version, struct err *e)
{
	struct wire w = wire_on(bytes + 24, 4);
	struct space_manifest m;

	wire_put_u32(&w, version);
	w = wire_on(bytes + 16, 4);
	wire_put_u32(&w, crc32c(0, bytes + 24, len - 24));
	int ret = space_manifest_read(bytes, len, &m, e);
	space_manifest_fini(&m);
	return ret == 0;
}

static void test_space_of_the_previous_version_is_read(void **state)
{
	struct space_manifest m = {.size = {.vcpus = 1, .ram_mib = 512, .rootfs_gb = 1},
				   .disk_bytes = 1 << 30,
				   .n_files = 3,
				   .files[1] = {.bytes = 512ull << 20}};
	struct err e = {0};
	uint8_t *bytes;
	size_t len;

	snprintf(m.id, sizeof(m.id), "spc_%032d", 7);
	snprintf(m.template, sizeof(m.template), "base");
	assert_int_equal(space_manifest_write(&m, &bytes, &len), 0);
	assert_true(reads_state_version(bytes, len, IMAGE_STATE_VERSION, &e));
	assert_true(reads_state_version(bytes, len, IMAGE_STATE_VERSION_MIN, &e));
	assert_false(reads_state_version(bytes, len, IMAGE_STATE_VERSION_MIN - 1, &e));
	assert_non_null(strstr(e.text, "different image format"));
	assert_false(reads_state_version(bytes, len, IMAGE_STATE_VERSION + 1, &e));
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_space_of_the_previous_version_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
