// SPDX-License-Identifier: Apache-2.0
/* The functions that libgcc calls for a division by 0. */
#include "zynq.h"

_Noreturn void __aeabi_idiv0(void)
{
	zynq_panic("division by zero");
}

_Noreturn void __aeabi_ldiv0(void)
{
	zynq_panic("division by zero");
}
