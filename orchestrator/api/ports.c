// SPDX-License-Identifier: Apache-2.0
/* Routes about shared ports. */
#include <string.h>

#include "orchestrator/api/handler.h"
#include "orchestrator/http/dispatch.h"
#include "orchestrator/ports/port-target.h"

/* --- links ---------------------------------------------------------------------------------- */

/* Adds the URL at which clients reach the API. */
static void add_api_url(struct text *t, const struct request *r)
{
	const struct config *config = r->config;
	h2o_iovec_t host = r->req->input.authority;

	if (config->endpoint[0]) {
		size_t len = strlen(config->endpoint);

		if (!strstr(config->endpoint, "://"))
			text_puts(t, "https://");
		text_add(t, config->endpoint, len - (config->endpoint[len - 1] == '/'));
		return;
	}
	text_printf(t, "%s://", request_scheme(r));
	text_add(t, host.base, host.len);
}

static void add_base(struct text *t, const struct request *r, uint16_t port)
{
	const char *domain = r->config->sandbox_domain, *scheme = strstr(domain, "://");

	if (!domain[0]) {
		add_api_url(t, r);
		text_printf(t, "/v1/sandboxes/%s/ports/%u/", r->id, port);
		return;
	}
	if (scheme)
		text_add(t, domain, (size_t)(scheme - domain));
	else
		text_puts(t, "https");
	text_printf(t, "://%u-%s.%s/", port, r->id + 4, scheme ? scheme + 3 : domain);
}

static void add_share(struct text *t, const struct request *r, const struct port_share *share)
{
	struct text url = {0};

	add_base(&url, r, share->port);
	if (!share->is_public)
		text_printf(&url, "?" PORT_PARAMETER "=%s", share->token);
	text_printf(t, "{\"port\":%u,\"public\":%s,\"url\":", share->port,
		    share->is_public ? "true" : "false");
	json_string(t, url.p, url.len);
	text_printf(t, ",\"token\":\"%s\"}", share->token);
	text_free(&url);
}

static void answer_share(struct request *r, const struct port_share *share)
{
	add_share(&r->out, r, share);
	text_putc(&r->out, '\n');
	answer(r, 200, "application/json");
}

/* --- routes --------------------------------------------------------------------------------- */

static uint16_t port_of(const struct request *r)
{
	return port_number(r->other, strlen(r->other));
}

void serve_port_share(struct request *r, const struct port_access_body *b)
{
	struct port_share made;
	struct failure f;

	if (service_port_share(r->service, r->tenant, r->id, port_of(r), change_of(b->public),
			       &made, &f))
		answer_share(r, &made);
	else
		answer_failure(r, &f);
}

void serve_port_info(struct request *r)
{
	struct port_share found;
	struct failure f;

	if (service_port_shared(r->service, r->tenant, r->id, port_of(r), &found, &f))
		answer_share(r, &found);
	else
		answer_failure(r, &f);
}

void serve_port_unshare(struct request *r)
{
	struct failure f;

	if (service_port_unshare(r->service, r->tenant, r->id, port_of(r), &f))
		answer_status(r, 204);
	else
		answer_failure(r, &f);
}

static void add_to_list(void *arg, const struct port_share *share)
{
	struct request *r = arg;

	text_putc(&r->out, r->out.len ? ',' : '[');
	add_share(&r->out, r, share);
}

void serve_ports(struct request *r)
{
	struct failure f;

	if (!service_port_shares(r->service, r->tenant, r->id, add_to_list, r, &f)) {
		answer_failure(r, &f);
		return;
	}
	text_puts(&r->out, r->out.len ? "]\n" : "[]\n");
	answer(r, 200, "application/json");
}
