// SPDX-License-Identifier: Apache-2.0
/* Private declarations of this room. */
#ifndef RAMET_ORCHESTRATOR_API_INTERNAL_H
#define RAMET_ORCHESTRATOR_API_INTERNAL_H
#include <h2o.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/log.h"
#include "orchestrator/api/client.h"
#include "orchestrator/api/list-filter.h"
#include "orchestrator/api/idempotency.h"
#include "orchestrator/api/rate.h"
#include "orchestrator/api/route.h"
#include "orchestrator/api/server.h"
#include "orchestrator/api/spec.h" /* generated from openapi.json */
#include "orchestrator/api/text.h"
#include "orchestrator/api/trace.h"
#include "orchestrator/service/core.h"
#include "orchestrator/config/failure.h"
#include "orchestrator/exec/event.h"
#include "orchestrator/store/keys.h"
#include "proto/agent.h"

#define STREAM_PAUSE_SIZE (64u << 10) /* bytes of gathered output at which a stream is paused */
#define ACCESS_LOG_SIZE	  (32u << 10)

#define HISTOGRAM_BUCKETS 16
#define ERROR_CODES	  128

/* A client that resets RESETS_MAX requests within RESETS_WINDOW_MS is disconnected: an HTTP/2 reset
 * costs it nothing, while the work that the request started here continues. */
#define RESETS_MAX	 200
#define RESETS_WINDOW_MS 10000

/* Limits of the server. They are variable only for tests. */
extern struct api_limits {
	uint32_t read_ms;    /* for a client to send a whole request; for an idle connection */
	uint32_t body_rate;  /* bytes per second of a body that is passed on: see body_tick */
	uint32_t write_ms;   /* for a client to take some of the output that waits for it */
	uint32_t silence_ms; /* without output before an empty line is sent in a stream */
	uint32_t tick_ms;
	size_t connections;	/* maximum of open connections */
	size_t requests;	/* in flight on all connections: each holds some 10 KiB */
	size_t answers_bytes;	/* waiting for readers; above it no long answer is begun, and no
				 * long event is added to a stream */
	size_t bodies_bytes;	/* in flight; above it only short bodies are accepted */
	size_t read_here_bytes; /* of a body; above it a worker parses it */
	size_t reading_bytes;	/* of bodies that wait for workers */
} api_limits;

/* Limits per second, from the settings of the same names. */
enum limit {
	LIMIT_CONNECTIONS, /* client_connections_s */
	LIMIT_REQUESTS,	   /* client_requests_s */
	LIMIT_FAILURES,	   /* client_failures_s */
	LIMIT_TENANT,	   /* tenant_requests_s */
	LIMITS
};

struct conn {
	struct list link;
	struct api *api;
	h2o_socket_t *sock;
	struct client peer;
	bool local;   /* from this machine, or through a listener that only this machine reaches */
	bool proxied; /* from one of trusted_proxies */
	unsigned requests; /* in flight on it */
	bool cut;
	unsigned resets;
	uint64_t resets_since_ms;
};

struct counters {
	uint64_t (*requests)[6]; /* by route (the last row: no route), and by the status's first
				    digit */
	uint64_t connections, bytes_sent, resets_cut, stalled_cut, spans_dropped;
	uint64_t limited[LIMITS];
	struct histogram {
		uint64_t bucket[HISTOGRAM_BUCKETS + 1], count;
		double seconds;
	} times[TIMED_KINDS];
	struct {
		const char *code;
		uint64_t count;
	} errors[ERROR_CODES];
	size_t n_errors;
};

struct api {
	struct loop *loop;
	struct core *core;
	const struct config *config;

	h2o_globalconf_t h2o_config;
	h2o_context_t h2o;
	h2o_accept_ctx_t accept;
	h2o_socket_t *listener; /* NULL once draining */
	bool accept_paused;
	bool loopback; /* the listener has a loopback address */
	unsigned port;

	struct list conns; /* least recently active first */
	size_t n_conns;
	uint64_t full_logged_ms; /* when the log last reported too many connections; 0: never */
	struct list live;	 /* requests that have not ended */
	size_t n_live;
	struct list dirty;   /* streams to flush this turn */
	struct list tunnels; /* connections that have changed their protocol (port-tunnel.c) */
	struct loop_timer tick;

	bool draining;
	void (*drained)(void *arg);
	void *drained_arg;
	struct loop_timer drain_limit;

	size_t reading_bytes; /* of bodies that wait for workers */
	struct rate rates[LIMITS];
	struct idem idem; /* answers to requests with an Idempotency-Key */
	struct list left; /* requests whose call continues although nobody waits for the answer */
	uint64_t limited_logged_ms[LIMITS]; /* when the log last reported the limit; 0: never */
	struct ui_file *ui;		    /* the files of the web page */
	size_t n_ui;
	struct counters counters;
	int spans;		/* socket to ramet-notify; -1: spans are not sent */
	api_watch_fn *watch_fn; /* NULL: no further counters */
	void *watch_arg;
	size_t log_len;
	char log[ACCESS_LOG_SIZE];
};

/* Adds at most `most` entries of r->pages.page to `out`, calling pages_comma before each. Returns
 * false when no more are left. */
struct request;
typedef bool pages_fn(struct request *r, size_t most);

/* The first bytes of a character whose rest a process has not printed yet. */
struct output_tail {
	uint8_t bytes[4], len, stream;
	uint64_t place; /* of the first byte in the process's output */
};

/* A body that is passed on as it arrives. */
struct body_stream {
	uint64_t left;	    /* bytes that have not arrived; AGENT_UNSIZED: unknown */
	uint64_t bytes;	    /* that have arrived */
	uint64_t asked_ms;  /* when the next part was asked for; 0: it was not */
	uint64_t waited_ms; /* for the client, in all */
};

/* A list that is being sent. */
struct pages {
	struct list_name list;
	struct list_page page; /* the entries still to send */
	pages_fn *add;
	struct list_filter filter; /* of sandboxes */
	unsigned rejected;	   /* entries that the filter rejected in this turn */
	bool begun;		   /* an entry was added */
	bool more;		   /* there is a next chunk to gather */
	struct loop_timer turn;
};

/*
 * One request, from its arrival until h2o has released it and no callback is outstanding. Output is
 * gathered in `out` and given to h2o one chunk at a time, from `sending`.
 */
struct request {
	struct api *api;
	h2o_req_t *req;	   /* NULL once h2o has released it */
	struct conn *conn; /* valid as long as `req` */
	const struct route *route;
	struct client from;
	bool local;		  /* from this machine, and no header says otherwise */
	bool offers_key;	  /* the client sent a key, and keys exist */
	enum key_verdict verdict; /* verdict on the key */
	const struct key *key;	  /* the valid key; NULL: none was sent, or no keys exist */
	const char *tenant;	  /* NULL: unknown */
	/* Ids from the path: `other` is of a sandbox, a process or a terminal. */
	char id[SANDBOX_ID_LEN + 1], other[SANDBOX_ID_LEN + 1];
	unsigned refs; /* held by h2o, a call, a body being read, the poll */
	struct list link, dirty_link;
	uint64_t began_us;
	char traceparent[TRACEPARENT_LEN + 1]; /* empty: none was sent, or an invalid one */
	struct trace_parent parent;	       /* what it says */
	struct span *span;		       /* NULL: none is recorded */

	h2o_generator_t generator; /* its callbacks find the request through it */
	struct text out, sending;
	size_t reserved; /* bytes of an answer that a worker writes */
	size_t bytes;
	int status;
	bool started;	   /* h2o has the head of the answer */
	bool head_due;	   /* the head is sent even if no output follows soon */
	bool in_flight;	   /* h2o has `sending` */
	bool ended;	   /* `out` is the end of the answer */
	bool broken;	   /* the answer is cut off after `out` */
	bool finished;	   /* h2o has the whole answer */
	uint64_t moved_ms; /* when h2o was last given output, or asked for more */

	atomic_bool unwanted; /* h2o has released the request; workers read this */

	struct loop_op *peer_poll; /* HTTP/1: detects that the client left */

	struct core_call *call;
	bool streaming;		  /* the answer is streamed NDJSON */
	bool hangup;		  /* what it streams ends when the client leaves */
	bool paused;		  /* core was asked to pause the call */
	bool made_program;	  /* `other` is a program that this request has started */
	bool ranged;		  /* get: the answer is a range of the file */
	bool cut_short;		  /* list of files: there are more than its limit */
	bool limited;		  /* refused by limit_request */
	struct idem_entry *keyed; /* has an Idempotency-Key and is not answered yet */
	struct list left_link;
	struct pages pages;
	struct output_tail tail; /* of a process's stream */
	struct body_stream body;
	struct port_proxy *port; /* it is for a server in a sandbox; else NULL */
};

/* --- request.c: life cycle and answers ------------------------------------------------------ */

struct request *request_new(struct api *a, h2o_req_t *req);
void request_ref(struct request *r);
/* Returns true when both have the same tenant. The tenant of `r` must be known. */
bool request_same_tenant(const struct request *r, const struct request *other);
void request_unref(struct request *r);
/* Protocol for a call to core: take a reference before starting it, and begin its last callback
 * with request_called. That function drops the reference, and returns false when the request is
 * gone and nothing is left to do. */
bool request_called(struct request *r);
/* Like request_called, and answers a failure. Returns true when the call succeeded and its result
 * is to be answered. */
bool request_called_well(struct request *r, const struct failure *f);
/* Abandons the request's call, whose result is not needed any more, unless keyed_continues. */
void request_leave_call(struct request *r);
/* core_done_fn of a request that is answered 204 on success. */
void request_done(void *arg, const struct failure *f);
/* core_done_fn of a request whose entries are in `out`, as a JSON array that is not closed yet. */
void request_listed(void *arg, const struct failure *f);
/* core_create_fn: answers with the new sandbox. */
void request_created(void *arg, const struct sandbox_view *view, const struct failure *f);
bool request_is_head(const struct request *r);
const h2o_iovec_t *request_header(const struct request *r, const char *name);
uint64_t now_us(void);

void answer_status(struct request *r, int status);
/* Answers with a head only, as for a HEAD. `length`: size of the body that a GET would get;
 * SIZE_MAX: unknown. */
void answer_head(struct request *r, int status, const char *content_type, size_t length);
/* Answers with the text of `out`. */
void answer(struct request *r, int status, const char *content_type);
/* Answers 200 with bytes that live as long as the API, without a copy. */
void answer_file(struct request *r, const char *content_type, const void *data, size_t len);
void answer_error(struct request *r, int status, const char *code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Answers a failure of core. A 500 has an id that is in the log as well. */
void answer_failure(struct request *r, const struct failure *f);
/* Returns false, with 503 or 429 answered, when too much output already waits for slow readers. */
bool answer_may_be_long(struct request *r);
/* The same for an answer that took long to get, and has `len` bytes: others may have used the room
 * that there was at the start. Short ones always have room. */
bool answer_has_room(struct request *r, size_t len);
/* Adds a header. Call it before the function that answers. */
void answer_header(struct request *r, const char *name, const char *value);
void answer_retry_after(struct request *r, unsigned seconds);

/* Answers a HEAD for a stream of a sandbox. Returns false when the request is none. */
bool stream_is_head(struct request *r);
/* Sends the head of a stream that is not NDJSON, before its first output. `length` as above. */
void stream_begin(struct request *r, int status, const char *content_type, size_t length);
/* Like stream_begin, for the answer of a server in a sandbox. `reason` must live as long as the
 * request; the headers are set already. */
void stream_begin_as(struct request *r, int status, const char *reason, size_t length);
/* Schedules gathered output, which is sent before the loop sleeps. If the answer was not begun yet,
 * it begins with status 200 and the type NDJSON. */
void stream_touch(struct request *r);
/* Returns true when an event with `len` bytes of data may be added to the stream. Otherwise too
 * much output waits for slow readers: leaves the call, which continues, and cuts the stream off
 * after the output that it has. */
bool stream_takes(struct request *r, size_t len);
/* Pauses the stream's call when too much output is gathered. */
void stream_hold(struct request *r);
/* Ends the stream with the gathered output. `broken`: the client must notice that it is cut off. */
void stream_end(struct request *r, bool broken);
/* Like request_called, for a call that failed: answers the failure if nothing of the stream was
 * sent yet. Returns true when the failure must be reported in the stream. */
bool stream_called_late(struct request *r, const struct failure *f);

/* Ends the request and its HTTP/1 connection, with this answer if none was begun. */
void request_cut(struct request *r, int status, const char *code, const char *reason);
/* Must follow on the function that serves the request. If a call is in flight then, gives it the
 * request's key, and has the client's end detected at once, not at the next tick: the core undoes
 * what an abandoned call made, if only its client would have known of it. Does so for each route
 * that changes something, so that none can forget it. */
void request_began(struct request *r);
/* Watches for the client's end. */
void request_watch(struct request *r);
/* Ends that watch, before h2o hands over the connection. */
void request_unwatch(struct request *r);
/* Called once a second for each live request: handles silence, stalled readers and clients that
 * left. */
void request_tick(struct request *r, uint64_t now_ms);
void api_flush(void *arg); /* the loop's before_sleep */

/* --- status.c ------------------------------------------------------------------------------- */

/* Returns the HTTP status of a failure of core. `code` is not FAIL_NONE. */
int failure_status(enum failure_code code);

/* --- pages.c: lists ------------------------------------------------------------------------- */

#define PAGE_MAX 1000 /* maximum of entries in a page */

/* Answers with the list: the page at ?cursor= with ?limit= entries, or all of it. The texts in
 * `list` must live as long as the request. */
void serve_pages(struct request *r, const struct list_name *list, pages_fn *add);
void pages_comma(struct request *r);
/* Called when the client took a chunk: gathers the next. */
void pages_continue(struct request *r);
void pages_stop(struct request *r);
/* Reads ?limit= to *limit, cut to PAGE_MAX; leaves *limit unchanged when absent. Returns false,
 * with an answer given, when it is invalid. */
bool ask_limit(struct request *r, size_t *limit);
/* Reads ?cursor=. Returns the length of its key, 0 when it is absent, or -EINVAL, with an answer
 * given, when it is invalid. */
int ask_cursor(struct request *r, char kind, void *key, size_t room);
/* Adds the header with the cursor of the next page. Called before the answer, when there is such a
 * page. */
void answer_next(struct request *r, char kind, const void *key, size_t len);

/* --- body.c --------------------------------------------------------------------------------- */

typedef void body_fn(struct request *r, const void *values);
/*
 * Reads the body's fields, for example into a struct create_body for `create_json`, and calls
 * `serve` with them: now, or later for a large body. Does not call it when the body is invalid,
 * which is answered, or when the request has ended.
 */
void body_read(struct request *r, const struct json_body *kind, body_fn *serve);

/* --- body-stream.c: bodies that are passed on as they arrive ----------------------------------
 */

struct file_data;
/* h2o's should_stream_entity. */
int body_streams(h2o_req_t *req);
/* Returns the body as data for a call to core whose argument is `r`: all of it, if it was received,
 * else as it arrives, which begins with that call. */
struct file_data body_data(struct request *r);
/* Ends a request whose client is too slow. */
void body_tick(struct request *r, uint64_t now_ms);

/* --- server.c ------------------------------------------------------------------------------- */

void api_request_began(struct api *a, struct request *r);
void api_request_ended(struct api *a, struct request *r);

/* --- listen.c ------------------------------------------------------------------------------- */

/* Load the certificate, if TLS is configured, and open the listener. Both return 0, or -errno with
 * a text for the operator. */
int listen_load_tls(struct api *a, struct err *e);
int listen_start(struct api *a, struct err *e);
void listen_stop(struct api *a);
/* Returns the connection of a request. */
struct conn *conn_of(h2o_req_t *req);
/* Counts a new request on its connection, and returns the connection. conn_ended must be called
 * when the request ends. */
struct conn *conn_began(h2o_req_t *req);
void conn_ended(struct conn *c);
void conn_cut(struct conn *c);
void conn_count_reset(struct conn *c);

/* --- limit.c: rate limits ------------------------------------------------------------------- */

void limit_init(struct api *a);
/* Returns whether a connection from `peer` may begin now. */
bool limit_connection(struct api *a, const struct client *peer, bool local);
/* Returns false, with 429 answered, when the client or its tenant has sent too many requests. Call
 * it after guard_identify. */
bool limit_request(struct request *r);

/* --- keyed.c: idempotent requests --------------------------------------------------------------
 */

/* Handles the request's Idempotency-Key, if there is one. Returns false when the request was
 * answered: with the first answer to this key, or with a refusal. */
bool keyed_begin(struct request *r);
/* Remembers the gathered output as the answer if `status` is 2xx. With any other status (0: no
 * answer) the key can be used again. Does nothing to a request without a key. */
void keyed_answered(struct request *r, int status);
/* Has the core record the request's key, if it has one, with what r->call makes. To be called once,
 * before the loop's next turn. */
void keyed_called(struct request *r);
/* Returns whether the call must continue although nobody waits for the answer; if so, adds the
 * request to api.left. */
bool keyed_continues(struct request *r);
/* Abandons the calls that continue, and drops all answers. */
void keyed_close(struct api *a);
/* Prepares a->idem, with the answers that previous instances of the service gave. Returns 0, or
 * -errno with *e filled. */
int keyed_load(struct api *a, struct err *e);
/* Add the body of an answer: to a create or resume, a fork, and a freeze. */
void text_created(struct text *t, const struct config *config, const char *id, const char *state);
void text_forked(struct text *t, const struct core_forked *forked);
void text_frozen(struct text *t, const char *space);

/* --- guard.c: access control ---------------------------------------------------------------- */

/* Sets the request's tenant, if it has a valid key. */
void guard_identify(struct request *r);
/* Returns whether the client may see the host's problems: it has an operator's key or, while there
 * are no keys, is a program of this machine. */
bool guard_is_operator(const struct request *r);
/* Returns false when the request was refused and answered; otherwise the tenant is set. */
bool guard_admits(struct request *r);
/* Ends the requests in flight whose keys were revoked. */
void guard_cut_revoked(struct api *a);
/* Finds the key in an Authorization header's value. Returns false when there is none. */
bool guard_bearer(const char *value, size_t len, const char **key, size_t *key_len);
/* Returns whether a Host header's value is an address, localhost, or the host of `endpoint`. */
bool guard_host_is_ours(const char *host, size_t len, const char *endpoint);

/* --- ui.c: the web page --------------------------------------------------------------------- */

struct ui_file;
/* Reads the files of ui_dir. A folder that is missing has none. Returns 0, or -errno with *e
 * filled. */
int ui_load(struct api *a, struct err *e);
void ui_free(struct api *a);
/* Returns whether the request is for the page or one of its files. */
bool ui_is_for(const struct request *r);
void ui_serve(struct request *r);

/* --- access.c: the access log ------------------------------------------------------------------
 */

/* Returns the loggable part of a request's target: without query and authority, which may contain
 * secrets, and cut to a maximum length. */
h2o_iovec_t access_path(h2o_iovec_t path);
void access_log_request(struct api *a, const struct request *r);
/* Logs an answer that h2o gave by itself. */
void access_log_refused(struct api *a, h2o_req_t *req);
void access_flush(struct api *a);

/* --- metrics.c ------------------------------------------------------------------------------ */

void metrics_time(struct api *a, enum timed timed, uint64_t us);
/* `code` must be a string constant. */
void metrics_error(struct api *a, const char *code);
void metrics_print(struct api *a, struct text *out);

/* --- events.c ------------------------------------------------------------------------------- */

/* Adds one line of NDJSON. `traceparent` may be NULL. */
void event_line(struct text *t, const struct event *ev, const char *traceparent);

/* --- files.c: query parameters; false, with an answer given, for an invalid one --------------- */

bool ask_path(struct request *r, char path[static AGENT_PATH_MAX + 1]);
bool ask_mode(struct request *r, uint32_t *mode);
bool ask_flag(struct request *r, const char *name, bool *flag);
/* Leaves *n unchanged when the parameter is absent. */
bool ask_number(struct request *r, const char *name, uint64_t *n);

/* Adds "KEY":"NAME", and "KEY_b64" with the exact bytes if the name is not UTF-8. */
void add_name(struct text *t, const char *key, const char *name, size_t len);
/* Cuts off an answer and logs the reason, which cannot be sent to the client after the head of the
 * answer. */
void break_off(struct request *r, const struct failure *f);
/* Adds bytes of a file or archive to the answer, which begins with the first of them. */
void stream_file(struct request *r, const char *type, const void *data, size_t len);
/* Ends such an answer: f is why it is not complete, or NULL. */
void end_file(struct request *r, const char *type, const struct failure *f);

/* The value before json_read of an optional bool in a uint8_t. */
#define NOT_SAID 2
static inline enum change change_of(uint8_t said)
{
	return said == NOT_SAID ? CHANGE_NONE : said ? CHANGE_TRUE : CHANGE_FALSE;
}

/* openapi.c */
extern const char openapi_json[], openapi_json_end[];

#endif
