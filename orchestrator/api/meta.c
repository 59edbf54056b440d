// SPDX-License-Identifier: Apache-2.0
/* Routes about the service itself. */
#include "orchestrator/api/internal.h"

void serve_healthz(struct request *r)
{
	if (!core_ready(r->api->core)) {
		answer_retry_after(r, 1);
		answer_error(r, 503, "not_ready", "%s", core_trouble(r->api->core));
		return;
	}
	text_puts(&r->out, "ok");
	answer(r, 200, "text/plain; charset=utf-8");
}

void serve_openapi(struct request *r)
{
	text_add(&r->out, openapi_json, (size_t)(openapi_json_end - openapi_json));
	answer(r, 200, "application/json");
}

void serve_metrics(struct request *r)
{
	access_metrics(r->api, &r->out);
	answer(r, 200, "text/plain; version=0.0.4; charset=utf-8");
}
