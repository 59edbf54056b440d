// SPDX-License-Identifier: Apache-2.0
/*
 * The web page /ui/: a few files, which are read into memory at the start. A request gets the file
 * whose name is exactly the rest of its path, so no path can lead elsewhere. The files hold nothing
 * secret and need no key; the page's requests to the API need one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/http/dispatch.h"

#define UI_FILES_MAX 64
#define UI_FILE_MAX  (2u << 20)
#define ETAG_BYTES   16

struct ui_file {
	char name[NAME_MAX + 1];
	const char *type;
	char etag[2 * ETAG_BYTES + 3]; /* quoted */
	char *data;
	size_t len;
};

static const struct {
	const char *suffix, *type;
} types[] = {
	{".html", "text/html; charset=utf-8"},
	{".css", "text/css; charset=utf-8"},
	{".js", "text/javascript; charset=utf-8"},
	{".svg", "image/svg+xml"},
};

/* Scripts and styles come from these files only, and Chromium refuses to make HTML of text except
 * by the named policy, which the page uses for frames without scripts. */
static const char *const headers[][2] = {
	{"content-security-policy",
	 "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
	 "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
	 "require-trusted-types-for 'script'; trusted-types ramet-frame"},
	{"x-content-type-options", "nosniff"},
	{"x-frame-options", "DENY"},
	{"referrer-policy", "no-referrer"},
	{"cross-origin-opener-policy", "same-origin"},
	{"cross-origin-resource-policy", "same-origin"},
	{"permissions-policy", "camera=(), geolocation=(), microphone=()"},
	{"cache-control", "no-cache"},
};

/* --- reading -------------------------------------------------------------------------------- */

/* Returns the content type that belongs to the file's name, or NULL when it is not served. */
static const char *type_of(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < ARRAY_LEN(types) && name[0] != '.'; i++) {
		size_t suffix = strlen(types[i].suffix);

		if (len > suffix && strcmp(name + len - suffix, types[i].suffix) == 0)
			return types[i].type;
	}
	return NULL;
}

static void set_etag(struct ui_file *f)
{
	unsigned char digest[EVP_MAX_MD_SIZE];

	if (!EVP_Digest(f->data, f->len, digest, NULL, EVP_sha256(), NULL))
		abort();
	f->etag[0] = '"';
	hex_write(f->etag + 1, digest, ETAG_BYTES);
	strcat(f->etag, "\"");
}

static int add_file(struct api *a, int dir, const char *name, struct err *e)
{
	struct ui_file *f = &a->ui[a->n_ui];
	struct stat st;

	scoped_fd int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "open %s/%s", a->config->ui_dir, name);
	if (!S_ISREG(st.st_mode))
		return 0;
	if (st.st_size > UI_FILE_MAX || a->n_ui == UI_FILES_MAX)
		return err_say(e, EFBIG,
			       "%s/%s is too large, or one file too many: the page may have %u "
			       "files of up to %u bytes",
			       a->config->ui_dir, name, UI_FILES_MAX, UI_FILE_MAX);
	f->len = (size_t)st.st_size;
	f->data = must_alloc(f->len + 1);
	a->n_ui++;
	int ret = file_read(fd, 0, f->data, f->len, e);
	if (ret < 0)
		return err_context(e, "%s/%s", a->config->ui_dir, name);
	strcpy(f->name, name);
	f->type = type_of(name);
	set_etag(f);
	return 0;
}

int ui_load(struct api *a, struct err *e)
{
	const char *path = a->config->ui_dir;
	struct dirent *entry;
	int ret = 0;

	if (!path[0])
		return 0;
	DIR *dir = opendir(path);
	if (!dir && errno == ENOENT) {
		log_warn("the page /ui/ is not served: there is no folder %s (ui_dir)", path);
		return 0;
	}
	if (!dir)
		return err_set(e, errno, "open the folder %s (ui_dir)", path);
	a->ui = must_alloc(UI_FILES_MAX * sizeof(*a->ui));
	while (ret == 0 && (entry = readdir(dir)))
		if (type_of(entry->d_name))
			ret = add_file(a, dirfd(dir), entry->d_name, e);
	closedir(dir);
	return ret;
}

void ui_free(struct api *a)
{
	for (size_t i = 0; i < a->n_ui; i++)
		free(a->ui[i].data);
	free(a->ui);
}

/* --- serving -------------------------------------------------------------------------------- */

#define PREFIX "/ui"

/* Returns what follows /ui in the request's path, without the query; NULL for other paths. */
static const char *rest_of_path(const struct request *r, size_t *len)
{
	h2o_iovec_t path = r->req->input.path;
	const char *at = path.base, *end = at + path.len;
	const char *query = memchr(at, '?', path.len);
	const char *authority = route_authority(at, path.len, len);
	const size_t prefix = strlen(PREFIX);

	if (query)
		end = query;
	if (authority)
		at = authority + *len;
	if ((size_t)(end - at) < prefix || memcmp(at, PREFIX, prefix) != 0)
		return NULL;
	at += prefix;
	*len = (size_t)(end - at);
	return !*len || *at == '/' ? at : NULL;
}

bool ui_is_for(const struct request *r)
{
	size_t len;

	return rest_of_path(r, &len) != NULL;
}

static const struct ui_file *find(const struct api *a, const char *name, size_t len)
{
	static const char index[] = "index.html";

	if (!len) {
		name = index;
		len = strlen(index);
	}
	for (size_t i = 0; i < a->n_ui; i++)
		if (strlen(a->ui[i].name) == len && memcmp(a->ui[i].name, name, len) == 0)
			return &a->ui[i];
	return NULL;
}

static bool reads(const struct request *r)
{
	h2o_iovec_t method = r->req->input.method;

	return request_is_head(r) || h2o_memis(method.base, method.len, H2O_STRLIT("GET"));
}

/* If-None-Match has one tag or several, each perhaps with W/ before it. A tag of another file would
 * need the same digest. */
static bool is_known(const struct request *r, const struct ui_file *f)
{
	const h2o_iovec_t *tags = request_header(r, "if-none-match");

	return tags && memmem(tags->base, tags->len, f->etag, strlen(f->etag));
}

void ui_serve(struct request *r)
{
	const struct ui_file *f;
	size_t len;
	const char *rest = rest_of_path(r, &len);

	if (!reads(r)) {
		answer_header(r, "allow", "GET, HEAD");
		answer_error(r, 405, "method_not_allowed", "this path allows only GET, HEAD");
		return;
	}
	if (!len && r->api->n_ui) {
		answer_header(r, "location", "ui/");
		answer_status(r, 308);
		return;
	}
	f = len ? find(r->api, rest + 1, len - 1) : NULL;
	if (!f) {
		answer_error(r, 404, "no_such_route", "the page /ui/ has no such file%s",
			     r->api->n_ui ? "" : ": the setting ui_dir names no folder with files");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(headers); i++)
		answer_header(r, headers[i][0], headers[i][1]);
	answer_header(r, "etag", f->etag);
	if (is_known(r, f))
		answer_status(r, 304);
	else
		answer_file(r, f->type, f->data, f->len);
}
