// SPDX-License-Identifier: Apache-2.0
#include "test/api/fake_core.h"

#include <inttypes.h>
#include <stdlib.h>

#include "orchestrator/core/core.h"
#include "orchestrator/exec/exec.h"
#include "orchestrator/guestops/guestops.h"
#include "orchestrator/keys/keys.h"
#include "test/api/fake_call.h"

/* --- calls --- */

static void step(void *arg);

struct core_call *call_new(struct core *c, enum kind kind, void *arg)
{
	struct core_call *call = calloc(1, sizeof(*call));

	call->core = c;
	call->kind = kind;
	call->arg = arg;
	call->step = (struct loop_timer){.fn = step, .arg = call};
	list_add_tail(&c->calls, &call->link);
	c->stats.blank_vms_ready++;
	loop_timer_set(c->loop, &call->step, 0);
	return call;
}

void call_free(struct core_call *call)
{
	loop_timer_clear(call->core->loop, &call->step);
	list_del(&call->link);
	call->core->stats.blank_vms_ready--;
	for (char **path = call->paths; *path; path++)
		free(*path);
	free(call->code);
	free(call);
}

static void sandbox_free(struct sandbox *s)
{
	for (size_t i = 0; i < s->saved && i < RING; i++)
		free((void *)s->ring[i].ev.data);
	list_del(&s->link);
	free(s->metadata);
	free(s);
}

/* Undoes a create that was abandoned: the sandbox was never on the list. */
static void create_undo(struct core_call *call)
{
	if (call->kind != CREATE || !call->sandbox)
		return;
	list_init(&call->sandbox->link);
	sandbox_free(call->sandbox);
}

void fail(struct core_call *call, enum failure_code code, const char *text)
{
	call->failing = true;
	failure_set(&call->failure, code, code == FAIL_NO_CAPACITY ? 7 : 0, "%s", text);
}

void core_abandon(struct core_call *call)
{
	call->core->stats.vm_deaths++;
	if (call->kind == EXEC) {
		call->abandoned = true;
		core_resume(call);
	} else {
		create_undo(call);
		call_free(call);
	}
}

/* This core keeps no keys: test/guest_api tests the real one. */
void core_call_key(struct core_call *call, const struct request_key *key)
{
}

int core_requests_made(struct core *c, uint64_t max_age_ms, core_made_fn *each, void *arg,
		       struct err *e)
{
	return 0;
}

void core_key_forget(struct core *c, const uint8_t key[static REQUEST_HASH_LEN])
{
}

/* --- sandboxes --- */

static struct sandbox *find(struct core *c, const char *id)
{
	list_each (pos, &c->sandboxes) {
		struct sandbox *s = container_of(pos, struct sandbox, link);

		if (strcmp(s->id, id) == 0)
			return s;
	}
	return NULL;
}

static void none_such(struct failure *f, const char *id)
{
	failure_set(f, FAIL_NOT_FOUND, 0, "there is no sandbox %s", id);
}

void fake_sandbox_view(const struct sandbox *s, struct sandbox_view *v)
{
	*v = (struct sandbox_view){.state = "ready",
				   .config = s->spec.config,
				   .created_at_ms = 1700000000123,
				   .parent = s->parent[0] ? s->parent : NULL,
				   .metadata = s->metadata};
	if (!v->config.size.vcpus)
		v->config.size.vcpus = 2;
	if (!v->config.size.ram_mib)
		v->config.size.ram_mib = 512;
	if (!v->config.size.rootfs_gb)
		v->config.size.rootfs_gb = 4;
	memcpy(v->id, s->id, sizeof(v->id));
}

/* Returns the ids of the children and a NULL, valid until the next call. */
static const char *const *children_of(struct core *c, const char *id)
{
	static const char *ids[FORK_MAX + 1];
	size_t n = 0;

	list_each (pos, &c->sandboxes) {
		const struct sandbox *s = container_of(pos, struct sandbox, link);

		if (strcmp(s->parent, id) == 0 && n < FORK_MAX)
			ids[n++] = s->id;
	}
	ids[n] = NULL;
	return ids;
}

static struct sandbox *sandbox_new(struct core *c)
{
	struct sandbox *s = calloc(1, sizeof(*s));

	snprintf(s->id, sizeof(s->id), "sbx_%032" PRIx64, ++c->next_id);
	return s;
}

static void create_step(struct core_call *call)
{
	struct sandbox_view view;

	fake_sandbox_view(call->sandbox, &view);
	list_add_tail(&call->core->sandboxes, &call->sandbox->link);
	call->core->stats.creates++;
	call->core->stats.sandboxes++;
	call->core->holding = strcmp(call->sandbox->spec.config.template, "hold-all") == 0;
	call->created(call->arg, &view, NULL);
	call_free(call);
}

static void release_held(struct core *c)
{
	list_each (pos, &c->calls) {
		struct core_call *call = container_of(pos, struct core_call, link);

		if (call->held) {
			call->held = false;
			loop_timer_set(c->loop, &call->step, 0);
		}
	}
}

struct core_call *core_create(struct core *c, const char *tenant, const struct sandbox_spec *spec,
			      core_create_fn *fn, void *arg)
{
	struct core_call *call = call_new(c, CREATE, arg);

	call->created = fn;
	if (strcmp(spec->config.template, "full") == 0)
		fail(call, FAIL_NO_CAPACITY, "the host is full");
	else if (strcmp(spec->config.template, "broken") == 0)
		fail(call, FAIL_AGENT_ERROR, "the agent is confused");
	else if (strcmp(spec->config.template, "missing") == 0)
		fail(call, FAIL_UNKNOWN_TEMPLATE, "there is no template missing");
	if (call->failing)
		return call;
	call->held = strcmp(spec->config.template, "held") == 0;
	if (strcmp(spec->config.template, "release") == 0)
		release_held(c);
	struct sandbox *s = sandbox_new(c);
	s->spec = *spec;
	if (!s->spec.config.template[0])
		strcpy(s->spec.config.template, "default");
	s->metadata = spec->metadata ? strdup(spec->metadata) : NULL;
	call->sandbox = s;
	return call;
}

struct core_call *core_change(struct core *c, const char *tenant, const char *id,
			      const struct sandbox_change *change, core_done_fn *fn, void *arg)
{
	struct core_call *call = call_new(c, DONE, arg);
	struct sandbox *s = find(c, id);

	call->done = fn;
	if (!s) {
		fail(call, FAIL_NOT_FOUND, "there is no such sandbox");
		return call;
	}
	struct sandbox_config *config = &s->spec.config;
	if (change->egress == CHANGE_TRUE && !config->egress) {
		fail(call, FAIL_EGRESS_CLOSED, "it was closed");
		return call;
	}
	config->egress = config->egress && change->egress != CHANGE_FALSE;
	if (change->persistent != CHANGE_NONE)
		config->persistent = change->persistent == CHANGE_TRUE;
	if (change->timeout_s)
		config->timeout_s = change->timeout_s;
	if (change->idle_timeout_s)
		config->idle_timeout_s = change->idle_timeout_s;
	if (change->metadata) {
		free(s->metadata);
		s->metadata = strdup(change->metadata);
	}
	return call;
}

struct core_call *core_delete(struct core *c, const char *tenant, const char *id, core_done_fn *fn,
			      void *arg)
{
	struct core_call *call = call_new(c, DONE, arg);
	struct sandbox *s = find(c, id);

	call->done = fn;
	if (!s) {
		fail(call, FAIL_NOT_FOUND, "there is no such sandbox");
		return call;
	}
	list_each (pos, &c->calls) {
		struct core_call *other = container_of(pos, struct core_call, link);

		if (other->sandbox == s) {
			other->sandbox = NULL;
			fail(other, FAIL_NOT_FOUND, "the sandbox was deleted");
			loop_timer_set(c->loop, &other->step, 0);
		}
	}
	sandbox_free(s);
	c->stats.sandboxes--;
	return call;
}

struct core_call *core_interrupt(struct core *c, const char *tenant, const char *id,
				 const char *context, core_done_fn *fn, void *arg)
{
	struct core_call *call = call_new(c, DONE, arg);
	struct sandbox *s = find(c, id);

	call->done = fn;
	if (!s)
		fail(call, FAIL_NOT_FOUND, "there is no such sandbox");
	else if (context && !fake_context_is(c, context))
		fail(call, FAIL_NO_SUCH_CONTEXT, "there is no such context");
	list_each (pos, &c->calls) {
		struct core_call *other = container_of(pos, struct core_call, link);

		if (s && other->sandbox == s && other->hanging) {
			other->hanging = false;
			strcpy(other->at, "exit 130");
			loop_timer_set(c->loop, &other->step, 0);
		}
	}
	return call;
}

bool core_view(struct core *c, const char *tenant, const char *id, struct sandbox_view *view,
	       struct failure *f)
{
	struct sandbox *s = find(c, id);

	if (!s) {
		none_such(f, id);
		return false;
	}
	fake_sandbox_view(s, view);
	view->children = children_of(c, s->id);
	while (view->children[view->n_children])
		view->n_children++;
	return true;
}

struct core_call *core_templates_look(struct core *c, core_done_fn *fn, void *arg)
{
	struct core_call *call = call_new(c, DONE, arg);

	call->done = fn;
	return call;
}

void core_templates(struct core *c, void (*each)(void *arg, const struct template_view *view),
		    void *arg)
{
	static const struct size sizes[] = {{2, 512, 4}, {2, 1024, 16}};
	const struct template_view views[] = {
		{"default", "", "ready", "", {2, 512, 4}, sizes, 2},
		{"data",
		 "numpy \"and\" more",
		 "failed",
		 "pip: no such package",
		 {2, 2048, 8},
		 NULL,
		 0},
	};

	for (size_t i = 0; i < 2; i++)
		each(arg, &views[i]);
}

/* --- fork, merge, diff --- */

struct core_call *call_on(struct core *c, enum kind kind, const char *id, void *arg)
{
	struct core_call *call = call_new(c, kind, arg);

	call->sandbox = find(c, id);
	if (!call->sandbox)
		fail(call, FAIL_NOT_FOUND, "there is no such sandbox");
	else if (strcmp(call->sandbox->spec.config.template, "crowded") == 0)
		fail(call, FAIL_NO_CAPACITY, "the host is full");
	call->held = !call->failing && strcmp(call->sandbox->spec.config.template, "slow") == 0;
	return call;
}

struct core_call *core_fork(struct core *c, const char *tenant, const char *id, unsigned n,
			    bool reseed, core_fork_fn *fn, void *arg)
{
	struct core_call *call = call_on(c, FORK, id, arg);

	call->forked = fn;
	call->n = n;
	c->stats.warm_ready = reseed;
	return call;
}

static void fork_step(struct core_call *call)
{
	const char *ids[FORK_MAX];

	for (unsigned i = 0; i < call->n; i++) {
		struct sandbox *s = sandbox_new(call->core);

		memcpy(s->spec.config.template, call->sandbox->spec.config.template,
		       sizeof(s->spec.config.template));
		memcpy(s->parent, call->sandbox->id, sizeof(s->parent));
		list_add_tail(&call->core->sandboxes, &s->link);
		call->core->stats.sandboxes++;
		ids[i] = s->id;
	}
	const struct core_forked forked = {.ids = ids,
					   .n = call->n,
					   .pause_us = 800,
					   .ready_us = 2500,
					   .copied_bytes = 1 << 20};

	call->forked(call->arg, &forked, NULL);
	call_free(call);
}

struct core_call *core_merge(struct core *c, const char *tenant, const char *parent,
			     const char *winner, core_done_fn *fn, void *arg)
{
	struct core_call *call = call_on(c, DONE, parent, arg);
	struct sandbox *w = find(c, winner);

	call->done = fn;
	if (call->failing)
		return call;
	if (!w) {
		fail(call, FAIL_NOT_FOUND, "there is no such sandbox");
	} else if (strcmp(w->parent, parent) != 0) {
		fail(call, FAIL_NOT_A_DESCENDANT, "the winner does not descend from it");
	} else {
		sandbox_free(w);
		c->stats.sandboxes--;
	}
	return call;
}

struct core_call *core_diff(struct core *c, const char *tenant, const char *id, const char *other,
			    const char *const *paths, core_diff_fn *fn, void *arg)
{
	struct core_call *call = call_on(c, DIFF, id, arg);

	call->compared = fn;
	if (!find(c, other))
		fail(call, FAIL_NOT_FOUND, "there is no such sandbox");
	for (unsigned i = 0; i < DIFF_PATHS_MAX && paths[i]; i++)
		call->paths[i] = strdup(paths[i]);
	return call;
}

static void put_path(struct core_diff *d, enum diff_kind kind, const char *path)
{
	struct diff_found *f = &d->found[kind];

	f->paths = realloc(f->paths, (f->n + 1) * sizeof(*f->paths));
	f->paths[f->n++] = strdup(path);
	d->n++;
	d->bytes += strlen(path);
}

/* Adds 5,000 paths of 1,000 bytes, the last one first. */
static void put_many(struct core_diff *d)
{
	char path[1001];

	for (int i = 5000; i > 0; i--) {
		snprintf(path, sizeof(path), "/%0999d", i - 1);
		put_path(d, DIFF_REMOVED, path);
	}
}

static void diff_step(struct core_call *call)
{
	struct core_diff *d = calloc(1, sizeof(*d));

	for (char **path = call->paths; *path; path++)
		if (strcmp(*path, "/many") == 0)
			put_many(d);
		else
			put_path(d, DIFF_ADDED, *path);
	put_path(d, DIFF_MODIFIED, "/b\n\xef\xbf\xbd");
	put_path(d, DIFF_MODIFIED, "/a\xff");
	call->compared(call->arg, d, NULL);
	call_free(call);
}

/* --- exec --- */

static void keep(struct sandbox *s, const struct event *ev, const char *traceparent)
{
	struct saved *k = &s->ring[s->saved++ % RING];

	if (s->saved > RING)
		free((void *)k->ev.data);
	k->ev = *ev;
	k->ev.data = NULL;
	k->ev.context = NULL;
	if (ev->len) {
		uint8_t *copy = malloc(ev->len);

		memcpy(copy, ev->data, ev->len);
		k->ev.data = copy;
	}
	strcpy(k->traceparent, traceparent);
}

static void emit(struct core_call *call, struct event ev)
{
	ev.seq = ++call->sandbox->seq;
	ev.ts_ms = 1700000000000 + (int64_t)ev.seq;
	if (call->path[0])
		ev.context = call->path;
	keep(call->sandbox, &ev, call->traceparent);
	if (!call->abandoned)
		call->sink.event(call->arg, &ev);
}

static void emit_text(struct core_call *call, enum event_type type, const char *text, size_t len,
		      bool partial)
{
	emit(call,
	     (struct event){
		     .type = type, .data = (const uint8_t *)text, .len = len, .partial = partial});
}

static void emit_hex(struct core_call *call, const char *hex)
{
	uint8_t bytes[256];
	size_t n = 0;

	for (unsigned byte; n < sizeof(bytes) && sscanf(hex, "%2x", &byte) == 1; hex += 2)
		bytes[n++] = (uint8_t)byte;
	emit_text(call, EVENT_STDOUT, (char *)bytes, n, false);
}

static void flood(struct core_call *call)
{
	char *text = malloc(call->flood_size);

	memset(text, 'x', call->flood_size);
	/* Up to 64 KiB may arrive after a pause, as with the real core. */
	for (size_t sent = 0; call->flood && (sent < 65536); sent += call->flood_size) {
		call->flood--;
		emit_text(call, EVENT_STDOUT, text, call->flood_size, false);
	}
	free(text);
	if (!call->paused)
		loop_timer_set(call->core->loop, &call->step, 0);
}

static void end(struct core_call *call, int code)
{
	emit(call, (struct event){.type = EVENT_EXIT, .exit_code = code});
	call_free(call);
}

static bool starts(const char *line, const char *word, const char **rest)
{
	size_t len = strlen(word);

	if (strncmp(line, word, len) != 0 || (line[len] && line[len] != ' '))
		return false;
	*rest = line + len + (line[len] == ' ');
	return true;
}

/* Returns false when the call is over. */
static bool exec_line(struct core_call *call, const char *line)
{
	const char *rest;
	char number[32];

	if (starts(line, "out", &rest)) {
		emit_text(call, EVENT_STDOUT, rest, strlen(rest), false);
	} else if (starts(line, "part", &rest)) {
		emit_text(call, EVENT_STDOUT, rest, strlen(rest), true);
	} else if (starts(line, "err", &rest)) {
		emit_text(call, EVENT_STDERR, rest, strlen(rest), false);
	} else if (starts(line, "raw", &rest)) {
		emit_hex(call, rest);
	} else if (starts(line, "len", &rest)) {
		snprintf(number, sizeof(number), "%zu", call->code_len);
		emit_text(call, EVENT_STDOUT, number, strlen(number), false);
	} else if (starts(line, "flood", &rest)) {
		sscanf(rest, "%u %zu", &call->flood, &call->flood_size);
		call->flood = call->flood < FLOOD_MAX ? call->flood : FLOOD_MAX;
		if (call->flood_size == 0 || call->flood_size > 1 << 20)
			call->flood_size = 1;
	} else if (starts(line, "exit", &rest)) {
		end(call, atoi(rest));
		return false;
	} else if (starts(line, "fail", &rest)) {
		fail(call, FAIL_VM_DIED, "the VM died");
	} else if (starts(line, "hang", &rest)) {
		call->hanging = true;
	}
	return true;
}

static void exec_step(struct core_call *call)
{
	if (!call->started) {
		call->started = true;
		call->core->stats.execs++;
		if (!call->abandoned && strncmp(call->at, "fail", 4) != 0)
			call->sink.started(call->arg);
	}
	if (call->flood) {
		flood(call);
		return;
	}
	while (!call->hanging && !call->flood && !call->failing) {
		char *line = call->at, *eol = strchr(line, '\n');

		if (!*line) {
			end(call, 0);
			return;
		}
		if (eol)
			*eol = '\0';
		call->at = eol ? eol + 1 : line + strlen(line);
		if (!exec_line(call, line))
			return;
	}
	if (call->flood || call->failing)
		loop_timer_set(call->core->loop, &call->step, 0);
}

struct core_call *core_exec(struct core *c, const char *tenant, const char *id,
			    const struct exec_spec *spec, const struct exec_sink *sink, void *arg)
{
	struct core_call *call = call_new(c, EXEC, arg);

	call->sink = *sink;
	call->sandbox = find(c, id);
	/* Leaves room for the "exit 130" of an interrupt. */
	call->code = calloc(1, spec->code_len + 16);
	memcpy(call->code, spec->code, spec->code_len);
	call->at = call->code;
	call->code_len = spec->code_len;
	c->stats.warm_ready = spec->code_len;
	if (spec->traceparent)
		snprintf(call->traceparent, sizeof(call->traceparent), "%s", spec->traceparent);
	if (!call->sandbox)
		fail(call, FAIL_NOT_FOUND, "there is no such sandbox");
	else if (spec->context && !fake_context_is(c, spec->context))
		fail(call, FAIL_NO_SUCH_CONTEXT, "there is no such context");
	if (spec->context)
		snprintf(call->path, sizeof(call->path), "%s", spec->context);
	return call;
}

void core_hang_up(struct core_call *call)
{
	call->core->stats.merges++;
	core_abandon(call);
}

void core_pause(struct core_call *call)
{
	call->paused = true;
	call->core->stats.pool_hits++;
	loop_timer_clear(call->core->loop, &call->step);
}

void core_resume(struct core_call *call)
{
	if (call->paused)
		call->core->stats.pool_misses++;
	call->paused = false;
	loop_timer_set(call->core->loop, &call->step, 0);
}

bool core_replay(struct core *c, const char *tenant, const char *id, uint64_t since,
		 void (*each)(void *arg, const struct event *ev, const char *traceparent),
		 void *arg, struct failure *f)
{
	struct sandbox *s = find(c, id);

	if (!s) {
		none_such(f, id);
		return false;
	}
	for (size_t i = s->saved > RING ? s->saved - RING : 0; i < s->saved; i++)
		if (s->ring[i % RING].ev.seq > since)
			each(arg, &s->ring[i % RING].ev, s->ring[i % RING].traceparent);
	return true;
}

static void follow_failed(struct core_call *call)
{
	call->follows.ended(call->arg, &call->failure);
}

/* Sends new events at each step; continues while a call on the sandbox has not ended. */
static void follow_run(struct core_call *call)
{
	struct sandbox *s = call->sandbox;
	bool busy = false;

	if (!call->started)
		call->follows.started(call->arg);
	call->started = true;
	for (size_t i = s->saved > RING ? s->saved - RING : 0; i < s->saved; i++) {
		const struct event *ev = &s->ring[i % RING].ev;

		if (ev->seq <= call->sent)
			continue;
		call->sent = ev->seq;
		call->follows.event(call->arg, ev, s->ring[i % RING].traceparent);
	}
	list_each (pos, &call->core->calls) {
		const struct core_call *other = container_of(pos, struct core_call, link);

		busy = busy || (other->kind == EXEC && other->sandbox == s);
	}
	if (busy) {
		loop_timer_set(call->core->loop, &call->step, 1);
		return;
	}
	call->follows.ended(call->arg, NULL);
	call_free(call);
}

struct core_call *core_follow(struct core *c, const char *tenant, const char *id, uint64_t since,
			      const struct follow_sink *sink, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->follows = *sink;
	call->sent = since;
	call->run = follow_run;
	call->on_failed = follow_failed;
	return call;
}

/* --- all --- */

static void report_failure(struct core_call *call, const struct failure *f)
{
	struct event ev = {.type = EVENT_ERROR,
			   .code = failure_code_name(f->code),
			   .data = (const uint8_t *)f->text,
			   .len = strlen(f->text)};

	if (call->sandbox)
		ev.seq = ++call->sandbox->seq;
	ev.ts_ms = 1700000000000 + (int64_t)ev.seq;
	if (call->path[0])
		ev.context = call->path;
	call->sink.failed(call->arg, f, &ev);
}

static void step(void *arg)
{
	struct core_call *call = arg;

	if (call->held || call->core->holding)
		return;
	if (call->failing) {
		struct failure f = call->failure;

		if (call->kind == CREATE)
			call->created(call->arg, NULL, &f);
		else if (call->kind == DONE)
			call->done(call->arg, &f);
		else if (call->kind == FORK)
			call->forked(call->arg, NULL, &f);
		else if (call->kind == DIFF)
			call->compared(call->arg, NULL, &f);
		else if (call->kind == OP)
			call->on_failed(call);
		else if (!call->abandoned)
			report_failure(call, &f);
		call_free(call);
	} else if (call->kind == CREATE) {
		create_step(call);
	} else if (call->kind == FORK) {
		fork_step(call);
	} else if (call->kind == DIFF) {
		diff_step(call);
	} else if (call->kind == DONE) {
		call->done(call->arg, NULL);
		call_free(call);
	} else if (call->kind == OP) {
		call->run(call);
	} else {
		exec_step(call);
	}
}

struct core *fake_core_new(struct loop *loop, bool ready)
{
	struct core *c = calloc(1, sizeof(*c));
	struct err e;

	c->loop = loop;
	c->ready = ready;
	c->stats.ends_unrecorded = 3;
	list_init(&c->sandboxes);
	list_init(&c->spaces);
	list_init(&c->calls);
	list_init(&c->files);
	list_init(&c->uploads);
	list_init(&c->ptys);
	list_init(&c->processes);
	list_init(&c->contexts);
	if (store_open(&c->store, ":memory:", &e) < 0 || keys_new(&c->keys, c->store, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		exit(1);
	}
	return c;
}

void fake_core_set_ready(struct core *c)
{
	c->ready = true;
}

struct keys *core_keys(struct core *c)
{
	return c->keys;
}

bool core_ready(const struct core *c)
{
	return c->ready;
}

const char *core_error(const struct core *c)
{
	return c->ready ? "" : "the template is being prepared";
}

void core_checks(const struct core *c,
		 void (*each)(void *arg, const char *name, const char *reason), void *arg)
{
	each(arg, "warden", NULL);
	each(arg, "template", c->ready ? NULL : "it is being \"prepared\"");
}

void core_shutdown(struct core *c, void (*done)(void *arg), void *arg)
{
	c->down_timer = (struct loop_timer){.fn = done, .arg = arg};
	loop_timer_set(c->loop, &c->down_timer, 0);
}

void core_free(struct core *c)
{
	list_each_safe (pos, &c->calls) {
		struct core_call *call = container_of(pos, struct core_call, link);

		create_undo(call);
		call_free(call);
	}
	list_each_safe (pos, &c->sandboxes)
		sandbox_free(container_of(pos, struct sandbox, link));
	list_each_safe (pos, &c->spaces)
		sandbox_free(container_of(pos, struct sandbox, link));
	fake_files_free(c);
	fake_ptys_free(c);
	fake_processes_free(c);
	fake_contexts_free(c);
	keys_free(c->keys);
	store_close(c->store);
	free(c);
}

void core_stats(const struct core *c, struct core_stats *out)
{
	*out = c->stats;
}
