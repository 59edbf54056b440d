// SPDX-License-Identifier: Apache-2.0
#include "test/unit/service/fake-files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/wire.h"
#include "proto/agent-file.h"
#include "test/unit/service/fake-call.h"

struct request {
	const struct fake_files *f;
	int fd;
	uint8_t type;
	char path[AGENT_PATH_MAX + 1];
	uint64_t offset, size, n;
	uint32_t depth, limit;
	bool flag;
};

static bool send_description(uint8_t type, int fd, const char *name, uint32_t mode, uint64_t size)
{
	uint8_t body[AGENT_PATH_MAX + 64];
	struct wire w = wire_on(body, sizeof(body));

	wire_put_str(&w, name, strlen(name));
	wire_put_u32(&w, mode);
	wire_put_u32(&w, 1);
	wire_put_u32(&w, 2);
	wire_put_u64(&w, size);
	wire_put_u64(&w, 1700000000000000000);
	wire_put_str(&w, "there", S_ISLNK(mode) ? 5 : 0);
	if (type == AGENT_NODE) {
		wire_put_str(&w, "root", 4);
		wire_put_str(&w, "", 0);
	}
	return fake_send_frame(fd, type, body, w.pos);
}

static bool send_file(int fd, const char *name, uint32_t mode, uint64_t size)
{
	return send_description(AGENT_FILE, fd, name, mode, size);
}

static bool send_node(int fd, const char *name, uint32_t mode, uint64_t size)
{
	return send_description(AGENT_NODE, fd, name, mode, size);
}

uint64_t fake_sum(uint64_t sum, const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		sum = sum * 1099511628211u + data[i];
	return sum;
}

/* --- received data --- */

static bool take_data(const struct request *a)
{
	uint8_t head[AGENT_HEADER_SIZE], *data = malloc(AGENT_PAYLOAD_MAX);
	uint64_t got = 0, sum = 0;

	bool unsized = a->size == AGENT_UNSIZED, ended = false;

	while (got < a->size && !ended) {
		if (recv(a->fd, head, sizeof(head), MSG_WAITALL) != sizeof(head))
			break;
		struct wire w = wire_from(head, sizeof(head));
		uint32_t len = wire_get_u32(&w);
		ended = unsized && !len && head[4] == AGENT_DATA;
		if (head[4] != AGENT_DATA || (!len && !ended) || len > AGENT_PAYLOAD_MAX ||
		    (len && recv(a->fd, data, len, MSG_WAITALL) != (ssize_t)len))
			break;
		sum = fake_sum(sum, data, len);
		got += len;
	}
	free(data);
	*a->f->put_bytes = got;
	*a->f->put_sum = sum;
	return unsized ? ended : got == a->size;
}

static bool serve_put(const struct request *a)
{
	if (strcmp(a->path, "/early") == 0)
		return fake_send_done(a->fd);
	return take_data(a) && fake_send_done(a->fd);
}

/* --- sent data --- */

static bool send_bytes(const struct request *a, uint64_t from, uint64_t n)
{
	uint8_t data[10000];

	while (n) {
		size_t part = n < sizeof(data) ? n : sizeof(data);

		for (size_t i = 0; i < part; i++)
			data[i] = (uint8_t)((from + i) % 251);
		if (!fake_send_frame(a->fd, AGENT_BYTES, data, part))
			return false;
		from += part;
		n -= part;
	}
	return true;
}

static bool path_is(struct request *a, const char *word)
{
	char format[32];

	snprintf(format, sizeof(format), "/%s/%%lu", word);
	unsigned long n = 0;
	bool fits = sscanf(a->path, format, &n) == 1;
	if (fits)
		a->n = n;
	return fits;
}

static bool serve_get(struct request *a)
{
	bool zero = path_is(a, "zero"), less = path_is(a, "less"), more = path_is(a, "more");

	if (!zero && !less && !more && !path_is(a, "size"))
		return fake_send_error(a->fd, ENOENT);
	uint64_t left = a->n > a->offset ? a->n - a->offset : 0;
	if (!send_file(a->fd, a->path, S_IFREG | 0640, zero ? 0 : a->n))
		return false;
	left = left < a->size ? left : a->size;
	if (less)
		left /= 2;
	if (more)
		left += 70000;
	return send_bytes(a, a->offset, left) && fake_send_done(a->fd);
}

static bool serve_malformed(struct request *a)
{
	if (strcmp(a->path, "/twice") == 0)
		return send_file(a->fd, a->path, S_IFREG, 5) &&
		       send_file(a->fd, a->path, S_IFREG, 6);
	if (strcmp(a->path, "/bytes-first") == 0)
		return send_bytes(a, 0, 5);
	return fake_send_done(a->fd); /* /none */
}

static bool serve_walk(struct request *a)
{
	char name[32];

	if (!a->depth) {
		if (!path_is(a, "size"))
			return fake_send_error(a->fd, ENOENT);
		return send_node(a->fd, a->path, a->flag ? S_IFLNK | 0777 : S_IFREG | 0640,
				 a->flag ? 0 : a->n) &&
		       fake_send_done(a->fd);
	}
	if (strcmp(a->path, "/slash") == 0)
		return send_node(a->fd, "a/b", S_IFREG, 0) && fake_send_done(a->fd);
	if (strcmp(a->path, "/dots") == 0)
		return send_node(a->fd, "a/..", S_IFDIR, 0) && fake_send_done(a->fd);
	if (strcmp(a->path, "/empty") == 0)
		return send_node(a->fd, "a//b", S_IFDIR, 0) && fake_send_done(a->fd);
	bool worn = path_is(a, "worn");
	if (!worn && !path_is(a, "many"))
		return fake_send_error(a->fd, ENOTDIR);
	for (uint64_t i = 0; i < a->n && (!a->limit || i < a->limit); i++) {
		snprintf(name, sizeof(name), "%08lu", (unsigned long)i);
		if (!send_node(a->fd, name, S_IFREG | 0644, i))
			return false;
	}
	return worn ? fake_send_error(a->fd, EIO) : fake_send_done(a->fd);
}

static bool serve_pack(struct request *a)
{
	if (strcmp(a->path, "/wrong") == 0)
		return send_node(a->fd, "x", S_IFREG, 0);
	bool worn = path_is(a, "worn");
	if (!worn && !path_is(a, "size"))
		return fake_send_error(a->fd, ENOTDIR);
	return send_bytes(a, 0, a->n) &&
	       (worn ? fake_send_error(a->fd, EIO) : fake_send_done(a->fd));
}

static bool send_change_of(int fd, enum agent_event type, bool folder, const char *path,
			   const char *to)
{
	uint8_t body[256];
	struct wire w = wire_on(body, sizeof(body));

	wire_put_u8(&w, (uint8_t)type);
	wire_put_u8(&w, folder);
	wire_put_str(&w, path, strlen(path));
	wire_put_str(&w, to, strlen(to));
	return fake_send_frame(fd, AGENT_EVENT, body, w.pos);
}

static bool send_change(int fd, enum agent_event type, const char *path, const char *to)
{
	return send_change_of(fd, type, false, path, to);
}

static bool send_all_changes(int fd)
{
	return send_change(fd, AGENT_CREATED, "/w/a\xff", "") &&
	       send_change(fd, AGENT_WRITTEN, "/w/a", "") &&
	       send_change(fd, AGENT_RENAMED, "/w/a", "/w/b\xe2\x80\xa8") &&
	       send_change(fd, AGENT_ATTRIBUTES, "/w/b", "") &&
	       send_change(fd, AGENT_OVERFLOW, "/changes", "") &&
	       send_change_of(fd, AGENT_REMOVED, true, "/changes", "") && fake_send_done(fd);
}

static bool serve_watch(struct request *a)
{
	if (strcmp(a->path, "/unready") == 0)
		return send_change(a->fd, AGENT_CREATED, "/w/a", "") && fake_send_done(a->fd);
	if (strcmp(a->path, "/ready-twice") == 0)
		return send_change(a->fd, AGENT_WATCHING, a->path, "") &&
		       send_change(a->fd, AGENT_WATCHING, "/again", "") && fake_send_done(a->fd);
	if (!send_change(a->fd, AGENT_WATCHING, a->path, ""))
		return false;
	if (strcmp(a->path, "/changes") == 0)
		return send_all_changes(a->fd);
	while (strcmp(a->path, "/flood") == 0)
		if (!send_change(a->fd, AGENT_WRITTEN, "/flood/x", ""))
			return false;
	return send_change(a->fd, AGENT_RENAMED, "/w/a", "/w/b") && a->f->wait(a->f->guest) &&
	       send_change(a->fd, AGENT_REMOVED, a->path, "") && fake_send_done(a->fd);
}

/* --- files --- */

static void read_text(struct wire *w, char *out)
{
	size_t len;
	const uint8_t *text = wire_get_str(w, &len, AGENT_PATH_MAX);

	if (text && out)
		memcpy(out, text, len);
}

static void read_field(struct wire *w, enum agent_file_field field, struct request *a)
{
	size_t len;

	switch (field) {
	case FIELD_OFFSET:
		a->offset = wire_get_u64(w);
		break;
	case FIELD_SIZE:
		a->size = wire_get_u64(w);
		break;
	case FIELD_FLAG:
		a->flag = wire_get_u8(w);
		break;
	case FIELD_HOW:
		wire_get_u8(w);
		break;
	case FIELD_OWNER:
		wire_get_u64(w);
		break;
	case FIELD_MODE:
	case FIELD_NEW_MODE:
		wire_get_u32(w);
		break;
	case FIELD_DEPTH:
		a->depth = wire_get_u32(w);
		break;
	case FIELD_LIMIT:
		a->limit = wire_get_u32(w);
		break;
	case FIELD_PATH:
		read_text(w, a->path);
		break;
	case FIELD_TO:
		read_text(w, NULL);
		break;
	case FIELD_AFTER:
		wire_get_str(w, &len, AGENT_NAME_MAX);
		break;
	case FIELD_END:
		break;
	}
}

static void read_file_request(struct wire *w, struct request *a)
{
	const enum agent_file_field *field = agent_file_layouts[a->type].fields;

	for (; *field != FIELD_END; field++)
		read_field(w, *field, a);
}

static bool serve_file(struct request *a)
{
	if (path_is(a, "errno"))
		return fake_send_error(a->fd, (uint32_t)a->n);
	if (!strcmp(a->path, "/wait") && !a->f->wait(a->f->guest))
		return false;
	if (!strcmp(a->path, "/die"))
		a->f->die(a->f->guest);
	if (!strcmp(a->path, "/die") || !strcmp(a->path, "/hang-up"))
		return false;
	if (!strcmp(a->path, "/garbage"))
		return fake_send_frame(a->fd, AGENT_PONG, "\0\0\0", 4);
	if (!strcmp(a->path, "/twice") || !strcmp(a->path, "/none") ||
	    !strcmp(a->path, "/bytes-first"))
		return serve_malformed(a);
	switch (a->type) {
	case AGENT_PUT:
	case AGENT_WRITE:
	case AGENT_UNPACK:
		return serve_put(a);
	case AGENT_WALK:
		return serve_walk(a);
	case AGENT_PACK:
		return serve_pack(a);
	case AGENT_WATCH:
		return serve_watch(a);
	case AGENT_GET:
		return serve_get(a);
	default:
		return fake_send_done(a->fd);
	}
}

bool fake_files_serve(const struct fake_files *f, int fd, uint8_t type, const uint8_t *body,
		      size_t len)
{
	struct wire w = wire_from(body, len);
	struct request a = {.f = f, .fd = fd, .type = type};

	read_file_request(&w, &a);
	if (w.bad || wire_left(&w))
		return false;
	return serve_file(&a);
}
