// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The machine as the kernel finds it: one CPU, the RAM the host gave, a console, seeded randomness.
 */
#include <linux/console.h>
#include <linux/cpu.h>
#include <linux/init.h>
#include <linux/initrd.h>
#include <linux/interrupt.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/printk.h>
#include <linux/reboot.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <asm/archrandom.h>
#include <asm/host.h>
#include <asm/setup.h>

unsigned long wt_ram_base;
void *wt_zero_page;
/*
 * What every instance boots with. lpj: nothing to calibrate. jent_mod_init would spin for entropy on a clock that
 * stands. No devices that nobody asked for: a node has lo and its own interfaces.
 */
static const char wt_cmdline[] __initconst = "lpj=4000000 initcall_blacklist=jent_mod_init fb_tunnels=none "
					     "dummy.numdummies=0 ifb.numifbs=0 bonding.max_bonds=0 ";

static char command_line[COMMAND_LINE_SIZE] __initdata;

static void wt_console_write(struct console *console, const char *text, unsigned int len)
{
	wt_call(console, (u64)text, len);
}

static struct console wt_console = {
	.name = "wt",
	.write = wt_console_write,
	.flags = CON_PRINTBUFFER | CON_ENABLED | CON_ANYTIME,
	.index = -1,
};

void __init setup_arch(char **cmdline_p)
{
	unsigned long max_zone_pfn[MAX_NR_ZONES] = {0};

	strscpy(boot_command_line, wt_cmdline, COMMAND_LINE_SIZE);
	if (wt_boot.cmdline)
		strlcat(boot_command_line, wt_boot.cmdline, COMMAND_LINE_SIZE);
	strscpy(command_line, boot_command_line, COMMAND_LINE_SIZE);
	*cmdline_p = command_line;
	parse_early_param();

	memblock_add(0, wt_boot.ram_size);
	max_low_pfn = wt_boot.ram_size >> PAGE_SHIFT;
	max_pfn = max_low_pfn;
	min_low_pfn = 0;
	high_memory = __va(wt_boot.ram_size);
	max_zone_pfn[ZONE_NORMAL] = max_low_pfn;
	free_area_init(max_zone_pfn);

	/* Page 0 would make a physical address of 0; keep it for the zero page. */
	memblock_reserve(0, PAGE_SIZE);
	wt_zero_page = __va(0);
	register_console(&wt_console);
}

void __init mem_init(void)
{
	memblock_free_all();
}

/* The image is the host's mapping: there is nothing to give back. */
void free_initmem(void) {}

void __init arch_cpu_finalize_init(void) {}

void __init trap_init(void) {}

void __init init_IRQ(void) {}

/*
 * Random numbers: splitmix64 over the node's seed (Steele et al., OOPSLA 2014). It only seeds the kernel's own ChaCha
 * generator and answers arch_get_random_longs().
 */
static u64 random_state;

static u64 wt_random_u64(void)
{
	u64 z;

	if (!random_state) {
		unsigned int i;

		for (i = 0; i < sizeof(wt_boot.seed); i++)
			random_state = random_state * 0x100000001b3ULL + wt_boot.seed[i] + 1;
	}
	z = random_state += 0x9e3779b97f4a7c15ULL;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* The first four words are the seed itself, so that no bit of it is lost. */
size_t wt_random_longs(unsigned long *v, size_t max_longs)
{
	static unsigned int given;
	size_t i;

	for (i = 0; i < max_longs; i++) {
		v[i] = wt_random_u64();
		if (given < sizeof(wt_boot.seed) / sizeof(u64)) {
			u64 word;

			memcpy(&word, wt_boot.seed + 8 * given++, sizeof(word));
			v[i] ^= word;
		}
	}
	return max_longs;
}

void machine_restart(char *cmd)
{
	panic("the node asked for a restart");
}

void machine_halt(void)
{
	panic("the node asked to halt");
}

void machine_power_off(void)
{
	panic("the node asked to power off");
}

static int show_cpuinfo(struct seq_file *m, void *v)
{
	seq_puts(m, "processor\t: 0\n"
		    "vendor_id\t: GenuineIntel\n"
		    "model name\t: Windtunnel virtual CPU\n"
		    "cpu MHz\t\t: 1000.000\n"
		    "physical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\n"
		    "flags\t\t: fpu tsc cx8 cmov mmx fxsr sse sse2 syscall nx lm pni ssse3 cx16 sse4_1 sse4_2 popcnt "
		    "lahf_lm\n\n");
	return 0;
}

static void *c_start(struct seq_file *m, loff_t *pos)
{
	return *pos < 1 ? (void *)1 : NULL;
}

static void *c_next(struct seq_file *m, void *v, loff_t *pos)
{
	++*pos;
	return NULL;
}

static void c_stop(struct seq_file *m, void *v) {}

const struct seq_operations cpuinfo_op = {
	.start = c_start,
	.next = c_next,
	.stop = c_stop,
	.show = show_cpuinfo,
};

/* /proc/interrupts: the host's events have no numbers. */
int show_interrupts(struct seq_file *p, void *v)
{
	return 0;
}
