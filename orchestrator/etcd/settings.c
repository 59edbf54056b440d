// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/etcd/settings.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/fleet/id.h"
#include "orchestrator/json/json.h"

static const struct json_field fields[] = {
	JSON_FIELD(struct fleet_settings, cell, "cell", JSON_WHOLE, .max = FLEET_CELL_MAX,
		   .required = true),
	JSON_FIELD(struct fleet_settings, etcd, "etcd", JSON_LIST, .max = ETCD_MEMBERS_MAX,
		   .required = true),
};

int fleet_settings_read(struct fleet_settings *out, const char *text, size_t len, struct err *e)
{
	*out = (struct fleet_settings){0};
	int ret = json_read(text, len, fields, ARRAY_LEN(fields), out, e);
	if (ret < 0)
		return ret;
	ret = card_read(&out->self, text, len, e);
	if (ret < 0)
		fleet_settings_free(out);
	return ret;
}

void fleet_settings_free(struct fleet_settings *s)
{
	json_free(fields, ARRAY_LEN(fields), s);
	*s = (struct fleet_settings){0};
}
