/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Runs instructions that show the processor, each as its argument says, and prints what they do. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <x86intrin.h>

#define REGISTERS	 13 /* all but rax and rdx, which the counter goes to, and rsp */
#define RED_ZONE_WORDS	 16
#define ARITHMETIC_FLAGS 0x8d5 /* OF SF ZF AF PF CF */
#define CALLS		 1000
#define PAGE		 4096

static void cpuid(void)
{
	static const uint32_t leaves[] = {0,	      1,	  2,	      4,	  7,	      0xb,	 0xd,
					  0x80000000, 0x80000001, 0x80000002, 0x80000006, 0x80000007, 0x80000008};
	uint32_t a, b, c, d;

	for (unsigned int i = 0; i < sizeof(leaves) / sizeof(*leaves); i++) {
		asm volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaves[i]), "c"(0));
		printf("%08x: %08x %08x %08x %08x\n", leaves[i], a, b, c, d);
	}
}

/* Carry is set and the other flags are clear, whatever they were; two bytes leave the rest of the register. */
#define RANDOM(instruction, type)                                                             \
	do {                                                                                  \
		uint64_t value = 0x5555555555555555, flags;                                   \
                                                                                              \
		asm volatile("push $0x8d5\n\tpopfq\n\t" instruction "\n\tpushfq\n\tpop %1"    \
			     : "+r"(value), "=r"(flags));                                     \
		printf("%s %016lx flags %lx\n", instruction, value, flags &ARITHMETIC_FLAGS); \
	} while (0)

static void random_numbers(void)
{
	RANDOM("rdrand %0", uint64_t);
	RANDOM("rdrand %0", uint64_t);
	RANDOM("rdrand %k0", uint32_t);
	RANDOM("rdrand %w0", uint16_t);
	RANDOM("rdseed %0", uint64_t);
	RANDOM("rdseed %k0", uint32_t);
	RANDOM("rdseed %w0", uint16_t);
}

static sigjmp_buf again;

static void on_signal(int signal)
{
	siglongjmp(again, signal);
}

#define TRY(instruction)                                                                 \
	do {                                                                             \
		int got = sigsetjmp(again, 1);                                           \
                                                                                         \
		if (!got) {                                                              \
			asm volatile(instruction : : "a"(0), "c"(0), "d"(0) : "memory"); \
			printf("%s: no signal\n", instruction);                          \
		} else {                                                                 \
			printf("%s: SIG%s\n", instruction, sigabbrev_np(got));           \
		}                                                                        \
	} while (0)

static void undefined(void)
{
	signal(SIGILL, on_signal);
	signal(SIGSEGV, on_signal);
	TRY("xgetbv");
	TRY("rdpid %%rax");
	TRY("rdfsbase %%rax");
	TRY("rdgsbase %%rax");
	TRY("wrgsbase %%rax");
	TRY("rdpkru");
	TRY(".byte 0x0f, 0x01, 0xfd"); /* rdpru */
	TRY("invd");
	TRY("lldt %%ax");
	TRY("hlt");
}

/* Constants with the bytes of such instructions in them. */
static void constants(void)
{
	uint32_t a, b;

	asm volatile("mov $0xa20fa20f, %0\n\tmov $0xf8c70ff3, %1" : "=r"(a), "=r"(b));
	printf("%x %x\n", a, b);
}

/* around_rdtsc.S knows this. */
struct around {
	uint64_t registers[REGISTERS];
	uint64_t flags; /* before: rflags; after: those of lahf in bits 8 to 15, OF in bit 0 */
	uint64_t low, high;
	uint64_t red_zone[RED_ZONE_WORDS];
};

extern const unsigned char at_rdtsc[], at_rdtscp[];
void around_rdtsc(const struct around *before, struct around *after);
void around_rdtscp(const struct around *before, struct around *after);

/* Everything but what the instruction changes is as before it, for many values. */
static void preserved(const char *name, void (*around)(const struct around *, struct around *), bool changes_rcx)
{
	unsigned long wrong = 0, earlier = 0;
	uint64_t last = 0, value = 88172645463325252;

	for (int call = 0; call < CALLS; call++) {
		struct around before, after = {};
		uint64_t now;

		for (int i = 0; i < REGISTERS; i++) {
			value ^= value << 13;
			value ^= value >> 7;
			value ^= value << 17;
			before.registers[i] = value;
		}
		before.flags = (value & ARITHMETIC_FLAGS) | 0x202;
		around(&before, &after);
		if (changes_rcx) {
			wrong += after.registers[1] != 0;
			after.registers[1] = before.registers[1];
		}
		wrong += memcmp(before.registers, after.registers, sizeof(before.registers)) != 0;
		wrong += (after.flags >> 8 & 0xd5) != (before.flags & 0xd5);
		wrong += (after.flags & 1) != (before.flags >> 11 & 1);
		for (uint64_t i = 0; i < RED_ZONE_WORDS; i++)
			wrong += after.red_zone[i] != i + 1;
		wrong += after.low >> 32 | after.high >> 32;
		now = after.high << 32 | after.low;
		earlier += now < last;
		last = now;
	}
	printf("%s: %lu wrong, %lu earlier\n", name, wrong, earlier);
}

static void counter(void)
{
	const unsigned char *volatile text[] = {at_rdtsc, at_rdtscp};

	preserved("rdtsc", around_rdtsc, false);
	preserved("rdtscp", around_rdtscp, true);
	printf("jumps: %d %d\n", *text[0] == 0xe9, *text[1] == 0xe9);
}

/* Reads of the counter take no system call, and still time passes while a program waits by them. */
static void wait_by_counter(void)
{
	uint64_t start = __rdtsc(), calls = 0;

	while (__rdtsc() - start < 1000000)
		calls++;
	printf("%lu\n", calls);
}

/* push %rbx; mov $1,%eax; cpuid; mov %eax,(%rdi); pop %rbx; rdrand %rax; ret */
static const unsigned char made_code[] = {0x53, 0xb8, 1,    0,	  0,	0,    0x0f, 0xa2,
					  0x89, 0x07, 0x5b, 0x48, 0x0f, 0xc7, 0xf0, 0xc3};

static void run_made(const char *name, unsigned char *code)
{
	uint64_t (*made)(uint32_t *) = (uint64_t(*)(uint32_t *))(uintptr_t)code;
	uint32_t signature;
	uint64_t number = made(&signature);

	printf("%s: %x %d\n", name, signature, number != 0 && number != made(&signature));
}

/* Code made by the program, as just-in-time compilers do it. */
static void made(void)
{
	unsigned char *code =
		mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *later = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(code + PAGE, made_code, sizeof(made_code));
	run_made("always executable", code + PAGE);
	memcpy(later, made_code, sizeof(made_code));
	mprotect(later, PAGE, PROT_READ | PROT_EXEC);
	run_made("executable later", later);
	signal(SIGSEGV, on_signal);
	mprotect(later, PAGE, PROT_READ | PROT_WRITE);
	memcpy(later, (const unsigned char[]){0x0f, 0x08}, 2);
	mprotect(later, PAGE, PROT_READ | PROT_EXEC);
	int got = sigsetjmp(again, 1);

	if (!got)
		((void (*)(void))(uintptr_t)later)();
	printf("invd: SIG%s\n", sigabbrev_np(got));
}

/* As static programs of old C libraries do. */
static void vsyscalls(void)
{
	struct timeval now = {};
	unsigned int cpu = 77, node = 77;
	long ret;

#define VSYSCALL(address, a, b)                               \
	asm volatile("mov $" address ", %%rax\n\tcall *%%rax" \
		     : "=a"(ret)                              \
		     : "D"(a), "S"(b), "d"(0)                 \
		     : "rcx", "r11", "memory")
	VSYSCALL("0xffffffffff600000", &now, NULL);
	printf("gettimeofday %ld: %ld.%06ld\n", ret, now.tv_sec, now.tv_usec);
	VSYSCALL("0xffffffffff600400", NULL, NULL);
	printf("time: %ld\n", ret);
	VSYSCALL("0xffffffffff600800", &cpu, &node);
	printf("getcpu %ld: %u %u\n", ret, cpu, node);
	signal(SIGSEGV, on_signal);
	int got = sigsetjmp(again, 1);

	if (!got)
		VSYSCALL("0xffffffffff600000", 8, NULL);
	printf("bad pointer: SIG%s\n", sigabbrev_np(got));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{"cpuid", cpuid},     {"random", random_numbers}, {"undefined", undefined}, {"constants", constants},
		{"counter", counter}, {"wait", wait_by_counter},  {"made", made},	    {"vsyscalls", vsyscalls},
	};

	for (unsigned int i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		if (argc > 1 && !strcmp(argv[1], tests[i].name)) {
			tests[i].run();
			return 0;
		}
	}
	return 2;
}
