// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/operator/doctor.h"

static const char *const words[] = {
	[DOCTOR_OK] = "ok",
	[DOCTOR_WARNING] = "warning",
	[DOCTOR_PROBLEM] = "problem",
};

/* Texts contain parts of files of the host, which may hold any byte. */
static void print_json_text(FILE *out, const char *text)
{
	putc('"', out);
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte == '"' || byte == '\\')
			fprintf(out, "\\%c", byte);
		else if (byte < 0x20 || byte >= 0x7f)
			fprintf(out, "\\u%04x", byte);
		else
			putc(byte, out);
	}
	putc('"', out);
}

/* Prints ASCII only: bytes from 0x80 on may be control characters of the terminal (C1), also as the
 * second byte of a character in UTF-8. */
static void print_plain(FILE *out, const char *text)
{
	for (; *text; text++)
		putc(*text < 0x20 || *text >= 0x7f ? '?' : *text, out);
	putc('\n', out);
}

static void print_json(FILE *out, bool first, const struct doctor_finding *f)
{
	fputs(first ? "\n  {\"check\": " : ",\n  {\"check\": ", out);
	print_json_text(out, f->check);
	fprintf(out, ", \"result\": \"%s\", \"text\": ", words[f->result]);
	print_json_text(out, f->text);
	if (f->remedy) {
		fputs(", \"remedy\": ", out);
		print_json_text(out, f->remedy);
	}
	putc('}', out);
}

void doctor_print_begin(struct doctor_printer *p)
{
	if (p->json)
		fputs("{\"findings\": [", p->out);
}

void doctor_print(void *arg, const struct doctor_finding *f)
{
	struct doctor_printer *p = arg;
	bool first = !p->count[DOCTOR_OK] && !p->count[DOCTOR_WARNING] && !p->count[DOCTOR_PROBLEM];

	p->count[f->result]++;
	if (p->json) {
		print_json(p->out, first, f);
		return;
	}
	fprintf(p->out, "%-7s  %-10s  ", words[f->result], f->check);
	print_plain(p->out, f->text);
	if (f->remedy) {
		fprintf(p->out, "%-7s  %-10s  -> ", "", "");
		print_plain(p->out, f->remedy);
	}
}

enum doctor_result doctor_print_end(struct doctor_printer *p)
{
	enum doctor_result worst = p->count[DOCTOR_PROBLEM]   ? DOCTOR_PROBLEM
				   : p->count[DOCTOR_WARNING] ? DOCTOR_WARNING
							      : DOCTOR_OK;

	if (p->json)
		fprintf(p->out, "\n], \"result\": \"%s\"}\n", words[worst]);
	else
		fprintf(p->out, "%u ok, %u warnings, %u problems\n", p->count[DOCTOR_OK],
			p->count[DOCTOR_WARNING], p->count[DOCTOR_PROBLEM]);
	return worst;
}
