// SPDX-License-Identifier: Apache-2.0
/*
 * Reads what a guest says about a merge of files. The first byte is the number of paths. What is
 * accepted has a known outcome and a fitting resolution for each path.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/guestops/merge-plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PATHS 255

static void expect(bool right)
{
	if (!right)
		abort();
}

static void check(const struct merge_plan *p)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct merge_entry *n = &p->entries[i];
		bool clean = n->outcome == MERGE_SAME || n->outcome == MERGE_TAKEN ||
			     n->outcome == MERGE_MERGED;

		expect(clean || (n->outcome && strchr("CBTDAMGWEU", (char)n->outcome)));
		expect(clean == (n->resolution == MERGE_CLEAN));
		expect(clean || (n->resolution && strchr("-otm", (char)n->resolution)));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct merge_entry entries[PATHS];
	struct merge_plan p = {.branches = 1, .entries = entries, .n = size ? data[0] : 0};
	struct err e = {0};

	if (!size)
		return 0;
	for (size_t i = 0; i < p.n; i++)
		entries[i] = (struct merge_entry){.path = "/a"};
	int ret = merge_plan_read(&p, data + 1, size - 1, &e);
	if (ret < 0)
		expect(ret == -EPROTO && e.text[0]);
	else
		check(&p);
	return 0;
}
