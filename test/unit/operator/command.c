// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "orchestrator/events/line.h"
#include "orchestrator/operator/command.h"
#include "orchestrator/store/keys.h"
#include "orchestrator/store/store.h"

struct world {
	struct config config;
	struct store *store;
	struct keys *keys;
	char *said;
	enum command_wait wait;	      /* set by the last command */
	char audited[AUDIT_LINE_MAX]; /* event of the last command; "" when there was none */
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct err e;

	config_defaults(&w->config);
	if (store_open(&w->store, ":memory:", &e) < 0 || keys_new(&w->keys, w->store, &e) < 0)
		fail_msg("%s", e.text);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	keys_free(w->keys);
	store_close(w->store);
	free(w->said);
	free(w);
	return 0;
}

static const struct command *const tables[] = {key_commands, audit_commands, NULL};

static bool on_event(void *arg, const struct logged_event *event)
{
	struct world *w = arg;

	snprintf(w->audited, sizeof(w->audited), "%s", event->line);
	return true;
}

/* Checks the event of the last command, from the event on; `format` may contain the
 * key's id. */
static void was_audited(struct world *w, const char *format, const char *id)
{
	char line[AUDIT_LINE_MAX];

	snprintf(line, sizeof(line), format, id, id);
	assert_non_null(strstr(w->audited, line));
}

/* Runs a command whose words are separated by |. */
static enum command_status run(struct world *w, const char *words)
{
	const struct command_env env = {.config = &w->config, .keys = w->keys, .store = w->store};
	static struct arguments args;
	char request[512];
	size_t len = strlen(words) + 1, said;
	struct err e;

	memcpy(request, words, len);
	for (size_t i = 0; i < len; i++)
		if (request[i] == '|')
			request[i] = '\0';
	if (arguments_parse(&args, request, len, &e) < 0)
		fail_msg("%s", e.text);
	free(w->said);
	const struct store_events_range fresh = {.after = store_events_count(w->store).last};
	w->audited[0] = '\0';
	FILE *out = open_memstream(&w->said, &said);
	enum command_status status = command_run(tables, &env, &args, out, &w->wait);
	fclose(out);
	assert_int_equal(store_events(w->store, &fresh, 10, on_event, w, &e), 0);
	return status;
}

static void says(struct world *w, const char *words)
{
	if (!strstr(w->said, words))
		fail_msg("\"%s\" does not say \"%s\"", w->said, words);
}

/* Copies the word that follows `before` in the last answer. */
static void take(struct world *w, const char *before, char out[static 64])
{
	const char *at = strstr(w->said, before);

	assert_non_null(at);
	snprintf(out, 64, "%.*s", (int)strcspn(at + strlen(before), " ,\n"), at + strlen(before));
}

static void key_is_created_rotated_and_revoked(void **state)
{
	struct world *w = *state;
	char id[64], words[128], text[KEY_TEXT_LEN + 1];
	const struct key *key;

	assert_int_equal(run(w, "key|create|--tier|pro|--name=ci & more"), COMMAND_DONE);
	says(w, "tier pro, name ci & more");
	memcpy(text, w->said, KEY_TEXT_LEN);
	text[KEY_TEXT_LEN] = '\0';
	assert_int_equal(keys_check(w->keys, text, KEY_TEXT_LEN, &key), KEY_GOOD);
	take(w, "# key ", id);
	assert_string_equal(id, key->id);
	says(w, "first key: from now on, requests without a key are refused");
	was_audited(w, "\"event\":\"key.created\",\"tenant\":\"tnt_", id);
	was_audited(w, "\",\"key\":\"%s\",\"text\":\"tier pro, name ci & more\"}", id);
	assert_null(strstr(w->audited, text));
	assert_int_equal(w->wait, COMMAND_SYNC);

	assert_int_equal(run(w, "key|list"), COMMAND_DONE);
	assert_int_equal(w->wait, COMMAND_AT_ONCE);
	assert_string_equal(w->audited, "");
	says(w, id);
	says(w, "good");
	assert_null(strstr(w->said, "rmt_"));

	snprintf(words, sizeof(words), "key|rotate|%s|--grace|60", id);
	assert_int_equal(run(w, words), COMMAND_DONE);
	assert_int_equal(w->wait, COMMAND_SYNC);
	says(w, "rmt_");
	says(w, "for at most 60 s");
	was_audited(w, "\"event\":\"key.rotated\"", id);
	was_audited(w,
		    "\",\"previous\":\"%s\",\"text\":\"tier pro, name ci & more; "
		    "the previous key is valid for at most 60 s\"}",
		    id);
	assert_int_equal(run(w, "key|list"), COMMAND_DONE);
	says(w, "ending");

	snprintf(words, sizeof(words), "key|revoke|%s", id);
	assert_int_equal(run(w, words), COMMAND_DONE);
	was_audited(w, "\"event\":\"key.revoked\",\"tenant\":\"tnt_", id);
	was_audited(w, "\"key\":\"%s\"", id);
	assert_int_equal(w->wait, COMMAND_SYNC);
	assert_int_equal(run(w, words), COMMAND_DONE);
	assert_int_equal(w->wait, COMMAND_SYNC); /* the first sync may have failed */
	assert_string_equal(w->audited, "");
	assert_int_equal(run(w, "key|list"), COMMAND_DONE);
	says(w, "revoked");
}

static void key_can_be_made_for_an_existing_tenant(void **state)
{
	struct world *w = *state;

	assert_int_equal(run(w, "key|create|--tier|pro|--name|a|--tenant|local"), COMMAND_DONE);
	says(w, "tenant local,");
	assert_int_equal(run(w, "key|create|--tier|pro|--name|a|--tenant|tnt_1"), COMMAND_FAILED);
	says(w, "there is no tenant \"tnt_1\"");
	assert_int_equal(run(w, "key|create|--tier|operator|--name|a"), COMMAND_DONE);
	assert_null(strstr(w->said, "first key"));
}

static void tier_of_a_key_is_changed(void **state)
{
	struct world *w = *state;
	char id[64], words[128];

	assert_int_equal(run(w, "key|create|--tier|operator|--name|a"), COMMAND_DONE);
	take(w, "# key ", id);
	snprintf(words, sizeof(words), "key|tier|%s|admin", id);
	assert_int_equal(run(w, words), COMMAND_DONE);
	assert_int_equal(w->wait, COMMAND_SYNC);
	says(w, "has the tier admin");
	was_audited(w, "\"event\":\"key.changed\"", id);
	assert_string_equal(keys_find(w->keys, id)->tier, "admin");
	snprintf(words, sizeof(words), "key|tier|%s|gold", id);
	assert_int_equal(run(w, words), COMMAND_USAGE);
	says(w, "(or operator or admin), not \"gold\"");
	assert_int_equal(run(w, "key|tier|key_0123456789abcdef|free"), COMMAND_FAILED);
	says(w, "there is no key key_0123456789abcdef");
}

static const struct {
	const char *words, *says;
	enum command_status status;
} wrong[] = {
	{"key", "\"key\" needs a subcommand:\nusage: rametctl key create ", COMMAND_USAGE},
	{"key|", "there is no command \"key \"", COMMAND_USAGE},
	{"key|drop|x", "there is no command \"key drop\"\nusage: rametctl key create ",
	 COMMAND_USAGE},
	{"ke", "there is no command \"ke\"\n", COMMAND_USAGE},
	{"keys|list", "there is no command \"keys\"", COMMAND_USAGE},
	{"key|create", "--tier and --name are required", COMMAND_USAGE},
	{"key|create|--tier", "--tier needs a value", COMMAND_USAGE},
	{"key|create|--tier|pro|--tier|pro|--name|x", "--tier is given twice", COMMAND_USAGE},
	{"key|create|--tier|gold|--name|x", "must be free, pro, scale or enterprise",
	 COMMAND_USAGE},
	{"key|create|--tier|pro|--name|", "must have 1 to 63 bytes", COMMAND_USAGE},
	{"key|create|--tier|pro|--name|x|y", "unexpected argument \"y\"", COMMAND_USAGE},
	{"key|create|--tier|pro|--nam|x", "there is no option \"--nam\"", COMMAND_USAGE},
	{"key|list|x", "unexpected argument", COMMAND_USAGE},
	{"key|revoke", "an argument is missing", COMMAND_USAGE},
	{"key|revoke|-1", "there is no option \"-1\"\nusage: rametctl key revoke ID",
	 COMMAND_USAGE},
	{"key|revoke|key_0", "there is no key key_0", COMMAND_FAILED},
	{"key|rotate|key_0", "there is no key key_0", COMMAND_FAILED},
	{"key|rotate|key_0|--grace|-1", "--grace must be whole seconds from 0", COMMAND_USAGE},
	{"key|rotate|key_0|--grace|1h", "not \"1h\"", COMMAND_USAGE},
	{"key|rotate|key_0|--grace|99999999999999999999", "from 0 to 31536000", COMMAND_USAGE},
	{"key|rotate|key_0|--grace=", "from 0 to 31536000", COMMAND_USAGE},
};

static unsigned count_lines(const char *text)
{
	unsigned n = 0;

	for (; (text = strchr(text, '\n')); text++)
		n++;
	return n;
}

/* Each part of the answer has at most COMMAND_LINES lines. */
static void many_keys_are_listed_in_parts(void **state)
{
	struct world *w = *state;
	struct command_rest rest = {0};
	const struct command_env env = {.config = &w->config, .keys = w->keys, .rest = &rest};
	static struct arguments args;
	char *said = NULL, text[KEY_TEXT_LEN + 1];
	const struct key *key = NULL;
	enum command_wait wait;
	unsigned before = 0, parts = 0;
	size_t len = 0;
	struct err e;

	for (int i = 0; i < 3 * COMMAND_LINES - 1; i++)
		assert_int_equal(keys_create(w->keys, "k", "pro", NULL, text, &key, &e), 0);
	assert_int_equal(arguments_parse(&args, "key\0list", 9, &e), 0);
	FILE *out = open_memstream(&said, &len);
	assert_int_equal(command_run(tables, &env, &args, out, &wait), COMMAND_DONE);
	assert_non_null(rest.more);
	for (bool more = true; more; parts++) {
		more = rest.more(&env, &rest, out);
		fflush(out);
		assert_in_range(count_lines(said) - before, 1, COMMAND_LINES + 1);
		before = count_lines(said);
	}
	fclose(out);
	assert_int_equal(parts, 3);
	assert_int_equal(count_lines(said), 3 * COMMAND_LINES);
	for (key = keys_next(w->keys, NULL); key; key = keys_next(w->keys, key))
		assert_non_null(strstr(said, key->id));
	free(said);
}

static void errors_name_the_mistake(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		if (run(w, wrong[i].words) != wrong[i].status)
			fail_msg("%s: unexpected status; it said: %s", wrong[i].words, w->said);
		assert_int_equal(w->wait, COMMAND_AT_ONCE);
		says(w, wrong[i].says);
		if (wrong[i].status == COMMAND_USAGE)
			says(w, "usage: rametctl ");
	}
	assert_int_equal(run(w, "help"), COMMAND_DONE);
	says(w, "key create --tier TIER --name NAME");
}

static int parse(const void *request, size_t len)
{
	static struct arguments args;
	struct err e;
	int ret = arguments_parse(&args, request, len, &e);

	assert_true(ret == 0 ? args.argc >= 1 && !args.argv[args.argc] : e.text[0]);
	return ret;
}

static void requests_are_checked(void **state)
{
	static char large[COMMAND_BYTES_MAX + 1], many[2 * COMMAND_ARGS_MAX + 2];

	assert_int_equal(parse("", 0), -EINVAL);
	assert_int_equal(parse("key", 3), -EINVAL); /* truncated */
	assert_int_equal(parse("key", 4), 0);
	assert_int_equal(parse("", 1), 0); /* one empty argument */
	assert_int_equal(parse("k\ny", 4), -EINVAL);
	assert_int_equal(parse("k\x7fy", 4), -EINVAL);
	assert_int_equal(parse("k\xc3\xa9y", 5), 0);
	memset(large, 'x', sizeof(large) - 2);
	assert_int_equal(parse(large, sizeof(large) - 1), 0);
	large[sizeof(large) - 2] = 'x';
	assert_int_equal(parse(large, sizeof(large)), -EINVAL);
	memset(many, 'x', sizeof(many));
	for (size_t i = 1; i < sizeof(many); i += 2)
		many[i] = '\0';
	assert_int_equal(parse(many, sizeof(many) - 2), 0);
	assert_int_equal(parse(many, sizeof(many)), -EINVAL);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void events_are_listed_after_a_number(void **state)
{
	struct world *w = *state;

	assert_int_equal(run(w, "key|create|--tier|pro|--name|a"), COMMAND_DONE);
	assert_int_equal(run(w, "key|create|--tier|pro|--name|b"), COMMAND_DONE);
	assert_int_equal(run(w, "audit"), COMMAND_DONE);
	says(w, "{\"n\":1,");
	says(w, "name b\"}\n");
	assert_int_equal(run(w, "audit|--since=1"), COMMAND_DONE);
	assert_memory_equal(w->said, "{\"n\":2,", 7);
	assert_int_equal(run(w, "audit|--since=2"), COMMAND_DONE);
	assert_string_equal(w->said, "");
	assert_int_equal(run(w, "audit|--since=x"), COMMAND_USAGE);
	says(w, "--since must be the number (\"n\") of an event, not \"x\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(key_is_created_rotated_and_revoked),
		T(key_can_be_made_for_an_existing_tenant),
		T(tier_of_a_key_is_changed),
		T(events_are_listed_after_a_number),
		T(many_keys_are_listed_in_parts),
		T(errors_name_the_mistake),
		cmocka_unit_test(requests_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
