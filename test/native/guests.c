// SPDX-License-Identifier: Apache-2.0
#include "test/native/guests.h"

#include <elf.h>
#include <string.h>

#include "test/native/vmm-client.h"

/* clang-format off */
asm(
".pushsection .rodata\n"
".code64\n"

/* say TEXT: writes it to the serial port, byte by byte; changes al, dx, rsi */
".macro say text\n"
"	lea 8f(%rip), %rsi\n"
"	jmp 9f\n"
"8:	.asciz \"\\text\\n\"\n"
"9:	mov $0x3f8, %dx\n"
"7:	mov (%rsi), %al\n"
"	cmp $0, %al\n"
"	je 6f\n"
"	out %al, %dx\n"
"	inc %rsi\n"
"	jmp 7b\n"
"6:\n"
".endm\n"
".macro power_off\n"
"	mov $0x604, %dx\n"
"	mov $0x34, %al\n"
"	out %al, %dx\n"
"5:	jmp 5b\n"
".endm\n"
".macro wait_for_flag\n"
"5:	mov 0x200000, %al\n"
"	cmp $0, %al\n"
"	je 5b\n"
".endm\n"

"guest_hello:\n"
"	say hi\n"
"	mov $0xd0000000, %edi\n"
"	mov (%rdi), %eax\n"
"	cmp $0x74726976, %eax\n" /* "virt" */
"	jne 1f\n"
"	say magic\n"
"1:	power_off\n"
"guest_hello_end:\n"

"guest_timeout:\n"
"	movabs $0x1122334455667788, %rbx\n"
"	movabs $0xfedcba9876543210, %rcx\n"
"	mov %rbx, 0x300000\n"
"	mov %rcx, 0x3ffff8\n"
"	mov $0x0bad, %rbp\n"
"	mov $0xcafe, %rdi\n"
"	mov $0x8888, %r8\n"
"	mov $0x9999, %r9\n"
"	mov $0xaaaa, %r10\n"
"	mov $0xbbbb, %r11\n"
"	mov $0xcccc, %r12\n"
"	mov $0xdddd, %r13\n"
"	mov $0xeeee, %r14\n"
"	mov $0xffff, %r15\n"
"	say ready\n"
"	wait_for_flag\n"
"	cmp 0x300000, %rbx\n"
"	jne 2f\n"
"	cmp 0x3ffff8, %rcx\n"
"	jne 2f\n"
"	movabs $0x1122334455667788, %rax\n"
"	cmp %rax, %rbx\n"
"	jne 2f\n"
"	movabs $0xfedcba9876543210, %rax\n"
"	cmp %rax, %rcx\n"
"	jne 2f\n"
"	cmp $0x0bad, %rbp\n"
"	jne 2f\n"
"	cmp $0xcafe, %rdi\n"
"	jne 2f\n"
"	cmp $0x8ff0, %rsp\n"
"	jne 2f\n"
"	cmp $0x8888, %r8\n"
"	jne 2f\n"
"	cmp $0x9999, %r9\n"
"	jne 2f\n"
"	cmp $0xaaaa, %r10\n"
"	jne 2f\n"
"	cmp $0xbbbb, %r11\n"
"	jne 2f\n"
"	cmp $0xcccc, %r12\n"
"	jne 2f\n"
"	cmp $0xdddd, %r13\n"
"	jne 2f\n"
"	cmp $0xeeee, %r14\n"
"	jne 2f\n"
"	cmp $0xffff, %r15\n"
"	jne 2f\n"
"	say same\n"
"	power_off\n"
"2:	say differs\n"
"	power_off\n"
"guest_timeout_end:\n"

".macro say_number\n"
"	mov $0x3f8, %dx\n"
"	mov $'n', %al\n"
"	out %al, %dx\n"
"	mov $'=', %al\n"
"	out %al, %dx\n"
"	mov 0x201000, %al\n"
"	add $'0', %al\n"
"	out %al, %dx\n"
"	mov $10, %al\n"
"	out %al, %dx\n"
".endm\n"

"guest_twin:\n"
"	say ready\n"
"	wait_for_flag\n"
"	say_number\n"
"	mov 0x201000, %al\n"
"	add $1, %al\n"
"	mov %al, 0x201000\n"
"	say_number\n"
"1:	jmp 1b\n"
"guest_twin_end:\n"

/* The other processors start in real mode, in a page below 1 MiB to which the first copies code. */
".macro place_others\n"
"	lea 8f(%rip), %rsi\n"
"	mov $0x5000, %edi\n"
"	mov $(9f - 8f), %ecx\n"
"7:	mov (%rsi), %al\n"
"	mov %al, (%rdi)\n"
"	inc %rsi\n"
"	inc %rdi\n"
"	dec %ecx\n"
"	jne 7b\n"
"	jmp 9f\n"
".code16\n"
"8:	xor %ax, %ax\n"
"	mov %ax, %ds\n"
"	lock incl 0x6000\n"
"6:	incl 0x6010\n"
"	jmp 6b\n"
".code64\n"
"9:\n"
".endm\n"
/* Wakes the other processors, and waits until ebx of them run; changes eax, edi. */
".macro wake_others\n"
"	mov $0xfee00300, %edi\n"
"	movl $0x000c4500, (%rdi)\n" /* INIT to all but itself */
"	movl $0x000c4605, (%rdi)\n" /* start-up at page 5 */
"9:	mov 0x6000, %eax\n"
"	cmp %ebx, %eax\n"
"	jb 9b\n"
".endm\n"

"guest_crowd:\n"
"	place_others\n"
"	mov 0x210000, %ebx\n"	/* how many others there are: from the test */
"	cmp $0, %ebx\n"
"	jne 2f\n"
"	say alone\n"
"	jmp 4f\n"
"2:	wake_others\n"
"	say \"all up\"\n"
"4:	wait_for_flag\n"
"	mov 0x210000, %ebx\n"
"	cmp $0, %ebx\n"
"	je 6f\n"
"	mov 0x6010, %ecx\n"
"5:	mov 0x6010, %eax\n"
"	cmp %ecx, %eax\n"
"	je 5b\n"
"6:	say \"still counting\"\n"
"	power_off\n"
"guest_crowd_end:\n"

/* say_hex: writes eax and a blank; changes ebx, ecx, edx */
".macro say_hex\n"
"	mov $0x3f8, %dx\n"
"	mov $8, %ecx\n"
"9:	rol $4, %eax\n"
"	mov %eax, %ebx\n"
"	and $15, %al\n"
"	add $'0', %al\n"
"	cmp $'9', %al\n"
"	jbe 8f\n"
"	add $('a' - '9' - 1), %al\n"
"8:	out %al, %dx\n"
"	mov %ebx, %eax\n"
"	dec %ecx\n"
"	jne 9b\n"
"	mov $' ', %al\n"
"	out %al, %dx\n"
".endm\n"
".macro say_id offset\n"
"	mov $(0x610 + 4 + \\offset), %dx\n"
"	in %dx, %eax\n"
"	say_hex\n"
".endm\n"

"guest_copy:\n"
"	place_others\n"
/* Sets vector 0x40, the only one used, in an interrupt table at 0x300000. */
"	lea copied(%rip), %rax\n"
"	mov $0x300400, %edi\n"
"	mov %ax, (%rdi)\n"
"	movw $0x10, 2(%rdi)\n"
"	movw $0x8e00, 4(%rdi)\n"
"	shr $16, %eax\n"
"	mov %ax, 6(%rdi)\n"
"	mov $0x301000, %edi\n"
"	movw $0x40f, (%rdi)\n"
"	movl $0x300000, 2(%rdi)\n"
"	lidt (%rdi)\n"
"	mov $0xff, %al\n" /* the old interrupt controllers are off */
"	mov $0x21, %dx\n"
"	out %al, %dx\n"
"	mov $0xa1, %dx\n"
"	out %al, %dx\n"
"	mov $0xfee000f0, %edi\n" /* the local APIC is on */
"	movl $0x1ff, (%rdi)\n"
"	mov $0xfec00000, %edi\n" /* pin 12 of the I/O APIC: an edge is vector 0x40 of vCPU 0 */
"	movl $0x29, (%rdi)\n"
"	movl $0, 16(%rdi)\n"
"	movl $0x28, (%rdi)\n"
"	movl $0x40, 16(%rdi)\n"
"	mov 0x210000, %ebx\n"
"	wake_others\n"
"	mov $0x610, %dx\n"
"	mov $1, %al\n"
"	out %al, %dx\n"
"	sti\n"
"	say ready\n"
"1:	incl 0x220000\n"
"	jmp 1b\n"
"copied:\n"
"	mov 0x220000, %r8d\n"
"	mov 0x6010, %r9d\n"
"	say copied\n"
"	mov %r8d, %eax\n"
"	say_hex\n"
"	mov %r9d, %eax\n"
"	say_hex\n"
"	say_id 0\n"
"	say_id 4\n"
"	say_id 8\n"
"	say_id 12\n"
"	mov $10, %al\n"
"	mov $0x3f8, %dx\n"
"	out %al, %dx\n"
"	mov 0x200000, %al\n"
"	cmp $0, %al\n"
"	jne 2f\n"
"	mov $0x610, %dx\n"
"	mov $1, %al\n"
"	out %al, %dx\n"
"2:	mov 0x6010, %eax\n"
"	cmp %r9d, %eax\n"
"	je 2b\n"
"	say followed\n"
"	power_off\n"
"guest_copy_end:\n"

"guest_msr:\n"
"	mov $0xc0000081, %ecx\n" /* STAR: an image has it */
"	mov $0x12345678, %eax\n"
"	mov $0, %edx\n"
"	wrmsr\n"
"	rdmsr\n"
"	cmp $0x12345678, %eax\n"
"	jne 1f\n"
"	say kept\n"
"1:	mov $0x1fc, %ecx\n" /* POWER_CTL: KVM would keep it, and no image has it */
"	rdmsr\n"
"	say read\n"
"	mov $2, %eax\n"
"	wrmsr\n"
"	say written\n"
"	power_off\n"
"guest_msr_end:\n"

"guest_fault:\n"
"	ud2\n"
"guest_fault_end:\n"

"guest_halt:\n"
"	say ready\n"
"	cli\n"
"1:	hlt\n"
"	jmp 1b\n"
"guest_halt_end:\n"

"guest_reset:\n"
"	mov $0x64, %dx\n"
"	mov $0xfe, %al\n"
"	out %al, %dx\n"
"1:	jmp 1b\n"
"guest_reset_end:\n"
".popsection\n"
);
/* clang-format on */

#define GUEST_CODE(name) extern const uint8_t guest_##name[], guest_##name##_end[]

GUEST_CODE(hello);
GUEST_CODE(timeout);
GUEST_CODE(twin);
GUEST_CODE(crowd);
GUEST_CODE(copy);
GUEST_CODE(msr);
GUEST_CODE(fault);
GUEST_CODE(halt);
GUEST_CODE(reset);

static const struct {
	const uint8_t *start, *end;
} guests[] = {
	[GUEST_HELLO] = {guest_hello, guest_hello_end},
	[GUEST_TIMEOUT] = {guest_timeout, guest_timeout_end},
	[GUEST_TWIN] = {guest_twin, guest_twin_end},
	[GUEST_CROWD] = {guest_crowd, guest_crowd_end},
	[GUEST_COPY] = {guest_copy, guest_copy_end},
	[GUEST_MSR] = {guest_msr, guest_msr_end},
	[GUEST_FAULT] = {guest_fault, guest_fault_end},
	[GUEST_HALT] = {guest_halt, guest_halt_end},
	[GUEST_RESET] = {guest_reset, guest_reset_end},
};

int guest_elf_with(enum guest g, uint64_t addr, uint32_t value)
{
	size_t len = (size_t)(guests[g].end - guests[g].start);
	uint8_t file[8192] = {0};
	Elf64_Ehdr h = {
		.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			    EV_CURRENT},
		.e_type = ET_EXEC,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_entry = GUEST_ADDR,
		.e_phoff = sizeof(h),
		.e_ehsize = sizeof(h),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 2,
	};
	Elf64_Phdr p[2] = {
		{.p_type = PT_LOAD, .p_offset = 4096, .p_paddr = GUEST_ADDR},
		{.p_type = PT_LOAD, .p_offset = 2048, .p_paddr = addr},
	};

	p[0].p_filesz = p[0].p_memsz = len;
	p[1].p_filesz = p[1].p_memsz = sizeof(value);
	memcpy(file, &h, sizeof(h));
	memcpy(file + sizeof(h), p, sizeof(p));
	memcpy(file + 2048, &value, sizeof(value));
	memcpy(file + 4096, guests[g].start, len);
	return vmm_file(file, sizeof(file), sizeof(file));
}

int guest_elf(enum guest g)
{
	return guest_elf_with(g, GUEST_FLAG, 0);
}
