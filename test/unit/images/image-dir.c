// SPDX-License-Identifier: Apache-2.0
/* Directories of images and their manifests: published, damaged, hostile and removed ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "orchestrator/images/image-dir.h"

#define NAME  "python-3.12_x-0123456789abcdef-2c-512m-4g"
#define EXTRA "what the owner adds"

struct fixture {
	char path[32];
	int parent;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->path, "/tmp/ramet-images-XXXXXX");
	*state = f;
	if (!mkdtemp(f->path))
		return -1;
	f->parent = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return f->parent < 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	struct image_names names;

	image_names_read(f->parent, &names, NULL);
	for (size_t i = 0; i < names.n; i++)
		image_dir_remove(f->parent, names.all[i]);
	image_names_free(&names);
	close_fd(&f->parent);
	int ret = rmdir(f->path);
	free(f);
	return ret;
}

static size_t encode(uint8_t out[IMAGE_MANIFEST_OVERHEAD + sizeof(EXTRA)])
{
	const struct image_manifest m = {
		.name = NAME, .n_files = 2, .files = {{.bytes = 7, .sum = 1}, {.bytes = 9}}};

	return image_manifest_write(&m, EXTRA, sizeof(EXTRA), out);
}

static void seal(uint8_t *bytes, size_t len)
{
	struct wire w = wire_on(bytes + 12, 8);

	wire_put_u32(&w, (uint32_t)len - 24);
	wire_put_u32(&w, crc32c(0, bytes + 24, len - 24));
}

static int decode(const uint8_t *bytes, size_t len)
{
	scoped_free uint8_t *exact = malloc(len + 1); /* shows a read past the end */
	struct image_manifest m;
	struct wire extra;
	struct err e = {0};

	memcpy(exact, bytes, len);
	int ret = image_manifest_read(exact, len, &m, &extra, &e);
	assert_true(ret == 0 || e.text[0]);
	return ret;
}

static void test_manifest_is_read_back(void **state)
{
	uint8_t bytes[IMAGE_MANIFEST_OVERHEAD + sizeof(EXTRA)];
	size_t len = encode(bytes);
	struct image_manifest m;
	struct wire extra;
	struct err e;

	assert_int_equal(image_manifest_read(bytes, len, &m, &extra, &e), 0);
	assert_string_equal(m.name, NAME);
	assert_int_equal(m.n_files, 2);
	assert_int_equal(m.files[0].bytes, 7);
	assert_int_equal(m.files[0].sum, 1);
	assert_int_equal(m.files[1].bytes, 9);
	assert_int_equal(wire_left(&extra), sizeof(EXTRA));
	assert_string_equal((const char *)extra.p, EXTRA);
}

static void test_cut_or_changed_manifest_is_refused(void **state)
{
	uint8_t bytes[IMAGE_MANIFEST_OVERHEAD + sizeof(EXTRA)];
	size_t len = encode(bytes);

	for (size_t n = 0; n < len; n++)
		assert_true(decode(bytes, n) < 0);
	for (size_t bit = 0; bit < 8 * len; bit++) {
		bytes[bit / 8] ^= 1 << bit % 8;
		assert_true(decode(bytes, len) < 0);
		bytes[bit / 8] ^= 1 << bit % 8;
	}
	assert_int_equal(decode(bytes, len), 0);
}

/* The checksum is right in all of them. */
static void test_hostile_manifest_is_refused(void **state)
{
	uint8_t bytes[IMAGE_MANIFEST_OVERHEAD + sizeof(EXTRA)], *name = bytes + 24 + 16 + 4;
	const size_t len = encode(bytes), files_at = 24 + 16 + 4 + strlen(NAME);
	struct wire count = wire_on(bytes + files_at, 4);

	for (size_t n = 24; n < files_at + 4 + 24; n++) {
		encode(bytes);
		seal(bytes, n);
		assert_int_equal(decode(bytes, n), -EINVAL);
	}
	encode(bytes);
	name[3] = 0;
	seal(bytes, len);
	assert_int_equal(decode(bytes, len), -EINVAL);
	static const uint32_t counts[] = {CTL_FDS_MAX + 1, UINT32_MAX, 100};
	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		encode(bytes);
		count.pos = 0;
		wire_put_u32(&count, counts[i]);
		seal(bytes, len);
		assert_int_equal(decode(bytes, len), -EINVAL);
	}
	for (size_t at = 24; at < 40; at += 4) { /* the versions of the files */
		encode(bytes);
		bytes[at]++;
		seal(bytes, len);
		assert_int_equal(decode(bytes, len), -ENOTSUP);
	}
	encode(bytes);
	bytes[8]++; /* the version of the manifest */
	assert_int_equal(decode(bytes, len), -ENOTSUP);
}

static int load(const struct fixture *f, const char *dir_name, struct err *e)
{
	scoped_free uint8_t *bytes = NULL;
	scoped_fd int dir = image_dir_open(f->parent, dir_name, e);
	struct image_manifest m;
	struct wire extra;

	return dir < 0 ? dir : image_manifest_load(dir, dir_name, &m, &bytes, &extra, e);
}

static void publish(const struct fixture *f, const char *name)
{
	uint8_t bytes[IMAGE_MANIFEST_OVERHEAD + sizeof(EXTRA)];
	size_t len = encode(bytes);
	struct err e;
	scoped_fd int dir = image_dir_new(f->parent, name, &e);

	assert_true(dir >= 0);
	assert_int_equal(image_dir_publish(f->parent, dir, name, bytes, len, &e), 0);
}

static void test_directory_gets_its_name_when_it_is_complete(void **state)
{
	struct fixture *f = *state;
	struct image_names names;
	struct err e;

	scoped_fd int dir = image_dir_new(f->parent, NAME, &e);
	assert_true(dir >= 0);
	assert_int_equal(load(f, NAME, &e), -ENOENT);
	assert_int_equal(load(f, NAME IMAGE_TMP, &e), -ENOENT); /* no manifest */
	image_dir_remove(f->parent, NAME IMAGE_TMP);
	publish(f, NAME);
	assert_int_equal(load(f, NAME, &e), 0);
	assert_int_equal(image_names_read(f->parent, &names, &e), 0);
	assert_int_equal(names.n, 1);
	assert_string_equal(names.all[0], NAME);
	image_names_free(&names);
	image_dir_remove(f->parent, NAME);
	assert_int_equal(load(f, NAME, &e), -ENOENT);
}

static void test_manifest_of_another_directory_is_refused(void **state)
{
	struct fixture *f = *state;
	struct err e;

	publish(f, "other");
	assert_int_equal(load(f, "other", &e), -EINVAL);
	assert_non_null(strstr(e.text, "belongs to another image"));
}

static void test_file_of_another_type_or_size_is_refused(void **state)
{
	struct fixture *f = *state;
	struct err e;
	scoped_fd int dir = image_dir_new(f->parent, NAME, &e);
	scoped_fd int file = openat(dir, "file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(write(file, "1234567", 7), 7);
	assert_int_equal(symlinkat("file", dir, "link"), 0);
	assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
	scoped_fd int whole = image_file_open(dir, "file", 7, &e);
	assert_true(whole >= 0);
	assert_int_equal(image_file_open(dir, "file", 8, &e), -EINVAL);
	assert_non_null(strstr(e.text, "file has 7 bytes instead of 8"));
	assert_int_equal(image_file_open(dir, "link", 7, &e), -ELOOP);
	assert_int_equal(image_file_open(dir, "fifo", 0, &e), -EINVAL);
	assert_int_equal(image_file_open(dir, "gone", 0, &e), -ENOENT);
}

static void test_many_names_are_read(void **state)
{
	struct fixture *f = *state;
	struct image_names names;
	char name[16];

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(mkdirat(f->parent, name, 0700), 0);
	}
	assert_int_equal(image_names_read(f->parent, &names, NULL), 0);
	assert_int_equal(names.n, 100);
	image_names_free(&names);
	assert_int_equal(image_names_read(f->parent, &names, NULL), 0);
	assert_int_equal(names.n, 100);
	image_names_free(&names);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_manifest_is_read_back),
		cmocka_unit_test(test_cut_or_changed_manifest_is_refused),
		cmocka_unit_test(test_hostile_manifest_is_refused),
		T(test_directory_gets_its_name_when_it_is_complete),
		T(test_manifest_of_another_directory_is_refused),
		T(test_file_of_another_type_or_size_is_refused),
		T(test_many_names_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
