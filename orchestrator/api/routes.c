// SPDX-License-Identifier: Apache-2.0
#include "base/fd.h"
#include "orchestrator/api/internal.h"

/* test/api checks that openapi.json lists exactly these. */
const struct route routes[] = {
	{"GET", "/v1/healthz", .serve = serve_healthz, .quiet = true, .for_anyone = true},
	{"GET", "/v1/openapi.json", .serve = serve_openapi},
	{"GET", "/metrics", .serve = serve_metrics, .quiet = true},
	{"POST", "/v1/sandboxes", .serve = serve_create},
	{"GET", "/v1/sandboxes", .serve = serve_list},
	{"GET", "/v1/sandboxes/{id}", .serve = serve_info},
	{"DELETE", "/v1/sandboxes/{id}", .serve = serve_delete},
	{"POST", "/v1/sandboxes/{id}/exec", .serve = serve_exec},
	{"POST", "/v1/sandboxes/{id}/interrupt", .serve = serve_interrupt},
	{"GET", "/v1/sandboxes/{id}/replay", .serve = serve_replay},
	{"POST", "/v1/sandboxes/{id}/fork", .serve = serve_fork},
	{"POST", "/v1/sandboxes/{id}/merge_into/{winner}", .serve = serve_merge},
	{"POST", "/v1/sandboxes/{id}/diff/{other}", .serve = serve_diff},
};

const size_t n_routes = ARRAY_LEN(routes);
