// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/etcd/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/file.h"
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

int fleet_settings_load(struct fleet_settings *out, const char *dir, struct err *e)
{
	char path[512];
	size_t len;

	snprintf(path, sizeof(path), "%s/fleet.json", dir);
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	scoped_free char *text = file_text(fd, SETTINGS_MAX, &len, e);
	if (!text)
		return err_context(e, "%s (`rametctl fleet join` writes it)", path);
	return fleet_settings_read(out, text, len, e) < 0 ? err_context(e, "%s", path) : 0;
}

void fleet_settings_free(struct fleet_settings *s)
{
	json_free(fields, ARRAY_LEN(fields), s);
	*s = (struct fleet_settings){0};
}
