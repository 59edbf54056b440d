// SPDX-License-Identifier: Apache-2.0
/* Runs and overlays against the plainest thing that does the same: an array of pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "vmm/kvm/overlay.h"

#define PAGES 200u

static unsigned draw(unsigned n)
{
	return (unsigned)random() % n;
}

/* What a page is of: nothing (file 0), or that byte of that file. */
struct page {
	uint64_t at;
	uint32_t file;
};

/* Random runs, and the same as one flag a page. */
static void make_runs(struct runs *r, bool in[PAGES])
{
	memset(in, 0, PAGES * sizeof(*in));
	for (unsigned at = draw(20); at < PAGES;) {
		unsigned n = 1 + draw(12);

		if (n > PAGES - at)
			n = PAGES - at;
		assert_int_equal(runs_add(r, at * RAM_PAGE, n * RAM_PAGE), 0);
		memset(in + at, 1, n);
		at += n + draw(20);
	}
}

static void assert_sorted(const struct overlay *o)
{
	for (uint32_t i = 1; i < o->n; i++) {
		const struct piece *a = &o->piece[i - 1], *b = &o->piece[i];

		assert_true(a->offset + a->bytes <= b->offset);
		assert_false(a->offset + a->bytes == b->offset && a->file == b->file &&
			     a->at + a->bytes == b->at);
	}
}

static void assert_overlay(const struct overlay *o, const struct page file[PAGES])
{
	assert_sorted(o);
	for (unsigned page = 0; page < PAGES; page++) {
		uint64_t at = page * (uint64_t)RAM_PAGE;
		uint32_t i = overlay_find(o, at);
		struct page found = {0};

		assert_true(i == 0 || o->piece[i - 1].offset + o->piece[i - 1].bytes <= at);
		if (i < o->n && o->piece[i].offset <= at)
			found = (struct page){.file = o->piece[i].file,
					      .at = o->piece[i].at + (at - o->piece[i].offset)};
		assert_int_equal(found.file, file[page].file);
		assert_int_equal(found.at, file[page].at);
	}
}

static void cover(struct overlay *o, struct page file[PAGES], uint32_t with)
{
	uint64_t at = draw(5) * RAM_PAGE;
	struct overlay out = {0};
	struct runs runs = {0};
	bool in[PAGES];

	make_runs(&runs, in);
	assert_int_equal(overlay_cover(&out, o, &runs, with, at), 0);
	overlay_take(o, &out);
	for (unsigned i = 0; i < PAGES; i++) {
		if (!in[i])
			continue;
		file[i] = (struct page){.file = with, .at = at};
		at += RAM_PAGE;
	}
	assert_overlay(o, file);
	runs_free(&runs);
}

static void replace(struct overlay *o, struct page file[PAGES], const struct overlay *from,
		    const struct page from_file[PAGES])
{
	struct overlay out = {0};
	struct runs runs = {0};
	bool in[PAGES];

	make_runs(&runs, in);
	assert_int_equal(overlay_replace(&out, o, &runs, from), 0);
	overlay_take(o, &out);
	for (unsigned i = 0; i < PAGES; i++)
		if (in[i])
			file[i] = from_file[i];
	assert_overlay(o, file);
	runs_free(&runs);
}

static void test_overlays(void **state)
{
	for (unsigned round = 0; round < 200; round++) {
		struct page file[2][PAGES] = {0};
		struct overlay o[2] = {{0}};

		for (unsigned i = 1; i < 12; i++) {
			unsigned one = draw(2);

			if (draw(3))
				cover(&o[one], file[one], 1 + draw(6));
			else
				replace(&o[one], file[one], &o[!one], file[!one]);
		}
		overlay_free(&o[0]);
		overlay_free(&o[1]);
	}
}

static void test_a_cut(void **state)
{
	struct page file[PAGES] = {0}, expected[PAGES];
	struct overlay o = {0};

	for (unsigned round = 0; round < 300; round++) {
		unsigned start = draw(PAGES), end = start + draw(PAGES - start + 1);
		struct overlay out = {0};
		uint32_t next = 0;

		cover(&o, file, 1 + draw(9));
		assert_int_equal(overlay_cut(&out, &o, &next, start * (uint64_t)RAM_PAGE,
					     end * (uint64_t)RAM_PAGE),
				 0);
		memset(expected, 0, sizeof(expected));
		memcpy(expected + start, file + start, (end - start) * sizeof(*file));
		assert_overlay(&out, expected);
		overlay_free(&out);
	}
	overlay_free(&o);
}

static void test_joined_runs(void **state)
{
	for (unsigned round = 0; round < 300; round++) {
		struct runs in = {0}, out = {0};
		unsigned gap = draw(8), most = 1 + draw(12);
		uint64_t end = 0;
		uint32_t j = 0;
		bool pages[PAGES];

		make_runs(&in, pages);
		assert_int_equal(runs_join(&out, &in, gap * RAM_PAGE, most), 0);
		assert_true(out.n <= most && (out.n > 0) == (in.n > 0));
		for (uint32_t i = 0; i < out.n; i++) {
			assert_true(i == 0 || out.run[i].offset >= end + gap * RAM_PAGE);
			end = out.run[i].offset + out.run[i].bytes;
			assert_int_equal(in.run[j].offset, out.run[i].offset);
			while (j < in.n && in.run[j].offset < end)
				j++;
			assert_int_equal(in.run[j - 1].offset + in.run[j - 1].bytes, end);
		}
		assert_int_equal(j, in.n);
		runs_free(&in);
		runs_free(&out);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_overlays),
		cmocka_unit_test(test_a_cut),
		cmocka_unit_test(test_joined_runs),
	};
	unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : (unsigned)time(NULL);

	print_message("seed %u\n", seed);
	srandom(seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
