// SPDX-License-Identifier: Apache-2.0
#include "base/fd.h"
#include "orchestrator/api/internal.h"

/* test/api checks that openapi.json lists exactly these. */
const struct route routes[] = {
	{"GET", "/v1/healthz", .serve = serve_healthz, .quiet = true, .for_anyone = true},
	{"GET", "/livez", .serve = serve_livez, .quiet = true, .for_anyone = true},
	{"GET", "/readyz", .serve = serve_readyz, .quiet = true, .for_anyone = true},
	{"GET", "/v1/openapi.json", .serve = serve_openapi},
	{"GET", "/metrics", .serve = serve_metrics, .quiet = true, .for_operators = true},
	{"GET", "/v1/templates", .serve = serve_templates},
	{"POST", "/v1/sandboxes", .serve = serve_create, .timed = TIMED_CREATE, .keyed = true},
	{"GET", "/v1/sandboxes", .serve = serve_list},
	{"GET", "/v1/sandboxes/{id}", .serve = serve_info},
	{"DELETE", "/v1/sandboxes/{id}", .serve = serve_delete},
	{"POST", "/v1/sandboxes/{id}/exec", .serve = serve_exec},
	{"POST", "/v1/sandboxes/{id}/interrupt", .serve = serve_interrupt},
	{"GET", "/v1/sandboxes/{id}/replay", .serve = serve_replay},
	{"POST", "/v1/sandboxes/{id}/fork", .serve = serve_fork, .timed = TIMED_FORK,
	 .keyed = true},
	{"POST", "/v1/sandboxes/{id}/merge_into/{winner}", .serve = serve_merge},
	{"POST", "/v1/sandboxes/{id}/diff/{other}", .serve = serve_diff},
	{"POST", "/v1/sandboxes/{id}/freeze", .serve = serve_freeze},
	{"GET", "/v1/spaces", .serve = serve_spaces},
	{"GET", "/v1/spaces/{space}", .serve = serve_space},
	{"DELETE", "/v1/spaces/{space}", .serve = serve_space_delete},
	{"POST", "/v1/spaces/{space}/resume", .serve = serve_resume, .timed = TIMED_RESUME,
	 .keyed = true, .goes_on = true},
	{"PUT", "/v1/sandboxes/{id}/files", .serve = serve_put},
	{"GET", "/v1/sandboxes/{id}/files", .serve = serve_get},
	{"DELETE", "/v1/sandboxes/{id}/files", .serve = serve_remove},
	{"GET", "/v1/sandboxes/{id}/files/list", .serve = serve_files},
	{"GET", "/v1/sandboxes/{id}/files/stat", .serve = serve_stat},
	{"POST", "/v1/sandboxes/{id}/files/mkdir", .serve = serve_mkdir},
	{"POST", "/v1/sandboxes/{id}/uploads", .serve = serve_upload},
	{"PUT", "/v1/sandboxes/{id}/uploads/{upload}", .serve = serve_upload_part},
	{"POST", "/v1/sandboxes/{id}/uploads/{upload}/commit", .serve = serve_upload_commit},
	{"DELETE", "/v1/sandboxes/{id}/uploads/{upload}", .serve = serve_upload_abort},
	{"POST", "/v1/sandboxes/{id}/pty", .serve = serve_pty_start},
	{"GET", "/v1/sandboxes/{id}/pty", .serve = serve_ptys},
	{"GET", "/v1/sandboxes/{id}/pty/{pty}/attach", .serve = serve_pty_attach},
	{"POST", "/v1/sandboxes/{id}/pty/{pty}/read", .serve = serve_pty_read},
	{"POST", "/v1/sandboxes/{id}/pty/{pty}/input", .serve = serve_pty_input},
	{"POST", "/v1/sandboxes/{id}/pty/{pty}/resize", .serve = serve_pty_resize},
	{"POST", "/v1/sandboxes/{id}/pty/{pty}/kill", .serve = serve_pty_kill},
};

const size_t n_routes = ARRAY_LEN(routes);
