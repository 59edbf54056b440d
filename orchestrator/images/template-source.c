// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/images/template-source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/num.h"

#define NAMES_MAX 256

bool source_name_ok(const char *name)
{
	size_t len = strlen(name);

	return len && len <= SOURCE_NAME_MAX && !strchr("._-", name[0]) &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == len;
}

/* --- template.conf -------------------------------------------------------------------------- */

static const struct number {
	const char *name;
	size_t at;
	uint32_t min, max;
} numbers[] = {
	{"vcpus", offsetof(struct source, size.vcpus), 1, 32},
	{"ram_mib", offsetof(struct source, size.ram_mib), 128, 65536},
	{"rootfs_gb", offsetof(struct source, size.rootfs_gb), 1, SOURCE_ROOTFS_MAX_GB},
};

static char *trim(char *text)
{
	size_t len;

	text += strspn(text, " \t\r");
	len = strlen(text);
	while (len && strchr(" \t\r", text[len - 1]))
		text[--len] = 0;
	return text;
}

static int set_number(struct source *out, const struct number *n, const char *value, struct err *e)
{
	uint32_t number;

	if (!number_parse(value, n->min, n->max, &number) || (n->max == 65536 && number % 64))
		return err_say(e, EINVAL,
			       "%s must be a whole number from %u to %u%s, not \"%.40s\"", n->name,
			       n->min, n->max, n->max == 65536 ? ", a multiple of 64" : "", value);
	*(uint32_t *)((char *)out + n->at) = number;
	return 0;
}

static int set_value(struct source *out, const char *name, const char *value, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		if (!strcmp(name, numbers[i].name))
			return set_number(out, &numbers[i], value, e);
	if (strcmp(name, "description") != 0)
		return err_say(e, EINVAL,
			       "there is no setting \"%.40s\"; the settings are description, vcpus,"
			       " ram_mib and rootfs_gb",
			       name);
	if (strlen(value) >= sizeof(out->description))
		return err_say(e, EINVAL, "description is longer than %zu bytes",
			       sizeof(out->description) - 1);
	for (const char *p = value; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return err_say(e, EINVAL, "description holds a control character");
	snprintf(out->description, sizeof(out->description), "%s", value);
	return 0;
}

static int set_line(struct source *out, char *line, struct err *e)
{
	char *text = trim(line), *equals = strchr(text, '=');

	if (!*text || *text == '#')
		return 0;
	if (!equals)
		return err_say(e, EINVAL, "expected `name = value`");
	*equals = 0;
	return set_value(out, trim(text), trim(equals + 1), e);
}

int source_conf(struct source *out, const char *text, size_t len, struct err *e)
{
	char copy[SOURCE_CONF_MAX + 1];
	unsigned number = 1;

	if (len > SOURCE_CONF_MAX || memchr(text, 0, len))
		return err_say(e, EINVAL, "template.conf is not a text file of up to %u bytes",
			       SOURCE_CONF_MAX);
	memcpy(copy, text, len);
	copy[len] = 0;
	for (char *line = copy, *end; line; line = end, number++) {
		end = strchr(line, '\n');
		if (end)
			*end++ = 0;
		if (set_line(out, line, e) < 0)
			return err_context(e, "template.conf:%u", number);
	}
	return 0;
}

static int read_conf(struct source *out, const char *dir, struct err *e)
{
	char path[SOURCE_PATH_MAX + 16], text[SOURCE_CONF_MAX + 1];

	snprintf(path, sizeof(path), "%s/template.conf", dir);
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_set(e, errno, "open %s", path);
	ssize_t len = read(fd, text, sizeof(text));
	return len < 0 ? err_set(e, errno, "read %s", path)
		       : source_conf(out, text, (size_t)len, e);
}

/* --- folders -------------------------------------------------------------------------------- */

/* Returns the smallest disk, in GiB, that holds the root file system. */
static uint32_t least_gb(const struct source *s)
{
	uint64_t gb = ((uint64_t)s->stamp.files[0].size + (1u << 30) - 1) >> 30;

	return (uint32_t)(gb < 1 ? 1 : gb > SOURCE_ROOTFS_MAX_GB ? SOURCE_ROOTFS_MAX_GB : gb);
}

static bool join(char out[SOURCE_PATH_MAX], const char *dir, const char *name)
{
	return snprintf(out, SOURCE_PATH_MAX, "%s/%s", dir, name) < (int)SOURCE_PATH_MAX;
}

static bool has_file(const char *dir, const char *name)
{
	char path[SOURCE_PATH_MAX];

	return join(path, dir, name) && access(path, F_OK) == 0;
}

static bool is_template(const char *dir)
{
	return has_file(dir, "rootfs.ext4") || has_file(dir, "warmup.py") ||
	       has_file(dir, "template.conf");
}

static int find_folder(const struct config *c, struct source *out, struct err *e)
{
	char dir[SOURCE_PATH_MAX];

	if (!join(dir, c->templates_dir, out->name) || !join(out->rootfs, dir, "rootfs.ext4") ||
	    !join(out->warmup, dir, "warmup.py"))
		return err_say(e, ENAMETOOLONG, "templates_dir is too long");
	if (!is_template(dir))
		return err_say(e, ENOENT, "there is no template %s", out->name);
	if (access(out->rootfs, F_OK) < 0)
		memcpy(out->rootfs, c->rootfs, sizeof(c->rootfs));
	if (access(out->warmup, F_OK) < 0)
		out->warmup[0] = 0;
	source_stamp(out, &out->stamp);
	out->least_gb = least_gb(out);
	int r = read_conf(out, dir, e);
	if (out->size.rootfs_gb < out->least_gb)
		out->size.rootfs_gb = out->least_gb;
	return r;
}

int source_find(const struct config *c, const char *name, struct source *out, struct err *e)
{
	*out = (struct source){.size = {c->vcpus, c->ram_mib, c->rootfs_gb}};
	if (!name[0] || !strcmp(name, TEMPLATE_DEFAULT)) {
		memcpy(out->name, TEMPLATE_DEFAULT, sizeof(TEMPLATE_DEFAULT));
		memcpy(out->rootfs, c->rootfs, sizeof(c->rootfs));
		memcpy(out->warmup, c->warmup, sizeof(c->warmup));
		source_stamp(out, &out->stamp);
		out->least_gb = least_gb(out);
		return 0;
	}
	if (!source_name_ok(name) || !c->templates_dir[0])
		return err_say(e, ENOENT, "there is no template %.64s", name);
	snprintf(out->name, sizeof(out->name), "%s", name);
	return find_folder(c, out, e);
}

static bool names_template(const struct config *c, const char *name)
{
	char dir[SOURCE_PATH_MAX];

	return source_name_ok(name) && strcmp(name, TEMPLATE_DEFAULT) != 0 &&
	       join(dir, c->templates_dir, name) && is_template(dir);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

char **source_names(const struct config *c)
{
	char **names = must_alloc((NAMES_MAX + 1) * sizeof(*names));
	DIR *d = c->templates_dir[0] ? opendir(c->templates_dir) : NULL;
	struct dirent *entry;
	size_t n = 0;

	while (d && n < NAMES_MAX && (entry = readdir(d)))
		if (names_template(c, entry->d_name))
			names[n++] = must_copy(entry->d_name);
	if (d)
		closedir(d);
	qsort(names, n, sizeof(*names), by_name);
	return names;
}

void source_names_free(char **names)
{
	for (char **each = names; *each; each++)
		free(*each);
	free(names);
}

/* --- the files an image is made from --------------------------------------------------------- */

void source_stamp(const struct source *s, struct source_stamp *out)
{
	const char *const paths[] = {s->rootfs, s->warmup};
	struct stat st;

	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		if (paths[i][0] && stat(paths[i], &st) == 0)
			out->files[i] = file_id_of(&st);
}

bool source_stamp_equal(const struct source_stamp *a, const struct source_stamp *b)
{
	return file_id_equal(&a->files[0], &b->files[0]) &&
	       file_id_equal(&a->files[1], &b->files[1]);
}
