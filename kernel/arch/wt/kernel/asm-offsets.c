// SPDX-License-Identifier: GPL-2.0-or-later
#include <linux/kbuild.h>
#include <linux/sched.h>
#include <asm/ptrace.h>

int main(void)
{
	OFFSET(TASK_SP, task_struct, thread.sp);
	OFFSET(TASK_FULL, task_struct, thread.full);
	DEFINE(PT_REGS_SIZE, sizeof(struct pt_regs));
	return 0;
}
