// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_ORCHESTRATOR_OPERATOR_DOCTOR_INTERNAL_H
#define RAMET_ORCHESTRATOR_OPERATOR_DOCTOR_INTERNAL_H

#include "orchestrator/operator/doctor.h"

/* Reports a finding. `remedy` is NULL if the result is DOCTOR_OK. */
__attribute__((format(printf, 5, 6))) void doctor_say(const struct doctor_host *h,
						      const char *check, enum doctor_result result,
						      const char *remedy, const char *format, ...);

/* Opens a file below root; returns NULL if it is missing or unreadable. */
FILE *doctor_open(const struct doctor_host *h, const char *path);
bool doctor_exists(const struct doctor_host *h, const char *path);
/* Reads the first line without its end; false, and an empty text, if there is none. */
bool doctor_line(const struct doctor_host *h, const char *path, char *out, size_t size);

void doctor_check_firewall(const struct doctor_host *h);

#endif
