// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this room. */
#ifndef RAMET_ORCHESTRATOR_API_INTERNAL_H
#define RAMET_ORCHESTRATOR_API_INTERNAL_H

#include <h2o.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/log.h"
#include "orchestrator/api/client.h"
#include "orchestrator/api/idempotency.h"
#include "orchestrator/api/rate.h"
#include "orchestrator/api/route.h"
#include "orchestrator/api/server.h"
#include "orchestrator/api/text.h"
#include "orchestrator/keys/keys.h"

#define STREAM_PAUSE_SIZE (64u << 10) /* gathered output at which a stream is paused */
#define ACCESS_LOG_SIZE	  (32u << 10)

#define HISTOGRAM_BUCKETS 16
#define ERROR_CODES	  128

/* A reset in HTTP/2 costs a client nothing, while what it started here goes on. */
#define RESETS_MAX	 200
#define RESETS_WINDOW_MS 10000

/* Variable for the tests only. */
extern struct api_limits {
	uint32_t read_ms;    /* for a whole request; for an idle connection */
	uint32_t write_ms;   /* a reader that takes nothing */
	uint32_t silence_ms; /* of a stream, before an empty line is sent */
	uint32_t tick_ms;
	size_t connections;   /* open at a time */
	size_t requests;      /* under way in all of them: each holds some 10 KiB */
	size_t answers_bytes; /* that wait for their readers, above which no long ones are begun */
	size_t bodies_bytes;  /* of requests under way, above which only short ones are served */
	size_t read_here_bytes; /* of a body, above which a worker reads it */
	size_t reading_bytes;	/* of bodies that workers have to read */
} api_limits;

/* Limits for each second, by the settings of the same names. */
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
	bool local;	   /* from this machine, or by a listener that only it reaches */
	bool proxied;	   /* from one of trusted_proxies */
	unsigned requests; /* under way in it */
	bool cut;
	unsigned resets;
	uint64_t resets_since_ms;
};

struct counters {
	uint64_t (*requests)[6]; /* per route, and one more for none; by hundreds of status */
	uint64_t connections, bytes_sent, resets_cut, stalled_cut;
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
	bool loopback; /* the listener's address is */
	unsigned port;

	struct list conns; /* those that did nothing for the longest time first */
	size_t n_conns;
	uint64_t full_told_ms; /* when the log was told that there are too many; 0: never */
	struct list live;      /* requests not yet ended */
	size_t n_live;
	struct list dirty; /* streams with output to flush this turn */
	struct loop_timer tick;

	bool draining;
	void (*drained)(void *arg);
	void *drained_arg;
	struct loop_timer drain_limit;

	size_t reading_bytes; /* of bodies that workers have to read */
	struct rate rates[LIMITS];
	struct idem idem; /* answers to requests with an Idempotency-Key */
	struct list left; /* requests whose call goes on though nobody waits for the answer */
	uint64_t limited_told_ms[LIMITS]; /* when the log was told of it; 0: never */
	struct counters counters;
	api_watch_fn *watch_fn; /* NULL: there is no more to tell */
	void *watch_arg;
	size_t log_len;
	char log[ACCESS_LOG_SIZE];
};

/* Adds at most `most` entries of r->pages.page to `out`, each after pages_comma; false when no more
 * are left. */
struct request;
typedef bool pages_fn(struct request *r, size_t most);

/* A list that is sent. */
struct pages {
	struct list_name list;
	struct list_page page; /* what is left of it */
	pages_fn *add;
	bool begun; /* it has an entry */
	bool more;  /* the next piece is to be gathered */
	struct loop_timer turn;
};

/*
 * One request, from its arrival until h2o is done with it and nobody will call back for it.
 * Output is gathered in `out` and goes to h2o one piece at a time, from `sending`.
 */
struct request {
	struct api *api;
	h2o_req_t *req;	   /* NULL once h2o is done with it */
	struct conn *conn; /* good as long */
	const struct route *route;
	struct client from;
	bool local;		  /* `from` is this machine, as far as is known */
	bool offers_key;	  /* while there are keys */
	enum key_verdict verdict; /* on it */
	const struct key *key;	  /* the good one; NULL: none was sent, or there are none */
	const char *tenant;	  /* NULL: unknown */
	/* From the path; the other is a sandbox's, an upload's or a terminal's. */
	char id[SANDBOX_ID_LEN + 1], other[SANDBOX_ID_LEN + 1];
	unsigned refs; /* h2o's, a call's, the poll's */
	struct list link, dirty_link;
	uint64_t began_us;
	char traceparent[56]; /* empty: none came */

	h2o_generator_t generator; /* its callbacks find the request by it */
	struct text out, sending;
	size_t bytes;
	int status;
	bool started;	   /* h2o has the head of the answer */
	bool in_flight;	   /* h2o has `sending` */
	bool ended;	   /* nothing comes behind `out` */
	bool broken;	   /* ... and the answer is cut off there */
	bool finished;	   /* h2o has all of it */
	uint64_t moved_ms; /* when output last went out or was taken */

	atomic_bool unwanted; /* h2o is done with it: for workers */

	struct loop_op *peer_poll; /* HTTP/1: tells that the client left */

	struct core_call *call;
	bool streaming;		  /* the answer is NDJSON, as it comes */
	bool paused;		  /* core was told to hold back */
	bool ranged;		  /* get: the answer is a part of the file */
	bool limited;		  /* refused by limit_request */
	struct idem_entry *keyed; /* it has an Idempotency-Key, and is not answered yet */
	struct list left_link;
	struct pages pages;
};

/* --- request.c: life and answers ------------------------------------------------------------ */

struct request *request_new(struct api *a, h2o_req_t *req);
void request_ref(struct request *r);
/* Of `r` it is known whose it is. */
bool request_same_tenant(const struct request *r, const struct request *other);
void request_unref(struct request *r);
/* Around a call to core: a reference is taken before it is started; the call's last callback begins
 * with request_called, which is false when the request is gone and nothing is left to do. */
bool request_called(struct request *r);
/* The same of a call that may have failed, which is answered: true when its result is to be. */
bool request_called_well(struct request *r, const struct failure *f);
/* The call's answer is of no more use. */
void request_leave_call(struct request *r);
/* core_done_fn of a request whose success is a 204. */
void request_done(void *arg, const struct failure *f);
/* core_create_fn: a sandbox was made. */
void request_created(void *arg, const struct sandbox_view *view, const struct failure *f);
bool request_is_head(const struct request *r);
const h2o_iovec_t *request_header(const struct request *r, const char *name);
uint64_t now_us(void);

void answer_status(struct request *r, int status);
/* Of a HEAD: what a GET would have; `length` SIZE_MAX: it is not known. */
void answer_head(struct request *r, int status, const char *content_type, size_t length);
/* The text of `out` is the answer. */
void answer(struct request *r, int status, const char *content_type);
void answer_error(struct request *r, int status, const char *code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* A failure of core. 500: with an id that is in the log as well. */
void answer_failure(struct request *r, const struct failure *f);
/* False, with 503 answered, when too much already waits for slow readers. */
bool answer_may_be_long(struct request *r);
/* Before one of the above. */
void answer_header(struct request *r, const char *name, const char *value);
void answer_retry_after(struct request *r, unsigned seconds);

/* The head of a stream that is no NDJSON, before anything of it; `length` as above. */
void stream_begin(struct request *r, int status, const char *content_type, size_t length);
/* Sends what is gathered before the loop sleeps. The first time is the head: status 200, NDJSON. */
void stream_touch(struct request *r);
/* Holds its call back when more is gathered than is good. */
void stream_hold(struct request *r);
/* What is gathered is the end; `broken`: and the client must see that it is cut off. */
void stream_end(struct request *r, bool broken);
/* request_called of a call that failed: when nothing of its stream has come yet the failure is the
 * answer; true when it is to be told in the stream. */
bool stream_called_late(struct request *r, const struct failure *f);

/* Ends it and its HTTP/1 connection; with this answer when there was none yet. */
void request_cut(struct request *r, int status, const char *code, const char *reason);
/* From now on, not from the next tick, it is seen when the client leaves: for what makes much that
 * only this client would know of. */
void request_watch(struct request *r);
/* Once a second for each live request: silence, stalled readers, clients that left. */
void request_tick(struct request *r, uint64_t now_ms);
void api_flush(void *arg); /* the loop's before_sleep */

/* --- pages.c: lists ------------------------------------------------------------------------- */

#define PAGE_MAX 1000 /* entries of a page; more are not given */

/* Answers with the list: its page at ?cursor= of ?limit= entries, or all of it. `list` names the
 * request's own texts. */
void serve_pages(struct request *r, const struct list_name *list, pages_fn *add);
void pages_comma(struct request *r);
/* The client took a piece. */
void pages_go_on(struct request *r);
void pages_stop(struct request *r);
/* Both are false when the query is wrong, which is answered. */
bool ask_limit(struct request *r, size_t *limit);
/* Returns the length of the key, 0 when there is no cursor, -EINVAL when it is wrong, which is
 * answered. */
int ask_cursor(struct request *r, char kind, void *key, size_t room);
/* Before the answer: there is a next page. */
void answer_next(struct request *r, char kind, const void *key, size_t len);

/* --- body.c --------------------------------------------------------------------------------- */

struct json_field;
typedef void body_fn(struct request *r, const void *values);
/*
 * Reads the body's fields into a structure of `size` bytes, which begins as `initial`, and calls
 * `serve` with it: now, or later when the body is large. Not when the body is bad, which is
 * answered, or when the request is over by then.
 */
void body_read(struct request *r, const struct json_field *fields, size_t n_fields,
	       const void *initial, size_t size, body_fn *serve);

/* --- server.c ------------------------------------------------------------------------------- */

void api_request_began(struct api *a, struct request *r);
void api_request_ended(struct api *a, struct request *r);

/* --- listen.c ------------------------------------------------------------------------------- */

/* Both fail with a sentence for the operator. */
int listen_load_tls(struct api *a, struct err *e);
int listen_start(struct api *a, struct err *e);
void listen_stop(struct api *a);
/* The connection of a request that begins; told of its end as well. */
struct conn *conn_of(h2o_req_t *req);
struct conn *conn_began(h2o_req_t *req);
void conn_ended(struct conn *c);
void conn_cut(struct conn *c);
void conn_count_reset(struct conn *c);

/* --- limit.c: how often --------------------------------------------------------------------- */

void limit_init(struct api *a);
/* Whether a connection from there may begin now. */
bool limit_connection(struct api *a, const struct client *peer, bool local);
/* False, with 429 answered, when too many requests like this one came; guard_identify was before.
 */
bool limit_request(struct request *r);

/* --- keyed.c: requests that may be sent again ------------------------------------------------- */

/* Returns false when it answered the request by its Idempotency-Key: again, or with a refusal. */
bool keyed_begin(struct request *r);
/* Remembers what is gathered as the answer; with a status that says that nothing was done, or 0,
 * frees the key again. Does nothing to a request without a key. */
void keyed_answered(struct request *r, int status);
/* Returns whether the call of a request that nobody waits for goes on. */
bool keyed_goes_on(struct request *r);
/* Gives up the calls that go on, and forgets all answers. */
void keyed_close(struct api *a);

/* --- guard.c: who may ask ------------------------------------------------------------------- */

/* Sets whose the request is, where it has a good key. */
void guard_identify(struct request *r);
/* Whether who asks may know of the host's troubles: with keys an operator, without this machine. */
bool guard_is_operator(const struct request *r);
/* False when the request was refused and answered; else the tenant is set. */
bool guard_admits(struct request *r);
/* Ends what is under way with keys that are no good any more. */
void guard_cut_revoked(struct api *a);
/* The key in an Authorization header's value; false: there is none. */
bool guard_bearer(const char *value, size_t len, const char **key, size_t *key_len);
/* Whether a Host header's value is an address, localhost, or the host of `endpoint`. */
bool guard_host_is_ours(const char *host, size_t len, const char *endpoint);

/* --- access.c: the log of requests ------------------------------------------------------------ */

/* What may be shown of a request's target: not its query and authority, which may hold secrets, and
 * not endless. */
h2o_iovec_t access_path(h2o_iovec_t path);
void access_log_request(struct api *a, const struct request *r);
/* An answer that h2o gave by itself. */
void access_log_refused(struct api *a, h2o_req_t *req);
void access_flush(struct api *a);

/* --- metrics.c: figures --------------------------------------------------------------------- */

void metrics_time(struct api *a, enum timed timed, uint64_t us);
/* `code` stays. */
void metrics_error(struct api *a, const char *code);
void metrics_print(struct api *a, struct text *out);

/* --- events.c ------------------------------------------------------------------------------- */

/* One line of NDJSON. `traceparent` may be NULL. */
void event_line(struct text *t, const struct event *ev, const char *traceparent);

/* --- files.c: parameters of the query; false when one is wrong, which is answered ------------- */

bool ask_path(struct request *r, char path[static AGENT_PATH_MAX + 1]);
bool ask_mode(struct request *r, uint32_t *mode);
bool ask_flag(struct request *r, const char *name, bool *flag);
/* *n stays as it is when it is absent. */
bool ask_number(struct request *r, const char *name, uint64_t *n);

/* --- handlers ------------------------------------------------------------------------------- */

void serve_healthz(struct request *r);
void serve_livez(struct request *r);
void serve_readyz(struct request *r);
void serve_openapi(struct request *r);
void serve_metrics(struct request *r);
void serve_templates(struct request *r);
void serve_create(struct request *r);
void serve_list(struct request *r);
void serve_children(struct request *r);
void serve_info(struct request *r);
void serve_delete(struct request *r);
void serve_exec(struct request *r);
void serve_interrupt(struct request *r);
void serve_replay(struct request *r);
void serve_fork(struct request *r);
void serve_merge(struct request *r);
void serve_diff(struct request *r);
void serve_freeze(struct request *r);
void serve_spaces(struct request *r);
void serve_space(struct request *r);
void serve_space_delete(struct request *r);
void serve_resume(struct request *r);
void serve_put(struct request *r);
void serve_get(struct request *r);
void serve_remove(struct request *r);
void serve_files(struct request *r);
void serve_stat(struct request *r);
void serve_mkdir(struct request *r);
void serve_upload(struct request *r);
void serve_upload_part(struct request *r);
void serve_upload_commit(struct request *r);
void serve_upload_abort(struct request *r);
void serve_pty_start(struct request *r);
void serve_ptys(struct request *r);
void serve_pty_attach(struct request *r);
void serve_pty_read(struct request *r);
void serve_pty_input(struct request *r);
void serve_pty_resize(struct request *r);
void serve_pty_kill(struct request *r);

/* openapi.c */
extern const char openapi_json[], openapi_json_end[];

#endif
