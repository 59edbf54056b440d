// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/json/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/num.h"
#include "base/utf8.h"

/* --- syntax: checked once, byte by byte ----------------------------------------------------- */

struct in {
	const char *start, *p, *end;
	struct err *e;
	bool for_clients; /* false: for this service, whose strings have no NUL */
};

/* Characters of a number for clients: Python's parser refuses integers with over 4,300 digits. */
#define NUMBER_LEN_MAX 1000

/* A value as written in the text. */
struct span {
	const char *p, *end;
};

static int bad(struct in *in, const char *what)
{
	if (in->p >= in->end)
		return err_say(in->e, EINVAL, "the body is not JSON: it ends too early (%s)", what);
	return err_say(in->e, EINVAL, "the body is not JSON: %s at byte %zu", what,
		       (size_t)(in->p - in->start));
}

static void skip_blank(struct in *in)
{
	while (in->p < in->end &&
	       (*in->p == ' ' || *in->p == '\n' || *in->p == '\r' || *in->p == '\t'))
		in->p++;
}

static bool take(struct in *in, char c)
{
	if (in->p >= in->end || *in->p != c)
		return false;
	in->p++;
	return true;
}

/* Returns the value of four hex digits at p, or -1. */
static int hex4(const char *p, const char *end)
{
	int n = 0;

	for (int i = 0; i < 4; i++) {
		int digit = p + i < end ? hex_digit(p[i]) : -1;

		if (digit < 0)
			return -1;
		n = n << 4 | digit;
	}
	return n;
}

/* Skips the rest of an escape after "\u", including both halves of a surrogate pair. */
static int skip_unicode(struct in *in)
{
	int unit = hex4(in->p, in->end);

	if (unit < 0)
		return bad(in, "\\u without four hex digits");
	if (unit == 0 && !in->for_clients)
		return bad(in, "\\u0000 (NUL is not allowed in strings)");
	if (unit >= 0xdc00 && unit <= 0xdfff)
		return bad(in, "the second half of a surrogate pair alone");
	in->p += 4;
	if (unit < 0xd800 || unit > 0xdbff)
		return 0;
	bool escape = in->end - in->p >= 2 && in->p[0] == '\\' && in->p[1] == 'u';
	int second = escape ? hex4(in->p + 2, in->end) : -1;
	if (second < 0xdc00 || second > 0xdfff)
		return bad(in, "the first half of a surrogate pair alone");
	in->p += 6;
	return 0;
}

static int skip_escape(struct in *in)
{
	if (in->p >= in->end)
		return bad(in, "in a string");
	char c = *in->p++;
	if (c == 'u')
		return skip_unicode(in);
	if (c && strchr("\"\\/bfnrt", c))
		return 0;
	in->p--;
	return bad(in, "an unknown escape in a string");
}

/* Skips one character that is neither plain ASCII nor the closing quote. */
static int skip_special(struct in *in)
{
	unsigned char c = (unsigned char)*in->p;
	size_t unused;

	if (c == '\\') {
		in->p++;
		return skip_escape(in);
	}
	if (c < 0x20)
		return bad(in, "a control character in a string");
	size_t len =
		utf8_len((const unsigned char *)in->p, (const unsigned char *)in->end, &unused);
	if (!len)
		return bad(in, "bytes that are not UTF-8");
	in->p += len;
	return 0;
}

/* Skips a string after its opening quote. *out is the text between the quotes. */
static int skip_string(struct in *in, struct span *out)
{
	out->p = in->p;
	for (;;) {
		while (in->p < in->end && (signed char)*in->p >= 0x20 && *in->p != '"' &&
		       *in->p != '\\')
			in->p++;
		if (in->p >= in->end)
			return bad(in, "in a string");
		if (*in->p == '"')
			break;
		int ret = skip_special(in);
		if (ret < 0)
			return ret;
	}
	out->end = in->p++;
	return 0;
}

static bool skip_digits(struct in *in)
{
	const char *before = in->p;

	while (in->p < in->end && *in->p >= '0' && *in->p <= '9')
		in->p++;
	return in->p > before;
}

static int skip_number(struct in *in)
{
	const char *start = in->p;

	take(in, '-');
	if (!take(in, '0') && !skip_digits(in))
		return bad(in, "a number without digits");
	if (take(in, '.') && !skip_digits(in))
		return bad(in, "a number without digits after its decimal point");
	if (take(in, 'e') || take(in, 'E')) {
		if (!take(in, '+'))
			take(in, '-');
		if (!skip_digits(in))
			return bad(in, "a number without digits in its exponent");
	}
	if (in->for_clients && in->p - start > NUMBER_LEN_MAX)
		return bad(in, "a number with too many digits");
	return 0;
}

static int skip_word(struct in *in, const char *word)
{
	for (; *word; word++)
		if (!take(in, *word))
			return bad(in, "an unexpected character");
	return 0;
}

static int skip_value(struct in *in, int depth, struct span *out);

/* Skips a member's name and its colon. */
static int skip_name(struct in *in, struct span *name)
{
	skip_blank(in);
	if (!take(in, '"'))
		return bad(in, "a member without a name in quotes");
	int ret = skip_string(in, name);
	if (ret < 0)
		return ret;
	skip_blank(in);
	return take(in, ':') ? 0 : bad(in, "a name without a colon");
}

/* Skips the rest of an object or array after its opening bracket. */
static int skip_container(struct in *in, char close, int depth)
{
	struct span ignored;

	if (depth >= JSON_DEPTH_MAX)
		return bad(in, "objects and arrays nested deeper than 64");
	skip_blank(in);
	if (take(in, close))
		return 0;
	for (;;) {
		int ret = close == '}' ? skip_name(in, &ignored) : 0;

		if (ret < 0)
			return ret;
		ret = skip_value(in, depth + 1, &ignored);
		if (ret < 0)
			return ret;
		skip_blank(in);
		if (take(in, close))
			return 0;
		if (!take(in, ','))
			return bad(in, "neither a comma nor the closing bracket");
	}
}

/* Skips a value. *out is the whole value, with its quotes or brackets. */
static int skip_value(struct in *in, int depth, struct span *out)
{
	struct span ignored;
	int ret;

	skip_blank(in);
	if (in->p >= in->end)
		return bad(in, "a value is missing");
	out->p = in->p;
	switch (*in->p) {
	case '{':
	case '[':
		in->p++;
		ret = skip_container(in, *out->p == '{' ? '}' : ']', depth);
		break;
	case '"':
		in->p++;
		ret = skip_string(in, &ignored);
		break;
	case 't':
		ret = skip_word(in, "true");
		break;
	case 'f':
		ret = skip_word(in, "false");
		break;
	case 'n':
		ret = skip_word(in, "null");
		break;
	default:
		ret = skip_number(in);
	}
	out->end = in->p;
	return ret;
}

bool json_is_value(const char *text, size_t len, int depth)
{
	struct err unused;
	struct in in = {text, text, text + len, &unused, .for_clients = true};
	struct span value;

	if (skip_value(&in, depth, &value) < 0)
		return false;
	skip_blank(&in);
	return in.p == in.end;
}

/* --- values of checked text ----------------------------------------------------------------- */

static char *put_utf8(char *out, unsigned c)
{
	if (c < 0x80) {
		*out++ = (char)c;
	} else if (c < 0x800) {
		*out++ = (char)(0xc0 | c >> 6);
		*out++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*out++ = (char)(0xe0 | c >> 12);
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	} else {
		*out++ = (char)(0xf0 | c >> 18);
		*out++ = (char)(0x80 | (c >> 12 & 0x3f));
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	}
	return out;
}

/* Decodes an escape after "\u" and moves *p past it. */
static char *put_unicode(char *out, const char **p, const char *end)
{
	unsigned unit = (unsigned)hex4(*p, end);

	*p += 4;
	if (unit >= 0xd800 && unit <= 0xdbff) {
		unsigned second = (unsigned)hex4(*p + 2, end);

		*p += 6;
		unit = 0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
	}
	return put_utf8(out, unit);
}

/* Unescapes the text between the quotes to `out` and returns its end. `out` needs no more room than
 * the text: no escape is shorter than its character. */
static char *unescape(struct span s, char *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";

	while (s.p < s.end) {
		const char *stop = memchr(s.p, '\\', (size_t)(s.end - s.p));
		size_t run = (size_t)((stop ? stop : s.end) - s.p);

		memcpy(out, s.p, run);
		out += run;
		s.p += run;
		if (!stop)
			break;
		char c = s.p[1];
		s.p += 2;
		if (c == 'u')
			out = put_unicode(out, &s.p, s.end);
		else
			*out++ = to[strchr(from, c) - from];
	}
	return out;
}

static size_t span_len(struct span s)
{
	return (size_t)(s.end - s.p);
}

/* Returns a string value without its quotes. */
static struct span inner(struct span s)
{
	return (struct span){s.p + 1, s.end - 1};
}

static const char *kind_of(struct span v)
{
	switch (*v.p) {
	case '{':
		return "an object";
	case '[':
		return "an array";
	case '"':
		return "a string";
	case 't':
	case 'f':
		return "a boolean";
	case 'n':
		return "null";
	default:
		return "a number";
	}
}

/* For error texts: the value itself when it is short, otherwise its type. */
struct shown {
	char text[48];
};

static struct shown show(struct span v)
{
	struct shown s;
	size_t len = span_len(v);

	if (len >= sizeof(s.text) || *v.p == '{' || *v.p == '[')
		strcpy(s.text, kind_of(v));
	else {
		memcpy(s.text, v.p, len);
		s.text[len] = '\0';
	}
	return s;
}

/* --- fields --------------------------------------------------------------------------------- */

static int check_word(const struct json_field *f, const char *text, struct err *e)
{
	char all[128] = "";
	size_t len = 0;

	for (size_t i = 0; f->words[i] && len < sizeof(all); i++) {
		const char *comma = !i ? "" : f->words[i + 1] ? ", " : " or ";

		if (strcmp(text, f->words[i]) == 0)
			return 0;
		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s\"%s\"", comma,
					f->words[i]);
	}
	return err_say(e, EINVAL, "%s must be %s, not \"%s\"%s%s", f->name, all, text,
		       f->hint ? ": " : "", f->hint ? f->hint : "");
}

static int read_text(const struct json_field *f, struct span v, struct json_text *out,
		     struct err *e)
{
	if (*v.p != '"')
		return err_say(e, EINVAL, "%s must be a string, not %s", f->name, kind_of(v));
	char *p = malloc(span_len(v));
	if (!p)
		return err_set(e, ENOMEM, "allocate memory for %s", f->name);
	char *end = unescape(inner(v), p);
	*end = '\0';
	size_t len = (size_t)(end - p);
	if (len > f->max) {
		free(p);
		return err_say(e, EINVAL, "%s must be at most %.0f bytes long, not %zu", f->name,
			       f->max, len);
	}
	if (f->words && check_word(f, p, e) < 0) {
		free(p);
		return -EINVAL;
	}
	*out = (struct json_text){p, len};
	return 0;
}

static int read_chars(const struct json_field *f, struct span v, char *out, struct err *e)
{
	struct json_text text;
	int ret = read_text(f, v, &text, e);

	if (ret < 0)
		return ret;
	if (text.len < f->min)
		ret = err_say(e, EINVAL, "%s must have %.0f to %.0f bytes, not %zu", f->name,
			      f->min, f->max, text.len);
	else
		memcpy(out, text.p, text.len + 1);
	free(text.p);
	return ret;
}

/* Returns NaN when the value is not a number. */
static double number(struct span v)
{
	char digits[64];

	if (span_len(v) >= sizeof(digits) || (*v.p != '-' && (*v.p < '0' || *v.p > '9')))
		return NAN;
	memcpy(digits, v.p, span_len(v));
	digits[span_len(v)] = '\0';
	return strtod(digits, NULL);
}

static int read_name(const struct json_field *f, struct span v, struct json_text *out,
		     struct err *e)
{
	double n = *v.p == '"' ? 0 : number(v);
	char text[16];

	if (*v.p == '"')
		return read_text(f, v, out, e);
	if (!(n >= 0 && n <= UINT32_MAX) || n != floor(n))
		return err_say(e, EINVAL, "%s must be a string or a whole number, not %s", f->name,
			       show(v).text);
	snprintf(text, sizeof(text), "%.0f", n);
	*out = (struct json_text){strdup(text), strlen(text)};
	return out->p ? 0 : err_set(e, ENOMEM, "allocate memory for %s", f->name);
}

static int check_whole(const struct json_field *f, struct span v, double n, double max,
		       struct err *e)
{
	return n >= f->min && n <= max && n == floor(n)
		       ? 0
		       : err_say(e, EINVAL, "%s must be a whole number from %.0f to %.0f, not %s",
				 f->name, f->min, f->max, show(v).text);
}

static int read_whole(const struct json_field *f, struct span v, uint32_t *out, struct err *e)
{
	double n = number(v);
	int ret = check_whole(f, v, n, f->kind == JSON_CUT ? INFINITY : f->max, e);

	if (ret == 0)
		*out = (uint32_t)fmin(n, f->max);
	return ret;
}

static int read_big(const struct json_field *f, struct span v, uint64_t *out, struct err *e)
{
	double n = number(v);
	int ret = check_whole(f, v, n, f->max, e);

	if (ret == 0)
		*out = (uint64_t)n;
	return ret;
}

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes in place, since the bytes are shorter than their base64. Returns false for invalid base64
 * (RFC 4648, padding required). */
static bool decode_base64(struct json_text *t)
{
	const char *in = t->p, *end = t->p + t->len;
	uint8_t *out = (uint8_t *)t->p;
	size_t pad = 0;

	if (t->len % 4)
		return false;
	while (pad < 2 && end > in && end[-1] == '=') {
		end--;
		pad++;
	}
	for (uint32_t bits = 0, n = 0; in < end; in++) {
		int digit = base64_digit(*in);

		if (digit < 0)
			return false;
		bits = bits << 6 | (uint32_t)digit;
		n += 6;
		if (n < 8)
			continue;
		n -= 8;
		*out++ = (uint8_t)(bits >> n);
	}
	t->len = (size_t)(out - (uint8_t *)t->p);
	return true;
}

static int read_bytes(const struct json_field *f, struct span v, struct json_text *out,
		      struct err *e)
{
	struct json_field text = *f;

	text.max = ceil(f->max / 3) * 4;
	int ret = read_text(&text, v, out, e);
	if (ret < 0)
		return ret;
	bool well = decode_base64(out);
	if (well && out->len <= f->max)
		return 0;
	free(out->p);
	if (!well)
		ret = err_say(e, EINVAL, "%s must be base64 with its padding", f->name);
	else
		ret = err_say(e, EINVAL, "%s must be base64 of at most %.0f bytes, not %zu",
			      f->name, f->max, out->len);
	*out = (struct json_text){0};
	return ret;
}

static int read_millis(const struct json_field *f, struct span v, uint32_t *out, struct err *e)
{
	double n = number(v);

	if (!(n >= f->min && n <= f->max))
		return err_say(e, EINVAL, "%s must be a number from %g to %.0f, not %s", f->name,
			       f->min, f->max, show(v).text);
	*out = (uint32_t)ceil(n * 1000);
	return 0;
}

static int read_real(const struct json_field *f, struct span v, double *out, struct err *e)
{
	double n = number(v);

	if (!(n >= f->min && n <= f->max))
		return err_say(e, EINVAL, "%s must be a number from %g to %g, not %s", f->name,
			       f->min, f->max, show(v).text);
	*out = n;
	return 0;
}

static int read_bool(const struct json_field *f, struct span v, bool *out, struct err *e)
{
	if (*v.p != 't' && *v.p != 'f')
		return err_say(e, EINVAL, "%s must be true or false, not %s", f->name,
			       show(v).text);
	*out = *v.p == 't';
	return 0;
}

static int read_object(const struct json_field *f, struct span v, struct json_text *out,
		       struct err *e)
{
	if (*v.p != '{')
		return err_say(e, EINVAL, "%s must be an object, not %s", f->name, kind_of(v));
	if (span_len(v) > f->max)
		return err_say(e, EINVAL, "%s must be at most %.0f bytes of JSON, not %zu", f->name,
			       f->max, span_len(v));
	char *p = strndup(v.p, span_len(v));
	if (!p)
		return err_set(e, ENOMEM, "allocate memory for %s", f->name);
	*out = (struct json_text){p, span_len(v)};
	return 0;
}

static void free_list(char **list)
{
	for (char **at = list; list && *at; at++)
		free(*at);
	free(list);
}

/* Makes NAME=VALUE from one member. */
static int read_variable(const struct json_field *f, struct span name, struct span value,
			 char **out, struct err *e)
{
	char *p = malloc(span_len(name) + span_len(value) + 2);

	if (!p)
		return err_set(e, ENOMEM, "allocate memory for %s", f->name);
	char *end = unescape(name, p);
	*end = '\0';
	int ret = 0;
	if (end == p)
		ret = err_say(e, EINVAL, "%s contains a variable without a name", f->name);
	else if (strchr(p, '='))
		ret = err_say(e, EINVAL, "%s: the name \"%.60s\" contains a =", f->name, p);
	else if (*value.p != '"')
		ret = err_say(e, EINVAL, "%s must be an object of strings; \"%.60s\" is %s",
			      f->name, p, kind_of(value));
	if (ret < 0) {
		free(p);
		return ret;
	}
	*end++ = '=';
	*unescape(inner(value), end) = '\0';
	*out = p;
	return 0;
}

/* Reads one variable at *in, whose syntax was checked before, and makes NAME=VALUE of it. */
typedef int variable_fn(const struct json_field *f, struct in *in, char **out, struct err *e);

/* Reads the variables in the brackets of `v`; `close` is the closing bracket. */
static int read_variables(const struct json_field *f, struct span v, char close,
			  variable_fn *read_one, char ***out, struct err *e)
{
	struct in in = {v.p, v.p + 1, v.end, e, false};
	size_t n = 0;

	char **env = calloc(JSON_ENV_MAX + 1, sizeof(*env));
	if (!env)
		return err_set(e, ENOMEM, "allocate memory for %s", f->name);
	skip_blank(&in);
	while (!take(&in, close)) {
		int ret = n < JSON_ENV_MAX
				  ? read_one(f, &in, &env[n++], e)
				  : err_say(e, EINVAL, "%s contains more than %u variables",
					    f->name, JSON_ENV_MAX);
		if (ret < 0) {
			free_list(env);
			return ret;
		}
		skip_blank(&in);
		take(&in, ',');
		skip_blank(&in);
	}
	*out = env;
	return 0;
}

static int read_env_member(const struct json_field *f, struct in *in, char **out, struct err *e)
{
	struct span name, value;

	skip_name(in, &name);
	skip_value(in, 0, &value);
	return read_variable(f, name, value, out, e);
}

static int read_env(const struct json_field *f, struct span v, char ***out, struct err *e)
{
	if (*v.p != '{')
		return err_say(e, EINVAL, "%s must be an object of strings, not %s", f->name,
			       kind_of(v));
	if (span_len(v) > JSON_ENV_TEXT_MAX)
		return err_say(e, EINVAL, "%s must be at most %u bytes of JSON, not %zu", f->name,
			       JSON_ENV_TEXT_MAX, span_len(v));
	return read_variables(f, v, '}', read_env_member, out, e);
}

/* Reads an array of two strings. */
static int read_pair(const struct json_field *f, struct in *from, char **out, struct err *e)
{
	struct span v;

	skip_value(from, 0, &v);
	struct in in = {v.p, v.p + 1, v.end, e, false};
	struct span part[2];
	int n = 0;
	bool two = *v.p == '[';

	skip_blank(&in);
	while (two && !take(&in, ']')) {
		two = n < 2;
		if (!two)
			break;
		skip_value(&in, 0, &part[n]);
		two = *part[n++].p == '"';
		skip_blank(&in);
		take(&in, ',');
		skip_blank(&in);
	}
	if (!two || n != 2)
		return err_say(e, EINVAL, "%s must be an array of [name, value], each two strings",
			       f->name);
	return read_variable(f, inner(part[0]), part[1], out, e);
}

static int read_pairs(const struct json_field *f, struct span v, char ***out, struct err *e)
{
	return *v.p == '[' ? read_variables(f, v, ']', read_pair, out, e) : read_env(f, v, out, e);
}

static const char *items_of(const struct json_field *f)
{
	return f->kind == JSON_OBJECTS ? "objects" : "strings";
}

static int read_item(const struct json_field *f, struct span v, char **out, struct err *e)
{
	bool whole = f->kind == JSON_OBJECTS;

	if (*v.p != (whole ? '{' : '"'))
		return err_say(e, EINVAL, "%s must be an array of %s; one item is %s", f->name,
			       items_of(f), kind_of(v));
	char *p = whole ? strndup(v.p, span_len(v)) : malloc(span_len(v));
	if (!p)
		return err_set(e, ENOMEM, "allocate memory for %s", f->name);
	if (!whole)
		*unescape(inner(v), p) = '\0';
	*out = p;
	return 0;
}

static int read_list(const struct json_field *f, struct span v, char ***out, struct err *e)
{
	struct in in = {v.p, v.p + 1, v.end, e, false};
	struct span item;
	size_t n = 0;

	if (*v.p != '[')
		return err_say(e, EINVAL, "%s must be an array of %s, not %s", f->name, items_of(f),
			       kind_of(v));
	char **list = calloc((size_t)f->max + 1, sizeof(*list));
	if (!list)
		return err_set(e, ENOMEM, "allocate memory for %s", f->name);
	skip_blank(&in);
	while (!take(&in, ']')) {
		/* Cannot fail: the text was checked before. */
		skip_value(&in, 0, &item);
		skip_blank(&in);
		take(&in, ',');
		int ret = n < f->max ? read_item(f, item, &list[n++], e)
				     : err_say(e, EINVAL, "%s must have at most %.0f %s", f->name,
					       f->max, items_of(f));
		if (ret < 0) {
			free_list(list);
			return ret;
		}
		skip_blank(&in);
	}
	*out = list;
	return 0;
}

static int read_field(const struct json_field *f, struct span v, void *out, struct err *e)
{
	void *at = (char *)out + f->offset;

	switch (f->kind) {
	case JSON_TEXT:
		return read_text(f, v, at, e);
	case JSON_NAME:
		return read_name(f, v, at, e);
	case JSON_CHARS:
		return read_chars(f, v, at, e);
	case JSON_WHOLE:
	case JSON_CUT:
		return read_whole(f, v, at, e);
	case JSON_MILLIS:
		return read_millis(f, v, at, e);
	case JSON_REAL:
		return read_real(f, v, at, e);
	case JSON_BOOL:
		return read_bool(f, v, at, e);
	case JSON_BIG:
		return read_big(f, v, at, e);
	case JSON_BYTES:
		return read_bytes(f, v, at, e);
	case JSON_PAIRS:
		return read_pairs(f, v, at, e);
	case JSON_OBJECT:
		return read_object(f, v, at, e);
	case JSON_ENV:
		return read_env(f, v, at, e);
	case JSON_LIST:
	case JSON_OBJECTS:
		return read_list(f, v, at, e);
	}
	return -EINVAL;
}

static const struct json_field *field_named(struct span name, const struct json_field *fields,
					    size_t n_fields)
{
	char text[6 * 32];

	if (span_len(name) > sizeof(text))
		return NULL;
	size_t len = (size_t)(unescape(name, text) - text);
	for (size_t i = 0; i < n_fields; i++)
		if (strlen(fields[i].name) == len && memcmp(fields[i].name, text, len) == 0)
			return &fields[i];
	return NULL;
}

/* Reads one member of the body's object. */
static int read_member(struct in *in, const struct json_field *fields, size_t n_fields,
		       uint32_t *seen, void *out)
{
	struct span name, value;
	int ret = skip_name(in, &name);

	if (ret < 0)
		return ret;
	ret = skip_value(in, 1, &value);
	if (ret < 0)
		return ret;
	const struct json_field *f = field_named(name, fields, n_fields);
	if (!f)
		return 0;
	if (*seen & 1u << (f - fields))
		return err_say(in->e, EINVAL, "%s is given twice", f->name);
	if (*value.p == 'n')
		return 0;
	*seen |= 1u << (f - fields);
	return read_field(f, value, out, in->e);
}

static int read_members(struct in *in, const struct json_field *fields, size_t n_fields,
			uint32_t *seen, void *out)
{
	skip_blank(in);
	if (take(in, '}'))
		return 0;
	for (;;) {
		int ret = read_member(in, fields, n_fields, seen, out);

		if (ret < 0)
			return ret;
		skip_blank(in);
		if (take(in, '}'))
			return 0;
		if (!take(in, ','))
			return bad(in, "neither a comma nor the closing bracket");
	}
}

static int read_body(struct in *in, const struct json_field *fields, size_t n_fields, void *out)
{
	uint32_t seen = 0;

	skip_blank(in);
	if (in->p < in->end && *in->p != '{') {
		struct span v;
		int ret = skip_value(in, 0, &v);

		return ret < 0 ? ret
			       : err_say(in->e, EINVAL, "the body must be a JSON object, not %s",
					 kind_of(v));
	}
	if (take(in, '{')) {
		int ret = read_members(in, fields, n_fields, &seen, out);

		if (ret < 0)
			return ret;
		skip_blank(in);
		if (in->p < in->end)
			return bad(in, "data after the object's end");
	}
	for (size_t i = 0; i < n_fields; i++)
		if (fields[i].required && !(seen & 1u << i))
			return err_say(in->e, EINVAL, "%s is missing", fields[i].name);
	return 0;
}

int json_read(const char *body, size_t len, const struct json_field *fields, size_t n_fields,
	      void *out, struct err *e)
{
	if (!body) /* no body was sent; len is 0 */
		body = "";
	struct in in = {body, body, body + len, e, false};
	int ret = read_body(&in, fields, n_fields, out);

	if (ret < 0)
		json_free(fields, n_fields, out);
	return ret;
}

/* --- flat objects ---------------------------------------------------------------------------- */

/* Returns the text of a string without its quotes, owned. */
static struct json_text text_of(struct span s)
{
	char *p = must_alloc(span_len(s) + 1);

	return (struct json_text){p, (size_t)(unescape(s, p) - p)};
}

static void add_member(struct json_flat *flat, struct span name, struct span value)
{
	struct json_member *m = &flat->members[flat->n++];

	m->name = text_of(name);
	m->is_string = *value.p == '"';
	m->value = text_of(m->is_string ? inner(value) : value);
}

/* Enters a valid object, for next_member. */
static struct in members_of(const char *text, size_t len, struct err *e)
{
	struct in in = {text, text, text + len, e, false};

	skip_blank(&in);
	take(&in, '{');
	return in;
}

/* Reads the next member of a valid object. Returns false when there are no more. */
static bool next_member(struct in *in, struct span *name, struct span *value)
{
	skip_blank(in);
	take(in, ',');
	skip_blank(in);
	return !take(in, '}') && skip_name(in, name) == 0 && skip_value(in, 1, value) == 0;
}

/* Returns whether the text is one JSON object and nothing else. */
static bool is_object(const char *text, size_t len)
{
	struct err syntax; /* replaced by the caller's sentence, which is clearer */
	struct in in = {text, text, text + len, &syntax, false};
	struct span all;

	if (skip_value(&in, 0, &all) < 0 || *all.p != '{')
		return false;
	skip_blank(&in);
	return in.p == in.end;
}

/* Returns false for anything but a flat object. */
static bool read_flat(const char *text, size_t len, struct json_flat *out)
{
	struct span name, value;
	struct err syntax;

	if (!is_object(text, len))
		return false;
	for (struct in in = members_of(text, len, &syntax); next_member(&in, &name, &value);) {
		if (out->n == JSON_FLAT_MAX || *value.p == '{' || *value.p == '[')
			return false;
		add_member(out, name, value);
	}
	return true;
}

int json_flat_read(struct json_flat *out, const char *name, const char *text, size_t len,
		   struct err *e)
{
	*out = (struct json_flat){0};
	if (read_flat(text, len, out))
		return 0;
	json_flat_free(out);
	return err_say(e, EINVAL,
		       "%s must be a JSON object of up to %u strings, numbers, bools and nulls",
		       name, JSON_FLAT_MAX);
}

void json_flat_free(struct json_flat *flat)
{
	for (size_t i = 0; i < flat->n; i++) {
		free(flat->members[i].name.p);
		free(flat->members[i].value.p);
	}
	flat->n = 0;
}

static bool text_is(struct span s, const struct json_text *text)
{
	if (!memchr(s.p, '\\', span_len(s)))
		return span_len(s) == text->len && !memcmp(s.p, text->p, text->len);
	struct json_text plain = text_of(s);
	bool equal = plain.len == text->len && !memcmp(plain.p, text->p, text->len);
	free(plain.p);
	return equal;
}

static bool is_integer(struct span s)
{
	for (const char *p = s.p + (*s.p == '-'); p < s.end; p++)
		if (*p < '0' || *p > '9')
			return false;
	return true;
}

/* Integers are compared as written, because a double has only 53 bits. */
static bool numbers_equal(struct span a, struct span b)
{
	double x = number(a), y = number(b); /* NaN for other kinds */

	return isfinite(x) && isfinite(y) && !(is_integer(a) && is_integer(b)) && !(x < y) &&
	       !(x > y);
}

static bool value_is(struct span s, const struct json_member *m)
{
	const struct span wanted = {m->value.p, m->value.p + m->value.len};

	if (m->is_string || *s.p == '"')
		return m->is_string && *s.p == '"' && text_is(inner(s), &m->value);
	return (span_len(s) == m->value.len && !memcmp(s.p, m->value.p, m->value.len)) ||
	       numbers_equal(s, wanted);
}

bool json_has(const char *text, size_t len, const struct json_flat *wanted)
{
	struct err syntax;
	struct in in = members_of(text, len, &syntax);
	bool found[JSON_FLAT_MAX] = {0};
	struct span name, value;
	size_t n = 0;

	while (n < wanted->n && next_member(&in, &name, &value)) {
		for (size_t i = 0; i < wanted->n; i++) {
			const struct json_member *m = &wanted->members[i];

			if (found[i] || !text_is(name, &m->name) || !value_is(value, m))
				continue;
			found[i] = true;
			n++;
		}
	}
	return n == wanted->n;
}

void json_free(const struct json_field *fields, size_t n_fields, void *out)
{
	for (size_t i = 0; i < n_fields; i++) {
		void *at = (char *)out + fields[i].offset;

		enum json_kind kind = fields[i].kind;

		if (kind == JSON_TEXT || kind == JSON_NAME || kind == JSON_OBJECT ||
		    kind == JSON_BYTES) {
			struct json_text *text = at;

			free(text->p);
			*text = (struct json_text){0};
		} else if (kind == JSON_ENV || kind == JSON_PAIRS || kind == JSON_LIST ||
			   kind == JSON_OBJECTS) {
			char ***list = at;

			free_list(*list);
			*list = NULL;
		}
	}
}
