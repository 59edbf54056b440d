// SPDX-License-Identifier: Apache-2.0
#include "guest/files/owners.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/agent.h"

/* Returns the file's text, terminated, up to the end of its last whole line; NULL if there is none.
 */
static char *read_text(const char *path)
{
	scoped_fd int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	size_t len = 0;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return NULL;
	char *text = malloc(OWNERS_FILE_MAX + 1);
	if (!text)
		return NULL;
	while (len < OWNERS_FILE_MAX && (n = read(fd, text + len, OWNERS_FILE_MAX - len)) > 0)
		len += (size_t)n;
	while (len == OWNERS_FILE_MAX && len && text[len - 1] != '\n')
		len--;
	text[len] = '\0';
	return text;
}

/* Parses "NAME:PASSWORD:ID:..." and terminates the name. */
static bool parse_line(char *line, struct owner *out)
{
	char *password = strchr(line, ':'), *id = password ? strchr(password + 1, ':') : NULL, *end;

	if (!id || password == line || password - line > AGENT_OWNER_MAX)
		return false;
	if (id[1] < '0' || id[1] > '9')
		return false;
	errno = 0;
	unsigned long n = strtoul(id + 1, &end, 10);
	if (errno || n >= UINT32_MAX || (*end != ':' && *end))
		return false;
	*password = '\0';
	*out = (struct owner){(uint32_t)n, line};
	return true;
}

/* Of two lines with the same id, the first one in the file comes first. */
static int by_id(const void *a, const void *b)
{
	const struct owner *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

void owners_read(struct owners *o, const char *path)
{
	size_t lines = 1;
	char *rest = NULL;

	*o = (struct owners){.text = read_text(path)};
	if (!o->text)
		return;
	for (const char *at = o->text; (at = strchr(at, '\n')); at++)
		lines++;
	o->list = calloc(lines, sizeof(*o->list));
	if (!o->list)
		return;
	for (char *line = strtok_r(o->text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		o->count += parse_line(line, &o->list[o->count]);
	qsort(o->list, o->count, sizeof(*o->list), by_id);
}

const char *owners_name(const struct owners *o, uint32_t id)
{
	size_t first = 0, end = o->count;

	while (first < end) {
		size_t middle = first + (end - first) / 2;

		if (o->list[middle].id < id)
			first = middle + 1;
		else
			end = middle;
	}
	return first < o->count && o->list[first].id == id ? o->list[first].name : "";
}
