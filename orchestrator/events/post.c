// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/events/post.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/events/sign.h"

#define CONNECT_LIMIT_MS 10000L
#define LIMIT_MS	 30000L

struct post {
	CURL *curl;
	const struct config *config;
	char reason[CURL_ERROR_SIZE];
};

/* Ignores the answer's body. */
static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
	return size * n;
}

static bool set_up(struct post *p, const char *url)
{
	CURL *c = p->curl;
	CURLcode r = curl_easy_setopt(c, CURLOPT_URL, url);

	/* Does not follow redirects: the operator chooses the address, not the receiver. */
	r = r ? r : curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	r = r ? r : curl_easy_setopt(c, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
	r = r ? r : curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	r = r ? r : curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_LIMIT_MS);
	r = r ? r : curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, LIMIT_MS);
	r = r ? r : curl_easy_setopt(c, CURLOPT_USERAGENT, "ramet/" RAMET_VERSION);
	r = r ? r : curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	r = r ? r : curl_easy_setopt(c, CURLOPT_ERRORBUFFER, p->reason);
	r = r ? r : curl_easy_setopt(c, CURLOPT_POST, 1L);
	return r == CURLE_OK;
}

int post_new(struct post **out, const struct config *config, const char *url, struct err *e)
{
	struct post *p = must_alloc(sizeof(*p));

	p->config = config;
	p->curl = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_easy_init() : NULL;
	if (!p->curl || !set_up(p, url)) {
		free(p);
		return err_say(e, EINVAL, "libcurl does not accept the URL %.100s", url);
	}
	*out = p;
	return 0;
}

static bool add_header(struct curl_slist **list, const char *name, const char *value)
{
	char text[192];

	snprintf(text, sizeof(text), "%s: %s", name, value);
	struct curl_slist *longer = curl_slist_append(*list, text);
	if (longer)
		*list = longer;
	return longer != NULL;
}

static bool add_signature(struct curl_slist **list, const struct post *p,
			  const struct audit_line *head, const char *line, size_t len)
{
	char signature[SIGNATURE_MAX];

	sign(signature, p->config->webhook_secret, time(NULL), line, len);
	return add_header(list, "Ramet-Event", head->name) &&
	       add_header(list, "Ramet-Delivery", head->id) &&
	       add_header(list, "Ramet-Signature", signature);
}

static int send_now(struct post *p, const char *line, size_t len, struct curl_slist *headers,
		    struct err *e)
{
	long status = 0;

	p->reason[0] = '\0';
	curl_easy_setopt(p->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(p->curl, CURLOPT_POSTFIELDS, line);
	curl_easy_setopt(p->curl, CURLOPT_POSTFIELDSIZE, (long)len);
	CURLcode r = curl_easy_perform(p->curl);
	curl_easy_setopt(p->curl, CURLOPT_HTTPHEADER, NULL);
	if (r != CURLE_OK)
		return err_say(e, EIO, "%s", p->reason[0] ? p->reason : curl_easy_strerror(r));
	curl_easy_getinfo(p->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status < 200 || status > 299)
		return err_say(e, EIO, "the receiver answered %ld", status);
	return 0;
}

int post_send(struct post *p, const struct audit_line *head, const char *body, size_t len,
	      struct err *e)
{
	struct curl_slist *headers = NULL;
	int r;

	if (add_header(&headers, "Content-Type", "application/json") &&
	    (!head || add_signature(&headers, p, head, body, len)))
		r = send_now(p, body, len, headers, e);
	else
		r = err_set(e, ENOMEM, "make the headers of a %s", head ? "webhook" : "request");
	curl_slist_free_all(headers);
	return r;
}
