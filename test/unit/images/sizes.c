// SPDX-License-Identifier: Apache-2.0
/* The sizes of sandboxes and of the images that serve them, on hosts of any size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/config/tiers.h"
#include "orchestrator/images/host.h"
#include "orchestrator/images/sizes.h"

/* Expects a size, written as RAM x vCPUs x disk. */
static void expect_size(const struct size *size, const char *expected)
{
	char text[48];

	snprintf(text, sizeof(text), "%ux%ux%u", size->ram_mib, size->vcpus, size->rootfs_gb);
	assert_string_equal(text, expected);
}

static const struct size hosts[] = {
	{2, 4416, 1024}, {1, 384, 1024}, {6, 17984, 1024}, {31, 49152, 1024}, {32, 65536, 1024}};
static const struct size owns[] = {{2, 512, 4}, {3, 640, 10}, {1, 128, 1}, {2, 500, 4}};

static uint32_t draw(uint32_t *state, uint32_t most)
{
	*state = *state * 1664525 + 1013904223;
	return (*state >> 8) % (most + 1);
}

/* Expects the requested size, with RAM rounded up to a multiple of 64 MiB, but at most the
 * limit. */
static void expect_exact(const struct size *asked, const struct size *own, const struct size *limit)
{
	const struct size got = size_exact(asked, own, limit);
	uint32_t ram_mib = (asked->ram_mib + 63) / 64 * 64;

	assert_int_equal(got.vcpus,
			 min_u32(asked->vcpus ? asked->vcpus : own->vcpus, limit->vcpus));
	assert_int_equal(got.ram_mib, min_u32(ram_mib ? ram_mib : own->ram_mib, limit->ram_mib));
	assert_int_equal(
		got.rootfs_gb,
		min_u32(asked->rootfs_gb ? asked->rootfs_gb : own->rootfs_gb, limit->rootfs_gb));
}

/* Expects an image with the same RAM and vCPUs, and with a disk no larger than the template's. */
static void expect_image(const struct size *size, const struct size *own)
{
	const struct size image = size_image(size, own);

	assert_int_equal(image.vcpus, size->vcpus);
	assert_int_equal(image.ram_mib, size->ram_mib);
	assert_int_equal(image.rootfs_gb, min_u32(size->rootfs_gb, own->rootfs_gb));
}

static void expect_random_requests(const struct size *own, const struct size *limit,
				   uint32_t *state)
{
	for (int i = 0; i < 2000; i++) {
		const struct size asked = {draw(state, 40), draw(state, 80000), draw(state, 1500)};
		const struct size got = size_exact(&asked, own, limit);

		expect_exact(&asked, own, limit);
		expect_image(&got, own);
	}
}

static void test_size_is_exactly_the_requested_one(void **state)
{
	struct config config;
	uint32_t random = 1;
	struct tier tier;

	config_defaults(&config);
	for (size_t h = 0; h < ARRAY_LEN(hosts); h++)
		for (size_t o = 0; o < ARRAY_LEN(owns); o++) {
			struct size limit = size_limit(&hosts[h], &owns[o], &SIZE_NO_LIMIT);

			expect_random_requests(&owns[o], &limit, &random);
			for (size_t i = 0; tier_at(&tier, &config, i); i++) {
				struct size most = size_of_tier(&tier);

				limit = size_limit(&hosts[h], &owns[o], &most);
				expect_random_requests(&owns[o], &limit, &random);
			}
		}
}

static void test_size_is_cut_to_the_limits(void **state)
{
	static const struct size own = {2, 512, 4}, host = {2, 4416, 1024};
	struct size limit = size_limit(&host, &own, &SIZE_NO_LIMIT);
	const struct size got = size_exact(&SIZE_NO_LIMIT, &own, &limit);

	expect_size(&got, "4416x2x1024");
}

/* --- sizes prepared ahead --------------------------------------------------------------------- */

static void list_ahead(struct sizes *out, const struct size *own, const char *setting,
		       const struct size *host)
{
	struct config config;

	config_defaults(&config);
	snprintf(config.sizes, sizeof(config.sizes), "%s", setting);
	sizes_ahead(out, &config, own, host);
}

static void test_auto_prepares_no_further_size(void **state)
{
	static const struct size own = {2, 512, 4}, host = {4, 4416, 1024};
	struct sizes s;

	list_ahead(&s, &own, "auto", &host);
	assert_int_equal(s.n, 0);
}

static void test_auto_prepares_at_most_8_images_and_2_gib(void **state)
{
	assert_false(sizes_have_room(8, 0, 0));
	assert_false(sizes_have_room(1, 2ull << 30, 1));
	assert_true(sizes_have_room(7, 1ull << 30, 1ull << 30));
}

static void test_listed_sizes_are_cut_to_the_host_without_duplicates(void **state)
{
	static const struct size own = {2, 512, 4}, host = {2, 4416, 1024};
	struct sizes s;

	list_ahead(&s, &own, "65536x32,65536x4,4416x2x4,512x1x16", &host);
	assert_int_equal(s.n, 2);
	expect_size(&s.all[0], "4416x2x4");
	expect_size(&s.all[1], "512x1x16");
	list_ahead(&s, &own, "", &host);
	assert_int_equal(s.n, 0);
}

/* --- the choice for a request ----------------------------------------------------------------- */

static const struct source source = {.name = "py", .size = {1, 256, 4}, .least_gb = 2};

static void expect_refused(const struct size *asked, const char *text)
{
	struct sized_choice choice;
	struct failure f = {0};

	assert_false(size_choose(&source, asked, &SIZE_NO_LIMIT, &choice, &f));
	assert_int_equal(f.code, FAIL_OUT_OF_RANGE);
	assert_string_equal(f.text, text);
}

static void test_request_without_a_size_gets_that_of_the_template(void **state)
{
	const struct size asked = {0};
	struct sized_choice choice;
	struct failure f;

	assert_true(size_choose(&source, &asked, &SIZE_NO_LIMIT, &choice, &f));
	expect_size(&choice.size, "256x1x4");
	expect_size(&choice.image, "256x1x4");
}

static void test_larger_disk_uses_the_image_of_the_template(void **state)
{
	const struct size asked = {.rootfs_gb = 16};
	struct sized_choice choice;
	struct failure f;

	assert_true(size_choose(&source, &asked, &SIZE_NO_LIMIT, &choice, &f));
	expect_size(&choice.size, "256x1x16");
	expect_size(&choice.image, "256x1x4");
}

static void test_too_little_ram_or_disk_is_refused(void **state)
{
	const struct size ram = {.ram_mib = 127}, disk = {.rootfs_gb = 1};

	expect_refused(&ram, "ram_mib is 127, the minimum is 128");
	expect_refused(&disk, "rootfs_gb is 1, the minimum that holds the template is 2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_size_is_exactly_the_requested_one),
		cmocka_unit_test(test_size_is_cut_to_the_limits),
		cmocka_unit_test(test_auto_prepares_no_further_size),
		cmocka_unit_test(test_auto_prepares_at_most_8_images_and_2_gib),
		cmocka_unit_test(test_listed_sizes_are_cut_to_the_host_without_duplicates),
		cmocka_unit_test(test_request_without_a_size_gets_that_of_the_template),
		cmocka_unit_test(test_larger_disk_uses_the_image_of_the_template),
		cmocka_unit_test(test_too_little_ram_or_disk_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
