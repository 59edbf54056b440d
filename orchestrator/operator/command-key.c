// SPDX-License-Identifier: Apache-2.0
/* rametctl key …: commands on API keys. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/operator/command.h"
#include "orchestrator/store/keys.h"

/* Prints a new key, then facts about it as comments, so that a script can read the key from the
 * first line. Erases `text`. */
static void print_new(FILE *out, const struct key *key, char text[static KEY_TEXT_LEN + 1])
{
	fprintf(out, "%s\n", text);
	fprintf(out, "# key %s, tenant %s, tier %s, name %s\n", key->id, key->tenant, key->tier,
		key->name);
	fputs("# The key is not stored anywhere: this is the only time it is shown.\n", out);
	explicit_bzero(text, KEY_TEXT_LEN + 1);
}

static int key_create(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		      struct err *e)
{
	struct option_value options[] = {{"--tier", NULL}, {"--name", NULL}, {"--tenant", NULL}};
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;

	int ret = command_options(argc, argv, options, ARRAY_LEN(options), NULL, 0, e);
	if (ret < 0)
		return ret;
	if (!options[0].value || !options[1].value)
		return err_say(e, EINVAL, "--tier and --name are required");
	bool first = !keys_any(env->keys);
	ret = tier_check(env->config, options[0].value, e);
	if (ret == 0)
		ret = keys_create(env->keys, options[1].value, options[0].value, options[2].value,
				  text, &key, e);
	if (ret < 0)
		return ret;
	log_info("key %s made: tenant %s, tier %s", key->id, key->tenant, key->tier);
	print_new(out, key, text);
	if (first)
		fputs("# This is the first key: from now on, requests without a key are refused.\n",
		      out);
	return 0;
}

static void list_one(const struct key *key, FILE *out)
{
	char created[COMMAND_TIME_LEN + 1], revoked[COMMAND_TIME_LEN + 1] = "-";

	command_time(key->created_at_ms, created);
	if (key->revoked_at_ms)
		command_time(key->revoked_at_ms, revoked);
	fprintf(out, "%-20s  %-20s  %-10s  %-7s  %-20s  %-20s  %s\n", key->id, key->tenant,
		key->tier, key_state(key), created, revoked, key->name);
}

static bool list_some(const struct command_env *env, struct command_rest *rest, FILE *out)
{
	for (unsigned i = 0; i < COMMAND_LINES; i++) {
		const struct key *key = keys_next(env->keys, rest->key);

		if (!key)
			return false;
		list_one(key, out);
		rest->key = key;
	}
	return true;
}

/* Lists all keys, including those made while the list is written. */
static int key_list(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		    struct err *e)
{
	fprintf(out, "%-20s  %-20s  %-10s  %-7s  %-20s  %-20s  %s\n", "ID", "TENANT", "TIER",
		"STATE", "CREATED", "ENDS", "NAME");
	struct command_rest here = {0}, *rest = env->rest ? env->rest : &here;
	*rest = (struct command_rest){.more = list_some};
	while (rest == &here && list_some(env, rest, out))
		;
	return 0;
}

static int key_revoke(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		      struct err *e)
{
	const char *id = argv[0];
	const struct key *key = keys_find(env->keys, id);
	bool was_good = key && key_is_good(key);
	int ret = keys_revoke(env->keys, id, e);

	if (ret < 0)
		return ret;
	if (was_good)
		log_info("key %s revoked", id);
	fprintf(out, "key %s is revoked\n", id);
	return 0;
}

/* Reads whole seconds to *out, or sets it to -1 when the option is absent. */
static int read_grace(const char *value, int64_t *out, struct err *e)
{
	uint32_t n;

	*out = -1;
	if (!value)
		return 0;
	if (!number_parse(value, 0, KEY_GRACE_MAX_S, &n))
		return err_say(e, EINVAL,
			       "--grace must be whole seconds from 0 to %d, not \"%.40s\"",
			       KEY_GRACE_MAX_S, value);
	*out = n;
	return 0;
}

static int key_rotate(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		      struct err *e)
{
	struct option_value options[] = {{"--grace", NULL}};
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;
	const char *id;
	int64_t grace_s = -1;

	int ret = command_options(argc, argv, options, ARRAY_LEN(options), &id, 1, e);
	if (ret == 0)
		ret = read_grace(options[0].value, &grace_s, e);
	if (ret == 0)
		ret = keys_rotate(env->keys, id, grace_s, text, &key, e);
	if (ret < 0)
		return ret;
	char until[64] = "until it is revoked";
	if (grace_s >= 0)
		snprintf(until, sizeof(until), "for at most %lld s", (long long)grace_s);
	log_info("key %s replaces %s", key->id, id);
	print_new(out, key, text);
	fprintf(out, "# Key %s is valid %s.\n", id, until);
	return 0;
}

static int key_tier(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		    struct err *e)
{
	const char *id = argv[0], *tier = argv[1];
	int ret = tier_check(env->config, tier, e);

	if (ret == 0)
		ret = keys_set_tier(env->keys, id, tier, e);
	if (ret < 0)
		return ret;
	log_info("key %s: tier %s", id, tier);
	fprintf(out, "key %s has the tier %s\n", id, tier);
	return 0;
}

const struct command key_commands[] = {
	{"key create", "--tier TIER --name NAME [--tenant TENANT]",
	 "makes a key for a new or existing tenant and shows it, this time only", key_create,
	 OWN_OPTIONS, COMMAND_SYNC},
	{"key list", "", "lists all keys, including revoked ones", key_list, 0, COMMAND_AT_ONCE},
	{"key revoke", "ID", "revokes a key at once and cuts off its requests in progress",
	 key_revoke, 1, COMMAND_SYNC},
	{"key rotate", "ID [--grace SECONDS]",
	 "makes a new key of the same tenant; the old one is valid for SECONDS, or until revoked",
	 key_rotate, OWN_OPTIONS, COMMAND_SYNC},
	{"key tier", "ID TIER", "changes the tier of a key", key_tier, 2, COMMAND_SYNC},
	{NULL, NULL, NULL, NULL, 0, COMMAND_AT_ONCE},
};
