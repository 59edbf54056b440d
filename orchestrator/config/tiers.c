// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/config/tiers.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/fd.h"
#include "base/num.h"

#define WORD_MAX 48

static const struct limit {
	const char *name;
	size_t offset;
	uint32_t min, max;
} limits[] = {
	{"ram_mib", offsetof(struct tier, ram_mib), 128, 65536},
	{"rootfs_gb", offsetof(struct tier, rootfs_gb), 1, 1024},
	{"idle_s", offsetof(struct tier, idle_s), 1, 31536000},
	{"lifetime_s", offsetof(struct tier, lifetime_s), 1, 31536000},
	{"concurrent", offsetof(struct tier, concurrent), 1, 1000000},
	{"disks_gb", offsetof(struct tier, disks_gb), 1, 1000000},
	{"spaces_gb", offsetof(struct tier, spaces_gb), 0, 1000000},
	{"checkpoints", offsetof(struct tier, checkpoints), 0, 1000000},
};

bool tier_is_operators(const char *name)
{
	return strcmp(name, TIER_OPERATOR) == 0 || strcmp(name, TIER_ADMIN) == 0;
}

static int set_choice(bool *choice, const char *name, const char *value, struct err *e)
{
	*choice = strcmp(value, "yes") == 0;
	if (*choice || strcmp(value, "no") == 0)
		return 0;
	return err_say(e, EINVAL, "%s must be yes or no, not \"%s\"", name, value);
}

static int set_limit(struct tier *t, const struct limit *l, const char *value, struct err *e)
{
	uint32_t number;

	if (!number_parse(value, l->min, l->max, &number))
		return err_say(e, EINVAL, "%s must be a whole number from %u to %u, not \"%s\"",
			       l->name, l->min, l->max, value);
	memcpy((char *)t + l->offset, &number, sizeof(number));
	return 0;
}

/* Applies one word, NAME=VALUE, to the tier. */
static int set_word(struct tier *t, char *word, struct err *e)
{
	char *equals = strchr(word, '=');

	if (!equals)
		return err_say(e, EINVAL, "expected NAME=VALUE, not \"%s\"", word);
	*equals = '\0';
	if (strcmp(word, "persistent") == 0)
		return set_choice(&t->persistent, word, equals + 1, e);
	if (strcmp(word, "private_memory") == 0)
		return set_choice(&t->private_memory, word, equals + 1, e);
	for (size_t i = 0; i < ARRAY_LEN(limits); i++)
		if (strcmp(word, limits[i].name) == 0)
			return set_limit(t, &limits[i], equals + 1, e);
	return err_say(e, EINVAL,
		       "a tier has no limit \"%s\"; its limits are ram_mib, rootfs_gb, idle_s, "
		       "lifetime_s, concurrent, disks_gb, persistent, spaces_gb, "
		       "checkpoints and private_memory",
		       word);
}

int tier_parse(struct tier *t, const char *text, struct err *e)
{
	char word[WORD_MAX];

	for (;;) {
		text += strspn(text, " ");
		size_t len = strcspn(text, " ");
		if (!len)
			return 0;
		if (len >= sizeof(word))
			return err_say(e, EINVAL, "\"%.40s…\" is too long for a limit", text);
		memcpy(word, text, len);
		word[len] = '\0';
		int ret = set_word(t, word, e);
		if (ret < 0)
			return ret;
		text += len;
	}
}
