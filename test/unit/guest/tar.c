// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/num.h"
#include "guest/files/tar.h"

#define BLOCK 512

static uint8_t archive[64 * BLOCK];
static size_t archive_len;
static char reported[4096]; /* what the reader reported */
static struct err e;
static uint64_t entries;

static void report(const char *text)
{
	assert_true(strlen(reported) + strlen(text) < sizeof(reported));
	strcat(reported, text);
}

static int on_entry(void *arg, const struct tar_entry *n, struct err *err)
{
	static const char *const types[] = {"file", "hard", "link", "folder", "fifo"};

	if (strcmp(n->path, "refuse") == 0)
		return err_say(err, EACCES, "refused");
	report(types[n->type]);
	report(" ");
	report(n->path);
	if (n->target[0])
		report(" -> ");
	report(n->target);
	if (n->type == TAR_FILE) {
		char size[32];

		snprintf(size, sizeof(size), " %llu:", (unsigned long long)n->size);
		report(size);
	}
	return 0;
}

static int on_bytes(void *arg, const uint8_t *data, size_t len, struct err *err)
{
	char text[2 * BLOCK];

	assert_in_range(len, 1, sizeof(text) - 1);
	snprintf(text, sizeof(text), "%.*s", (int)len, data);
	report(text);
	return 0;
}

static struct tar_entry last;

static int on_complete(void *arg, const struct tar_entry *n, struct err *err)
{
	report(";");
	last = *n;
	return 0;
}

static size_t step, archive_at;

static size_t on_read(void *arg, const uint8_t **data)
{
	size_t n = min_u64(step, archive_len - archive_at);

	*data = archive + archive_at;
	archive_at += n;
	return n;
}

static const struct tar_calls calls = {on_read, on_entry, on_bytes, on_complete};

static void begin(void)
{
	memset(archive, 0, sizeof(archive));
	archive_len = 0;
}

static void sum_up(uint8_t *h)
{
	unsigned sum = 0;

	memset(h + 148, ' ', 8);
	for (int i = 0; i < BLOCK; i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
}

/* Adds a header and the data; returns the header. Changes need sum_up. */
static uint8_t *add(const char *name, char type, const char *target, const char *data)
{
	uint8_t *h = archive + archive_len;
	size_t len = strlen(data);

	memcpy(h, name, strlen(name));
	strcpy((char *)h + 100, "0000644");
	strcpy((char *)h + 108, "0000001");
	strcpy((char *)h + 116, "0000002");
	snprintf((char *)h + 124, 12, "%011o", (unsigned)len);
	strcpy((char *)h + 136, "00000000012");
	h[156] = (uint8_t)type;
	memcpy(h + 157, target, strlen(target));
	memcpy(h + 257, "ustar\00000", 8);
	sum_up(h);
	memcpy(h + BLOCK, data, len);
	archive_len += BLOCK + (len + BLOCK - 1) / BLOCK * BLOCK;
	return h;
}

static int read_in_steps(size_t len)
{
	reported[0] = '\0';
	archive_at = 0;
	step = len;
	return tar_read(&calls, NULL, &entries, &e);
}

/* Reads the archive with its end. */
static int read_all(void)
{
	static const size_t steps[] = {1, 7, 511, 513};

	archive_len += 2 * BLOCK;
	int bad = read_in_steps(archive_len);
	char first[sizeof(reported)];
	strcpy(first, reported);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		assert_int_equal(read_in_steps(steps[i]), bad);
		assert_string_equal(reported, first);
	}
	archive_len -= 2 * BLOCK;
	return bad;
}

static void reads(const char *want)
{
	assert_int_equal(read_all(), 0);
	assert_string_equal(reported, want);
}

static void refuses(const char *word)
{
	assert_int_equal(read_all(), -EBADMSG);
	assert_non_null(strstr(e.text, word));
}

static void test_entries_are_reported_in_order(void **state)
{
	begin();
	add("./", '5', "", "");
	add("./a", '0', "", "hello");
	add("a/./b//", '5', "", "");
	add("old", '\0', "", "x");
	add("old-folder/", '0', "", "");
	add("l", '2', "../any where", "");
	add("h", '1', "./a", "");
	add("p", '6', "", "");
	reads("folder ;file a 5:hello;folder a/b;file old 1:x;folder old-folder;"
	      "link l -> ../any where;hard h -> a;fifo p;");
	assert_int_equal(last.mode, 0644);
	assert_true(last.uid == 1 && last.gid == 2 && last.mtime_s == 10 && !last.mtime_ns);
}

static void test_data_may_fill_its_last_block(void **state)
{
	char data[BLOCK + 1];

	memset(data, 'x', BLOCK);
	data[BLOCK] = '\0';
	begin();
	add("a", '0', "", data);
	add("b", '0', "", "1");
	assert_int_equal(read_all(), 0);
	assert_non_null(strstr(reported, "x;file b 1:1;"));
}

static void test_prefix_is_part_of_a_ustar_name_only(void **state)
{
	uint8_t *h;

	begin();
	h = add("name", '0', "", "");
	strcpy((char *)h + 345, "some/folder");
	sum_up(h);
	reads("file some/folder/name 0:;");
	memcpy(h + 257, "ustar  ", 8); /* GNU */
	sum_up(h);
	reads("file name 0:;");
}

static void test_names_may_fill_their_fields(void **state)
{
	char name[101], want[128];

	memset(name, 'n', 100);
	name[100] = '\0';
	begin();
	add(name, '2', name, "");
	snprintf(want, sizeof(want), "link %s", name);
	assert_int_equal(read_all(), 0);
	assert_memory_equal(reported, want, strlen(want));
	assert_int_equal(strlen(reported), 5 + 100 + 4 + 100 + 1);
}

static void test_extended_headers_apply_to_the_next_entry(void **state)
{
	begin();
	add("x", 'x', "",
	    "12 path=new\n15 linkpath=to\n20 mtime=1.25000000\n10 uid=70\n10 gid=80\n");
	add("a", '2', "b", "");
	add("c", '2', "d", "");
	reads("link new -> to;link c -> d;");
	archive_len -= BLOCK;
	memset(archive + archive_len, 0, BLOCK);
	reads("link new -> to;");
	assert_true(last.uid == 70 && last.gid == 80);
	assert_true(last.mtime_s == 1 && last.mtime_ns == 250000000);
}

static void test_size_in_an_extended_header_counts(void **state)
{
	begin();
	add("x", 'x', "", "10 size=3\n");
	uint8_t *h = add("a", '0', "", "abc");
	memset(h + 124, '0', 11);
	sum_up(h);
	add("b", '0', "", "1");
	reads("file a 3:abc;file b 1:1;");
}

static void test_long_names_of_gnu(void **state)
{
	begin();
	add("././@LongLink", 'K', "", "the/target");
	add("././@LongLink", 'L', "", "a/long/name");
	add("short", '2', "short", "");
	reads("link a/long/name -> the/target;");
}

static void test_global_headers_are_ignored(void **state)
{
	begin();
	add("g", 'g', "", "14 path=other\n");
	add("a", '0', "", "");
	reads("file a 0:;");
}

static void test_binary_numbers(void **state)
{
	uint8_t *h;

	begin();
	h = add("a", '0', "", "");
	memcpy(h + 108, "\x80\0\0\0\xb2\xd0\x5e\0", 8); /* 3,000,000,000 */
	memcpy(h + 136, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", 12);
	sum_up(h);
	reads("file a 0:;");
	assert_true(last.uid == 3000000000u && last.mtime_s == -2);
}

static void test_fraction_of_a_time_before_1970_is_dropped(void **state)
{
	begin();
	add("x", 'x', "", "15 mtime=-1.25\n");
	add("a", '0', "", "");
	reads("file a 0:;");
	assert_true(last.mtime_s == -1 && !last.mtime_ns);
}

static void test_invalid_numbers_are_refused(void **state)
{
	uint8_t *h;

	begin();
	h = add("a", '0', "", "");
	memcpy(h + 108, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
	sum_up(h);
	refuses("user or group");
	memcpy(h + 108, "\x80\0\0\0\xff\xff\xff\xff", 8);
	sum_up(h);
	refuses("user or group");
	memcpy(h + 108, "0000000", 8);
	memcpy(h + 124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
	sum_up(h);
	refuses("negative");
}

static void test_what_leads_out_is_refused(void **state)
{
	static const char *const names[] = {"/a", "..", "../a", "a/..", "a/../b", "a/b/.."};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		begin();
		add(names[i], '0', "", "");
		refuses("refused");
		begin();
		add("h", '1', names[i], "");
		refuses("refused");
	}
	begin();
	add("..a", '0', "", "");
	add("a..", '0', "", "");
	reads("file ..a 0:;file a.. 0:;");
}

static void test_empty_names_are_refused(void **state)
{
	static const char types[] = "0126";

	for (const char *type = types; *type; type++) {
		begin();
		add("./", *type, "x", "");
		if (*type == '0')
			reads("folder ;");
		else
			refuses("empty");
	}
	begin();
	add("l", '2', "", "");
	refuses("empty");
	begin();
	add("h", '1', ".", "");
	refuses("empty");
}

static void test_long_names_are_refused(void **state)
{
	char path[PATH_MAX + 1];

	memset(path, 'n', sizeof(path));
	path[NAME_MAX + 1] = '\0';
	begin();
	add("././@LongLink", 'L', "", path);
	add("a", '0', "", "");
	refuses("longer than 255 bytes");
	for (size_t i = 0; i < PATH_MAX; i++)
		path[i] = i % 2 ? '/' : 'n';
	path[PATH_MAX] = '\0';
	begin();
	add("././@LongLink", 'L', "", path);
	add("a", '0', "", "");
	refuses("too long");
}

/* POSIX: an entry of an unknown type is a file. */
static void test_types(void **state)
{
	static const struct {
		char type;
		const char *want; /* NULL: refused */
	} types[] = {{'7', "file a 0:;"}, {'D', "folder a;"}, {'z', "file a 0:;"},
		     {'3', NULL},	  {'4', NULL},	      {'M', NULL}};

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		begin();
		add("a", types[i].type, "b", "");
		if (types[i].want)
			reads(types[i].want);
		else
			refuses("refused");
	}
	begin();
	add("a", '3', "", "");
	refuses("device");
}

static void test_names_keep_their_bytes(void **state)
{
	static const char *const headers[] = {"12 path=n\xc3\xa4\n"
					      "18 linkpath=\xe2\x82\xac/t\n",
					      "11 path=n\xe4\n16 linkpath=\xff/t\n"};
	static const char *const want[] = {"link n\xc3\xa4 -> \xe2\x82\xac/t;",
					   "link n\xe4 -> \xff/t;"};

	for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
		begin();
		add("x", 'x', "", headers[i]);
		add("a", '2', "b", "");
		reads(want[i]);
		begin();
		add("././@LongLink", 'L', "", "n\xe4");
		add("a", '2', "\xff", "");
		reads("link n\xe4 -> \xff;");
	}
}

static void test_invalid_extended_headers_are_refused(void **state)
{
	static const char *const bad[] = {
		"path=new\n",	 "99 path=new\n",	"12 path=new", "12path=new\n",
		"12 path:new\n", "0 path=new\n",	"3 =\n",       "99999999999999999999 a=b\n",
		"11 size=-1\n",	 "18 uid=4294967295\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		begin();
		add("x", 'x', "", bad[i]);
		add("a", '0', "", "");
		assert_int_equal(read_all(), -EBADMSG);
	}
}

static void test_sparse_files_are_refused(void **state)
{
	static const char of_blocks[] = "21 GNU.sparse.size=9\n26 GNU.sparse.numblocks=1\n"
					"23 GNU.sparse.offset=4\n25 GNU.sparse.numbytes=5\n";
	static const char *const sparse[] = {
		"25 GNU.sparse.realsize=9\n",
		of_blocks,
		"21 GNU.sparse.size=9\n22 GNU.sparse.map=4,5\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(sparse); i++) {
		begin();
		add("x", 'x', "", sparse[i]);
		add("a", '0', "", "hello");
		refuses("sparse files are not supported");
	}
	begin();
	uint8_t *h = add("a", 'S', "", "hello");
	memcpy(h + 257, "ustar  ", 8);
	strcpy((char *)h + 386, "00000000004");
	strcpy((char *)h + 398, "00000000005");
	strcpy((char *)h + 483, "00000000009");
	sum_up(h);
	refuses("sparse files are not supported");
}

/* The first entry of this archive is a sparse file whose map has no end. */
static size_t on_endless_read(void *arg, const uint8_t **data)
{
	size_t *blocks = arg;

	*data = archive;
	if ((*blocks)++) {
		memset(archive, 0, BLOCK);
		strcpy((char *)archive, "00000000001");
		strcpy((char *)archive + 12, "00000000001");
		archive[504] = 1; /* another block follows */
	}
	return BLOCK;
}

static void test_endless_headers_are_refused(void **state)
{
	static const struct tar_calls endless = {on_endless_read, on_entry, on_bytes, on_complete};
	size_t blocks = 0;

	begin();
	uint8_t *h = add("a", 'S', "", "");
	memcpy(h + 257, "ustar  ", 8);
	strcpy((char *)h + 386, "00000000001");
	strcpy((char *)h + 398, "00000000001");
	h[482] = 1; /* the map continues */
	sum_up(h);
	assert_int_equal(tar_read(&endless, &blocks, &entries, &e), -EBADMSG);
	assert_non_null(strstr(e.text, "the headers of an entry are too long"));
	assert_in_range(blocks, 1, TAR_HEADERS_MAX / BLOCK + 2);
}

static void test_long_extended_header_is_refused(void **state)
{
	begin();
	uint8_t *h = add("x", 'x', "", "");
	snprintf((char *)h + 124, 12, "%011o", 2u << 20);
	sum_up(h);
	refuses("too large");
}

static void test_compressed_archive_is_refused(void **state)
{
	begin();
	memcpy(archive, "\x1f\x8b\x08", 3);
	archive_len = BLOCK;
	assert_int_equal(read_in_steps(BLOCK), -EBADMSG);
	assert_non_null(strstr(e.text, "compressed with gzip"));
}

static void test_wrong_checksum_is_refused(void **state)
{
	begin();
	add("a", '0', "", "");
	add("b", '0', "", "")[0] = 'c';
	refuses("Damaged");
	begin();
	add("a", '0', "", "")[0] = 'b';
	refuses("Unrecognized archive format");
}

static void test_cut_archive_is_refused_at_every_length(void **state)
{
	begin();
	add("a", '0', "", "hello");
	add("x", 'x', "", "12 path=new\n");
	add("b", '5', "", "");
	for (size_t whole = archive_len; archive_len--;)
		assert_int_equal(read_in_steps(whole), -EBADMSG);
	archive_len = 0;
	assert_int_equal(read_in_steps(1), -EBADMSG);
}

static void test_refusal_of_the_sink_ends_the_reading(void **state)
{
	begin();
	add("a", '0', "", "");
	add("refuse", '0', "", "");
	add("b", '0', "", "");
	assert_int_equal(read_all(), -EACCES);
	assert_string_equal(reported, "file a 0:;");
	assert_int_equal(entries, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_entries_are_reported_in_order),
		cmocka_unit_test(test_data_may_fill_its_last_block),
		cmocka_unit_test(test_prefix_is_part_of_a_ustar_name_only),
		cmocka_unit_test(test_names_may_fill_their_fields),
		cmocka_unit_test(test_extended_headers_apply_to_the_next_entry),
		cmocka_unit_test(test_size_in_an_extended_header_counts),
		cmocka_unit_test(test_long_names_of_gnu),
		cmocka_unit_test(test_global_headers_are_ignored),
		cmocka_unit_test(test_binary_numbers),
		cmocka_unit_test(test_fraction_of_a_time_before_1970_is_dropped),
		cmocka_unit_test(test_invalid_numbers_are_refused),
		cmocka_unit_test(test_what_leads_out_is_refused),
		cmocka_unit_test(test_empty_names_are_refused),
		cmocka_unit_test(test_long_names_are_refused),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_names_keep_their_bytes),
		cmocka_unit_test(test_invalid_extended_headers_are_refused),
		cmocka_unit_test(test_sparse_files_are_refused),
		cmocka_unit_test(test_endless_headers_are_refused),
		cmocka_unit_test(test_compressed_archive_is_refused),
		cmocka_unit_test(test_long_extended_header_is_refused),
		cmocka_unit_test(test_wrong_checksum_is_refused),
		cmocka_unit_test(test_cut_archive_is_refused_at_every_length),
		cmocka_unit_test(test_refusal_of_the_sink_ends_the_reading),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
