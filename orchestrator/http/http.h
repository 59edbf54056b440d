// SPDX-License-Identifier: Apache-2.0
/* A request as its handler sees it: what it asks, and how to answer it. Runs on the loop's thread.
 */
#ifndef RAMET_ORCHESTRATOR_HTTP_HTTP_H
#define RAMET_ORCHESTRATOR_HTTP_HTTP_H

#include <h2o.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "orchestrator/config/failure.h"
#include "orchestrator/http/client.h"
#include "orchestrator/http/trace.h"
#include "orchestrator/json/json.h"
#include "orchestrator/json/text.h"
#include "orchestrator/sandbox/sandboxes.h"

#define STREAM_PAUSE_SIZE (64u << 10) /* bytes of gathered output at which a stream is paused */

struct file_data;
struct key;
struct request;

/* The functions of a kind of handler that the request calls; each may be NULL. */
struct request_ops {
	void (*taken)(struct request *r); /* the client has taken a chunk of output */
	void (*gone)(struct request *r);  /* the client has left, or has got its answer */
	void (*free)(struct request *r);  /* frees what `state` owns; `state` is freed after it */
};

/* Output is gathered in `out`, and sent by a function below. */
struct request {
	struct http *http; /* the server */
	struct api *api;   /* the server's owner */
	struct loop *loop;
	struct service *service;
	const struct config *config;
	h2o_req_t *req; /* NULL once the client has left */
	const struct route *route;
	struct client from;
	const struct key *key; /* the valid key; NULL: none was sent, or no keys exist */
	const char *tenant;    /* NULL: unknown */
	/* Ids from the path: `other` is of a sandbox, a checkpoint, a process or a
	 * terminal. */
	char id[SANDBOX_ID_LEN + 1], other[SANDBOX_ID_LEN + 1];
	/* The port of the sandbox `id`, if the host name is that of a port; 0: none. */
	uint16_t at_port;
	char traceparent[TRACEPARENT_LEN + 1]; /* empty: none was sent, or an invalid one */
	uint64_t began_us;

	struct op *op;
	struct text out;
	size_t reserved;      /* bytes of an answer that a worker writes */
	bool started;	      /* the head of the answer is sent */
	bool ended;	      /* `out` is the end of the answer */
	bool streaming;	      /* the answer is streamed NDJSON */
	bool quiet;	      /* a success is logged at debug level */
	bool hangup;	      /* the program whose output it streams ends when the client leaves */
	bool made_program;    /* `other` is a program that this request has started */
	atomic_bool unwanted; /* like !req; workers read this */

	const struct request_ops *ops; /* of the handler; may be NULL */
	void *state;		       /* the handler's own; on the heap, or NULL */
	bool mark;		       /* the handler's own */
	uint8_t asked; /* how often other hosts were asked for more of the tenant's limit */
};

/* Protocol for a call to the service: take a reference before starting it, and begin its last
 * callback with request_called. That function drops the reference, and returns false when the
 * request is gone and nothing is left to do. */
void request_ref(struct request *r);
void request_unref(struct request *r);
bool request_called(struct request *r);
/* Like request_called, and answers a failure. Returns true when the call succeeded and its result
 * is to be answered. */
bool request_called_well(struct request *r, const struct failure *f);
/* Abandons the call, whose result is not needed any more, unless keyed_continues. */
void request_leave_call(struct request *r);
/* service_done_fn of a request that is answered 204 on success. */
void request_done(void *arg, const struct failure *f);
/* Like request_done, but the answer has this status and the JSON in `out`. It is remembered for a
 * retry (keyed_answered) if the client has left. */
void request_made(struct request *r, int status, const struct failure *f);
/* service_done_fn of a request whose answer, with status 200 or 201, is the JSON in `out`. */
void request_done_200(void *arg, const struct failure *f);
void request_done_201(void *arg, const struct failure *f);
/* service_done_fn of a request whose entries are in `out`, as a JSON array that is not closed yet.
 */
void request_listed(void *arg, const struct failure *f);
bool request_is_head(const struct request *r);
const h2o_iovec_t *request_header(const struct request *r, const char *name);
uint64_t now_us(void);

typedef void body_fn(struct request *r, const void *values);
/* Reads the body's fields, for example into a struct create_body for `create_json`, and calls
 * `serve` with them: now, or later for a large body. Does not call it when the body is invalid,
 * which is answered, or when the request has ended. */
void body_read(struct request *r, const struct json_body *kind, body_fn *serve);
/* Returns the body as data for a call to the service whose argument is `r`: the whole body if it
 * has arrived, else its parts as they arrive, which are read from that call on. */
struct file_data body_data(struct request *r);

void answer_status(struct request *r, int status);
/* Answers with a head only, as for a HEAD. `length`: size of the body that a GET would get;
 * SIZE_MAX: unknown. */
void answer_head(struct request *r, int status, const char *content_type, size_t length);
/* Answers with the text of `out`. */
void answer(struct request *r, int status, const char *content_type);
/* Answers 200 with bytes that live as long as the server, without a copy. */
void answer_file(struct request *r, const char *content_type, const void *data, size_t len);
void answer_error(struct request *r, int status, const char *code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Answers 400 `bad_request`. Its value is false, so that a check of a request can return it. */
#define bad_request(r, ...) (answer_error(r, 400, "bad_request", __VA_ARGS__), false)
/* Answers a failure of the service. A 500 has an id that is in the log as well. */
void answer_failure(struct request *r, const struct failure *f);
/* Returns false, with 503 or 429 answered, when too much output already waits for slow readers. */
bool answer_may_be_long(struct request *r);
/* Like answer_may_be_long, for an answer of `len` bytes that took long to get: other answers may
 * have used the room that there was at the start. A short answer always has room. */
bool answer_has_room(struct request *r, size_t len);
/* Adds a header. Call it before the function that answers. */
void answer_header(struct request *r, const char *name, const char *value);
void answer_retry_after(struct request *r, unsigned seconds);

/* Answers a HEAD for a stream of a sandbox. Returns false for other methods. */
bool stream_is_head(struct request *r);
/* Begins an answer with its head, which is sent with its first output: for a stream that is not
 * NDJSON. `length` as in answer_head. */
void answer_begin(struct request *r, int status, const char *content_type, size_t length);
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
/* service_done_fn of a stream that reports no failure itself: it is cut off. */
void stream_ended(void *arg, const struct failure *f);

/* Remembers the gathered output as the answer if `status` is 2xx. With any other status (0: no
 * answer) the key can be used again. Does nothing to a request without an Idempotency-Key. */
void keyed_answered(struct request *r, int status);
/* Returns whether the client may see the host's problems: it has an operator's key or, while there
 * are no keys, is a program of this machine. */
bool guard_is_operator(const struct request *r);

#endif
