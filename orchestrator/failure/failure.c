// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/failure/failure.h"

#include <stdarg.h>
#include <stdio.h>

void failure_set(struct failure *f, int status, const char *code, unsigned retry_after,
		 const char *format, ...)
{
	va_list args;

	f->status = status;
	f->code = code;
	f->retry_after = retry_after;
	va_start(args, format);
	vsnprintf(f->text, sizeof(f->text), format, args);
	va_end(args);
}
