#include <generated/asm-offsets.h>
