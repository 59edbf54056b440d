// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/operator/command.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

/* --- arguments ------------------------------------------------------------------------------ */

int arguments_parse(struct arguments *out, const void *request, size_t len, struct err *e)
{
	out->argc = 0;
	if (!len || len > sizeof(out->text))
		return err_say(e, EINVAL, "the request must have 1 to %zu bytes, not %zu",
			       sizeof(out->text), len);
	memcpy(out->text, request, len);
	if (out->text[len - 1])
		return err_say(e, EINVAL, "the request is truncated");
	for (size_t at = 0; at < len; at += strlen(out->text + at) + 1) {
		if (out->argc == COMMAND_ARGS_MAX)
			return err_say(e, EINVAL, "there are more than %d arguments",
				       COMMAND_ARGS_MAX);
		out->argv[out->argc++] = out->text + at;
	}
	out->argv[out->argc] = NULL;
	for (size_t i = 0; i < len; i++)
		if ((out->text[i] > 0 && out->text[i] < 0x20) || out->text[i] == 0x7f)
			return err_say(e, EINVAL,
				       "an argument contains a control character (0x%02x)",
				       (unsigned)out->text[i]);
	return 0;
}

/* Sets *value to the text after `name` and '=' if the argument is NAME=VALUE. */
static bool has_value(const char *argument, const char *name, const char **value)
{
	size_t len = strlen(name);

	if (strncmp(argument, name, len) != 0 || argument[len] != '=')
		return false;
	*value = argument + len + 1;
	return true;
}

/* Parses the option at argv[0]. Returns the number of arguments it takes, 0 if it is not one of
 * `options`, or -EINVAL. */
static int take_option(const char *const argv[], struct option_value *options, size_t n,
		       struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		struct option_value *option = &options[i];
		const char *value = argv[1];
		int used = 2;

		if (has_value(argv[0], option->name, &value))
			used = 1;
		else if (strcmp(argv[0], option->name) != 0)
			continue;
		if (option->value)
			return err_say(e, EINVAL, "%s is given twice", option->name);
		if (!value)
			return err_say(e, EINVAL, "%s needs a value", option->name);
		option->value = value;
		return used;
	}
	return 0;
}

int command_options(int argc, const char *const argv[], struct option_value *options, size_t n,
		    const char **rest, size_t n_rest, struct err *e)
{
	size_t found = 0;

	for (int i = 0; i < argc;) {
		int used = take_option(argv + i, options, n, e);

		if (used < 0)
			return used;
		i += used ? used : 1;
		if (used)
			continue;
		if (argv[i - 1][0] == '-')
			return err_say(e, EINVAL, "there is no option \"%.60s\"", argv[i - 1]);
		if (found == n_rest)
			return err_say(e, EINVAL, "unexpected argument \"%.60s\"", argv[i - 1]);
		rest[found++] = argv[i - 1];
	}
	if (found < n_rest)
		return err_say(e, EINVAL, "an argument is missing");
	return 0;
}

void command_time(int64_t ms, char out[static COMMAND_TIME_LEN + 1])
{
	time_t s = (time_t)(ms / 1000);
	struct tm tm;

	if (!gmtime_r(&s, &tm) || !strftime(out, COMMAND_TIME_LEN + 1, "%Y-%m-%dT%H:%M:%SZ", &tm))
		strcpy(out, "-");
}

/* --- commands ------------------------------------------------------------------------------- */

/* Returns how many arguments are the command's words; 0 if the arguments do not begin with them. */
static int words_match(const char *words, const struct arguments *args)
{
	int n = 0;

	while (*words) {
		size_t len = strcspn(words, " ");

		if (n == args->argc || strncmp(args->argv[n], words, len) != 0 ||
		    args->argv[n][len])
			return 0;
		n++;
		words += len;
		words += *words == ' ';
	}
	return n;
}

static void print_usage(const struct command *c, FILE *out)
{
	fprintf(out, "usage: rametctl %s%s%s\n", c->words, *c->arguments ? " " : "", c->arguments);
}

static void print_help(const struct command *c, FILE *out)
{
	print_usage(c, out);
	fprintf(out, "       %s\n", c->help);
}

static void print_all(const struct command *const *tables, FILE *out)
{
	fputs("usage: rametctl [--config=FILE] [--NAME=VALUE ...] COMMAND\n\n", out);
	for (; *tables; tables++)
		for (const struct command *c = *tables; c->words; c++)
			fprintf(out, "  %s%s%s\n        %s\n", c->words, *c->arguments ? " " : "",
				c->arguments, c->help);
}

/* Returns whether the command has several words, of which this is the first. */
static bool is_of_family(const struct command *c, const char *family)
{
	size_t len = strlen(family);

	return strncmp(c->words, family, len) == 0 && c->words[len] == ' ';
}

static bool has_family(const struct command *const *tables, const char *family)
{
	for (; *tables; tables++)
		for (const struct command *c = *tables; c->words; c++)
			if (is_of_family(c, family))
				return true;
	return false;
}

static void print_family(const struct command *const *tables, const char *family,
			 void (*print)(const struct command *c, FILE *out), FILE *out)
{
	for (; *tables; tables++)
		for (const struct command *c = *tables; c->words; c++)
			if (is_of_family(c, family))
				print(c, out);
}

static const struct command *find(const struct command *const *tables, const struct arguments *args,
				  int *used)
{
	for (; *tables; tables++)
		for (const struct command *c = *tables; c->words; c++) {
			*used = words_match(c->words, args);
			if (*used)
				return c;
		}
	return NULL;
}

static int run(const struct command *c, const struct command_env *env, int argc,
	       const char *const argv[], FILE *out, struct err *e)
{
	const char *plain[COMMAND_ARGS_MAX];

	if (c->n_plain != OWN_OPTIONS &&
	    command_options(argc, argv, NULL, 0, plain, (size_t)c->n_plain, e) < 0)
		return e->code;
	return c->run ? c->run(env, argc, argv, out, e) : 0;
}

/* Prints why the arguments are no command, and which commands there are. */
static void print_unknown(const struct command *const *tables, const struct arguments *args,
			  FILE *out)
{
	const char *first = args->argv[0];

	if (!has_family(tables, first)) {
		fprintf(out, "there is no command \"%.60s\"\n", first);
		print_all(tables, out);
		return;
	}
	if (args->argc == 1)
		fprintf(out, "\"%.60s\" needs a subcommand:\n", first);
	else
		fprintf(out, "there is no command \"%.60s %.60s\"\n", first, args->argv[1]);
	print_family(tables, first, print_usage, out);
}

enum command_status command_run(const struct command *const *tables, const struct command_env *env,
				const struct arguments *args, FILE *out, enum command_wait *wait)
{
	struct err e = {0};
	int used;
	const struct command *c = find(tables, args, &used);

	*wait = COMMAND_AT_ONCE;
	if (!c) {
		if (args->argc == 1 && strcmp(args->argv[0], "help") == 0) {
			print_all(tables, out);
			return COMMAND_DONE;
		}
		print_unknown(tables, args, out);
		return COMMAND_USAGE;
	}
	int ret = run(c, env, args->argc - used, args->argv + used, out, &e);
	if (ret == 0) {
		*wait = c->wait;
		return COMMAND_DONE;
	}
	fprintf(out, "%s\n", e.text);
	if (ret == -EINVAL)
		print_usage(c, out);
	return ret == -EINVAL ? COMMAND_USAGE : COMMAND_FAILED;
}

enum command_status command_help(const struct command *const *tables, const struct arguments *args,
				 FILE *out)
{
	int used;
	const struct command *c = args->argc ? find(tables, args, &used) : NULL;

	if (c) {
		print_help(c, out);
	} else if (!args->argc) {
		print_all(tables, out);
	} else if (has_family(tables, args->argv[0])) {
		print_family(tables, args->argv[0], print_help, out);
	} else {
		print_unknown(tables, args, out);
		return COMMAND_USAGE;
	}
	return COMMAND_DONE;
}
