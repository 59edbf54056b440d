// SPDX-License-Identifier: Apache-2.0
/* The output of /metrics, in the text format of Prometheus. */
#include <string.h>

#include "orchestrator/api/internal.h"
#include "orchestrator/api/route.h"
#include "orchestrator/http/counters.h"

static void metric(struct text *t, const char *name, const char *type, const char *help,
		   uint64_t value)
{
	text_printf(t, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, type, name,
		    (unsigned long long)value);
}

static void request_metrics(const struct counters *c, struct text *t)
{
	text_puts(t, "# HELP ramet_http_requests_total Requests answered, by route and class of "
		     "status.\n# TYPE ramet_http_requests_total counter\n");
	for (size_t i = 0; i <= n_routes; i++)
		for (int class = 1; class < 6; class ++) {
			if (!c->requests[i][class])
				continue;
			text_printf(t,
				    "ramet_http_requests_total{method=\"%s\",route=\"%s\",status="
				    "\"%dxx\"} %llu\n",
				    i < n_routes ? routes[i].method : "",
				    i < n_routes ? routes[i].pattern : "", class,
				    (unsigned long long)c->requests[i][class]);
		}
}

static void limit_metrics(const struct counters *c, struct text *t)
{
	static const char *const names[LIMITS] = {
		[LIMIT_CONNECTIONS] = "client_connections_s",
		[LIMIT_REQUESTS] = "client_requests_s",
		[LIMIT_FAILURES] = "client_failures_s",
		[LIMIT_TENANT] = "tenant_requests_s",
	};

	text_puts(t, "# HELP ramet_http_limited_total Connections and requests refused, by the "
		     "setting that limits them.\n# TYPE ramet_http_limited_total counter\n");
	for (int i = 0; i < LIMITS; i++)
		text_printf(t, "ramet_http_limited_total{limit=\"%s\"} %llu\n", names[i],
			    (unsigned long long)c->limited[i]);
}

static void histogram(const struct histogram *h, const char *name, const char *help, struct text *t)
{
	uint64_t below = 0;

	text_printf(t, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		below += h->bucket[i];
		text_printf(t, "%s_bucket{le=\"%g\"} %llu\n", name, histogram_bucket_s[i],
			    (unsigned long long)below);
	}
	text_printf(t, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", name,
		    (unsigned long long)h->count, name, h->seconds, name,
		    (unsigned long long)h->count);
}

static void time_metrics(const struct counters *c, struct text *t)
{
	histogram(&c->times[TIMED_CREATE], "ramet_create_seconds",
		  "Time of a create from its request to its answer.", t);
	histogram(&c->times[TIMED_FORK], "ramet_fork_seconds",
		  "Time of a fork from its request to its answer.", t);
	histogram(&c->times[TIMED_RESUME], "ramet_resume_seconds",
		  "Time of a resume from its request to its answer.", t);
	histogram(&c->times[TIMED_EXEC], "ramet_exec_seconds",
		  "Time of a call from its request to its exit event.", t);
}

static void error_metrics(const struct counters *c, struct text *t)
{
	text_puts(t, "# HELP ramet_errors_total Requests answered with an error, by its code.\n"
		     "# TYPE ramet_errors_total counter\n");
	for (size_t i = 0; i < c->n_errors; i++)
		text_printf(t, "ramet_errors_total{code=\"%s\"} %llu\n", c->errors[i].code,
			    (unsigned long long)c->errors[i].count);
}

static void snapshot_metrics(const struct service_stats *f, struct text *t)
{
	metric(t, "ramet_forks_total", "counter", "Forks made, each with any number of children.",
	       f->forks);
	metric(t, "ramet_fork_failures_total", "counter", "Forks that failed.", f->fork_failures);
	metric(t, "ramet_merges_total", "counter", "Merges made.", f->merges);
	metric(t, "ramet_freezes_total", "counter", "Sandboxes frozen to Spaces.", f->freezes);
	metric(t, "ramet_freeze_failures_total", "counter", "Freezes that failed.",
	       f->freeze_failures);
	metric(t, "ramet_resumes_total", "counter", "Spaces resumed.", f->resumes);
	metric(t, "ramet_resume_failures_total", "counter", "Resumes that failed.",
	       f->resume_failures);
	metric(t, "ramet_spaces", "gauge", "Current number of Spaces.", f->spaces);
	metric(t, "ramet_spaces_bytes", "gauge", "Bytes of disk that Spaces take.",
	       f->spaces_bytes);
	metric(t, "ramet_spaces_damaged", "gauge", "Spaces whose checksums are wrong.",
	       f->spaces_damaged);
	metric(t, "ramet_spaces_lost", "gauge",
	       "Spaces on the disk that are missing from the catalogue.", f->spaces_lost);
}

static void tree_metrics(const struct service_stats *f, struct text *t)
{
	metric(t, "ramet_trees", "gauge", "Current number of trees with a budget.", f->trees);
	metric(t, "ramet_tree_waits", "gauge", "Forks that wait for room in their trees.",
	       f->tree_waits);
	metric(t, "ramet_tree_refusals_total", "counter",
	       "Forks and resumes that the budget of a tree refused.", f->tree_refusals);
	metric(t, "ramet_tree_ends_total", "counter",
	       "Sandboxes that ended because of the budget of their tree.", f->tree_ends);
}

static void state_metrics(const struct service_stats *f, struct text *t)
{
	text_printf(t,
		    "# HELP ramet_sandboxes_by_state Current number of sandboxes, by state.\n"
		    "# TYPE ramet_sandboxes_by_state gauge\n"
		    "ramet_sandboxes_by_state{state=\"ready\"} %llu\n"
		    "ramet_sandboxes_by_state{state=\"running\"} %llu\n"
		    "ramet_sandboxes_by_state{state=\"adopting\"} %llu\n",
		    (unsigned long long)f->ready, (unsigned long long)f->running,
		    (unsigned long long)f->adopting);
	metric(t, "ramet_output_held_bytes", "gauge",
	       "Bytes of memory for sandboxes' output: replay, and lines that have not "
	       "ended.",
	       f->output_held_bytes);
	metric(t, "ramet_output_dropped_bytes_total", "counter",
	       "Bytes of events dropped from the replay early because all output exceeded its "
	       "budget.",
	       f->output_dropped_bytes);
	metric(t, "ramet_ends_unrecorded", "gauge",
	       "Sandboxes whose end is not in the catalogue yet: each keeps a VM slot.",
	       f->ends_unrecorded);
	metric(t, "ramet_vm_slots_retired", "gauge",
	       "VM slots that are not used, because starting a VM in them crashed the warden "
	       "twice.",
	       f->slots_retired);
	metric(t, "ramet_memory_private_bytes", "gauge",
	       "Bytes of private memory of sandboxes' VMs, measured some seconds ago.",
	       f->memory.private_bytes);
	metric(t, "ramet_memory_shared_bytes", "gauge",
	       "Bytes of snapshots that sandboxes' VMs map, counted for each VM.",
	       f->memory.shared_bytes);
	metric(t, "ramet_disk_free_bytes", "gauge", "Free bytes on the disk of state_dir.",
	       f->disk_free_bytes);
}

static void watch_metrics(const struct api_watched *w, struct text *t)
{
	metric(t, "ramet_log_lines_dropped_total", "counter",
	       "Lines dropped from the service's log because the reader was too slow.",
	       w->log_dropped);
	metric(t, "ramet_audit_lines_total", "counter", "Events added to the audit log.",
	       w->events);
	metric(t, "ramet_webhooks_delivered_total", "counter",
	       "Webhooks delivered since rametd was started.", w->webhooks_delivered);
	metric(t, "ramet_webhooks_failures_total", "counter",
	       "Attempts to deliver a webhook that failed.", w->webhooks_failures);
	metric(t, "ramet_webhooks_dropped_total", "counter",
	       "Webhooks that were given up after retries.", w->webhooks_dropped);
	metric(t, "ramet_spans_sent_total", "counter",
	       "Spans that the collector at otlp_url has accepted.", w->spans_sent);
	metric(t, "ramet_spans_dropped_total", "counter",
	       "Spans dropped because the collector was too slow, or refused them.",
	       w->spans_dropped);
	metric(t, "ramet_webhooks_behind", "gauge",
	       "Lines of the audit log that ramet-notify has not processed.", w->webhooks_behind);
}

static void service_metrics(const struct service_stats *f, struct text *t)
{
	metric(t, "ramet_sandboxes", "gauge", "Current number of sandboxes.", f->sandboxes);
	metric(t, "ramet_creates_total", "counter", "Sandboxes created.", f->creates);
	metric(t, "ramet_create_failures_total", "counter", "Creates that failed.",
	       f->create_failures);
	metric(t, "ramet_execs_total", "counter", "Calls of exec started.", f->execs);
	metric(t, "ramet_vm_deaths_total", "counter", "VMs that died unexpectedly.", f->vm_deaths);
	metric(t, "ramet_file_calls_total", "counter", "Operations on files started.",
	       f->file_calls);
	metric(t, "ramet_file_failures_total", "counter", "Operations on files that failed.",
	       f->file_failures);
	metric(t, "ramet_file_bytes_in_total", "counter", "Bytes of files written into guests.",
	       f->file_bytes_in);
	metric(t, "ramet_file_bytes_out_total", "counter", "Bytes of files read from guests.",
	       f->file_bytes_out);
	metric(t, "ramet_ptys_total", "counter", "Terminals started.", f->ptys);
	metric(t, "ramet_pty_bytes_in_total", "counter", "Bytes typed into terminals.",
	       f->pty_bytes_in);
	metric(t, "ramet_pty_bytes_out_total", "counter",
	       "Bytes of terminals' output, counted for each listener.", f->pty_bytes_out);
	metric(t, "ramet_processes_total", "counter", "Processes started.", f->processes);
	metric(t, "ramet_process_bytes_in_total", "counter",
	       "Bytes written to processes' standard input.", f->process_bytes_in);
	metric(t, "ramet_process_bytes_out_total", "counter",
	       "Bytes of processes' output, counted for each listener.", f->process_bytes_out);
	metric(t, "ramet_operations", "gauge", "Operations on files and processes in flight.",
	       f->operations);
	metric(t, "ramet_listeners", "gauge", "Listeners to processes and terminals.",
	       f->listeners);
	metric(t, "ramet_port_connections", "gauge", "Open connections to servers in sandboxes.",
	       f->port_connections);
	metric(t, "ramet_port_connects_total", "counter",
	       "Connections to servers in sandboxes that were begun.", f->port_connects);
	metric(t, "ramet_port_failures_total", "counter",
	       "Connections to servers in sandboxes that failed.", f->port_failures);
	metric(t, "ramet_port_bytes_in_total", "counter", "Bytes passed to servers in sandboxes.",
	       f->port_bytes_to_guest);
	metric(t, "ramet_port_bytes_out_total", "counter",
	       "Bytes passed from servers in sandboxes.", f->port_bytes_to_client);
	metric(t, "ramet_pool_hits_total", "counter", "Creates served by a warm sandbox.",
	       f->pool_hits);
	metric(t, "ramet_pool_misses_total", "counter", "Creates that found no warm sandbox.",
	       f->pool_misses);
	metric(t, "ramet_template_boots_total", "counter", "Snapshots of templates made.",
	       f->template_boots);
	metric(t, "ramet_sizes_unlisted_total", "counter",
	       "Snapshots made for a request, since the setting sizes does not list their size.",
	       f->sizes_unlisted);
	metric(t, "ramet_templates_building", "gauge", "Snapshots of templates being made now.",
	       f->templates_building);
	metric(t, "ramet_blank_vms_ready", "gauge", "Blank VMs in the pool.", f->blank_vms_ready);
	metric(t, "ramet_warm_ready", "gauge", "Warm sandboxes in the pool.", f->warm_ready);
	metric(t, "ramet_warm_default_ready", "gauge",
	       "Warm sandboxes of the default template and size in the pool.",
	       f->warm_default_ready);
}

void metrics_print(struct api *a, struct text *t)
{
	const struct counters *c = http_counters(a->http);
	struct service_stats stats;
	struct api_watched watched = {0};

	service_stats(a->service, &stats);
	text_puts(t,
		  "# HELP ramet_build_info Version of the service.\n# TYPE ramet_build_info gauge\n"
		  "ramet_build_info{version=\"" RAMET_VERSION "\"} 1\n");
	service_metrics(&stats, t);
	snapshot_metrics(&stats, t);
	tree_metrics(&stats, t);
	state_metrics(&stats, t);
	metric(t, "ramet_http_requests_live", "gauge", "Requests in flight.", http_live(a->http));
	metric(t, "ramet_http_connections", "gauge", "Open connections.",
	       http_connections(a->http));
	metric(t, "ramet_http_connections_total", "counter", "Connections accepted.",
	       c->connections);
	metric(t, "ramet_http_sent_bytes_total", "counter", "Bytes of answers, without headers.",
	       c->bytes_sent);
	metric(t, "ramet_http_resets_cut_total", "counter",
	       "Connections closed because the client reset too many requests.", c->resets_cut);
	metric(t, "ramet_http_stalled_cut_total", "counter",
	       "Connections and streams cut off because their clients did not read.",
	       c->stalled_cut);
	limit_metrics(c, t);
	request_metrics(c, t);
	error_metrics(c, t);
	time_metrics(c, t);
	if (a->watch_fn) {
		a->watch_fn(a->watch_arg, &watched);
		watched.spans_dropped += c->spans_dropped;
		watch_metrics(&watched, t);
	}
}
