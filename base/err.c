// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void set_text(struct err *e, const char *format, va_list args)
{
	vsnprintf(e->text, sizeof(e->text), format, args);
}

static int fill(struct err *e, int errnum, const char *format, va_list args)
{
	int code = errnum ? errnum : EIO;

	if (e) {
		set_text(e, format, args);
		e->code = -code;
	}
	return -code;
}

int err_set(struct err *e, int errnum, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int code = fill(e, errnum, format, args);
	va_end(args);
	if (e) {
		size_t used = strlen(e->text);
		snprintf(e->text + used, sizeof(e->text) - used, ": %s", strerror(-code));
	}
	return code;
}

int err_say(struct err *e, int errnum, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int code = fill(e, errnum, format, args);
	va_end(args);
	return code;
}

int err_context(struct err *e, const char *format, ...)
{
	char before[ERR_TEXT_MAX];
	va_list args;

	if (!e)
		return -EIO;
	memcpy(before, e->text, sizeof(before));
	va_start(args, format);
	set_text(e, format, args);
	va_end(args);
	size_t used = strlen(e->text);
	snprintf(e->text + used, sizeof(e->text) - used, ": %s", before);
	return e->code;
}
