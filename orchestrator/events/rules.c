// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/events/rules.h"

#include <stddef.h>
#include <string.h>

static bool matches(const char *rule, size_t len, const char *event)
{
	if (len && rule[len - 1] == '*')
		return strncmp(rule, event, len - 1) == 0;
	return strlen(event) == len && memcmp(rule, event, len) == 0;
}

bool rules_want(const char *list, const char *event)
{
	while (*list) {
		size_t len = strcspn(list, ", ");

		if (len && matches(list, len, event))
			return true;
		list += len + (list[len] != '\0');
	}
	return false;
}

uint32_t rules_wait_ms(unsigned failures, uint32_t chance)
{
	uint32_t ms = RETRY_FIRST_MS;

	while (--failures && failures < 64 && ms < RETRY_MOST_MS)
		ms *= 2;
	if (ms > RETRY_MOST_MS || failures >= 64)
		ms = RETRY_MOST_MS;
	return ms / 2 + chance % (ms / 2 + 1);
}
