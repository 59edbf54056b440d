// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/wire.h"
#include "orchestrator/snapshot/space-manifest.h"
#include "proto/image.h"

/* Reads all of a manifest. */
static int read_back(const uint8_t *bytes, size_t len, struct space_manifest *m, struct err *e)
{
	struct wire extra;

	*m = (struct space_manifest){0};
	int ret = image_manifest_read(bytes, len, &m->image, &extra, e);
	return ret < 0 ? ret : space_manifest_read(&extra, m, e);
}

/* Returns the manifest of a Space without layers and calls. */
static struct space_manifest small_space(void)
{
	struct space_manifest m = {.size = {.vcpus = 1, .ram_mib = 512, .rootfs_gb = 1},
				   .disk_bytes = 1 << 30,
				   .image.n_files = 3,
				   .image.files[1] = {.bytes = 512ull << 20}};

	snprintf(m.image.name, sizeof(m.image.name), "spc_%032d", 7);
	return m;
}

/* Sets the version of the images' state in the manifest, and corrects its checksum. Returns true if
 * the manifest is accepted. */
static bool reads_state_version(uint8_t *bytes, size_t len, uint32_t version, struct err *e)
{
	struct wire w = wire_on(bytes + 24, 4);
	struct space_manifest m;

	wire_put_u32(&w, version);
	w = wire_on(bytes + 16, 4);
	wire_put_u32(&w, crc32c(0, bytes + 24, len - 24));
	int ret = read_back(bytes, len, &m, e);
	space_manifest_fini(&m);
	return ret == 0;
}

static void test_space_of_another_version_is_refused(void **state)
{
	struct space_manifest m = {.size = {.vcpus = 1, .ram_mib = 512, .rootfs_gb = 1},
				   .disk_bytes = 1 << 30,
				   .image.n_files = 3,
				   .image.files[1] = {.bytes = 512ull << 20}};
	struct err e = {0};
	uint8_t *bytes;
	size_t len;

	snprintf(m.image.name, sizeof(m.image.name), "spc_%032d", 7);
	snprintf(m.template, sizeof(m.template), "base");
	assert_int_equal(space_manifest_write(&m, &bytes, &len), 0);
	assert_true(reads_state_version(bytes, len, IMAGE_STATE_VERSION, &e));
	assert_false(reads_state_version(bytes, len, IMAGE_STATE_VERSION_OLDEST - 1, &e));
	assert_non_null(strstr(e.text, "its state file has version 3, of an older Ramet"));
	assert_false(reads_state_version(bytes, len, IMAGE_STATE_VERSION + 1, &e));
	assert_non_null(strstr(e.text, "of a newer Ramet"));
	bytes[8]++;
	assert_int_equal(read_back(bytes, len, &m, &e), -ENOTSUP);
	assert_non_null(strstr(e.text, "its manifest has version 2, of a newer Ramet"));
	free(bytes);
}

#define CONTEXT "ctx_00000000000000000000000000000001"

static void test_calls_of_contexts_are_read_back(void **state)
{
	uint8_t held[] = "line";
	struct exec_point context = {.running = true,
				     .number = 8,
				     .have = 9,
				     .context = CONTEXT,
				     .err = {.held = held, .len = 4}};
	struct space_manifest again, m = small_space();
	struct err e = {0};
	uint8_t *bytes;
	size_t len;

	for (int main_runs = 0; main_runs < 2; main_runs++) {
		m.call = (struct exec_point){.running = main_runs, .number = 5, .next = &context};
		assert_int_equal(space_manifest_write(&m, &bytes, &len), 0);
		assert_int_equal(read_back(bytes, len, &again, &e), 0);
		assert_int_equal(again.call.running, main_runs);
		const struct exec_point *p = again.call.next;
		assert_non_null(p);
		assert_true(p->running && p->number == 8 && p->have == 9 && !p->next);
		assert_string_equal(p->context, CONTEXT);
		assert_memory_equal(p->err.held, "line", 4);
		space_manifest_fini(&again);
		free(bytes);
	}
}

static void test_results_are_read_back(void **state)
{
	uint8_t held[] = "part of a result";
	struct exec_point context = {.running = true,
				     .number = 8,
				     .context = CONTEXT,
				     .results = true,
				     .bundle = {.held = held, .len = 6}};
	struct space_manifest again, m = small_space();
	struct err e = {0};
	uint8_t *bytes;
	size_t len;

	for (int main_takes = 0; main_takes < 2; main_takes++) {
		m.call = (struct exec_point){.running = true,
					     .number = 5,
					     .results = main_takes,
					     .bundle = {.held = held, .len = main_takes * 16u},
					     .next = &context};
		assert_int_equal(space_manifest_write(&m, &bytes, &len), 0);
		assert_int_equal(read_back(bytes, len, &again, &e), 0);
		assert_int_equal(again.call.results, main_takes);
		assert_int_equal(again.call.bundle.len, main_takes * 16);
		assert_true(again.call.next && again.call.next->results);
		assert_int_equal(again.call.next->bundle.len, 6);
		assert_memory_equal(again.call.next->bundle.held, held, 6);
		space_manifest_fini(&again);
		free(bytes);
	}
}

static void test_hang_ups_are_read_back(void **state)
{
	struct exec_point context = {.running = true, .number = 8, .context = CONTEXT};
	struct space_manifest again, m = small_space();
	struct err e = {0};
	uint8_t *bytes;
	size_t len;

	for (int of_main = 0; of_main < 2; of_main++) {
		context.hung_up = !of_main;
		m.call = (struct exec_point){
			.running = true, .number = 5, .hung_up = of_main, .next = &context};
		assert_int_equal(space_manifest_write(&m, &bytes, &len), 0);
		assert_int_equal(read_back(bytes, len, &again, &e), 0);
		assert_int_equal(again.call.hung_up, of_main);
		assert_true(again.call.next && again.call.next->hung_up == !of_main);
		space_manifest_fini(&again);
		free(bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_space_of_another_version_is_refused),
		cmocka_unit_test(test_calls_of_contexts_are_read_back),
		cmocka_unit_test(test_results_are_read_back),
		cmocka_unit_test(test_hang_ups_are_read_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
