// SPDX-License-Identifier: Apache-2.0
/* The input is a request on the admin socket. The catalogue is in memory and grows with the
 * requests. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "orchestrator/operator/command.h"
#include "orchestrator/store/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEYS_MOST 200

static void expect(int right)
{
	if (!right)
		abort();
}

static struct config config;
static struct store *store;
static struct keys *keys;

static unsigned count(void)
{
	unsigned n = 0;

	for (const struct key *key = NULL; (key = keys_next(keys, key));)
		n++;
	return n;
}

static void begin(void)
{
	struct err e;

	config_defaults(&config);
	log_init("fuzz", LOG_ERROR);
	expect(store_open(&store, ":memory:", &e) == 0 && keys_new(&keys, store, &e) == 0);
}

static void end(void)
{
	keys_free(keys);
	store_close(store);
	keys = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct command *const tables[] = {key_commands, NULL};
	static struct arguments args;
	struct err e = {0};
	size_t len = 0;
	char *said = NULL;

	if (!keys)
		begin();
	if (arguments_parse(&args, data, size, &e) < 0) {
		expect(e.text[0] && memchr(e.text, '\0', sizeof(e.text)));
		return 0;
	}
	expect(args.argc >= 1 && args.argc <= COMMAND_ARGS_MAX && !args.argv[args.argc]);
	const unsigned before = count();
	const struct command_env env = {.config = &config, .keys = keys};
	FILE *out = open_memstream(&said, &len);
	enum command_wait wait;
	enum command_status status = command_run(tables, &env, &args, out, &wait);
	fclose(out);
	expect(len > 0);
	const unsigned after = count();
	expect(after == before || (after == before + 1 && status == COMMAND_DONE));
	expect((after > before) == (strncmp(said, "rmt_", 4) == 0));
	free(said);
	if (after > KEYS_MOST)
		end();
	return 0;
}
