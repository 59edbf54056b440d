// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/etcd/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "orchestrator/etcd/wire.h"

#define CONNECT_MS   2000L
#define KEEPALIVE_S  10L
#define ENDPOINT_MAX 300

/* One request: libcurl's handle, and the part of the answer that has arrived. */
struct transfer {
	CURL *curl;
	struct text body, got;
	char reason[CURL_ERROR_SIZE];
	bool running;
	CURLcode result; /* valid once the transfer has ended */
};

struct etcd {
	struct etcd_options o;
	size_t n, at; /* number of members, the one in use */
	size_t step;  /* from a member that fails to the next */
	CURLM *multi;
	struct curl_slist *headers;
	struct transfer call, watch;
	struct err watch_error; /* the error that on_line returned; code 0: none */
	bool came;		/* the watch has received a line */
};

const char *etcd_endpoint(const struct etcd *c)
{
	return c->o.endpoints[c->at];
}

/* --- answers ---------------------------------------------------------------------------------- */

static size_t on_answer(char *p, size_t size, size_t n, void *arg)
{
	struct transfer *t = arg;

	if (size * n > ETCD_ANSWER_MAX - t->got.len)
		return 0; /* libcurl then fails the transfer */
	text_add(&t->got, p, size * n);
	return size * n;
}

/* Passes the complete lines to on_line, and keeps the incomplete rest. */
static int take_lines(struct etcd *c)
{
	struct text *got = &c->watch.got;
	char *start = got->p, *end = got->p + got->len, *newline;
	int ret = 0;

	while (ret == 0 && (newline = memchr(start, '\n', (size_t)(end - start)))) {
		c->came = true;
		ret = c->o.on_line(c->o.arg, start, (size_t)(newline - start), &c->watch_error);
		start = newline + 1;
	}
	got->len = (size_t)(end - start);
	memmove(got->p, start, got->len);
	return ret;
}

static size_t on_watch(char *p, size_t size, size_t n, void *arg)
{
	struct etcd *c = arg;
	size_t taken = on_answer(p, size, n, &c->watch);
	long status = 0;

	/* The body of a refusal is one text, which watch_ended reads. */
	curl_easy_getinfo(c->watch.curl, CURLINFO_RESPONSE_CODE, &status);
	if (taken != size * n || (taken && status == 200 && take_lines(c) < 0))
		return 0;
	return taken;
}

/* --- transfers -------------------------------------------------------------------------------- */

static bool set_up(struct etcd *c, struct transfer *t, curl_write_callback fn, void *arg)
{
	CURL *h = t->curl = curl_easy_init();
	CURLcode r = h ? curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "https") : CURLE_OUT_OF_MEMORY;

	r = r ? r : curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	r = r ? r : curl_easy_setopt(h, CURLOPT_PROXY, "");
	r = r ? r : curl_easy_setopt(h, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	r = r ? r : curl_easy_setopt(h, CURLOPT_CAINFO, c->o.ca);
	r = r ? r : curl_easy_setopt(h, CURLOPT_CAPATH, NULL);
	r = r ? r : curl_easy_setopt(h, CURLOPT_SSLCERT, c->o.cert);
	r = r ? r : curl_easy_setopt(h, CURLOPT_SSLKEY, c->o.key);
	r = r ? r : curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	r = r ? r : curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L);
	r = r ? r : curl_easy_setopt(h, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_S);
	r = r ? r : curl_easy_setopt(h, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_S);
	/* With HTTP/2, the watch and all requests would share one connection and stall together. */
	r = r ? r : curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	r = r ? r : curl_easy_setopt(h, CURLOPT_HTTPHEADER, c->headers);
	r = r ? r : curl_easy_setopt(h, CURLOPT_ERRORBUFFER, t->reason);
	r = r ? r : curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, fn);
	r = r ? r : curl_easy_setopt(h, CURLOPT_WRITEDATA, arg);
	return r == CURLE_OK;
}

static void stop(struct etcd *c, struct transfer *t)
{
	if (t->running)
		curl_multi_remove_handle(c->multi, t->curl);
	t->running = false;
	t->got.len = 0;
}

/* `body`: NULL for a GET. */
static int start(struct etcd *c, struct transfer *t, const char *path, const struct text *body,
		 struct err *e)
{
	char url[ENDPOINT_MAX + 64];

	stop(c, t);
	snprintf(url, sizeof(url), "%s%s", etcd_endpoint(c), path);
	t->reason[0] = '\0';
	t->body.len = 0;
	if (body)
		text_add(&t->body, body->p, body->len);
	CURLcode r = curl_easy_setopt(t->curl, CURLOPT_URL, url);
	r = r ? r : curl_easy_setopt(t->curl, body ? CURLOPT_POST : CURLOPT_HTTPGET, 1L);
	if (body) {
		r = r ? r : curl_easy_setopt(t->curl, CURLOPT_POSTFIELDS, t->body.p);
		r = r ? r : curl_easy_setopt(t->curl, CURLOPT_POSTFIELDSIZE, (long)t->body.len);
	}
	if (r != CURLE_OK || curl_multi_add_handle(c->multi, t->curl) != CURLM_OK)
		return err_say(e, EINVAL, "libcurl does not accept the URL %.150s", url);
	t->running = true;
	return 0;
}

/* Waits for at most `ms` until there is something to do, then lets libcurl work. Returns whether
 * the descriptor `wake` can be read. */
static bool work(struct etcd *c, uint32_t ms, int wake)
{
	struct curl_waitfd waiting = {.fd = wake, .events = CURL_WAIT_POLLIN};
	int running, left;
	CURLMsg *msg;

	curl_multi_poll(c->multi, &waiting, wake >= 0, (int)ms, NULL);
	curl_multi_perform(c->multi, &running);
	while ((msg = curl_multi_info_read(c->multi, &left))) {
		struct transfer *t = msg->easy_handle == c->call.curl ? &c->call : &c->watch;

		if (msg->msg != CURLMSG_DONE)
			continue;
		t->result = msg->data.result;
		t->running = false;
		curl_multi_remove_handle(c->multi, t->curl);
	}
	return waiting.revents != 0;
}

/* Returns 0 after a transfer with the status 200, otherwise -errno with *e filled. */
static int outcome(struct etcd *c, struct transfer *t, struct err *e)
{
	long status = 0;

	if (t->result != CURLE_OK)
		return err_say(e, EAGAIN, "%s",
			       t->reason[0] ? t->reason : curl_easy_strerror(t->result));
	curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
	return status == 200 ? 0 : etcd_failure_read(status, t->got.p, t->got.len, e);
}

/* --- calls ------------------------------------------------------------------------------------ */

static int call_once(struct etcd *c, const char *path, const struct text *body, struct text *answer,
		     struct err *e)
{
	const uint64_t deadline = boottime_ms() + ETCD_CALL_MS;
	uint64_t now;

	if (start(c, &c->call, path, body, e) < 0)
		return e->code;
	work(c, 0, -1);
	while (c->call.running && (now = boottime_ms()) < deadline)
		work(c, (uint32_t)(deadline - now), -1);
	int ret = c->call.running ? err_say(e, EAGAIN, "no answer within %d s", ETCD_CALL_MS / 1000)
				  : outcome(c, &c->call, e);
	if (ret < 0) {
		stop(c, &c->call);
		return err_context(e, "etcd at %s", etcd_endpoint(c));
	}
	*answer = c->call.got;
	c->call.got = (struct text){0};
	return 0;
}

int etcd_call(struct etcd *c, const char *path, const struct text *body, struct text *answer,
	      struct err *e)
{
	int ret = -EAGAIN;

	for (size_t i = 0; i < c->n && ret == -EAGAIN; i++) {
		ret = call_once(c, path, body, answer, e);
		if (ret != -EAGAIN)
			return ret;
		stop(c, &c->watch);
		c->at = (c->at + c->step) % c->n;
	}
	return ret;
}

int etcd_ask(struct etcd *c, size_t at, const char *path, struct text *answer, struct err *e)
{
	c->at = at;
	return call_once(c, path, NULL, answer, e);
}

/* --- the watch -------------------------------------------------------------------------------- */

int etcd_watch(struct etcd *c, const struct text *body, struct err *e)
{
	c->watch_error.code = 0;
	int ret = start(c, &c->watch, "/v3/watch", body, e);
	if (ret == 0)
		work(c, 0, -1);
	return ret;
}

bool etcd_watches(const struct etcd *c)
{
	return c->watch.running;
}

/* Stays with this member, since a watch may end without a fault of the member: the next call finds
 * out whether it works. */
static void watch_ended(struct etcd *c)
{
	struct err e = c->watch_error;

	if (e.code == 0 && outcome(c, &c->watch, &e) == 0)
		snprintf(e.text, sizeof(e.text), "the answer ended");
	log_info("the watch of etcd at %s ended (%s): starting another one", etcd_endpoint(c),
		 e.text);
}

void etcd_wait(struct etcd *c, uint32_t ms, int wake)
{
	const bool watched = c->watch.running;
	const uint64_t deadline = boottime_ms() + ms;
	bool woken = false;
	uint64_t now;

	c->came = false;
	while (!c->came && !woken && c->watch.running == watched &&
	       (now = boottime_ms()) < deadline)
		woken = work(c, (uint32_t)(deadline - now), wake);
	if (watched && !c->watch.running)
		watch_ended(c);
}

/* --- life ------------------------------------------------------------------------------------- */

static int check_endpoints(struct etcd *c, struct err *e)
{
	for (; c->o.endpoints[c->n]; c->n++) {
		const char *url = c->o.endpoints[c->n];

		if (strncmp(url, "https://", 8) != 0 || strlen(url) > ENDPOINT_MAX)
			return err_say(e, EINVAL,
				       "endpoint of etcd \"%.100s\": it must be like "
				       "https://10.0.0.1:2379",
				       url);
	}
	return c->n ? 0 : err_say(e, EINVAL, "no endpoint of etcd is set");
}

int etcd_new(struct etcd **out, const struct etcd_options *options, struct err *e)
{
	struct etcd *c = calloc(1, sizeof(*c));
	uint32_t chance;

	if (!c)
		return err_set(e, ENOMEM, "set up a client of etcd");
	c->o = *options;
	int ret = check_endpoints(c, e);
	if (ret == 0) {
		c->headers = curl_slist_append(NULL, "Content-Type: application/json");
		c->multi = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_multi_init()
									     : NULL;
		if (!c->headers || !c->multi || !set_up(c, &c->call, on_answer, &c->call) ||
		    !set_up(c, &c->watch, on_watch, c))
			ret = err_say(e, ENOMEM, "libcurl cannot be set up");
	}
	if (ret < 0) {
		etcd_free(c);
		return ret;
	}
	/* Begins with a random member, and goes through them in a random direction. So the hosts
	 * spread over the members, and those whose member fails spread over the others. */
	random_bytes(&chance, sizeof(chance));
	c->at = c->n ? chance % c->n : 0;
	c->step = chance >> 31 ? 1 : c->n - 1;
	*out = c;
	return 0;
}

void etcd_free(struct etcd *c)
{
	if (!c)
		return;
	if (c->multi) {
		stop(c, &c->call);
		stop(c, &c->watch);
	}
	curl_easy_cleanup(c->call.curl);
	curl_easy_cleanup(c->watch.curl);
	curl_multi_cleanup(c->multi);
	curl_slist_free_all(c->headers);
	text_free(&c->call.body);
	text_free(&c->call.got);
	text_free(&c->watch.body);
	text_free(&c->watch.got);
	free(c);
}
