// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/images/image-dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/file.h"
#include "orchestrator/config/config.h"

#define MANIFEST "manifest"

int state_dir_open(const char *state_dir, const char *name, struct err *e)
{
	char path[CONFIG_PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/%s", state_dir, name);
	return directory_open(path, e);
}

void image_tmp_name(const char *name, char out[static IMAGE_NAME_ROOM])
{
	snprintf(out, IMAGE_NAME_ROOM, "%s" IMAGE_TMP, name);
}

int image_dir_open(int parent, const char *name, struct err *e)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? err_set(e, errno, "open the directory %s", name) : fd;
}

int image_dir_new(int parent, const char *name, struct err *e)
{
	char tmp[IMAGE_NAME_ROOM];

	image_tmp_name(name, tmp);
	if (mkdirat(parent, tmp, 0700) < 0)
		return err_set(e, errno, "make the directory %s", tmp);
	return image_dir_open(parent, tmp, e);
}

int image_manifest_put(int dir, const void *manifest, size_t len, struct err *e)
{
	if (file_replace(dir, MANIFEST, manifest, len, 0600, 0, e) < 0)
		return e->code;
	return fsync(dir) < 0 ? err_set(e, errno, "write its manifest to disk") : 0;
}

int image_dir_publish(int parent, int dir, const char *name, const void *manifest, size_t len,
		      struct err *e)
{
	char tmp[IMAGE_NAME_ROOM];
	int ret = image_manifest_put(dir, manifest, len, e);

	if (ret < 0)
		return ret;
	image_tmp_name(name, tmp);
	if (renameat(parent, tmp, parent, name) < 0 || fsync(parent) < 0)
		return err_set(e, errno, "put its directory in place");
	return 0;
}

void image_dir_remove(int parent, const char *name)
{
	struct image_names files = {0};
	scoped_fd int dir = image_dir_open(parent, name, NULL);

	if (dir >= 0)
		image_names_read(dir, &files, NULL);
	for (size_t i = 0; i < files.n; i++)
		unlinkat(dir, files.all[i], 0);
	image_names_free(&files);
	unlinkat(parent, name, AT_REMOVEDIR);
}

/* Opens a regular file. For another kind of file, fails instead of waiting for its other end. */
static int open_regular(int dir, const char *file, struct stat *st, struct err *e)
{
	scoped_fd int fd = openat(dir, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0 || fstat(fd, st) < 0)
		return err_set(e, errno, "open %s", file);
	if (!S_ISREG(st->st_mode))
		return err_say(e, EINVAL, "%s is not a regular file", file);
	return take_fd(&fd);
}

int image_file_open(int dir, const char *file, uint64_t bytes, struct err *e)
{
	struct stat st;
	scoped_fd int fd = open_regular(dir, file, &st, e);

	if (fd >= 0 && (uint64_t)st.st_size != bytes)
		return err_say(e, EINVAL, "%s has %lld bytes instead of %llu", file,
			       (long long)st.st_size, (unsigned long long)bytes);
	return take_fd(&fd);
}

int image_manifest_load(int dir, const char *name, struct image_manifest *out, uint8_t **bytes,
			struct wire *extra, struct err *e)
{
	struct stat st;
	scoped_fd int fd = open_regular(dir, MANIFEST, &st, e);

	if (fd < 0)
		return fd;
	if (st.st_size > IMAGE_MANIFEST_MAX)
		return err_say(e, EINVAL, "its manifest has %lld bytes", (long long)st.st_size);
	*bytes = malloc((size_t)st.st_size + 1);
	if (!*bytes)
		return err_set(e, ENOMEM, "read its manifest");
	if (file_read(fd, 0, *bytes, (uint64_t)st.st_size, e) < 0)
		return err_context(e, "its manifest");
	int ret = image_manifest_read(*bytes, (size_t)st.st_size, out, extra, e);
	if (ret == 0 && strcmp(out->name, name) != 0)
		ret = err_say(e, EINVAL, "its manifest belongs to another image");
	return ret;
}

static void add_name(struct image_names *names, const char *name)
{
	if ((names->n & (names->n - 1)) == 0)
		names->all = must_realloc(names->all, (2 * names->n + 1) * sizeof(names->all[0]));
	snprintf(names->all[names->n++], IMAGE_NAME_ROOM, "%s", name);
}

int image_names_read(int parent, struct image_names *out, struct err *e)
{
	DIR *d = directory_list(parent, ".");
	struct dirent *entry;

	*out = (struct image_names){0};
	if (!d)
		return err_set(e, errno, "read a directory of images");
	while ((entry = readdir(d)))
		if (entry->d_name[0] != '.' && strlen(entry->d_name) < IMAGE_NAME_ROOM)
			add_name(out, entry->d_name);
	closedir(d);
	return 0;
}

void image_names_free(struct image_names *names)
{
	free(names->all);
}
