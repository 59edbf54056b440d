// SPDX-License-Identifier: Apache-2.0
/*
 * Sends a client's bytes through h2o and the real handlers to a fake core. The first byte is the
 * number of chunks in which they are sent. One sandbox exists from the start; its id ends in 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/api/server.h"
#include "orchestrator/core/core.h"
#include "test/api/fake_core.h"

#define TURNS  12
#define INPUTS 200 /* between restarts of the server: calls that hang accumulate */

static struct loop *loop;
static struct api *api;
static struct core *core;

static void stop(void *arg)
{
	loop_stop(loop);
}

static void on_created(void *arg, const struct sandbox_view *view, const struct failure *f)
{
	loop_stop(loop);
}

/* Runs a few turns of the loop. */
static void turn(void)
{
	for (int i = 0; i < TURNS; i++) {
		struct loop_timer t = {.fn = stop};

		loop_timer_set(loop, &t, 0);
		loop_run(loop);
	}
}

static void set_up(void)
{
	static struct config config = {.max_body_bytes = 1 << 20,
				       .stop_timeout_s = 0,
				       .listen_host = "127.0.0.1",
				       .allow_open = "no",
				       .fork_max = 32,
				       .region = "eu-1"};
	struct sandbox_spec spec = {0};
	struct err e;

	log_init("fuzz", LOG_ERROR);
	if (loop_new(&loop, &e) < 0)
		abort();
	core = fake_core_new(loop, true);
	core_create(core, "local", &spec, on_created, NULL);
	loop_run(loop);
	if (api_new(&api, loop, core, &config, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		abort();
	}
}

static void take_down(void)
{
	api_free(api);
	core_free(core);
	loop_free(loop);
	api = NULL;
}

/* Returns a connected socket, or -1 when the fuzzer's timer interrupted it. */
static int try_dial(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)api_port(api)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	scoped_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
		return take_fd(&fd);
	if (errno == EINTR)
		return -1;
	perror("connect to the server");
	abort();
}

static int dial(void)
{
	struct linger none = {.l_onoff = 1}; /* no TIME_WAIT, which would use up the ports */
	int fd;

	while ((fd = try_dial()) < 0)
		;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned inputs;
	char drain[65536];

	if (api && ++inputs % INPUTS == 0)
		take_down();
	if (!api)
		set_up();
	if (size < 2)
		return 0;
	size_t chunks = 1 + data[0] % 4, step = (size - 1 + chunks - 1) / chunks;
	data++;
	size--;
	scoped_fd int fd = dial();
	for (size_t at = 0; at < size; at += step) {
		size_t len = size - at < step ? size - at : step;

		if (send(fd, data + at, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		turn();
		while (recv(fd, drain, sizeof(drain), MSG_DONTWAIT) > 0)
			;
	}
	close_fd(&fd);
	turn();
	return 0;
}
