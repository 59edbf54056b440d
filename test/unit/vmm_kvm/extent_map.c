// SPDX-License-Identifier: Apache-2.0
/* Compares extents and extent maps with the simplest implementation: an array of pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "vmm/kvm/extent-map.h"

#define PAGES 200u

static unsigned draw(unsigned n)
{
	return (unsigned)random() % n;
}

/* A page maps to nothing (file 0), or to this byte of this file. */
struct page {
	uint64_t at;
	uint32_t file;
};

/* Makes random extents, and the same pages as one flag per page. */
static void make_extents(struct extents *r, bool in[PAGES])
{
	memset(in, 0, PAGES * sizeof(*in));
	for (unsigned at = draw(20); at < PAGES;) {
		unsigned n = 1 + draw(12);

		if (n > PAGES - at)
			n = PAGES - at;
		assert_int_equal(extents_add(r, at * RAM_PAGE, n * RAM_PAGE), 0);
		memset(in + at, 1, n);
		at += n + draw(20);
	}
}

static void assert_sorted(const struct extent_map *o)
{
	for (uint32_t i = 1; i < o->n; i++) {
		const struct mapping *a = &o->mapping[i - 1], *b = &o->mapping[i];

		assert_true(a->offset + a->bytes <= b->offset);
		assert_false(a->offset + a->bytes == b->offset && a->file == b->file &&
			     a->at + a->bytes == b->at);
	}
}

static void assert_extent_map(const struct extent_map *o, const struct page file[PAGES])
{
	assert_sorted(o);
	for (unsigned page = 0; page < PAGES; page++) {
		uint64_t at = page * (uint64_t)RAM_PAGE;
		uint32_t i = extent_map_find(o, at);
		struct page found = {0};

		assert_true(i == 0 || o->mapping[i - 1].offset + o->mapping[i - 1].bytes <= at);
		if (i < o->n && o->mapping[i].offset <= at)
			found = (struct page){.file = o->mapping[i].file,
					      .at = o->mapping[i].at + (at - o->mapping[i].offset)};
		assert_int_equal(found.file, file[page].file);
		assert_int_equal(found.at, file[page].at);
	}
}

static void cover(struct extent_map *o, struct page file[PAGES], uint32_t with)
{
	uint64_t at = draw(5) * RAM_PAGE;
	struct extent_map out = {0};
	struct extents extents = {0};
	bool in[PAGES];

	make_extents(&extents, in);
	assert_int_equal(extent_map_cover(&out, o, &extents, with, at), 0);
	extent_map_take(o, &out);
	for (unsigned i = 0; i < PAGES; i++) {
		if (!in[i])
			continue;
		file[i] = (struct page){.file = with, .at = at};
		at += RAM_PAGE;
	}
	assert_extent_map(o, file);
	extents_free(&extents);
}

static void replace(struct extent_map *o, struct page file[PAGES], const struct extent_map *from,
		    const struct page from_file[PAGES])
{
	struct extent_map out = {0};
	struct extents extents = {0};
	bool in[PAGES];

	make_extents(&extents, in);
	assert_int_equal(extent_map_replace(&out, o, &extents, from), 0);
	extent_map_take(o, &out);
	for (unsigned i = 0; i < PAGES; i++)
		if (in[i])
			file[i] = from_file[i];
	assert_extent_map(o, file);
	extents_free(&extents);
}

static void test_random_changes_match_a_page_array(void **state)
{
	for (unsigned round = 0; round < 200; round++) {
		struct page file[2][PAGES] = {0};
		struct extent_map o[2] = {{0}};

		for (unsigned i = 1; i < 12; i++) {
			unsigned one = draw(2);

			if (draw(3))
				cover(&o[one], file[one], 1 + draw(6));
			else
				replace(&o[one], file[one], &o[!one], file[!one]);
		}
		extent_map_free(&o[0]);
		extent_map_free(&o[1]);
	}
}

static void test_random_cuts_match_a_page_array(void **state)
{
	struct page file[PAGES] = {0}, expected[PAGES];
	struct extent_map o = {0};

	for (unsigned round = 0; round < 300; round++) {
		unsigned start = draw(PAGES), end = start + draw(PAGES - start + 1);
		struct extent_map out = {0};
		uint32_t next = 0;

		cover(&o, file, 1 + draw(9));
		assert_int_equal(extent_map_cut(&out, &o, &next, start * (uint64_t)RAM_PAGE,
						end * (uint64_t)RAM_PAGE),
				 0);
		memset(expected, 0, sizeof(expected));
		memcpy(expected + start, file + start, (end - start) * sizeof(*file));
		assert_extent_map(&out, expected);
		extent_map_free(&out);
	}
	extent_map_free(&o);
}

static void test_joined_extents_keep_the_gap_and_the_limit(void **state)
{
	for (unsigned round = 0; round < 300; round++) {
		struct extents in = {0}, out = {0};
		unsigned gap = draw(8), most = 1 + draw(12);
		uint64_t end = 0;
		uint32_t j = 0;
		bool pages[PAGES];

		make_extents(&in, pages);
		assert_int_equal(extents_join(&out, &in, gap * RAM_PAGE, most), 0);
		assert_true(out.n <= most && (out.n > 0) == (in.n > 0));
		for (uint32_t i = 0; i < out.n; i++) {
			assert_true(i == 0 || out.extent[i].offset >= end + gap * RAM_PAGE);
			end = out.extent[i].offset + out.extent[i].bytes;
			assert_int_equal(in.extent[j].offset, out.extent[i].offset);
			while (j < in.n && in.extent[j].offset < end)
				j++;
			assert_int_equal(in.extent[j - 1].offset + in.extent[j - 1].bytes, end);
		}
		assert_int_equal(j, in.n);
		extents_free(&in);
		extents_free(&out);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_changes_match_a_page_array),
		cmocka_unit_test(test_random_cuts_match_a_page_array),
		cmocka_unit_test(test_joined_extents_keep_the_gap_and_the_limit),
	};
	unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : (unsigned)time(NULL);

	print_message("seed %u\n", seed);
	srandom(seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
