// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/etcd/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/json/json.h"

/* --- requests -------------------------------------------------------------------------------- */

static void add_base64(struct text *out, const char *name, const void *p, size_t len)
{
	text_printf(out, "\"%s\":", name);
	json_base64(out, p, len);
}

static void add_key(struct text *out, const char *name, const char *key)
{
	add_base64(out, name, key, strlen(key));
}

void etcd_range_request(struct text *out, const char *from, const char *to, int64_t revision)
{
	text_putc(out, '{');
	add_key(out, "key", from);
	text_putc(out, ',');
	add_key(out, "range_end", to);
	text_printf(out, ",\"limit\":\"%d\",\"revision\":\"%" PRId64 "\"}", ETCD_PAGE, revision);
}

void etcd_put_request(struct text *out, const char *key, const struct text *value, int64_t lease,
		      int64_t revision)
{
	text_puts(out, "{\"compare\":[{\"target\":\"MOD\",\"result\":\"EQUAL\",");
	add_key(out, "key", key);
	text_printf(out, ",\"mod_revision\":\"%" PRId64 "\"}],\"success\":[{\"request_put\":{",
		    revision);
	add_key(out, "key", key);
	text_putc(out, ',');
	add_base64(out, "value", value->p, value->len);
	text_printf(out, ",\"lease\":\"%" PRId64 "\"}}],\"failure\":[{\"request_range\":{", lease);
	add_key(out, "key", key);
	text_puts(out, "}}]}");
}

void etcd_grant_request(struct text *out, uint32_t ttl_s)
{
	text_printf(out, "{\"TTL\":\"%u\"}", ttl_s);
}

void etcd_keepalive_request(struct text *out, int64_t lease)
{
	text_printf(out, "{\"ID\":\"%" PRId64 "\"}", lease);
}

void etcd_watch_request(struct text *out, const char *from, const char *to, int64_t revision)
{
	text_puts(out, "{\"create_request\":{");
	add_key(out, "key", from);
	text_putc(out, ',');
	add_key(out, "range_end", to);
	text_printf(out, ",\"start_revision\":\"%" PRId64 "\"}}", revision);
}

/* --- parts of answers ------------------------------------------------------------------------ */

#define NUMBER_MAX   20 /* digits */
#define HEADER_MAX   1024
#define SENTENCE_MAX 1000
#define EVENTS_MAX   16384

#define FIELD(type, member, kind, ...) JSON_FIELD(struct type, member, #member, kind, ##__VA_ARGS__)
#define NUMBER(type, member)	       FIELD(type, member, JSON_NAME, .max = NUMBER_MAX)

/* The gateway writes numbers of 64 bits as strings, and leaves out those that are 0. */
static int take_number(int64_t *out, const char *name, const struct json_text *text, struct err *e)
{
	*out = 0;
	for (size_t i = 0; i < text->len; i++) {
		int digit = text->p[i] - '0';

		if (digit < 0 || digit > 9 || *out > (INT64_MAX - digit) / 10)
			return err_say(e, EPROTO, "its %s is \"%s\", which is not a number", name,
				       text->p);
		*out = *out * 10 + digit;
	}
	return 0;
}

struct header {
	struct json_text revision;
};
static const struct json_field header_fields[] = {NUMBER(header, revision)};

static int take_revision(int64_t *out, const struct json_text *text, struct err *e)
{
	struct header in = {0};

	*out = 0;
	if (!text->p)
		return 0;
	int ret = json_read(text->p, text->len, header_fields, ARRAY_LEN(header_fields), &in, e);
	if (ret < 0)
		return ret;
	ret = take_number(out, "revision", &in.revision, e);
	json_free(header_fields, ARRAY_LEN(header_fields), &in);
	return ret;
}

struct kv {
	struct json_text key, value, mod_revision, lease;
};
static const struct json_field kv_fields[] = {
	FIELD(kv, key, JSON_BYTES, .min = 1, .max = ETCD_ANSWER_MAX, .required = true),
	FIELD(kv, value, JSON_BYTES, .max = ETCD_ANSWER_MAX),
	NUMBER(kv, mod_revision),
	NUMBER(kv, lease),
};

/* Checks the pair and passes it to `fn`, which may be NULL. */
static int take_pair(const struct kv *in, bool deleted, etcd_pair_fn *fn, void *arg, struct err *e)
{
	char key[ETCD_KEY_MAX + 1] = {0};
	struct etcd_pair pair = {.key = key, .deleted = deleted};

	memcpy(key, in->key.p, min_u64(in->key.len, ETCD_KEY_MAX));
	if (!key[0])
		return err_say(e, EPROTO, "a key is empty or begins with a NUL");
	/* Anybody with a certificate can write such a pair: it must not spoil the others. */
	pair.odd = strlen(key) != in->key.len || in->value.len > ETCD_VALUE_MAX;
	if (take_number(&pair.revision, "mod_revision", &in->mod_revision, e) < 0 ||
	    take_number(&pair.lease, "lease", &in->lease, e) < 0)
		return e->code;
	if (!pair.revision)
		return err_say(e, EPROTO, "the key %.100s has no mod_revision", pair.key);
	if (!deleted) {
		pair.value = in->value.p ? in->value.p : "";
		pair.value_len = min_u64(in->value.len, ETCD_VALUE_MAX);
	}
	if (fn)
		fn(arg, &pair);
	return 0;
}

static int read_pair(const char *text, size_t len, bool deleted, etcd_pair_fn *fn, void *arg,
		     struct err *e)
{
	struct kv in = {0};
	int ret = json_read(text, len, kv_fields, ARRAY_LEN(kv_fields), &in, e);

	if (ret < 0)
		return ret;
	ret = take_pair(&in, deleted, fn, arg, e);
	json_free(kv_fields, ARRAY_LEN(kv_fields), &in);
	return ret;
}

struct event {
	struct json_text type, kv;
};
static const struct json_field event_fields[] = {
	FIELD(event, type, JSON_TEXT, .max = 16),
	FIELD(event, kv, JSON_OBJECT, .max = ETCD_ANSWER_MAX, .required = true),
};

static int take_event(const struct event *in, etcd_pair_fn *fn, void *arg, struct err *e)
{
	bool deleted = in->type.p && strcmp(in->type.p, "DELETE") == 0;

	if (in->type.p && !deleted && strcmp(in->type.p, "PUT") != 0)
		return err_say(e, EPROTO, "an event has the type \"%s\"", in->type.p);
	return read_pair(in->kv.p, in->kv.len, deleted, fn, arg, e);
}

static int read_event(const char *text, size_t len, etcd_pair_fn *fn, void *arg, struct err *e)
{
	struct event in = {0};
	int ret = json_read(text, len, event_fields, ARRAY_LEN(event_fields), &in, e);

	if (ret < 0)
		return ret;
	ret = take_event(&in, fn, arg, e);
	json_free(event_fields, ARRAY_LEN(event_fields), &in);
	return ret;
}

static int read_kv(const char *text, size_t len, etcd_pair_fn *fn, void *arg, struct err *e)
{
	return read_pair(text, len, false, fn, arg, e);
}

/* Checks all objects of the list, and then passes them to `fn`. `list` is NULL if it is empty. */
static int read_all(char *const *list,
		    int (*read)(const char *, size_t, etcd_pair_fn *, void *, struct err *),
		    etcd_pair_fn *fn, void *arg, struct err *e)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && list && list[i]; i++)
		ret = read(list[i], strlen(list[i]), NULL, NULL, e);
	for (size_t i = 0; ret == 0 && list && list[i]; i++)
		ret = read(list[i], strlen(list[i]), fn, arg, e);
	return ret;
}

/* Completes an error about an answer. */
static int wrong(const char *what, struct err *e)
{
	e->code = -EPROTO;
	return err_context(e, "etcd's answer to %s cannot be used", what);
}

/* --- ranges and puts ------------------------------------------------------------------------- */

struct range {
	struct json_text header;
	char **kvs;
	bool more;
};
static const struct json_field range_fields[] = {
	FIELD(range, header, JSON_OBJECT, .max = HEADER_MAX, .required = true),
	FIELD(range, kvs, JSON_OBJECTS, .max = ETCD_PAGE),
	FIELD(range, more, JSON_BOOL),
};

static int take_range(struct etcd_range *out, const struct range *in, etcd_pair_fn *fn, void *arg,
		      struct err *e)
{
	out->more = in->more;
	if (take_revision(&out->revision, &in->header, e) < 0)
		return e->code;
	if (!out->revision)
		return err_say(e, EPROTO, "it has no revision");
	if (in->more && !(in->kvs && in->kvs[0]))
		return err_say(e, EPROTO, "more keys follow, but it has none");
	return read_all(in->kvs, read_kv, fn, arg, e);
}

static int range_read(struct etcd_range *out, const char *text, size_t len, etcd_pair_fn *fn,
		      void *arg, struct err *e)
{
	struct range in = {0};
	int ret = json_read(text, len, range_fields, ARRAY_LEN(range_fields), &in, e);

	if (ret < 0)
		return ret;
	ret = take_range(out, &in, fn, arg, e);
	json_free(range_fields, ARRAY_LEN(range_fields), &in);
	return ret;
}

int etcd_range_read(struct etcd_range *out, const char *text, size_t len, etcd_pair_fn *fn,
		    void *arg, struct err *e)
{
	int ret = range_read(out, text, len, fn, arg, e);

	return ret < 0 ? wrong("a range", e) : 0;
}

struct put {
	bool succeeded;
	char **responses;
};
static const struct json_field put_fields[] = {
	FIELD(put, succeeded, JSON_BOOL),
	FIELD(put, responses, JSON_OBJECTS, .max = 1, .required = true),
};

struct response {
	struct json_text response_range;
};
static const struct json_field response_fields[] = {
	FIELD(response, response_range, JSON_OBJECT, .max = ETCD_ANSWER_MAX, .required = true),
};

static int read_present(const char *text, etcd_pair_fn *fn, void *arg, struct err *e)
{
	struct response in = {0};
	struct etcd_range range;
	int ret =
		json_read(text, strlen(text), response_fields, ARRAY_LEN(response_fields), &in, e);

	if (ret < 0)
		return ret;
	ret = range_read(&range, in.response_range.p, in.response_range.len, fn, arg, e);
	json_free(response_fields, ARRAY_LEN(response_fields), &in);
	return ret;
}

int etcd_put_read(bool *done, const char *text, size_t len, etcd_pair_fn *fn, void *arg,
		  struct err *e)
{
	struct put in = {0};

	if (json_read(text, len, put_fields, ARRAY_LEN(put_fields), &in, e) < 0)
		return wrong("a transaction", e);
	int ret = 0;
	*done = in.succeeded;
	if (!in.succeeded && in.responses[0])
		ret = read_present(in.responses[0], fn, arg, e);
	json_free(put_fields, ARRAY_LEN(put_fields), &in);
	return ret < 0 ? wrong("a transaction", e) : 0;
}

/* --- leases ---------------------------------------------------------------------------------- */

struct lease {
	struct json_text id, ttl;
};
static const struct json_field lease_fields[] = {
	JSON_FIELD(struct lease, id, "ID", JSON_NAME, .max = NUMBER_MAX, .required = true),
	JSON_FIELD(struct lease, ttl, "TTL", JSON_NAME, .max = NUMBER_MAX),
};

static int lease_read(struct etcd_lease *out, const char *text, size_t len, struct err *e)
{
	struct lease in = {0};
	int ret = json_read(text, len, lease_fields, ARRAY_LEN(lease_fields), &in, e);

	if (ret < 0)
		return ret;
	ret = take_number(&out->id, "ID", &in.id, e);
	if (ret == 0)
		ret = take_number(&out->ttl_s, "TTL", &in.ttl, e);
	if (ret == 0 && !out->id)
		ret = err_say(e, EPROTO, "the lease has the ID 0");
	json_free(lease_fields, ARRAY_LEN(lease_fields), &in);
	return ret;
}

int etcd_grant_read(struct etcd_lease *out, const char *text, size_t len, struct err *e)
{
	int ret = lease_read(out, text, len, e);

	if (ret == 0 && !out->ttl_s)
		ret = err_say(e, EPROTO, "the lease has no TTL");
	return ret < 0 ? wrong("a request for a lease", e) : 0;
}

/* --- streams --------------------------------------------------------------------------------- */

struct line {
	struct json_text result, error;
};
static const struct json_field line_fields[] = {
	FIELD(line, result, JSON_OBJECT, .max = ETCD_ANSWER_MAX),
	FIELD(line, error, JSON_OBJECT, .max = HEADER_MAX),
};

/* Reads a line of a stream; `in` is the caller's to free on success. */
static int line_read(struct line *in, const char *text, size_t len, struct err *e)
{
	*in = (struct line){0};
	int ret = json_read(text, len, line_fields, ARRAY_LEN(line_fields), in, e);
	if (ret < 0)
		return ret;
	if (in->result.p && !in->error.p)
		return 0;
	ret = in->error.p ? err_say(e, EPROTO, "it is the error %.150s", in->error.p)
			  : err_say(e, EPROTO, "it has no result");
	json_free(line_fields, ARRAY_LEN(line_fields), in);
	return ret;
}

int etcd_keepalive_read(struct etcd_lease *out, const char *text, size_t len, struct err *e)
{
	struct line in;

	if (line_read(&in, text, len, e) < 0)
		return wrong("a keepalive", e);
	int ret = lease_read(out, in.result.p, in.result.len, e);
	json_free(line_fields, ARRAY_LEN(line_fields), &in);
	return ret < 0 ? wrong("a keepalive", e) : 0;
}

struct watch {
	struct json_text header, compact_revision;
	bool created, canceled;
	char **events;
};
static const struct json_field watch_fields[] = {
	FIELD(watch, header, JSON_OBJECT, .max = HEADER_MAX, .required = true),
	NUMBER(watch, compact_revision),
	FIELD(watch, created, JSON_BOOL),
	FIELD(watch, canceled, JSON_BOOL),
	FIELD(watch, events, JSON_OBJECTS, .max = EVENTS_MAX),
};

static int take_watch(struct etcd_change *out, const struct watch *in, etcd_pair_fn *fn, void *arg,
		      struct err *e)
{
	int64_t revision, compacted;

	if (take_revision(&revision, &in->header, e) < 0 ||
	    take_number(&compacted, "compact_revision", &in->compact_revision, e) < 0)
		return e->code;
	if (in->created && !in->canceled && !revision)
		return err_say(e, EPROTO, "it has no revision");
	*out = (struct etcd_change){.began = in->created ? revision : 0,
				    .over = in->canceled || compacted,
				    .compacted = compacted > 0};
	return read_all(in->events, read_event, fn, arg, e);
}

static int watch_read(struct etcd_change *out, const char *text, size_t len, etcd_pair_fn *fn,
		      void *arg, struct err *e)
{
	struct watch in = {0};
	int ret = json_read(text, len, watch_fields, ARRAY_LEN(watch_fields), &in, e);

	if (ret < 0)
		return ret;
	ret = take_watch(out, &in, fn, arg, e);
	json_free(watch_fields, ARRAY_LEN(watch_fields), &in);
	return ret;
}

int etcd_watch_read(struct etcd_change *out, const char *line, size_t len, etcd_pair_fn *fn,
		    void *arg, struct err *e)
{
	struct line in;

	if (line_read(&in, line, len, e) < 0)
		return wrong("a watch", e);
	int ret = watch_read(out, in.result.p, in.result.len, fn, arg, e);
	json_free(line_fields, ARRAY_LEN(line_fields), &in);
	return ret < 0 ? wrong("a watch", e) : 0;
}

/* --- failures and versions ------------------------------------------------------------------- */

/* An error of etcd: before version 3.6 with a code, from 3.6 on only a message. */
struct failed {
	struct json_text message;
	uint32_t code;
};
static const struct json_field failed_fields[] = {
	FIELD(failed, message, JSON_TEXT, .max = SENTENCE_MAX, .required = true),
	FIELD(failed, code, JSON_WHOLE, .max = 1000),
};

/* Codes of gRPC. */
enum { DEADLINE_EXCEEDED = 4, NOT_FOUND = 5, UNAVAILABLE = 14 };

int etcd_failure_read(long status, const char *text, size_t len, struct err *e)
{
	struct failed in = {0};

	if (json_read(text, len, failed_fields, ARRAY_LEN(failed_fields), &in, e) < 0)
		return err_say(e, EAGAIN, "it answered HTTP status %ld", status);
	int code = in.code == NOT_FOUND ? ENOENT
		   : in.code == DEADLINE_EXCEEDED || in.code == UNAVAILABLE || status >= 500
			   ? EAGAIN
			   : EIO;
	int ret = in.message.len
			  ? err_say(e, code, "%.200s", in.message.p)
			  : err_say(e, code, "it failed with code %u, without a message", in.code);
	json_free(failed_fields, ARRAY_LEN(failed_fields), &in);
	return ret;
}

struct version {
	char etcdserver[ETCD_VERSION_MAX + 1];
};
static const struct json_field version_fields[] = {
	FIELD(version, etcdserver, JSON_CHARS, .min = 1, .max = ETCD_VERSION_MAX, .required = true),
};

int etcd_version_read(char out[static ETCD_VERSION_MAX + 1], const char *text, size_t len,
		      struct err *e)
{
	struct version in = {0};

	if (json_read(text, len, version_fields, ARRAY_LEN(version_fields), &in, e) < 0)
		return wrong("a request for the version", e);
	memcpy(out, in.etcdserver, sizeof(in.etcdserver));
	return 0;
}

/* Parses a version such as "3.5.26", and ignores what follows it. */
static bool parse_version(const char *p, uint32_t out[3])
{
	for (int i = 0; i < 3; i++)
		if (!number_take(&p, 0, 1000000, &out[i]) || (i < 2 && *p++ != '.'))
			return false;
	return true;
}

const char *etcd_version_advice(const char *version)
{
	uint32_t v[3];

	if (!parse_version(version, v))
		return "its version is unknown: use 3.5.26 or later, or 3.6.16 or later";
	if (v[0] != 3 || v[1] < 4)
		return "it is not supported: use 3.5.26 or later, or 3.6.16 or later";
	if (v[1] == 4)
		return "it works, but its project no longer fixes it: 3.5.26 or later, or 3.6.16 "
		       "or later, is recommended";
	if ((v[1] == 5 && v[2] < 26) || (v[1] == 6 && v[2] < 16))
		return "it works, but has faults that 3.5.26 and 3.6.16 do not have: when members "
		       "are removed, and when leases are renewed";
	return NULL;
}
