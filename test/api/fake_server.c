// SPDX-License-Identifier: Apache-2.0
/*
 * The API over a fake core. fake_server [NAME=VALUE]... prints the port it listens on. Names are
 * settings that the API reads, limits (read_ms, body_rate, write_ms, silence_ms, tick_ms,
 * connections, requests, answers_bytes, read_here_bytes, reading_bytes), and: ready=no (until
 * SIGUSR1), nofile=N (limit of descriptors), key=TIER (creates a key, which is printed after the
 * port). SIGUSR2 revokes the first key. SIGTERM drains and ends it. Its clocks can be moved: see
 * test/moved_clock.h.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/guestops/diff-result.h"
#include "test/api/fake_core.h"
#include "test/moved_clock.h"

static struct loop *loop;
static struct core *core;

void __real_core_diff_sort(struct core_diff *d);
void __wrap_core_diff_sort(struct core_diff *d);

/* Ends the server if the loop's thread sorts many paths. */
void __wrap_core_diff_sort(struct core_diff *d)
{
	if (d->bytes > 1000000 && gettid() == getpid())
		abort();
	__real_core_diff_sort(d);
}

static void on_term(int sig)
{
	loop_stop(loop);
}

static void on_usr1(int sig)
{
	fake_core_set_ready(core);
}

static const char *tiers[4];
static char key_texts[4][KEY_TEXT_LEN + 1];
static size_t n_tiers;
static char first_key[KEY_ID_LEN + 1];
static volatile sig_atomic_t revoke_asked;
static struct loop_timer revoke_timer;

static void on_usr2(int sig)
{
	revoke_asked = 1;
}

/* Polls a flag, because the signal handler may interrupt anything. */
static void poll_revoke(void *arg)
{
	struct err e;

	if (revoke_asked && keys_revoke(core_keys(core), first_key, &e) < 0)
		fprintf(stderr, "%s\n", e.text);
	revoke_asked = 0;
	loop_timer_set(loop, &revoke_timer, 20);
}

static void make_keys(void)
{
	const struct key *key;
	struct err e;

	for (size_t i = 0; i < n_tiers; i++) {
		if (keys_create(core_keys(core), "a test", tiers[i], NULL, key_texts[i], &key, &e) <
		    0)
			exit(3);
		if (i == 0)
			strcpy(first_key, key->id);
	}
	revoke_timer.fn = poll_revoke;
	if (n_tiers)
		loop_timer_set(loop, &revoke_timer, 20);
}

static void stop(void *arg)
{
	loop_stop(loop);
}

static void set_text(char *to, size_t size, const char *value)
{
	snprintf(to, size, "%s", value);
}

static bool ready = true;

static void set(struct config *c, const char *name, const char *value)
{
	if (strcmp(name, "listen_host") == 0)
		set_text(c->listen_host, sizeof(c->listen_host), value);
	else if (strcmp(name, "listen_port") == 0)
		c->listen_port = (uint32_t)atoi(value);
	else if (strcmp(name, "allow_open") == 0)
		set_text(c->allow_open, sizeof(c->allow_open), value);
	else if (strcmp(name, "tls_cert") == 0)
		set_text(c->tls_cert, sizeof(c->tls_cert), value);
	else if (strcmp(name, "tls_key") == 0)
		set_text(c->tls_key, sizeof(c->tls_key), value);
	else if (strcmp(name, "region") == 0)
		set_text(c->region, sizeof(c->region), value);
	else if (strcmp(name, "endpoint") == 0)
		set_text(c->endpoint, sizeof(c->endpoint), value);
	else if (strcmp(name, "sandbox_domain") == 0)
		set_text(c->sandbox_domain, sizeof(c->sandbox_domain), value);
	else if (strcmp(name, "trusted_proxies") == 0)
		set_text(c->trusted_proxies, sizeof(c->trusted_proxies), value);
	else if (strcmp(name, "client_connections_s") == 0)
		c->client_connections_s = (uint32_t)atoi(value);
	else if (strcmp(name, "client_requests_s") == 0)
		c->client_requests_s = (uint32_t)atoi(value);
	else if (strcmp(name, "client_failures_s") == 0)
		c->client_failures_s = (uint32_t)atoi(value);
	else if (strcmp(name, "tenant_requests_s") == 0)
		c->tenant_requests_s = (uint32_t)atoi(value);
	else if (strcmp(name, "max_body_bytes") == 0)
		c->max_body_bytes = (uint32_t)atoi(value);
	else if (strcmp(name, "stop_timeout_s") == 0)
		c->stop_timeout_s = (uint32_t)atoi(value);
	else if (strcmp(name, "fork_max") == 0)
		c->fork_max = (uint32_t)atoi(value);
	else if (strcmp(name, "read_ms") == 0)
		api_limits.read_ms = (uint32_t)atoi(value);
	else if (strcmp(name, "body_rate") == 0)
		api_limits.body_rate = (uint32_t)atoi(value);
	else if (strcmp(name, "write_ms") == 0)
		api_limits.write_ms = (uint32_t)atoi(value);
	else if (strcmp(name, "silence_ms") == 0)
		api_limits.silence_ms = (uint32_t)atoi(value);
	else if (strcmp(name, "tick_ms") == 0)
		api_limits.tick_ms = (uint32_t)atoi(value);
	else if (strcmp(name, "connections") == 0)
		api_limits.connections = (size_t)atoi(value);
	else if (strcmp(name, "requests") == 0)
		api_limits.requests = (size_t)atoi(value);
	else if (strcmp(name, "answers_bytes") == 0)
		api_limits.answers_bytes = (size_t)atoi(value);
	else if (strcmp(name, "bodies_bytes") == 0)
		api_limits.bodies_bytes = (size_t)atoi(value);
	else if (strcmp(name, "read_here_bytes") == 0)
		api_limits.read_here_bytes = (size_t)atoi(value);
	else if (strcmp(name, "reading_bytes") == 0)
		api_limits.reading_bytes = (size_t)atoi(value);
	else if (strcmp(name, "ready") == 0)
		ready = strcmp(value, "no") != 0;
	else if (strcmp(name, "key") == 0 && n_tiers < ARRAY_LEN(tiers))
		tiers[n_tiers++] = value;
	else if (strcmp(name, "nofile") == 0)
		setrlimit(RLIMIT_NOFILE,
			  &(struct rlimit){(rlim_t)atoi(value), (rlim_t)atoi(value)});
	else {
		fprintf(stderr, "the fake server has no setting %s: add it to set() in %s\n", name,
			__FILE__);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	api_limits.tick_ms = 100;
	struct config config = {.max_body_bytes = 64u << 20, .stop_timeout_s = 10, .fork_max = 32};
	struct api *api;
	struct err e = {0};

	strcpy(config.listen_host, "127.0.0.1");
	strcpy(config.allow_open, "no");
	for (int i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			exit(2);
		*value++ = '\0';
		set(&config, argv[i], value);
	}
	log_init("fake", LOG_INFO);
	if (loop_new(&loop, &e) < 0)
		goto failed;
	core = fake_core_new(loop, ready);
	signal(SIGTERM, on_term);
	signal(SIGUSR1, on_usr1);
	signal(SIGUSR2, on_usr2);
	make_keys();
	if (api_new(&api, loop, core, &config, &e) < 0)
		goto failed;
	printf("%u\n", api_port(api));
	for (size_t i = 0; i < n_tiers; i++)
		printf("%s\n", key_texts[i]);
	fflush(stdout);
	loop_run(loop);
	loop_timer_clear(loop, &revoke_timer);
	api_drain(api, stop, NULL);
	loop_run(loop);
	core_shutdown(core, stop, NULL);
	loop_run(loop);
	api_free(api);
	core_free(core);
	loop_free(loop);
	return 0;
failed:
	fprintf(stderr, "%s\n", e.text);
	return 1;
}
