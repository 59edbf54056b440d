// SPDX-License-Identifier: Apache-2.0
/*
 * The API over a fake core: fake_server [NAME=VALUE]... prints the port it listens on. Names are
 * those of the configuration that the API reads, limits (read_ms, write_ms, silence_ms,
 * connections, requests, answers_bytes, read_here_bytes, reading_bytes), and:
 * ready=no (until SIGUSR1), nofile=N (limit of descriptors). SIGTERM drains and ends it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "orchestrator/api/internal.h"
#include "test/api/fake_core.h"

static struct loop *loop;
static struct core *core;

static void on_term(int sig)
{
	loop_stop(loop);
}

static void on_usr1(int sig)
{
	fake_core_set_ready(core);
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
	else if (strcmp(name, "max_body_bytes") == 0)
		c->max_body_bytes = (uint32_t)atoi(value);
	else if (strcmp(name, "stop_timeout_s") == 0)
		c->stop_timeout_s = (uint32_t)atoi(value);
	else if (strcmp(name, "fork_max") == 0)
		c->fork_max = (uint32_t)atoi(value);
	else if (strcmp(name, "read_ms") == 0)
		api_limits.read_ms = (uint32_t)atoi(value);
	else if (strcmp(name, "write_ms") == 0)
		api_limits.write_ms = (uint32_t)atoi(value);
	else if (strcmp(name, "silence_ms") == 0)
		api_limits.silence_ms = (uint32_t)atoi(value);
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
	else if (strcmp(name, "nofile") == 0)
		setrlimit(RLIMIT_NOFILE,
			  &(struct rlimit){(rlim_t)atoi(value), (rlim_t)atoi(value)});
	else
		exit(2);
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
	if (api_new(&api, loop, core, &config, &e) < 0)
		goto failed;
	printf("%u\n", api_port(api));
	fflush(stdout);
	loop_run(loop);
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
