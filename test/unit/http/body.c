// SPDX-License-Identifier: Apache-2.0
/* Bodies that a worker parses, whatever happens to the request meanwhile. Only body.c is linked;
 * this test provides everything else, including the worker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/http/body.c" /* NOLINT(bugprone-suspicious-include) */

struct http_limits http_limits = {.read_here_bytes = 8, .reading_bytes = 64};

static struct http http;
static h2o_req_t req;
static struct exchange x;
static struct request *const r = &x.r;
static int status;
static uint32_t served; /* the field's value */
static unsigned n_served, n_jobs, n_watched;
static bool no_worker;
static struct job {
	void (*work)(void *arg);
	void (*done)(void *arg);
	void *arg;
} jobs[4];

void request_ref(struct request *request)
{
	exchange(request)->refs++;
}

void request_unref(struct request *request)
{
	exchange(request)->refs--;
}

void request_watch(struct request *request)
{
	n_watched++;
}

void request_began(struct request *request)
{
}

void answer_retry_after(struct request *request, unsigned seconds)
{
}

void answer_error(struct request *request, int http_status, const char *code, const char *format,
		  ...)
{
	status = http_status;
	request->started = true;
}

int loop_work(struct loop *l, enum loop_pool pool, void (*work)(void *arg), void (*done)(void *arg),
	      void *arg)
{
	if (no_worker)
		return -ENOMEM;
	jobs[n_jobs++] = (struct job){work, done, arg};
	return 0;
}

struct values {
	uint32_t n;
	struct json_text text;
};

static const struct json_field fields[] = {
	{"n", JSON_WHOLE, offsetof(struct values, n), 0, 1000, false, NULL, NULL, 0},
	{"text", JSON_TEXT, offsetof(struct values, text), 0, 1000, false, NULL, NULL, 0},
};

static const struct values initial = {.n = 7};
static const struct json_body kind = {fields, ARRAY_LEN(fields), &initial, sizeof(initial)};

static void serve(struct request *request, const void *values)
{
	served = ((const struct values *)values)->n;
	n_served++;
}

/* Passes the body to body_read, and frees its bytes at once, as the end of a request does. */
static void read_body(const char *body)
{
	size_t len = strlen(body);
	char *bytes = malloc(len ? len : 1);

	memcpy(bytes, body, len);
	r->req = &req;
	r->started = false;
	r->unwanted = false;
	req.entity = h2o_iovec_init(bytes, len);
	body_read(r, &kind, serve);
	free(bytes);
}

static void end_request(void)
{
	r->req = NULL;
	r->unwanted = true;
}

static int set_up(void **state)
{
	http = (struct http){0};
	req = (h2o_req_t){0};
	memset(&x, 0, sizeof(x));
	r->http = &http;
	status = 0;
	n_served = n_jobs = n_watched = 0;
	no_worker = false;
	return 0;
}

static void assert_nothing_is_held(void)
{
	assert_int_equal(x.refs, 0);
	assert_int_equal(http.reading_bytes, 0);
}

static void small_body_is_read_at_once(void **state)
{
	read_body("{\"n\":3}");
	assert_int_equal(n_served, 1);
	assert_int_equal(served, 3);
	read_body("{");
	assert_int_equal(status, 400);
	read_body("");
	assert_int_equal(served, 7);
	assert_int_equal(n_jobs, 0);
	assert_nothing_is_held();
}

static void large_body_is_read_by_a_worker_from_a_copy(void **state)
{
	read_body("{\"n\": 3, \"text\": \"long\"}");
	assert_int_equal(n_jobs, 1);
	assert_int_equal(n_watched, 1);
	jobs[0].work(jobs[0].arg);
	assert_int_equal(n_served, 0);
	jobs[0].done(jobs[0].arg);
	assert_int_equal(n_served, 1);
	assert_int_equal(served, 3);
	assert_nothing_is_held();
}

static void invalid_large_body_is_refused(void **state)
{
	read_body("{\"n\": 3, \"text\": 4}");
	jobs[0].work(jobs[0].arg);
	jobs[0].done(jobs[0].arg);
	assert_int_equal(status, 400);
	assert_int_equal(n_served, 0);
	assert_nothing_is_held();
}

static void request_may_end_before_the_worker_starts(void **state)
{
	read_body("{\"n\": 3, \"text\": \"long\"}");
	end_request();
	jobs[0].work(jobs[0].arg);
	assert_int_equal(((struct body *)jobs[0].arg)->ret, -ECANCELED);
	jobs[0].done(jobs[0].arg);
	assert_int_equal(n_served, 0);
	assert_int_equal(status, 0);
	assert_nothing_is_held();
}

static void request_may_end_after_the_worker(void **state)
{
	read_body("{\"n\": 3, \"text\": \"long\"}");
	jobs[0].work(jobs[0].arg);
	end_request();
	jobs[0].done(jobs[0].arg);
	assert_int_equal(n_served, 0);
	assert_nothing_is_held();
}

static void answered_request_is_not_served(void **state)
{
	read_body("{\"n\": 3, \"text\": \"long\"}");
	jobs[0].work(jobs[0].arg);
	answer_error(r, 499, "client_gone", "gone");
	jobs[0].done(jobs[0].arg);
	assert_int_equal(n_served, 0);
	assert_int_equal(status, 499);
	assert_nothing_is_held();
}

static void too_many_large_bodies_are_refused(void **state)
{
	char large[101] = "";

	memset(large, ' ', sizeof(large) - 1);
	read_body(large); /* over the limit, but accepted: no other body is waiting */
	assert_int_equal(n_jobs, 1);
	read_body("{\"n\": 3}  ");
	assert_int_equal(n_jobs, 1);
	assert_int_equal(status, 503);
	jobs[0].done(jobs[0].arg);
	read_body("{\"n\": 3}  ");
	assert_int_equal(n_jobs, 2);
	jobs[1].work(jobs[1].arg);
	jobs[1].done(jobs[1].arg);
	assert_int_equal(served, 3);
	assert_nothing_is_held();
}

static void large_body_without_a_worker_is_refused(void **state)
{
	no_worker = true;
	read_body("{\"n\": 3}  ");
	assert_int_equal(status, 503);
	assert_int_equal(n_served, 0);
	assert_nothing_is_held();
}

#define TEST(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(small_body_is_read_at_once),
		TEST(large_body_is_read_by_a_worker_from_a_copy),
		TEST(invalid_large_body_is_refused),
		TEST(request_may_end_before_the_worker_starts),
		TEST(request_may_end_after_the_worker),
		TEST(answered_request_is_not_served),
		TEST(too_many_large_bodies_are_refused),
		TEST(large_body_without_a_worker_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
