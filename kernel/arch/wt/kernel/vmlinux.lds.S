/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two load segments. Code and data without pointers is mapped shared from the file by every instance; everything that
 * holds an address, or changes, is private and writable. Init code stays: nothing is gained by freeing shared pages.
 */
#define RO_EXCEPTION_TABLE_ALIGN 8
#include <asm/cache.h>
#include <asm/page.h>
#include <asm/thread_info.h>
#include <asm-generic/vmlinux.lds.h>
#include "hot_text.lds.h"

OUTPUT_FORMAT("elf64-x86-64")
OUTPUT_ARCH(i386:x86-64)
jiffies = jiffies_64;

PHDRS
{
	text PT_LOAD FLAGS(5) FILEHDR PHDRS;
	data PT_LOAD FLAGS(6);
	dynamic PT_DYNAMIC FLAGS(6);
	note PT_NOTE FLAGS(4);
}

SECTIONS
{
	. = SIZEOF_HEADERS;
	.notes : { __start_notes = .; *(.note.gnu.build-id) *(.note.Linux) __stop_notes = .; } :text :note
	.gnu.hash : { *(.gnu.hash) } :text
	.dynsym : { *(.dynsym) } :text
	.dynstr : { *(.dynstr) } :text
	.relr.dyn : { *(.relr.dyn) } :text
	.rela.dyn : { *(.rela.dyn) *(.rela*) } :text

	. = ALIGN(PAGE_SIZE);
	_text = .;
	.text : {
		_stext = .;
		HEAD_TEXT
		WT_HOT_TEXT
		TEXT_TEXT
		*(.text.*)
		SCHED_TEXT
		LOCK_TEXT
		KPROBES_TEXT
		IRQENTRY_TEXT
		SOFTIRQENTRY_TEXT
		_sinittext = .;
		INIT_TEXT
		EXIT_TEXT
		_einittext = .;
		_etext = .;
	} :text

	. = ALIGN(PAGE_SIZE);
	.rodata : {
		__start_rodata = .;
		*(EXCLUDE_FILE(*kallsyms*.o) .rodata EXCLUDE_FILE(*kallsyms*.o) .rodata.*)
		*(__tracepoints_strings)
		*(__ksymtab_strings)
		*(.init.rodata.str*)
		__end_rodata = .; /* kstrdup_const() does not copy what is below */
	} :text

	. = ALIGN(PAGE_SIZE);
	_sdata = .;
	.data : {
		INIT_TASK_DATA(THREAD_SIZE)
		*(.data.rel.ro*)
		*kallsyms*.o(.rodata .rodata.*)
		SCHED_DATA
		RO_AFTER_INIT_DATA
		. = ALIGN(8);
		BOUNDED_SECTION_BY(__tracepoints_ptrs, ___tracepoints_ptrs)
		*(.ref.rodata)
		. = ALIGN(8);
		BOUNDED_SECTION_BY(__param, ___param)
		BOUNDED_SECTION_BY(__modver, ___modver)
		NOSAVE_DATA
		PAGE_ALIGNED_DATA(PAGE_SIZE)
		CACHELINE_ALIGNED_DATA(L1_CACHE_BYTES)
		READ_MOSTLY_DATA(L1_CACHE_BYTES)
		DATA_DATA
		CONSTRUCTORS
		. = ALIGN(8);
		BOUNDED_SECTION_PRE_LABEL(__bug_table, __bug_table, __start_, __stop_)
	} :data

	__ksymtab : { __start___ksymtab = .; KEEP(*(SORT(___ksymtab+*))) __stop___ksymtab = .; } :data
	__ksymtab_gpl : { __start___ksymtab_gpl = .; KEEP(*(SORT(___ksymtab_gpl+*))) __stop___ksymtab_gpl = .; } :data
	__ex_table : { __start___ex_table = .; KEEP(*(__ex_table)) __stop___ex_table = .; } :data

	__init_begin = .;
	INIT_DATA_SECTION(16) :data
	PERCPU_SECTION(L1_CACHE_BYTES)
	__init_end = .;

	.dynamic : { *(.dynamic) } :data :dynamic
	.got : { *(.got) *(.got.plt) *(.igot*) } :data
	_edata = .;

	BSS_SECTION(0, PAGE_SIZE, 8)
	_end = .;

	DWARF_DEBUG
	ELF_DETAILS
	DISCARDS
	/DISCARD/ : { *(.eh_frame) *(.note.GNU-stack) *(.interp) *(.gnu.version*) *(.note.gnu.property) }
}
