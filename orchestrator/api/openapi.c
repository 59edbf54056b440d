// SPDX-License-Identifier: Apache-2.0
/* Embeds the document that generate.py makes of openapi.json. */

__asm__(".section .rodata\n"
	".global openapi_json, openapi_json_end\n"
	"openapi_json:\n"
	".incbin \"" OPENAPI_PATH "\"\n"
	"openapi_json_end:\n"
	".byte 0\n"
	".previous\n");
