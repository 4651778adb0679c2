/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_ELF_H
#define _ASM_WT_ELF_H
#include <asm/ptrace.h>

typedef unsigned long elf_greg_t;
#define ELF_NGREG (sizeof(struct pt_regs) / sizeof(elf_greg_t))
typedef elf_greg_t elf_gregset_t[ELF_NGREG];
typedef struct {
	unsigned char bytes[512];
} elf_fpregset_t;

#define ELF_CLASS ELFCLASS64
#define ELF_DATA ELFDATA2LSB
#define ELF_ARCH EM_X86_64
#define ELF_EXEC_PAGESIZE 4096
#define ELF_PLATFORM "x86_64"
#define elf_check_arch(x) ((x)->e_machine == EM_X86_64)
#define SET_PERSONALITY(ex) set_personality(PER_LINUX)
/* CPUID.1:EDX of the machine programs see; the host answers cpuid itself the same way. */
#define ELF_HWCAP 0x0f8bfbff
#endif
