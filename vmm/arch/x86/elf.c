// SPDX-License-Identifier: Apache-2.0
#include "vmm/arch/x86/boot.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "vmm/arch/x86/layout.h"

#define SEGMENTS_MAX 64 /* a kernel has about five */

static int check_header(const Elf64_Ehdr *h, struct err *e)
{
	if (memcmp(h->e_ident, ELFMAG, SELFMAG))
		return err_say(e, ENOEXEC, "the kernel is not an ELF file (is it compressed?)");
	if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
	    h->e_machine != EM_X86_64)
		return err_say(e, ENOEXEC, "the kernel is not an ELF file for 64-bit x86");
	if (h->e_type != ET_EXEC && h->e_type != ET_DYN)
		return err_say(e, ENOEXEC, "the kernel's ELF file is of type %u, not an executable",
			       h->e_type);
	if (h->e_phentsize != sizeof(Elf64_Phdr))
		return err_say(e, ENOEXEC, "the kernel's program headers have %u bytes, not %zu",
			       h->e_phentsize, sizeof(Elf64_Phdr));
	if (!h->e_phnum || h->e_phnum > SEGMENTS_MAX)
		return err_say(e, ENOEXEC,
			       "the kernel has %u program headers; the limits are 1 and %d",
			       h->e_phnum, SEGMENTS_MAX);
	return 0;
}

static int load_segment(const struct gm *m, int fd, uint64_t file_bytes, const Elf64_Phdr *p,
			struct err *e)
{
	void *to = gm_ptr(m, p->p_paddr, p->p_memsz);

	if (p->p_filesz > p->p_memsz)
		return err_say(e, ENOEXEC, "it has more bytes in the file than in memory");
	if (p->p_offset > file_bytes || p->p_filesz > file_bytes - p->p_offset)
		return err_say(e, ENOEXEC, "it goes past the end of the file");
	if (p->p_paddr < KERNEL_MIN_ADDR)
		return err_say(e, ENOEXEC, "it loads at 0x%llx, below 1 MiB",
			       (unsigned long long)p->p_paddr);
	if (!to)
		return err_say(e, ENOMEM, "its %llu bytes at 0x%llx are not in guest memory",
			       (unsigned long long)p->p_memsz, (unsigned long long)p->p_paddr);
	return file_read(fd, p->p_offset, to, p->p_filesz, e);
}

static int load_segments(const struct gm *m, int fd, uint64_t file_bytes, const Elf64_Ehdr *h,
			 uint64_t *end, struct err *e)
{
	Elf64_Phdr p[SEGMENTS_MAX];
	unsigned loaded = 0;
	int r = file_read(fd, h->e_phoff, p, h->e_phnum * sizeof(p[0]), e);

	if (r)
		return err_context(e, "the kernel's program headers");
	*end = 0;
	for (unsigned i = 0; i < h->e_phnum; i++) {
		if (p[i].p_type != PT_LOAD || !p[i].p_memsz)
			continue;
		if (load_segment(m, fd, file_bytes, &p[i], e))
			return err_context(e, "segment %u of the kernel", i);
		if (p[i].p_paddr + p[i].p_memsz > *end)
			*end = p[i].p_paddr + p[i].p_memsz;
		loaded++;
	}
	if (!loaded)
		return err_say(e, ENOEXEC, "the kernel has nothing to load");
	return 0;
}

int elf_load(const struct gm *m, int fd, uint64_t *entry, uint64_t *end, struct err *e)
{
	uint64_t file_bytes;
	Elf64_Ehdr h;
	int r = file_size(fd, &file_bytes, e);

	if (!r)
		r = file_read(fd, 0, &h, sizeof(h), e);
	if (r)
		return err_context(e, "the kernel");
	r = check_header(&h, e);
	if (!r)
		r = load_segments(m, fd, file_bytes, &h, end, e);
	if (r)
		return r;
	if (h.e_entry < KERNEL_MIN_ADDR || !gm_ptr(m, h.e_entry, 1))
		return err_say(
			e, ENOEXEC,
			"the kernel's entry point 0x%llx is below 1 MiB or outside guest memory",
			(unsigned long long)h.e_entry);
	*entry = h.e_entry;
	return 0;
}
