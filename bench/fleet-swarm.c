// SPDX-License-Identifier: Apache-2.0
/*
 * Many hosts of a fleet in one process, as far as etcd can tell: each is a session of ramet-fleet,
 * in a thread of its own, with tables of its own. bench/swarm.py starts it and looks at etcd and at
 * the tables.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/etcd/session.h"
#include "orchestrator/fleet/id.h"

static const char usage[] =
	"usage: fleet-swarm SETTINGS TABLES HOSTS\n"
	"Runs as many hosts, numbered from 1, until its input ends. SETTINGS is the folder of a "
	"host that\n"
	"has joined; each host's tables are in TABLES/NUMBER. After each line of input it prints "
	"an object\n"
	"with the times in ms of the calls to etcd since the last one, and how many failed.\n";

/* --- calls to etcd ---------------------------------------------------------------------------- */

struct calls {
	const char *name, *path;
	float *ms;
	size_t n, room;
	uint64_t failed;
};
static struct calls calls[] = {
	{.name = "grant", .path = "/v3/lease/grant"},
	{.name = "keepalive", .path = "/v3/lease/keepalive"},
	{.name = "txn", .path = "/v3/kv/txn"},
	{.name = "range", .path = "/v3/kv/range"},
};
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static void count(const char *path, float ms, bool failed)
{
	pthread_mutex_lock(&counting);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		struct calls *c = &calls[i];

		if (strcmp(path, c->path) != 0)
			continue;
		if (array_grow(&c->ms, &c->room, c->n + 1, sizeof(*c->ms)) < 0)
			abort();
		c->ms[c->n++] = ms;
		c->failed += failed;
	}
	pthread_mutex_unlock(&counting);
}

/* The linker has sessions call this in etcd_call's place. */
int __real_etcd_call(struct etcd *c, const char *path, const struct text *body, struct text *answer,
		     struct err *e);
int __wrap_etcd_call(struct etcd *c, const char *path, const struct text *body, struct text *answer,
		     struct err *e);
int __wrap_etcd_call(struct etcd *c, const char *path, const struct text *body, struct text *answer,
		     struct err *e)
{
	const uint64_t began = now_ns();
	int ret = __real_etcd_call(c, path, body, answer, e);

	count(path, (float)(now_ns() - began) / 1e6f, ret < 0);
	return ret;
}

static void print_calls(void)
{
	pthread_mutex_lock(&counting);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		struct calls *c = &calls[i];

		printf("%s\"%s\":{\"failed\":%" PRIu64 ",\"ms\":[", i ? "," : "{", c->name,
		       c->failed);
		for (size_t j = 0; j < c->n; j++)
			printf("%s%.2f", j ? "," : "", (double)c->ms[j]);
		printf("]}");
		c->n = c->failed = 0;
	}
	pthread_mutex_unlock(&counting);
	puts("}");
	fflush(stdout);
}

/* --- hosts ------------------------------------------------------------------------------------ */

/* Makes a host of the same fleet, on another machine. */
static int make_host(struct session **out, const struct fleet_settings *like, uint32_t number,
		     const char *certificates, const char *tables, struct err *e)
{
	struct fleet_settings *s = must_alloc(sizeof(*s)); /* the session uses it */
	struct fleet_host *h = &s->self.host;
	char dir[512];

	*s = *like;
	h->number = number;
	snprintf(h->name, sizeof(h->name), "h%u", number);
	snprintf(h->address, sizeof(h->address), "10.0.%u.%u:7443", number >> 8, number & 255);
	snprintf(s->self.instance, sizeof(s->self.instance), "%032x", number);
	snprintf(dir, sizeof(dir), "%s/%u", tables, number);
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return err_set(e, errno, "make %s", dir);
	return session_new(out, s, certificates, dir, e);
}

static void *run(void *session)
{
	for (;;)
		session_turn(session);
	return NULL;
}

static int start(struct session **sessions, uint32_t n, struct err *e)
{
	for (uint32_t i = 0; i < n; i++) {
		pthread_t thread;
		int ret = pthread_create(&thread, NULL, run, sessions[i]);

		if (ret)
			return err_set(e, ret, "start a thread");
	}
	return 0;
}

static int serve(const char *certificates, const char *tables, uint32_t n, struct err *e)
{
	struct fleet_settings settings;
	struct session **sessions = must_alloc(n * sizeof(*sessions));

	if (fleet_settings_load(&settings, certificates, e) < 0)
		return e->code;
	for (uint32_t i = 0; i < n; i++)
		if (make_host(&sessions[i], &settings, i + 1, certificates, tables, e) < 0)
			return e->code;
	print_calls();
	if (start(sessions, n, e) < 0)
		return e->code;
	for (int c; (c = getchar()) != EOF;)
		if (c == '\n')
			print_calls();
	return 0;
}

int main(int argc, char *argv[])
{
	uint32_t n;
	struct err e;

	log_init("swarm", LOG_INFO);
	signal(SIGPIPE, SIG_IGN);
	if (argc != 4 || !number_parse(argv[3], 1, FLEET_HOSTS_MAX, &n)) {
		fputs(usage, stderr);
		return 2;
	}
	int ret = serve(argv[1], argv[2], n, &e);
	if (ret < 0)
		log_error("%s", e.text);
	/* At once, as killed hosts. */
	_Exit(ret < 0);
}
