/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_IRQFLAGS_H
#define _ASM_WT_IRQFLAGS_H
/*
 * Interrupts arrive only where the kernel goes to the host for them: in the idle loop, and while a task pays for CPU time
 * (wt_busy_entry). So the flag is bookkeeping: the kernel's own checks read it, nothing is ever held off by it.
 */
extern unsigned long wt_irq_on;

static inline unsigned long arch_local_save_flags(void)
{
	return wt_irq_on;
}

static inline void arch_local_irq_restore(unsigned long flags)
{
	wt_irq_on = flags;
}

static inline void arch_local_irq_enable(void)
{
	wt_irq_on = 1;
}

static inline void arch_local_irq_disable(void)
{
	wt_irq_on = 0;
}

static inline unsigned long arch_local_irq_save(void)
{
	unsigned long flags = wt_irq_on;

	wt_irq_on = 0;
	return flags;
}

static inline bool arch_irqs_disabled_flags(unsigned long flags)
{
	return !flags;
}

static inline bool arch_irqs_disabled(void)
{
	return !wt_irq_on;
}
#endif
